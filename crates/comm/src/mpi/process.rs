//! MPI as this process has it: started once, called by one thread at a time, ended with the process.
//!
//! A thread of its own, the *keeper*, starts MPI and ends it, because the standard wants one thread to do both and
//! because both may wait for other ranks. MPI cannot be started again after its end, so it ends when the process does,
//! not with the last group.
//!
//! **The end.** MPI_Finalize waits for all ranks, and a launcher takes a rank that ends without it for a crash and ends
//! the others. Both are right: when all has gone well, a rank that is done waits for those that still work, as in every
//! MPI program. When the last group failed, some rank may never come. Then the wait is limited: to two seconds when a
//! rank has died, else to what a call of that group might have waited, which leaves the others time to end in their own
//! way. A rank that gives up makes the launcher clean up.

use super::{
    api::{Api, MpiError, World},
    library::{self, Loaded},
};
use crate::{CommError, stop::Stop, transport::lock};
use std::{
    env,
    ops::Deref,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{
            AtomicI32,
            Ordering::{AcqRel, Acquire},
        },
        mpsc::{self, RecvTimeoutError, SyncSender},
    },
    thread,
    time::Duration,
};

/// The keeper looks up so often while it has nothing to do.
const KEEPER_NAP: Duration = Duration::from_secs(3600);

/// The largest tag that every implementation allows.
const LARGEST_TAG: i32 = 32_767;

/// Tags that one group uses.
pub(super) const TAGS_PER_GROUP: i32 = 3;

/// This process's MPI, or why it has none. Stays what it was at first: MPI can be started once.
static PROCESS: OnceLock<Result<Arc<Process>, String>> = OnceLock::new();

pub(super) struct Process {
    pub(super) world: World,
    /// How the library calls itself.
    pub(super) version: String,
    inner: Mutex<Inner>,
    next_tag: AtomicI32,
    /// How long the end may wait for other ranks; for ever when there is no reason to doubt that they come.
    patience: Mutex<Option<Duration>>,
    exiting: Stop,
    finalized: Mutex<bool>,
    changed: Condvar,
}

struct Inner {
    api: Box<dyn Api>,
    ended: bool,
}

impl std::fmt::Debug for Process {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Process").field("world", &self.world).field("version", &self.version).finish()
    }
}

/// The right to call MPI.
pub(super) struct Entered<'a>(MutexGuard<'a, Inner>);

impl Deref for Entered<'_> {
    type Target = dyn Api;

    fn deref(&self) -> &Self::Target {
        &*self.0.api
    }
}

impl Process {
    /// Starts MPI in this process unless that has been done, waiting at most `within` for the other ranks.
    ///
    /// # Errors
    /// [`CommError::Setup`] when there is no library, it cannot start, or the launcher is another library's.
    pub(super) fn get(within: Duration) -> Result<Arc<Self>, CommError> {
        let made = PROCESS.get_or_init(|| start(within));
        made.clone().map_err(|what| CommError::Setup { what })
    }

    /// Waits for other threads that call MPI just now: microseconds, as no call waits for anybody.
    ///
    /// # Errors
    /// [`CommError::Setup`] when this process is about to end.
    pub(super) fn enter(&self) -> Result<Entered<'_>, CommError> {
        let inner = lock(&self.inner);
        if inner.ended {
            return Err(CommError::Setup { what: "this process is ending, and MPI with it".into() });
        }
        Ok(Entered(inner))
    }

    /// The first of a new group's tags. All ranks make their groups in the same order, so they get the same.
    ///
    /// # Errors
    /// [`CommError::Setup`] after some ten thousand groups.
    pub(super) fn take_tags(&self) -> Result<i32, CommError> {
        let next = |tag: i32| (tag <= LARGEST_TAG - TAGS_PER_GROUP).then_some(tag + TAGS_PER_GROUP);
        self.next_tag.fetch_update(AcqRel, Acquire, next).map_err(|_| CommError::Setup {
            what: "too many MPI groups in one process; start it again, or keep groups longer".into(),
        })
    }

    /// Sets how long the end of the process waits for the other ranks: for ever after all have been seen alive, else for
    /// some time.
    pub(super) fn wait_at_end(&self, limit: Option<Duration>) {
        *lock(&self.patience) = limit;
    }

    /// Lets the keeper end MPI and waits for that.
    fn finish(&self) {
        self.exiting.stop();
        let limit = lock(&self.patience).unwrap_or(Duration::MAX);
        let finalized = lock(&self.finalized);
        let waited = self.changed.wait_timeout_while(finalized, limit, |finalized| !*finalized);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

fn start(within: Duration) -> Result<Arc<Process>, String> {
    let loaded = library::load()?;
    let (tell, hear) = mpsc::sync_channel(1);
    thread::Builder::new()
        .name("pomar-mpi".into())
        .spawn(move || keep(loaded, &tell))
        .map_err(|error| format!("starting the thread for MPI: {error}"))?;
    let process = hear.recv_timeout(within).map_err(|error| match error {
        RecvTimeoutError::Timeout => format!("MPI did not start within {within:?}; did all ranks start?"),
        RecvTimeoutError::Disconnected => "the thread for MPI ended early".into(),
    })??;
    // SAFETY: a function without arguments that may run at any time from now on. When the system has no room for it (it
    // has for 32 at least), the launcher complains about the missing MPI_Finalize, which is all.
    unsafe { libc::atexit(at_exit) };
    match library::launched_ranks(&|name| env::var(name).ok()) {
        Some(launched) if launched > 1 && process.world.size == 1 => Err(format!(
            "the launcher started {launched} ranks, but this one is alone with {}; give the path of the MPI library \
             that belongs to the launcher in {}",
            process.version,
            library::LIBRARY_VARIABLE
        )),
        _ => Ok(process),
    }
}

/// The keeper's life.
fn keep(loaded: Loaded, tell: &SyncSender<Result<Arc<Process>, String>>) {
    let Loaded { mut api, version } = loaded;
    let world = match api.start() {
        Ok(world) => world,
        Err(MpiError { call, text }) => {
            // Nobody hears it when the deadline has passed.
            let _ = tell.send(Err(format!("{call} failed: {text}")));
            return;
        }
    };
    let process = Arc::new(Process {
        world,
        version,
        inner: Mutex::new(Inner { api, ended: false }),
        next_tag: AtomicI32::new(1),
        patience: Mutex::new(None),
        exiting: Stop::default(),
        finalized: Mutex::new(false),
        changed: Condvar::new(),
    });
    let _ = tell.send(Ok(Arc::clone(&process)));
    while !process.exiting.wait(KEEPER_NAP) {}
    let mut inner = lock(&process.inner);
    inner.ended = true;
    inner.api.finalize();
    *lock(&process.finalized) = true;
    process.changed.notify_all();
}

extern "C" fn at_exit() {
    if let Some(Ok(process)) = PROCESS.get() {
        process.finish();
    }
}
