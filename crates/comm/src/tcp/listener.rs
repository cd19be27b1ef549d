//! A rank's ears: where its peers find it while the group is made.

use crate::CommError;
use std::net::{SocketAddr, TcpListener};

/// A rank's ears: the addresses that its peers dial while the group is made.
#[derive(Debug)]
pub struct TcpListenerHandle {
    pub(super) listeners: Vec<TcpListener>,
    addresses: Vec<SocketAddr>,
}

impl TcpListenerHandle {
    /// Listens at all of `addresses`; port 0 takes any free one, for each address its own.
    ///
    /// # Errors
    /// [`CommError::Listen`] naming the address that is in use or not this machine's; [`CommError::Setup`] when there is
    /// none.
    pub fn bind(addresses: &[SocketAddr]) -> Result<Self, CommError> {
        if addresses.is_empty() {
            return Err(CommError::Setup { what: "there is no address to listen at".into() });
        }
        let mut ears = Self { listeners: Vec::new(), addresses: Vec::new() };
        for address in addresses {
            let io_error = |source| CommError::Listen { address: *address, source };
            let listener = TcpListener::bind(address).map_err(io_error)?;
            ears.addresses.push(listener.local_addr().map_err(io_error)?);
            ears.listeners.push(listener);
        }
        Ok(ears)
    }

    /// The addresses to give to the other ranks, in the order of [`TcpListenerHandle::bind`]. A link-local one names an
    /// interface of this machine; another machine must put its own interface's name there.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }
}
