//! Machines, and the links between each two of them.

use crate::{Link, Machine};

/// Machines with a link, or none, between each two.
#[derive(Clone, Debug, PartialEq)]
pub struct Cluster {
    nodes: Vec<Node>,
    /// Row by row; `None` where there is no way, and on the diagonal.
    links: Vec<Option<Link>>,
}

/// A machine with a name of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// For example `b`, or `m3-ultra-512 #2`.
    pub name: String,
    /// What it is.
    pub machine: Machine,
}

impl Cluster {
    /// Machines that are all joined by the same kind of link, or by none.
    pub fn uniform(nodes: Vec<Node>, link: Option<Link>) -> Self {
        Self::new(nodes, |_, _| link)
    }

    /// Machines with the link that `between` gives for each two; it is asked once for each pair, the lower index first.
    pub fn new(nodes: Vec<Node>, mut between: impl FnMut(usize, usize) -> Option<Link>) -> Self {
        let size = nodes.len();
        let mut links = vec![None; size * size];
        for a in 0..size {
            for b in a + 1..size {
                let link = between(a, b);
                links[a * size + b] = link;
                links[b * size + a] = link;
            }
        }
        Self { nodes, links }
    }

    /// One machine, alone.
    pub fn alone(machine: Machine) -> Self {
        let name = machine.id.clone();
        Self::uniform(vec![Node { name, machine }], None)
    }

    /// Some of the machines, with the links between them.
    ///
    /// # Panics
    /// When there is no machine of such a number.
    #[must_use]
    pub fn part(&self, nodes: &[usize]) -> Self {
        let some = nodes.iter().map(|node| self.nodes[*node].clone()).collect();
        Self::new(some, |a, b| self.link(nodes[a], nodes[b]))
    }

    /// The machines.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The link between two machines.
    pub fn link(&self, a: usize, b: usize) -> Option<Link> {
        self.links[a * self.nodes.len() + b]
    }

    /// The slowest link among some machines; `None` when two of them are not joined. With one machine, a link that
    /// takes no time.
    pub fn slowest_link(&self, nodes: &[usize]) -> Option<Link> {
        let mut slowest = Link { latency: 0.0, bandwidth: f64::INFINITY };
        for (i, a) in nodes.iter().enumerate() {
            for b in &nodes[i + 1..] {
                slowest = slowest.slower(self.link(*a, *b)?);
            }
        }
        Some(slowest)
    }

    /// The link that takes the least for `bytes` bytes from one group of machines to another.
    pub fn best_link(&self, from: &[usize], to: &[usize], bytes: f64) -> Option<Link> {
        let pairs = from.iter().flat_map(|a| to.iter().map(move |b| (*a, *b)));
        pairs.filter_map(|(a, b)| self.link(a, b)).min_by(|x, y| x.send(bytes).total_cmp(&y.send(bytes)))
    }

    /// Whether two machines could change places without a difference to anyone.
    pub fn are_alike(&self, a: usize, b: usize) -> bool {
        let size = self.nodes.len();
        let same = |x: &Machine, y: &Machine| {
            Machine { id: String::new(), name: String::new(), ..x.clone() }
                == Machine { id: String::new(), name: String::new(), ..y.clone() }
        };
        same(&self.nodes[a].machine, &self.nodes[b].machine)
            && (0..size).filter(|c| *c != a && *c != b).all(|c| self.link(a, c) == self.link(b, c))
    }
}
