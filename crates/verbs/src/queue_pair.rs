//! Queue pairs: connections that carry messages.

use crate::{CompletionQueue, Gid, MemoryRegion, PathMtu, ProtectionDomain, VerbsError, device::PORT, sys};
use std::{
    fmt,
    mem::ManuallyDrop,
    ops::Range,
    ptr::{self, NonNull},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

/// How many hops a packet may take where there can be routers.
const HOPS: u8 = 64;

/// Work requests that one call posts at most, on the stack.
const CHAIN: usize = 32;

/// RC: time to wait for an acknowledgement, 4.096 us * 2^16 = 268 ms. Soft-RoCE on a busy machine is often later than 67 ms
/// (14), and of a message that is sent again for nothing it has delivered a packet twice.
const ACK_TIMEOUT: u8 = 16;
/// RC: times to send again after that, so that a dead peer is noticed after about two seconds. 7 would mean for ever
/// to some devices.
const RETRIES: u8 = 6;
/// RC: for ever; a receive that is missing is waited for.
const RECEIVER_NOT_READY_RETRIES: u8 = 7;
/// RC: 0.64 ms between those.
const RECEIVER_NOT_READY_TIMER: u8 = 12;

/// The service that a connection gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QpKind {
    /// Reliable: a message arrives or its send fails. Hardware lets a send wait for a receive for ever; soft-RoCE counts
    /// that among the retries and gives up after two seconds. So have the receive posted first.
    Rc,
    /// Unreliable: a message that is lost, or finds no receive, is gone, and its send is well. The only kind that
    /// Apple's devices have.
    Uc,
}

/// Work requests that a queue pair holds, each way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Depth {
    /// Sends whose completion has not been polled.
    pub send: u32,
    /// Receives, likewise.
    pub receive: u32,
}

/// This side of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LocalEnd {
    /// Row of the GID table that is this side's address.
    pub gid_index: u8,
    /// Number of the first packet sent, 24 bits.
    pub packet_sequence: u32,
    /// Bytes per packet, equal on both sides and not above either port's.
    pub path_mtu: PathMtu,
}

/// The other side of a connection, as that side says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteEnd {
    /// Its [`QueuePair::number`].
    pub queue_pair: u32,
    /// Its [`LocalEnd::packet_sequence`].
    pub packet_sequence: u32,
    /// Its port's local identifier.
    pub lid: u16,
    /// Its address; zero only on InfiniBand, within one subnet.
    pub gid: Gid,
}

/// One end of a connection. Destroyed on drop, and only then it gives up its memory regions, its protection domain and
/// its completion queue.
///
/// # Memory
/// The device reads and writes memory long after a `post_*` has returned. So that a region can't be freed under it, a
/// queue pair keeps an owner of every region that was ever posted to it, until it is destroyed. Registering few big
/// regions once is the way to use this; a new region per message would pile up.
pub struct QueuePair {
    pair: NonNull<sys::Qp>,
    kind: QpKind,
    initialised: AtomicBool,
    /// Dropped by hand, because a queue pair that can't be destroyed must keep them.
    owned: ManuallyDrop<Owned>,
}

/// What a queue pair needs for as long as it lives.
struct Owned {
    regions: Mutex<Vec<MemoryRegion>>,
    _completions: CompletionQueue,
    domain: ProtectionDomain,
}

// SAFETY: the verbs manual pages promise that all calls are thread safe; the pointer is used for nothing else.
unsafe impl Send for QueuePair {}
// SAFETY: as above.
unsafe impl Sync for QueuePair {}

impl QueuePair {
    pub(crate) fn new(
        domain: &ProtectionDomain,
        completions: &CompletionQueue,
        kind: QpKind,
        depth: Depth,
    ) -> Result<Self, VerbsError> {
        let device = domain.device();
        if !device.is(completions.device()) {
            let what = "a protection domain and a completion queue";
            return Err(VerbsError::Stranger { what, owner: "open device" });
        }
        let mut attr = sys::QpInitAttr {
            qp_context: ptr::null_mut(),
            send_cq: completions.raw(),
            recv_cq: completions.raw(),
            srq: ptr::null_mut(),
            cap: sys::QpCap {
                max_send_wr: depth.send,
                max_recv_wr: depth.receive,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: 0,
            },
            qp_type: kind.number(),
            sq_sig_all: 0,
        };
        // SAFETY: domain and completion queue are live, and `Owned` keeps them so.
        let pair = unsafe { (device.library().functions().create_qp)(domain.raw(), &raw mut attr) };
        let pair = NonNull::new(pair).ok_or_else(|| device.last_error("ibv_create_qp"))?;
        let owned = Owned {
            regions: Mutex::new(Vec::new()),
            _completions: completions.clone(),
            domain: domain.clone(),
        };
        Ok(Self { pair, kind, initialised: AtomicBool::new(false), owned: ManuallyDrop::new(owned) })
    }

    /// The number that the peer connects to, 24 bits.
    #[must_use]
    pub fn number(&self) -> u32 {
        // SAFETY: a live queue pair; the number never changes.
        unsafe { (*self.pair.as_ptr()).qp_num }
    }

    /// Makes it ready for receives to be posted, before there is a peer.
    ///
    /// # Errors
    /// [`VerbsError::System`].
    pub fn init(&self) -> Result<(), VerbsError> {
        let mut attr = sys::QpAttr {
            qp_state: sys::QPS_INIT,
            port_num: PORT,
            qp_access_flags: sys::ACCESS_LOCAL_WRITE | sys::ACCESS_REMOTE_READ | sys::ACCESS_REMOTE_WRITE,
            ..sys::QpAttr::default()
        };
        let mask = sys::QP_STATE | sys::QP_PKEY_INDEX | sys::QP_PORT | sys::QP_ACCESS_FLAGS;
        self.modify("ibv_modify_qp to INIT", &mut attr, mask)?;
        self.initialised.store(true, Relaxed);
        Ok(())
    }

    /// Connects to the peer, once. Receives may be posted before, if [`QueuePair::init`] was called, and should be: a
    /// peer that is done sooner may send at once.
    ///
    /// # Errors
    /// [`VerbsError::System`]. Half connected is not undone: drop the queue pair.
    pub fn connect(&self, local: &LocalEnd, remote: &RemoteEnd) -> Result<(), VerbsError> {
        if !self.initialised.load(Relaxed) {
            self.init()?;
        }
        self.ready_to_receive(local, remote)?;
        self.ready_to_send(local)
    }

    fn ready_to_receive(&self, local: &LocalEnd, remote: &RemoteEnd) -> Result<(), VerbsError> {
        let mut attr = sys::QpAttr {
            qp_state: sys::QPS_RTR,
            path_mtu: local.path_mtu.number(),
            rq_psn: remote.packet_sequence,
            dest_qp_num: remote.queue_pair,
            ah_attr: self.address(local, remote),
            max_dest_rd_atomic: 1,
            min_rnr_timer: RECEIVER_NOT_READY_TIMER,
            ..sys::QpAttr::default()
        };
        let mut mask = sys::QP_STATE | sys::QP_AV | sys::QP_PATH_MTU | sys::QP_DEST_QPN | sys::QP_RQ_PSN;
        if self.kind == QpKind::Rc {
            mask |= sys::QP_MAX_DEST_RD_ATOMIC | sys::QP_MIN_RNR_TIMER;
        }
        self.modify("ibv_modify_qp to RTR", &mut attr, mask)
    }

    fn ready_to_send(&self, local: &LocalEnd) -> Result<(), VerbsError> {
        let mut attr = sys::QpAttr {
            qp_state: sys::QPS_RTS,
            sq_psn: local.packet_sequence,
            timeout: ACK_TIMEOUT,
            retry_cnt: RETRIES,
            rnr_retry: RECEIVER_NOT_READY_RETRIES,
            max_rd_atomic: 1,
            ..sys::QpAttr::default()
        };
        let mut mask = sys::QP_STATE | sys::QP_SQ_PSN;
        if self.kind == QpKind::Rc {
            mask |= sys::QP_TIMEOUT | sys::QP_RETRY_CNT | sys::QP_RNR_RETRY | sys::QP_MAX_QP_RD_ATOMIC;
        }
        self.modify("ibv_modify_qp to RTS", &mut attr, mask)
    }

    fn address(&self, local: &LocalEnd, remote: &RemoteEnd) -> sys::AhAttr {
        let mut address = sys::AhAttr { dlid: remote.lid, port_num: PORT, ..sys::AhAttr::default() };
        if !remote.gid.is_zero() {
            let apple = self.domain().device().library().is_apple();
            address.is_global = 1;
            address.grh = sys::GlobalRoute {
                dgid: sys::RawGid { raw: remote.gid.0 },
                sgid_index: local.gid_index,
                // A cable has no routers; JACCL asks for 1 there.
                hop_limit: if apple { 1 } else { HOPS },
                ..sys::GlobalRoute::default()
            };
        }
        address
    }

    fn modify(&self, call: &'static str, attr: &mut sys::QpAttr, mask: u32) -> Result<(), VerbsError> {
        let device = self.domain().device();
        // SAFETY: a live queue pair; the call only reads `attr`.
        let answer =
            unsafe { (device.library().functions().modify_qp)(self.pair.as_ptr(), attr, mask.cast_signed()) };
        device.check(call, answer)
    }

    /// Sends the bytes `range` of `region` as one message. Completes with `id` when the bytes may be changed again.
    ///
    /// # Errors
    /// [`VerbsError::System`], with `ENOMEM` when the queue is full; [`VerbsError::Range`]; [`VerbsError::Stranger`].
    /// Nothing is posted then.
    ///
    /// # Safety
    /// From this call until its completion has been polled, or the queue pair is destroyed, nobody writes to the range.
    pub unsafe fn post_send(
        &self,
        id: u64,
        region: &MemoryRegion,
        range: Range<usize>,
    ) -> Result<(), VerbsError> {
        let Some(post) = self.ops().post_send else { return Err(self.unsupported("ibv_post_send")) };
        let mut piece = self.piece(region, &range)?;
        self.keep(region);
        let mut request = sys::SendWr {
            wr_id: id,
            next: ptr::null_mut(),
            sg_list: &raw mut piece,
            num_sge: pieces(piece),
            opcode: sys::WR_SEND,
            send_flags: sys::SEND_SIGNALED,
            imm_data: 0,
            wr: [0; 4],
            rest: [0; 7],
        };
        let mut bad = ptr::null_mut();
        // SAFETY: a live queue pair; the call copies the request. The memory is registered and kept; nobody writes to it
        // by our own contract.
        let answer = unsafe { post(self.pair.as_ptr(), &raw mut request, &raw mut bad) };
        self.domain().device().check("ibv_post_send", answer)
    }

    /// Offers the bytes `range` of `region` to the next message that has no receive yet. Completes with `id` when a
    /// message is there.
    ///
    /// # Errors
    /// As [`QueuePair::post_send`].
    ///
    /// # Safety
    /// From this call until its completion has been polled, or the queue pair is destroyed, nobody reads or writes the
    /// range.
    pub unsafe fn post_receive(
        &self,
        id: u64,
        region: &MemoryRegion,
        range: Range<usize>,
    ) -> Result<(), VerbsError> {
        // SAFETY: our own contract.
        unsafe { self.post_receives(region, &[(id, range)]) }
    }

    /// Posts several receives in order, in one call of the library for each 32.
    ///
    /// # Errors
    /// As [`QueuePair::post_send`]. A range that is wrong is found before anything is posted; after a
    /// [`VerbsError::System`] an unknown number of them, from the first on, is posted.
    ///
    /// # Safety
    /// As [`QueuePair::post_receive`], for each of the ranges; and they do not overlap.
    pub unsafe fn post_receives(
        &self,
        region: &MemoryRegion,
        receives: &[(u64, Range<usize>)],
    ) -> Result<(), VerbsError> {
        for (_, range) in receives {
            self.piece(region, range)?;
        }
        self.keep(region);
        // SAFETY: our own contract; the region is kept.
        receives.chunks(CHAIN).try_for_each(|chain| unsafe { self.post_chain(region, chain) })
    }

    /// # Safety
    /// As [`QueuePair::post_receives`], and the region is kept already. At most [`CHAIN`] receives, not none.
    unsafe fn post_chain(
        &self,
        region: &MemoryRegion,
        receives: &[(u64, Range<usize>)],
    ) -> Result<(), VerbsError> {
        let Some(post) = self.ops().post_recv else { return Err(self.unsupported("ibv_post_recv")) };
        let mut memory = [sys::Sge { addr: 0, length: 0, lkey: 0 }; CHAIN];
        let mut requests = [const { EMPTY_RECEIVE }; CHAIN];
        let mut next = ptr::null_mut();
        // Backwards, so that each request can point to the one after it.
        for (index, (id, range)) in receives.iter().enumerate().rev() {
            memory[index] = self.piece(region, range)?;
            let num_sge = pieces(memory[index]);
            requests[index] = sys::RecvWr { wr_id: *id, next, sg_list: &raw mut memory[index], num_sge };
            next = &raw mut requests[index];
        }
        let mut bad = ptr::null_mut();
        // SAFETY: a live queue pair and a chain on our stack, which the call copies. The memory is registered and kept;
        // nobody else uses it by our own contract.
        let answer = unsafe { post(self.pair.as_ptr(), next, &raw mut bad) };
        self.domain().device().check("ibv_post_recv", answer)
    }

    /// The range as the device wants it.
    fn piece(&self, region: &MemoryRegion, range: &Range<usize>) -> Result<sys::Sge, VerbsError> {
        if !region.domain().is(self.domain()) {
            let what = "a queue pair and a memory region";
            return Err(VerbsError::Stranger { what, owner: "protection domain" });
        }
        let wrong = || VerbsError::Range { range: range.clone(), region: region.len() };
        if range.start > range.end || range.end > region.len() {
            return Err(wrong());
        }
        // A message has at most 2^31 bytes.
        let length = u32::try_from(range.len()).ok().filter(|length| *length <= 1 << 31).ok_or_else(wrong)?;
        Ok(sys::Sge { addr: region.as_ptr() as u64 + range.start as u64, length, lkey: region.key() })
    }

    /// Becomes an owner of the region, if it isn't one: see the type's documentation.
    fn keep(&self, region: &MemoryRegion) {
        let mut kept = self.owned.regions.lock().unwrap_or_else(PoisonError::into_inner);
        if !kept.iter().any(|own| own.is(region)) {
            kept.push(region.clone());
        }
    }

    #[cold]
    fn unsupported(&self, call: &'static str) -> VerbsError {
        VerbsError::numbered(call, self.domain().device().name(), libc::EOPNOTSUPP)
    }

    fn ops(&self) -> &sys::ContextOps {
        // SAFETY: the context of a live queue pair, which `owned` keeps open; its table does not change any more.
        unsafe { &(*(*self.pair.as_ptr()).context).ops }
    }

    fn domain(&self) -> &ProtectionDomain {
        &self.owned.domain
    }
}

const EMPTY_RECEIVE: sys::RecvWr =
    sys::RecvWr { wr_id: 0, next: ptr::null_mut(), sg_list: ptr::null_mut(), num_sge: 0 };

/// An empty message has no piece: a piece of 0 bytes would mean 2^31.
fn pieces(piece: sys::Sge) -> i32 {
    i32::from(piece.length != 0)
}

impl fmt::Debug for QueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let device = self.domain().device().name();
        f.debug_struct("QueuePair")
            .field("device", &device)
            .field("kind", &self.kind)
            .field("number", &self.number())
            .finish_non_exhaustive()
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        let device = self.domain().device();
        // SAFETY: our own queue pair, destroyed once.
        let answer = unsafe { (device.library().functions().destroy_qp)(self.pair.as_ptr()) };
        // A queue pair that lives on may still write to its regions, so they must live on too.
        if device.released("ibv_destroy_qp", answer) {
            // SAFETY: dropped here only, and not used again.
            unsafe { ManuallyDrop::drop(&mut self.owned) };
        }
    }
}

impl QpKind {
    /// The number of `enum ibv_qp_type`.
    fn number(self) -> u32 {
        match self {
            Self::Rc => sys::QPT_RC,
            Self::Uc => sys::QPT_UC,
        }
    }
}
