//! The process of one rank: join the others, load the shard, run steps until the front goes away.
//!
//! `pomar rank` calls [`serve_stdio`]; an unsplit model may also run [`run`] on a thread of its own.

use crate::{
    RuntimeError,
    leader::lead,
    protocol::{
        Command, Event, Order, QueuePairs, RankSpec, RankTransport, TcpPeers, read_frame, write_frame,
    },
};
use pomar_comm::{
    Group, GroupOptions, QpKind, RdmaDevices, RdmaOptions, ShmGroup, SoloGroup, TcpGroup, TcpListenerHandle,
    inherited_fd,
    rdma::{self, read_device_matrix},
};
use pomar_engine::{Activations, Config, Cpu, Model, Shard, Split, Step, load, loader::is_quantized};
use pomar_weights::Checkpoint;
use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    process,
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

/// A rank waits this long for a peer that is alive: longer than any step can take to compute.
const STEP_DEADLINE: Duration = Duration::from_secs(600);
/// How often an idle rank looks whether its peers still live.
const IDLE_ROUND: Duration = Duration::from_secs(1);

/// Where a rank's events go. False: nobody listens any more.
pub type EventSink = Box<dyn FnMut(Event) -> bool + Send>;

/// Runs the rank that standard input describes, until standard input ends. Returns the process's exit status.
///
/// The process ends at once when the front goes away, whatever it is doing: nothing outlives its front.
#[must_use]
pub fn serve_stdio() -> i32 {
    let spec = match read_frame::<RankSpec>(&mut io::stdin().lock()) {
        Ok(Some(spec)) => spec,
        Ok(None) => return 0,
        Err(error) => {
            eprintln!(
                "pomar rank: standard input holds no rank's description ({error}); the node starts ranks itself"
            );
            return 2;
        }
    };
    let (sender, commands) = mpsc::channel();
    thread::spawn(move || {
        let mut stdin = io::stdin().lock();
        loop {
            let Ok(Some(command)) = read_frame::<Command>(&mut stdin) else { process::exit(0) };
            if sender.send(command).is_err() {
                return;
            }
        }
    });
    let mut events: EventSink = Box::new(|event| write_frame(&mut io::stdout().lock(), &event).is_ok());
    match run(&spec, &commands, &mut events) {
        Ok(()) => 0,
        Err(error) => {
            events(Event::Failed(error.to_string()));
            1
        }
    }
}

/// Runs one rank until `commands` ends.
///
/// # Errors
/// Whatever keeps it from going on: a damaged model, a split that doesn't fit, a peer that died.
pub fn run(
    spec: &RankSpec,
    commands: &mpsc::Receiver<Command>,
    events: &mut EventSink,
) -> Result<(), RuntimeError> {
    let groups = Groups::join(spec, commands, events)?;
    let result = load_rank(spec, &groups)
        .and_then(|rank| if spec.rank == 0 { lead(rank, commands, events) } else { follow(rank, events) });
    if let Err(error) = &result {
        groups.world.abort(&error.to_string());
    }
    result
}

/// The ranks of the instance, and those that share this rank's layers.
struct Groups {
    world: Arc<dyn Group>,
    stage: Arc<dyn Group>,
}

impl Groups {
    fn join(
        spec: &RankSpec,
        commands: &mpsc::Receiver<Command>,
        events: &mut EventSink,
    ) -> Result<Self, RuntimeError> {
        let options = GroupOptions { deadline: STEP_DEADLINE, ..GroupOptions::default() };
        let (split, rank) = (spec.split, spec.rank);
        let ranks = split.ranks();
        let seat = rank % split.tp;
        let solo = || Arc::new(SoloGroup::new()) as Arc<dyn Group>;
        match &spec.transport {
            RankTransport::Solo => Ok(Self { world: solo(), stage: solo() }),
            RankTransport::Shm { world, stage } => {
                let attach = |fd: i32, rank, size| -> Result<Arc<dyn Group>, RuntimeError> {
                    let fd = inherited_fd(fd).map_err(RuntimeError::Segment)?;
                    Ok(Arc::new(ShmGroup::attach(fd, rank, size, options.clone())?))
                };
                let stage = stage.map_or_else(|| Ok(solo()), |fd| attach(fd, seat, split.tp))?;
                Ok(Self { world: attach(*world, rank, ranks)?, stage })
            }
            RankTransport::Tcp => {
                let (world, stage) = connect_all(split, rank, &options, commands, events)?;
                let stage = stage.map_or_else(solo, |stage| Arc::new(stage));
                Ok(Self { world: Arc::new(world), stage })
            }
            RankTransport::Rdma(cabling) => {
                let devices = Arc::new(RdmaDevices::load()?);
                let row =
                    cabling.matrix.as_ref().map(|path| read_device_matrix(path, rank, ranks)).transpose()?;
                let (world, stage) = connect_all(split, rank, &options, commands, events)?;
                let move_to_rdma =
                    |group, row: Option<&[Vec<String>]>| -> Result<Arc<dyn Group>, RuntimeError> {
                        let options = RdmaOptions {
                            devices: row.map(<[_]>::to_vec).unwrap_or_default(),
                            queue_pairs: cabling.queue_pairs.map(kind_of),
                            ..RdmaOptions::default()
                        };
                        Ok(Arc::new(rdma::connect(group, &devices, &options)?))
                    };
                let stage_row = row.as_ref().map(|row| &row[split.stage_ranks(rank)]);
                let world = move_to_rdma(world, row.as_deref())?;
                Ok(Self {
                    world,
                    stage: stage.map_or_else(|| Ok(solo()), |stage| move_to_rdma(stage, stage_row))?,
                })
            }
        }
    }
}

fn kind_of(queue_pairs: QueuePairs) -> QpKind {
    match queue_pairs {
        QueuePairs::Reliable => QpKind::Rc,
        QueuePairs::Unreliable => QpKind::Uc,
    }
}

/// Joins all ranks over loopback, and those of the stage where it has several: says where this rank listens, and is
/// told where the others do.
fn connect_all(
    split: Split,
    rank: usize,
    options: &GroupOptions,
    commands: &mpsc::Receiver<Command>,
    events: &mut EventSink,
) -> Result<(TcpGroup, Option<TcpGroup>), RuntimeError> {
    let loopback = [SocketAddr::from((Ipv4Addr::LOCALHOST, 0))];
    let world = TcpListenerHandle::bind(&loopback)?;
    let stage = (split.tp > 1).then(|| TcpListenerHandle::bind(&loopback)).transpose()?;
    let address = |listener: &TcpListenerHandle| listener.addresses()[0];
    events(Event::Listening { world: address(&world), stage: stage.as_ref().map(address) });
    let Ok(Command::Connect { world: world_peers, stage: stage_peers }) = commands.recv() else {
        return Err(RuntimeError::NoAddresses);
    };
    let connect = |listener, rank, peers: &TcpPeers| {
        let addresses: Vec<_> = peers.addresses.iter().map(|address| vec![*address]).collect();
        TcpGroup::connect(listener, rank, &addresses, &peers.key, options.clone())
    };
    let world = connect(world, rank, &world_peers)?;
    let stage = match (stage, stage_peers) {
        (Some(listener), Some(peers)) => Some(connect(listener, rank % split.tp, &peers)?),
        _ => None,
    };
    Ok((world, stage))
}

/// A loaded rank and its connections.
pub(crate) struct Rank {
    pub(crate) spec: RankSpec,
    pub(crate) config: Config,
    /// The shards of all ranks.
    pub(crate) shards: Vec<Shard>,
    pub(crate) world: Arc<dyn Group>,
    stage: Arc<dyn Group>,
    model: Box<dyn Model>,
}

fn load_rank(spec: &RankSpec, groups: &Groups) -> Result<Rank, RuntimeError> {
    let checkpoint = Arc::new(Checkpoint::open(&spec.model).map_err(pomar_engine::EngineError::from)?);
    let config = Config::read(&checkpoint)?;
    let shards = Shard::all(&config, spec.split, is_quantized(&checkpoint))?;
    let backend = Cpu::new(spec.threads);
    let model = load(backend, &checkpoint, &config, &shards[spec.rank], spec.limits.pages)?;
    let (world, stage) = (Arc::clone(&groups.world), Arc::clone(&groups.stage));
    Ok(Rank { spec: spec.clone(), config, shards, world, stage, model })
}

impl Rank {
    fn shard(&self) -> &Shard {
        &self.shards[self.spec.rank]
    }

    pub(crate) fn weight_bytes(&self) -> usize {
        self.model.weight_bytes()
    }

    /// Runs a step through this rank's layers and passes the result on: the residual stream to the same seat of the
    /// next stage, logits to the leader. Gives the leader its own logits, if it makes any.
    pub(crate) fn run_step(&mut self, step: &Step) -> Result<Vec<f32>, RuntimeError> {
        let (rank, tp) = (self.spec.rank, self.spec.split.tp);
        let input = if self.shard().is_first {
            Activations::Tokens
        } else {
            let mut bytes = vec![0; step.tokens() * self.config.hidden_size * size_of::<f32>()];
            self.world.recv(rank - tp, &mut bytes)?;
            Activations::Hidden(floats(&bytes))
        };
        match self.model.forward(step, input, &*self.stage)? {
            Activations::Hidden(x) => self.world.send(rank + tp, &bytes(&x))?,
            Activations::Logits(logits) if rank == 0 => return Ok(logits),
            Activations::Logits(logits) if logits.is_empty() => {}
            Activations::Logits(logits) => self.world.send(0, &bytes(&logits))?,
            Activations::Tokens => {}
        }
        Ok(Vec::new())
    }
}

/// A rank that is not the leader: runs the steps it is told to.
fn follow(mut rank: Rank, events: &mut EventSink) -> Result<(), RuntimeError> {
    events(Event::Ready { weight_bytes: rank.weight_bytes() });
    let mut message = Vec::new();
    loop {
        match rank.world.recv_message_within(0, &mut message, IDLE_ROUND) {
            Ok(()) => {
                let Order::Run(step) = postcard::from_bytes(&message).map_err(RuntimeError::Order)?;
                rank.run_step(&step)?;
            }
            Err(error) if error.is_timeout() => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// f32 as the bytes that travel; all ranks are little-endian.
pub(crate) fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// The reverse of [`bytes`].
pub(crate) fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|&word| f32::from_le_bytes(word)).collect()
}
