//! Links that fail while they are used: both ranks are told, within two seconds, which link and what happened.

use super::{alone, assert_says, device, devices_with, over, over_own, rdma_ranks};
use crate::job::SOON;
use pomar_comm::{CommError, Group, QpKind, RdmaOptions, TcpGroup};
use pomar_fake_verbs::{FailSend, FakeDevice};
use std::{
    num::NonZeroU64,
    thread,
    time::{Duration, Instant},
};

const BOTH_KINDS: [QpKind; 2] = [QpKind::Rc, QpKind::Uc];

fn of_kind(kind: QpKind, size: usize) -> impl Fn(usize) -> RdmaOptions + Sync {
    move |rank| RdmaOptions { queue_pairs: Some(kind), ..over_own(rank, size) }
}

/// Sums until that fails; the error and how long the last sum took.
fn sum_until_the_end(group: Result<TcpGroup, CommError>) -> (CommError, Duration) {
    let group = group.unwrap();
    loop {
        let started = Instant::now();
        if let Err(error) = group.all_sum([1_i64; 100].as_mut_slice().into()) {
            return (error, started.elapsed());
        }
    }
}

/// All ranks are told soon that a link failed, in the same words; those at its ends (`0` and `1`) blame each other.
fn assert_link_failed(told: &[(CommError, Duration)], parts: &[&str]) {
    for (rank, (error, took)) in told.iter().enumerate() {
        println!("rank {rank} after {took:.1?}: {error}");
        assert!(matches!(error, CommError::LinkFailed { .. }), "rank {rank}: {error}");
        assert!(*took < SOON, "rank {rank}: {took:?}");
        assert_says(&error.to_string(), parts);
        if rank < 2 {
            assert_eq!(error.rank(), Some(1 - rank), "rank {rank}: {error}");
        }
    }
}

#[test]
fn a_completion_in_error() {
    let failing =
        devices_with(2, 0, |device| device.faults.fail_send = Some(FailSend { nth: 40, status: 12 }));
    alone(&failing, || {
        let told = rdma_ranks(2, of_kind(QpKind::Rc, 2), sum_until_the_end);
        assert_link_failed(
            &told,
            &["fake0 of rank 0: transport retry counter exceeded", "look at its cable and port"],
        );
    });
}

#[test]
fn a_third_rank_is_told_which_link() {
    let mut devices = vec![device(0), device(1), device(2), device(3)];
    devices[0].faults.fail_send = Some(FailSend { nth: 40, status: 10 });
    alone(&devices, || {
        // Rank 0 reaches rank 1 by fake0, and rank 2 by fake3.
        let options = |rank: usize| {
            let mut options = over_own(rank, 3);
            if rank == 0 {
                options.devices[2] = vec!["fake3".into()];
            }
            options
        };
        let told = rdma_ranks(3, options, sum_until_the_end);
        assert_link_failed(&told, &["fake0 of rank 0: "]);
        assert!(told[2].0.rank().is_some_and(|end| end < 2), "{}", told[2].0);
    });
}

#[test]
fn a_peer_that_answers_no_more() {
    let deaf = devices_with(2, 1, |device| device.faults.deaf_after_receives = Some(60));
    alone(&deaf, || {
        let told = rdma_ranks(2, of_kind(QpKind::Rc, 2), sum_until_the_end);
        assert_link_failed(&told, &["fake0 of rank 0: transport retry counter exceeded"]);
    });
}

#[test]
fn a_peer_that_hears_no_more_and_is_not_missed() {
    let deaf = devices_with(2, 1, |device| device.faults.deaf_after_receives = Some(60));
    alone(&deaf, || {
        let told = rdma_ranks(2, of_kind(QpKind::Uc, 2), sum_until_the_end);
        assert_link_failed(
            &told,
            &["frames from rank 0 to rank 1 never arrived", "reliable queue pairs (rc)"],
        );
    });
}

/// Dies while the ranks sum: long after they have connected.
fn mortal() -> Vec<FakeDevice> {
    devices_with(2, 1, |device| device.faults.die_after_sends = Some(500))
}

#[test]
fn a_device_that_dies() {
    alone(&mortal(), || {
        let told = rdma_ranks(2, of_kind(QpKind::Rc, 2), sum_until_the_end);
        assert_link_failed(&told, &["of rank "]);
    });
}

#[test]
fn a_device_that_dies_without_its_peer_being_told() {
    alone(&mortal(), || {
        let told = rdma_ranks(2, of_kind(QpKind::Uc, 2), sum_until_the_end);
        assert_link_failed(&told, &["of rank "]);
    });
}

#[test]
fn a_device_that_dies_after_a_while() {
    alone(&devices_with(2, 0, |device| device.faults.die_after_ms = Some(1500)), || {
        let told = rdma_ranks(2, of_kind(QpKind::Rc, 2), sum_until_the_end);
        assert_link_failed(&told, &["of rank "]);
    });
}

fn losing(every: u64) -> Vec<FakeDevice> {
    devices_with(2, 0, |device| device.faults.lose_every = NonZeroU64::new(every))
}

#[test]
fn a_lost_frame() {
    alone(&losing(33), || {
        let told = rdma_ranks(2, of_kind(QpKind::Uc, 2), sum_until_the_end);
        assert_link_failed(&told, &["lost"]);
    });
}

#[test]
fn a_lost_frame_that_none_follows() {
    // The first frame is of the barrier at the end of connecting.
    alone(&losing(2), || {
        let told = rdma_ranks(2, of_kind(QpKind::Uc, 2), |group| {
            let group = group.unwrap();
            let started = Instant::now();
            let error = if group.rank() == 0 {
                group.send(1, b"the only one").unwrap();
                group.recv(1, &mut [0; 4]).unwrap_err()
            } else {
                group.recv(0, &mut [0; 12]).unwrap_err()
            };
            (error, started.elapsed())
        });
        assert_link_failed(&told, &["1 of 2 frames from rank 0 to rank 1 never arrived: the link lost them"]);
    });
}

#[test]
fn a_lost_frame_before_its_sender_leaves() {
    alone(&losing(2), || {
        rdma_ranks(2, of_kind(QpKind::Uc, 2), |group| {
            let group = group.unwrap();
            if group.rank() == 0 {
                return group.send(1, b"the only one").unwrap();
            }
            let started = Instant::now();
            let error = group.recv(0, &mut [0; 12]).unwrap_err();
            println!("after {:.1?}: {error}", started.elapsed());
            assert!(matches!(error, CommError::LinkFailed { rank: 0, .. }), "{error}");
            assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
        });
    });
}

/// Announced and unread is not lost, on whichever cable it came.
#[test]
fn a_message_that_nobody_reads_for_long_is_not_lost() {
    let devices = [device(0), device(1), device(2), device(3)];
    alone(&devices, || {
        for kind in BOTH_KINDS {
            let options = |rank: usize| {
                let names = [["fake0", "fake2"], ["fake1", "fake3"]];
                RdmaOptions { queue_pairs: Some(kind), ..over(rank, 2, &names[rank]) }
            };
            rdma_ranks(2, options, |group| {
                let group = group.unwrap();
                if group.rank() == 0 {
                    group.send(1, b"read later").unwrap();
                    thread::sleep(SOON);
                }
                // Rank 1 waits here, for frames of the other cable.
                group.barrier().unwrap();
                if group.rank() == 1 {
                    group.recv(0, &mut [0; 10]).unwrap();
                }
            });
        }
    });
}

#[test]
fn damaged_bytes_are_noticed_with_checksums() {
    let damaging = devices_with(2, 0, |device| device.faults.damage_every = NonZeroU64::new(50));
    alone(&damaging, || {
        for kind in BOTH_KINDS {
            // One of the two asks for checksums.
            let options = |rank: usize| RdmaOptions { checksum: rank == 0, ..of_kind(kind, 2)(rank) };
            let told = rdma_ranks(2, options, sum_until_the_end);
            assert_link_failed(&told, &["fake1 of rank 1: a frame whose bytes were damaged on the way"]);
        }
    });
}
