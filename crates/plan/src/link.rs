//! The way between two machines: how long a short message takes, and how many bytes go by in a second.

use thiserror::Error;

/// A link as programs see it, protocol included.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Time for a short message to arrive, in s.
    pub latency: f64,
    /// Bytes/s in one direction.
    pub bandwidth: f64,
}

/// Not a name of a link.
#[derive(Clone, Debug, Error, PartialEq)]
#[error("unknown link '{name}': one of {}", NAMED.map(|(name, ..)| name).join(", "))]
pub struct UnknownLink {
    name: String,
}

/// Name, latency in us of a short message between programs, GB/s.
///
/// From `tests/measurements/links.csv` where a row is named; the others are marked as assumed. Collectives measured on
/// Thunderbolt took 26 to 36 us for 8 to 14 KB over RDMA (`jaccl-allsum-tp4`, `jaccl-allsum-8k-decode`), and about 300 us
/// over TCP (`tb5-tcp-message`).
const NAMED: [(&str, f64, f64); 16] = [
    // jaccl-allsum-tp4 less its bytes; jaccl-omlx-2n.
    ("tb5-rdma", 24.0, 6.3),
    // tb5-tcp-message is four ranks of a ring, six steps of it; tb5-tcp-ping-a is 104 us each way; 55 Gb/s of
    // tb5-realworld would be 6.9 GB/s, but one stream gets less: assumed.
    ("tb5-tcp", 100.0, 3.0),
    // tb-rdma-linux-mac; half the link speed of tb5.
    ("tb4-rdma", 30.0, 3.0),
    // Assumed as tb5-tcp, at half the speed.
    ("tb4-tcp", 120.0, 1.5),
    // usb4-strix-tcp: 10 Gb/s.
    ("usb4-tcp", 120.0, 1.25),
    // usb4-strix-allreduce.
    ("usb4-nhi", 90.0, 2.0),
    // Assumed for wired networks: 50 us each way, and nine tenths of the link speed.
    ("1gbe-tcp", 100.0, 0.112),
    ("5gbe-tcp", 70.0, 0.56),
    ("10gbe-tcp", 50.0, 1.12),
    ("25gbe-tcp", 40.0, 2.8),
    // spark-tcp, spark-rdma.
    ("200gbe-tcp", 40.0, 13.2),
    ("200gbe-rdma", 8.0, 13.6),
    // Cards in one box: PCIe 4.0 x16, assumed.
    ("pcie", 15.0, 25.0),
    // Processes of one machine: `pomar bench collectives` on two cores of an AMD EPYC (bench/README.md).
    ("shm", 0.3, 11.0),
    ("loopback", 6.0, 2.4),
    // Assumed.
    ("wifi", 3000.0, 0.06),
];

impl Link {
    /// A link by the name of its kind.
    ///
    /// # Errors
    /// [`UnknownLink`], which lists the names.
    pub fn named(name: &str) -> Result<Self, UnknownLink> {
        let found = NAMED.iter().find(|(known, ..)| *known == name);
        let (_, us, gigabytes) = found.ok_or_else(|| UnknownLink { name: name.to_owned() })?;
        Ok(Self { latency: us * 1e-6, bandwidth: gigabytes * 1e9 })
    }

    /// Names of all kinds, fastest first within a medium.
    pub fn names() -> impl Iterator<Item = &'static str> {
        NAMED.iter().map(|(name, ..)| *name)
    }

    /// Time for a message of so many bytes, in s.
    pub fn send(&self, bytes: f64) -> f64 {
        self.latency + bytes / self.bandwidth
    }

    /// Time for `ranks` to add up `bytes` bytes, all pairs joined alike: everyone sends all to everyone, or, when that is
    /// longer, sections of it are reduced by one rank each and sent on.
    pub fn all_sum(&self, ranks: f64, bytes: f64) -> f64 {
        if ranks < 2.0 {
            return 0.0;
        }
        let others = ranks - 1.0;
        let at_once = self.latency + bytes * others / self.bandwidth;
        let in_sections = 2.0 * self.latency + 2.0 * bytes * others / ranks / self.bandwidth;
        at_once.min(in_sections)
    }

    /// The slower of two links, term by term.
    #[must_use]
    pub fn slower(self, other: Self) -> Self {
        Self { latency: self.latency.max(other.latency), bandwidth: self.bandwidth.min(other.bandwidth) }
    }
}
