//! Ways to have placed some layers of which none is better than another in every respect.

/// One way: what it took, and where it came from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    /// Time of all stages so far, in s.
    pub(super) sum: f64,
    /// The longest stage in s, or energy in J; 0 when neither counts.
    pub(super) second: f64,
    /// The border into the next stage, in s; while a next stage is being looked for.
    pub(super) hop: f64,
    /// The group before the last, the layers that were placed then, and which of the ways there.
    pub(super) from: (u16, u16, u16),
}

/// Adds a way unless another is as good; drops those that it beats.
pub(super) fn add(ways: &mut Vec<Way>, new: Way) {
    let beats = |a: &Way, b: &Way| a.sum <= b.sum && a.second <= b.second && a.hop <= b.hop;
    if ways.iter().any(|way| beats(way, &new)) {
        return;
    }
    ways.retain(|way| !beats(&new, way));
    ways.push(new);
}
