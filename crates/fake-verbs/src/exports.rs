//! The functions that the library exports, as `infiniband/verbs.h` declares them.
//!
//! Thin: each checks its arguments, calls [`World`](crate::world::World) and puts the answer into the form that C
//! expects. All of them rely on the contract of the verbs manual pages: pointers are those that this library gave out
//! and that are not freed.

use crate::{
    connect::{Change, change},
    memory::Pieces,
    pair::{Made, Receive, Send},
    script::{Kind, PortState},
    wire::MAX_MESSAGE,
    world::{Errno, Verb, lock},
};
use pomar_verbs::sys;
use std::{
    ffi::{CString, c_char, c_int, c_void},
    ptr,
    sync::LazyLock,
};

/// What a `struct ibv_device` pointer points to.
struct Listed {
    name: CString,
    index: usize,
}

static LISTED: LazyLock<Vec<Listed>> = LazyLock::new(|| {
    let Ok(world) = lock() else { return Vec::new() };
    let names = world.devices.iter().map(|device| device.script.name.as_str());
    // The script's names have no zeros in them.
    names
        .enumerate()
        .map(|(index, name)| Listed { name: CString::new(name).unwrap_or_default(), index })
        .collect()
});

fn set_errno(errno: c_int) {
    #[cfg(target_os = "linux")]
    // SAFETY: the calling thread's own error number.
    unsafe {
        *libc::__errno_location() = errno;
    }
    #[cfg(target_os = "macos")]
    // SAFETY: as above.
    unsafe {
        *libc::__error() = errno;
    }
}

/// For calls that return 0 or an error number.
fn code(result: Verb<()>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(Errno(errno)) => {
            set_errno(errno);
            errno
        }
    }
}

/// For calls that return a new object, or nothing and an error number in `errno`.
fn object<T>(result: Verb<T>) -> *mut T {
    match result {
        Ok(object) => Box::into_raw(Box::new(object)),
        Err(Errno(errno)) => {
            set_errno(errno);
            ptr::null_mut()
        }
    }
}

/// For calls that free an object, which stays when that fails.
///
/// # Safety
/// `object` comes from [`object`] and is not freed.
unsafe fn freed<T>(result: Verb<()>, object: *mut T) -> c_int {
    if result.is_ok() {
        // SAFETY: our own contract.
        drop(unsafe { Box::from_raw(object) });
    }
    code(result)
}

/// Objects of this process that are not freed: device lists, contexts, protection domains, memory regions, completion
/// queues and queue pairs.
#[unsafe(no_mangle)]
extern "C" fn fake_verbs_live() -> u64 {
    lock().map_or(0, |world| world.live())
}

/// Calls of this process that were refused because something was used up.
#[unsafe(no_mangle)]
extern "C" fn fake_verbs_refusals() -> u64 {
    lock().map_or(0, |world| world.refusals)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_device_list(count: *mut c_int) -> *mut *mut sys::Device {
    let mut world = match lock() {
        Ok(world) => world,
        Err(Errno(errno)) => {
            set_errno(errno);
            return ptr::null_mut();
        }
    };
    world.lists += 1;
    drop(world);
    let pointer = |listed: &Listed| ptr::from_ref(listed).cast_mut().cast::<sys::Device>();
    let list: Box<[_]> = LISTED.iter().map(pointer).chain([ptr::null_mut()]).collect();
    if !count.is_null() {
        // SAFETY: the caller's int. A script has few devices.
        unsafe { *count = (list.len() - 1) as c_int };
    }
    Box::into_raw(list).cast()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_free_device_list(list: *mut *mut sys::Device) {
    let whole = ptr::slice_from_raw_parts_mut(list, LISTED.len() + 1);
    // SAFETY: as made in `ibv_get_device_list`, whose length is always the same.
    drop(unsafe { Box::from_raw(whole) });
    if let Ok(mut world) = lock() {
        world.lists -= 1;
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_device_name(device: *mut sys::Device) -> *const c_char {
    // SAFETY: a device of ours, which live for ever.
    unsafe { &*device.cast::<Listed>() }.name.as_ptr()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_open_device(device: *mut sys::Device) -> *mut sys::Context {
    // SAFETY: a device of ours, which live for ever.
    let index = unsafe { &*device.cast::<Listed>() }.index;
    let opened = lock().and_then(|mut world| world.open(index));
    object(opened.map(|handle| sys::Context {
        device,
        ops: sys::ContextOps {
            before_poll_cq: [ptr::null(); 11],
            poll_cq: Some(poll_cq),
            before_post_send: [ptr::null(); 13],
            post_send: Some(post_send),
            post_recv: Some(post_recv),
            after_post_recv: [ptr::null(); 5],
        },
        // Where a real context has its file; this one has its handle.
        cmd_fd: handle.cast_signed(),
        async_fd: -1,
        num_comp_vectors: 1,
    }))
}

/// # Safety
/// A context of ours that is not closed.
unsafe fn handle_of(context: *mut sys::Context) -> u32 {
    // SAFETY: our own contract.
    unsafe { (*context).cmd_fd }.cast_unsigned()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_close_device(context: *mut sys::Context) -> c_int {
    // SAFETY: a context of ours.
    let handle = unsafe { handle_of(context) };
    let closed = lock().and_then(|mut world| world.close(handle));
    // SAFETY: as above.
    unsafe { freed(closed, context) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_device(context: *mut sys::Context, into: *mut sys::DeviceAttr) -> c_int {
    // SAFETY: a context of ours.
    let handle = unsafe { handle_of(context) };
    code(lock().and_then(|mut world| {
        let limits = &world.device(handle)?.script.limits;
        let int = |count: u32| i32::try_from(count).unwrap_or(i32::MAX);
        // SAFETY: the caller's struct. Zeroed first: it is made of integers.
        let attr = unsafe {
            into.write_bytes(0, 1);
            &mut *into
        };
        attr.max_mr_size = limits.memory_region_bytes;
        attr.max_qp = int(limits.queue_pairs);
        attr.max_qp_wr = int(limits.work_requests);
        attr.max_sge = 1;
        attr.max_cq = int(limits.completion_queues);
        attr.max_cqe = int(limits.completion_entries);
        attr.max_mr = int(limits.memory_regions);
        attr.max_pd = int(limits.protection_domains);
        attr.phys_port_cnt = 1;
        Ok(())
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_port(context: *mut sys::Context, port: u8, into: *mut sys::PortAttr) -> c_int {
    // SAFETY: a context of ours.
    let handle = unsafe { handle_of(context) };
    code(lock().and_then(|mut world| {
        let script = &world.device(handle)?.script;
        if port != 1 {
            return Err(Errno(libc::EINVAL));
        }
        // SAFETY: the caller's struct, of which only the old part is written: this call must not touch the rest.
        let attr = unsafe { &mut *into };
        attr.state = match script.port {
            PortState::Down => sys::PORT_DOWN,
            PortState::Initialising => sys::PORT_INIT,
            PortState::Active => sys::PORT_ACTIVE,
        };
        // 256 is 1, and each doubling one more.
        attr.active_mtu = script.path_mtu.ilog2() - 7;
        attr.max_mtu = sys::MTU_4096;
        attr.gid_tbl_len = script.gids.len() as c_int;
        attr.max_msg_sz = MAX_MESSAGE as u32;
        attr.pkey_tbl_len = 1;
        attr.lid = script.lid;
        attr.link_layer = sys::LINK_LAYER_ETHERNET;
        Ok(())
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_gid(
    context: *mut sys::Context,
    port: u8,
    row: c_int,
    into: *mut sys::RawGid,
) -> c_int {
    // SAFETY: a context of ours.
    let handle = unsafe { handle_of(context) };
    let found = lock().and_then(|mut world| {
        let gids = &world.device(handle)?.script.gids;
        let gid = usize::try_from(row).ok().and_then(|row| gids.get(row)).filter(|_| port == 1);
        gid.copied().ok_or(Errno(libc::EINVAL))
    });
    match found {
        Ok(gid) => {
            // SAFETY: the caller's struct.
            unsafe { (*into).raw = gid.octets() };
            0
        }
        // This call has another way of failing.
        Err(Errno(errno)) => {
            set_errno(errno);
            -1
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_alloc_pd(context: *mut sys::Context) -> *mut sys::Pd {
    // SAFETY: a context of ours.
    let owner = unsafe { handle_of(context) };
    let made = lock().and_then(|mut world| world.make_domain(owner));
    object(made.map(|handle| sys::Pd { context, handle }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_dealloc_pd(domain: *mut sys::Pd) -> c_int {
    // SAFETY: a domain of ours.
    let handle = unsafe { (*domain).handle };
    let dropped = lock().and_then(|mut world| world.drop_domain(handle));
    // SAFETY: as above.
    unsafe { freed(dropped, domain) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_reg_mr(
    domain: *mut sys::Pd,
    addr: *mut c_void,
    length: usize,
    _access: c_int,
) -> *mut sys::Mr {
    // SAFETY: a domain of ours.
    let (context, owner) = unsafe { ((*domain).context, (*domain).handle) };
    let made = lock().and_then(|mut world| world.register(owner, addr as u64, length as u64));
    object(made.map(|key| sys::Mr { context, pd: domain, addr, length, handle: key, lkey: key, rkey: key }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_dereg_mr(region: *mut sys::Mr) -> c_int {
    // SAFETY: a region of ours.
    let key = unsafe { (*region).lkey };
    let dropped = lock().and_then(|mut world| world.deregister(key));
    // SAFETY: as above.
    unsafe { freed(dropped, region) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_cq(
    context: *mut sys::Context,
    entries: c_int,
    cq_context: *mut c_void,
    channel: *mut c_void,
    _vector: c_int,
) -> *mut sys::Cq {
    // SAFETY: a context of ours.
    let owner = unsafe { handle_of(context) };
    let made = lock().and_then(|mut world| world.make_queue(owner, entries));
    object(made.map(|handle| sys::Cq { context, channel, cq_context, handle, cqe: entries }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_cq(queue: *mut sys::Cq) -> c_int {
    // SAFETY: a queue of ours.
    let handle = unsafe { (*queue).handle };
    let dropped = lock().and_then(|mut world| world.drop_queue(handle));
    // SAFETY: as above.
    unsafe { freed(dropped, queue) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_qp(domain: *mut sys::Pd, attr: *mut sys::QpInitAttr) -> *mut sys::Qp {
    // SAFETY: a domain of ours; the caller's struct and queues of ours in it.
    let (context, owner, attr) = unsafe { ((*domain).context, (*domain).handle, &*attr) };
    let kind = match attr.qp_type {
        sys::QPT_RC => Ok(Kind::Rc),
        sys::QPT_UC => Ok(Kind::Uc),
        _ => Err(Errno(libc::EOPNOTSUPP)),
    };
    let made = kind.and_then(|kind| {
        let made = Made {
            handle: 0,
            device: 0,
            domain: owner,
            // SAFETY: as above.
            send_queue: unsafe { (*attr.send_cq).handle },
            // SAFETY: as above.
            receive_queue: unsafe { (*attr.recv_cq).handle },
            kind,
            most_sends: attr.cap.max_send_wr as usize,
            most_receives: attr.cap.max_recv_wr as usize,
            signal_all: attr.sq_sig_all != 0,
        };
        lock()?.make_pair(made)
    });
    object(made.map(|(handle, number)| sys::Qp {
        context,
        qp_context: attr.qp_context,
        pd: domain,
        send_cq: attr.send_cq,
        recv_cq: attr.recv_cq,
        srq: attr.srq,
        handle,
        qp_num: number,
        state: sys::QPS_RESET,
        qp_type: attr.qp_type,
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_modify_qp(pair: *mut sys::Qp, attr: *mut sys::QpAttr, mask: c_int) -> c_int {
    // SAFETY: a queue pair of ours, and the caller's struct.
    let (handle, attr) = unsafe { ((*pair).handle, &*attr) };
    let asked = Change { attr, mask: mask.cast_unsigned() };
    code(lock().and_then(|mut world| world.with_pair(handle, |pair, around| change(pair, &asked, around))))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_qp(pair: *mut sys::Qp) -> c_int {
    // SAFETY: a queue pair of ours.
    let handle = unsafe { (*pair).handle };
    let dropped = lock().and_then(|mut world| world.drop_pair(handle));
    // SAFETY: as above.
    unsafe { freed(dropped, pair) }
}

/// # Safety
/// A work request's list.
unsafe fn pieces(list: *const sys::Sge, count: c_int) -> Verb<Pieces> {
    match count {
        0 => Ok(Pieces(Vec::new())),
        // SAFETY: our own contract.
        1 => Ok(Pieces(vec![unsafe { *list }])),
        // More than any queue pair of ours was made for: see `max_sge` of the device.
        _ => Err(Errno(libc::EINVAL)),
    }
}

unsafe extern "C" fn post_send(
    pair: *mut sys::Qp,
    first: *mut sys::SendWr,
    bad: *mut *mut sys::SendWr,
) -> c_int {
    // SAFETY: a queue pair of ours.
    let handle = unsafe { (*pair).handle };
    let mut next = first;
    while !next.is_null() {
        // SAFETY: a chain of the caller's.
        let request = unsafe { &*next };
        // SAFETY: the list belongs to the request.
        let posted = unsafe { pieces(request.sg_list, request.num_sge) }.and_then(|pieces| {
            if request.opcode != sys::WR_SEND || pieces.bytes() > MAX_MESSAGE as u64 {
                return Err(Errno(libc::EINVAL));
            }
            let signaled = request.send_flags & sys::SEND_SIGNALED != 0;
            lock()?.with_pair(handle, |pair, around| {
                let leaves_at = around.now + around.device.script.faults.latency();
                Ok(pair.post_send(Send::new(request.wr_id, pieces, signaled, leaves_at), around)?)
            })
        });
        if posted.is_err() {
            // SAFETY: the caller's pointer.
            unsafe { *bad = next };
            return code(posted);
        }
        next = request.next;
    }
    0
}

unsafe extern "C" fn post_recv(
    pair: *mut sys::Qp,
    first: *mut sys::RecvWr,
    bad: *mut *mut sys::RecvWr,
) -> c_int {
    // SAFETY: a queue pair of ours.
    let handle = unsafe { (*pair).handle };
    let mut next = first;
    while !next.is_null() {
        // SAFETY: a chain of the caller's.
        let request = unsafe { &*next };
        // SAFETY: the list belongs to the request.
        let posted = unsafe { pieces(request.sg_list, request.num_sge) }.and_then(|pieces| {
            lock()?.with_pair(handle, |pair, around| {
                Ok(pair.post_receive(Receive { id: request.wr_id, pieces }, around)?)
            })
        });
        if posted.is_err() {
            // SAFETY: the caller's pointer.
            unsafe { *bad = next };
            return code(posted);
        }
        next = request.next;
    }
    0
}

unsafe extern "C" fn poll_cq(queue: *mut sys::Cq, most: c_int, into: *mut sys::Wc) -> c_int {
    // SAFETY: a queue of ours.
    let handle = unsafe { (*queue).handle };
    let mut filled = 0;
    let polled = lock().and_then(|mut world| {
        world.poll(handle, usize::try_from(most).unwrap_or(0), |completion| {
            // SAFETY: the caller has room for `most`.
            unsafe { into.add(filled).write(completion) };
            filled += 1;
        })
    });
    match polled {
        Ok(0) => {
            // The peer may want this processor.
            std::thread::yield_now();
            0
        }
        // At most `most`.
        Ok(count) => count as c_int,
        Err(Errno(errno)) => -errno,
    }
}
