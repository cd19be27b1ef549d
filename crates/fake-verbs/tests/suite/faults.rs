//! What a script makes go wrong.

use crate::common::{BOTH_KINDS, End, PATIENCE, RETRIES_TAKE, SMALL, alone, connected, first_device_with};
use pomar_fake_verbs::{FailSend, Script};
use pomar_verbs::{Completion, QpKind, VerbsError};
use std::{
    io,
    num::NonZeroU64,
    thread,
    time::{Duration, Instant},
};

#[test]
fn the_nth_send_fails_and_the_rest_is_flushed() {
    // Each device has a failure of its own.
    let mut script = Script::default();
    for device in &mut script.devices {
        device.faults.fail_send = Some(FailSend { nth: 3, status: 20 });
    }
    alone(&script, || {
        let [a, b] = connected(QpKind::Rc, SMALL);
        third_send_fails(&a, &b);
        let [a, b] = connected(QpKind::Uc, SMALL);
        third_send_fails(&b, &a);
    });
}

fn third_send_fails(from: &End, to: &End) {
    (1..=4).for_each(|id| to.post_receive(id, 0..10));
    (1..=2).for_each(|id| from.post_send(id, 0..10));
    from.wait_for_each(1..=2);
    to.wait_for_each(1..=2);
    from.post_send(3, 0..10);
    assert_eq!(from.wait_for_failure(3), "the peer's response timed out");
    from.post_send(4, 0..10);
    assert!(from.wait_for_failure(4).starts_with("flushed"));
    to.stays_quiet(Duration::from_millis(50));
}

#[test]
fn a_failure_waits_for_the_sends_before_it() {
    let script = first_device_with(|device| device.faults.fail_send = Some(FailSend { nth: 2, status: 4 }));
    alone(&script, || {
        let [a, b] = connected(QpKind::Rc, SMALL);
        (1..=3).for_each(|id| a.post_send(id, 0..10));
        a.stays_quiet(Duration::from_millis(50));
        b.post_receive(1, 0..10);
        a.wait_for(1);
        assert!(a.wait_for_failure(2).starts_with("local protection error"));
        assert!(a.wait_for_failure(3).starts_with("flushed"));
    });
}

#[test]
fn each_nth_message_is_damaged() {
    let script = first_device_with(|device| device.faults.damage_every = NonZeroU64::new(2));
    alone(&script, || {
        for kind in BOTH_KINDS {
            let [a, b] = connected(kind, SMALL);
            a.fill(0..10, 5);
            for id in 1..=4 {
                b.post_receive(id, 100..110);
                a.post_send(id, 0..10);
                b.wait_for(id);
                a.wait_for(id);
                let last = if id % 2 == 0 { 5 ^ 0xff } else { 5 };
                assert_eq!(b.bytes(100..110), [[5; 9].as_slice(), &[last]].concat());
            }
        }
    });
}

#[test]
fn a_device_dies_after_its_last_send() {
    let script = first_device_with(|device| device.faults.die_after_sends = Some(2));
    alone(&script, || {
        let [a, b] = connected(QpKind::Uc, SMALL);
        (1..=4).for_each(|id| b.post_receive(id, 0..10));
        a.post_receive(7, 100..200);
        a.post_send(1, 0..10);
        a.post_send(2, 0..10);
        a.wait_for_each(1..=2);
        assert!(a.wait_for_failure(7).starts_with("flushed"));
        b.wait_for_each(1..=2);
        is_dead(&a);
    });
}

#[test]
fn a_device_dies_after_a_while() {
    let script = first_device_with(|device| device.faults.die_after_ms = Some(200));
    alone(&script, || {
        let [a, b] = connected(QpKind::Rc, SMALL);
        a.post_receive(7, 100..200);
        a.post_send(1, 0..10);
        assert!(a.wait_for_failure(1).starts_with("flushed"));
        assert!(a.wait_for_failure(7).starts_with("flushed"));
        is_dead(&a);
        // Its peer finds nobody there.
        b.post_send(1, 0..10);
        assert!(b.wait_for_failure(1).starts_with("transport retry counter exceeded"));
    });
}

/// Every call that needs the device answers `EIO`; dropping the end frees everything all the same, as `alone` sees.
fn is_dead(end: &End) {
    let mut completion = [Completion::default()];
    let answers = [
        end.try_send(8, 0..10).err(),
        end.completions.poll(&mut completion).err(),
        end.device.port().err(),
        end.device.limits().err(),
        end.device.gids().err(),
        end.device.protection_domain().err(),
        end.domain.register(4096).err(),
        end.device.library().open_device(end.device.name()).err(),
    ];
    for answer in answers {
        let error = answer.expect("the device is dead");
        assert!(error.to_string().contains("the device is gone or broken"), "{error}");
    }
}

#[test]
fn a_deaf_device_answers_nobody_and_still_sends() {
    let script = first_device_with(|device| device.faults.deaf_after_receives = Some(1));
    alone(&script, || {
        for kind in BOTH_KINDS {
            let [deaf, other] = connected(kind, SMALL);
            (1..=2).for_each(|id| deaf.post_receive(id, 0..10));
            if kind == QpKind::Rc {
                other.post_send(1, 0..10);
                other.wait_for(1);
                deaf.wait_for(1);
            }
            let start = Instant::now();
            other.post_receive(9, 20..30);
            other.post_send(2, 0..10);
            deaf.post_send(3, 0..10);
            deaf.wait_for(3);
            other.wait_for(if kind == QpKind::Rc { 9 } else { 2 });
            if kind == QpKind::Rc {
                assert!(other.wait_for_failure(2).starts_with("transport retry counter exceeded"));
                assert!(start.elapsed() >= RETRIES_TAKE);
            } else {
                other.wait_for(9);
            }
            deaf.stays_quiet(Duration::from_millis(50));
        }
    });
}

#[test]
fn a_device_that_turns_deaf_fails_the_sends_that_wait() {
    let script = first_device_with(|device| device.faults.deaf_after_ms = Some(300));
    alone(&script, || {
        let [deaf, other] = connected(QpKind::Rc, SMALL);
        let start = Instant::now();
        // No receive is posted, so it waits: first for that, then for an answer.
        other.post_send(1, 0..10);
        assert!(other.wait_for_failure(1).starts_with("transport retry counter exceeded"));
        assert!(start.elapsed() >= RETRIES_TAKE);
        drop(deaf);
    });
}

#[test]
fn every_nth_unreliable_message_is_lost() {
    let script = first_device_with(|device| device.faults.lose_every = NonZeroU64::new(3));
    alone(&script, || {
        for kind in BOTH_KINDS {
            let [a, b] = connected(kind, SMALL);
            (0..6).for_each(|id| b.post_receive(id, id as usize * 10..id as usize * 10 + 10));
            for id in 1..=6 {
                a.fill(0..10, id as u8);
                a.post_send(id, 0..10);
                a.wait_for(id);
            }
            let arrived: &[u8] = if kind == QpKind::Uc { &[1, 2, 4, 5] } else { &[1, 2, 3, 4, 5, 6] };
            for (place, with) in arrived.iter().enumerate() {
                b.wait_for(place as u64);
                assert_eq!(b.bytes(place * 10..place * 10 + 10), [*with; 10]);
            }
            b.stays_quiet(Duration::from_millis(50));
        }
    });
}

#[test]
fn latency_delays_and_reads_the_bytes_late() {
    let script = first_device_with(|device| device.faults.latency_us = 100_000);
    alone(&script, || {
        for kind in BOTH_KINDS {
            let [a, b] = connected(kind, SMALL);
            b.post_receive(1, 0..10);
            let start = Instant::now();
            a.fill(0..10, 1);
            a.post_send(1, 0..10);
            // The mistake that this is to show: too early.
            a.fill(0..10, 2);
            b.wait_for(1);
            assert!(start.elapsed() >= Duration::from_millis(100));
            assert_eq!(b.bytes(0..10), [2; 10]);
            a.wait_for(1);
        }
    });
}

#[test]
fn a_device_works_while_its_program_sleeps() {
    let script = first_device_with(|device| device.faults.latency_us = 1000);
    alone(&script, || {
        let [a, b] = connected(QpKind::Rc, SMALL);
        // More than a socket takes at once, so that it needs several rounds.
        let long = 0..SMALL.memory / 2;
        (1..=8).for_each(|id| b.post_receive(id, long.clone()));
        (1..=8).for_each(|id| a.post_send(id, long.clone()));
        let start = Instant::now();
        let mut found = [Completion::default(); 16];
        // One poll each time, with sleep between: the completions come from the background thread.
        let mut count = 0;
        while count < 8 {
            thread::sleep(Duration::from_millis(20));
            count += a.completions.poll(&mut found).unwrap();
            assert!(start.elapsed() < PATIENCE, "{count} completions");
        }
        assert_eq!(b.completions.poll(&mut found).unwrap(), 8);
    });
}

#[test]
fn an_error_says_what_the_system_said() {
    let script = first_device_with(|device| device.kinds = vec![pomar_fake_verbs::Kind::Uc]);
    alone(&script, || {
        let end = End::new("fake0", QpKind::Uc, SMALL);
        let depth = pomar_verbs::Depth { send: 1, receive: 1 };
        let error = end.domain.queue_pair(&end.completions, QpKind::Rc, depth).expect_err("UC only");
        let VerbsError::System { call, device, errno } = &error else { panic!("{error}") };
        assert_eq!((*call, device.as_str()), ("ibv_create_qp", "fake0"));
        assert_eq!(errno.kind(), io::ErrorKind::Unsupported);
    });
}

#[test]
fn a_peer_that_cannot_be_reached_is_an_error_when_connecting() {
    alone(&first_device_with(|device| device.faults.unreachable = true), || {
        let [a, b] = ["fake0", "fake1"].map(|name| End::new(name, QpKind::Uc, SMALL));
        let error = a.pair.connect(&a.local(), &b.as_remote()).expect_err("nobody there");
        let text = error.to_string();
        assert!(text.starts_with("ibv_modify_qp to RTR failed on fake0: "), "{text}");
        assert!(text.ends_with("does its interface, at the other end of this cable, have it?"), "{text}");
    });
}
