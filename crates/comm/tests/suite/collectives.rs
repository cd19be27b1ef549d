//! Every collective over every transport, element type and awkward size, checked against plain arithmetic.

use crate::{
    checks::{check_all, check_movement},
    common::{KINDS, Kind, solo, with_ranks},
};
use pomar_comm::CommError;

fn check_sizes(kind: Kind, sizes: impl IntoIterator<Item = usize>) {
    for size in sizes {
        with_ranks(kind, size, check_all);
    }
}

#[test]
fn a_group_of_one() {
    check_all(&solo());
    KINDS.into_iter().for_each(|kind| check_sizes(kind, [1]));
}

#[test]
fn over_shared_memory() {
    check_sizes(Kind::Shm, 2..=4);
}

#[test]
fn over_shared_memory_in_small_pieces() {
    check_sizes(Kind::SmallShm, [2, 3]);
}

#[test]
fn over_tcp() {
    check_sizes(Kind::Tcp, 2..=4);
}

#[test]
fn more_ranks_than_cores() {
    for kind in [Kind::Shm, Kind::Tcp] {
        for size in [5, 6, 7, 8] {
            with_ranks(kind, size, |group| {
                check_movement(group);
                for round in 0..300 {
                    let mut data = [round + group.rank() as i64; 1024];
                    group.all_sum(data.as_mut_slice().into()).unwrap();
                    let size = size as i64;
                    assert_eq!(data, [round * size + size * (size - 1) / 2; 1024]);
                }
            });
        }
    }
}

#[test]
fn nan_wins_a_maximum() {
    for kind in KINDS {
        with_ranks(kind, 3, |group| {
            let mut data = [1.0, group.rank() as f32];
            data[0] = if group.rank() == 1 { f32::NAN } else { 9.0 };
            group.all_max(data.as_mut_slice().into()).unwrap();
            assert!(data[0].is_nan() && data[1] == 2.0);
        });
    }
}

#[test]
fn a_buffer_of_the_wrong_size_is_refused_before_anything_is_sent() {
    with_ranks(Kind::Shm, 2, |group| {
        let error = group.all_gather(&[1, 2], &mut [0; 3]).unwrap_err();
        assert!(matches!(error, CommError::BufferSize { expected: 4, got: 3, .. }));
        group.barrier().unwrap();
    });
}

#[test]
fn other_sizes_or_calls_on_another_rank_are_errors_on_all() {
    for kind in KINDS {
        with_ranks(kind, 2, |group| {
            let error = group.all_sum(vec![0_i32; 4 + group.rank()].as_mut_slice().into()).unwrap_err();
            assert!(
                matches!(error, CommError::SizeMismatch { .. } | CommError::Aborted { .. }),
                "{kind:?}: {error}"
            );
            assert!(group.barrier().is_err(), "the group is spent");
        });
        with_ranks(kind, 2, |group| {
            let mut data = [0; 8];
            let error = match group.rank() {
                0 => group.broadcast(0, &mut data).unwrap_err(),
                _ => group.all_max(data.as_mut_slice().into()).unwrap_err(),
            };
            assert!(
                matches!(
                    error,
                    CommError::OutOfStep { .. } | CommError::Aborted { .. } | CommError::SizeMismatch { .. }
                ),
                "{kind:?}: {error}"
            );
        });
    }
}
