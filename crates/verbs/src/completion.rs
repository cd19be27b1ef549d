//! Completions: what became of work requests.

use crate::{Device, VerbsError, sys};
use std::{
    fmt,
    mem::MaybeUninit,
    ptr::{self, NonNull},
    sync::Arc,
};

/// Completions that one call of the library fetches at most: 1.5 KB on the stack.
const BATCH: usize = 32;

/// The queue that completions of queue pairs arrive in. Cheap to clone; destroyed when its last owner is gone, and a
/// queue pair is an owner.
#[derive(Clone)]
pub struct CompletionQueue {
    shared: Arc<Raw>,
}

struct Raw {
    queue: NonNull<sys::Cq>,
    device: Device,
}

// SAFETY: the verbs manual pages promise that all calls are thread safe; the pointer is used for nothing else.
unsafe impl Send for Raw {}
// SAFETY: as above.
unsafe impl Sync for Raw {}

/// What became of one work request.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Completion {
    /// The number that the work request was posted with.
    pub id: u64,
    /// How it ended.
    pub status: Status,
    /// Number of the queue pair it was posted to.
    pub queue_pair: u32,
    /// True for a message received. **False for every completion in error**, because devices don't say then: tell
    /// those apart by `id`.
    pub is_receive: bool,
    /// Bytes received; 0 for sends and errors.
    pub bytes: u32,
    /// The device's own number for the error, for its maker.
    pub vendor_error: u32,
}

/// How a work request ended: the number of `enum ibv_wc_status`. After any but the first one posted to it, a queue
/// pair is of no more use.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub struct Status(pub u32);

impl CompletionQueue {
    pub(crate) fn new(device: &Device, entries: u32) -> Result<Self, VerbsError> {
        let Ok(count) = i32::try_from(entries) else {
            let most = i32::MAX as u64;
            return Err(VerbsError::TooBig { what: "a completion queue", value: entries.into(), most });
        };
        let create = device.library().functions().create_cq;
        // SAFETY: the context is open. No event channel, so no vector either: the queue is polled.
        let queue = unsafe { create(device.context(), count, ptr::null_mut(), ptr::null_mut(), 0) };
        let queue = NonNull::new(queue).ok_or_else(|| device.last_error("ibv_create_cq"))?;
        Ok(Self { shared: Arc::new(Raw { queue, device: device.clone() }) })
    }

    /// Fetches completions that have arrived, oldest first, and says how many. Never waits.
    ///
    /// # Errors
    /// [`VerbsError::System`]: the queue is broken, by overflow or with its device.
    pub fn poll(&self, into: &mut [Completion]) -> Result<usize, VerbsError> {
        let mut done = 0;
        for part in into.chunks_mut(BATCH) {
            let got = self.poll_batch(part)?;
            done += got;
            if got < part.len() {
                break;
            }
        }
        Ok(done)
    }

    /// `into` has at most [`BATCH`] entries.
    fn poll_batch(&self, into: &mut [Completion]) -> Result<usize, VerbsError> {
        let Some(poll) = self.ops().poll_cq else { return Err(self.unsupported()) };
        let mut found = [const { MaybeUninit::<sys::Wc>::uninit() }; BATCH];
        let most = into.len().min(BATCH);
        // SAFETY: our own queue; there is room for `most` completions, and BATCH fits into an int.
        let answer = unsafe { poll(self.raw(), most as i32, found.as_mut_ptr().cast()) };
        let Ok(got) = usize::try_from(answer) else {
            return Err(self.poll_error(answer));
        };
        for (completion, found) in into.iter_mut().zip(&found[..got.min(most)]) {
            // SAFETY: the call has written that many.
            *completion = Completion::from_raw(unsafe { found.assume_init_ref() });
        }
        Ok(got.min(most))
    }

    #[cold]
    fn poll_error(&self, answer: i32) -> VerbsError {
        // Drivers answer -1 or a negative error number; the manual page only says "negative".
        let errno = if answer == -1 { libc::EIO } else { answer.saturating_abs() };
        VerbsError::numbered("ibv_poll_cq", self.shared.device.name(), errno)
    }

    #[cold]
    fn unsupported(&self) -> VerbsError {
        VerbsError::numbered("ibv_poll_cq", self.shared.device.name(), libc::EOPNOTSUPP)
    }

    fn ops(&self) -> &sys::ContextOps {
        // SAFETY: the context of a live queue, which `device` keeps open; its table does not change any more.
        unsafe { &(*(*self.raw()).context).ops }
    }

    pub(crate) fn device(&self) -> &Device {
        &self.shared.device
    }

    pub(crate) fn raw(&self) -> *mut sys::Cq {
        self.shared.queue.as_ptr()
    }
}

impl fmt::Debug for CompletionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionQueue").field("device", &self.shared.device.name()).finish_non_exhaustive()
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // SAFETY: our own queue, destroyed once; its queue pairs held an owner and are gone.
        let answer = unsafe { (self.device.library().functions().destroy_cq)(self.queue.as_ptr()) };
        self.device.released("ibv_destroy_cq", answer);
    }
}

impl Completion {
    /// Takes only the fields that the manual page of `ibv_poll_cq` calls valid for the status.
    fn from_raw(raw: &sys::Wc) -> Self {
        let is_receive = raw.status == sys::WC_SUCCESS && raw.opcode & sys::WC_RECV != 0;
        Self {
            id: raw.wr_id,
            status: Status(raw.status),
            queue_pair: raw.qp_num,
            is_receive,
            bytes: if is_receive { raw.byte_len } else { 0 },
            vendor_error: if raw.status == sys::WC_SUCCESS { 0 } else { raw.vendor_err },
        }
    }
}

impl Status {
    /// True when the work request was done.
    #[must_use]
    pub fn is_ok(self) -> bool {
        self.0 == sys::WC_SUCCESS
    }

    /// True when the work request was given back undone, because an earlier one of its queue pair had failed: that
    /// one's status is the cause.
    #[must_use]
    pub fn is_flushed(self) -> bool {
        self.0 == sys::WC_WR_FLUSH_ERR
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = match self.0 {
            sys::WC_SUCCESS => "done",
            sys::WC_LOC_LEN_ERR => "local length error: a message was longer than the memory for it",
            sys::WC_LOC_QP_OP_ERR => "local queue pair error: the work request is not consistent",
            sys::WC_LOC_EEC_OP_ERR => "local end-to-end context error",
            sys::WC_LOC_PROT_ERR => {
                "local protection error: the memory is not registered for this queue pair"
            }
            sys::WC_WR_FLUSH_ERR => "flushed: an earlier work request failed, or the queue pair is in error",
            sys::WC_MW_BIND_ERR => "memory window error",
            sys::WC_BAD_RESP_ERR => "bad response from the peer",
            sys::WC_LOC_ACCESS_ERR => "local access error: the memory may not be written",
            sys::WC_REM_INV_REQ_ERR => "the peer refused the request: its receive is too short, or missing",
            sys::WC_REM_ACCESS_ERR => "the peer's memory may not be accessed",
            sys::WC_REM_OP_ERR => "the peer could not complete the operation",
            sys::WC_RETRY_EXC_ERR => "transport retry counter exceeded: the peer does not answer",
            sys::WC_RNR_RETRY_EXC_ERR => {
                "receiver-not-ready retry counter exceeded: the peer posts no receive"
            }
            sys::WC_LOC_RDD_VIOL_ERR => "local reliable datagram domain violation",
            sys::WC_REM_INV_RD_REQ_ERR => "the peer refused the reliable datagram",
            sys::WC_REM_ABORT_ERR => "the peer aborted the operation",
            sys::WC_INV_EECN_ERR => "invalid end-to-end context number",
            sys::WC_INV_EEC_STATE_ERR => "invalid state of the end-to-end context",
            sys::WC_FATAL_ERR => "fatal error of the device",
            sys::WC_RESP_TIMEOUT_ERR => "the peer's response timed out",
            sys::WC_GENERAL_ERR => "general error of the device",
            _ => return write!(f, "unknown status {}", self.0),
        };
        f.write_str(words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_speak_plainly() {
        assert_eq!(
            Status(sys::WC_RETRY_EXC_ERR).to_string(),
            "transport retry counter exceeded: the peer does not answer"
        );
        assert_eq!(Status(99).to_string(), "unknown status 99");
        let texts: std::collections::HashSet<_> = (0..22).map(|code| Status(code).to_string()).collect();
        assert_eq!(texts.len(), 22, "each status has words of its own");
        assert!(texts.iter().all(|text| !text.starts_with("unknown")));
    }
}
