//! The one shape that sums of floats have: 16 lanes, folded by a fixed tree.

/// The number of lanes. Element `i` of a row belongs to lane `i % LANES`, whatever the register width.
pub(crate) const LANES: usize = 16;

/// Folds the lanes in halves: 16 to 8 to 4 to 2 to 1, each lane with the one half the width away.
#[inline(always)]
pub(crate) fn fold<T: Copy>(mut lanes: [T; LANES], combine: impl Fn(T, T) -> T) -> T {
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] = combine(lanes[lane], lanes[lane + width]);
        }
        width /= 2;
    }
    lanes[0]
}

/// The larger of two numbers; `new` only when it is larger, so a NaN in `new` is passed over.
#[inline(always)]
pub(crate) fn larger(old: f32, new: f32) -> f32 {
    if new > old { new } else { old }
}
