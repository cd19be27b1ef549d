//! Frame classes, several cables, odd rows: everything that must work.

use super::{alone, device, devices_with, good_devices, over, over_own, rdma_ranks};
use pomar_comm::{CommError, Group, QpKind, RdmaOptions, TcpGroup};
use pomar_fake_verbs::FakeDevice;
use std::thread;

/// Sums, gathers and sends, from one byte to several MiB, and checks all of it.
pub(super) fn work(group: Result<TcpGroup, CommError>) {
    let group = &group.unwrap();
    let (rank, size) = (group.rank(), group.size());
    let (right, left) = ((rank + 1) % size, (rank + size - 1) % size);
    for length in [1, 1000, 4063, 4065, 65_536, 1 << 20, 5_000_001] {
        let mut sum: Vec<i32> = (0..length / 4 + 1).map(|index| (index * (rank + 1)) as i32).collect();
        group.all_sum(sum.as_mut_slice().into()).unwrap();
        let factor = size * (size + 1) / 2;
        assert!(sum.iter().enumerate().all(|(index, got)| *got == (index * factor) as i32), "{length}");

        let bytes = |rank: usize| (0..length).map(move |index| (index * 7 + index / 251 + rank) as u8);
        let mine: Vec<u8> = bytes(rank).collect();
        let mut all = vec![0; length * size];
        group.all_gather(&mine, &mut all).unwrap();
        assert!((0..size).flat_map(bytes).eq(all), "{length}");

        // In both directions at once.
        thread::scope(|scope| {
            scope.spawn(|| group.send_message(right, &mine).unwrap());
            let mut message = vec![];
            group.recv_message(left, &mut message).unwrap();
            assert!(bytes(left).eq(message), "{length}");
        });
    }
    group.barrier().unwrap();
}

#[test]
fn all_frame_classes() {
    alone(&good_devices(2), || {
        for bytes in [[4 << 10, 4 << 10], [512 << 10, 512 << 10], [4 << 10, 512 << 10]] {
            rdma_ranks(2, |rank| RdmaOptions { frame_bytes: bytes[rank], ..over_own(rank, 2) }, work);
        }
    });
}

#[test]
fn several_cables() {
    alone(&good_devices(6), || {
        for kind in [QpKind::Rc, QpKind::Uc] {
            // Rank 0 has the even devices and rank 1 the odd ones; in the end one of them has fewer.
            for (first, second) in [(2, 2), (3, 3), (3, 2)] {
                let options = |rank: usize| {
                    let names = [["fake0", "fake2", "fake4"], ["fake1", "fake3", "fake5"]];
                    let cables = if rank == 0 { first } else { second };
                    RdmaOptions { queue_pairs: Some(kind), ..over(rank, 2, &names[rank][..cables]) }
                };
                rdma_ranks(2, options, work);
            }
        }
    });
}

#[test]
fn several_queue_pairs_on_one_device() {
    alone(&good_devices(1), || rdma_ranks(3, |rank| over(rank, 3, &["fake0", "fake0"]), work).clear());
}

#[test]
fn an_address_in_row_3() {
    let odd = devices_with(2, 0, |device| {
        device.gids = ["fe80::1", "::", "2001:db8::1", "::ffff:10.99.0.1", "::ffff:10.99.0.9"]
            .map(|gid| gid.parse().unwrap())
            .to_vec();
    });
    alone(&odd, || rdma_ranks(2, |rank| over_own(rank, 2), work).clear());
}

#[test]
fn ports_with_different_packets() {
    alone(&devices_with(2, 1, |device| device.path_mtu = 4096), || {
        rdma_ranks(2, |rank| over_own(rank, 2), work);
    });
}

#[test]
fn checksums_and_a_slow_device() {
    let slow =
        FakeDevice { faults: pomar_fake_verbs::Faults { latency_us: 30, ..Default::default() }, ..device(0) };
    alone(&[slow, device(1)], || {
        rdma_ranks(2, |rank| RdmaOptions { checksum: rank == 1, ..over_own(rank, 2) }, work);
    });
}

#[test]
fn one_group_after_the_other_within_the_budget() {
    let exact = |number| {
        let mut device = device(number);
        (device.limits.queue_pairs, device.limits.memory_regions) = (1, 1);
        device
    };
    alone(&[exact(0), exact(1)], || {
        for _ in 0..5 {
            rdma_ranks(2, |rank| over_own(rank, 2), |group| group.unwrap().barrier().unwrap());
        }
    });
}
