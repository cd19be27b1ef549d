//! What a peer sends when ranks use RDMA: messages between queue pairs, and the offers before them.

/// `bytes` is one message.
///
/// # Panics
/// When a header that was accepted is not the one that is written for it.
pub fn rdma_message(bytes: &[u8]) {
    pomar_comm::rdma::fuzz_message(bytes);
}
