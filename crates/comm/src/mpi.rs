//! Ranks that an MPI launcher started (`mpirun`, a batch system), talking through Open MPI, MPICH or one of its kin.
//!
//! For clusters where MPI is the way to the network. The library is looked for when the group is made; the program
//! needs none to be built, and none to run as long as it makes no such group.
//!
//! **Why streams.** MPI has collectives, but they add floats in an order of their choice, hang when ranks call
//! different things, and cannot be given up. So the transport uses MPI for what it is best at, moving messages between
//! two ranks, and makes the rest of them like the other transports: see `mesh` and `record`.
//!
//! **Waiting.** Only calls that return at once are made, and each wait polls: no call can get stuck inside MPI, where
//! neither deadline nor abort would reach it. MPI moves messages only while it is called, so a thread of each group
//! attends to them when no caller does; it also beats, and listens for beats, verdicts and farewells.
//!
//! **Memory.** MPI reads and writes memory of the group's own only (`slot`), which is given back when MPI is through with
//! it, or never.
//!
//! **Life.** A rank that dies ends the job: the launcher sees to that. A rank that hangs is silent, which is noticed by
//! its missing beats. How the process ends then is told in `process`.

mod api;
mod library;
mod link;
mod mpich;
mod notice;
mod openmpi;
mod process;
mod slot;

use crate::{
    BufferMut, CommError, Group, GroupOptions,
    mesh::{Channel, Exchange, PIECE_BYTES},
    record::Stream,
    reduce::Reduce,
    transport::{Pieces, Seat, Step, Transport},
    verdict::Verdict,
    vigil::Silence,
    wait::{Bell, Wait},
};
use api::MpiError;
use link::{CHANNELS, Common, Link, MpiSink, MpiSource};
use process::Process;
use std::{
    sync::{Arc, Mutex},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// Time between two signs of life.
const BEAT: Duration = Duration::from_millis(200);

/// Time between two looks of the attending thread: while messages are on their way out, and else.
const BUSY_PAUSE: Duration = Duration::from_micros(100);
const IDLE_PAUSE: Duration = Duration::from_millis(2);

/// How long leaving a group waits, at most: for what was sent last, for the others to leave too (which saves them from
/// sending to nobody), and for MPI to give back the receives.
const LAST_SENDS: Duration = Duration::from_millis(500);
const LAST_FAREWELLS: Duration = Duration::from_millis(200);
const LAST_RECEIVES: Duration = Duration::from_millis(200);

/// How long the end of the process waits for others after a rank has died: it cannot come any more, and whoever else
/// leaves does so for the same reason, about now.
const END_AFTER_A_DEATH: Duration = Duration::from_secs(2);

const POINT_TO_POINT: usize = 0;
const COLLECTIVES: usize = 1;
const _: () = assert!(COLLECTIVES + 1 == CHANNELS);

impl From<MpiError> for CommError {
    fn from(MpiError { call, text }: MpiError) -> Self {
        Self::Mpi { call, text }
    }
}

/// A rank's part in the group of all ranks of an MPI job (MPI_COMM_WORLD). Dropping it leaves the group.
#[derive(Debug)]
pub struct MpiGroup {
    seat: Seat,
    shared: Arc<Shared>,
    /// One per rank; `None` at this rank's own place.
    peers: Vec<Option<Peer>>,
    collective: Mutex<MpiExchange>,
    attending: Option<JoinHandle<()>>,
}

type MpiExchange = Exchange<MpiSink, MpiSource>;

/// The ends of one peer's point-to-point channel.
#[derive(Debug)]
struct Peer {
    outbox: Mutex<Stream<MpiSink>>,
    inbox: Mutex<Stream<MpiSource>>,
}

/// What the group and its attending thread have in common.
#[derive(Debug)]
struct Shared {
    process: Arc<Process>,
    common: Arc<Common>,
    links: Vec<Arc<Link>>,
}

impl MpiGroup {
    /// Takes this process's place among the ranks that the launcher started; without a launcher, a group of one. The
    /// first call in a process starts MPI, the end of the process ends it.
    ///
    /// All ranks make their groups in the same order. The library is the launcher's, unless the environment variable
    /// `POMAR_MPI_LIBRARY` gives another one's path.
    ///
    /// # Errors
    /// [`CommError::Setup`] when there is no MPI library, it does not start, or the launcher is another
    /// implementation's; [`CommError::DidNotJoin`] naming a rank that did not make its group in time.
    pub fn join(options: GroupOptions) -> Result<Self, CommError> {
        let started = Instant::now();
        let process = Process::get(options.join_deadline)?;
        let seat = Seat::new(process.world.rank, process.world.size, &options)?;
        let first_tag = process.take_tags()?;
        let common = Arc::<Common>::default();
        let link = |peer| Link::new(peer, first_tag, &process, &common).map(Arc::new);
        let links = seat.peers().map(link).collect::<Result<Vec<_>, _>>()?;

        let mut peers: Vec<_> = (0..seat.size).map(|_| None).collect();
        let mut channels: Vec<_> = (0..seat.size).map(|_| None).collect();
        for link in &links {
            let (peer, channel) = open(link);
            peers[link.peer] = Some(peer);
            channels[link.peer] = Some(channel);
        }
        let collective = Mutex::new(Exchange::new(seat.rank, channels));
        let shared = Arc::new(Shared { process, common, links });
        let mut group = Self { seat, shared, peers, collective, attending: None };
        group.start_attending(options.dead_after)?;
        group.wait_for_all(started, options.join_deadline)?;
        Ok(group)
    }

    /// Whether an MPI launcher started this process, as one of several ranks.
    pub(crate) fn was_launched(variable: &dyn Fn(&str) -> Option<String>) -> bool {
        library::launched_ranks(variable).is_some_and(|ranks| ranks > 1)
    }

    /// How the MPI library calls itself, for example "Open MPI v4.1.4".
    #[must_use]
    pub fn library(&self) -> &str {
        &self.shared.process.version
    }

    fn start_attending(&mut self, dead_after: Duration) -> Result<(), CommError> {
        let shared = Arc::clone(&self.shared);
        let attending = thread::Builder::new()
            .name(format!("pomar-mpi-{}", self.seat.rank))
            .spawn(move || attend(&shared, dead_after))
            .map_err(|source| CommError::Io { what: "starting the thread that attends to MPI", source })?;
        self.attending = Some(attending);
        Ok(())
    }

    /// Waits for everyone's first sign of life in this group.
    fn wait_for_all(&self, started: Instant, within: Duration) -> Result<(), CommError> {
        while let Some(silent) = self.shared.links.iter().find(|link| link.heard() == 0) {
            self.verdict()?;
            if started.elapsed() >= within {
                self.shared.process.wait_at_end(Some(within));
                return Err(CommError::DidNotJoin { missing: silent.peer, after: within });
            }
            thread::sleep(Duration::from_millis(1));
        }
        self.shared.process.wait_at_end(None);
        Ok(())
    }
}

/// The ends of both channels.
fn open(link: &Arc<Link>) -> (Peer, Channel<MpiSink, MpiSource>) {
    let sink = |channel| Stream::new(MpiSink::new(link, channel));
    let source = |channel| Stream::new(MpiSource::new(link, channel));
    let peer = Peer { outbox: Mutex::new(sink(POINT_TO_POINT)), inbox: Mutex::new(source(POINT_TO_POINT)) };
    (peer, Channel { peer: link.peer, sink: sink(COLLECTIVES), source: source(COLLECTIVES) })
}

/// The attending thread: beats, hears, moves messages on, notices silence.
fn attend(shared: &Shared, dead_after: Duration) {
    let mut silences = vec![Silence::default(); shared.links.len()];
    let mut last_beat = None::<Instant>;
    let mut pause = Duration::ZERO;
    while !shared.common.stop.wait(pause) {
        let since_beat = last_beat.map(|at| at.elapsed());
        let beat = since_beat.is_none_or(|passed| passed >= BEAT);
        if beat {
            last_beat = Some(Instant::now());
        }
        pause = IDLE_PAUSE;
        for (link, silence) in shared.links.iter().zip(&mut silences) {
            match link.attend(beat) {
                Ok(true) => pause = BUSY_PAUSE,
                Ok(false) => {}
                Err(error) => shared.common.end(blame(link, &error)),
            }
            if beat && !link.has_left() {
                silence.observe(link.heard(), since_beat.unwrap_or_default(), BEAT * 2);
            }
        }
        let silent = shared.links.iter().zip(&silences).filter(|(link, _)| !link.has_left());
        let silent = silent.map(|(link, silence)| (link.peer, silence.lasted()));
        if let Some(verdict) =
            verdict_on(silent.filter(|(_, lasted)| *lasted > dead_after).collect(), dead_after)
        {
            shared.common.end(verdict);
        }
    }
}

/// Who has been silent for too long.
///
/// A rank that is stopped while MPI puts its message into a queue in shared memory leaves a hole there, and messages of
/// other ranks behind it are not seen (UCX does so). A rank that hears nothing from several others can thus not tell which
/// of them is to blame: it leaves time to those that can, and then names all.
fn verdict_on(silent: Vec<(usize, Duration)>, dead_after: Duration) -> Option<Verdict> {
    let (&(rank, lasted), others) = silent.split_first()?;
    if !others.is_empty() && lasted <= dead_after + BEAT * 2 {
        return None;
    }
    let others: String = others.iter().map(|(rank, _)| format!(", nor from rank {rank}")).collect();
    let what = format!("no sign of life for {lasted:.1?}{others}; is its process stopped?");
    Some(Verdict::Dead { rank, what })
}

/// Why the group ends when attending to a peer failed.
fn blame(link: &Link, error: &CommError) -> Verdict {
    match error {
        CommError::Protocol { rank, what } => Verdict::Broken { rank: *rank, what: what.clone() },
        other => Verdict::LinkFailed { rank: link.peer, by: link.own(), what: other.to_string() },
    }
}

impl Shared {
    /// Leaves the group, or tells its end to whoever has not heard it; says whether all went well.
    fn close(&self) -> Result<bool, CommError> {
        let has_failed = self.common.verdict.get().is_some();
        for link in &self.links {
            if has_failed {
                link.attend(false)?;
            } else {
                link.leave()?;
            }
        }
        let settled = self.poll_all(LAST_SENDS, Link::is_settled)?;
        if !has_failed {
            self.poll_all(LAST_FAREWELLS, Link::is_over)?;
        }
        self.links.iter().try_for_each(|link| link.withdraw())?;
        let withdrawn = self.poll_all(LAST_RECEIVES, Link::is_withdrawn)?;
        Ok(settled && withdrawn && !has_failed)
    }

    /// How long the end of the process waits for other ranks when this group failed, whose calls wait for `deadline`.
    fn patience_at_end(&self, deadline: Duration) -> Duration {
        match self.common.verdict.get() {
            Some(Verdict::Dead { .. }) => END_AFTER_A_DEATH.min(deadline),
            _ => deadline,
        }
    }

    /// Asks all links again and again until all say yes; false when time is up.
    fn poll_all(
        &self,
        within: Duration,
        ask: impl Fn(&Link) -> Result<bool, CommError>,
    ) -> Result<bool, CommError> {
        let started = Instant::now();
        loop {
            let mut all = true;
            for link in &self.links {
                all &= ask(link)?;
            }
            if all || started.elapsed() >= within {
                return Ok(all);
            }
            thread::sleep(BUSY_PAUSE);
        }
    }
}

impl Drop for MpiGroup {
    fn drop(&mut self) {
        self.shared.common.stop.stop();
        if let Some(attending) = self.attending.take() {
            // A panic there has been printed; there is nothing more to do about it here.
            let _ = attending.join();
        }
        if !self.shared.close().unwrap_or(false) {
            self.shared.process.wait_at_end(Some(self.shared.patience_at_end(self.deadline())));
        }
    }
}

impl Transport for MpiGroup {
    type Collective = MpiExchange;
    type Sink = MpiSink;
    type Source = MpiSource;

    fn seat(&self) -> &Seat {
        &self.seat
    }

    fn bell(&self) -> &Bell {
        &self.shared.common.bell
    }

    /// Nothing rings when a message comes: sleeps grow with the wait, to what the attending thread takes, too.
    fn longest_sleep(&self, waited: Duration) -> Duration {
        (waited / 16).clamp(BUSY_PAUSE, IDLE_PAUSE)
    }

    fn verdict(&self) -> Result<(), CommError> {
        self.shared.common.verdict.check()
    }

    /// A farewell may overtake data on another channel, so each channel has an end of its own, at which reading fails.
    fn has_left(&self, _: usize) -> bool {
        false
    }

    fn piece_bytes(&self) -> usize {
        PIECE_BYTES
    }

    fn collective(&self) -> &Mutex<MpiExchange> {
        &self.collective
    }

    fn show(
        &self,
        wait: &Wait<'_, Self>,
        state: &mut MpiExchange,
        step: Step,
        mine: &[u8],
    ) -> Result<(), CommError> {
        state.show(wait, step, mine)
    }

    fn look<'s>(
        &self,
        wait: &Wait<'_, Self>,
        state: &'s mut MpiExchange,
        step: Step,
    ) -> Result<Pieces<'s>, CommError> {
        state.look(wait, step)
    }

    fn reduce_all(
        &self,
        wait: &Wait<'_, Self>,
        state: &mut MpiExchange,
        how: Reduce,
        data: BufferMut<'_>,
    ) -> Result<(), CommError> {
        state.reduce_all(self, wait, how, data)
    }

    fn outbox(&self, peer: usize) -> Option<&Mutex<Stream<MpiSink>>> {
        Some(&self.peers.get(peer)?.as_ref()?.outbox)
    }

    fn inbox(&self, peer: usize) -> Option<&Mutex<Stream<MpiSource>>> {
        Some(&self.peers.get(peer)?.as_ref()?.inbox)
    }

    fn end(&self, verdict: Verdict) {
        self.shared.common.end(verdict);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_silent_rank_is_blamed_at_once_and_several_later_together() {
        let (limit, longer) = (Duration::from_millis(1200), Duration::from_millis(1300));
        let blamed = |silent: &[(usize, Duration)]| {
            verdict_on(silent.to_vec(), limit).map(|verdict| match verdict {
                Verdict::Dead { rank, what } => (rank, what),
                other => panic!("{other:?}"),
            })
        };
        assert_eq!(blamed(&[]), None);
        assert_eq!(blamed(&[(1, longer)]).unwrap().0, 1);
        assert_eq!(blamed(&[(0, longer), (1, longer)]), None);
        let (rank, what) = blamed(&[(0, limit + BEAT * 3), (1, longer)]).unwrap();
        assert!(rank == 0 && what.contains("nor from rank 1"), "{what}");
    }
}
