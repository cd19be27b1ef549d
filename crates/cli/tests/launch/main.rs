//! `pomar launch` from outside: what a person types, with real processes, a stand-in for ssh, a real sshd, MLX and MPI.

mod common;
mod ends;
mod mlx;
mod mpi;
mod preflight;
mod session;
mod ssh;
mod sshd;
