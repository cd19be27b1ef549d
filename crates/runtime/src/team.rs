//! The ranks of one instance while they live: starting them, speaking to them, finding out how one ended.

use crate::{
    RuntimeError,
    protocol::{Command, Event, RankSpec, RankTransport, RdmaCabling, TcpPeers, read_frame, write_frame},
    rank,
};
use pomar_comm::Segment;
use std::{
    io::{BufReader, BufWriter},
    net::SocketAddr,
    os::unix::process::{CommandExt, ExitStatusExt},
    path::Path,
    process::{Child, ChildStdin, Stdio},
    sync::mpsc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// After the first sign of trouble, how long to wait for the rank at fault to be gone, so that it can be named.
const POST_MORTEM: Duration = Duration::from_millis(400);

/// What a member says, as the front hears it.
pub(crate) enum Heard {
    /// An event.
    Event(Event),
    /// Its output ended: it is dead or dying.
    Closed,
}

/// Takes what a rank says; called on threads of the team.
pub(crate) type Listener = Box<dyn FnMut(usize, Heard) + Send>;

/// All ranks of one attempt to run an instance.
pub(crate) struct Team {
    members: Vec<Member>,
}

struct Member {
    life: Life,
    listening: Option<(SocketAddr, Option<SocketAddr>)>,
    ready: bool,
    last_words: Option<String>,
}

enum Life {
    Process { child: Child, stdin: BufWriter<ChildStdin> },
    Thread { commands: Option<mpsc::Sender<Command>>, thread: Option<JoinHandle<()>> },
}

/// How ranks of one machine reach each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Shared memory.
    Shm,
    /// Loopback connections.
    Tcp,
    /// RDMA devices, with loopback connections for control.
    Rdma(RdmaCabling),
}

impl Team {
    /// Starts one process per rank, running `program rank`.
    pub(crate) fn processes(
        program: &Path,
        base: &RankSpec,
        transport: &Transport,
        listener: impl Fn() -> Listener,
    ) -> Result<Self, RuntimeError> {
        let split = base.split;
        let segment = |size: usize| Segment::create(size).map_err(RuntimeError::Segment);
        let shared = *transport == Transport::Shm && split.ranks() > 1;
        let world = shared.then(|| segment(split.ranks())).transpose()?;
        let stages: Vec<Segment> = (0..if shared && split.tp > 1 { split.pp } else { 0 })
            .map(|_| segment(split.tp))
            .collect::<Result<_, _>>()?;
        let mut team = Self { members: Vec::new() };
        for rank in 0..split.ranks() {
            let mut command = std::process::Command::new(program);
            let transport = match (&world, transport) {
                _ if split.ranks() == 1 => RankTransport::Solo,
                (Some(world), _) => RankTransport::Shm {
                    world: world.inherit(&mut command),
                    stage: stages.get(split.stage(rank)).map(|stage| stage.inherit(&mut command)),
                },
                (None, Transport::Rdma(cabling)) => RankTransport::Rdma(cabling.clone()),
                (None, _) => RankTransport::Tcp,
            };
            let spec = RankSpec { rank, transport, ..base.clone() };
            team.members.push(Member::start(command, &spec, listener())?);
        }
        Ok(team)
    }

    /// Runs the only rank of an unsplit model on a thread of this process.
    pub(crate) fn thread(spec: &RankSpec, mut listener: Listener) -> Self {
        let (commands, receiver) = mpsc::channel();
        let spec = spec.clone();
        let (events, heard) = mpsc::channel();
        let run = move || {
            let mut sink: rank::EventSink = Box::new(move |event| events.send(event).is_ok());
            if let Err(error) = rank::run(&spec, &receiver, &mut sink) {
                sink(Event::Failed(error.to_string()));
            }
        };
        let relay = move || {
            let rank = thread::spawn(run);
            heard.iter().for_each(|event| listener(0, Heard::Event(event)));
            if rank.join().is_err() {
                listener(
                    0,
                    Heard::Event(Event::Failed("the rank's thread panicked; see the message above".into())),
                );
            }
            listener(0, Heard::Closed);
        };
        let life = Life::Thread { commands: Some(commands), thread: Some(thread::spawn(relay)) };
        Self { members: vec![Member::new(life)] }
    }

    /// Notes what a rank said about itself. True when this made the team ready.
    pub(crate) fn note(&mut self, rank: usize, event: &Event, base: &RankSpec) -> Result<bool, RuntimeError> {
        let Some(member) = self.members.get_mut(rank) else {
            return Ok(false);
        };
        match event {
            Event::Listening { world, stage } => {
                member.listening = Some((*world, *stage));
                if self.members.iter().all(|member| member.listening.is_some()) {
                    self.introduce(base)?;
                }
            }
            Event::Ready { .. } => {
                member.ready = true;
                return Ok(self.members.iter().all(|member| member.ready));
            }
            Event::Failed(words) => member.last_words = Some(words.clone()),
            Event::Request(..) => {}
        }
        Ok(false)
    }

    /// The first rank that is not ready.
    pub(crate) fn missing(&self) -> usize {
        self.members.iter().position(|member| !member.ready).unwrap_or(0)
    }

    /// Process numbers by rank; `None` for a rank that is a thread.
    pub(crate) fn processes_by_rank(&self) -> Vec<Option<u32>> {
        self.members
            .iter()
            .map(|member| match &member.life {
                Life::Process { child, .. } => Some(child.id()),
                Life::Thread { .. } => None,
            })
            .collect()
    }

    /// Tells the leader something. A leader that can't hear is about to be found dead, so that is no error.
    pub(crate) fn tell_leader(&mut self, command: Command) {
        if let Some(leader) = self.members.first_mut() {
            leader.tell(command);
        }
    }

    /// Tells every rank where the others listen.
    fn introduce(&mut self, base: &RankSpec) -> Result<(), RuntimeError> {
        let split = base.split;
        let listening: Vec<_> = self.members.iter().filter_map(|member| member.listening).collect();
        let world =
            TcpPeers { addresses: listening.iter().map(|(world, _)| *world).collect(), key: random_key()? };
        let stage_key = random_key()?;
        for rank in 0..self.members.len() {
            let addresses: Vec<_> =
                listening[split.stage_ranks(rank)].iter().filter_map(|(_, stage)| *stage).collect();
            let stage = (split.tp > 1).then_some(TcpPeers { addresses, key: stage_key });
            self.members[rank].tell(Command::Connect { world: world.clone(), stage });
        }
        Ok(())
    }

    /// Ends all ranks and says how the first one came to its end.
    pub(crate) fn post_mortem(mut self) -> String {
        let until = Instant::now() + POST_MORTEM;
        loop {
            if let Some(killed) =
                self.members.iter_mut().enumerate().find_map(|(rank, member)| member.killed(rank))
            {
                return killed;
            }
            let over = Instant::now() > until || self.members.iter_mut().all(Member::is_gone);
            if over {
                break;
            }
            thread::sleep(Duration::from_millis(5));
        }
        // A rank that complains about itself rather than about a peer is the cause.
        let words = |about_peer: bool| {
            self.members.iter().enumerate().find_map(|(rank, member)| {
                let words =
                    member.last_words.as_ref().filter(|words| words.starts_with("rank ") == about_peer)?;
                Some(if self.members.len() == 1 { words.clone() } else { format!("rank {rank}: {words}") })
            })
        };
        let exited = |members: &mut [Member]| {
            members.iter_mut().enumerate().find_map(|(rank, member)| member.exit_status(rank))
        };
        let found = words(false).or_else(|| words(true));
        found.or_else(|| exited(&mut self.members)).unwrap_or_else(|| "a rank closed its connection".into())
    }
}

impl Member {
    fn new(life: Life) -> Self {
        Self { life, listening: None, ready: false, last_words: None }
    }

    fn start(
        mut command: std::process::Command,
        spec: &RankSpec,
        mut listener: Listener,
    ) -> Result<Self, RuntimeError> {
        let rank = spec.rank;
        let failed = |source| RuntimeError::Spawn { rank, source };
        // A process group of its own: Ctrl-C in a terminal is for the front, which ends its ranks in good order.
        command.arg("rank").stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut child = command.spawn().map_err(failed)?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(failed(std::io::Error::other("it has no standard input or output")));
        };
        let mut stdin = BufWriter::new(stdin);
        // A child that is dead already shows in its output.
        let _ = write_frame(&mut stdin, spec);
        thread::spawn(move || {
            let mut stdout = BufReader::new(stdout);
            while let Ok(Some(event)) = read_frame(&mut stdout) {
                listener(rank, Heard::Event(event));
            }
            listener(rank, Heard::Closed);
        });
        Ok(Self::new(Life::Process { child, stdin }))
    }

    fn tell(&mut self, command: Command) {
        match &mut self.life {
            Life::Process { stdin, .. } => drop(write_frame(stdin, &command)),
            Life::Thread { commands: Some(commands), .. } => drop(commands.send(command)),
            Life::Thread { commands: None, .. } => {}
        }
    }

    fn is_gone(&mut self) -> bool {
        match &mut self.life {
            Life::Process { child, .. } => !matches!(child.try_wait(), Ok(None)),
            Life::Thread { .. } => true,
        }
    }

    /// The sentence for a process that a signal ended.
    fn killed(&mut self, rank: usize) -> Option<String> {
        let Life::Process { child, .. } = &mut self.life else {
            return None;
        };
        let signal = child.try_wait().ok()??.signal()?;
        Some(format!("rank {rank} (process {}) was killed by signal {signal}", child.id()))
    }

    fn exit_status(&mut self, rank: usize) -> Option<String> {
        let Life::Process { child, .. } = &mut self.life else {
            return None;
        };
        let status = child.try_wait().ok()??;
        Some(format!("rank {rank} (process {}) ended with {status}; see its message above", child.id()))
    }
}

impl Drop for Member {
    /// Nothing outlives its front: processes are killed and waited for, a thread is told to end.
    fn drop(&mut self) {
        match &mut self.life {
            Life::Process { child, .. } => {
                let _ = child.kill();
                let _ = child.wait();
            }
            Life::Thread { commands, thread } => {
                drop(commands.take());
                if let Some(thread) = thread.take() {
                    let _ = thread.join();
                }
            }
        }
    }
}

fn random_key() -> Result<[u8; 32], RuntimeError> {
    let mut key = [0; 32];
    getrandom::fill(&mut key).map_err(|error| RuntimeError::Segment(std::io::Error::other(error)))?;
    Ok(key)
}
