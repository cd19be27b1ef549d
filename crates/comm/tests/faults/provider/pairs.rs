//! Groups in which some pairs have RDMA and others have not.

use super::{alone, assert_says, devices_with, good_devices, over_own, ranks, refusals, traffic::work};
use pomar_comm::{
    CommError, Group, RdmaDevices, RdmaOptions, TcpGroup,
    auto::{self, PairWay},
};
use std::{sync::Arc, time::Duration};

/// Options for three ranks, of which 1 and 2 have no cable between them.
fn without_a_cable(rank: usize) -> RdmaOptions {
    let mut options = over_own(rank, 3);
    match rank {
        1 => options.devices[2].clear(),
        2 => options.devices[1].clear(),
        _ => {}
    }
    options
}

fn sum(group: &TcpGroup, rounds: usize) {
    for length in (0..rounds).map(|round| 1 + round * 997 % 20_000) {
        let mut data = vec![group.rank() as i64 + 1; length];
        group.all_sum(data.as_mut_slice().into()).unwrap();
        let size = group.size() as i64;
        assert!(data.iter().all(|got| *got == size * (size + 1) / 2));
    }
}

/// What each rank chooses, after some sums.
fn choose(size: usize, options: impl Fn(usize) -> RdmaOptions + Sync) -> Vec<Vec<PairWay>> {
    let devices = Arc::new(RdmaDevices::load().unwrap());
    ranks(size, |group| {
        let options = options(group.rank());
        let (group, ways) = auto::choose(group, Ok(Arc::clone(&devices)), &options).unwrap();
        sum(&group, 100);
        ways
    })
}

#[test]
fn a_pair_without_a_cable_stays_on_tcp() {
    alone(&good_devices(3), || {
        for (rank, ways) in choose(3, without_a_cable).iter().enumerate() {
            for way in ways {
                println!("rank {rank}: {way:?}");
                let has_cable = rank == 0 || way.peer == 0;
                assert_eq!(way.measured_rdma.is_ok(), has_cable);
                assert!(way.tcp > Duration::ZERO);
                if let Err(why) = &way.measured_rdma {
                    assert!(!way.rdma && why.contains("no RDMA device leads"), "{why}");
                }
            }
        }
    });
}

#[test]
fn a_strict_group_names_the_pair_without_a_cable_on_all_ranks() {
    alone(&good_devices(3), || {
        let told = refusals(3, without_a_cable);
        for (rank, error) in told.iter().enumerate() {
            let pair = ["ranks 1 and 2", "ranks 2 and 1"];
            assert!(pair.iter().any(|pair| error.contains(pair)), "rank {rank}: {error}");
            assert_says(error, &["no RDMA between ranks", "no RDMA device leads"]);
        }
    });
}

#[test]
fn machines_cabled_in_a_ring() {
    alone(&good_devices(4), || {
        // No cable to the rank across; small frames, so that long sums need many.
        let options = |rank: usize| {
            let mut options = over_own(rank, 4);
            options.devices[(rank + 2) % 4].clear();
            RdmaOptions { frame_bytes: 4096, ..options }
        };
        let devices = Arc::new(RdmaDevices::load().unwrap());
        ranks(4, |group| {
            let options = options(group.rank());
            let group = auto::choose(group, Ok(Arc::clone(&devices)), &options).map(|(group, ways)| {
                println!("rank {}: {ways:?}", group.rank());
                group
            });
            work(group);
        });
    });
}

#[test]
fn a_slow_device_is_left_without_losing_anything() {
    alone(&devices_with(3, 0, |device| device.faults.latency_us = 3000), || {
        for _ in 0..3 {
            for (rank, ways) in choose(3, |rank| over_own(rank, 3)).iter().enumerate() {
                for way in ways.iter().filter(|way| rank == 0 || way.peer == 0) {
                    println!("rank {rank}: {way:?}");
                    assert!(way.measured_rdma.is_ok() && !way.rdma, "{way:?}");
                }
            }
        }
    });
}

#[test]
fn a_rank_without_a_library_leaves_all_its_pairs_on_tcp() {
    alone(&good_devices(3), || {
        let devices = Arc::new(RdmaDevices::load().unwrap());
        ranks(3, |group| {
            let (rank, size) = (group.rank(), group.size());
            let missing = || CommError::Setup { what: "no RDMA verbs library".into() };
            let loaded = if rank == 2 { Err(missing()) } else { Ok(Arc::clone(&devices)) };
            let (group, ways) = auto::choose(group, loaded, &over_own(rank, size)).unwrap();
            sum(&group, 50);
            for way in ways.iter().filter(|way| rank == 2 || way.peer == 2) {
                let why = way.measured_rdma.as_ref().unwrap_err();
                assert!(why.contains("no RDMA verbs library"), "{why}");
                assert_eq!(why.contains("rank 2 says"), rank != 2, "{why}");
            }
        });
    });
}
