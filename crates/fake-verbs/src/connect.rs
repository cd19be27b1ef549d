//! `ibv_modify_qp`: the steps by which a queue pair gets connected, checked as strictly as a device does.

use crate::{
    pair::{Around, Pair, State},
    script::Kind,
    wire::Hello,
    world::{Errno, Verb},
};
use pomar_verbs::sys;

/// What the caller asks for.
pub(crate) struct Change<'a> {
    pub(crate) attr: &'a sys::QpAttr,
    /// Which fields of `attr` count.
    pub(crate) mask: u32,
}

/// The attributes that each step needs, and the only ones that it may have here.
const TO_INIT: u32 = sys::QP_STATE | sys::QP_PKEY_INDEX | sys::QP_PORT | sys::QP_ACCESS_FLAGS;
const TO_RECEIVE: u32 = sys::QP_STATE | sys::QP_AV | sys::QP_PATH_MTU | sys::QP_DEST_QPN | sys::QP_RQ_PSN;
const TO_RECEIVE_RELIABLY: u32 = TO_RECEIVE | sys::QP_MAX_DEST_RD_ATOMIC | sys::QP_MIN_RNR_TIMER;
const TO_SEND: u32 = sys::QP_STATE | sys::QP_SQ_PSN;
const TO_SEND_RELIABLY: u32 =
    TO_SEND | sys::QP_TIMEOUT | sys::QP_RETRY_CNT | sys::QP_RNR_RETRY | sys::QP_MAX_QP_RD_ATOMIC;

/// Packet numbers have 24 bits.
const PACKET_NUMBERS: u32 = 1 << 24;

const INVALID: Errno = Errno(libc::EINVAL);

/// # Errors
/// `EINVAL` for a step that isn't next, for attributes that are missing, too many or wrong; `ETIMEDOUT` when the script
/// says so.
pub(crate) fn change(pair: &mut Pair, asked: &Change<'_>, around: &mut Around<'_>) -> Verb<()> {
    match (pair.state, asked.attr.qp_state) {
        (State::Reset | State::Init, sys::QPS_INIT) => to_init(pair, asked),
        (State::Init, sys::QPS_RTR) => to_receive(pair, asked, around),
        (State::ReadyToReceive, sys::QPS_RTS) => to_send(pair, asked),
        (_, sys::QPS_ERR) => {
            pair.break_down(around);
            Ok(())
        }
        _ => Err(INVALID),
    }
}

fn to_init(pair: &mut Pair, asked: &Change<'_>) -> Verb<()> {
    require(asked.mask == TO_INIT && asked.attr.port_num == 1 && asked.attr.pkey_index == 0)?;
    pair.state = State::Init;
    Ok(())
}

fn to_receive(pair: &mut Pair, asked: &Change<'_>, around: &Around<'_>) -> Verb<()> {
    let Change { attr, mask } = asked;
    let kind = pair.made.kind;
    require(*mask == if kind == Kind::Rc { TO_RECEIVE_RELIABLY } else { TO_RECEIVE })?;
    require(attr.rq_psn < PACKET_NUMBERS && (sys::MTU_256..=sys::MTU_4096).contains(&attr.path_mtu))?;
    let address = &attr.ah_attr;
    // Ethernet has no other addresses than GIDs.
    require(address.is_global == 1 && address.port_num == 1 && address.grh.hop_limit > 0)?;
    let own = around.device.script.gids.get(usize::from(address.grh.sgid_index)).ok_or(INVALID)?;
    require(!own.is_unspecified())?;
    if around.device.script.faults.unreachable {
        return Err(Errno(libc::ETIMEDOUT));
    }

    let hello = Hello {
        from: attr.dest_qp_num,
        packet_sequence: attr.rq_psn,
        path_mtu: attr.path_mtu,
        kind,
        to: own.octets(),
    };
    // Packets that are too big for the port are taken without a word, and never arrive.
    let arrives = around.device.script.path_mtu >= 128 << attr.path_mtu;
    let says = Hello { from: pair.number, packet_sequence: 0, to: address.grh.dgid.raw, ..hello };
    pair.ready_to_receive(attr.dest_qp_num, arrives.then_some(hello), says);
    Ok(())
}

fn to_send(pair: &mut Pair, asked: &Change<'_>) -> Verb<()> {
    let Change { attr, mask } = asked;
    require(*mask == if pair.made.kind == Kind::Rc { TO_SEND_RELIABLY } else { TO_SEND })?;
    require(attr.sq_psn < PACKET_NUMBERS)?;
    pair.ready_to_send(attr.sq_psn);
    Ok(())
}

fn require(right: bool) -> Verb<()> {
    if right { Ok(()) } else { Err(INVALID) }
}
