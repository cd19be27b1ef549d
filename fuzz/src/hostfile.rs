//! Files that say where ranks are and what joins them: MLX's hostfile for launchers, its ring's host file, a matrix of RDMA
//! devices.

use pomar_launch::Hostfile;
use std::path::Path;

/// Ranks of the matrix.
const RANKS: usize = 3;

/// `bytes` is any of these files.
///
/// # Panics
/// When a file was accepted that names no rank, or a matrix with another number of columns.
pub fn hostfile(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(hostfile) = Hostfile::parse(text, Path::new("hosts.json")) {
        assert!(hostfile.hosts.len() <= pomar_launch::MAX_RANKS);
    }
    let _ = pomar_comm::ring::fuzz_hostfile(text);
    if let Ok(row) = pomar_comm::rdma::parse_device_matrix(text, RANKS - 1, RANKS) {
        assert_eq!(row.len(), RANKS);
    }
}
