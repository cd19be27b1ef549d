//! The ring among ranks of this crate, against MLX's documented order of additions written down once more, plainly.

use crate::common::{self, ring_hosts, run};
use half::{bf16, f16};
use pomar_comm::{BufferMut, CommError, Group, GroupOptions, RingGroup};
use std::{
    fmt::Debug,
    net::{TcpListener, TcpStream},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

fn rings(ranks: usize, connections: usize, options: &GroupOptions) -> Vec<Arc<dyn Group>> {
    common::rings(&ring_hosts(ranks, connections), options)
}

fn with_ring(ranks: usize, connections: usize, body: impl Fn(&dyn Group) + Sync) {
    run(rings(ranks, connections, &GroupOptions::default()), body);
}

// --- the reference

trait Sample: Copy + Default + PartialOrd + Debug + Send + Sync + 'static {
    fn sample(seed: u64) -> Self;
    fn plus(self, other: Self) -> Self;
    fn bits(self) -> u64;
}

macro_rules! integer_sample {
    ($($type:ty),+) => {$(impl Sample for $type {
        fn sample(seed: u64) -> Self { seed as $type }
        fn plus(self, other: Self) -> Self { self.wrapping_add(other) }
        fn bits(self) -> u64 { self as u64 }
    })+};
}
integer_sample!(i64, i32, u8);

macro_rules! float_sample {
    ($($type:ty: $from:expr, $to:expr);+) => {$(impl Sample for $type {
        fn sample(seed: u64) -> Self { $from((seed % 20_001) as f32 / 77.0 - 130.0) }
        fn plus(self, other: Self) -> Self { $from($to(self) + $to(other)) }
        fn bits(self) -> u64 { u64::from(self.to_bits()) }
    })+};
}
float_sample!(f32: f32::from, f32::from; f16: f16::from_f32, f16::to_f32; bf16: bf16::from_f32, bf16::to_f32);

fn seed(rank: usize, index: usize) -> u64 {
    let mixed = (rank as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        ^ (index as u64).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ mixed >> 29
}

fn sample<T: Sample>(rank: usize, index: usize) -> T {
    T::sample(seed(rank, index))
}

/// What MLX's ring gives: element by element, from which sub-reduction, segment and direction it belongs to.
fn reference<T: Sample>(ranks: usize, connections: usize, length: usize, join: fn(T, T) -> T) -> Vec<T> {
    let tiny = length < ranks;
    let bytes = length * size_of::<T>();
    let parts = if tiny { 1 } else { (bytes / (ranks * 262_144)).min(2 * connections).max(1) };
    let padded = length.max(ranks);
    let step = padded.div_ceil(parts);
    let element = |index: usize| {
        let part = index / step;
        let part_length = padded.min((part + 1) * step) - part * step;
        let segment = (index - part * step) / part_length.div_ceil(ranks);
        // Towards the left the ranks after the segment's own come first; towards the right, those before it.
        let to_the_left = !tiny && part.is_multiple_of(2);
        let rank_of = |hop: usize| {
            if to_the_left { (segment + hop) % ranks } else { (segment + ranks - hop % ranks) % ranks }
        };
        let mut sum = sample::<T>(segment % ranks, index);
        for hop in (1..ranks).rev() {
            sum = join(sample(rank_of(hop), index), sum);
        }
        sum
    };
    (0..length).map(element).collect()
}

fn keep_greater<T: Sample>(own: T, received: T) -> T {
    if own < received { received } else { own }
}

type Join<T> = fn(T, T) -> T;

/// Both reductions on all ranks, each result against the one reference.
fn check_reductions<T: Sample>(groups: &[Arc<dyn Group>], connections: usize, lengths: &[usize])
where
    for<'a> BufferMut<'a>: From<&'a mut [T]>,
{
    let ranks = groups.len();
    for length in lengths {
        let reduced = |group: &dyn Group| {
            let own: Vec<T> = (0..*length).map(|index| sample(group.rank(), index)).collect();
            let (mut sum, mut max) = (own.clone(), own);
            group.all_sum(sum.as_mut_slice().into()).unwrap();
            group.all_max(max.as_mut_slice().into()).unwrap();
            [sum, max]
        };
        let results: Vec<[Vec<T>; 2]> = thread::scope(|scope| {
            let threads: Vec<_> = groups.iter().map(|group| scope.spawn(|| reduced(&**group))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        for (which, (how, join)) in
            [("sum", T::plus as Join<T>), ("max", keep_greater)].into_iter().enumerate()
        {
            let expected = reference(ranks, connections, *length, join);
            for (rank, result) in results.iter().enumerate() {
                let differs = result[which].iter().zip(&expected).position(|(a, b)| a.bits() != b.bits());
                assert_eq!(
                    differs, None,
                    "{how} of {length}, rank {rank}/{ranks}, {connections} connections"
                );
            }
        }
    }
}

fn check_movement(group: &dyn Group, lengths: &[usize]) {
    let (rank, ranks) = (group.rank(), group.size());
    for length in lengths {
        let bytes = |rank: usize| (0..*length).map(move |index| seed(rank, index) as u8);
        let mine: Vec<u8> = bytes(rank).collect();
        let mut all = vec![0; length * ranks];
        group.all_gather(&mine, &mut all).unwrap();
        assert!((0..ranks).flat_map(bytes).eq(all), "gather of {length}");
        for root in 0..ranks {
            let mut data = mine.clone();
            group.broadcast(root, &mut data).unwrap();
            assert!(bytes(root).eq(data), "broadcast of {length} from {root}");
        }
        check_neighbours(group, &mine, bytes);
    }
}

/// To the right and from the left, then the other way; large messages need the reader while the writer writes.
fn check_neighbours<I: Iterator<Item = u8>>(
    group: &dyn Group,
    mine: &[u8],
    bytes: impl Fn(usize) -> I + Sync,
) {
    let (rank, ranks) = (group.rank(), group.size());
    let (right, left) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
    for (to, from) in [(right, left), (left, right)] {
        thread::scope(|scope| {
            scope.spawn(|| group.send(to, mine).unwrap());
            let mut data = vec![0; mine.len()];
            group.recv(from, &mut data).unwrap();
            assert!(bytes(from).eq(data), "{} bytes from {from} to {rank}", mine.len());
        });
    }
}

/// Element counts: fewer than ranks, awkward ones, around the first threshold, several lanes.
fn lengths(ranks: usize, connections: usize, width: usize) -> Vec<usize> {
    let lane = ranks * 262_144 / width;
    let seeds = (0..4).map(|index| seed(ranks * 8 + connections, index) as usize);
    let random = seeds.map(|seed| seed % (1 << (seed >> 40 & 15)) + 1);
    let mut lengths = vec![0, 1, ranks - 1, ranks, ranks + 1, 1000, lane - 1, 2 * lane - 1, 2 * lane + 1];
    lengths.push(2 * connections * lane + 3);
    lengths.extend(random);
    lengths
}

#[test]
fn sums_and_maxima_are_those_of_mlx() {
    for (ranks, connections) in [(1, 1), (2, 1), (2, 3), (3, 2), (4, 1), (5, 3), (8, 1)] {
        let groups = &rings(ranks, connections, &GroupOptions::default());
        let all = |width| lengths(ranks, connections, width);
        let small = |width| all(width).into_iter().filter(|length| *length < 70_000).collect::<Vec<_>>();
        check_reductions::<f32>(groups, connections, &all(4));
        check_reductions::<bf16>(groups, connections, &all(2));
        check_reductions::<f16>(groups, connections, &small(2));
        check_reductions::<i64>(groups, connections, &small(8));
        check_reductions::<i32>(groups, connections, &small(4));
        check_reductions::<u8>(groups, connections, &small(1));
    }
}

#[test]
fn bytes_arrive_where_they_belong() {
    for (ranks, connections) in [(1, 2), (2, 1), (2, 3), (3, 2), (4, 1), (7, 2), (8, 3)] {
        with_ring(ranks, connections, |group| {
            if ranks == 1 {
                group.barrier().unwrap();
                return group.broadcast(0, &mut [1]).unwrap();
            }
            check_movement(group, &[0, 1, 1023, 1025, 5001, 524_287, 1_500_001]);
            group.barrier().unwrap();
        });
    }
}

#[test]
fn many_small_calls_keep_their_order() {
    for (ranks, connections) in [(2, 2), (8, 1)] {
        with_ring(ranks, connections, |group| {
            let (rank, size) = (group.rank() as i64, ranks as i64);
            for round in 0..300 {
                let mut data = [round + rank; 1024];
                group.all_sum(data.as_mut_slice().into()).unwrap();
                assert_eq!(data, [round * size + size * (size - 1) / 2; 1024]);
                group.barrier().unwrap();
                let mut message = Vec::new();
                group.send_message((group.rank() + 1) % ranks, &[round as u8; 9]).unwrap();
                group.recv_message((group.rank() + ranks - 1) % ranks, &mut message).unwrap();
                assert_eq!(message, [round as u8; 9]);
            }
        });
    }
}

#[test]
fn only_neighbours_exchange_messages() {
    with_ring(4, 1, |group| {
        let rank = group.rank();
        for other in [rank, 4] {
            assert!(matches!(group.send(other, &[1]), Err(CommError::NoSuchPeer { .. })));
        }
        let far = (rank + 2) % 4;
        let error = group.recv(far, &mut [0]).unwrap_err();
        assert!(matches!(error, CommError::NotNeighbour { rank, .. } if rank == far), "{error}");
        assert!(group.send(far, &[1]).unwrap_err().to_string().contains("is not a neighbour"));
        group.barrier().unwrap();
    });
}

// --- ends

const MOMENT: Duration = Duration::from_millis(50);

#[test]
fn a_receive_that_times_out_empty_is_harmless() {
    with_ring(3, 2, |group| {
        let mut data = [0; 5000];
        if group.rank() == 0 {
            let error = group.recv_within(1, &mut data, MOMENT).unwrap_err();
            assert!(matches!(error, CommError::Timeout { waiting_for: 1, op: "recv", .. }), "{error}");
        }
        group.barrier().unwrap();
        match group.rank() {
            0 => group.recv(1, &mut data).unwrap(),
            1 => group.send(0, &data).unwrap(),
            _ => {}
        }
    });
}

#[test]
fn a_neighbour_that_does_not_take_part_is_named_and_the_group_is_spent() {
    let groups = rings(2, 1, &GroupOptions { deadline: MOMENT, ..GroupOptions::default() });
    let error = groups[0].all_sum([1_i32; 100].as_mut_slice().into()).unwrap_err();
    assert!(matches!(error, CommError::Timeout { waiting_for: 1, op: "all_sum", .. }), "{error}");
    let error = groups[0].barrier().unwrap_err();
    assert!(matches!(error, CommError::Aborted { by: 0, .. }), "{error}");
    assert!(error.to_string().contains("all_sum waited"), "{error}");
    let error = groups[1].barrier().unwrap_err();
    assert!(matches!(error, CommError::PeerDead { rank: 0, .. }), "{error}");
}

#[test]
fn a_send_that_nobody_takes_ends_at_the_deadline() {
    let groups = rings(3, 1, &GroupOptions { deadline: MOMENT, ..GroupOptions::default() });
    let error = groups[0].send(1, &vec![7; 64 << 20]).unwrap_err();
    assert!(matches!(error, CommError::Timeout { waiting_for: 1, op: "send", .. }), "{error}");
    assert!(matches!(groups[0].barrier(), Err(CommError::Aborted { by: 0, .. })), "it had begun");
}

#[test]
fn an_abort_ends_calls_on_all_ranks() {
    let groups = rings(3, 2, &GroupOptions::default());
    let begun = Instant::now();
    thread::scope(|scope| {
        for group in &groups[..2] {
            scope.spawn(move || {
                let error = group.all_sum([1.0_f32; 1000].as_mut_slice().into()).unwrap_err();
                let blamed = if group.rank() == 0 {
                    matches!(error, CommError::Aborted { by: 0, .. })
                } else {
                    error.rank() == Some(0)
                };
                assert!(blamed, "rank {}: {error}", group.rank());
            });
        }
        // A short sum travels to the left only, so nothing of it comes this way.
        let receiver = scope.spawn(|| groups[2].recv(1, &mut [0; 4]).unwrap_err());
        thread::sleep(MOMENT);
        groups[0].abort("enough");
        groups[0].abort("a second reason is not kept");
        let error = receiver.join().unwrap();
        assert_eq!(error.rank(), Some(0), "{error}");
    });
    assert!(begun.elapsed() < Duration::from_secs(2));
    assert!(groups[0].barrier().unwrap_err().to_string().contains("enough"));
}

#[test]
fn a_rank_that_leaves_in_good_order_takes_nothing_along() {
    for _ in 0..20 {
        with_dropped_rings(3, |group| {
            let mut data = vec![1_i64; 5000];
            group.all_sum(data.as_mut_slice().into()).unwrap();
            assert_eq!(data, [3; 5000]);
            group.broadcast(1, &mut [0; 100]).unwrap();
        });
    }
}

/// Runs `body` on each rank and drops its group at once.
fn with_dropped_rings(ranks: usize, body: impl Fn(&dyn Group) + Sync) {
    let groups = rings(ranks, 1, &GroupOptions::default());
    thread::scope(|scope| {
        for group in groups {
            let body = &body;
            scope.spawn(move || {
                body(&*group);
                drop(group);
            });
        }
    });
}

// --- set-up

fn hurried() -> GroupOptions {
    GroupOptions { join_deadline: Duration::from_millis(300), ..GroupOptions::default() }
}

#[test]
fn a_neighbour_that_is_not_there_is_named_with_its_address() {
    let places = ring_hosts(3, 1);
    let error = RingGroup::connect(&places, 0, hurried()).unwrap_err();
    assert!(matches!(error, CommError::NotConnected { rank: 2, .. }), "{error}");
    assert!(
        error.to_string().contains(&format!("listened at {} and nobody connected", places[0][0])),
        "{error}"
    );
    let error = RingGroup::connect(&places, 2, hurried()).unwrap_err();
    assert!(matches!(error, CommError::NotConnected { rank: 0, .. }), "{error}");
    assert!(error.to_string().contains(&format!("dialled {} ", places[0][0])), "{error}");
}

#[test]
fn a_neighbour_out_of_reach_is_named_in_time() {
    // Reserved for documentation: never answers, or is refused at once where there is no route.
    let places = [vec!["192.0.2.1:9".to_owned()], ring_hosts(1, 1).remove(0)];
    let begun = Instant::now();
    let error = RingGroup::connect(&places, 1, hurried()).unwrap_err();
    assert!(matches!(error, CommError::NotConnected { rank: 0, .. }), "{error}");
    assert!(error.to_string().contains("192.0.2.1:9"), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(2));
}

#[test]
fn an_address_that_is_taken_or_elsewhere_is_refused() {
    let mut places = ring_hosts(2, 1);
    let _taken = TcpListener::bind(&places[0][0]).unwrap();
    let error = RingGroup::connect(&places, 0, hurried()).unwrap_err().to_string();
    assert!(error.contains("another program listens there"), "{error}");
    places[0][0] = "192.0.2.1:9".into();
    let error = RingGroup::connect(&places, 0, hurried()).unwrap_err().to_string();
    assert!(error.contains("is this the right rank"), "{error}");
    let error = RingGroup::connect(&places, 2, hurried()).unwrap_err().to_string();
    assert!(error.contains("ranks count from 0"), "{error}");
}

#[test]
fn a_stranger_in_the_left_neighbours_place_ends_the_first_call() {
    let places = &ring_hosts(2, 1);
    thread::scope(|scope| {
        let joining = scope.spawn(|| RingGroup::connect(places, 0, GroupOptions::default()).unwrap());
        let right = TcpListener::bind(&places[1][0]).unwrap();
        let mut stranger = TcpStream::connect(&places[0][0]);
        while stranger.is_err() {
            thread::sleep(Duration::from_millis(1));
            stranger = TcpStream::connect(&places[0][0]);
        }
        let _right = right.accept().unwrap();
        drop(stranger);
        let group = joining.join().unwrap();
        let error = group.barrier().unwrap_err();
        assert!(matches!(error, CommError::PeerDead { rank: 1, .. }), "{error}");
    });
}

#[test]
fn a_ring_over_ipv6() {
    let places: Vec<Vec<String>> = ring_hosts(2, 1)
        .iter()
        .map(|list| vec![format!("[::1]:{}", list[0].split_once(':').unwrap().1)])
        .collect();
    thread::scope(|scope| {
        for rank in 0..2 {
            let places = &places;
            scope.spawn(move || {
                RingGroup::connect(places, rank, GroupOptions::default()).unwrap().barrier().unwrap();
            });
        }
    });
}
