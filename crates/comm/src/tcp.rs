//! Ranks connected pairwise over TCP.
//!
//! **Making the mesh.** Of each pair the higher rank dials, trying the lower one's addresses in turn (module `dial`), and
//! the lower one accepts (`accept`). Both prove that they hold the instance's key before anything else is said
//! (`handshake`). Whoever can reach a port can disturb the making of a group, but not join it.
//!
//! **Secrecy.** A connection within this machine's loopback interface or within a network that
//! [`GroupOptions::plain_networks`] names, such as a cable, goes on in the clear. Every other one is sealed: encrypted,
//! authenticated and numbered (`seal`), under keys that die with the connection. The two ends must agree which it is,
//! so nobody in between can talk them out of it.
//!
//! Each connection carries two channels, one for collectives and one for point-to-point calls; see the module `link` for
//! windows and pumping, and `mesh` for how collectives are made of the former.
//!
//! **Life.** A peer that dies closes its sockets, which is noticed at once; one that hangs is silent, which is noticed
//! by its missing heartbeats. Whoever notices tells the others.

mod accept;
mod dial;
mod frame;
mod handshake;
mod link;
mod listener;
mod outgoing;
mod seal;
mod setup;
mod socket;

pub(crate) use frame::CHANNELS;
pub use frame::{FRAME_HEADER_BYTES, FrameError, FrameHeader, FrameKind, MAX_PAYLOAD, parse_frame_header};
pub use handshake::{HandshakeError, InstanceKey};
pub use link::fuzz_frames;
pub(crate) use link::{Link, TcpSink, TcpSource};
pub use listener::TcpListenerHandle;
pub use seal::SealError;

use crate::{
    BufferMut, CommError, Group, GroupOptions,
    mesh::{Channel, Exchange, PIECE_BYTES, Shape},
    pair::{PairSink, PairSource},
    rdma::Path,
    record::Stream,
    reduce::Reduce,
    transport::{Pieces, Seat, Step, Transport, lock},
    verdict::Verdict,
    vigil::Silence,
    wait::{Bell, LONGEST_SLEEP, Wait},
};
use link::Common;
use setup::{Plan, Proved, connect_all};
use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, atomic::Ordering::Release},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// Time between two heartbeats.
const BEAT: Duration = Duration::from_millis(200);

/// Time until the next try to tell a verdict to a connection that is busy.
const TELL_AGAIN: Duration = Duration::from_millis(5);

/// Bounds of the sleep between two looks at memory that a device writes to.
const SHORTEST_NAP: Duration = Duration::from_micros(50);
const LONGEST_NAP: Duration = Duration::from_millis(2);

const POINT_TO_POINT: usize = 0;
const COLLECTIVES: usize = 1;

type PairExchange = Exchange<PairSink, PairSource>;

/// A rank's part in a TCP mesh. Dropping it says goodbye and closes the connections.
#[derive(Debug)]
pub struct TcpGroup {
    seat: Seat,
    common: Arc<Common>,
    /// One per rank; `None` at this rank's own place.
    peers: Vec<Option<Peer>>,
    collective: Mutex<PairExchange>,
    /// The same on all ranks.
    piece_bytes: usize,
    threads: Vec<JoinHandle<()>>,
}

/// One connection and the ends of its point-to-point channel.
#[derive(Debug)]
struct Peer {
    link: Arc<Link>,
    outbox: Mutex<Stream<PairSink>>,
    inbox: Mutex<Stream<PairSource>>,
    /// The way that the data goes, when that is not the connection.
    path: Option<Arc<Path>>,
}

/// How the data of one pair goes: the ends of both channels, and what they lead over when that is not the connection.
#[derive(Debug)]
pub(crate) struct Way {
    path: Option<Arc<Path>>,
    point_to_point: (PairSink, PairSource),
    collectives: (PairSink, PairSource),
}

impl Way {
    /// Over RDMA.
    pub(crate) fn over(path: Arc<Path>) -> Self {
        let ends = |channel: usize| {
            let (sink, source) = path.ends(channel);
            (PairSink::Rdma(sink), PairSource::Rdma(source))
        };
        Self { point_to_point: ends(POINT_TO_POINT), collectives: ends(COLLECTIVES), path: Some(path) }
    }
}

impl TcpGroup {
    /// Makes the connections to all other ranks. `addresses` has one list per rank: the addresses at which this rank may
    /// find it, best first; only those of lower ranks are dialed. `key` is the secret that all ranks of the instance
    /// hold. The listener is closed when all have come.
    ///
    /// # Errors
    /// [`CommError::NoPath`] with all that was tried when no address leads to a lower rank in time;
    /// [`CommError::DidNotJoin`] naming a higher rank that did not come; [`CommError::Setup`] naming a pair whose keys,
    /// sizes, versions or plain networks differ, as soon as that is noticed, or an address that cannot be dialed.
    pub fn connect(
        listener: TcpListenerHandle,
        rank: usize,
        addresses: &[Vec<SocketAddr>],
        key: &InstanceKey,
        options: GroupOptions,
    ) -> Result<Self, CommError> {
        let seat = Seat::new(rank, addresses.len(), &options)?;
        let plan = Plan::new(rank, addresses, key, (&options.plain_networks, options.join_deadline))?;
        let connections = connect_all(&plan, &listener.listeners)?;

        let common = Arc::new(Common::new(rank));
        let mut peers = Vec::with_capacity(seat.size);
        let mut channels = Vec::with_capacity(seat.size);
        for (peer, proved) in connections.into_iter().enumerate() {
            let (peer, channel) = proved.map(|proved| open(peer, proved, &common)).transpose()?.unzip();
            peers.push(peer);
            channels.push(channel);
        }
        let collective = Mutex::new(Exchange::new(seat.rank, channels));
        let threads = Vec::new();
        let mut group = Self { seat, common, peers, collective, piece_bytes: PIECE_BYTES, threads };
        group
            .start_threads(Tolerance { dead_after: options.dead_after, first_sign: options.join_deadline })?;
        Ok(group)
    }

    /// Whether the connection to `peer` is encrypted; false for a rank that has none.
    #[must_use]
    pub fn is_sealed(&self, peer: usize) -> bool {
        self.peers.get(peer).and_then(Option::as_ref).is_some_and(|peer| peer.link.is_sealed())
    }

    /// The connections, in the order of the peers.
    pub(crate) fn links(&self) -> impl Iterator<Item = &Arc<Link>> {
        self.peers.iter().flatten().map(|peer| &peer.link)
    }

    /// The other ranks.
    pub(crate) fn peers(&self) -> impl Iterator<Item = usize> + Clone + use<> {
        self.seat.peers()
    }

    /// Has collectives use other pairs from now on; all ranks do so at the same point of their calls.
    pub(crate) fn set_shape(&mut self, shape: Shape) {
        lock(&self.collective).set_shape(shape);
    }

    /// Sends and receives the data of one pair another way from now on; gives back the way so far. Both ranks do so when
    /// nothing is under way between them; records go on counting where they were.
    pub(crate) fn move_to(&mut self, peer: usize, way: Way) -> Option<Way> {
        let this = self.peers.get_mut(peer)?.as_mut()?;
        let Way { path, point_to_point: (sink, source), collectives } = way;
        Some(Way {
            path: std::mem::replace(&mut this.path, path),
            point_to_point: (
                std::mem::replace(&mut lock(&this.outbox).end, sink),
                std::mem::replace(&mut lock(&this.inbox).end, source),
            ),
            collectives: lock(&self.collective).replace_ends(peer, collectives)?,
        })
    }

    /// Fits the pieces of collectives to the narrowest way between any two ranks. All ranks call it when they have moved
    /// to their ways.
    pub(crate) fn fit_pieces(&mut self) -> Result<(), CommError> {
        let paths = self.peers.iter().flatten().filter_map(|peer| peer.path.as_ref());
        let own = paths.map(|path| path.piece_bytes()).min().unwrap_or(PIECE_BYTES) as u64;
        let mut all = vec![0; 8 * self.seat.size];
        self.all_gather(&own.to_le_bytes(), &mut all)?;
        let told = all.chunks_exact(8).map(|word| u64::from_le_bytes(std::array::from_fn(|i| word[i])));
        // A multiple of 64, and no rank of this version has less room than that.
        let least = told.min().map_or(PIECE_BYTES, |least| least.min(PIECE_BYTES as u64) as usize);
        self.piece_bytes = (least / 64).max(1) * 64;
        Ok(())
    }

    /// One thread that beats for all connections, and one per connection that reads.
    fn start_threads(&mut self, tolerance: Tolerance) -> Result<(), CommError> {
        let links: Vec<_> = self.links().map(Arc::clone).collect();
        let name = format!("pomar-tcp-{}", self.seat.rank);
        for link in links.iter().map(Arc::clone) {
            let reading = thread::Builder::new().name(name.clone()).spawn(move || link.keep_reading());
            self.threads.push(reading.map_err(thread_error)?);
        }
        let common = Arc::clone(&self.common);
        let beating =
            thread::Builder::new().name(name).spawn(move || keep_beating(&common, &links, tolerance));
        self.threads.push(beating.map_err(thread_error)?);
        Ok(())
    }
}

fn thread_error(source: std::io::Error) -> CommError {
    CommError::Io { what: "starting a connection's thread", source }
}

/// A peer over a proved connection, and its collective channel.
fn open(
    peer: usize,
    proved: Proved,
    common: &Arc<Common>,
) -> Result<(Peer, Channel<PairSink, PairSource>), CommError> {
    let opened = Link::new(peer, proved, common);
    let (link, [to_point, to_all]) =
        opened.map_err(|source| CommError::Io { what: "preparing a connection", source })?;
    let outbox = Mutex::new(Stream::new(PairSink::Tcp(TcpSink::new(&link, POINT_TO_POINT))));
    let inbox = Mutex::new(Stream::new(PairSource::Tcp(TcpSource::new(&link, POINT_TO_POINT, to_point))));
    let channel = Channel {
        peer,
        sink: Stream::new(PairSink::Tcp(TcpSink::new(&link, COLLECTIVES))),
        source: Stream::new(PairSource::Tcp(TcpSource::new(&link, COLLECTIVES, to_all))),
    };
    Ok((Peer { link, outbox, inbox, path: None }, channel))
}

/// How long a peer may be silent.
#[derive(Clone, Copy)]
struct Tolerance {
    dead_after: Duration,
    /// Before its first word: it may still be making its connections to others, and beats when it has them all.
    first_sign: Duration,
}

/// The heartbeat thread: signs of life out, silence noticed, verdicts told.
fn keep_beating(common: &Common, links: &[Arc<Link>], tolerance: Tolerance) {
    let mut silences = vec![Silence::default(); links.len()];
    let mut last_look = Instant::now();
    let mut pause = Duration::ZERO;
    while !common.stop.wait(pause) {
        let passed = last_look.elapsed();
        last_look = Instant::now();
        pause = BEAT;
        for (link, silence) in links.iter().zip(&mut silences) {
            let silent = silence.observe(link.heard(), passed, BEAT * 2);
            let limit = if link.heard() == 0 { tolerance.first_sign } else { tolerance.dead_after };
            if silent > limit && !link.has_left() {
                let what = format!("no sign of life for {silent:.1?}; is its process stopped?");
                common.end(Verdict::Dead { rank: link.peer, what });
            }
            if link.beat() {
                pause = TELL_AGAIN;
            }
        }
    }
}

impl Drop for TcpGroup {
    fn drop(&mut self) {
        // After a verdict nobody waits for data, and a dead peer would be waited for in vain.
        if self.common.verdict.get().is_none() {
            let paths = self.peers.iter().flatten().filter_map(|peer| peer.path.as_ref());
            paths.for_each(|path| path.flush());
        }
        self.common.closing.store(true, Release);
        self.common.stop.stop();
        self.links().for_each(|link| link.close());
        for thread in self.threads.drain(..) {
            // A panic there has been printed; there is nothing more to do about it here.
            let _ = thread.join();
        }
    }
}

impl Transport for TcpGroup {
    type Collective = PairExchange;
    type Sink = PairSink;
    type Source = PairSource;

    fn seat(&self) -> &Seat {
        &self.seat
    }

    fn bell(&self) -> &Bell {
        &self.common.bell
    }

    fn verdict(&self) -> Result<(), CommError> {
        self.common.verdict.check()
    }

    fn has_left(&self, peer: usize) -> bool {
        let Some(Some(peer)) = self.peers.get(peer) else { return false };
        // The farewell may overtake what goes another way.
        peer.link.has_left() && peer.path.as_ref().is_none_or(|path| path.has_all_announced())
    }

    fn longest_sleep(&self, waited: Duration) -> Duration {
        if self.peers.iter().flatten().all(|peer| peer.path.is_none()) {
            return LONGEST_SLEEP;
        }
        // Nothing rings the bell when a frame lands in memory: look again after a small part of the time waited so far.
        (waited / 16).clamp(SHORTEST_NAP, LONGEST_NAP)
    }

    fn piece_bytes(&self) -> usize {
        self.piece_bytes
    }

    fn collective(&self) -> &Mutex<PairExchange> {
        &self.collective
    }

    fn show(
        &self,
        wait: &Wait<'_, Self>,
        state: &mut PairExchange,
        step: Step,
        mine: &[u8],
    ) -> Result<(), CommError> {
        state.show(wait, step, mine)
    }

    fn look<'s>(
        &self,
        wait: &Wait<'_, Self>,
        state: &'s mut PairExchange,
        step: Step,
    ) -> Result<Pieces<'s>, CommError> {
        state.look(wait, step)
    }

    fn reduce_all(
        &self,
        wait: &Wait<'_, Self>,
        state: &mut PairExchange,
        how: Reduce,
        data: BufferMut<'_>,
    ) -> Result<(), CommError> {
        state.reduce_all(self, wait, how, data)
    }

    fn outbox(&self, peer: usize) -> Option<&Mutex<Stream<PairSink>>> {
        Some(&self.peers.get(peer)?.as_ref()?.outbox)
    }

    fn inbox(&self, peer: usize) -> Option<&Mutex<Stream<PairSource>>> {
        Some(&self.peers.get(peer)?.as_ref()?.inbox)
    }

    fn end(&self, verdict: Verdict) {
        self.common.end(verdict);
    }
}
