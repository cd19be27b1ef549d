//! Reading memory as fast as it goes, to know how fast that is.

use crate::{by_level, pool::Pool};
use std::sync::atomic::{AtomicU64, Ordering};

/// Words of 32 bits that are added side by side: eight registers of 512 bits, enough to keep loads under way.
const LANES: usize = 128;

/// Bytes that one task reads: long enough that starting it costs nothing, short enough to be shared out evenly.
const TASK_BYTES: usize = 1 << 20;

by_level! {
    /// The sum of all words, modulo 2^64; lanes wrap around at 2^32.
    fn sum(words: &[u32]) -> u64 {
        let mut lanes = [0_u32; LANES];
        let (blocks, rest) = words.as_chunks::<LANES>();
        for block in blocks {
            for (lane, word) in lanes.iter_mut().zip(block) {
                *lane = lane.wrapping_add(*word);
            }
        }
        lanes.iter().chain(rest).fold(0_u64, |sum, word| sum.wrapping_add(u64::from(*word)))
    }
}

/// Reads all words once, on all threads of the pool, and returns a number that depends on every one of them.
pub fn read(pool: &Pool, words: &[u32]) -> u64 {
    let parts: Vec<&[u32]> = words.chunks(TASK_BYTES / 4).collect();
    let total = AtomicU64::new(0);
    pool.run(parts.len(), &|task| {
        total.fetch_add(sum(pool.level(), parts[task]), Ordering::Relaxed);
    });
    total.into_inner()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Level;

    #[test]
    fn every_word_counts() {
        let words: Vec<u32> = (0..2 * TASK_BYTES as u32 / 4 + 1_003).collect();
        let expected: u64 = words.iter().map(|word| u64::from(*word)).sum();
        // Lanes wrap around, so only what is left below 2^32 is equal.
        for level in Level::supported() {
            for threads in [1, 3] {
                let total = read(&Pool::with_level(threads, level), &words);
                assert_eq!(total as u32, expected as u32, "{level}, {threads} threads");
            }
        }
    }
}
