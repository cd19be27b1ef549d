//! Completion queues.

use pomar_verbs::sys;
use std::collections::{BTreeMap, VecDeque};

/// One completion queue.
#[derive(Debug)]
pub(crate) struct Completions {
    pub(crate) context: u32,
    pub(crate) capacity: usize,
    waiting: VecDeque<Entry>,
    overflowed: bool,
}

/// A completion, and whose it is.
#[derive(Debug)]
struct Entry {
    pair: u32,
    is_receive: bool,
    completion: sys::Wc,
}

/// A completion to be queued.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) id: u64,
    pub(crate) status: u32,
    pub(crate) bytes: u32,
    pub(crate) is_receive: bool,
}

impl Completions {
    pub(crate) fn new(context: u32, capacity: usize) -> Self {
        Self { context, capacity, waiting: VecDeque::new(), overflowed: false }
    }

    /// Queues a completion of the queue pair with this handle and number. One too many breaks the queue.
    pub(crate) fn push(&mut self, (pair, number): (u32, u32), ended: Ended) {
        if self.waiting.len() == self.capacity {
            self.overflowed = true;
            return;
        }
        let completion = work_completion(number, ended);
        self.waiting.push_back(Entry { pair, is_receive: ended.is_receive, completion });
    }

    /// The oldest completion, the handle of its queue pair, and whether it is of a receive; `None` when there is none.
    pub(crate) fn pop(&mut self) -> Option<(sys::Wc, u32, bool)> {
        self.waiting.pop_front().map(|entry| (entry.completion, entry.pair, entry.is_receive))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(crate) fn has_overflowed(&self) -> bool {
        self.overflowed
    }

    /// Forgets what a queue pair has left behind, as drivers do when it is destroyed.
    pub(crate) fn forget(&mut self, pair: u32) {
        self.waiting.retain(|entry| entry.pair != pair);
    }
}

/// Fills in what a device would: in an error the opcode and the length are garbage, as the manual page warns.
fn work_completion(number: u32, ended: Ended) -> sys::Wc {
    const GARBAGE: u32 = 0xdead_beef;
    let ok = ended.status == sys::WC_SUCCESS;
    let opcode = if ended.is_receive { sys::WC_RECV } else { sys::WC_SEND };
    sys::Wc {
        wr_id: ended.id,
        status: ended.status,
        opcode: if ok { opcode } else { GARBAGE },
        vendor_err: if ok { GARBAGE } else { 0x100 + ended.status },
        byte_len: if ok && ended.is_receive { ended.bytes } else { GARBAGE },
        imm_data: 0,
        qp_num: number,
        src_qp: 0,
        wc_flags: 0,
        pkey_index: 0,
        slid: 0,
        sl: 0,
        dlid_path_bits: 0,
    }
}

/// The completion queues of a process, by handle.
pub(crate) type Queues = BTreeMap<u32, Completions>;
