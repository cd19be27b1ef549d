//! The structs of `sys` against what a C compiler made of the header `infiniband/verbs.h`.

use pomar_verbs::sys;
use std::{collections::BTreeMap, mem::offset_of};

/// `name` to size, and `name.field` to offset, as `layout.c` prints them.
fn recorded() -> BTreeMap<&'static str, usize> {
    let lines = include_str!("fixtures/layout.txt").lines();
    lines
        .map(|line| {
            let (name, number) =
                line.split_once(" = ").or_else(|| line.split_once(" @ ")).expect("two parts");
            (name, number.parse().expect("a number"))
        })
        .collect()
}

/// Notes the offsets, and the size where it is asked for, of one struct under its C name.
macro_rules! note {
    ($ours:ident, $rust:ident as $c:literal { $($field:ident),* $(,)? } $($size:ident)?) => {
        $($ours.insert(concat!($c, ".", stringify!($field)), offset_of!(sys::$rust, $field));)*
        $(note!(@ $size); $ours.insert($c, size_of::<sys::$rust>());)?
    };
    (@ sized) => {};
}

#[test]
fn every_offset_and_size_is_the_header_s() {
    let mut ours = BTreeMap::new();
    note!(ours, Context as "ibv_context" { device, ops, cmd_fd, async_fd, num_comp_vectors });
    note!(ours, ContextOps as "ibv_context_ops" { poll_cq, post_send, post_recv } sized);
    ours.insert("ibv_context_ops.req_notify_cq", offset_of!(sys::ContextOps, before_post_send));
    note!(ours, Pd as "ibv_pd" { context, handle });
    note!(ours, Mr as "ibv_mr" { context, pd, addr, length, handle, lkey, rkey } sized);
    note!(ours, Cq as "ibv_cq" { context, channel, cq_context, handle, cqe });
    note!(ours, Qp as "ibv_qp" {
        context, qp_context, pd, send_cq, recv_cq, srq, handle, qp_num, state, qp_type
    });
    note!(ours, Sge as "ibv_sge" { addr, length, lkey } sized);
    note!(ours, RecvWr as "ibv_recv_wr" { wr_id, next, sg_list, num_sge } sized);
    note!(ours, SendWr as "ibv_send_wr" {
        wr_id, next, sg_list, num_sge, opcode, send_flags, imm_data, wr
    } sized);
    note!(ours, Wc as "ibv_wc" {
        wr_id, status, opcode, vendor_err, byte_len, imm_data, qp_num, src_qp, wc_flags, pkey_index, slid, sl,
        dlid_path_bits
    } sized);
    note!(ours, QpCap as "ibv_qp_cap" {
        max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data
    } sized);
    note!(ours, QpInitAttr as "ibv_qp_init_attr" {
        qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all
    } sized);
    note!(ours, GlobalRoute as "ibv_global_route" {
        dgid, flow_label, sgid_index, hop_limit, traffic_class
    } sized);
    note!(ours, AhAttr as "ibv_ah_attr" {
        grh, dlid, sl, src_path_bits, static_rate, is_global, port_num
    } sized);
    note!(ours, QpAttr as "ibv_qp_attr" {
        qp_state, cur_qp_state, path_mtu, path_mig_state, qkey, rq_psn, sq_psn, dest_qp_num, qp_access_flags, cap,
        ah_attr, alt_ah_attr, pkey_index, alt_pkey_index, en_sqd_async_notify, sq_draining, max_rd_atomic,
        max_dest_rd_atomic, min_rnr_timer, port_num, timeout, retry_cnt, rnr_retry, alt_port_num, alt_timeout,
        rate_limit
    } sized);
    note!(ours, PortAttr as "ibv_port_attr" {
        state, max_mtu, active_mtu, gid_tbl_len, port_cap_flags, max_msg_sz, bad_pkey_cntr, qkey_viol_cntr,
        pkey_tbl_len, lid, sm_lid, lmc, max_vl_num, sm_sl, subnet_timeout, init_type_reply, active_width,
        active_speed, phys_state, link_layer, flags, port_cap_flags2
    } sized);
    note!(ours, DeviceAttr as "ibv_device_attr" {
        fw_ver, node_guid, sys_image_guid, max_mr_size, page_size_cap, vendor_id, vendor_part_id, hw_ver, max_qp,
        max_qp_wr, device_cap_flags, max_sge, max_sge_rd, max_cq, max_cqe, max_mr, max_pd, phys_port_cnt
    } sized);
    assert_eq!(ours, recorded());
}
