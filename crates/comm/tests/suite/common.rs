//! Groups whose ranks are threads of the test.

use pomar_comm::{
    Group, GroupOptions, Segment, ShmGroup, SoloGroup, TcpGroup, TcpListenerHandle, shm::ShmLayout,
};
use std::{net::SocketAddr, sync::Arc, thread};

pub(crate) const KEY: [u8; 32] = [7; 32];

/// The transports that connect several ranks. `SmallShm` has tiny slots and rings, so that everything wraps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Shm,
    SmallShm,
    Tcp,
}

pub(crate) const KINDS: [Kind; 3] = [Kind::Shm, Kind::SmallShm, Kind::Tcp];

pub(crate) fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// One listener per rank, and the addresses of all.
pub(crate) fn listen(size: usize, at: SocketAddr) -> (Vec<TcpListenerHandle>, Vec<Vec<SocketAddr>>) {
    let listeners: Vec<_> = (0..size).map(|_| TcpListenerHandle::bind(&[at]).unwrap()).collect();
    let addresses = listeners.iter().map(|listener| listener.addresses().to_vec()).collect();
    (listeners, addresses)
}

/// One group per rank, all joined.
pub(crate) fn groups(kind: Kind, size: usize, options: &GroupOptions) -> Vec<Arc<dyn Group>> {
    let join = |makers: Vec<Box<dyn FnOnce() -> Arc<dyn Group> + Send>>| {
        let threads: Vec<_> = makers.into_iter().map(thread::spawn).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    };
    if kind == Kind::Tcp {
        let (listeners, addresses) = listen(size, loopback());
        return join(
            listeners
                .into_iter()
                .enumerate()
                .map(|(rank, listener)| {
                    let (addresses, options) = (addresses.clone(), options.clone());
                    let make = move || -> Arc<dyn Group> {
                        Arc::new(TcpGroup::connect(listener, rank, &addresses, &KEY, options).unwrap())
                    };
                    Box::new(make) as Box<dyn FnOnce() -> Arc<dyn Group> + Send>
                })
                .collect(),
        );
    }
    let layout = match kind {
        Kind::SmallShm => ShmLayout::with_parts(size, 4096, 1024).unwrap(),
        _ => ShmLayout::new(size).unwrap(),
    };
    let segment = Segment::with_layout(layout).unwrap();
    join(
        (0..size)
            .map(|rank| {
                let (fd, options) = (segment.try_clone_fd().unwrap(), options.clone());
                let make = move || -> Arc<dyn Group> {
                    Arc::new(ShmGroup::attach(fd, rank, size, options).unwrap())
                };
                Box::new(make) as Box<dyn FnOnce() -> Arc<dyn Group> + Send>
            })
            .collect(),
    )
}

/// Runs `body` as every rank of a group; a panic in one is a panic of the test.
pub(crate) fn with_ranks(kind: Kind, size: usize, body: impl Fn(&dyn Group) + Sync) {
    run(groups(kind, size, &GroupOptions::default()), body);
}

/// Runs `body` on each of the groups, one thread each.
pub(crate) fn run(groups: Vec<Arc<dyn Group>>, body: impl Fn(&dyn Group) + Sync) {
    thread::scope(|scope| {
        for group in groups {
            let body = &body;
            scope.spawn(move || body(&*group));
        }
    });
}

/// The group of one.
pub(crate) fn solo() -> SoloGroup {
    SoloGroup::new()
}
