//! Which call a rank is in, in one word that ranks can compare.

use crate::CommError;

/// The calls of a group that involve peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Op {
    AllSum = 1,
    AllMax = 2,
    AllGather = 3,
    Broadcast = 4,
    Barrier = 5,
    Send = 6,
    Recv = 7,
}

impl Op {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::AllSum => "all_sum",
            Self::AllMax => "all_max",
            Self::AllGather => "all_gather",
            Self::Broadcast => "broadcast",
            Self::Barrier => "barrier",
            Self::Send => "send",
            Self::Recv => "recv",
        }
    }

    fn from_code(code: u8) -> Option<Self> {
        [Self::AllSum, Self::AllMax, Self::AllGather, Self::Broadcast, Self::Barrier, Self::Send, Self::Recv]
            .into_iter()
            .find(|op| *op as u8 == code)
    }
}

/// A call, its element type (or broadcast's root), and its bytes on each rank, packed as 8 + 8 + 48 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp(u64);

const BYTES_MASK: u64 = (1 << 48) - 1;

impl Stamp {
    /// `detail`: the element type of a reduction, the root of a broadcast, else 0.
    pub(crate) fn pack(op: Op, detail: u8, bytes: usize) -> Self {
        Self((op as u64) << 56 | u64::from(detail) << 48 | (bytes as u64 & BYTES_MASK))
    }

    pub(crate) fn from_word(word: u64) -> Self {
        Self(word)
    }

    pub(crate) fn word(self) -> u64 {
        self.0
    }

    pub(crate) fn bytes(self) -> u64 {
        self.0 & BYTES_MASK
    }

    /// Whether `theirs`, from `peer`, is the same call as this one.
    ///
    /// # Errors
    /// [`CommError::OutOfStep`] for another call, element type or root; [`CommError::SizeMismatch`] for another size.
    pub(crate) fn check(self, theirs: Self, op: Op, peer: usize) -> Result<(), CommError> {
        if self == theirs {
            return Ok(());
        }
        if self.0 & !BYTES_MASK == theirs.0 & !BYTES_MASK {
            let (expected, got) = (self.bytes(), theirs.bytes());
            return Err(CommError::SizeMismatch { op: op.name(), rank: peer, expected, got });
        }
        Err(CommError::OutOfStep { rank: peer, ours: self.to_string(), theirs: theirs.to_string() })
    }
}

impl std::fmt::Display for Stamp {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = Op::from_code((self.0 >> 56) as u8).map_or("an unknown call", Op::name);
        let detail = (self.0 >> 48) as u8;
        write!(out, "{name} (kind {detail}, {} bytes)", self.bytes())
    }
}
