//! What the ranks speak among each other, which decides the environment they need.

use serde::Serialize;
use std::{fmt, str::FromStr};

/// A way for ranks to find each other; the names are those of `mlx.launch`, and `pomar`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Backend {
    /// MLX's TCP ring.
    Ring,
    /// MLX over RDMA, every pair of ranks cabled.
    Jaccl,
    /// MLX over RDMA, neighbours cabled.
    JacclRing,
    /// Whatever `mpirun` starts.
    Mpi,
    /// MLX over NVIDIA's library.
    Nccl,
    /// pomar's own groups.
    Pomar,
}

impl Backend {
    /// All of them, as they are listed to users.
    pub const ALL: [Self; 6] = [Self::Ring, Self::Jaccl, Self::JacclRing, Self::Mpi, Self::Nccl, Self::Pomar];

    /// The name that users write.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ring => "ring",
            Self::Jaccl => "jaccl",
            Self::JacclRing => "jaccl-ring",
            Self::Mpi => "mpi",
            Self::Nccl => "nccl",
            Self::Pomar => "pomar",
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name().fmt(f)
    }
}

impl FromStr for Backend {
    type Err = String;

    /// # Errors
    /// A sentence with the names that there are.
    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|backend| backend.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("'{text}' is no backend; there are {names}")
        })
    }
}
