//! What the product kernels need of an instruction set.

use crate::level::Level;

/// Sixteen rows at a time: the operations of one level.
///
/// # Safety
/// All functions but [`Isa::with`] may only run in code compiled for the level, on a processor that has it:
/// call them from [`Kernel::run`] and from nowhere else. Pointers must be good for what the function says it
/// reads.
pub(super) trait Isa: Copy {
    /// 16 floats.
    type Floats: Copy;
    /// 16 sums of code products.
    type Ints: Copy;

    /// The level whose operations these are.
    const LEVEL: Level;

    /// What must be taken off each code of 8 bits as [`Isa::dots8`] sees it.
    const ZERO8: i32;

    /// Runs `kernel` compiled for this level.
    ///
    /// # Safety
    /// The processor has the level's instructions, and what [`Kernel::run`] of this kernel asks for holds.
    unsafe fn with<K: Kernel>(kernel: K) -> K::Output;

    /// `value` in every lane.
    unsafe fn splat(value: f32) -> Self::Floats;
    /// `value` in every lane.
    unsafe fn splat_int(value: i32) -> Self::Ints;
    /// 16 floats from an address that is a multiple of 64.
    unsafe fn load(from: *const f32) -> Self::Floats;
    /// 16 halves, widened, from an address that is a multiple of 32.
    unsafe fn load_f16(from: *const u16) -> Self::Floats;
    /// 16 numbers in bfloat16, widened, from an address that is a multiple of 32.
    unsafe fn load_bf16(from: *const u16) -> Self::Floats;
    /// Writes 16 floats to an address that is a multiple of 64.
    unsafe fn store(values: Self::Floats, to: *mut f32);
    /// The floats nearest to the integers (exact below 2^24).
    unsafe fn to_floats(values: Self::Ints) -> Self::Floats;
    /// `a + b`.
    unsafe fn add(a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// `a * b`.
    unsafe fn mul(a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// `a * b + c`, rounded once.
    unsafe fn mul_add(a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats;

    /// Adds to `sums`, for each of `T` tokens, the products of 16 rows of 4-bit codes (0..16) with 32
    /// activations.
    ///
    /// `codes` are the 256 bytes of a block as [`pack`](crate::pack) lays them out, at a multiple of 64; the
    /// activations of token `t` are the 32 bytes at `x + 32 * t`.
    unsafe fn dots4<const T: usize>(codes: *const u8, x: *const i8, sums: [Self::Ints; T])
    -> [Self::Ints; T];

    /// Adds to `sums`, for each of `T` tokens, the products of 16 rows of 8-bit codes (plus [`Isa::ZERO8`])
    /// with `4 * GROUPS` activations.
    ///
    /// `codes` are `64 * GROUPS` bytes as [`pack`](crate::pack) lays them out, at a multiple of 64; the
    /// activations of token `t` start at `x + 32 * t`.
    unsafe fn dots8<const T: usize, const GROUPS: usize>(
        codes: *const u8,
        x: *const i8,
        sums: [Self::Ints; T],
    ) -> [Self::Ints; T];

    /// Asks for the cache line at `address`, which need not be a valid one.
    unsafe fn prefetch(address: *const u8);
}

/// A computation written once for all levels.
pub(super) trait Kernel {
    /// What it returns.
    type Output;

    /// Computes with the operations of `L`. Implementations are `#[inline(always)]`, so that [`Isa::with`]
    /// compiles them for its level.
    ///
    /// # Safety
    /// Called by [`Isa::with`] only; the kernel may ask for more.
    unsafe fn run<L: Isa>(self) -> Self::Output;
}
