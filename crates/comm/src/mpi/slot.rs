//! Memory that is lent to MPI.

use super::{
    api::{MpiError, Request},
    process::Entered,
};
use crate::memory::HeapMemory;
use std::mem::ManuallyDrop;

/// One buffer, for one message at a time.
///
/// As long as a send or a receive is under way the memory is MPI's: it cannot be looked at, and if the slot is dropped
/// before MPI has given it back, it is never freed. So a call that gives up leaves nothing behind that MPI could still
/// write to, and the caller's own memory is never MPI's at all.
#[derive(Debug)]
pub(super) struct Slot {
    memory: ManuallyDrop<HeapMemory>,
    capacity: usize,
    state: State,
}

#[derive(Debug)]
enum State {
    Free,
    Lent(Request),
    /// MPI refused to say how it went; whether it has forgotten the memory is anybody's guess.
    Lost,
}

impl Slot {
    pub(super) fn new(capacity: usize) -> Self {
        Self { memory: ManuallyDrop::new(HeapMemory::zeroed(capacity)), capacity, state: State::Free }
    }

    pub(super) fn is_free(&self) -> bool {
        matches!(self.state, State::Free)
    }

    /// # Panics
    /// While the memory is lent.
    pub(super) fn bytes(&self) -> &[u8] {
        assert!(self.is_free());
        // SAFETY: initialised when made; not lent, so only this slot has it, and `self` is borrowed.
        unsafe { std::slice::from_raw_parts(self.memory.start().as_ptr(), self.capacity) }
    }

    /// # Panics
    /// While the memory is lent.
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        assert!(self.is_free());
        // SAFETY: as in `bytes`, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.memory.start().as_ptr(), self.capacity) }
    }

    /// Begins to send the first `length` bytes.
    ///
    /// # Panics
    /// While the memory is lent, or when there are not so many bytes.
    pub(super) fn send(
        &mut self,
        mpi: &Entered<'_>,
        length: usize,
        to: usize,
        tag: i32,
    ) -> Result<(), MpiError> {
        let start = self.bytes()[..length].as_ptr();
        // SAFETY: `length` bytes are there. They are not given out while the state says "lent", nor freed: see `drop`.
        let request = unsafe { mpi.send(start, length, to, tag)? };
        self.state = State::Lent(request);
        Ok(())
    }

    /// Begins to receive one message of at most the slot's capacity.
    ///
    /// # Panics
    /// While the memory is lent.
    pub(super) fn receive(&mut self, mpi: &Entered<'_>, from: usize, tag: i32) -> Result<(), MpiError> {
        let room = self.bytes_mut().as_mut_ptr();
        // SAFETY: as in `send`.
        let request = unsafe { mpi.receive(room, self.capacity, from, tag)? };
        self.state = State::Lent(request);
        Ok(())
    }

    /// Whether the memory is back from a send, if there was one.
    pub(super) fn is_sent(&mut self, mpi: &Entered<'_>) -> Result<bool, MpiError> {
        self.ask(|request| Ok(mpi.is_sent(request)?.then_some(())))
            .map(|done| done.is_some() || self.is_free())
    }

    /// Length of the message that has arrived since [`Slot::receive`]; said once.
    pub(super) fn received(&mut self, mpi: &Entered<'_>) -> Result<Option<usize>, MpiError> {
        self.ask(|request| mpi.received(request))
    }

    /// Asks MPI to end a receive; [`Slot::received`] tells when it has.
    pub(super) fn cancel(&self, mpi: &Entered<'_>) {
        if let State::Lent(request) = &self.state {
            mpi.cancel(request);
        }
    }

    fn ask<A>(
        &mut self,
        test: impl FnOnce(&mut Request) -> Result<Option<A>, MpiError>,
    ) -> Result<Option<A>, MpiError> {
        let State::Lent(request) = &mut self.state else { return Ok(None) };
        match test(request) {
            Ok(None) => Ok(None),
            Ok(answer) => {
                self.state = State::Free;
                Ok(answer)
            }
            Err(error) => {
                self.state = State::Lost;
                Err(error)
            }
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if self.is_free() {
            // SAFETY: dropped here only, and not used again.
            unsafe { ManuallyDrop::drop(&mut self.memory) };
        }
    }
}
