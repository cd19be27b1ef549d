//! A model that runs: its ranks are started, watched, and started again when one dies.
//!
//! A thread of the instance owns everything; handles talk to it. States: loading, ready, and from there to loading
//! again when a rank dies, or to failed when that doesn't help.

use crate::{
    RuntimeError,
    protocol::{Command, Event, Limits, RankSpec, RankTransport, Request, RequestEvent, RequestId},
    team::{Heard, Listener, Team, Transport},
};
use pomar_engine::Split;
use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// Ranks must be ready within this time.
const LOAD_DEADLINE: Duration = Duration::from_secs(600);
/// Pauses before the ranks are started again when loading them failed; then the instance gives up.
const RETRY_PAUSES: [Duration; 3] =
    [Duration::from_millis(200), Duration::from_secs(1), Duration::from_secs(3)];

/// What to run and how.
#[derive(Clone, Debug)]
pub struct InstanceSpec {
    /// Folder or `.gguf` file.
    pub model: PathBuf,
    /// How it is divided.
    pub split: Split,
    /// Threads that each rank computes with.
    pub threads: usize,
    /// Bounds.
    pub limits: Limits,
    /// How ranks reach each other.
    pub transport: Transport,
    /// The program to start ranks with (`PROGRAM rank`); `None` runs an unsplit model on a thread of this process.
    pub program: Option<PathBuf>,
}

/// What an instance is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Ranks are starting and reading weights; requests wait.
    Loading,
    /// Requests are served.
    Ready,
    /// The ranks can't be started; requests fail with this reason.
    Failed(String),
}

/// Takes a request's events. Called on the instance's thread: it must not block.
pub type RequestSink = Box<dyn FnMut(RequestEvent) + Send>;

/// A running model. Dropping it ends its ranks.
pub struct Instance {
    messages: mpsc::Sender<Message>,
    shared: Arc<Shared>,
    next_id: AtomicU64,
    supervisor: Option<JoinHandle<()>>,
}

/// A request's place in the instance. Dropping it cancels the request, if it is not finished.
pub struct Ticket {
    id: RequestId,
    messages: mpsc::Sender<Message>,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let _ = self.messages.send(Message::Cancel(self.id));
    }
}

struct Shared {
    facts: Mutex<Facts>,
    changed: Condvar,
}

struct Facts {
    state: State,
    processes: Vec<Option<u32>>,
    weight_bytes: usize,
}

impl Shared {
    fn facts(&self) -> MutexGuard<'_, Facts> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_state(&self, state: State) {
        self.facts().state = state;
        self.changed.notify_all();
    }
}

enum Message {
    Submit(Request, RequestSink),
    Cancel(RequestId),
    Rank { attempt: u64, rank: usize, heard: Heard },
    Stop,
}

impl Instance {
    /// Starts the ranks and returns when all are ready.
    ///
    /// # Errors
    /// The reason when they can't be started or loaded; nothing is left running then.
    pub fn start(spec: InstanceSpec) -> Result<Self, RuntimeError> {
        let (messages, inbox) = mpsc::channel();
        let facts = Facts { state: State::Loading, processes: Vec::new(), weight_bytes: 0 };
        let shared = Arc::new(Shared { facts: Mutex::new(facts), changed: Condvar::new() });
        let supervisor = Supervisor {
            spec,
            inbox,
            messages: messages.clone(),
            shared: Arc::clone(&shared),
            sinks: HashMap::new(),
            waiting: Vec::new(),
            attempt: 0,
            was_ready: false,
        };
        let supervisor = Some(thread::spawn(move || supervisor.run()));
        let instance = Self { messages, shared, next_id: AtomicU64::new(1), supervisor };
        match instance.wait_while_loading() {
            State::Failed(reason) => Err(RuntimeError::RankDied(reason)),
            _ => Ok(instance),
        }
    }

    /// Sends a request on its way; its events go to `sink`, until one that is the last ([`RequestEvent::is_last`]). The request's id
    /// is replaced by one of the instance's own.
    pub fn submit(&self, request: Request, sink: impl FnMut(RequestEvent) + Send + 'static) -> Ticket {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let _ = self.messages.send(Message::Submit(Request { id, ..request }, Box::new(sink)));
        Ticket { id, messages: self.messages.clone() }
    }

    /// Runs a request to its end and returns its events.
    ///
    /// # Errors
    /// The reason when it failed.
    pub fn run(&self, request: Request) -> Result<Vec<RequestEvent>, RuntimeError> {
        let (sender, events) = mpsc::channel();
        let _ticket = self.submit(request, move |event| drop(sender.send(event)));
        let mut all = Vec::new();
        for event in events {
            if let Some(reason) = event.failure() {
                return Err(RuntimeError::Request(reason.into()));
            }
            let is_last = event.is_last();
            all.push(event);
            if is_last {
                return Ok(all);
            }
        }
        Err(RuntimeError::Stopped)
    }

    /// What the instance is doing now.
    #[must_use]
    pub fn state(&self) -> State {
        self.shared.facts().state.clone()
    }

    /// Process numbers by rank; `None` for a rank that is a thread of this process. Empty while none run.
    #[must_use]
    pub fn processes(&self) -> Vec<Option<u32>> {
        self.shared.facts().processes.clone()
    }

    /// Bytes of weights in all ranks together.
    #[must_use]
    pub fn weight_bytes(&self) -> usize {
        self.shared.facts().weight_bytes
    }

    fn wait_while_loading(&self) -> State {
        let facts = self.shared.facts();
        let loading = |facts: &mut Facts| facts.state == State::Loading;
        let facts = self.shared.changed.wait_while(facts, loading).unwrap_or_else(PoisonError::into_inner);
        facts.state.clone()
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = self.messages.send(Message::Stop);
        if let Some(supervisor) = self.supervisor.take() {
            let _ = supervisor.join();
        }
    }
}

/// The instance's own thread.
struct Supervisor {
    spec: InstanceSpec,
    inbox: mpsc::Receiver<Message>,
    messages: mpsc::Sender<Message>,
    shared: Arc<Shared>,
    /// Where the events of unfinished requests go.
    sinks: HashMap<RequestId, RequestSink>,
    /// Requests that came while no leader was ready.
    waiting: Vec<Request>,
    /// Counts teams, so that a late word from a dead rank is not taken for one of the living.
    attempt: u64,
    was_ready: bool,
}

/// Why a team's life ended.
enum End {
    Stopped,
    Died { reason: String, had_been_ready: bool },
}

impl Supervisor {
    fn run(mut self) {
        let mut failures = 0;
        loop {
            let end = match self.start_team() {
                Ok(team) => self.serve(team),
                Err(error) => End::Died { reason: error.to_string(), had_been_ready: false },
            };
            let (reason, had_been_ready) = match end {
                End::Stopped => break,
                End::Died { reason, had_been_ready } => (reason, had_been_ready),
            };
            self.shared.facts().processes.clear();
            failures = if had_been_ready { 0 } else { failures + 1 };
            let retry = RETRY_PAUSES.get(failures).filter(|_| self.was_ready);
            let Some(pause) = retry else {
                return self.give_up(reason);
            };
            tracing::warn!("{reason}; the model is being loaded again");
            self.shared.set_state(State::Loading);
            self.fail_all(&format!("{reason}; the model is being loaded again, try again in a moment"));
            thread::sleep(*pause);
        }
        self.fail_all("the instance was stopped");
    }

    fn rank_spec(&self) -> RankSpec {
        RankSpec {
            model: self.spec.model.clone(),
            split: self.spec.split,
            rank: 0,
            threads: self.spec.threads,
            limits: self.spec.limits,
            transport: RankTransport::Solo,
        }
    }

    fn start_team(&mut self) -> Result<Team, RuntimeError> {
        self.attempt += 1;
        let (attempt, messages) = (self.attempt, self.messages.clone());
        let listener = || -> Listener {
            let messages = messages.clone();
            Box::new(move |rank, heard| drop(messages.send(Message::Rank { attempt, rank, heard })))
        };
        let base = self.rank_spec();
        match &self.spec.program {
            Some(program) => Team::processes(program, &base, &self.spec.transport, listener),
            None => Ok(Team::thread(&base, listener())),
        }
    }

    /// Serves requests with a team until it dies or the instance is stopped.
    fn serve(&mut self, mut team: Team) -> End {
        let base = self.rank_spec();
        let started = Instant::now();
        let mut ready = false;
        self.shared.facts().processes = team.processes_by_rank();
        self.shared.facts().weight_bytes = 0;
        loop {
            let message = if ready {
                self.inbox.recv().map_err(|_| mpsc::RecvTimeoutError::Disconnected)
            } else {
                self.inbox.recv_timeout(LOAD_DEADLINE.saturating_sub(started.elapsed()))
            };
            match message {
                Ok(Message::Rank { attempt, .. }) if attempt != self.attempt => {}
                Ok(Message::Rank { heard: Heard::Event(Event::Request(id, event)), .. }) => {
                    self.pass_on(id, event)
                }
                Ok(Message::Rank { rank, heard: Heard::Event(event), .. }) => {
                    if let Event::Ready { weight_bytes } = event {
                        self.shared.facts().weight_bytes += weight_bytes;
                    }
                    match team.note(rank, &event, &base) {
                        Ok(false) => {}
                        Ok(true) => {
                            ready = true;
                            self.was_ready = true;
                            self.waiting
                                .drain(..)
                                .for_each(|request| team.tell_leader(Command::Submit(request)));
                            self.shared.set_state(State::Ready);
                        }
                        Err(error) => {
                            return End::Died { reason: error.to_string(), had_been_ready: ready };
                        }
                    }
                }
                Ok(Message::Rank { heard: Heard::Closed, .. }) => {
                    return End::Died { reason: team.post_mortem(), had_been_ready: ready };
                }
                Ok(Message::Submit(request, sink)) => {
                    self.sinks.insert(request.id, sink);
                    if ready {
                        team.tell_leader(Command::Submit(request));
                    } else {
                        self.hold(request);
                    }
                }
                Ok(Message::Cancel(id)) => {
                    self.waiting.retain(|request| request.id != id);
                    if self.sinks.remove(&id).is_some() && ready {
                        team.tell_leader(Command::Cancel(id));
                    }
                }
                Ok(Message::Stop) | Err(mpsc::RecvTimeoutError::Disconnected) => return End::Stopped,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    let (rank, seconds) = (team.missing(), LOAD_DEADLINE.as_secs());
                    let reason = RuntimeError::NotReady { rank, seconds }.to_string();
                    return End::Died { reason, had_been_ready: ready };
                }
            }
        }
    }

    fn pass_on(&mut self, id: RequestId, event: RequestEvent) {
        let last = event.is_last();
        if let Some(sink) = self.sinks.get_mut(&id) {
            sink(event);
        }
        if last {
            self.sinks.remove(&id);
        }
    }

    /// Keeps a request until the ranks are ready, if not too many wait already.
    fn hold(&mut self, request: Request) {
        if self.waiting.len() < self.spec.limits.waiting {
            self.waiting.push(request);
        } else {
            let reason =
                format!("{} requests are waiting for the model to load; try again later", self.waiting.len());
            self.pass_on(request.id, RequestEvent::Busy(reason));
        }
    }

    /// Ends every request that a dead team had begun. Those still waiting for a leader keep waiting.
    fn fail_all(&mut self, reason: &str) {
        let keep: Vec<RequestId> = self.waiting.iter().map(|request| request.id).collect();
        let begun: Vec<RequestId> = self.sinks.keys().copied().filter(|id| !keep.contains(id)).collect();
        begun.into_iter().for_each(|id| self.pass_on(id, RequestEvent::Failed(reason.into())));
    }

    /// Answers everything with the reason until the instance is dropped.
    fn give_up(mut self, reason: String) {
        self.waiting.clear();
        self.fail_all(&reason);
        self.shared.set_state(State::Failed(reason.clone()));
        while let Ok(message) = self.inbox.recv() {
            match message {
                Message::Submit(_, mut sink) => sink(RequestEvent::Failed(reason.clone())),
                Message::Stop => return,
                Message::Cancel(_) | Message::Rank { .. } => {}
            }
        }
    }
}
