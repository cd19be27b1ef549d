//! The interface that all transports have in common.

use crate::{BufferMut, CommError};
use std::time::Duration;

/// Longest message that [`Group::send_message`] sends and [`Group::recv_message`] makes room for: 64 MiB.
pub const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// The ranks of one instance, as one of them sees the others.
///
/// *Collectives* (`all_sum`, `all_max`, `all_gather`, `broadcast`, `barrier`) are made by all ranks in the same
/// order with the same sizes; a rank that differs is an error that names it. *Point to point* calls (`send`, `recv`)
/// pair up per sender and receiver, in order, and may run on another thread beside collectives. Per peer and
/// direction, and for collectives, one thread calls at a time.
///
/// Nothing waits for ever: a call ends with its result, with the deadline, or as soon as a peer is known to be
/// dead (within two seconds) or any rank aborts. No call allocates, except that `recv_message` grows its buffer.
pub trait Group: Send + Sync {
    /// This process's number, from 0.
    fn rank(&self) -> usize;

    /// Number of ranks.
    fn size(&self) -> usize;

    /// How long a call without a limit of its own may wait.
    fn deadline(&self) -> Duration;

    /// Changes [`Group::deadline`] for calls made from now on.
    fn set_deadline(&self, deadline: Duration);

    /// Replaces `data` by its element-wise sum over all ranks. Every rank gets the same bits: integers wrap, floats
    /// are added in the transport's one documented order: rank order, but for [`ring`](crate::ring), which has MLX's.
    ///
    /// # Errors
    /// Any [`CommError`] about peers; the contents of `data` are then unspecified and the group is spent.
    fn all_sum(&self, data: BufferMut<'_>) -> Result<(), CommError>;

    /// Replaces `data` by its element-wise maximum over all ranks. A NaN on any rank wins, but on a
    /// [`ring`](crate::ring), which compares as MLX does.
    ///
    /// # Errors
    /// As [`Group::all_sum`].
    fn all_max(&self, data: BufferMut<'_>) -> Result<(), CommError>;

    /// Collects every rank's `mine` into `all`, in rank order.
    ///
    /// # Errors
    /// [`CommError::BufferSize`] unless `all` is `size` times as long as `mine`; else as [`Group::all_sum`].
    fn all_gather(&self, mine: &[u8], all: &mut [u8]) -> Result<(), CommError>;

    /// Copies `data` of rank `root` to all ranks.
    ///
    /// # Errors
    /// As [`Group::all_sum`].
    fn broadcast(&self, root: usize, data: &mut [u8]) -> Result<(), CommError>;

    /// Returns when every rank has called it.
    ///
    /// # Errors
    /// As [`Group::all_sum`].
    fn barrier(&self) -> Result<(), CommError>;

    /// Sends `data` to one peer. Returns when the bytes are on their way, not when they have been received; what
    /// does not fit into the transport's buffers (about 1 MiB) waits for the receiver.
    ///
    /// # Errors
    /// [`CommError::Timeout`] when the receiver takes nothing: harmless while no byte was accepted, else the group
    /// is aborted. Any other [`CommError`] about that peer.
    fn send(&self, to: usize, data: &[u8]) -> Result<(), CommError>;

    /// Receives what `from` sent with one `send` of exactly `data.len()` bytes, waiting at most `within`.
    ///
    /// # Errors
    /// [`CommError::Timeout`]: harmless while nothing has arrived (call again), else the group is aborted.
    /// [`CommError::SizeMismatch`] when the sender sent another length. Any other [`CommError`] about peers.
    fn recv_within(&self, from: usize, data: &mut [u8], within: Duration) -> Result<(), CommError>;

    /// Makes every pending and future call on every rank fail with [`CommError::Aborted`], as soon as they can hear
    /// of it. May be called from any thread, also when other threads are blocked in calls. The first reason stays;
    /// it is cut to 200 bytes.
    fn abort(&self, reason: &str);

    /// [`Group::recv_within`] the group's deadline.
    ///
    /// # Errors
    /// As [`Group::recv_within`].
    fn recv(&self, from: usize, data: &mut [u8]) -> Result<(), CommError> {
        self.recv_within(from, data, self.deadline())
    }

    /// Sends a message whose length the receiver does not know: an 8-byte little-endian length, then the bytes.
    ///
    /// # Errors
    /// [`CommError::MessageTooLarge`]; else as [`Group::send`], but a message sent by half aborts the group.
    fn send_message(&self, to: usize, message: &[u8]) -> Result<(), CommError> {
        check_message_length(message.len() as u64)?;
        self.send(to, &(message.len() as u64).to_le_bytes())?;
        if message.is_empty() {
            return Ok(());
        }
        self.send(to, message).inspect_err(|error| abort_half_done(self, "send_message", error))
    }

    /// Receives one message into `message` (replacing its contents), waiting at most `within` for it to begin.
    ///
    /// # Errors
    /// [`CommError::Timeout`]: no message came; call again. [`CommError::MessageTooLarge`]: the sender announced
    /// more than the limit; checked before memory is taken. Else as [`Group::recv_within`].
    fn recv_message_within(
        &self,
        from: usize,
        message: &mut Vec<u8>,
        within: Duration,
    ) -> Result<(), CommError> {
        let mut prefix = [0; 8];
        self.recv_within(from, &mut prefix, within)?;
        let length = check_message_length(u64::from_le_bytes(prefix))
            .inspect_err(|error| abort_half_done(self, "recv_message", error))?;
        message.clear();
        message.resize(length, 0);
        if length == 0 {
            return Ok(());
        }
        self.recv(from, message).inspect_err(|error| abort_half_done(self, "recv_message", error))
    }

    /// [`Group::recv_message_within`] the group's deadline.
    ///
    /// # Errors
    /// As [`Group::recv_message_within`].
    fn recv_message(&self, from: usize, message: &mut Vec<u8>) -> Result<(), CommError> {
        self.recv_message_within(from, message, self.deadline())
    }
}

/// The length as a `usize`, when it is within the limit.
fn check_message_length(bytes: u64) -> Result<usize, CommError> {
    let limit = MAX_MESSAGE_BYTES as u64;
    if bytes > limit { Err(CommError::MessageTooLarge { bytes, limit }) } else { Ok(bytes as usize) }
}

/// A message that stopped between prefix and body leaves the pair out of step, so nobody may go on.
fn abort_half_done<G: Group + ?Sized>(group: &G, op: &str, error: &CommError) {
    group.abort(&format!("{op} stopped half way: {error}"));
}
