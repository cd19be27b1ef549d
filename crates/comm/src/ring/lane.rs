//! One lane: a chain of blocks that leave on one connection and arrive on another, step by step.
//!
//! In step t a rank sends one block and receives the next one; what it receives in step t is what it sends in
//! step t + 1, after joining it with its own if the step reduces. A block may be passed on as far as it has
//! come, so that long blocks flow through the ring instead of stopping at every rank. The order of the bytes
//! on each connection is the same either way.

use super::ports::{Port, Side};
use std::ops::Range;

/// Bytes of the widest element.
const WIDEST: usize = 8;

/// Which way a lane's blocks travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// Out to the right, in from the left: block indices go down (MLX: -1).
    Right,
    /// Out to the left, in from the right: block indices go up (MLX: +1).
    Left,
}

impl Direction {
    pub(super) fn out(self) -> Side {
        match self {
            Self::Right => Side::Right,
            Self::Left => Side::Left,
        }
    }

    pub(super) fn inward(self) -> Side {
        match self {
            Self::Right => Side::Left,
            Self::Left => Side::Right,
        }
    }
}

/// `count` blocks of bytes in the caller's memory: block i begins `i * stride` after `first` and has `length`
/// bytes, but ends at `limit` at the latest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Blocks {
    pub(super) count: usize,
    pub(super) first: usize,
    pub(super) stride: usize,
    pub(super) length: usize,
    pub(super) limit: usize,
}

impl Blocks {
    /// A single block.
    pub(super) fn one(span: Range<usize>) -> Self {
        Self { count: 1, first: span.start, stride: 0, length: span.len(), limit: span.end }
    }

    fn at(&self, index: usize) -> Range<usize> {
        let start = self.limit.min(self.first + index * self.stride);
        start..self.limit.min(start + self.length)
    }
}

/// What a lane is to do.
#[derive(Clone, Debug)]
pub(super) struct Task {
    pub(super) blocks: Blocks,
    /// The block that is sent in step 0: this rank's own number.
    pub(super) own: usize,
    pub(super) direction: Direction,
    /// Which of the connections to each neighbour.
    pub(super) connection: usize,
    /// Steps in which a block is sent.
    pub(super) sends: Range<usize>,
    /// Steps in which one is received.
    pub(super) receives: Range<usize>,
    /// How many of the steps, from the first, join what is received with what is there.
    pub(super) joins: usize,
}

/// A task on its way.
#[derive(Debug)]
pub(super) struct Lane {
    task: Task,
    sending: Place,
    receiving: Place,
    carry: Carry,
}

/// A step, and how many bytes of its block are done.
#[derive(Clone, Copy, Debug)]
struct Place {
    step: usize,
    done: usize,
}

/// The beginning of an element whose end has not come yet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Carry {
    bytes: [u8; WIDEST],
    length: usize,
}

impl Carry {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// Bytes that a lane can take now.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Incoming {
    /// They replace these.
    Replace(Range<usize>),
    /// They are joined with these; the first of them may wait in the lane's carry.
    Join(Range<usize>),
}

impl Lane {
    pub(super) fn new(task: Task) -> Self {
        let place = |steps: &Range<usize>| Place { step: steps.start, done: 0 };
        let (sending, receiving) = (place(&task.sends), place(&task.receives));
        let mut lane = Self { task, sending, receiving, carry: Carry::default() };
        lane.settle();
        lane
    }

    pub(super) fn out(&self) -> Port {
        Port { side: self.task.direction.out(), connection: self.task.connection }
    }

    pub(super) fn inward(&self) -> Port {
        Port { side: self.task.direction.inward(), connection: self.task.connection }
    }

    pub(super) fn carry(&self) -> &Carry {
        &self.carry
    }

    pub(super) fn is_done(&self) -> bool {
        self.sending.step == self.task.sends.end && self.receiving.step == self.task.receives.end
    }

    /// The block that is `turns` steps away from the own one.
    fn block(&self, turns: usize) -> Range<usize> {
        let count = self.task.blocks.count;
        let turns = turns % count;
        let index = match self.task.direction {
            Direction::Left => self.task.own + turns,
            Direction::Right => self.task.own + count - turns,
        };
        self.task.blocks.at(index % count)
    }

    /// What may be sent now.
    pub(super) fn to_send(&self) -> Option<Range<usize>> {
        let Place { step, done } = self.sending;
        if step == self.task.sends.end {
            return None;
        }
        let block = self.block(step);
        // Step 0 sends what this rank has; later steps what the step before received.
        let ready = if step <= self.receiving.step {
            block.len()
        } else if step == self.receiving.step + 1 {
            self.receiving.done
        } else {
            0
        };
        (done < ready).then(|| block.start + done..block.start + ready)
    }

    /// What is due.
    pub(super) fn to_receive(&self) -> Option<Incoming> {
        let Place { step, done } = self.receiving;
        if step == self.task.receives.end {
            return None;
        }
        let block = self.block(step + 1);
        let rest = block.start + done..block.end;
        Some(if step < self.task.joins { Incoming::Join(rest) } else { Incoming::Replace(rest) })
    }

    pub(super) fn sent(&mut self, bytes: usize) {
        self.sending.done += bytes;
        self.settle();
    }

    /// `bytes` more are in their final place for this step.
    pub(super) fn received(&mut self, bytes: usize) {
        self.receiving.done += bytes;
        self.settle();
    }

    /// Keeps the beginning of an element, less than a whole one.
    pub(super) fn keep(&mut self, begun: &[u8]) {
        self.carry.length = begun.len();
        self.carry.bytes[..begun.len()].copy_from_slice(begun);
    }

    /// Goes past blocks that are complete; empty ones are so from the beginning.
    fn settle(&mut self) {
        while self.sending.step < self.task.sends.end
            && self.sending.done == self.block(self.sending.step).len()
        {
            self.sending = Place { step: self.sending.step + 1, done: 0 };
        }
        while self.receiving.step < self.task.receives.end
            && self.receiving.done == self.block(self.receiving.step + 1).len()
        {
            self.receiving = Place { step: self.receiving.step + 1, done: 0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn around(direction: Direction) -> Lane {
        Lane::new(Task {
            blocks: Blocks { count: 3, first: 100, stride: 4, length: 4, limit: 110 },
            own: 1,
            direction,
            connection: 0,
            sends: 0..4,
            receives: 0..4,
            joins: 2,
        })
    }

    #[test]
    fn blocks_end_at_the_limit() {
        let blocks = Blocks { count: 4, first: 0, stride: 4, length: 4, limit: 6 };
        let spans: Vec<_> = (0..4).map(|index| blocks.at(index)).collect();
        assert_eq!(spans, [0..4, 4..6, 6..6, 6..6]);
    }

    #[test]
    fn what_is_sent_is_what_came_in_the_step_before() {
        let mut lane = around(Direction::Left);
        assert_eq!(lane.to_send(), Some(104..108));
        assert_eq!(lane.to_receive(), Some(Incoming::Join(108..110)));
        lane.sent(4);
        assert_eq!(lane.to_send(), None, "nothing has come yet");
        lane.received(1);
        assert_eq!(lane.to_send(), Some(108..109), "as far as it has come");
        lane.received(1);
        assert_eq!(lane.to_send(), Some(108..110));
        assert_eq!(lane.to_receive(), Some(Incoming::Join(100..104)));
        lane.received(4);
        assert_eq!(lane.to_receive(), Some(Incoming::Replace(104..108)), "joined twice, then copied");
    }

    #[test]
    fn the_other_direction_counts_down() {
        let lane = around(Direction::Right);
        assert_eq!(lane.to_send(), Some(104..108));
        assert_eq!(lane.to_receive(), Some(Incoming::Join(100..104)));
    }

    #[test]
    fn a_lane_of_empty_blocks_is_done() {
        let mut task = around(Direction::Left).task;
        task.blocks.length = 0;
        assert!(Lane::new(task).is_done());
    }
}
