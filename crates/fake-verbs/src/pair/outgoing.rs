//! Messages to the peer, and its answers.

use super::{Around, Pair, RETRIES_TAKE, Send};
use crate::{
    device::Fate,
    door,
    script::Kind,
    wire::{Frame, Hello, Pipe},
};
use pomar_verbs::sys;
use std::{collections::VecDeque, os::fd::RawFd, time::Instant};

/// The stream to the peer. Sends leave in order, one at a time; at most as many are unanswered as the queue is deep.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    peer: Option<(u32, Hello)>,
    pipe: Option<Pipe>,
    /// How many sends at the front of the queue have left.
    left: usize,
    /// A send failed here; those after it do not leave.
    stopped: bool,
    /// RC: the stream has ended, and another one is not tried.
    lost: bool,
    /// RC: since when nobody seems to be there.
    silent_since: Option<Instant>,
}

impl Outgoing {
    pub(super) fn towards(&mut self, peer: u32, says: Hello) {
        self.peer = Some((peer, says));
    }

    pub(super) fn starts_at(&mut self, packet_sequence: u32) {
        if let Some((_, says)) = &mut self.peer {
            says.packet_sequence = packet_sequence;
        }
    }

    pub(super) fn left(&self) -> usize {
        self.left
    }

    pub(super) fn settled_one(&mut self) {
        // One that failed before it left was not counted.
        self.left = self.left.saturating_sub(1);
    }

    /// True when the next send may leave.
    pub(super) fn is_clear(&self) -> bool {
        !self.stopped && self.is_flushed()
    }

    fn is_flushed(&self) -> bool {
        self.pipe.as_ref().is_none_or(Pipe::is_flushed)
    }

    pub(super) fn watch(&self) -> Option<(RawFd, i16)> {
        let pipe = self.pipe.as_ref()?;
        let write = if pipe.is_flushed() { 0 } else { libc::POLLOUT };
        Some((pipe.fd(), libc::POLLIN | write))
    }

    /// When the oldest unanswered send fails, if nobody answers.
    pub(super) fn gives_up_at(&self, sends: &VecDeque<Send>) -> Option<Instant> {
        let waiting = sends.iter().take(self.left).find(|send| send.outcome.is_none())?;
        Some(self.silent_since?.max(waiting.left_at?) + RETRIES_TAKE)
    }

    /// Opens the stream if there is none.
    fn open(&mut self) -> Option<&mut Pipe> {
        if self.pipe.is_none() {
            let (peer, says) = self.peer?;
            let mut pipe = Pipe::new(door::knock(peer).ok()?).ok()?;
            pipe.push(&Frame::Hello(says));
            self.pipe = Some(pipe);
        }
        self.pipe.as_mut()
    }

    fn lose(&mut self, now: Instant) {
        self.pipe = None;
        self.lost = true;
        self.silent_since.get_or_insert(now);
    }
}

impl Pair {
    /// Takes answers, lets sends leave whose time has come, and gives up on those that nobody answers.
    pub(super) fn send_out(&mut self, around: &mut Around<'_>) {
        self.take_answers(around.now);
        loop {
            self.flush(around.now);
            let Some(send) = self.sends.get_mut(self.outgoing.left) else { break };
            if !self.outgoing.is_clear() || send.leaves_at > around.now {
                break;
            }
            match around.device.depart(self.made.kind) {
                Fate::Fail(status) => self.fail_next(status),
                Fate::Lost => self.leave(None, around.now),
                fate @ (Fate::Leave | Fate::Damaged) => {
                    match send.pieces.read(self.made.domain, around.regions) {
                        Ok(mut message) => {
                            if let Some(last) = message.last_mut().filter(|_| fate == Fate::Damaged) {
                                *last ^= 0xff;
                            }
                            self.leave(Some(message), around.now);
                        }
                        Err(_) => self.fail_next(sys::WC_LOC_PROT_ERR),
                    }
                }
            }
        }
        self.give_up(around.now);
    }

    /// The next send ends here, once those before it have.
    fn fail_next(&mut self, status: u32) {
        self.outgoing.stopped = true;
        if let Some(send) = self.sends.get_mut(self.outgoing.left) {
            send.outcome = Some(status);
        }
    }

    /// The next send is on its way, or lost on it.
    fn leave(&mut self, message: Option<Vec<u8>>, now: Instant) {
        if let Some(send) = self.sends.get_mut(self.outgoing.left) {
            send.left_at = Some(now);
        }
        self.outgoing.left += 1;
        let Some(message) = message.filter(|_| !self.outgoing.lost) else { return };
        match self.outgoing.open() {
            Some(pipe) => pipe.push(&Frame::Message(message)),
            None if self.made.kind == Kind::Rc => self.outgoing.lose(now),
            None => {}
        }
    }

    /// Writes what fits. UC: what is written is done.
    fn flush(&mut self, now: Instant) {
        if let Some(pipe) = &mut self.outgoing.pipe
            && pipe.flush().is_err()
        {
            // The peer may have answered before it went.
            self.take_answers(now);
            self.peer_is_gone(now);
        }
        if self.made.kind == Kind::Uc && self.outgoing.is_flushed() {
            for send in self.sends.iter_mut().take(self.outgoing.left) {
                send.outcome.get_or_insert(sys::WC_SUCCESS);
            }
        }
    }

    fn take_answers(&mut self, now: Instant) {
        while let Some(pipe) = &mut self.outgoing.pipe {
            match pipe.next() {
                Ok(Some(Frame::Done(status))) => self.answered(status),
                Ok(Some(Frame::Silent)) => {
                    self.outgoing.silent_since.get_or_insert(now);
                }
                Ok(Some(Frame::Held)) => self.outgoing.silent_since = None,
                Ok(None) => return,
                Ok(Some(_)) | Err(_) => self.peer_is_gone(now),
            }
        }
    }

    fn answered(&mut self, status: u32) {
        self.outgoing.silent_since = None;
        let waiting = self.sends.iter_mut().take(self.outgoing.left).find(|send| send.outcome.is_none());
        if let Some(send) = waiting {
            send.outcome = Some(status);
        }
    }

    /// UC never knows, and knocks anew for the next message.
    fn peer_is_gone(&mut self, now: Instant) {
        match self.made.kind {
            Kind::Rc => self.outgoing.lose(now),
            Kind::Uc => self.outgoing.pipe = None,
        }
    }

    fn give_up(&mut self, now: Instant) {
        if self.outgoing.gives_up_at(&self.sends).is_some_and(|moment| now >= moment) {
            self.answered(sys::WC_RETRY_EXC_ERR);
        }
    }
}
