//! The binary interface that MPICH, Intel MPI, MVAPICH and Cray MPI have in common: handles are C integers with fixed
//! values.

use super::api::{Constants, Handle};
use std::ffi::c_int;

/// How the implementations of this interface call themselves in MPI_Get_library_version.
pub(super) const NAMES: [&str; 4] = ["MPICH", "Intel(R) MPI", "MVAPICH", "CRAY MPI"];

/// A number with a kind in its upper bits.
pub(super) type MpichHandle = c_int;

impl Handle for MpichHandle {
    fn to_word(self) -> u64 {
        u64::from(self.cast_unsigned())
    }

    fn from_word(word: u64) -> Self {
        (word as u32).cast_signed()
    }
}

/// As in the mpi.h that these implementations have promised not to change.
pub(super) const CONSTANTS: Constants<MpichHandle> =
    Constants { comm_world: 0x4400_0000, byte: 0x4c00_010d, errors_return: 0x5400_0001 };
