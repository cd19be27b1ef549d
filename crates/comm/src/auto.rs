//! Choosing how the data of each pair goes, from what was measured.
//!
//! A group begins as a TCP mesh, whose connections are the best of each pair's addresses. Pairs that have RDMA try it;
//! each keeps whichever way brought a message of the size of an all_sum there and back sooner.

use crate::{
    CommError, Group,
    mesh::Shape,
    rdma::{self, RdmaDevices, RdmaOptions},
    tcp::TcpGroup,
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// The message that is measured with, in bytes: a token's activations in a big model.
const MESSAGE_BYTES: usize = 8 << 10;

/// Messages there and back that count; two more before them don't.
const ROUNDS: usize = 9;

/// How the data of one pair goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairWay {
    /// The other rank.
    pub peer: usize,
    /// True for RDMA, false for TCP.
    pub rdma: bool,
    /// Half the median time of 8 KiB there and back, over TCP.
    pub tcp: Duration,
    /// The same over RDMA, or why there is none.
    pub measured_rdma: Result<Duration, String>,
}

/// Moves each pair of a group that was just made to its quickest way, and says which that is. All ranks call it, those
/// whose `devices` could not be loaded too.
///
/// # Errors
/// Any [`CommError`] about peers.
pub fn choose(
    mut group: TcpGroup,
    devices: Result<Arc<RdmaDevices>, CommError>,
    options: &RdmaOptions,
) -> Result<(TcpGroup, Vec<PairWay>), CommError> {
    let tcp = measure(&group)?;
    let outcomes = rdma::connect_where_possible(&mut group, devices, options)?;
    let over_rdma = measure(&group)?;
    let own = group.rank();
    let (mut ways, mut left) = (Vec::new(), Vec::new());
    for (peer, outcome) in outcomes.into_iter().enumerate().filter(|(peer, _)| *peer != own) {
        let way = match outcome {
            Err(why) => PairWay { peer, rdma: false, tcp: tcp[peer], measured_rdma: Err(why) },
            Ok(before) => {
                let rdma = over_rdma[peer] <= tcp[peer];
                if !rdma {
                    left.extend(before.and_then(|before| group.move_to(peer, before)));
                }
                PairWay { peer, rdma, tcp: tcp[peer], measured_rdma: Ok(over_rdma[peer]) }
            }
        };
        ways.push(way);
    }
    group.fit_pieces()?;
    let shape = common_shape(&group, &ways)?;
    // Only now that all have come so far: until then, the last frame of a measurement may have been under way.
    drop(left);
    group.set_shape(shape);
    Ok((group, ways))
}

/// Round the cycle when all neighbours have RDMA and some other pair has not: machines cabled in a ring.
fn common_shape(group: &TcpGroup, ways: &[PairWay]) -> Result<Shape, CommError> {
    let size = group.size();
    let mut mine = vec![0; size];
    ways.iter().for_each(|way| mine[way.peer] = u8::from(way.rdma));
    let mut all = vec![0; size * size];
    group.all_gather(&mine, &mut all)?;
    Ok(shape_of(size, |rank, peer| all[rank * size + peer] == 1))
}

/// The shape for ranks of which `quick` says which pairs have RDMA.
fn shape_of(size: usize, quick: impl Fn(usize, usize) -> bool) -> Shape {
    let neighbours = (0..size).all(|rank| quick(rank, (rank + 1) % size));
    let everybody = (0..size).all(|rank| (0..rank).all(|peer| quick(rank, peer)));
    if size > 2 && neighbours && !everybody { Shape::Cycle } else { Shape::Full }
}

/// The latency to each rank, the same on both ends: one pair after the other, so that none disturbs another; the lower
/// rank measures and tells.
fn measure(group: &TcpGroup) -> Result<Vec<Duration>, CommError> {
    let (rank, size) = (group.rank(), group.size());
    let mut latencies = vec![Duration::ZERO; size];
    let mut message = vec![0; MESSAGE_BYTES];
    for low in 0..size {
        for high in low + 1..size {
            if rank == low {
                let half = time_rounds(group, high, &mut message)?;
                // Half a round trip is less than 500 years.
                group.send(high, &(half.as_nanos() as u64).to_le_bytes())?;
                latencies[high] = half;
            } else if rank == high {
                for _ in 0..ROUNDS + 2 {
                    group.recv(low, &mut message)?;
                    group.send(low, &message)?;
                }
                let mut nanos = [0; 8];
                group.recv(low, &mut nanos)?;
                latencies[low] = Duration::from_nanos(u64::from_le_bytes(nanos));
            }
        }
    }
    Ok(latencies)
}

/// Half the median time of a message there and back.
fn time_rounds(group: &TcpGroup, peer: usize, message: &mut [u8]) -> Result<Duration, CommError> {
    let mut times = [Duration::ZERO; ROUNDS + 2];
    for time in &mut times {
        let started = Instant::now();
        group.send(peer, message)?;
        group.recv(peer, message)?;
        *time = started.elapsed();
    }
    let counted = &mut times[2..];
    counted.sort_unstable();
    Ok(counted[ROUNDS / 2] / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_ring_of_cables_makes_a_cycle() {
        let ring = |rank: usize, peer: usize| rank.abs_diff(peer) != 2;
        assert_eq!(shape_of(4, ring), Shape::Cycle);
        assert_eq!(shape_of(4, |_, _| true), Shape::Full);
        assert_eq!(shape_of(4, |_, _| false), Shape::Full);
        assert_eq!(shape_of(4, |rank, peer| ring(rank, peer) && rank.min(peer) != 0), Shape::Full);
        assert_eq!(shape_of(2, |_, _| true), Shape::Full);
    }
}
