//! Where queue pairs are found: unix sockets in one folder, named by the queue pair's number.

use std::{
    env, io,
    os::{
        fd::{AsRawFd, RawFd},
        unix::net::{UnixListener, UnixStream},
    },
    path::PathBuf,
    process,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

/// Names the folder that all processes of a test share. It belongs to the fake alone.
pub const FOLDER_VARIABLE: &str = "POMAR_FAKE_VERBS_DIR";

/// Numbers tried for a new queue pair. They start at one that hardly any other process tries.
const TRIES: u32 = 4096;

/// A queue pair's listening socket. Its file goes with it.
#[derive(Debug)]
pub(crate) struct Door {
    listener: UnixListener,
    path: PathBuf,
    number: u32,
}

impl Door {
    /// Takes a number of 24 bits that no other queue pair of the folder has.
    ///
    /// # Errors
    /// The system's; `NotFound` when no folder is named.
    pub(crate) fn new() -> io::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        for _ in 0..TRIES {
            let own = NEXT.fetch_add(1, Relaxed);
            // Odd, so a bijection of the 24 bits: neighbouring processes start far apart. 0 and 1 are special.
            let number = (process::id().wrapping_mul(0x9e37_79b1) ^ own) & 0xff_ffff;
            if number < 2 {
                continue;
            }
            let path = path(number)?;
            match UnixListener::bind(&path) {
                Ok(listener) => {
                    listener.set_nonblocking(true)?;
                    return Ok(Self { listener, path, number });
                }
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::AddrInUse.into())
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.listener.as_raw_fd()
    }

    /// A stream that has knocked.
    pub(crate) fn answer(&self) -> Option<UnixStream> {
        self.listener.accept().ok().map(|(stream, _)| stream)
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        // Somebody may have removed the folder already.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// A stream to the queue pair with this number.
///
/// # Errors
/// Nobody is there, or too many are waiting at its door.
pub(crate) fn knock(number: u32) -> io::Result<UnixStream> {
    UnixStream::connect(path(number)?)
}

fn path(number: u32) -> io::Result<PathBuf> {
    let folder = env::var_os(FOLDER_VARIABLE).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::NotFound,
            format!("{FOLDER_VARIABLE} must name a folder that all ranks share"),
        )
    })?;
    Ok(PathBuf::from(folder).join(format!("{number:06x}")))
}
