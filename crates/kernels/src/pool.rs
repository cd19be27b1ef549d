//! A pool of threads for work that lasts microseconds.
//!
//! A forward pass calls [`Pool::run`] hundreds of times a token, so what counts is the time from the call to
//! the first task on the other threads. Workers therefore spin a few microseconds after their last task, then
//! offer the processor to others while they look, and only then sleep.
//!
//! The whole protocol is two counters. `unclaimed` is the number of tasks nobody has taken: a thread that
//! lowers it from `r` to `r - 1` owns task `tasks - r`. `unfinished` is the number of tasks that are not
//! done: the caller returns when it is zero. A worker that wakes late finds `unclaimed` at zero and touches
//! nothing, so nobody ever waits for a sleeper that has nothing to do.

use std::any::Any;
use std::hint::spin_loop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::disjoint::Disjoint;
use crate::level::{Level, level};

/// Looks at the counter before a waiting thread starts to offer its processor to others: some microseconds.
const SPINS: u32 = 200;

/// How long a waiting thread looks, giving way between looks, before it sleeps. Waking a sleeper costs tens
/// of microseconds, and the pauses between the kernels of one forward pass are shorter than this.
const PATIENCE: Duration = Duration::from_micros(200);

/// The number of threads this machine runs at once (1 when the system doesn't say).
pub fn default_threads() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// A fixed set of threads that run numbered tasks together with the thread that calls.
///
/// Results never depend on the number of threads as long as each task writes only what is its own: which
/// thread takes which task, and in what order, is not determined.
#[derive(Debug)]
pub struct Pool {
    level: Level,
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

impl Pool {
    /// A pool of `threads` threads, the caller's included: 1 (or 0) starts none and runs everything inline.
    ///
    /// When the system refuses to start a thread, the pool works with those it has: see [`Pool::threads`].
    pub fn new(threads: usize) -> Self {
        Self::with_level(threads, level())
    }

    /// Like [`Pool::new`], for kernels that run with the instructions of `level`.
    pub fn with_level(threads: usize, level: Level) -> Self {
        let shared = Arc::new(Shared::default());
        let workers = (1..threads).map_while(|index| {
            let shared = Arc::clone(&shared);
            thread::Builder::new().name(format!("pomar-pool-{index}")).spawn(move || shared.work(index)).ok()
        });
        let workers = workers.collect();
        Self { level, shared, workers }
    }

    /// The number of threads that share the work, the caller's included.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// The instruction set that kernels given this pool use.
    pub fn level(&self) -> Level {
        self.level
    }

    /// Runs `f(0)`, `f(1)`, … `f(tasks - 1)`, each once, on all threads, and returns when all are done.
    ///
    /// A call from inside a task, or from a second thread while a run is under way, runs its tasks inline.
    ///
    /// # Panics
    ///
    /// When a task panics, the first panic goes on in the caller once no task runs any more.
    pub fn run(&self, tasks: usize, f: &(dyn Fn(usize) + Sync)) {
        self.run_indexed(tasks, &|_, task| f(task));
    }

    /// Like [`Pool::run`], calling `f(thread, task)`: no two tasks of one run have the same `thread`
    /// (`0..threads()`) at the same time, so it can choose a scratch buffer.
    ///
    /// # Panics
    ///
    /// As [`Pool::run`].
    pub fn run_indexed(&self, tasks: usize, f: &(dyn Fn(usize, usize) + Sync)) {
        let alone = self.workers.is_empty() || tasks <= 1;
        if alone || self.shared.busy.swap(true, Ordering::Acquire) {
            (0..tasks).for_each(|task| f(0, task));
            return;
        }
        let panic = self.shared.run(&Job { f, tasks });
        self.shared.busy.store(false, Ordering::Release);
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    /// Cuts `out` into pieces of `len` elements (the last may be shorter) and runs `f(piece index, piece)` on
    /// all threads.
    ///
    /// # Panics
    ///
    /// When `len` is 0, and as [`Pool::run`].
    pub fn run_chunks<T: Send>(&self, out: &mut [T], len: usize, f: &(dyn Fn(usize, &mut [T]) + Sync)) {
        let total = out.len();
        let out = Disjoint::new(out);
        self.run(total.div_ceil(len), &|index| {
            let start = index * len;
            // SAFETY: pieces of different indices don't overlap, and each index is run once.
            f(index, unsafe { out.part(start..total.min(start + len)) });
        });
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop();
        for worker in self.workers.drain(..) {
            // A worker catches the panics of its tasks, so there is nothing to report here.
            let _ = worker.join();
        }
    }
}

/// One call of [`Pool::run_indexed`]. It lives on the caller's stack until all of its tasks are done.
struct Job<'a> {
    f: &'a (dyn Fn(usize, usize) + Sync),
    tasks: usize,
}

type Panic = Box<dyn Any + Send>;

/// Keeps counters that different threads write on different cache lines (128: Apple's size, and Intel's
/// pairs).
#[derive(Debug, Default)]
#[repr(align(128))]
struct Line<T>(T);

#[derive(Debug, Default)]
struct Shared {
    /// Tasks of the current job that nobody has taken.
    unclaimed: Line<AtomicUsize>,
    /// Tasks of the current job that are not done.
    unfinished: Line<AtomicUsize>,
    /// The current job; valid while `unfinished` is not zero.
    job: AtomicPtr<Job<'static>>,
    /// A job is under way.
    busy: AtomicBool,
    stopping: AtomicBool,
    /// Workers asleep on `work_came`, or about to be.
    sleepers: AtomicUsize,
    /// The caller sleeps on `work_ended`, or is about to.
    caller_sleeps: AtomicBool,
    gate: Mutex<()>,
    work_came: Condvar,
    work_ended: Condvar,
    panic: Mutex<Option<Panic>>,
}

impl Shared {
    /// The caller's side: publishes `job`, helps, waits for the rest, and hands back the first panic.
    fn run(&self, job: &Job<'_>) -> Option<Panic> {
        self.job.store(std::ptr::from_ref(job).cast_mut().cast(), Ordering::Relaxed);
        self.unfinished.0.store(job.tasks, Ordering::Relaxed);
        // Sequentially consistent, as is the sleeper's side: either we see the sleeper or it sees the work.
        self.unclaimed.0.store(job.tasks, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            let _gate = self.lock_gate();
            self.work_came.notify_all();
        }
        self.help(0);
        self.wait_for_the_rest();
        self.panic.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Takes and runs tasks until there is none left to take.
    fn help(&self, thread: usize) {
        while let Some(rest) = self.claim() {
            // SAFETY: we own a task that is not done, so `unfinished` is not zero, the caller is still inside
            // `run`, and the job on its stack is alive. The claim acquired what the caller published.
            let job = unsafe { &*self.job.load(Ordering::Relaxed) };
            let task = job.tasks - rest;
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (job.f)(thread, task))) {
                self.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(panic);
            }
            // From here on `job` may be gone.
            let last = self.unfinished.0.fetch_sub(1, Ordering::SeqCst) == 1;
            if last && self.caller_sleeps.load(Ordering::SeqCst) {
                let _gate = self.lock_gate();
                self.work_ended.notify_one();
            }
        }
    }

    /// Takes one task: how many were left, that one included.
    fn claim(&self) -> Option<usize> {
        let less = |left: usize| left.checked_sub(1);
        self.unclaimed.0.fetch_update(Ordering::Acquire, Ordering::Relaxed, less).ok()
    }

    fn wait_for_the_rest(&self) {
        let done = || self.unfinished.0.load(Ordering::SeqCst) == 0;
        if look_patiently(done) {
            return;
        }
        self.caller_sleeps.store(true, Ordering::SeqCst);
        let mut gate = self.lock_gate();
        while !done() {
            gate = self.work_ended.wait(gate).unwrap_or_else(PoisonError::into_inner);
        }
        self.caller_sleeps.store(false, Ordering::SeqCst);
    }

    /// A worker's life.
    fn work(&self, thread: usize) {
        while !self.stopping.load(Ordering::Acquire) {
            self.help(thread);
            self.wait_for_work();
        }
    }

    fn wait_for_work(&self) {
        let came = || self.unclaimed.0.load(Ordering::SeqCst) > 0 || self.stopping.load(Ordering::SeqCst);
        if look_patiently(came) {
            return;
        }
        let mut gate = self.lock_gate();
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        while !came() {
            gate = self.work_came.wait(gate).unwrap_or_else(PoisonError::into_inner);
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }

    fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        let _gate = self.lock_gate();
        self.work_came.notify_all();
    }

    fn lock_gate(&self) -> MutexGuard<'_, ()> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Spins, then gives way between looks, until `ready` (true) or until [`PATIENCE`] is over (false).
fn look_patiently(ready: impl Fn() -> bool) -> bool {
    for _ in 0..SPINS {
        if ready() {
            return true;
        }
        spin_loop();
    }
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        if ready() {
            return true;
        }
        thread::yield_now();
    }
    ready()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    #[test]
    fn every_task_runs_once_for_any_number_of_threads() {
        for threads in 0..=8 {
            let pool = Pool::new(threads);
            assert_eq!(pool.threads(), threads.max(1));
            for tasks in [0, 1, 2, 3, 7, 64, 1000] {
                let seen: Vec<AtomicU32> = (0..tasks).map(|_| AtomicU32::new(0)).collect();
                pool.run(tasks, &|task| {
                    seen[task].fetch_add(1, Ordering::Relaxed);
                });
                assert!(
                    seen.iter().all(|n| n.load(Ordering::Relaxed) == 1),
                    "{threads} threads, {tasks} tasks"
                );
            }
        }
    }

    #[test]
    fn many_small_runs_lose_no_task() {
        for threads in [2, 3, 8] {
            let pool = Pool::new(threads);
            let sum = AtomicUsize::new(0);
            for _ in 0..20_000 {
                pool.run(5, &|task| {
                    sum.fetch_add(task, Ordering::Relaxed);
                });
            }
            assert_eq!(sum.into_inner(), 20_000 * 10);
        }
    }

    #[test]
    fn workers_that_fell_asleep_wake_up_again() {
        let pool = Pool::new(4);
        for _ in 0..20 {
            thread::sleep(PATIENCE * 5);
            // Each task waits for the other, so this ends only when two threads run.
            let here = AtomicUsize::new(0);
            pool.run(2, &|_| {
                here.fetch_add(1, Ordering::SeqCst);
                let start = Instant::now();
                while here.load(Ordering::SeqCst) < 2 {
                    assert!(start.elapsed() < Duration::from_secs(20), "nobody woke up");
                    thread::yield_now();
                }
            });
        }
    }

    #[test]
    fn a_caller_that_fell_asleep_wakes_up_again() {
        let pool = Pool::new(2);
        for _ in 0..5 {
            let caller = thread::current().id();
            let worker_came = AtomicBool::new(false);
            pool.run(2, &|_| {
                if thread::current().id() == caller {
                    while !worker_came.load(Ordering::SeqCst) {
                        thread::yield_now();
                    }
                } else {
                    worker_came.store(true, Ordering::SeqCst);
                    thread::sleep(PATIENCE * 20);
                }
            });
        }
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_goes_on() {
        let pool = Pool::new(3);
        for bad in 0..9 {
            let ran = AtomicUsize::new(0);
            let result = catch_unwind(AssertUnwindSafe(|| {
                pool.run(9, &|task| {
                    ran.fetch_add(1, Ordering::Relaxed);
                    assert_ne!(task, bad, "task {bad} fails");
                });
            }));
            let message = *result.expect_err("the panic is raised").downcast::<String>().expect("a message");
            assert!(message.contains(&format!("task {bad} fails")), "{message}");
            assert_eq!(ran.into_inner(), 9);
        }
    }

    #[test]
    fn a_run_inside_a_run_and_runs_from_two_threads_end() {
        let pool = Pool::new(3);
        let sum = AtomicUsize::new(0);
        let add = |task| {
            sum.fetch_add(task, Ordering::Relaxed);
        };
        pool.run(4, &|_| pool.run(4, &add));
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| (0..1000).for_each(|_| pool.run(4, &add)));
            }
        });
        assert_eq!(sum.into_inner(), 4 * 6 + 2000 * 6);
    }

    #[test]
    fn thread_numbers_are_exclusive() {
        let pool = Pool::new(4);
        let slots: Vec<Mutex<usize>> = (0..pool.threads()).map(|_| Mutex::new(0)).collect();
        for _ in 0..1000 {
            pool.run_indexed(16, &|thread, _| *slots[thread].try_lock().expect("nobody else has it") += 1);
        }
        assert_eq!(slots.iter().map(|slot| *slot.lock().expect("no panic")).sum::<usize>(), 16_000);
    }

    #[test]
    fn chunks_cover_the_slice() {
        let pool = Pool::new(3);
        let mut out = vec![0; 103];
        pool.run_chunks(&mut out, 10, &|index, chunk| chunk.fill(index + 1));
        assert!(out.iter().enumerate().all(|(i, &x)| x == i / 10 + 1));
    }

    #[test]
    fn pools_come_and_go() {
        for _ in 0..50 {
            let pool = Pool::new(4);
            pool.run(3, &|_| {});
        }
    }
}
