//! Meshes and rings in a small graph. Knows nothing of hosts and cables.

/// The most nodes that [`Graph::nearest_ring`] is made for: its tables take 2^n * n bytes.
pub const MAX_NODES: usize = 16;
/// The most wires of a ring that make a difference: JACCL uses at most four cables to a neighbour.
pub const MAX_WIRES: usize = 4;

/// How many wires join each two of `size` nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Graph {
    size: usize,
    /// Row `a`, column `b`; symmetric.
    wires: Vec<usize>,
}

/// A closed way through all nodes, each once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ring {
    /// The nodes in order, beginning with node 0; the last one is joined to the first.
    pub order: Vec<usize>,
    /// Wires between neighbours, at least, up to [`MAX_WIRES`].
    pub wires: usize,
}

impl Graph {
    /// A graph from pairs of nodes; a pair that comes twice has two wires.
    ///
    /// # Panics
    ///
    /// For more than [`MAX_NODES`] nodes, or a pair outside of them.
    pub fn new(size: usize, pairs: impl IntoIterator<Item = (usize, usize)>) -> Self {
        assert!(size <= MAX_NODES, "{size} nodes are more than {MAX_NODES}");
        let mut wires = vec![0; size * size];
        for (a, b) in pairs {
            wires[a * size + b] += 1;
            wires[b * size + a] += 1;
        }
        Self { size, wires }
    }

    /// How many nodes there are.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Wires between two nodes.
    pub fn wires(&self, a: usize, b: usize) -> usize {
        self.wires[a * self.size + b]
    }

    /// Pairs without a wire, in order: what is missing for a full mesh.
    pub fn missing(&self) -> Vec<(usize, usize)> {
        let pairs = (0..self.size).flat_map(|a| (a + 1..self.size).map(move |b| (a, b)));
        pairs.filter(|&(a, b)| self.wires(a, b) == 0).collect()
    }

    /// Two or more nodes, each joined to each.
    pub fn is_mesh(&self) -> bool {
        self.size > 1 && self.missing().is_empty()
    }

    /// The ring with the most wires between neighbours; of several, the first in alphabetical order.
    pub fn ring(&self) -> Option<Ring> {
        (1..=MAX_WIRES).rev().find_map(|wires| {
            let order = self.order_of_most(wires);
            let whole = self.size > 1 && self.missing_of(&order, wires).is_empty();
            whole.then_some(Ring { order, wires })
        })
    }

    /// The order of all nodes that needs the fewest new wires to become a ring, and the pairs that need them.
    pub fn nearest_ring(&self) -> (Vec<usize>, Vec<(usize, usize)>) {
        let order = self.order_of_most(1);
        let missing = self.missing_of(&order, 1);
        (order, missing)
    }

    /// Neighbours in a closed order with fewer than `wires` wires. Two nodes are neighbours once, not twice.
    fn missing_of(&self, order: &[usize], wires: usize) -> Vec<(usize, usize)> {
        let steps = order.iter().zip(order.iter().cycle().skip(1)).take(if order.len() == 2 {
            1
        } else {
            order.len()
        });
        let pairs = steps.map(|(&a, &b)| (a.min(b), a.max(b)));
        pairs.filter(|&(a, b)| a != b && self.wires(a, b) < wires).collect()
    }

    /// The closed order of all nodes that uses the most pairs with at least `wires` wires.
    ///
    /// Held and Karp's table over subsets: `most[set][last]` is how many such pairs the rest of the way can
    /// have, from `last` through all nodes outside of `set` and back to node 0.
    fn order_of_most(&self, wires: usize) -> Vec<usize> {
        let size = self.size;
        if size == 0 {
            return Vec::new();
        }
        let step = |a: usize, b: usize| u8::from(a != b && self.wires(a, b) >= wires);
        let outside = |set: usize| (0..size).filter(move |&next| set & (1 << next) == 0);
        let all = (1_usize << size) - 1;
        let mut most = vec![0_u8; (all + 1) * size];
        // A larger set has a larger number, so what a set needs is there before it.
        for set in (1..=all).rev() {
            for last in (0..size).filter(|&last| set & (1 << last) != 0) {
                let ways = outside(set).map(|next| step(last, next) + most[(set | 1 << next) * size + next]);
                most[set * size + last] = ways.max().unwrap_or_else(|| step(last, 0));
            }
        }
        let mut order = vec![0];
        let (mut set, mut last) = (1, 0);
        // The first `next` that loses nothing, so the first order of the best ones.
        while let Some(next) = outside(set)
            .find(|&next| step(last, next) + most[(set | 1 << next) * size + next] == most[set * size + last])
        {
            order.push(next);
            (set, last) = (set | 1 << next, next);
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn two_nodes_are_a_mesh_and_a_ring() {
        let graph = Graph::new(2, [(0, 1), (1, 0)]);
        assert!(graph.is_mesh());
        assert_eq!(graph.ring(), Some(Ring { order: vec![0, 1], wires: 2 }));
        let apart = Graph::new(2, []);
        assert_eq!((apart.ring(), apart.nearest_ring().1), (None, vec![(0, 1)]));
    }

    #[test]
    fn a_ring_is_found_in_any_order_and_prefers_more_wires() {
        let ring = Graph::new(4, [(0, 2), (2, 1), (1, 3), (3, 0)]);
        assert!(!ring.is_mesh());
        assert_eq!(ring.missing(), [(0, 1), (2, 3)]);
        assert_eq!(ring.ring().unwrap().order, [0, 2, 1, 3]);
        // A mesh whose only double ring is 0 2 1 3.
        let pairs = [(0, 1), (2, 3), (0, 2), (2, 1), (1, 3), (3, 0), (0, 2), (2, 1), (1, 3), (3, 0)];
        assert_eq!(Graph::new(4, pairs).ring(), Some(Ring { order: vec![0, 2, 1, 3], wires: 2 }));
    }

    #[test]
    fn a_chain_needs_one_wire_and_a_star_two() {
        let chain = Graph::new(5, (0..4).map(|a| (a, a + 1)));
        assert_eq!((chain.ring(), chain.nearest_ring().1), (None, vec![(0, 4)]));
        let star = Graph::new(4, [(0, 1), (0, 2), (0, 3)]);
        assert_eq!(star.nearest_ring().1.len(), 2);
    }

    #[test]
    fn one_node_and_none_are_neither() {
        for size in 0..2 {
            let graph = Graph::new(size, []);
            assert!(!graph.is_mesh() && graph.ring().is_none() && graph.nearest_ring().1.is_empty());
        }
    }

    #[test]
    fn the_largest_graph_is_quick_enough_to_test() {
        let graph = Graph::new(MAX_NODES, (0..MAX_NODES).map(|a| (a, (a + 5) % MAX_NODES)));
        assert_eq!(graph.ring().unwrap().order.len(), MAX_NODES);
    }

    /// Tries every order.
    fn most_by_trying(graph: &Graph, order: &mut Vec<usize>, rest: &[usize]) -> usize {
        if rest.is_empty() {
            return order.len() - graph.missing_of(order, 1).len();
        }
        let tried = rest.iter().map(|&next| {
            order.push(next);
            let others: Vec<_> = rest.iter().copied().filter(|&other| other != next).collect();
            let most = most_by_trying(graph, order, &others);
            order.pop();
            most
        });
        tried.max().unwrap_or(0)
    }

    proptest! {
        #[test]
        fn no_order_needs_fewer_wires(size in 3_usize..7, bits in any::<u32>()) {
            let pairs: Vec<_> = (0..size).flat_map(|a| (a + 1..size).map(move |b| (a, b))).collect();
            let chosen = pairs.iter().enumerate().filter(|(i, _)| bits >> i & 1 == 1).map(|(_, &pair)| pair);
            let graph = Graph::new(size, chosen);
            let (order, missing) = graph.nearest_ring();
            let mut sorted = order.clone();
            sorted.sort_unstable();
            prop_assert_eq!(sorted, (0..size).collect::<Vec<_>>());
            let rest: Vec<_> = (1..size).collect();
            prop_assert_eq!(order.len() - missing.len(), most_by_trying(&graph, &mut vec![0], &rest));
            prop_assert_eq!(graph.ring().is_some(), missing.is_empty());
        }
    }
}
