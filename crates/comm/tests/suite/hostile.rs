//! Strangers, wrong keys, damaged segments and damaged frames.

use crate::common::{KEY, Kind, groups, listen, loopback};
use pomar_comm::{
    CommError, Group, GroupOptions, Segment, ShmGroup, TcpGroup, TcpListenerHandle,
    tcp::{
        FRAME_HEADER_BYTES, FrameError, FrameHeader, FrameKind, MAX_PAYLOAD, fuzz_frames, parse_frame_header,
    },
};
use proptest::prelude::*;
use std::{
    fs::File,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::fs::FileExt,
    thread,
    time::{Duration, Instant},
};

fn hurried() -> GroupOptions {
    GroupOptions { join_deadline: Duration::from_millis(700), ..GroupOptions::default() }
}

#[test]
fn strangers_do_not_disturb_the_setup() {
    let (listeners, addresses) = listen(2, loopback());
    let door = addresses[0][0];
    let mut held = vec![];
    for words in [&b""[..], b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"POMARTCP", &[0xff; 5000], &[0; 76]] {
        let mut stranger = TcpStream::connect(door).unwrap();
        stranger.write_all(words).unwrap();
        held.push(stranger);
    }
    // More of them than are listened to at a time.
    held.extend((0..80).map(|_| TcpStream::connect(door).unwrap()));
    let connect = |rank: usize, listener| {
        let addresses = addresses.clone();
        thread::spawn(move || {
            TcpGroup::connect(listener, rank, &addresses, &KEY, GroupOptions::default()).unwrap()
        })
    };
    let ranks: Vec<_> = listeners.into_iter().enumerate().map(|(rank, l)| connect(rank, l)).collect();
    let groups: Vec<_> = ranks.into_iter().map(|rank| rank.join().unwrap()).collect();
    thread::scope(|scope| groups.iter().for_each(|group| drop(scope.spawn(|| group.barrier().unwrap()))));
    assert!(TcpStream::connect(door).is_err(), "nobody listens once all have come");
    for mut stranger in held {
        stranger.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
        let answer = stranger.read(&mut [0; 100]);
        assert!(matches!(answer, Ok(0) | Err(_)), "a stranger is told nothing");
    }
}

#[test]
fn a_rank_that_still_joins_is_not_missed() {
    // Where rank 2 looks for rank 1 first, nobody answers: it tries for longer than a silent rank counts as alive. Meanwhile
    // rank 0 has all its connections.
    let nobody = TcpListener::bind(loopback()).unwrap();
    let (listeners, addresses) = listen(3, loopback());
    thread::scope(|scope| {
        for (rank, listener) in listeners.into_iter().enumerate() {
            let mut addresses = addresses.clone();
            if rank == 2 {
                addresses[1].insert(0, nobody.local_addr().unwrap());
            }
            scope.spawn(move || {
                let group = TcpGroup::connect(listener, rank, &addresses, &KEY, GroupOptions::default());
                group.unwrap().barrier().unwrap();
            });
        }
    });
}

#[test]
fn another_key_is_noticed_at_once_by_both_sides() {
    let started = Instant::now();
    let (listeners, addresses) = listen(2, loopback());
    let ranks: Vec<_> = listeners
        .into_iter()
        .enumerate()
        .map(|(rank, listener)| {
            let (addresses, key) = (addresses.clone(), [rank as u8; 32]);
            let options = GroupOptions::default();
            thread::spawn(move || TcpGroup::connect(listener, rank, &addresses, &key, options).unwrap_err())
        })
        .collect();
    let errors: Vec<_> = ranks.into_iter().map(|rank| rank.join().unwrap().to_string()).collect();
    assert!(started.elapsed() < Duration::from_secs(3), "long before the deadline");
    assert!(errors[0].contains("rank 0 and rank 1 do not fit together (127.0.0.1:"), "{}", errors[0]);
    let expected =
        format!("rank 1 and rank 0 do not fit together ({}: the instance keys differ", addresses[0][0]);
    assert!(errors[1].contains(&expected), "{}", errors[1]);
}

/// A stranger who knows the protocol but not the key, and claims to be a rank, when the real one is on its way.
#[test]
fn an_impostor_does_not_keep_the_real_rank_out() {
    let (mut listeners, addresses) = listen(2, loopback());
    let connect = |listener, rank, key: [u8; 32]| {
        let addresses = addresses.clone();
        thread::spawn(move || TcpGroup::connect(listener, rank, &addresses, &key, GroupOptions::default()))
    };
    let (real, first) = (listeners.pop().unwrap(), listeners.pop().unwrap());
    let lower = connect(first, 0, KEY);
    let impostor = TcpListenerHandle::bind(&[loopback()]).unwrap();
    let refused = connect(impostor, 1, [0; 32]).join().unwrap().unwrap_err();
    assert!(refused.to_string().contains("the instance keys differ"), "{refused}");
    let higher = connect(real, 1, KEY);
    let groups = [lower.join().unwrap().unwrap(), higher.join().unwrap().unwrap()];
    thread::scope(|scope| groups.iter().for_each(|group| drop(scope.spawn(|| group.barrier().unwrap()))));
}

#[test]
fn each_rank_that_does_not_fit_is_told_why() {
    let (mut listeners, addresses) = listen(2, loopback());
    let waiting = listeners.remove(0);
    let door = addresses[0].clone();
    let lower =
        thread::spawn(move || TcpGroup::connect(waiting, 0, &addresses, &KEY, hurried()).unwrap_err());
    let try_as = |rank: usize, size: usize| {
        let listener = TcpListenerHandle::bind(&[loopback()]).unwrap();
        let addresses = vec![door.clone(); size];
        TcpGroup::connect(listener, rank, &addresses, &KEY, hurried()).unwrap_err().to_string()
    };
    let error = try_as(1, 3);
    assert!(error.contains("it belongs to a group with another number of ranks"), "{error}");
    // Another version, as far as its hello is known.
    let mut other = TcpStream::connect(door[0]).unwrap();
    other.write_all(b"POMARTCP\x03\0\0\0................").unwrap();
    let mut answer = vec![];
    other.read_to_end(&mut answer).unwrap();
    assert_eq!(answer[..12], *b"POMARACK\x02\0\0\0", "told this side's version");
    // None of them disturbs the setup.
    let error = lower.join().unwrap();
    assert!(matches!(error, CommError::DidNotJoin { missing: 1, .. }), "{error}");
}

#[test]
fn an_absent_rank_is_named() {
    let listener = TcpListenerHandle::bind(&[loopback()]).unwrap();
    let nobody = TcpListenerHandle::bind(&[loopback()]).unwrap().addresses()[0];
    let addresses = [vec![nobody], listener.addresses().to_vec()];
    let error = TcpGroup::connect(listener, 1, &addresses, &KEY, hurried()).unwrap_err();
    assert!(matches!(error, CommError::NoPath { from: 1, to: 0, .. }), "{error}");
    assert!(error.to_string().contains(&format!("({nobody}: connection refused)")), "{error}");
    let segment = Segment::create(2).unwrap();
    let error = ShmGroup::attach(segment.into_owned_fd(), 0, 2, hurried()).unwrap_err();
    assert!(matches!(error, CommError::DidNotJoin { missing: 1, .. }), "{error}");
}

#[test]
fn a_segment_that_is_not_ours_is_refused() {
    let attach = |segment: Segment, rank, size| {
        ShmGroup::attach(segment.into_owned_fd(), rank, size, hurried()).unwrap_err().to_string()
    };
    let file = tempfile::tempfile().unwrap();
    file.set_len(1 << 20).unwrap();
    let error = ShmGroup::attach(file.into(), 0, 1, hurried()).unwrap_err();
    assert!(matches!(error, CommError::Setup { .. }), "{error}");
    assert!(attach(Segment::create(2).unwrap(), 0, 3).contains("2 ranks"));
    assert!(attach(Segment::create(2).unwrap(), 2, 2).contains("count from 0"));
    // Each header word in turn.
    for (word, value) in [(0, 0), (1, 99), (2, 64), (2, u64::MAX), (3, 7), (4, 3), (4, 1 << 40), (5, 1)] {
        let segment = Segment::create(2).unwrap();
        let file = File::from(segment.try_clone_fd().unwrap());
        file.write_all_at(&u64::to_le_bytes(value), word * 8).unwrap();
        let error = ShmGroup::attach(segment.into_owned_fd(), 0, 2, hurried()).unwrap_err();
        assert!(matches!(error, CommError::Setup { .. }), "word {word}: {error}");
    }
}

#[test]
fn a_place_can_be_taken_once() {
    let segment = Segment::create(1).unwrap();
    let fd = || segment.try_clone_fd().unwrap();
    let _first = ShmGroup::attach(fd(), 0, 1, hurried()).unwrap();
    let error = ShmGroup::attach(fd(), 0, 1, hurried()).unwrap_err();
    assert!(error.to_string().contains("already taken"), "{error}");
}

/// Overwrites all of a living segment but its header with `value`: every call must end with an error, and soon.
#[test]
fn a_segment_full_of_nonsense_is_an_error() {
    for value in [0x01, 0x7f, 0xff] {
        let segment = Segment::create(2).unwrap();
        let (first, second) = (segment.try_clone_fd().unwrap(), segment.try_clone_fd().unwrap());
        let options = GroupOptions { deadline: Duration::from_millis(300), ..GroupOptions::default() };
        let other = options.clone();
        let peer = thread::spawn(move || ShmGroup::attach(second, 1, 2, other).unwrap());
        let group = ShmGroup::attach(first, 0, 2, options).unwrap();
        let _peer = peer.join().unwrap();
        let file = File::from(segment.into_owned_fd());
        let bytes = file.metadata().unwrap().len() - 4096;
        file.write_all_at(&vec![value; bytes as usize], 4096).unwrap();
        assert!(group.recv(1, &mut [0; 64]).is_err());
        // The ring looks empty until its writer has to ask for room.
        assert!(group.send(1, &vec![0; 3 << 20]).is_err());
        assert!(group.all_sum([1_i32; 8].as_mut_slice().into()).is_err());
        group.abort("over");
    }
}

fn frame(kind: FrameKind, channel: u8, value: u64, length: u32) -> [u8; FRAME_HEADER_BYTES] {
    FrameHeader { kind, channel, value, length }.to_bytes()
}

#[test]
fn a_frame_header_survives_the_journey() {
    for (kind, channel, length) in [(FrameKind::Data, 1, MAX_PAYLOAD as u32), (FrameKind::Abort, 0, 200)] {
        let header = FrameHeader { kind, channel, value: u64::MAX - 3, length };
        assert_eq!(parse_frame_header(&header.to_bytes()), Ok(header));
    }
}

#[test]
fn each_wrong_field_of_a_header_has_its_error() {
    let broken = |at: usize, value: u8| {
        let mut bytes = frame(FrameKind::Data, 0, 0, 0);
        bytes[at] = value;
        parse_frame_header(&bytes)
    };
    assert_eq!(parse_frame_header(&[0; 23]), Err(FrameError::Short(23)));
    assert_eq!(broken(0, b'X'), Err(FrameError::Magic(*b"XMRF")));
    assert_eq!(broken(4, 2), Err(FrameError::Version(2)));
    assert_eq!(broken(5, 0), Err(FrameError::Kind(0)));
    assert_eq!(broken(6, 2), Err(FrameError::Channel(2)));
    assert_eq!(broken(7, 1), Err(FrameError::Reserved));
    assert_eq!(broken(23, 1), Err(FrameError::Reserved));
    assert!(matches!(broken(19, 255), Err(FrameError::Length { .. })));
    assert!(matches!(
        parse_frame_header(&frame(FrameKind::Heartbeat, 0, 0, 1)),
        Err(FrameError::Length { limit: 0, .. })
    ));
}

#[test]
fn streams_that_break_the_rules_are_errors() {
    let with_payload = |header: [u8; FRAME_HEADER_BYTES], bytes: usize| {
        let mut frame = header.to_vec();
        frame.resize(FRAME_HEADER_BYTES + bytes, 0);
        frame
    };
    let leave = frame(FrameKind::Leave, 0, 0, 0);
    assert_eq!(fuzz_frames(&[leave, leave].concat(), 7), Err(FrameError::AfterLeave));
    let gap = frame(FrameKind::Data, 0, 1, 0);
    assert_eq!(fuzz_frames(&gap, 24), Err(FrameError::OutOfOrder { got: 1, expected: 0 }));
    let flood = with_payload(frame(FrameKind::Data, 1, 0, 10_000), 10_000);
    assert_eq!(fuzz_frames(&flood, 10_000), Err(FrameError::Overrun));
    assert_eq!(fuzz_frames(&flood, 1000), Ok(()), "a receiver that keeps up");
    assert_eq!(fuzz_frames(&flood[..5000], 1000), Ok(()), "half a frame is no error yet");
}

#[test]
fn the_fuzzer_s_seeds_end_as_their_names_say() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/comm_frames");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let good = name.starts_with("good-");
        if !good && !name.starts_with("bad-") {
            continue;
        }
        let bytes = std::fs::read(&path).unwrap();
        for step in [1, 13, 1024] {
            assert_eq!(fuzz_frames(&bytes, step).is_ok(), good, "{name} in steps of {step}");
        }
        seen += 1;
    }
    assert!(seen >= 12);
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2000), step in 1_usize..100) {
        let _ = fuzz_frames(&bytes, step);
    }

    /// Frames with random fields behind a right magic and version get further than noise does.
    #[test]
    fn any_frames_are_read_without_panic(
        frames in proptest::collection::vec((1_u8..8, 0_u8..3, 0_u64..300, 0_u32..300), 1..20),
        step in 1_usize..100,
    ) {
        let mut bytes = vec![];
        for (kind, channel, value, length) in frames {
            let mut header = frame(FrameKind::Data, channel, value, length);
            header[5] = kind;
            bytes.extend_from_slice(&header);
            bytes.resize(bytes.len() + length as usize, kind);
        }
        let whole = fuzz_frames(&bytes, bytes.len());
        if !matches!(whole, Err(FrameError::Overrun)) {
            prop_assert_eq!(fuzz_frames(&bytes, step), whole, "where the bytes are cut makes no difference");
        }
    }
}

/// Garbage on a connection that was proved: a rank that went mad.
#[test]
fn a_group_outlives_nothing_that_it_cannot_understand() {
    let groups = groups(Kind::Tcp, 2, &GroupOptions::default());
    groups[0].send(1, &[0; 16]).unwrap();
    let error = groups[1].recv(0, &mut [0; 17]).unwrap_err();
    assert!(matches!(error, CommError::SizeMismatch { .. }));
    assert!(groups[0].barrier().is_err());
}
