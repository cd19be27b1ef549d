//! The binary interface of libibverbs and librdma: types, constants and function signatures.
//!
//! Facts from the public header `infiniband/verbs.h` of rdma-core, for 64-bit systems where `int` has 32 bits
//! (x86-64 and aarch64, Linux and macOS). A test compares every size and offset with what a C compiler says of that
//! header. Handles are declared only as far as this crate reads them: the libraries allocate them, and what follows
//! (mutexes, driver data) differs between systems.
//!
//! Names follow the header without its prefix: `ibv_send_wr` is [`SendWr`], `IBV_WC_SUCCESS` is [`WC_SUCCESS`]. C
//! enums are `u32`, so that a value unknown here is a number and not undefined behaviour.
//!
//! Public for providers in tests, which fill these same structs from the other side.

#![allow(missing_docs, reason = "the header's names, described by the verbs manual pages")]

use std::ffi::{c_char, c_int, c_void};

const _: () = assert!(size_of::<usize>() == 8, "the layouts here are those of 64-bit systems");

/// `struct ibv_device`, never looked into: its name comes from `ibv_get_device_name`.
#[repr(C)]
pub struct Device {
    _opaque: [u8; 0],
}

/// The first fields of `struct ibv_context`.
#[repr(C)]
pub struct Context {
    pub device: *mut Device,
    pub ops: ContextOps,
    pub cmd_fd: c_int,
    pub async_fd: c_int,
    pub num_comp_vectors: c_int,
}

/// `struct ibv_context_ops`: the calls that the header makes through the context instead of through a symbol. Entries
/// that this crate does not call are only counted.
#[repr(C)]
pub struct ContextOps {
    pub before_poll_cq: [*const c_void; 11],
    pub poll_cq: Option<unsafe extern "C" fn(*mut Cq, c_int, *mut Wc) -> c_int>,
    pub before_post_send: [*const c_void; 13],
    pub post_send: Option<unsafe extern "C" fn(*mut Qp, *mut SendWr, *mut *mut SendWr) -> c_int>,
    pub post_recv: Option<unsafe extern "C" fn(*mut Qp, *mut RecvWr, *mut *mut RecvWr) -> c_int>,
    pub after_post_recv: [*const c_void; 5],
}

/// The first fields of `struct ibv_pd`.
#[repr(C)]
pub struct Pd {
    pub context: *mut Context,
    pub handle: u32,
}

/// `struct ibv_mr`.
#[repr(C)]
pub struct Mr {
    pub context: *mut Context,
    pub pd: *mut Pd,
    pub addr: *mut c_void,
    pub length: usize,
    pub handle: u32,
    pub lkey: u32,
    pub rkey: u32,
}

/// The first fields of `struct ibv_cq`.
#[repr(C)]
pub struct Cq {
    pub context: *mut Context,
    pub channel: *mut c_void,
    pub cq_context: *mut c_void,
    pub handle: u32,
    pub cqe: c_int,
}

/// The first fields of `struct ibv_qp`.
#[repr(C)]
pub struct Qp {
    pub context: *mut Context,
    pub qp_context: *mut c_void,
    pub pd: *mut Pd,
    pub send_cq: *mut Cq,
    pub recv_cq: *mut Cq,
    pub srq: *mut c_void,
    pub handle: u32,
    pub qp_num: u32,
    pub state: u32,
    pub qp_type: u32,
}

/// `struct ibv_sge`: one piece of memory of a work request. A `length` of 0 means 2^31 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Sge {
    pub addr: u64,
    pub length: u32,
    pub lkey: u32,
}

/// `struct ibv_recv_wr`.
#[repr(C)]
pub struct RecvWr {
    pub wr_id: u64,
    pub next: *mut RecvWr,
    pub sg_list: *mut Sge,
    pub num_sge: c_int,
}

/// `struct ibv_send_wr`. The unions at its end (remote address, atomics, memory windows) are zero for SEND.
#[repr(C)]
pub struct SendWr {
    pub wr_id: u64,
    pub next: *mut SendWr,
    pub sg_list: *mut Sge,
    pub num_sge: c_int,
    pub opcode: u32,
    pub send_flags: u32,
    pub imm_data: u32,
    pub wr: [u64; 4],
    pub rest: [u64; 7],
}

/// `struct ibv_wc`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Wc {
    pub wr_id: u64,
    pub status: u32,
    pub opcode: u32,
    pub vendor_err: u32,
    pub byte_len: u32,
    pub imm_data: u32,
    pub qp_num: u32,
    pub src_qp: u32,
    pub wc_flags: u32,
    pub pkey_index: u16,
    pub slid: u16,
    pub sl: u8,
    pub dlid_path_bits: u8,
}

/// `struct ibv_qp_cap`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct QpCap {
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    pub max_inline_data: u32,
}

/// `struct ibv_qp_init_attr`.
#[repr(C)]
pub struct QpInitAttr {
    pub qp_context: *mut c_void,
    pub send_cq: *mut Cq,
    pub recv_cq: *mut Cq,
    pub srq: *mut c_void,
    pub cap: QpCap,
    pub qp_type: u32,
    pub sq_sig_all: c_int,
}

/// `union ibv_gid`, which also holds two 64-bit numbers and so is aligned to 8.
#[repr(C, align(8))]
#[derive(Clone, Copy, Default)]
pub struct RawGid {
    pub raw: [u8; 16],
}

/// `struct ibv_global_route`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct GlobalRoute {
    pub dgid: RawGid,
    pub flow_label: u32,
    pub sgid_index: u8,
    pub hop_limit: u8,
    pub traffic_class: u8,
}

/// `struct ibv_ah_attr`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct AhAttr {
    pub grh: GlobalRoute,
    pub dlid: u16,
    pub sl: u8,
    pub src_path_bits: u8,
    pub static_rate: u8,
    pub is_global: u8,
    pub port_num: u8,
}

/// `struct ibv_qp_attr`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct QpAttr {
    pub qp_state: u32,
    pub cur_qp_state: u32,
    pub path_mtu: u32,
    pub path_mig_state: u32,
    pub qkey: u32,
    pub rq_psn: u32,
    pub sq_psn: u32,
    pub dest_qp_num: u32,
    pub qp_access_flags: u32,
    pub cap: QpCap,
    pub ah_attr: AhAttr,
    pub alt_ah_attr: AhAttr,
    pub pkey_index: u16,
    pub alt_pkey_index: u16,
    pub en_sqd_async_notify: u8,
    pub sq_draining: u8,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    pub min_rnr_timer: u8,
    pub port_num: u8,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub alt_port_num: u8,
    pub alt_timeout: u8,
    pub rate_limit: u32,
}

/// `struct ibv_port_attr`. The exported `ibv_query_port` fills it up to `flags` only: the rest came later, and the
/// header reads it through a newer call.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct PortAttr {
    pub state: u32,
    pub max_mtu: u32,
    pub active_mtu: u32,
    pub gid_tbl_len: c_int,
    pub port_cap_flags: u32,
    pub max_msg_sz: u32,
    pub bad_pkey_cntr: u32,
    pub qkey_viol_cntr: u32,
    pub pkey_tbl_len: u16,
    pub lid: u16,
    pub sm_lid: u16,
    pub lmc: u8,
    pub max_vl_num: u8,
    pub sm_sl: u8,
    pub subnet_timeout: u8,
    pub init_type_reply: u8,
    pub active_width: u8,
    pub active_speed: u8,
    pub phys_state: u8,
    pub link_layer: u8,
    pub flags: u8,
    pub port_cap_flags2: u16,
}

/// `struct ibv_device_attr`. Fields that this crate does not read are only counted.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct DeviceAttr {
    pub fw_ver: [c_char; 64],
    pub node_guid: u64,
    pub sys_image_guid: u64,
    pub max_mr_size: u64,
    pub page_size_cap: u64,
    pub vendor_id: u32,
    pub vendor_part_id: u32,
    pub hw_ver: u32,
    pub max_qp: c_int,
    pub max_qp_wr: c_int,
    pub device_cap_flags: u32,
    pub max_sge: c_int,
    pub max_sge_rd: c_int,
    pub max_cq: c_int,
    pub max_cqe: c_int,
    pub max_mr: c_int,
    pub max_pd: c_int,
    pub after_max_pd: [c_int; 20],
    pub max_pkeys: u16,
    pub local_ca_ack_delay: u8,
    pub phys_port_cnt: u8,
}

// Sizes of what the libraries read and write as a whole. Checked here as well as in the test, because this also runs
// where the crate is only type-checked (macOS).
const _: () = assert!(
    size_of::<ContextOps>() == 256
        && size_of::<Mr>() == 48
        && size_of::<Sge>() == 16
        && size_of::<RecvWr>() == 32
        && size_of::<SendWr>() == 128
        && size_of::<Wc>() == 48
        && size_of::<QpInitAttr>() == 64
        && size_of::<QpAttr>() == 144
        && size_of::<PortAttr>() == 52
        && size_of::<DeviceAttr>() == 232
);

pub type GetDeviceList = unsafe extern "C" fn(*mut c_int) -> *mut *mut Device;
pub type FreeDeviceList = unsafe extern "C" fn(*mut *mut Device);
pub type GetDeviceName = unsafe extern "C" fn(*mut Device) -> *const c_char;
pub type OpenDevice = unsafe extern "C" fn(*mut Device) -> *mut Context;
pub type CloseDevice = unsafe extern "C" fn(*mut Context) -> c_int;
pub type QueryDevice = unsafe extern "C" fn(*mut Context, *mut DeviceAttr) -> c_int;
pub type QueryPort = unsafe extern "C" fn(*mut Context, u8, *mut PortAttr) -> c_int;
pub type QueryGid = unsafe extern "C" fn(*mut Context, u8, c_int, *mut RawGid) -> c_int;
pub type AllocPd = unsafe extern "C" fn(*mut Context) -> *mut Pd;
pub type DeallocPd = unsafe extern "C" fn(*mut Pd) -> c_int;
pub type RegMr = unsafe extern "C" fn(*mut Pd, *mut c_void, usize, c_int) -> *mut Mr;
pub type DeregMr = unsafe extern "C" fn(*mut Mr) -> c_int;
pub type CreateCq = unsafe extern "C" fn(*mut Context, c_int, *mut c_void, *mut c_void, c_int) -> *mut Cq;
pub type DestroyCq = unsafe extern "C" fn(*mut Cq) -> c_int;
pub type CreateQp = unsafe extern "C" fn(*mut Pd, *mut QpInitAttr) -> *mut Qp;
pub type ModifyQp = unsafe extern "C" fn(*mut Qp, *mut QpAttr, c_int) -> c_int;
pub type DestroyQp = unsafe extern "C" fn(*mut Qp) -> c_int;

// enum ibv_port_state
pub const PORT_NOP: u32 = 0;
pub const PORT_DOWN: u32 = 1;
pub const PORT_INIT: u32 = 2;
pub const PORT_ARMED: u32 = 3;
pub const PORT_ACTIVE: u32 = 4;
pub const PORT_ACTIVE_DEFER: u32 = 5;

// Values of ibv_port_attr.link_layer
pub const LINK_LAYER_INFINIBAND: u8 = 1;
pub const LINK_LAYER_ETHERNET: u8 = 2;

// enum ibv_mtu
pub const MTU_256: u32 = 1;
pub const MTU_512: u32 = 2;
pub const MTU_1024: u32 = 3;
pub const MTU_2048: u32 = 4;
pub const MTU_4096: u32 = 5;

// enum ibv_access_flags
pub const ACCESS_LOCAL_WRITE: u32 = 1;
pub const ACCESS_REMOTE_WRITE: u32 = 1 << 1;
pub const ACCESS_REMOTE_READ: u32 = 1 << 2;

// enum ibv_qp_type
pub const QPT_RC: u32 = 2;
pub const QPT_UC: u32 = 3;

// enum ibv_qp_state
pub const QPS_RESET: u32 = 0;
pub const QPS_INIT: u32 = 1;
pub const QPS_RTR: u32 = 2;
pub const QPS_RTS: u32 = 3;
pub const QPS_ERR: u32 = 6;

// enum ibv_qp_attr_mask
pub const QP_STATE: u32 = 1;
pub const QP_ACCESS_FLAGS: u32 = 1 << 3;
pub const QP_PKEY_INDEX: u32 = 1 << 4;
pub const QP_PORT: u32 = 1 << 5;
pub const QP_AV: u32 = 1 << 7;
pub const QP_PATH_MTU: u32 = 1 << 8;
pub const QP_TIMEOUT: u32 = 1 << 9;
pub const QP_RETRY_CNT: u32 = 1 << 10;
pub const QP_RNR_RETRY: u32 = 1 << 11;
pub const QP_RQ_PSN: u32 = 1 << 12;
pub const QP_MAX_QP_RD_ATOMIC: u32 = 1 << 13;
pub const QP_MIN_RNR_TIMER: u32 = 1 << 15;
pub const QP_SQ_PSN: u32 = 1 << 16;
pub const QP_MAX_DEST_RD_ATOMIC: u32 = 1 << 17;
pub const QP_DEST_QPN: u32 = 1 << 20;

// enum ibv_wr_opcode and enum ibv_send_flags
pub const WR_SEND: u32 = 2;
pub const SEND_SIGNALED: u32 = 1 << 1;

// enum ibv_wc_opcode
pub const WC_SEND: u32 = 0;
pub const WC_RECV: u32 = 1 << 7;

// enum ibv_wc_status
pub const WC_SUCCESS: u32 = 0;
pub const WC_LOC_LEN_ERR: u32 = 1;
pub const WC_LOC_QP_OP_ERR: u32 = 2;
pub const WC_LOC_EEC_OP_ERR: u32 = 3;
pub const WC_LOC_PROT_ERR: u32 = 4;
pub const WC_WR_FLUSH_ERR: u32 = 5;
pub const WC_MW_BIND_ERR: u32 = 6;
pub const WC_BAD_RESP_ERR: u32 = 7;
pub const WC_LOC_ACCESS_ERR: u32 = 8;
pub const WC_REM_INV_REQ_ERR: u32 = 9;
pub const WC_REM_ACCESS_ERR: u32 = 10;
pub const WC_REM_OP_ERR: u32 = 11;
pub const WC_RETRY_EXC_ERR: u32 = 12;
pub const WC_RNR_RETRY_EXC_ERR: u32 = 13;
pub const WC_LOC_RDD_VIOL_ERR: u32 = 14;
pub const WC_REM_INV_RD_REQ_ERR: u32 = 15;
pub const WC_REM_ABORT_ERR: u32 = 16;
pub const WC_INV_EECN_ERR: u32 = 17;
pub const WC_INV_EEC_STATE_ERR: u32 = 18;
pub const WC_FATAL_ERR: u32 = 19;
pub const WC_RESP_TIMEOUT_ERR: u32 = 20;
pub const WC_GENERAL_ERR: u32 = 21;
