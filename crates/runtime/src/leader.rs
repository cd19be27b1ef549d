//! Rank 0: owns the batch, decides each step, and chooses the tokens.
//!
//! The loop: hear commands; while fewer steps are in flight than there are stages, plan one, tell the other ranks and
//! run the own part of it; then wait for the oldest step's logits and act on them. Logits come in on a thread of
//! their own, so that a last stage that sends never waits for a leader that sends.

use crate::{
    RuntimeError,
    protocol::{Command, Event, Order},
    rank::{EventSink, Rank, floats},
    scheduler::{Planned, Scheduler},
};
use pomar_comm::Group;
use pomar_engine::{Chunk, Logits, Shard, Step};
use std::{
    collections::VecDeque,
    ops::Range,
    sync::{Arc, mpsc},
    thread,
};

/// Leads until `commands` ends.
pub(crate) fn lead(
    rank: Rank,
    commands: &mpsc::Receiver<Command>,
    events: &mut EventSink,
) -> Result<(), RuntimeError> {
    let split = rank.spec.split;
    let mut scheduler = Scheduler::new(rank.spec.limits, split.pp, rank.config.vocab_size);
    let mut pipeline = Pipeline::new(rank);
    pipeline.warm_up()?;
    events(Event::Ready { weight_bytes: pipeline.rank.weight_bytes() });

    let mut flying: VecDeque<InFlight> = VecDeque::new();
    loop {
        if !hear(commands, &mut scheduler, events, flying.is_empty()) {
            return Ok(());
        }
        while flying.len() < split.pp {
            let Some(planned) = scheduler.next_step() else {
                break;
            };
            let own_logits = pipeline.start(&planned.step)?;
            flying.push_back(InFlight { planned, own_logits });
        }
        let Some(oldest) = flying.pop_front() else {
            continue;
        };
        let logits = pipeline.finish(&oldest.planned.step, oldest.own_logits)?;
        for (id, event) in scheduler.finish_step(&oldest.planned, &logits) {
            events(Event::Request(id, event));
        }
    }
}

struct InFlight {
    planned: Planned,
    own_logits: Vec<f32>,
}

/// Takes in all commands there are, waiting for one only when there is nothing to do. False when the front is gone.
fn hear(
    commands: &mpsc::Receiver<Command>,
    scheduler: &mut Scheduler,
    events: &mut EventSink,
    nothing_flies: bool,
) -> bool {
    loop {
        let command = if nothing_flies && scheduler.is_idle() {
            commands.recv().map_err(|_| mpsc::TryRecvError::Disconnected)
        } else {
            commands.try_recv()
        };
        match command {
            Ok(Command::Submit(request)) => {
                let id = request.id;
                if let Err(refusal) = scheduler.submit(request) {
                    events(Event::Request(id, refusal));
                }
            }
            Ok(Command::Cancel(id)) => scheduler.cancel(id),
            Ok(Command::Connect { .. }) => {}
            Err(mpsc::TryRecvError::Empty) => return true,
            Err(mpsc::TryRecvError::Disconnected) => return false,
        }
    }
}

/// All ranks as the leader drives them.
struct Pipeline {
    rank: Rank,
    collector: Option<Collector>,
}

/// The thread that receives the other ranks' logits, step by step.
struct Collector {
    wanted: mpsc::Sender<usize>,
    arrived: mpsc::Receiver<Result<Vec<Columns>, RuntimeError>>,
}

/// Logits of one rank: its vocabulary rows, and their values `[logit rows, range]`.
struct Columns {
    vocab: Range<usize>,
    logits: Vec<f32>,
}

impl Pipeline {
    fn new(rank: Rank) -> Self {
        let last_stage: Vec<(usize, Range<usize>)> = rank
            .shards
            .iter()
            .enumerate()
            .filter(|(number, shard)| shard.is_last && *number != 0)
            .map(|(number, shard): (usize, &Shard)| (number, shard.vocab.clone()))
            .collect();
        let collector =
            (!last_stage.is_empty()).then(|| Collector::start(Arc::clone(&rank.world), last_stage));
        Self { rank, collector }
    }

    /// Sends a step on its way and runs this rank's part of it.
    fn start(&mut self, step: &Step) -> Result<Vec<f32>, RuntimeError> {
        if self.rank.world.size() > 1 {
            let order = postcard::to_stdvec(&Order::Run(step.clone())).map_err(RuntimeError::Order)?;
            for peer in 1..self.rank.world.size() {
                self.rank.world.send_message(peer, &order)?;
            }
        }
        if let (Some(collector), rows @ 1..) = (&self.collector, step.logit_rows()) {
            collector.wanted.send(rows).map_err(|_| RuntimeError::Collector)?;
        }
        self.rank.run_step(step)
    }

    /// The step's logits `[logit rows, vocab]`, when all ranks have made theirs.
    fn finish(&mut self, step: &Step, own: Vec<f32>) -> Result<Vec<f32>, RuntimeError> {
        let rows = step.logit_rows();
        let Some(collector) = self.collector.as_ref().filter(|_| rows > 0) else {
            return Ok(own);
        };
        let mut columns = collector.arrived.recv().map_err(|_| RuntimeError::Collector)??;
        let shard = &self.rank.shards[0];
        if shard.is_last {
            columns.insert(0, Columns { vocab: shard.vocab.clone(), logits: own });
        }
        Ok(join(&columns, rows, self.rank.config.vocab_size))
    }

    /// One step of one token through all ranks, so that the first request finds everything in place.
    fn warm_up(&mut self) -> Result<(), RuntimeError> {
        let chunk = Chunk { tokens: vec![0], start: 0, pages: vec![0], logits: Logits::Last };
        let step = Step { chunks: vec![chunk] };
        let own = self.start(&step)?;
        self.finish(&step, own).map(|_| ())
    }
}

impl Collector {
    fn start(world: Arc<dyn Group>, last_stage: Vec<(usize, Range<usize>)>) -> Self {
        let (wanted, steps) = mpsc::channel();
        let (sender, arrived) = mpsc::channel();
        thread::spawn(move || {
            for rows in steps {
                let collected = collect(&*world, &last_stage, rows);
                if sender.send(collected).is_err() {
                    return;
                }
            }
        });
        Self { wanted, arrived }
    }
}

fn collect(
    world: &dyn Group,
    last_stage: &[(usize, Range<usize>)],
    rows: usize,
) -> Result<Vec<Columns>, RuntimeError> {
    let receive = |(rank, vocab): &(usize, Range<usize>)| {
        let mut bytes = vec![0; rows * vocab.len() * size_of::<f32>()];
        world.recv(*rank, &mut bytes)?;
        Ok(Columns { vocab: vocab.clone(), logits: floats(&bytes) })
    };
    last_stage.iter().map(receive).collect()
}

/// Whole rows of logits from the ranks' columns.
fn join(columns: &[Columns], rows: usize, vocab: usize) -> Vec<f32> {
    let mut joined = vec![0.0; rows * vocab];
    for (row, whole) in joined.chunks_exact_mut(vocab).enumerate() {
        for part in columns {
            let width = part.vocab.len();
            whole[part.vocab.clone()].copy_from_slice(&part.logits[row * width..(row + 1) * width]);
        }
    }
    joined
}
