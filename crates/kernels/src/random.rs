//! Random numbers without a state: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2,
//! 3", 2011).
//!
//! A token's random number is a function of the request's seed and the token's position, so it is the same in
//! any batch, on any rank, and after a resumed stream.

/// The random number in `[0, 1)`, a multiple of 2^-24, that belongs to `position` under `seed`.
pub fn uniform(seed: u64, position: u64) -> f32 {
    let [first, ..] = philox([low(position), high(position), 0, 0], [low(seed), high(seed)]);
    (first >> 8) as f32 * (1.0 / 16_777_216.0)
}

/// The ten-round Philox permutation of a 128-bit counter under a 64-bit key, lowest words first.
pub fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..10 {
        let [x0, x1, x2, x3] = counter;
        let first = u64::from(x0) * 0xD251_1F53;
        let second = u64::from(x2) * 0xCD9E_8D57;
        counter = [high(second) ^ x1 ^ key[0], low(second), high(first) ^ x3 ^ key[1], low(first)];
        key = [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)];
    }
    counter
}

fn low(x: u64) -> u32 {
    x as u32
}

fn high(x: u64) -> u32 {
    (x >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known answers that the authors publish with Random123 (`philox4x32 10`).
    #[test]
    fn known_answers() {
        assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(philox([!0; 4], [!0; 2]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        let counter = [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344];
        let key = [0xa409_3822, 0x299f_31d0];
        assert_eq!(philox(counter, key), [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]);
    }

    #[test]
    fn uniform_fills_the_interval_evenly() {
        let mut bins = [0u32; 16];
        for position in 0..16_000 {
            let u = uniform(7, position);
            assert!((0.0..1.0).contains(&u));
            bins[(u * 16.0) as usize] += 1;
        }
        // Expected 1000 each; 5 standard deviations are 153.
        assert!(bins.iter().all(|n| n.abs_diff(1000) < 153), "{bins:?}");
    }

    #[test]
    fn every_bit_of_seed_and_position_counts() {
        for bit in 0..64 {
            assert_ne!(uniform(1 << bit, 5), uniform(0, 5));
            assert_ne!(uniform(5, 1 << bit), uniform(5, 0));
        }
    }
}
