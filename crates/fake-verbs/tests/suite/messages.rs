//! Messages between two queue pairs of good devices.

use crate::common::{BOTH_KINDS, End, RETRIES_TAKE, SMALL, Size, alone, connected};
use pomar_fake_verbs::Script;
use pomar_verbs::{Completion, Depth, LocalEnd, PathMtu, QpKind, RemoteEnd, VerbsError};
use std::time::{Duration, Instant};

const RETRY_EXCEEDED: &str = "transport retry counter exceeded: the peer does not answer";

#[test]
fn ping_pong_of_all_sizes() {
    alone(&Script::default(), || {
        for kind in BOTH_KINDS {
            let [a, b] = connected(kind, Size { depth: 4, memory: 1 << 20 });
            for (round, bytes) in [0, 1, 4095, 4096, 65537, 512 << 10].into_iter().enumerate() {
                let with = round as u8 + 1;
                for (from, to) in [(&a, &b), (&b, &a)] {
                    to.post_receive(2, 512 << 10..512 << 11);
                    from.fill(0..bytes, with);
                    from.post_send(1, 0..bytes);
                    let received = to.wait_for(2);
                    assert!(received.is_receive);
                    assert_eq!((received.bytes as usize, received.queue_pair), (bytes, to.pair.number()));
                    assert_eq!(to.bytes(512 << 10..(512 << 10) + bytes), vec![with; bytes]);
                    let sent = from.wait_for(1);
                    assert!(!sent.is_receive);
                }
            }
        }
    });
}

#[test]
fn many_messages_arrive_in_order() {
    alone(&Script::default(), || {
        const ROUNDS: u64 = 500;
        for kind in BOTH_KINDS {
            let [a, b] = connected(kind, SMALL);
            // Eight places of a kilobyte: as deep as the queues.
            let place = |index: u64| {
                let start = (index % 8) as usize * 1024;
                start..start + 1024
            };
            (0..8).for_each(|index| b.post_receive(index, place(index)));
            for index in 0..ROUNDS {
                a.fill(place(index), index as u8);
                a.post_send(index, place(index));
                b.wait_for(index);
                assert_eq!(b.bytes(place(index)), vec![index as u8; 1024]);
                b.post_receive(index + 8, place(index));
                a.wait_for(index);
            }
        }
    });
}

#[test]
fn a_chain_of_receives_takes_messages_one_by_one() {
    alone(&Script::default(), || {
        let [a, b] = connected(QpKind::Rc, Size { depth: 40, memory: 1 << 16 });
        let receives: Vec<_> = (0..40).map(|index| (index as u64, index * 64..index * 64 + 64)).collect();
        // SAFETY: looked at after the completions only.
        unsafe { b.pair.post_receives(&b.memory, &receives) }.unwrap();
        for index in 0..40 {
            a.fill(index * 64..index * 64 + 64, index as u8);
            a.post_send(100 + index as u64, index * 64..index * 64 + 64);
        }
        for (id, range) in receives {
            b.wait_for(id);
            assert_eq!(b.bytes(range), vec![id as u8; 64]);
        }
        a.wait_for_each(100..=139);
    });
}

#[test]
fn a_reliable_send_waits_for_a_receive() {
    alone(&Script::default(), || {
        let [a, b] = connected(QpKind::Rc, SMALL);
        a.fill(0..100, 9);
        a.post_send(1, 0..100);
        // Longer than it takes to give up on a peer that is gone.
        a.stays_quiet(RETRIES_TAKE * 2);
        b.post_receive(2, 0..100);
        b.wait_for(2);
        a.wait_for(1);
        assert_eq!(b.bytes(0..100), vec![9; 100]);
    });
}

#[test]
fn an_unreliable_send_without_receive_is_lost() {
    alone(&Script::default(), || {
        let [a, b] = connected(QpKind::Uc, SMALL);
        a.fill(0..10, 1);
        a.post_send(1, 0..10);
        a.wait_for(1);
        b.stays_quiet(Duration::from_millis(100));
        b.post_receive(3, 0..10);
        b.stays_quiet(Duration::from_millis(100));
        a.fill(0..10, 2);
        a.post_send(2, 0..10);
        b.wait_for(3);
        assert_eq!(b.bytes(0..10), vec![2; 10], "the first message is gone");
        a.wait_for(2);
    });
}

#[test]
fn a_message_longer_than_its_receive_breaks_the_receiver() {
    alone(&Script::default(), || {
        for kind in BOTH_KINDS {
            let [a, b] = connected(kind, SMALL);
            b.post_receive(10, 0..99);
            b.post_receive(11, 200..300);
            a.post_send(1, 0..100);
            assert!(b.wait_for_failure(10).starts_with("local length error"));
            assert!(b.wait_for_failure(11).starts_with("flushed"));
            if kind == QpKind::Rc {
                assert!(a.wait_for_failure(1).starts_with("the peer refused the request"));
                a.post_send(2, 0..100);
                assert!(a.wait_for_failure(2).starts_with("flushed"));
            } else {
                a.wait_for(1);
            }
            // A broken queue pair gives everything back at once.
            b.post_receive(12, 0..10);
            assert!(b.wait_for_failure(12).starts_with("flushed"));
        }
    });
}

#[test]
fn a_peer_that_is_gone_is_noticed_by_rc_only() {
    alone(&Script::default(), || {
        for kind in BOTH_KINDS {
            let [a, b] = connected(kind, SMALL);
            drop(b);
            let start = Instant::now();
            a.post_receive(9, 1000..1100);
            (1..=3).for_each(|id| a.post_send(id, 0..100));
            if kind == QpKind::Uc {
                a.wait_for_each(1..=3);
                continue;
            }
            assert_eq!(a.wait_for_failure(1), RETRY_EXCEEDED);
            let after = start.elapsed();
            assert!(after >= RETRIES_TAKE && after < RETRIES_TAKE * 4, "{after:?}");
            for id in [2, 3, 9] {
                assert!(a.wait_for_failure(id).starts_with("flushed"));
            }
        }
    });
}

#[test]
fn a_peer_that_goes_while_a_send_waits_is_noticed() {
    alone(&Script::default(), || {
        let [a, b] = connected(QpKind::Rc, SMALL);
        a.post_send(1, 0..100);
        a.stays_quiet(Duration::from_millis(100));
        drop(b);
        assert_eq!(a.wait_for_failure(1), RETRY_EXCEEDED);
    });
}

/// What is wrong at the first end, how, and whether the first and the second end's sends arrive all the same.
type Mismatch = (&'static str, fn(&mut LocalEnd, &mut RemoteEnd), [bool; 2]);

#[test]
fn ends_that_do_not_match_do_not_hear_each_other() {
    alone(&Script::default(), || {
        let wrong: [Mismatch; 4] = [
            ("packet number", |_, remote| remote.packet_sequence += 1, [true, false]),
            ("address", |_, remote| remote.gid.0[15] ^= 1, [false, true]),
            ("path MTU", |local, _| local.path_mtu = PathMtu::M512, [false, false]),
            ("path MTU above the port's", |local, _| local.path_mtu = PathMtu::M4096, [false, false]),
        ];
        for (what, spoil, arrives) in wrong {
            let [a, b] = [End::new("fake0", QpKind::Rc, SMALL), End::new("fake1", QpKind::Rc, SMALL)];
            let (mut local, mut remote) = (a.local(), b.as_remote());
            spoil(&mut local, &mut remote);
            a.pair.connect(&local, &remote).unwrap();
            b.connect(&a);
            for end in [&a, &b] {
                end.post_receive(2, 0..100);
                end.post_send(1, 200..300);
            }
            assert_eq!([&a, &b].map(send_arrives), arrives, "{what}");
        }
    });
}

/// Whether the end's send, number 1, arrives.
fn send_arrives(end: &End) -> bool {
    loop {
        let completion = end.wait();
        if completion.id == 1 {
            return completion.status.is_ok();
        }
    }
}

#[test]
fn work_requests_are_checked_before_they_are_posted() {
    alone(&Script::default(), || {
        let [a, b] = connected(QpKind::Rc, Size { depth: 2, memory: 4096 });
        let outside = a.try_send(1, 4000..4097).expect_err("outside");
        assert_eq!(
            outside.to_string(),
            "bytes 4000 to 4097 are not a message inside a memory region of 4096 bytes"
        );
        // SAFETY: refused.
        let strange = unsafe { a.pair.post_receive(1, &b.memory, 0..10) }.expect_err("another domain's");
        assert!(matches!(strange, VerbsError::Stranger { .. }), "{strange}");
        a.post_send(1, 0..10);
        a.post_send(2, 0..10);
        let full = a.try_send(3, 0..10).expect_err("no room");
        assert!(full.to_string().starts_with("ibv_post_send failed on fake0: "), "{full}");
        b.post_receive(1, 0..10);
        b.wait_for(1);
        a.wait_for(1);
        // A polled completion makes room.
        a.post_send(3, 0..10);
    });
}

#[test]
fn nothing_can_be_sent_before_the_connection() {
    alone(&Script::default(), || {
        let end = End::new("fake0", QpKind::Rc, SMALL);
        end.post_receive(1, 0..10);
        let early = end.try_send(2, 0..10).expect_err("not connected");
        assert!(matches!(early, VerbsError::System { call: "ibv_post_send", .. }), "{early}");
    });
}

#[test]
fn a_completion_queue_that_overflows_is_broken() {
    alone(&Script::default(), || {
        let peer = End::new("fake1", QpKind::Uc, SMALL);
        let end = End::new("fake0", QpKind::Uc, SMALL);
        let narrow = end.device.completion_queue(1).unwrap();
        let pair = end.domain.queue_pair(&narrow, QpKind::Uc, Depth { send: 4, receive: 4 }).unwrap();
        pair.connect(&end.local(), &peer.as_remote()).unwrap();
        for id in 0..2 {
            // SAFETY: nobody writes to the bytes.
            unsafe { pair.post_send(id, &end.memory, 0..10) }.unwrap();
        }
        let error = narrow.poll(&mut [Completion::default()]).expect_err("two completions for one place");
        assert!(matches!(error, VerbsError::System { call: "ibv_poll_cq", .. }), "{error}");
    });
}

#[test]
fn a_queue_pair_keeps_the_memory_it_was_given() {
    alone(&Script::default(), || {
        let [a, b] = connected(QpKind::Rc, SMALL);
        let temporary = b.domain.register(4096).unwrap();
        // SAFETY: nobody looks at the bytes.
        unsafe { b.pair.post_receive(1, &temporary, 0..10) }.unwrap();
        drop(temporary);
        // Deregistered, it would be a protection error of both ends.
        a.post_send(1, 0..10);
        a.wait_for(1);
        b.wait_for(1);
    });
}
