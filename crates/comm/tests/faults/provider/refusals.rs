//! Groups that can't be made: what the user is told, on every rank; nothing is tried twice, everything is freed.

use super::{alone, assert_says, device, devices_with, over, over_own, rdma_ranks, refusals};
use crate::{job::Job, seeds::turn, transports::Transport};
use pomar_comm::{QpKind, RdmaOptions};
use pomar_fake_verbs::{FakeDevice, Kind, PortState, UsedUp, live};
use std::{fs, path::Path, process::Command};

/// Two ranks as processes, of which rank 1 has another environment. What they say at last.
fn processes(adjust: impl Fn(&Path, &mut Command)) -> [String; 2] {
    let _turn = turn();
    let adjust_one = |rank: usize, folder: &Path, command: &mut Command| {
        if rank == 1 {
            adjust(folder, command);
        }
    };
    let mut job = Job::start_with(Transport::RdmaRc, 2, "--rounds 3 --most 100", adjust_one);
    job.wait_for_the_end(None);
    let words = [job.last_words(0), job.last_words(1)];
    words.iter().for_each(|words| println!("{words}"));
    job.assert_nothing_left(0);
    words
}

#[test]
fn a_machine_without_the_library() {
    let [other, own] = processes(|_, command| {
        command.env("POMAR_VERBS_LIBRARY", "/nowhere/libibverbs.so");
    });
    assert_says(&own, &["NOT JOINED", "no RDMA verbs library: /nowhere/libibverbs.so (", "libibverbs1"]);
    assert_says(&other, &["NOT JOINED", "rank 1 aborted the group", "no RDMA verbs library"]);
}

#[test]
fn a_machine_without_a_device() {
    let [other, own] = processes(|_, command| {
        command.env("POMAR_FAKE_VERBS", r#"{"devices": []}"#);
    });
    assert_says(
        &own,
        &["NOT JOINED", "no RDMA between ranks 1 and 0: this machine has no RDMA device", "rdma_ctl enable"],
    );
    assert_says(&other, &["NOT JOINED", "no RDMA between ranks 0 and 1: rank 1 says: this machine has no"]);
}

#[test]
fn several_devices_and_no_word_about_which() {
    let [other, own] = processes(|_, command| {
        command.env_remove("POMAR_FAKE_VERBS");
    });
    assert_says(&own, &["several RDMA devices (fake0, fake1)", "give a device matrix"]);
    assert_says(&other, &["rank 1 says: several RDMA devices"]);
}

#[test]
fn a_device_that_the_matrix_names_and_nobody_has() {
    let [other, own] = processes(|folder, command| {
        let file = folder.join("matrix.json");
        fs::write(&file, r#"[[null, "fake0"], ["rdma_en9", null]]"#).unwrap();
        command.env("POMAR_RDMA_DEVICES", file);
    });
    assert_says(&own, &["NOT JOINED", r#"no RDMA device is named "rdma_en9"; there are: fake0"#]);
    assert_says(
        &other,
        &["NOT JOINED", "ranks 0 and 1", r#"rank 1 says: no RDMA device is named "rdma_en9""#],
    );
}

#[test]
fn a_matrix_that_is_none() {
    let [other, own] = processes(|folder, command| {
        let file = folder.join("matrix.json");
        fs::write(&file, "[[null]]").unwrap();
        command.env("POMAR_RDMA_DEVICES", file);
    });
    assert_says(&own, &["NOT JOINED", "device matrix", "it must have 2 rows of 2 entries"]);
    assert_says(&other, &["NOT JOINED", "rank 1 aborted the group", "it must have 2 rows"]);
}

/// Both ranks say `parts` when rank 0 has the first of `devices`, and nothing is left of what was made for it.
fn refused(options: impl Fn(usize) -> RdmaOptions + Sync, parts: &[&str]) {
    let [own, other] = &refusals(2, options)[..] else { panic!("two ranks") };
    assert_says(own, &["no RDMA between ranks 0 and 1: "]);
    assert_says(own, parts);
    assert_says(other, &["no RDMA between ranks 1 and 0: rank 0 says: "]);
    assert_says(other, parts);
    assert_eq!(live(), Ok(0), "objects are left");
}

#[test]
fn gid_tables_without_an_address() {
    let named = |name: &str, gids: &[&str]| FakeDevice {
        name: name.into(),
        gids: gids.iter().map(|gid| gid.parse().unwrap()).collect(),
        ..FakeDevice::default()
    };
    let devices = [
        named("rdma_en4", &[]),
        named("rdma_en5", &["fe80::1", "::", "fe80::2"]),
        named("fake0", &["::"]),
        device(1),
    ];
    alone(&devices, || {
        let with =
            |name: &'static str| move |rank: usize| over(rank, 2, &[if rank == 0 { name } else { "fake1" }]);
        refused(with("rdma_en4"), &["its GID table is empty", "give interface en4 an IPv4 address"]);
        refused(with("rdma_en5"), &["only 0: fe80::1, 2: fe80::2", "give interface en5 an IPv4 address"]);
        refused(with("fake0"), &["its GID table is empty", "give its interface an IPv4 address"]);
    });
}

#[test]
fn ports_that_are_not_up() {
    let port = |number: u8, port: PortState| FakeDevice { port, ..device(number) };
    alone(&[port(0, PortState::Down), device(1), port(2, PortState::Initialising)], || {
        refused(|rank| over_own(rank, 2), &["RDMA device fake0: its port is", "is the cable in"]);
        refused(
            |rank| over(rank, 2, &[if rank == 0 { "fake2" } else { "fake1" }]),
            &["RDMA device fake2: its port is", "and its interface up"],
        );
    });
}

#[test]
fn a_budget_is_checked_before_anything_is_taken() {
    let scarce = devices_with(3, 0, |device| device.limits.queue_pairs = 1);
    alone(&scarce, || {
        let told = refusals(3, |rank| over_own(rank, 3));
        assert_says(
            &told[0],
            &["RDMA device fake0 has 1 queue pairs, and this process needs 2", "fewer ranks"],
        );
        assert_says(&told[1], &["ranks 1 and 0", "rank 0 says: RDMA device fake0 has 1 queue pairs"]);
        assert_says(&told[2], &["rank 0 says: RDMA device fake0 has 1 queue pairs"]);
        assert_eq!(pomar_fake_verbs::refusals(), Ok(0), "the device was asked for too much");
        // With one rank less it is enough, so nothing of it was taken.
        rdma_ranks(2, |rank| over_own(rank, 2), |made| assert!(made.is_ok()));
    });
}

#[test]
fn every_limit_is_checked() {
    let mut devices = vec![device(0); 4];
    devices.iter_mut().zip(["a", "b", "c", "d"]).for_each(|(device, name)| device.name = name.into());
    devices[0].limits.memory_regions = 0;
    devices[1].limits.work_requests = 10;
    devices[2].limits.completion_entries = 20;
    devices[3].limits.memory_region_bytes = 1 << 20;
    devices.push(device(1));
    alone(&devices, || {
        for (name, parts) in [
            ("a", ["device a has 0 memory regions", "needs 1"]),
            ("b", ["device b has 10 work requests in a queue", "needs 16"]),
            ("c", ["device c has 20 completion entries", "needs 24"]),
            ("d", ["device d registers at most 1048576 bytes", "use smaller frames"]),
        ] {
            refused(|rank| over(rank, 2, &[if rank == 0 { name } else { "fake1" }]), &parts);
        }
        assert_eq!(pomar_fake_verbs::refusals(), Ok(0));
    });
}

#[test]
fn a_driver_that_is_used_up_all_the_same_is_not_asked_again() {
    let mut devices = vec![device(0), device(1), device(2)];
    // Limits that verbs don't tell: another process has taken the rest.
    devices[0].limits.completion_queues = 0;
    devices[0].limits.used_up = UsedUp::Ebusy;
    devices[2].limits.protection_domains = 0;
    devices[2].limits.used_up = UsedUp::Enomem;
    alone(&devices, || {
        let hints = ["on a Mac only a reboot gives them back", "nothing is retried"];
        refused(|rank| over_own(rank, 2), &["ibv_create_cq failed on fake0", "busy", hints[0], hints[1]]);
        assert_eq!(pomar_fake_verbs::refusals(), Ok(1), "it was asked again");
        let memory = ["ibv_alloc_pd failed on fake2", "allocate memory", hints[0], hints[1]];
        refused(|rank| over(rank, 2, &[if rank == 0 { "fake2" } else { "fake1" }]), &memory);
        assert_eq!(pomar_fake_verbs::refusals(), Ok(2), "it was asked again");
    });
}

#[test]
fn queue_pairs_that_a_device_does_not_make() {
    let only_unreliable = devices_with(2, 0, |device| device.kinds = vec![Kind::Uc]);
    alone(&only_unreliable, || {
        let reliable = |rank| RdmaOptions { queue_pairs: Some(QpKind::Rc), ..over_own(rank, 2) };
        refused(reliable, &["ibv_create_qp failed on fake0", "not supported"]);
    });
}

#[test]
fn two_kinds_of_queue_pairs() {
    alone(&super::good_devices(2), || {
        let kinds = [QpKind::Rc, QpKind::Uc];
        let told = refusals(2, |rank| RdmaOptions { queue_pairs: Some(kinds[rank]), ..over_own(rank, 2) });
        assert_says(&told[0], &["no RDMA between ranks 0 and 1: one wants rc queue pairs, the other uc"]);
        assert_says(&told[1], &["no RDMA between ranks 1 and 0: one wants uc queue pairs, the other rc"]);
    });
}

#[test]
fn frames_of_a_size_that_is_no_class() {
    alone(&super::good_devices(2), || {
        let odd = |rank: usize| {
            let frame_bytes = if rank == 0 { 5000 } else { 4096 };
            RdmaOptions { frame_bytes, ..over_own(rank, 2) }
        };
        refused(odd, &["frames of 5000 bytes: choose a power of two from 4096 to 524288"]);
    });
}
