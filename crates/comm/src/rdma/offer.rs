//! What two ranks tell each other, over their TCP connection, before they use RDMA.

use crate::CommError;
use pomar_verbs::{Gid, QpKind};
use serde::{Deserialize, Serialize};

/// Changes whenever ranks of two versions can't work together.
const VERSION: u32 = 1;

/// Longest offer or answer that is read, in bytes.
pub(super) const MOST_BYTES: usize = 64 << 10;

/// A rank's end of the cables to one peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Offer {
    version: u32,
    /// "rc" or "uc".
    queue_pairs: String,
    /// Largest message that this end sends and receives.
    pub(super) frame_bytes: usize,
    pub(super) checksum: bool,
    pub(super) ends: Vec<End>,
}

/// One queue pair's address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct End {
    pub(super) device: String,
    pub(super) queue_pair: u32,
    /// First sequence number of its packets, 24 bits.
    pub(super) packet_sequence: u32,
    pub(super) lid: u16,
    pub(super) gid: [u8; 16],
    /// Bytes of a packet.
    pub(super) path_mtu: usize,
}

/// An offer, `None` where no device leads to the peer, or why there are no offers at all.
pub(super) type Answer = Result<Option<Offer>, String>;

/// What both ends of a pair will do. Both work it out from the two offers, and come to the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Agreement {
    pub(super) cables: usize,
    pub(super) frame_bytes: usize,
    pub(super) checksum: bool,
}

impl Offer {
    pub(super) fn new(kind: QpKind, frame_bytes: usize, checksum: bool, ends: Vec<End>) -> Self {
        Self { version: VERSION, queue_pairs: name(kind).into(), frame_bytes, checksum, ends }
    }

    /// What this offer and the peer's have in common.
    ///
    /// # Errors
    /// Why they can't meet, in words that are the same on both sides but for the order.
    pub(super) fn agree(&self, theirs: &Self) -> Result<Agreement, String> {
        if self.version != theirs.version {
            return Err(format!(
                "one speaks version {} of the RDMA frames, the other {}: run one version of pomar on both",
                self.version, theirs.version
            ));
        }
        if self.queue_pairs != theirs.queue_pairs {
            return Err(format!(
                "one wants {} queue pairs, the other {}: choose one kind for both",
                self.queue_pairs, theirs.queue_pairs
            ));
        }
        let cables = self.ends.len().min(theirs.ends.len());
        if cables == 0 {
            return Err("no RDMA device leads from one to the other".into());
        }
        for (own, other) in self.ends.iter().zip(&theirs.ends) {
            let ipv4 = |end: &End| Gid(end.gid).ipv4().is_some();
            if !ipv4(own) || !ipv4(other) {
                return Err(format!("{} and {} have GIDs of two kinds", own.device, other.device));
            }
        }
        Ok(Agreement {
            cables,
            frame_bytes: self.frame_bytes.min(theirs.frame_bytes),
            checksum: self.checksum || theirs.checksum,
        })
    }
}

/// "rc" or "uc".
pub(super) fn name(kind: QpKind) -> &'static str {
    match kind {
        QpKind::Rc => "rc",
        QpKind::Uc => "uc",
    }
}

pub(super) fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    // Plain structs of numbers and strings: there is no value that JSON lacks.
    serde_json::to_vec(value).unwrap_or_default()
}

/// Reads what `rank` sent.
///
/// # Errors
/// [`CommError::Protocol`].
pub(super) fn decode<T: for<'d> Deserialize<'d>>(rank: usize, bytes: &[u8]) -> Result<T, CommError> {
    let broken = |what: String| CommError::Protocol { rank, what };
    if bytes.len() > MOST_BYTES {
        return Err(broken(format!("an RDMA offer of {} bytes", bytes.len())));
    }
    serde_json::from_slice(bytes).map_err(|error| broken(format!("its RDMA offer: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(kind: QpKind) -> Offer {
        let mapped = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1];
        let end = End {
            device: "rdma_en5".into(),
            queue_pair: 7,
            packet_sequence: 1,
            lid: 0,
            gid: mapped,
            path_mtu: 1024,
        };
        Offer::new(kind, 65_536, false, vec![end])
    }

    #[test]
    fn the_smaller_wish_counts() {
        let small = Offer { frame_bytes: 4096, checksum: true, ..offer(QpKind::Rc) };
        let agreed = Agreement { cables: 1, frame_bytes: 4096, checksum: true };
        assert_eq!(small.agree(&offer(QpKind::Rc)), Ok(agreed));
        assert_eq!(offer(QpKind::Rc).agree(&small), Ok(agreed));
    }

    #[test]
    fn ends_that_cannot_meet_say_why_on_both_sides() {
        let mine = offer(QpKind::Rc);
        let mut link_local = mine.clone();
        link_local.ends[0].gid = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        for (theirs, words) in [
            (Offer { version: VERSION + 1, ..mine.clone() }, "run one version of pomar on both"),
            (offer(QpKind::Uc), "choose one kind for both"),
            (Offer { ends: vec![], ..mine.clone() }, "no RDMA device leads from one to the other"),
            (link_local, "rdma_en5 and rdma_en5 have GIDs of two kinds"),
        ] {
            for why in [mine.agree(&theirs).unwrap_err(), theirs.agree(&mine).unwrap_err()] {
                assert!(why.contains(words), "{why}");
            }
        }
    }

    #[test]
    fn what_is_no_offer_names_the_rank() {
        for bytes in [&b"{"[..], &[b' '; MOST_BYTES + 1]] {
            let error = decode::<Offer>(3, bytes).unwrap_err();
            assert!(matches!(error, CommError::Protocol { rank: 3, .. }), "{error}");
        }
    }
}
