//! The memory that ranks share: made by their parent, passed on as an open file descriptor, gone with the last process.

use super::layout::{HEADER_WORDS, ShmLayout};
use crate::CommError;
use std::{
    fs::File,
    io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
        unix::process::CommandExt,
    },
    process::Command,
    ptr::NonNull,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

/// An anonymous piece of shared memory, laid out for a group. It has no name, so nothing is left behind when its
/// processes die in whatever way.
#[derive(Debug)]
pub struct Segment {
    file: File,
    layout: ShmLayout,
}

impl Segment {
    /// Memory for a group of `size` ranks.
    ///
    /// # Errors
    /// The system's, or `InvalidInput` for a `size` that no group can have.
    pub fn create(size: usize) -> io::Result<Self> {
        Self::with_layout(ShmLayout::new(size).map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))?)
    }

    /// Memory with parts of chosen sizes.
    ///
    /// # Errors
    /// The system's.
    pub fn with_layout(layout: ShmLayout) -> io::Result<Self> {
        let file = system::anonymous_file(layout.total_bytes() as u64)?;
        let mapping = Mapping::new(file.as_fd(), layout.total_bytes())?;
        for (index, word) in layout.header().into_iter().enumerate() {
            mapping.word(index * 8).store(word, Relaxed);
        }
        Ok(Self { file, layout })
    }

    /// The sizes of its parts.
    #[must_use]
    pub fn layout(&self) -> ShmLayout {
        self.layout
    }

    /// A descriptor of one's own for the same memory, for a rank in this process.
    ///
    /// # Errors
    /// The system's, when descriptors run out.
    pub fn try_clone_fd(&self) -> io::Result<OwnedFd> {
        self.file.as_fd().try_clone_to_owned()
    }

    /// Gives up the segment for its descriptor.
    #[must_use]
    pub fn into_owned_fd(self) -> OwnedFd {
        self.file.into()
    }

    /// Lets the child that `command` starts inherit the descriptor, and returns its number there, which the child gives
    /// to [`inherited_fd`]. Other children do not get it. The segment must live until the child is started.
    pub fn inherit(&self, command: &mut Command) -> RawFd {
        let number = self.file.as_raw_fd();
        let keep_open = move || {
            // SAFETY: fcntl with plain integers, allowed between fork and exec; a number that is closed by then is an
            // error, not a danger.
            let answer = unsafe { libc::fcntl(number, libc::F_SETFD, 0) };
            if answer == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
        };
        // SAFETY: the closure only makes one async-signal-safe system call and allocates nothing.
        unsafe { command.pre_exec(keep_open) };
        number
    }
}

impl AsFd for Segment {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The descriptor that a parent passed on under this number; see [`Segment::inherit`].
///
/// The inherited number itself stays open, but is not passed on to this process's own children.
///
/// # Errors
/// The system's, above all when no such descriptor is open.
pub fn inherited_fd(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: plain integers. F_DUPFD_CLOEXEC makes a new descriptor, or fails when `number` is not an open one.
    let own = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) };
    if own == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: plain integers; failing would only leave the flag as it was.
    unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
    // SAFETY: just made, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(own) })
}

/// A segment in this process's address space.
#[derive(Debug)]
pub(super) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: an address range; accesses go through atomics or raw pointers whose users keep their own rules.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    pub(super) fn new(fd: BorrowedFd<'_>, bytes: usize) -> io::Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh mapping at an address of the system's choice; it replaces nothing.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, libc::MAP_SHARED, fd.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mapped at address 0"))?;
        Ok(Self { base, bytes })
    }

    /// Maps a segment that somebody else made.
    ///
    /// # Errors
    /// [`CommError::Setup`] when it is not one of ours, [`CommError::Io`] when it cannot be mapped.
    pub(super) fn attach(fd: BorrowedFd<'_>) -> Result<(Self, ShmLayout), CommError> {
        let io_error = |source| CommError::Io { what: "mapping the shared segment", source };
        let file = File::from(fd.try_clone_to_owned().map_err(io_error)?);
        let file_bytes = file.metadata().map_err(io_error)?.len();
        system::check_cannot_shrink(fd)?;
        if file_bytes < (HEADER_WORDS * 8) as u64 {
            return Err(CommError::Setup { what: format!("a segment of {file_bytes} bytes has no header") });
        }
        let header = Self::new(fd, HEADER_WORDS * 8).map_err(io_error)?;
        let words = std::array::from_fn(|index| header.word(index * 8).load(Relaxed));
        let layout = ShmLayout::from_header(words, file_bytes)?;
        let mapping = Self::new(fd, layout.total_bytes()).map_err(io_error)?;
        Ok((mapping, layout))
    }

    /// The word at a byte offset.
    ///
    /// # Panics
    /// When the offset is outside or not aligned: offsets come from a checked layout, never from the segment.
    pub(super) fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: `range` checked that 8 aligned bytes are there; they live as long as `self`, and all processes access
        // such words as atomics only.
        unsafe { AtomicU64::from_ptr(self.range(offset, 8, 8).as_ptr().cast()) }
    }

    /// Address of `bytes` bytes at an offset that is a multiple of `align` (at most a page).
    ///
    /// # Panics
    /// As [`Mapping::word`].
    pub(super) fn range(&self, offset: usize, bytes: usize, align: usize) -> NonNull<u8> {
        assert!(offset.is_multiple_of(align) && offset <= self.bytes && bytes <= self.bytes - offset);
        // SAFETY: inside the mapping, as just checked.
        unsafe { self.base.add(offset) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: our own mapping, whole; whoever keeps addresses in it keeps it alive too.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(target_os = "linux")]
mod system {
    //! memfd: a file without a name, whose size can be sealed.

    use super::{AsRawFd, BorrowedFd, CommError, File, FromRawFd, io};

    pub(super) fn anonymous_file(bytes: u64) -> io::Result<File> {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: a constant name that ends with 0.
        let fd = unsafe { libc::memfd_create(c"pomar-group".as_ptr(), flags) };
        if fd == -1 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just made, and nobody else knows it.
        let file = unsafe { File::from_raw_fd(fd) };
        file.set_len(bytes)?;
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        // SAFETY: plain integers on our own descriptor.
        if unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, seals) } == -1 {
            return Err(io::Error::last_os_error());
        }
        Ok(file)
    }

    /// A file that shrinks under a mapping kills whoever touches the lost pages.
    pub(super) fn check_cannot_shrink(fd: BorrowedFd<'_>) -> Result<(), CommError> {
        // SAFETY: plain integers.
        let seals = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GET_SEALS) };
        if seals != -1 && seals & libc::F_SEAL_SHRINK != 0 {
            return Ok(());
        }
        Err(CommError::Setup { what: "the descriptor is not a sealed pomar segment".into() })
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    //! POSIX shared memory whose name is removed before anyone else can look.

    use super::{BorrowedFd, CommError, File, FromRawFd, io};
    use std::{
        ffi::CString,
        sync::atomic::{AtomicU32, Ordering::Relaxed},
    };

    pub(super) fn anonymous_file(bytes: u64) -> io::Result<File> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        // macOS takes at most 31 characters.
        let name = format!("/pomar-{}-{}", std::process::id(), COUNT.fetch_add(1, Relaxed));
        let name = CString::new(name)?;
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
        // SAFETY: a name that ends with 0, and plain integers. The system sets close-on-exec itself.
        let fd = unsafe { libc::shm_open(name.as_ptr(), flags, 0o600 as libc::c_uint) };
        if fd == -1 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the same name.
        unsafe { libc::shm_unlink(name.as_ptr()) };
        // SAFETY: just made, and nobody else knows it.
        let file = unsafe { File::from_raw_fd(fd) };
        file.set_len(bytes)?;
        Ok(file)
    }

    /// Once mapped, such an object cannot change its size on macOS.
    pub(super) fn check_cannot_shrink(_: BorrowedFd<'_>) -> Result<(), CommError> {
        Ok(())
    }
}
