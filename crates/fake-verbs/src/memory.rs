//! Registered memory, and reading and writing it.

use pomar_verbs::sys;
use std::collections::BTreeMap;

/// The memory regions of a process, by local key.
pub(crate) type Regions = BTreeMap<u32, Region>;

/// Memory that a program has registered.
#[derive(Debug)]
pub(crate) struct Region {
    pub(crate) domain: u32,
    pub(crate) start: u64,
    pub(crate) bytes: u64,
}

/// A work request's memory, as it was posted: nothing is checked before it is used, as in a device.
#[derive(Debug)]
pub(crate) struct Pieces(pub(crate) Vec<sys::Sge>);

/// The memory is not registered in the queue pair's protection domain (any more).
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NotRegistered;

impl Pieces {
    /// Bytes in all. A piece of length 0 means 2^31, as in the verbs manual pages.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.iter().map(length).sum()
    }

    fn check(&self, domain: u32, regions: &Regions) -> Result<(), NotRegistered> {
        let inside = |piece: &sys::Sge| {
            let region = regions.get(&piece.lkey).filter(|region| region.domain == domain)?;
            let end = piece.addr.checked_add(length(piece))?;
            (piece.addr >= region.start && end <= region.start + region.bytes).then_some(())
        };
        self.0.iter().try_for_each(inside).ok_or(NotRegistered)
    }

    /// Reads all of it.
    pub(crate) fn read(&self, domain: u32, regions: &Regions) -> Result<Vec<u8>, NotRegistered> {
        self.check(domain, regions)?;
        let mut bytes = Vec::with_capacity(usize::try_from(self.bytes()).map_err(|_| NotRegistered)?);
        for piece in &self.0 {
            let start = piece.addr as *const u8;
            // SAFETY: inside a registered region, which its owner keeps until it is deregistered, under the same lock as
            // this; nobody writes to memory that is being sent (contract of the verbs).
            bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(start, piece.length as usize) });
        }
        Ok(bytes)
    }

    /// Writes `message`, which is not longer than this memory.
    pub(crate) fn write(&self, message: &[u8], domain: u32, regions: &Regions) -> Result<(), NotRegistered> {
        self.check(domain, regions)?;
        let mut rest = message;
        for piece in &self.0 {
            let (now, later) = rest.split_at(rest.len().min(piece.length as usize));
            // SAFETY: as in `read`; nobody else uses memory that is posted for receiving (contract of the verbs).
            unsafe { std::ptr::copy_nonoverlapping(now.as_ptr(), piece.addr as *mut u8, now.len()) };
            rest = later;
        }
        Ok(())
    }
}

fn length(piece: &sys::Sge) -> u64 {
    if piece.length == 0 { 1 << 31 } else { piece.length.into() }
}
