//! Messages from the peer.

use super::{Around, Pair, Receive, State};
use crate::{
    script::Kind,
    wire::{Frame, Hello, Pipe},
};
use pomar_verbs::sys;
use std::os::fd::RawFd;

/// A stream that came through the door.
#[derive(Debug)]
pub(super) struct Incoming {
    pipe: Pipe,
    /// Who it says it is from, to whom and how.
    hello: Option<Hello>,
    /// RC: a message that waits for a receive. Nothing more is read meanwhile.
    held: Option<Vec<u8>>,
    /// RC: the sender was told that nobody is here.
    told_silent: bool,
}

/// What to do with a stream after a look at it.
#[derive(PartialEq, Eq)]
enum Then {
    Keep,
    Close,
}

impl Incoming {
    pub(super) fn watch(&self) -> Option<(RawFd, i16)> {
        let read = if self.held.is_none() { libc::POLLIN } else { 0 };
        let write = if self.pipe.is_flushed() { 0 } else { libc::POLLOUT };
        let events = read | write;
        (events != 0).then(|| (self.pipe.fd(), events))
    }

    /// True when its sender waits for answers.
    fn wants_answers(&self) -> bool {
        self.hello.is_some_and(|hello| hello.kind == Kind::Rc)
    }

    /// The next message; `Err` when the stream is of no more use.
    fn next(&mut self) -> Result<Option<Vec<u8>>, Then> {
        loop {
            if let Some(message) = self.held.take() {
                return Ok(Some(message));
            }
            match self.pipe.next() {
                Ok(Some(Frame::Hello(hello))) => self.hello = Some(hello),
                Ok(Some(Frame::Message(message))) if self.hello.is_some() => return Ok(Some(message)),
                Ok(None) => return Ok(None),
                Ok(Some(_)) | Err(_) => return Err(Then::Close),
            }
        }
    }

    fn tell(&mut self, frame: &Frame) {
        self.pipe.push(frame);
        // A stream that is broken is found out when it is read.
        let _ = self.pipe.flush();
    }

    /// Holds a message back: nobody seems to be here, or (`false`) only the receive is missing.
    fn hold(&mut self, message: Vec<u8>, silent: bool) {
        self.held = Some(message);
        if silent != self.told_silent {
            self.told_silent = silent;
            self.tell(if silent { &Frame::Silent } else { &Frame::Held });
        }
    }
}

impl Pair {
    /// Takes new streams through the door.
    pub(super) fn let_in(&mut self) {
        while let Some(stream) = self.door.as_ref().and_then(|door| door.answer()) {
            if let Ok(pipe) = Pipe::new(stream) {
                self.incoming.push(Incoming { pipe, hello: None, held: None, told_silent: false });
            }
        }
    }

    /// Delivers what has come.
    pub(super) fn take_in(&mut self, around: &mut Around<'_>) {
        for mut incoming in std::mem::take(&mut self.incoming) {
            let then = self.take_from(&mut incoming, around);
            if self.state == State::Error {
                return;
            }
            if then == Then::Keep {
                self.incoming.push(incoming);
            }
        }
    }

    fn take_from(&mut self, incoming: &mut Incoming, around: &mut Around<'_>) -> Then {
        // An error shows when the stream is read.
        let _ = incoming.pipe.flush();
        loop {
            let message = match incoming.next() {
                Ok(Some(message)) => message,
                Ok(None) => return Then::Keep,
                Err(then) => return then,
            };
            let reachable = self.is_reachable(incoming, around);
            match self.receives.pop_front_if(|_| reachable) {
                Some(receive) => {
                    let answer = self.deliver(&receive, &message, around);
                    if incoming.wants_answers() {
                        incoming.told_silent = false;
                        incoming.tell(&Frame::Done(answer));
                    }
                    if answer != sys::WC_SUCCESS {
                        self.break_down(around);
                        return Then::Close;
                    }
                }
                None if incoming.wants_answers() => {
                    incoming.hold(message, !reachable);
                    return Then::Keep;
                }
                // UC: lost, and nobody is told.
                None => {}
            }
        }
    }

    /// True when packets of this stream would be taken: sent by the peer, to this address, with the right numbers.
    fn is_reachable(&self, incoming: &Incoming, around: &Around<'_>) -> bool {
        self.state >= State::ReadyToReceive
            && self.expects.is_some()
            && incoming.hello == self.expects
            && !around.device.is_deaf(around.now)
    }

    /// Writes a message where it is to go and ends the receive; gives the status for the sender. Any but success breaks
    /// this queue pair too.
    fn deliver(&mut self, receive: &Receive, message: &[u8], around: &mut Around<'_>) -> u32 {
        let (own, sender) = if message.len() as u64 > receive.pieces.bytes() {
            (sys::WC_LOC_LEN_ERR, sys::WC_REM_INV_REQ_ERR)
        } else {
            match receive.pieces.write(message, self.made.domain, around.regions) {
                Ok(()) => (sys::WC_SUCCESS, sys::WC_SUCCESS),
                Err(_) => (sys::WC_LOC_PROT_ERR, sys::WC_REM_OP_ERR),
            }
        };
        around.device.delivered();
        // A message has at most 16 MiB.
        self.end_receive(receive.id, own, message.len() as u32, around);
        sender
    }
}
