//! Every collective over every element type and awkward size, checked against plain arithmetic. Whatever the transport.

use half::{bf16, f16};
use pomar_comm::{BufferMut, Group};
use std::fmt::Debug;

/// Elements: none, one, odd, around a small slot, three million bytes of the widest type.
const LENGTHS: [usize; 7] = [0, 1, 7, 511, 513, 5001, 393_217];

/// A number for `(rank, index)` that differs from its neighbours.
fn seed(rank: usize, index: usize) -> u64 {
    let mixed = (rank as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        ^ (index as u64).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ mixed >> 29
}

trait Sample: Copy + PartialEq + Debug + 'static {
    fn sample(rank: usize, index: usize) -> Self;
    fn sum(parts: impl Iterator<Item = Self>) -> Self;
    fn max(parts: impl Iterator<Item = Self>) -> Self;
    fn bits(self) -> u64;
}

macro_rules! integer_sample {
    ($($type:ty),+) => {$(impl Sample for $type {
        fn sample(rank: usize, index: usize) -> Self { seed(rank, index) as $type }
        fn sum(parts: impl Iterator<Item = Self>) -> Self { parts.fold(0, <$type>::wrapping_add) }
        fn max(parts: impl Iterator<Item = Self>) -> Self { parts.max().unwrap() }
        fn bits(self) -> u64 { self as u64 }
    })+};
}
integer_sample!(i64, i32, u8);

macro_rules! float_sample {
    ($($type:ty, $from:expr, $to:expr, $bits:ty);+) => {$(impl Sample for $type {
        fn sample(rank: usize, index: usize) -> Self {
            $from((seed(rank, index) % 20_001) as f32 / 77.0 - 130.0)
        }
        fn sum(parts: impl Iterator<Item = Self>) -> Self { $from(parts.map($to).reduce(|a, b| a + b).unwrap()) }
        fn max(parts: impl Iterator<Item = Self>) -> Self { $from(parts.map($to).reduce(f32::max).unwrap()) }
        fn bits(self) -> u64 { u64::from(self.to_bits()) }
    })+};
}
float_sample!(f32, f32::from, f32::from, u32; f16, f16::from_f32, f16::to_f32, u16; bf16, bf16::from_f32, bf16::to_f32, u16);

fn check_reductions<T: Sample>(group: &dyn Group)
where
    for<'a> BufferMut<'a>: From<&'a mut [T]>,
{
    let (rank, size) = (group.rank(), group.size());
    for length in LENGTHS {
        let own: Vec<T> = (0..length).map(|i| T::sample(rank, i)).collect();
        let (mut sum, mut max) = (own.clone(), own);
        group.all_sum(sum.as_mut_slice().into()).unwrap();
        group.all_max(max.as_mut_slice().into()).unwrap();
        for i in 0..length {
            let parts = || (0..size).map(|r| T::sample(r, i));
            assert_eq!(sum[i].bits(), T::sum(parts()).bits(), "sum, rank {rank}/{size}, {i}/{length}");
            assert_eq!(max[i].bits(), T::max(parts()).bits(), "max, rank {rank}/{size}, {i}/{length}");
        }
    }
}

pub(crate) fn check_all(group: &dyn Group) {
    check_reductions::<i64>(group);
    check_reductions::<f32>(group);
    check_reductions::<f16>(group);
    check_reductions::<bf16>(group);
    check_reductions::<i32>(group);
    check_reductions::<u8>(group);
    check_movement(group);
    group.barrier().unwrap();
}

pub(crate) fn check_movement(group: &dyn Group) {
    let (rank, size) = (group.rank(), group.size());
    for length in LENGTHS {
        let bytes = |rank: usize| (0..length).map(move |i| seed(rank, i) as u8);
        let mine: Vec<u8> = bytes(rank).collect();
        let mut all = vec![0; length * size];
        group.all_gather(&mine, &mut all).unwrap();
        assert!((0..size).flat_map(bytes).eq(all), "gather of {length}");
        for root in 0..size {
            let mut data = mine.clone();
            group.broadcast(root, &mut data).unwrap();
            assert!(bytes(root).eq(data), "broadcast of {length} from {root}");
        }
    }
}
