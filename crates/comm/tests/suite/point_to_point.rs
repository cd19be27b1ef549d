//! Sends and receives: order, sizes, messages, deadlines, aborts, farewells.

use crate::common::{KINDS, Kind, groups, run, with_ranks};
use pomar_comm::{CommError, GroupOptions, MAX_MESSAGE_BYTES};
use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

const SOON: Duration = Duration::from_millis(50);

#[test]
fn messages_of_all_sizes_arrive_in_order() {
    let sizes = [0, 1, 23, 24, 25, 1000, 1024, 4097, 70_001, 3_000_000];
    for kind in KINDS {
        with_ranks(kind, 4, |group| {
            let (rank, size) = (group.rank(), group.size());
            let (next, before) = ((rank + 1) % size, (rank + size - 1) % size);
            let content = |rank: usize, bytes: usize| vec![(rank * 31 + bytes) as u8; bytes];
            thread::scope(|scope| {
                scope.spawn(|| {
                    sizes.iter().for_each(|n| group.send_message(next, &content(rank, *n)).unwrap())
                });
                let mut message = vec![];
                for bytes in sizes {
                    group.recv_message(before, &mut message).unwrap();
                    assert!(message == content(before, bytes), "{kind:?} {bytes}");
                }
            });
        });
    }
}

#[test]
fn sends_and_collectives_run_side_by_side() {
    for kind in KINDS {
        with_ranks(kind, 2, |group| {
            let peer = 1 - group.rank();
            thread::scope(|scope| {
                scope.spawn(|| (0..500_u32).for_each(|i| group.send(peer, &i.to_le_bytes()).unwrap()));
                scope.spawn(|| {
                    for i in 0..500_u32 {
                        let mut got = [0; 4];
                        group.recv(peer, &mut got).unwrap();
                        assert_eq!(u32::from_le_bytes(got), i);
                    }
                });
                for i in 0..500 {
                    let mut data = [i; 100];
                    group.all_sum(data.as_mut_slice().into()).unwrap();
                    assert_eq!(data, [i * 2; 100]);
                }
            });
        });
    }
}

#[test]
fn unread_data_does_not_stop_collectives() {
    for kind in [Kind::Shm, Kind::Tcp] {
        with_ranks(kind, 2, |group| {
            let peer = 1 - group.rank();
            group.send(peer, &[1; 900_000]).unwrap();
            for _ in 0..20 {
                group.all_sum(vec![1_i64; 50_000].as_mut_slice().into()).unwrap();
            }
            group.recv(peer, &mut vec![0; 900_000]).unwrap();
        });
    }
}

#[test]
fn a_receive_that_times_out_can_be_repeated() {
    for kind in KINDS {
        with_ranks(kind, 2, |group| {
            let mut message = vec![];
            if group.rank() == 0 {
                let started = Instant::now();
                let error = group.recv_message_within(1, &mut message, SOON).unwrap_err();
                assert!(matches!(error, CommError::Timeout { waiting_for: 1, op: "recv", .. }), "{error}");
                assert!(started.elapsed() >= SOON && started.elapsed() < SOON * 10);
                group.send(1, b"now").unwrap();
                group.recv_message(1, &mut message).unwrap();
                assert_eq!(message, b"late");
            } else {
                group.recv(0, &mut [0; 3]).unwrap();
                group.send_message(0, b"late").unwrap();
            }
        });
    }
}

#[test]
fn a_collective_that_times_out_ends_the_group_everywhere() {
    for kind in KINDS {
        let options = GroupOptions { deadline: SOON, ..GroupOptions::default() };
        run(groups(kind, 3, &options), |group| {
            if group.rank() == 2 {
                let mut message = vec![];
                let error = group.recv_message_within(0, &mut message, SOON * 20).unwrap_err();
                assert!(matches!(error, CommError::Aborted { .. }), "{kind:?} {error}");
            } else {
                let error = group.barrier().unwrap_err();
                assert_eq!(
                    error.rank(),
                    Some(if matches!(error, CommError::Timeout { .. }) { 2 } else { 1 - group.rank() }),
                    "{error}"
                );
            }
        });
    }
}

#[test]
fn a_send_that_nobody_takes_times_out() {
    for kind in KINDS {
        let options = GroupOptions { deadline: SOON, ..GroupOptions::default() };
        let groups = groups(kind, 2, &options);
        let error = loop {
            if let Err(error) = groups[0].send(1, &[0; 1000]) {
                break error;
            }
        };
        assert!(matches!(error, CommError::Timeout { waiting_for: 1, op: "send", .. }), "{kind:?} {error}");
    }
}

#[test]
fn another_size_is_an_error_for_both() {
    for kind in KINDS {
        with_ranks(kind, 2, |group| {
            if group.rank() == 0 {
                group.send(1, &[1; 5]).unwrap();
                assert!(matches!(group.recv(1, &mut [0]).unwrap_err(), CommError::Aborted { by: 1, .. }));
            } else {
                let error = group.recv(0, &mut [0; 6]).unwrap_err();
                assert!(
                    matches!(error, CommError::SizeMismatch { rank: 0, expected: 6, got: 5, .. }),
                    "{error}"
                );
            }
        });
    }
}

#[test]
fn an_announced_length_beyond_the_limit_is_refused() {
    for kind in KINDS {
        with_ranks(kind, 2, |group| {
            if group.rank() == 0 {
                group.send(1, &(MAX_MESSAGE_BYTES as u64 + 1).to_le_bytes()).unwrap();
                assert!(group.recv(1, &mut [0]).is_err());
            } else {
                let mut message = vec![];
                let error = group.recv_message(0, &mut message).unwrap_err();
                assert!(matches!(error, CommError::MessageTooLarge { .. }), "{error}");
                assert_eq!(message.capacity(), 0);
            }
        });
    }
}

#[test]
fn oneself_and_strangers_are_no_peers() {
    with_ranks(Kind::Shm, 2, |group| {
        for peer in [group.rank(), 2, usize::MAX] {
            assert!(matches!(group.send(peer, &[]).unwrap_err(), CommError::NoSuchPeer { .. }));
            assert!(matches!(group.recv(peer, &mut []).unwrap_err(), CommError::NoSuchPeer { .. }));
        }
        assert!(matches!(group.broadcast(2, &mut []).unwrap_err(), CommError::NoSuchPeer { .. }));
    });
}

/// Lets `blocked` block in a receive on rank 1, aborts on `aborter`, and says how long the news took.
fn abort_latency(kind: Kind, aborter: usize) -> Duration {
    let groups = groups(kind, 2, &GroupOptions::default());
    let blocked = Arc::clone(&groups[1]);
    let receiver = thread::spawn(move || {
        let error = blocked.recv(0, &mut [0; 8]).unwrap_err();
        (Instant::now(), error)
    });
    thread::sleep(SOON * 2);
    let aborted_at = Instant::now();
    groups[aborter].abort("enough");
    let (woken_at, error) = receiver.join().unwrap();
    assert!(
        matches!(&error, CommError::Aborted { by, reason } if *by == aborter && reason == "enough"),
        "{kind:?} {error}"
    );
    for group in &groups {
        assert!(matches!(group.barrier().unwrap_err(), CommError::Aborted { .. }), "future calls fail too");
    }
    woken_at - aborted_at
}

#[test]
fn an_abort_wakes_a_blocked_receive() {
    for kind in KINDS {
        for aborter in [0, 1] {
            let latency = abort_latency(kind, aborter);
            println!("{kind:?}: abort on rank {aborter} woke rank 1 after {latency:?}");
            assert!(latency < SOON, "{kind:?} {latency:?}");
        }
    }
}

#[test]
fn a_rank_that_left_is_named_by_those_who_wait_for_it() {
    for kind in KINDS {
        with_leaver(kind);
    }
}

fn with_leaver(kind: Kind) {
    let mut groups = groups(kind, 3, &GroupOptions::default());
    groups[2].send(0, b"bye").unwrap();
    drop(groups.pop());
    let mut last = [0; 3];
    groups[0].recv(2, &mut last).unwrap();
    assert_eq!(&last, b"bye", "what was sent before the farewell still counts");
    let error = groups[0].recv(2, &mut last).unwrap_err();
    assert!(matches!(error, CommError::PeerDead { rank: 2, .. }), "{error}");
    groups[0].send(1, b"we").unwrap();
    groups[1].recv(0, &mut last[..2]).unwrap();
    run(groups, |group| assert_eq!(group.barrier().unwrap_err().rank(), Some(2)));
}
