//! What lies where in a segment.
//!
//! ```text
//! 0      header: magic, version, ranks, slot bytes, ring bytes, total bytes; one line further: the verdict
//! 4096   one control block of 1 KiB per rank
//! ...    two slots per rank, for collectives
//! ...    one byte ring per ordered pair of ranks, for send and recv
//! ```
//!
//! Everything is aligned to 64 bytes. Pages that are never touched cost nothing.

use crate::{CommError, spsc::CURSOR_BYTES, transport::check_size, verdict::MAX_REASON_BYTES};

/// "pomarshm", little-endian.
const MAGIC: u64 = u64::from_le_bytes(*b"pomarshm");

/// Changes with every change of the layout or of what the words mean.
const VERSION: u64 = 2;

const CONTROL_START: usize = 4096;
const CONTROL_BYTES: usize = 1024;

/// Words in the header.
pub(super) const HEADER_WORDS: usize = 6;

/// Offset of the word that ends the group; see [`super::verdict_word`].
pub(super) const VERDICT: usize = 64;

/// Sizes of a segment's parts, agreed by all ranks because the header states them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShmLayout {
    size: usize,
    slot_bytes: usize,
    ring_bytes: usize,
}

impl ShmLayout {
    /// Parts for `size` ranks with slots of 256 KiB (two of them stay in a second-level cache) and rings of 1 MiB.
    ///
    /// # Errors
    /// [`CommError::Setup`] unless `size` is 1 to [`MAX_RANKS`](crate::MAX_RANKS).
    pub fn new(size: usize) -> Result<Self, CommError> {
        Self::with_parts(size, 256 << 10, 1 << 20)
    }

    /// Chooses the bytes of a slot, the most that one exchange moves, and of a ring, the most that a `send` can run
    /// ahead of its receiver.
    ///
    /// # Errors
    /// [`CommError::Setup`] unless slots are a multiple of 64, rings a power of two from 64, both at most 64 MiB.
    pub fn with_parts(size: usize, slot_bytes: usize, ring_bytes: usize) -> Result<Self, CommError> {
        const MOST: usize = 64 << 20;
        check_size(size)?;
        if slot_bytes == 0 || !slot_bytes.is_multiple_of(64) || slot_bytes > MOST {
            let what = format!("slots of {slot_bytes} bytes; a multiple of 64 up to {MOST} would do");
            return Err(CommError::Setup { what });
        }
        if !ring_bytes.is_power_of_two() || !(64..=MOST).contains(&ring_bytes) {
            let what = format!("rings of {ring_bytes} bytes; a power of two from 64 to {MOST} would do");
            return Err(CommError::Setup { what });
        }
        Ok(Self { size, slot_bytes, ring_bytes })
    }

    /// Number of ranks.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    pub(super) fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    pub(super) fn ring_bytes(&self) -> usize {
        self.ring_bytes
    }

    /// Bytes of the whole segment. At most 64 ranks squared times 64 MiB, which fits 64 bits.
    pub(super) fn total_bytes(&self) -> usize {
        self.rings_start() + self.size * self.size * self.ring_stride()
    }

    fn slots_start(&self) -> usize {
        CONTROL_START + self.size * CONTROL_BYTES
    }

    fn rings_start(&self) -> usize {
        self.slots_start() + self.size * 2 * self.slot_bytes
    }

    fn ring_stride(&self) -> usize {
        CURSOR_BYTES + self.ring_bytes
    }

    /// The words of field `field` of `rank`'s control block.
    pub(super) fn control(&self, rank: usize, field: Control) -> usize {
        CONTROL_START + rank * CONTROL_BYTES + field as usize
    }

    pub(super) fn slot(&self, rank: usize, parity: usize) -> usize {
        self.slots_start() + (rank * 2 + parity) * self.slot_bytes
    }

    pub(super) fn ring(&self, from: usize, to: usize) -> usize {
        self.rings_start() + (from * self.size + to) * self.ring_stride()
    }

    pub(super) fn header(&self) -> [u64; HEADER_WORDS] {
        let total = self.total_bytes() as u64;
        [MAGIC, VERSION, self.size as u64, self.slot_bytes as u64, self.ring_bytes as u64, total]
    }

    /// The layout that a header states, if it is one that this version would write.
    ///
    /// # Errors
    /// [`CommError::Setup`] saying which word is wrong.
    pub(super) fn from_header(words: [u64; HEADER_WORDS], file_bytes: u64) -> Result<Self, CommError> {
        let [magic, version, size, slot_bytes, ring_bytes, _] = words;
        let setup = |what: String| CommError::Setup { what };
        if magic != MAGIC {
            return Err(setup("the segment was not made by pomar".into()));
        }
        if version != VERSION {
            let what = format!("the segment has version {version}, this rank speaks {VERSION}");
            return Err(setup(what + "; run the same pomar everywhere"));
        }
        let word = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
        let layout = Self::with_parts(word(size), word(slot_bytes), word(ring_bytes))?;
        if layout.header() != words || (layout.total_bytes() as u64) > file_bytes {
            return Err(setup(format!("the segment's {file_bytes} bytes do not fit its header")));
        }
        Ok(layout)
    }
}

/// Byte offsets in a control block; one cache line per writer and purpose.
#[derive(Clone, Copy, Debug)]
#[repr(usize)]
pub(super) enum Control {
    /// 0 free, 1 joined, 2 left.
    State = 0,
    Pid = 8,
    Heartbeat = 64,
    /// Number of exchanges this rank has shown its piece for.
    Turn = 128,
    /// What it called, for even turns...
    EvenStamp = 136,
    /// ...and for odd ones.
    OddStamp = 144,
    Bell = 192,
    ReasonLength = 256,
    Reason = 264,
}

const _: () = assert!(Control::Reason as usize + MAX_REASON_BYTES <= CONTROL_BYTES);
