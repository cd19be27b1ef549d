//! RDMA over the fake verbs library: what hardware doesn't show on demand.
//!
//! Most cases run their ranks as threads of one process, which has the case's devices in its environment: one device for each
//! rank, since they all see the same machine. The test program starts itself again for that, and looks what is left.

mod links;
mod pairs;
mod refusals;
mod traffic;

use crate::{
    seeds::turn,
    transports::{addresses, fake_verbs, sockets_folder},
};
use pomar_comm::{
    CommError, Group, GroupOptions, RdmaDevices, RdmaOptions, TcpGroup, TcpListenerHandle, rdma,
};
use pomar_fake_verbs::{FakeDevice, SCRIPT_VARIABLE, Script, live};
use std::{any::type_name, env, net::Ipv4Addr, process::Command, sync::Arc, thread};

const SCENE: &str = "POMAR_FAULT_SCENE";

/// Runs `body` in a process of its own that has these devices, and sees that it leaves nothing behind: no object of the
/// verbs, no socket.
fn alone<F: FnOnce()>(devices: &[FakeDevice], body: F) {
    // The name of the test that the closure is in.
    let path = type_name::<F>();
    let name = path.split_once("::").and_then(|(_, name)| name.strip_suffix("::{{closure}}")).unwrap();
    if env::var(SCENE).is_ok_and(|scene| scene == name) {
        body();
        assert_eq!(live(), Ok(0), "objects are left");
        return;
    }
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let script = Script { devices: devices.to_vec() };
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture"]).env(SCENE, name).env(SCRIPT_VARIABLE, script.to_json());
    let output = command.envs(fake_verbs(folder.path())).output().unwrap();
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    println!("{text}{errors}");
    assert!(output.status.success() && text.contains("1 passed"), "{name}: {}", output.status);
    let left: Vec<_> = sockets_folder(folder.path()).read_dir().unwrap().collect();
    assert!(left.is_empty(), "{name} left {left:?}");
}

/// A good device with an address of its own: "fake1" has 10.99.0.2.
fn device(number: u8) -> FakeDevice {
    let gids = vec!["fe80::1".parse().unwrap(), Ipv4Addr::new(10, 99, 0, number + 1).to_ipv6_mapped()];
    FakeDevice { name: format!("fake{number}"), gids, ..FakeDevice::default() }
}

fn good_devices(count: u8) -> Vec<FakeDevice> {
    (0..count).map(device).collect()
}

/// Good devices, of which one is changed.
fn devices_with(count: u8, which: usize, change: impl FnOnce(&mut FakeDevice)) -> Vec<FakeDevice> {
    let mut devices = good_devices(count);
    change(&mut devices[which]);
    devices
}

/// The options of rank `rank` of `size`, with the same devices towards everybody.
fn over(rank: usize, size: usize, devices: &[&str]) -> RdmaOptions {
    let names: Vec<String> = devices.iter().map(|name| (*name).to_owned()).collect();
    let devices = (0..size).map(|peer| if peer == rank { vec![] } else { names.clone() }).collect();
    RdmaOptions { devices, ..RdmaOptions::default() }
}

/// Those of a rank whose device has its number.
fn over_own(rank: usize, size: usize) -> RdmaOptions {
    over(rank, size, &[&format!("fake{rank}")])
}

/// The ranks of a TCP group do `body`, each with its group.
fn ranks<T: Send>(size: usize, body: impl Fn(TcpGroup) -> T + Sync) -> Vec<T> {
    let addresses = addresses(size);
    let listeners: Vec<_> = addresses.iter().map(|own| TcpListenerHandle::bind(own).unwrap()).collect();
    thread::scope(|scope| {
        let (addresses, body) = (&addresses, &body);
        let rank = |(rank, listener)| {
            scope.spawn(move || {
                body(TcpGroup::connect(listener, rank, addresses, &[3; 32], GroupOptions::default()).unwrap())
            })
        };
        let threads: Vec<_> = listeners.into_iter().enumerate().map(rank).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// The ranks of a group that is to go over RDMA with these options for each rank do `body`, with what became of it.
fn rdma_ranks<T: Send>(
    size: usize,
    options: impl Fn(usize) -> RdmaOptions + Sync,
    body: impl Fn(Result<TcpGroup, CommError>) -> T + Sync,
) -> Vec<T> {
    let devices = Arc::new(RdmaDevices::load().unwrap());
    ranks(size, |group| {
        let options = options(group.rank());
        body(rdma::connect(group, &devices, &options))
    })
}

/// What each rank of such a group is told when it can't be made.
fn refusals(size: usize, options: impl Fn(usize) -> RdmaOptions + Sync) -> Vec<String> {
    let told = rdma_ranks(size, options, |made| made.expect_err("it can't be made").to_string());
    told.iter().enumerate().for_each(|(rank, error)| println!("rank {rank}: {error}"));
    told
}

/// Each of `parts` is in `text`.
fn assert_says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
}
