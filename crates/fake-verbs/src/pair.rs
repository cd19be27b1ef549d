//! Queue pairs: their states, their queues, and how messages pass between two of them.
//!
//! Each listens on a unix socket (its *door*) named by its number. Messages to the peer leave on a stream of their own
//! ([`Outgoing`]); messages from it arrive on streams that came through the door ([`Incoming`]). All is driven by
//! [`Pair::progress`], which never waits.

mod incoming;
mod outgoing;

use crate::{
    completions::{Ended, Queues},
    device::DeviceState,
    door::Door,
    memory::{Pieces, Regions},
    script::Kind,
    wire::Hello,
};
use incoming::Incoming;
use outgoing::Outgoing;
use pomar_verbs::sys;
use std::{
    collections::VecDeque,
    os::fd::RawFd,
    time::{Duration, Instant},
};

/// How long a message waits for an answer from nobody: about what an RC queue pair with a timeout of 14 and 6 retries
/// takes.
pub(crate) const RETRIES_TAKE: Duration = Duration::from_millis(500);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum State {
    Reset,
    Init,
    ReadyToReceive,
    ReadyToSend,
    Error,
}

/// What a queue pair is made of, once for all.
#[derive(Debug)]
pub(crate) struct Made {
    pub(crate) handle: u32,
    pub(crate) device: usize,
    pub(crate) domain: u32,
    pub(crate) send_queue: u32,
    pub(crate) receive_queue: u32,
    pub(crate) kind: Kind,
    pub(crate) most_sends: usize,
    pub(crate) most_receives: usize,
    pub(crate) signal_all: bool,
}

#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) made: Made,
    pub(crate) number: u32,
    pub(crate) state: State,
    door: Option<Door>,
    outgoing: Outgoing,
    incoming: Vec<Incoming>,
    /// Known from "ready to receive" on: how the peer's stream must introduce itself.
    expects: Option<Hello>,
    sends: VecDeque<Send>,
    receives: VecDeque<Receive>,
    /// Work requests whose completion is not polled: they fill the queue.
    unpolled_sends: usize,
    unpolled_receives: usize,
    /// What the background thread waits for.
    awaited: Outlook,
}

/// What a queue pair waits for: streams, each with the events it is waited for, and a moment.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Outlook {
    pub(crate) streams: Vec<(RawFd, i16)>,
    pub(crate) moment: Option<Instant>,
}

/// A posted send.
#[derive(Debug)]
pub(crate) struct Send {
    pub(crate) id: u64,
    pub(crate) pieces: Pieces,
    pub(crate) signaled: bool,
    pub(crate) leaves_at: Instant,
    outcome: Option<u32>,
    left_at: Option<Instant>,
}

/// A posted receive.
#[derive(Debug)]
pub(crate) struct Receive {
    pub(crate) id: u64,
    pub(crate) pieces: Pieces,
}

/// What else a queue pair touches.
pub(crate) struct Around<'a> {
    pub(crate) queues: &'a mut Queues,
    pub(crate) regions: &'a Regions,
    pub(crate) device: &'a mut DeviceState,
    pub(crate) now: Instant,
}

/// A queue is full, or the state is wrong.
#[derive(Debug)]
pub(crate) enum Refused {
    Full,
    State,
}

impl Send {
    pub(crate) fn new(id: u64, pieces: Pieces, signaled: bool, leaves_at: Instant) -> Self {
        Self { id, pieces, signaled, leaves_at, outcome: None, left_at: None }
    }
}

impl Pair {
    pub(crate) fn new(made: Made, door: Door) -> Self {
        Self {
            number: door.number(),
            state: State::Reset,
            door: Some(door),
            outgoing: Outgoing::default(),
            incoming: Vec::new(),
            expects: None,
            sends: VecDeque::new(),
            receives: VecDeque::new(),
            unpolled_sends: 0,
            unpolled_receives: 0,
            awaited: Outlook::default(),
            made,
        }
    }

    /// Takes the peer's number and how streams between the two introduce themselves, each way. `expects` is `None` when
    /// nothing can arrive.
    pub(crate) fn ready_to_receive(&mut self, peer: u32, expects: Option<Hello>, says: Hello) {
        self.expects = expects;
        self.outgoing.towards(peer, says);
        self.state = State::ReadyToReceive;
    }

    /// Takes the number of its first packet.
    pub(crate) fn ready_to_send(&mut self, packet_sequence: u32) {
        self.outgoing.starts_at(packet_sequence);
        self.state = State::ReadyToSend;
    }

    pub(crate) fn post_send(&mut self, send: Send, around: &mut Around<'_>) -> Result<(), Refused> {
        if self.state < State::ReadyToSend {
            return Err(Refused::State);
        }
        if self.unpolled_sends == self.made.most_sends {
            return Err(Refused::Full);
        }
        self.unpolled_sends += 1;
        if self.state == State::Error {
            self.end_send(&send, sys::WC_WR_FLUSH_ERR, around);
        } else {
            self.sends.push_back(send);
        }
        Ok(())
    }

    pub(crate) fn post_receive(&mut self, receive: Receive, around: &mut Around<'_>) -> Result<(), Refused> {
        if self.state < State::Init {
            return Err(Refused::State);
        }
        if self.unpolled_receives == self.made.most_receives {
            return Err(Refused::Full);
        }
        self.unpolled_receives += 1;
        if self.state == State::Error {
            self.end_receive(receive.id, sys::WC_WR_FLUSH_ERR, 0, around);
        } else {
            self.receives.push_back(receive);
        }
        Ok(())
    }

    /// A completion was polled: there is room in a queue.
    pub(crate) fn polled(&mut self, is_receive: bool) {
        let unpolled = if is_receive { &mut self.unpolled_receives } else { &mut self.unpolled_sends };
        *unpolled = unpolled.saturating_sub(1);
    }

    /// Does whatever can be done now.
    pub(crate) fn progress(&mut self, around: &mut Around<'_>) {
        if self.state == State::Error {
            return;
        }
        self.let_in();
        self.take_in(around);
        if self.state != State::Error {
            self.send_out(around);
            self.settle(around);
        }
    }

    /// Ends the sends at the front of the queue whose outcome is known; a bad one breaks the queue pair.
    fn settle(&mut self, around: &mut Around<'_>) {
        while let Some(outcome) = self.sends.front().and_then(|send| send.outcome)
            && let Some(send) = self.sends.pop_front()
        {
            self.outgoing.settled_one();
            self.end_send(&send, outcome, around);
            if outcome != sys::WC_SUCCESS {
                return self.break_down(around);
            }
        }
    }

    /// Goes to the error state: work requests are given back undone, streams are closed.
    pub(crate) fn break_down(&mut self, around: &mut Around<'_>) {
        self.state = State::Error;
        for send in std::mem::take(&mut self.sends) {
            self.end_send(&send, send.outcome.unwrap_or(sys::WC_WR_FLUSH_ERR), around);
        }
        for receive in std::mem::take(&mut self.receives) {
            self.end_receive(receive.id, sys::WC_WR_FLUSH_ERR, 0, around);
        }
        self.door = None;
        self.outgoing = Outgoing::default();
        self.incoming.clear();
    }

    fn end_send(&mut self, send: &Send, status: u32, around: &mut Around<'_>) {
        if status == sys::WC_SUCCESS && !send.signaled && !self.made.signal_all {
            self.unpolled_sends -= 1;
            return;
        }
        let ended = Ended { id: send.id, status, bytes: 0, is_receive: false };
        self.complete(self.made.send_queue, ended, around);
    }

    fn end_receive(&mut self, id: u64, status: u32, bytes: u32, around: &mut Around<'_>) {
        let ended = Ended { id, status, bytes, is_receive: true };
        self.complete(self.made.receive_queue, ended, around);
    }

    fn complete(&self, queue: u32, ended: Ended, around: &mut Around<'_>) {
        if let Some(queue) = around.queues.get_mut(&queue) {
            queue.push((self.made.handle, self.number), ended);
        }
    }

    pub(crate) fn outlook(&self) -> Outlook {
        let door = self.door.as_ref().map(|door| (door.fd(), libc::POLLIN));
        let incoming = self.incoming.iter().filter_map(Incoming::watch);
        let streams = door.into_iter().chain(self.outgoing.watch()).chain(incoming).collect();
        Outlook { streams, moment: self.next_moment() }
    }

    /// As [`Pair::outlook`], for the background thread, which will wait for it.
    pub(crate) fn await_outlook(&mut self) -> &Outlook {
        self.awaited = self.outlook();
        &self.awaited
    }

    /// True when the background thread waits for something else than it should.
    pub(crate) fn is_stale(&self) -> bool {
        self.awaited != self.outlook()
    }

    /// The next moment at which something is to be done without an event.
    fn next_moment(&self) -> Option<Instant> {
        let next = self.sends.get(self.outgoing.left());
        let leaves = next.filter(|_| self.outgoing.is_clear()).map(|send| send.leaves_at);
        [leaves, self.outgoing.gives_up_at(&self.sends)].into_iter().flatten().min()
    }
}
