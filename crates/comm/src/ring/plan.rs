//! How MLX cuts a call into lanes: the numbers here are the wire format.
//!
//! Nothing on the wire says what bytes are, so all ranks must cut alike. `MIN_LANE_BYTES` and
//! `MIN_STRIPE_BYTES` are MLX's constants since release 0.23.2.

use super::lane::{Blocks, Direction, Task};
use std::ops::Range;

/// A collective uses one more lane for every so many bytes of a block.
const MIN_LANE_BYTES: usize = 262_144;

/// A message uses one more connection for every so many bytes.
const MIN_STRIPE_BYTES: usize = 1024;

/// A rank's place in the ring, and the connections to each neighbour.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ring {
    pub(super) rank: usize,
    pub(super) size: usize,
    pub(super) connections: usize,
}

impl Ring {
    pub(super) fn right(self) -> usize {
        (self.rank + 1) % self.size
    }

    pub(super) fn left(self) -> usize {
        (self.rank + self.size - 1) % self.size
    }

    /// As many lanes as there are large enough blocks, two (one each way) per connection at most.
    fn lanes(self, blocks: usize) -> usize {
        blocks.clamp(1, 2 * self.connections)
    }

    /// A reduction of `elements` of `width` bytes, at least one per rank.
    pub(super) fn reduction(self, elements: usize, width: usize) -> impl Iterator<Item = Task> {
        let lanes = self.lanes(elements * width / (self.size * MIN_LANE_BYTES));
        let per_lane = elements.div_ceil(lanes);
        (0..lanes).map(move |lane| {
            let span = part(lane, per_lane, elements);
            self.sub_reduction(span, width, lane / 2, direction_of(lane))
        })
    }

    /// The reduction of one element per rank, zeros included, that stands for anything shorter.
    pub(super) fn tiny_reduction(self, width: usize) -> Task {
        self.sub_reduction(0..self.size, width, 0, Direction::Right)
    }

    /// Each rank's segment goes round once to be reduced and once to be copied.
    fn sub_reduction(
        self,
        elements: Range<usize>,
        width: usize,
        connection: usize,
        direction: Direction,
    ) -> Task {
        let segment = elements.len().div_ceil(self.size) * width;
        Task {
            blocks: Blocks {
                count: self.size,
                first: elements.start * width,
                stride: segment,
                length: segment,
                limit: elements.end * width,
            },
            own: self.rank,
            direction,
            connection,
            sends: 0..2 * (self.size - 1),
            receives: 0..2 * (self.size - 1),
            joins: self.size - 1,
        }
    }

    /// A gathering of `bytes` from each rank into `size` times as many.
    pub(super) fn gathering(self, bytes: usize) -> impl Iterator<Item = Task> {
        let lanes = self.lanes(bytes / MIN_LANE_BYTES);
        let per_lane = bytes.div_ceil(lanes);
        (0..lanes).map(move |lane| {
            let span = part(lane, per_lane, bytes);
            Task {
                blocks: Blocks {
                    count: self.size,
                    first: span.start,
                    stride: bytes,
                    length: span.len(),
                    limit: self.size * bytes,
                },
                own: self.rank,
                direction: direction_of(lane),
                connection: lane / 2,
                sends: 0..self.size - 1,
                receives: 0..self.size - 1,
                joins: 0,
            }
        })
    }

    /// A broadcast, which MLX does not have: from the root to the right until everyone has it, cut like a
    /// message.
    pub(super) fn broadcast(self, root: usize, bytes: usize) -> impl Iterator<Item = Task> {
        let receives = usize::from(self.rank != root);
        let sends = usize::from(self.right() != root);
        self.stripes(bytes).map(move |(connection, span)| Task {
            // What is passed on is sent in the step after it was received.
            sends: receives..receives + sends,
            receives: 0..receives,
            ..message(span, Direction::Right, connection)
        })
    }

    /// A message out to one side.
    pub(super) fn sending(self, way: Direction, bytes: usize) -> impl Iterator<Item = Task> {
        self.stripes(bytes)
            .map(move |(connection, span)| Task { sends: 0..1, ..message(span, way, connection) })
    }

    /// A message in, travelling in direction `way`.
    pub(super) fn receiving(self, way: Direction, bytes: usize) -> impl Iterator<Item = Task> {
        self.stripes(bytes)
            .map(move |(connection, span)| Task { receives: 0..1, ..message(span, way, connection) })
    }

    /// The connections of one side that a message uses, and what each carries.
    fn stripes(self, bytes: usize) -> impl Iterator<Item = (usize, Range<usize>)> {
        let per_connection = bytes.div_ceil(self.connections).max(MIN_STRIPE_BYTES);
        (0..self.connections)
            .map(move |connection| (connection, part(connection, per_connection, bytes)))
            .filter(|(_, span)| !span.is_empty())
    }
}

/// A task that moves one block and neither sends nor receives yet.
fn message(span: Range<usize>, direction: Direction, connection: usize) -> Task {
    Task { blocks: Blocks::one(span), own: 0, direction, connection, sends: 0..0, receives: 0..0, joins: 0 }
}

/// The first lane goes left, so a call with a single lane does; then they alternate.
fn direction_of(lane: usize) -> Direction {
    if lane.is_multiple_of(2) { Direction::Left } else { Direction::Right }
}

/// The `index`th part of `length` bytes each, of `total`.
fn part(index: usize, length: usize, total: usize) -> Range<usize> {
    total.min(index * length)..total.min((index + 1) * length)
}

#[cfg(test)]
mod tests {
    use super::*;

    const THREE: Ring = Ring { rank: 1, size: 3, connections: 2 };

    fn spans(tasks: impl Iterator<Item = Task>) -> Vec<(usize, Direction, usize, usize)> {
        tasks.map(|task| (task.connection, task.direction, task.blocks.first, task.blocks.limit)).collect()
    }

    #[test]
    fn a_small_reduction_goes_left_and_a_tiny_one_right() {
        assert_eq!(spans(THREE.reduction(3, 4)), [(0, Direction::Left, 0, 12)]);
        assert_eq!(THREE.tiny_reduction(4).direction, Direction::Right);
    }

    #[test]
    fn lanes_begin_at_their_thresholds() {
        let lanes = |elements| THREE.reduction(elements, 4).count();
        let one = 3 * MIN_LANE_BYTES / 4;
        assert_eq!([lanes(2 * one - 1), lanes(2 * one), lanes(3 * one), lanes(99 * one)], [1, 2, 3, 4]);
        let parts = |bytes| THREE.gathering(bytes).count();
        assert_eq!([parts(0), parts(524_287), parts(524_288), parts(5_000_000)], [1, 1, 2, 4]);
    }

    #[test]
    fn lanes_share_the_elements_and_alternate() {
        use Direction::{Left, Right};
        // Three lanes' worth of bytes for three ranks, and one element more.
        let elements = 9 * MIN_LANE_BYTES / 4 + 1;
        let per_lane = elements.div_ceil(3) * 4;
        let expected = [
            (0, Left, 0, per_lane),
            (0, Right, per_lane, 2 * per_lane),
            (1, Left, 2 * per_lane, elements * 4),
        ];
        assert_eq!(spans(THREE.reduction(elements, 4)), expected);
    }

    #[test]
    fn a_message_uses_a_connection_per_kibibyte() {
        let stripes = |bytes| THREE.stripes(bytes).collect::<Vec<_>>();
        assert_eq!(stripes(0), []);
        assert_eq!(stripes(1024), [(0, 0..1024)]);
        assert_eq!(stripes(1025), [(0, 0..1024), (1, 1024..1025)]);
        assert_eq!(stripes(9999), [(0, 0..5000), (1, 5000..9999)]);
    }

    #[test]
    fn a_broadcast_ends_left_of_its_root() {
        let steps = |root| {
            let task = THREE.broadcast(root, 10).next().unwrap();
            (task.receives, task.sends)
        };
        assert_eq!(steps(1), (0..0, 0..1), "the root only sends");
        assert_eq!(steps(0), (0..1, 1..2), "the one in between passes on");
        assert_eq!(steps(2), (0..1, 1..1), "the last only receives");
    }
}
