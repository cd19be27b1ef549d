//! Ranks in a ring over TCP that speak the wire format of MLX's ring backend (releases 0.23.2 to 0.32.4,
//! unchanged): ranks of this crate and MLX's Python ranks can be in one ring.
//!
//! Every rank listens for its left neighbour and dials its right one, over one or several connections each.
//! Addresses come as MLX gives them: one list per rank, in the file that MLX_HOSTFILE names, and the own rank
//! in MLX_RANK.
//!
//! **Collectives.** `all_sum` and `all_max` cut the data into one segment per rank; every segment goes round
//! the ring once to be reduced and once to be copied. A float sum is added in the order of the ring and
//! rounded at every hop: segment s is `x[s+1] + (x[s+2] + ( .. + x[s]))`, mirrored where it travels to the
//! right. All ranks hold the same bits. A NaN never wins a maximum by comparison, as MLX has it. Long data
//! runs in several lanes at once, in both directions. `barrier` is an `all_sum` of one `i32`, what MLX
//! programs use. `broadcast` does not exist in MLX; here it passes along the ring to the right, and only
//! ranks of this crate can take part.
//!
//! **Point to point.** With the two neighbours only. A send returns when the system's buffers have taken the
//! bytes.
//!
//! **Order.** The wire has no frames: what bytes mean follows from the order of the calls alone. Therefore
//! all calls of a rank must follow one another (only a `send` and a `recv` may overlap), and two ranks that
//! call different things are not noticed: the sums are wrong, or somebody waits until the deadline. An empty
//! message leaves no trace.
//!
//! **Life.** A neighbour that dies closes its connections. Whoever waits for it knows within 100 ms; whoever
//! waits for the other neighbour goes on for [`GroupOptions::dead_after`] without a byte, because one that
//! left in good order looks the same: call `barrier` before leaving. A neighbour that hangs is noticed by the
//! deadline. An abort closes the connections; the neighbours see that as this rank's end, because there are
//! no words for a reason.
//!
//! **Trust.** None: MLX's ring has no handshake and does not encrypt. Whoever connects first is the left
//! neighbour, so the addresses belong on a cable or a network whose every machine is trusted.

mod drive;
mod hop;
mod hosts;
mod lane;
mod plan;
mod ports;
mod setup;

pub use hosts::fuzz_hostfile;

use crate::{
    BufferMut, CommError, Group, GroupOptions,
    buffer::with_slice,
    call::Op,
    reduce::Reduce,
    transport::{MAX_RANKS, Seat, lock},
    verdict::{Verdict, VerdictCell, cut_reason},
    wait::Patience,
};
use drive::{CHUNK_BYTES, Drive, Halt, Load};
use hosts::Hosts;
use lane::{Direction, Lane, Task};
use plan::Ring;
use ports::{Ports, Side};
use std::{iter, sync::Mutex, thread, time::Duration};

/// How long a rank that saw a neighbour die keeps its other connections: long enough for the ranks on the far
/// side of the dead one to see for themselves who died, before this rank's own end reaches them.
const FAREWELL: Duration = Duration::from_millis(100);

/// A rank's part in a ring. Dropping it closes the connections.
#[derive(Debug)]
pub struct RingGroup {
    seat: Seat,
    ring: Ring,
    ports: Ports,
    verdict: VerdictCell,
    patience: Patience,
    dead_after: Duration,
    collective: Mutex<Desk>,
    to_right: Mutex<Desk>,
    to_left: Mutex<Desk>,
    from_right: Mutex<Desk>,
    from_left: Mutex<Desk>,
}

/// What a call works with, so that it allocates nothing.
#[derive(Debug)]
struct Desk {
    lanes: Vec<Lane>,
    scratch: Vec<u8>,
}

impl Desk {
    fn new(lanes: usize, scratch: usize) -> Mutex<Self> {
        Mutex::new(Self { lanes: Vec::with_capacity(lanes), scratch: vec![0; scratch] })
    }
}

impl RingGroup {
    /// Joins the ring as `rank`. `hosts` has one list of addresses per rank, `"10.0.0.1:32323"`,
    /// `"name:32323"` or, beyond MLX, `"[fe80::1%en5]:32323"`: the rank listens at each of its own, and each
    /// makes one connection between two neighbours. Returns when both neighbours are connected.
    ///
    /// # Errors
    /// [`CommError::Setup`] for hosts or addresses that cannot work; [`CommError::NotConnected`] naming the
    /// neighbour that was not there within [`GroupOptions::join_deadline`].
    pub fn connect<A: AsRef<str>>(
        hosts: &[Vec<A>],
        rank: usize,
        options: GroupOptions,
    ) -> Result<Self, CommError> {
        Self::join(&Hosts::new(hosts)?, rank, &options)
    }

    /// Joins the ring that the environment describes, as MLX programs do: MLX_HOSTFILE is the path of a JSON
    /// list with one list of addresses per rank, MLX_RANK the own number.
    ///
    /// # Errors
    /// [`CommError::Setup`] when a variable is missing or the file is something else; else as
    /// [`RingGroup::connect`].
    pub fn from_env(options: GroupOptions) -> Result<Self, CommError> {
        let (hosts, rank) = hosts::from_env()?;
        Self::join(&hosts, rank, &options)
    }

    fn join(hosts: &Hosts, rank: usize, options: &GroupOptions) -> Result<Self, CommError> {
        let seat = Seat::new(rank, hosts.size(), options)?;
        let ring = Ring { rank, size: seat.size, connections: hosts.of(rank).len() };
        let ports = setup::join(hosts, ring, options.join_deadline)?;
        let lanes = ring.connections;
        Ok(Self {
            seat,
            ring,
            ports,
            verdict: VerdictCell::default(),
            patience: Patience::new(options.spin, hosts.beside(rank)),
            dead_after: options.dead_after,
            collective: Desk::new(2 * lanes, CHUNK_BYTES),
            to_right: Desk::new(lanes, 0),
            to_left: Desk::new(lanes, 0),
            from_right: Desk::new(lanes, 0),
            from_left: Desk::new(lanes, 0),
        })
    }

    fn reduce(&self, op: Op, how: Reduce, data: BufferMut<'_>) -> Result<(), CommError> {
        let (elements, width) = (data.len(), data.dtype().bytes());
        if elements < self.ring.size {
            return self.reduce_tiny(op, how, data);
        }
        self.collectively(op, self.ring.reduction(elements, width), Load::Joined(data, how))
    }

    /// Fewer elements than ranks: one per rank, the rest zeros.
    fn reduce_tiny(&self, op: Op, how: Reduce, data: BufferMut<'_>) -> Result<(), CommError> {
        let task = self.ring.tiny_reduction(data.dtype().bytes());
        with_slice!(data, elements => {
            let mut padded = [Default::default(); MAX_RANKS];
            padded[..elements.len()].copy_from_slice(elements);
            let load = Load::Joined((&mut padded[..self.ring.size]).into(), how);
            self.collectively(op, iter::once(task), load)?;
            elements.copy_from_slice(&padded[..elements.len()]);
            Ok(())
        })
    }

    /// Runs one collective, alone on all connections.
    fn collectively(
        &self,
        op: Op,
        tasks: impl Iterator<Item = Task>,
        load: Load<'_>,
    ) -> Result<(), CommError> {
        let desks = [&self.to_right, &self.to_left, &self.from_right, &self.from_left];
        let _alone = desks.map(lock);
        let within = self.deadline();
        let done = self.run(&self.drive(within), &self.collective, tasks, load);
        done.map_err(|halt| match halt {
            // The other ranks cannot know that this one gave up, so nobody may go on, even if no byte has
            // moved.
            Halt::Late { side, .. } => self.halted(op, within, Halt::Late { side, begun: true }),
            halt => self.halted(op, within, halt),
        })
    }

    fn drive(&self, within: Duration) -> Drive<'_> {
        let (ports, verdict, patience) = (&self.ports, &self.verdict, self.patience);
        Drive { ports, verdict, patience, within, stranded_after: self.dead_after }
    }

    fn run(
        &self,
        drive: &Drive<'_>,
        desk: &Mutex<Desk>,
        tasks: impl Iterator<Item = Task>,
        mut load: Load<'_>,
    ) -> Result<(), Halt> {
        let mut desk = lock(desk);
        // After the wait for the desk: the call before may have ended the group.
        self.verdict.check().map_err(Halt::Over)?;
        let Desk { lanes, scratch } = &mut *desk;
        lanes.clear();
        lanes.extend(tasks.map(Lane::new));
        drive.run(lanes, &mut load, scratch)
    }

    fn neighbour(&self, side: Side) -> usize {
        match side {
            Side::Right => self.ring.right(),
            Side::Left => self.ring.left(),
        }
    }

    /// Ends the group where the call's end must, and says what the caller is told.
    fn halted(&self, op: Op, within: Duration, halt: Halt) -> CommError {
        let (side, what) = match halt {
            Halt::Over(error) => return error,
            Halt::Late { side, begun } => {
                let waiting_for = self.neighbour(side);
                let error = CommError::Timeout { op: op.name(), after: within, waiting_for };
                if begun {
                    let reason = format!("{} failed: {error}", op.name());
                    self.end(Verdict::Aborted { by: self.ring.rank, reason });
                }
                return error;
            }
            Halt::Stranded { side } => {
                (side, "it closed its connection while the ring was not through".into())
            }
            Halt::Ended { port, what } => {
                let other = port.side.other();
                // A rank that gives up waits before it closes, so of two ends the one not waited for came
                // first.
                if self.ring.size > 2 && self.ports.has_ended(other) {
                    let second = self.neighbour(port.side);
                    (other, format!("it closed its connection, and then rank {second} did"))
                } else {
                    (port.side, what)
                }
            }
        };
        let verdict = Verdict::Dead { rank: self.neighbour(side), what };
        let error = verdict.to_error();
        if self.verdict.set(verdict) {
            if self.ring.size > 2 {
                thread::sleep(FAREWELL);
            }
            self.ports.shut();
            return error;
        }
        // The first reason stays: this end may be no more than the echo of an abort here.
        self.verdict.check().err().unwrap_or(error)
    }

    fn end(&self, verdict: Verdict) {
        if self.verdict.set(verdict) {
            self.ports.shut();
        }
    }

    /// # Errors
    /// [`CommError::NoSuchPeer`] or [`CommError::NotNeighbour`] for `peer`, if it is neither neighbour. With
    /// two ranks both sides are the same peer: a message leaves to the right and comes from the left.
    fn side_of(&self, peer: usize, first: Side) -> Result<Side, CommError> {
        let Ring { rank, size, .. } = self.ring;
        if peer >= size || peer == rank {
            return Err(CommError::NoSuchPeer { rank: peer, size });
        }
        let found = [first, first.other()].into_iter().find(|side| self.neighbour(*side) == peer);
        let (left, right) = (self.ring.left(), self.ring.right());
        found.ok_or(CommError::NotNeighbour { rank: peer, left, right })
    }
}

impl Group for RingGroup {
    fn rank(&self) -> usize {
        self.ring.rank
    }

    fn size(&self) -> usize {
        self.ring.size
    }

    fn deadline(&self) -> Duration {
        self.seat.deadline()
    }

    fn set_deadline(&self, deadline: Duration) {
        self.seat.set_deadline(deadline);
    }

    fn all_sum(&self, data: BufferMut<'_>) -> Result<(), CommError> {
        self.reduce(Op::AllSum, Reduce::Sum, data)
    }

    fn all_max(&self, data: BufferMut<'_>) -> Result<(), CommError> {
        self.reduce(Op::AllMax, Reduce::Max, data)
    }

    fn all_gather(&self, mine: &[u8], all: &mut [u8]) -> Result<(), CommError> {
        let expected = mine.len() * self.ring.size;
        if all.len() != expected {
            return Err(CommError::BufferSize { op: Op::AllGather.name(), expected, got: all.len() });
        }
        let own = self.ring.rank * mine.len();
        all[own..own + mine.len()].copy_from_slice(mine);
        self.collectively(Op::AllGather, self.ring.gathering(mine.len()), Load::Through(all))
    }

    fn broadcast(&self, root: usize, data: &mut [u8]) -> Result<(), CommError> {
        let size = self.ring.size;
        if root >= size {
            return Err(CommError::NoSuchPeer { rank: root, size });
        }
        self.collectively(Op::Broadcast, self.ring.broadcast(root, data.len()), Load::Through(data))
    }

    fn barrier(&self) -> Result<(), CommError> {
        self.reduce(Op::Barrier, Reduce::Sum, [0_i32].as_mut_slice().into())
    }

    fn send(&self, to: usize, data: &[u8]) -> Result<(), CommError> {
        let (way, desk) = match self.side_of(to, Side::Right)? {
            Side::Right => (Direction::Right, &self.to_right),
            Side::Left => (Direction::Left, &self.to_left),
        };
        let within = self.deadline();
        let tasks = self.ring.sending(way, data.len());
        let sent = self.run(&self.drive(within), desk, tasks, Load::Out(data));
        sent.map_err(|halt| self.halted(Op::Send, within, halt))
    }

    fn recv_within(&self, from: usize, data: &mut [u8], within: Duration) -> Result<(), CommError> {
        let (way, desk) = match self.side_of(from, Side::Left)? {
            Side::Left => (Direction::Right, &self.from_left),
            Side::Right => (Direction::Left, &self.from_right),
        };
        let tasks = self.ring.receiving(way, data.len());
        let received = self.run(&self.drive(within), desk, tasks, Load::Through(data));
        received.map_err(|halt| self.halted(Op::Recv, within, halt))
    }

    fn abort(&self, reason: &str) {
        self.end(Verdict::Aborted { by: self.ring.rank, reason: cut_reason(reason).to_owned() });
    }
}
