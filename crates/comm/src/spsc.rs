//! A byte ring for one writer and one reader over memory that someone else owns.
//!
//! The two sides may be threads over heap memory or processes over a shared mapping. Each side trusts only its own
//! cursor, kept in private memory; what it reads of the other side's cursor is checked, so a peer that scribbles over
//! the ring can spoil the bytes but not make this side touch memory outside it.
//!
//! Memory: line 0 holds the writer's cursor, line 1 the reader's, the bytes follow. Cursors count all bytes ever
//! written or read; the writer may be at most `capacity` ahead.

use crate::memory::HeapMemory;
use std::{
    fmt::Debug,
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{
            AtomicU64,
            Ordering::{Acquire, Release},
        },
    },
};

/// Bytes of cursors before the data: one cache line each, so that the sides do not fight over one.
pub(crate) const CURSOR_BYTES: usize = 128;

/// The other side's cursor is where no correct peer would put it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Corrupt;

/// Whatever keeps a ring's memory alive.
pub(crate) type Owner = Arc<dyn Debug + Send + Sync>;

/// Where a ring lies.
#[derive(Clone, Debug)]
pub(crate) struct RingMemory {
    base: NonNull<u8>,
    capacity: usize,
    _owner: Owner,
}

// SAFETY: a RingMemory is an address; what is done through it from several threads goes through atomics, or through
// bytes that the cursors give to one side at a time.
unsafe impl Send for RingMemory {}

impl RingMemory {
    /// A ring at `base`, over `CURSOR_BYTES + capacity` bytes that start out as zeros.
    ///
    /// # Safety
    /// `base` is aligned to 64 bytes; the memory stays valid as long as `owner` lives, and this process touches it only
    /// through one [`Writer`] and one [`Reader`] at most; `capacity` is a power of two.
    pub(crate) unsafe fn new(base: NonNull<u8>, capacity: usize, owner: Owner) -> Self {
        debug_assert!(capacity.is_power_of_two() && base.addr().get().is_multiple_of(64));
        Self { base, capacity, _owner: owner }
    }

    fn written(&self) -> &AtomicU64 {
        // SAFETY: the first 8 bytes of the ring's memory, aligned and valid by the contract of `new`, and only ever
        // accessed as an atomic.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().cast()) }
    }

    fn read(&self) -> &AtomicU64 {
        // SAFETY: as for `written`; 64 is inside CURSOR_BYTES and keeps the alignment.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(64).cast()) }
    }

    /// Splits `length` bytes that begin at `cursor` where the ring wraps: offset and length of the first run; the
    /// second run starts at offset 0.
    fn first_run(&self, cursor: u64, length: usize) -> (usize, usize) {
        let offset = (cursor % self.capacity as u64) as usize;
        (offset, length.min(self.capacity - offset))
    }

    /// Start of the data.
    fn data(&self) -> *mut u8 {
        // SAFETY: CURSOR_BYTES is inside the ring's memory by the contract of `new`.
        unsafe { self.base.as_ptr().add(CURSOR_BYTES) }
    }
}

/// Bytes from one cursor to another that is ahead of it, or level. Counts of 2^64 bytes never wrap.
fn distance(behind: u64, ahead: u64) -> Result<usize, Corrupt> {
    ahead.checked_sub(behind).and_then(|bytes| usize::try_from(bytes).ok()).ok_or(Corrupt)
}

/// The side that puts bytes in.
#[derive(Debug)]
pub(crate) struct Writer {
    ring: RingMemory,
    cursor: u64,
    /// The reader's cursor when last looked at; a smaller one only makes the ring seem fuller.
    reader_seen: u64,
}

impl Writer {
    pub(crate) fn new(ring: RingMemory) -> Self {
        Self { ring, cursor: 0, reader_seen: 0 }
    }

    /// Puts in as much of `bytes` as fits and says how much that was.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<usize, Corrupt> {
        let mut space = self.ring.capacity - (self.cursor - self.reader_seen) as usize;
        if space < bytes.len() {
            // Acquire: the reader has finished copying the bytes that it gives back.
            let seen = self.ring.read().load(Acquire);
            space = self.ring.capacity.checked_sub(distance(seen, self.cursor)?).ok_or(Corrupt)?;
            self.reader_seen = seen;
        }
        let length = space.min(bytes.len());
        let (offset, first) = self.ring.first_run(self.cursor, length);
        // SAFETY: both runs lie inside the data area (`first_run`), which is valid memory; the `length` bytes after our
        // cursor are free, so the reader does not touch them until the cursor is published below; `bytes` is private
        // memory and cannot overlap the ring.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.ring.data().add(offset), first);
            std::ptr::copy_nonoverlapping(bytes.as_ptr().add(first), self.ring.data(), length - first);
        }
        self.cursor += length as u64;
        self.ring.written().store(self.cursor, Release);
        Ok(length)
    }
}

/// The side that takes bytes out.
#[derive(Debug)]
pub(crate) struct Reader {
    ring: RingMemory,
    cursor: u64,
    /// The writer's cursor when last looked at.
    writer_seen: u64,
}

impl Reader {
    pub(crate) fn new(ring: RingMemory) -> Self {
        Self { ring, cursor: 0, writer_seen: 0 }
    }

    /// Takes out as much as there is, at most `into.len()` bytes, and says how much that was.
    pub(crate) fn read(&mut self, into: &mut [u8]) -> Result<usize, Corrupt> {
        let mut ready = (self.writer_seen - self.cursor) as usize;
        if ready < into.len() {
            // Acquire: the bytes before the writer's cursor are there.
            let seen = self.ring.written().load(Acquire);
            ready = distance(self.cursor, seen)?;
            if ready > self.ring.capacity {
                return Err(Corrupt);
            }
            self.writer_seen = seen;
        }
        let length = ready.min(into.len());
        let (offset, first) = self.ring.first_run(self.cursor, length);
        // SAFETY: both runs lie inside the data area; these `length` bytes were published by the writer, which leaves
        // them alone until our cursor, stored below, gives them back; `into` is private memory.
        unsafe {
            std::ptr::copy_nonoverlapping(self.ring.data().add(offset), into.as_mut_ptr(), first);
            std::ptr::copy_nonoverlapping(self.ring.data(), into.as_mut_ptr().add(first), length - first);
        }
        self.cursor += length as u64;
        self.ring.read().store(self.cursor, Release);
        Ok(length)
    }
}

/// A ring in this process's own memory, between two threads, for `capacity` bytes, a power of two.
pub(crate) fn heap_ring(capacity: usize) -> (Writer, Reader) {
    let memory = HeapMemory::zeroed(CURSOR_BYTES + capacity);
    // SAFETY: aligned, zeroed and large enough; the sides made here are the only users; the memory owns itself.
    let ring = unsafe { RingMemory::new(memory.start(), capacity, Arc::new(memory)) };
    (Writer::new(ring.clone()), Reader::new(ring))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn a_full_ring_takes_no_more_and_an_empty_one_gives_nothing() {
        let (mut writer, mut reader) = heap_ring(8);
        let mut out = [0; 16];
        assert_eq!(reader.read(&mut out), Ok(0));
        assert_eq!(writer.write(b"0123456789"), Ok(8));
        assert_eq!(writer.write(b"x"), Ok(0));
        assert_eq!(reader.read(&mut out[..5]), Ok(5));
        assert_eq!(writer.write(b"abcdefgh"), Ok(5), "wraps around");
        assert_eq!(reader.read(&mut out), Ok(8));
        assert_eq!(&out[..8], b"567abcde");
    }

    #[test]
    fn every_byte_arrives_in_order_between_threads() {
        let total = if cfg!(miri) { 500 } else { 1_000_000 };
        let (mut writer, mut reader) = heap_ring(64);
        let bytes = |from: usize, n: usize| (from..from + n).map(|i| (i % 251) as u8);
        let sender = std::thread::spawn(move || {
            let mut sent = 0;
            while sent < total {
                let chunk: Vec<u8> = bytes(sent, (1 + sent % 90).min(total - sent)).collect();
                sent += writer.write(&chunk).unwrap();
                std::thread::yield_now();
            }
        });
        let (mut received, mut buffer) = (0, [0; 70]);
        while received < total {
            let most = 1 + received % 70;
            let got = reader.read(&mut buffer[..most]).unwrap();
            assert!(bytes(received, got).eq(buffer[..got].iter().copied()));
            received += got;
            std::thread::yield_now();
        }
        sender.join().unwrap();
    }

    #[test]
    fn a_cursor_out_of_bounds_is_noticed_by_the_other_side() {
        for nonsense in [9, u64::MAX, 1 << 40] {
            let (mut writer, mut reader) = heap_ring(8);
            reader.ring.written().store(nonsense, Relaxed);
            assert_eq!(reader.read(&mut [0; 4]), Err(Corrupt));
            writer.ring.read().store(nonsense, Relaxed);
            assert_eq!(writer.write(&[0; 9]), Err(Corrupt));
        }
    }
}
