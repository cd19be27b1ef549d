//! Zeroed heap memory that starts on a cache line.

use std::{
    alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error},
    ptr::NonNull,
};

const LINE: usize = 64;

/// Memory that is used through raw pointers only, so that parts of it may belong to different threads.
#[derive(Debug)]
pub(crate) struct HeapMemory {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: an address range; it does not touch the memory between `zeroed` and `drop`.
unsafe impl Send for HeapMemory {}
// SAFETY: as above.
unsafe impl Sync for HeapMemory {}

impl HeapMemory {
    /// `bytes` zeros, aligned to 64; at least one line.
    pub(crate) fn zeroed(bytes: usize) -> Self {
        let bytes = bytes.max(LINE);
        let layout = Self::layout(bytes);
        // SAFETY: the layout is not empty.
        let start = unsafe { alloc_zeroed(layout) };
        let start = NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout));
        Self { start, bytes }
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    fn layout(bytes: usize) -> Layout {
        match Layout::from_size_align(bytes, LINE) {
            Ok(layout) => layout,
            Err(_) => unreachable!("64 is a power of two, and sizes are constants of this crate"),
        }
    }
}

impl Drop for HeapMemory {
    fn drop(&mut self) {
        // SAFETY: allocated in `zeroed` with the same layout.
        unsafe { dealloc(self.start.as_ptr(), Self::layout(self.bytes)) }
    }
}
