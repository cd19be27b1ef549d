//! Pages for a device to read and write.

use std::{io, ptr::NonNull};

/// Zeroed, page-aligned memory of its own pages.
#[derive(Debug)]
pub(crate) struct Pages {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: an address range; it does not touch the memory between `zeroed` and `drop`.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Pages {
    /// # Errors
    /// The system's; `InvalidInput` for 0 bytes.
    pub(crate) fn zeroed(bytes: usize) -> io::Result<Self> {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANON);
        // SAFETY: a new mapping wherever the system likes.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, kind, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let Some(start) = NonNull::new(start.cast()) else {
            return Err(io::ErrorKind::OutOfMemory.into());
        };
        let pages = Self { start, bytes };
        pages.keep_from_children()?;
        Ok(pages)
    }

    /// Without this, a fork would make these pages copy-on-write: older kernels then give this process a copy while the
    /// device goes on with the original.
    #[cfg(target_os = "linux")]
    fn keep_from_children(&self) -> io::Result<()> {
        // SAFETY: our own mapping, whole pages; a child that touches it is killed, and none of ours does.
        let answer = unsafe { libc::madvise(self.start.as_ptr().cast(), self.bytes, libc::MADV_DONTFORK) };
        if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    #[cfg(not(target_os = "linux"))]
    fn keep_from_children(&self) -> io::Result<()> {
        Ok(())
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: our own mapping; whoever gave out pointers into it has made sure that they are no longer used. It can
        // only fail for a range that isn't one.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
