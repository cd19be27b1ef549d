//! Open MPI's binary interface: handles are addresses, predefined objects are variables that the library exports.

use super::api::{Constants, Handle};
use libloading::Library;

/// The variable that MPI_COMM_WORLD is the address of; no other implementation has it.
pub(super) const COMM_WORLD: &[u8] = b"ompi_mpi_comm_world\0";

/// An address in the library's memory, passed along and never looked at: a number as good as a pointer.
pub(super) type OpenMpiHandle = usize;

impl Handle for OpenMpiHandle {
    fn to_word(self) -> u64 {
        self as u64
    }

    fn from_word(word: u64) -> Self {
        word as Self
    }
}

/// The addresses of the predefined objects.
pub(super) fn constants(library: &Library) -> Result<Constants<OpenMpiHandle>, libloading::Error> {
    // SAFETY: a symbol's address is taken as a number; nothing is read through it.
    let address = |symbol: &[u8]| unsafe { library.get::<usize>(symbol).map(|symbol| *symbol) };
    Ok(Constants {
        comm_world: address(COMM_WORLD)?,
        byte: address(b"ompi_mpi_byte\0")?,
        errors_return: address(b"ompi_mpi_errors_return\0")?,
    })
}
