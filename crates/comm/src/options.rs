//! What a caller can choose about a group.

use crate::IpNetwork;
use std::time::Duration;

/// Times that a group keeps, and networks that it trusts. The default suits an instance on one machine.
#[derive(Clone, Debug)]
pub struct GroupOptions {
    /// How long a call may wait for its peers, unless it says so itself. 30 s.
    pub deadline: Duration,
    /// How long making the group may wait for the other ranks to come. 30 s.
    pub join_deadline: Duration,
    /// A peer that gives no sign of life for this long is dead. 1.2 s, so that it is named within 2 s.
    pub dead_after: Duration,
    /// How long a wait spins before it starts to yield. `None` chooses: 10 us when every rank can have a core of
    /// its own, next to nothing otherwise.
    pub spin: Option<Duration>,
    /// Networks, such as a cable between two machines, where connections are proved but not encrypted, because nobody
    /// else is there. A connection is plain when both its ends lie in one of them, or on this machine's loopback
    /// interface; every other one is sealed. All ranks must say the same. None.
    pub plain_networks: Vec<IpNetwork>,
}

impl Default for GroupOptions {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(30),
            join_deadline: Duration::from_secs(30),
            dead_after: Duration::from_millis(1200),
            spin: None,
            plain_networks: Vec::new(),
        }
    }
}
