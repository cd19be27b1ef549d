//! All that a process has made of the fake machine, behind one lock.

use crate::{
    completions::{Completions, Queues},
    device::DeviceState,
    door::Door,
    engine,
    memory::{Region, Regions},
    pair::{Around, Made, Pair, Refused},
    script::{FakeLimits, SCRIPT_VARIABLE, Script},
};
use pomar_verbs::sys;
use std::{
    collections::BTreeMap,
    env,
    ops::{Deref, DerefMut},
    sync::{LazyLock, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

/// An error number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) i32);

/// What a call of the verbs gives.
pub(crate) type Verb<T> = Result<T, Errno>;

pub(crate) struct World {
    pub(crate) devices: Vec<DeviceState>,
    /// Open contexts: which device each is of.
    contexts: BTreeMap<u32, usize>,
    /// Protection domains: which context each is of.
    domains: BTreeMap<u32, u32>,
    regions: Regions,
    queues: Queues,
    pairs: BTreeMap<u32, Pair>,
    /// Device lists that are not freed.
    pub(crate) lists: u64,
    /// Calls that were refused because something was used up.
    pub(crate) refusals: u64,
    next_handle: u32,
    /// The background thread must look anew at what to wait for.
    stale: bool,
}

static WORLD: LazyLock<Result<Mutex<World>, String>> = LazyLock::new(|| {
    let script = match env::var(SCRIPT_VARIABLE) {
        Ok(json) => Script::parse(&json)?,
        Err(env::VarError::NotPresent) => Script::default(),
        Err(error) => return Err(error.to_string()),
    };
    Ok(Mutex::new(World::new(script)))
});

/// The world, locked. When it is unlocked the background thread is woken, if it must look anew.
pub(crate) struct Locked(MutexGuard<'static, World>);

/// Locks the world.
///
/// # Errors
/// `EINVAL`, and the reason on standard error, when the script is wrong.
pub(crate) fn lock() -> Verb<Locked> {
    match &*WORLD {
        Ok(world) => Ok(Locked(world.lock().unwrap_or_else(PoisonError::into_inner))),
        Err(what) => {
            eprintln!("pomar-fake-verbs: {SCRIPT_VARIABLE}: {what}");
            Err(Errno(libc::EINVAL))
        }
    }
}

impl Deref for Locked {
    type Target = World;

    fn deref(&self) -> &World {
        &self.0
    }
}

impl DerefMut for Locked {
    fn deref_mut(&mut self) -> &mut World {
        &mut self.0
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        if self.0.stale {
            engine::wake();
        }
    }
}

impl World {
    fn new(script: Script) -> Self {
        Self {
            devices: script.devices.into_iter().map(DeviceState::new).collect(),
            contexts: BTreeMap::new(),
            domains: BTreeMap::new(),
            regions: Regions::new(),
            queues: Queues::new(),
            pairs: BTreeMap::new(),
            lists: 0,
            refusals: 0,
            next_handle: 1,
            stale: false,
        }
    }

    /// Objects that are not freed.
    pub(crate) fn live(&self) -> u64 {
        let objects = [
            self.contexts.len(),
            self.domains.len(),
            self.regions.len(),
            self.queues.len(),
            self.pairs.len(),
        ];
        self.lists + objects.iter().sum::<usize>() as u64
    }

    fn handle(&mut self) -> u32 {
        let handle = self.next_handle;
        self.next_handle += 1;
        handle
    }

    pub(crate) fn open(&mut self, device: usize) -> Verb<u32> {
        let now = Instant::now();
        let state = self.devices.get_mut(device).ok_or(Errno(libc::ENODEV))?;
        if state.is_dead() {
            return Err(Errno(libc::EIO));
        }
        state.opened(now);
        let handle = self.handle();
        self.contexts.insert(handle, device);
        self.stale = true;
        Ok(handle)
    }

    pub(crate) fn close(&mut self, context: u32) -> Verb<()> {
        let in_use = self.domains.values().any(|owner| *owner == context)
            || self.queues.values().any(|queue| queue.context == context);
        remove(&mut self.contexts, context, in_use)
    }

    /// The device of a context, if it lives.
    pub(crate) fn device(&mut self, context: u32) -> Verb<&mut DeviceState> {
        let device = *self.contexts.get(&context).ok_or(Errno(libc::EINVAL))?;
        self.strike(Instant::now());
        let state = &mut self.devices[device];
        if state.is_dead() { Err(Errno(libc::EIO)) } else { Ok(state) }
    }

    /// Checks that the device of `context` has one more of something, of which `used` counts those of one context.
    fn reserve(
        &mut self,
        context: u32,
        most: impl Fn(&FakeLimits) -> u32,
        used: impl Fn(&Self, u32) -> usize,
    ) -> Verb<()> {
        let limits = self.device(context)?.script.limits.clone();
        let device = self.contexts[&context];
        let same_device = self.contexts.iter().filter(|(_, other)| **other == device);
        let count: usize = same_device.map(|(context, _)| used(self, *context)).sum();
        if count < most(&limits) as usize {
            return Ok(());
        }
        self.refusals += 1;
        Err(Errno(limits.used_up.errno()))
    }

    pub(crate) fn make_domain(&mut self, context: u32) -> Verb<u32> {
        self.reserve(
            context,
            |limits| limits.protection_domains,
            |world, context| world.domains.values().filter(|owner| **owner == context).count(),
        )?;
        let handle = self.handle();
        self.domains.insert(handle, context);
        Ok(handle)
    }

    pub(crate) fn drop_domain(&mut self, domain: u32) -> Verb<()> {
        let in_use = self.regions.values().any(|region| region.domain == domain)
            || self.pairs.values().any(|pair| pair.made.domain == domain);
        remove(&mut self.domains, domain, in_use)
    }

    /// A registered region's key.
    pub(crate) fn register(&mut self, domain: u32, start: u64, bytes: u64) -> Verb<u32> {
        let context = self.context_of(domain)?;
        self.reserve(
            context,
            |limits| limits.memory_regions,
            |world, context| {
                world
                    .regions
                    .values()
                    .filter(|region| world.domains.get(&region.domain) == Some(&context))
                    .count()
            },
        )?;
        let fits = bytes <= self.device(context)?.script.limits.memory_region_bytes;
        if bytes == 0 || start.checked_add(bytes).is_none() || !fits {
            return Err(Errno(libc::EINVAL));
        }
        let key = self.handle();
        self.regions.insert(key, Region { domain, start, bytes });
        Ok(key)
    }

    pub(crate) fn deregister(&mut self, key: u32) -> Verb<()> {
        remove(&mut self.regions, key, false)
    }

    pub(crate) fn make_queue(&mut self, context: u32, entries: i32) -> Verb<u32> {
        self.reserve(
            context,
            |limits| limits.completion_queues,
            |world, context| world.queues.values().filter(|queue| queue.context == context).count(),
        )?;
        let most = self.device(context)?.script.limits.completion_entries;
        match u32::try_from(entries) {
            Ok(entries) if (1..=most).contains(&entries) => {
                let handle = self.handle();
                self.queues.insert(handle, Completions::new(context, entries as usize));
                Ok(handle)
            }
            _ => Err(Errno(libc::EINVAL)),
        }
    }

    pub(crate) fn drop_queue(&mut self, queue: u32) -> Verb<()> {
        let uses = |pair: &Pair| pair.made.send_queue == queue || pair.made.receive_queue == queue;
        let in_use = self.pairs.values().any(uses);
        remove(&mut self.queues, queue, in_use)
    }

    /// A queue pair's handle and number. `made` still lacks its handle and its device.
    pub(crate) fn make_pair(&mut self, made: Made) -> Verb<(u32, u32)> {
        let context = self.context_of(made.domain)?;
        let queues = [made.send_queue, made.receive_queue];
        let is_ours = |queue: &u32| self.queues.get(queue).is_some_and(|queue| queue.context == context);
        if !queues.iter().all(is_ours) {
            return Err(Errno(libc::EINVAL));
        }
        self.reserve(
            context,
            |limits| limits.queue_pairs,
            |world, context| {
                world
                    .pairs
                    .values()
                    .filter(|pair| world.domains.get(&pair.made.domain) == Some(&context))
                    .count()
            },
        )?;
        let script = &self.device(context)?.script;
        if !script.kinds.contains(&made.kind) {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        if made.most_sends.max(made.most_receives) > script.limits.work_requests as usize {
            return Err(Errno(libc::EINVAL));
        }
        let door = Door::new().map_err(|error| {
            eprintln!("pomar-fake-verbs: a socket for a queue pair: {error}");
            Errno(error.raw_os_error().unwrap_or(libc::ENOENT))
        })?;
        let (handle, device) = (self.handle(), self.contexts[&context]);
        let pair = Pair::new(Made { handle, device, ..made }, door);
        let number = pair.number;
        self.pairs.insert(handle, pair);
        self.stale = true;
        Ok((handle, number))
    }

    pub(crate) fn drop_pair(&mut self, handle: u32) -> Verb<()> {
        remove(&mut self.pairs, handle, false)?;
        self.queues.values_mut().for_each(|queue| queue.forget(handle));
        self.stale = true;
        Ok(())
    }

    fn context_of(&self, domain: u32) -> Verb<u32> {
        self.domains.get(&domain).copied().ok_or(Errno(libc::EINVAL))
    }

    /// Does something with a queue pair of a living device, and then whatever can be done.
    pub(crate) fn with_pair<T>(
        &mut self,
        handle: u32,
        act: impl FnOnce(&mut Pair, &mut Around<'_>) -> Verb<T>,
    ) -> Verb<T> {
        let now = Instant::now();
        self.strike(now);
        let Self { devices, regions, queues, pairs, .. } = self;
        let pair = pairs.get_mut(&handle).ok_or(Errno(libc::EINVAL))?;
        let device = &mut devices[pair.made.device];
        if device.is_dead() {
            return Err(Errno(libc::EIO));
        }
        let mut around = Around { queues, regions, device, now };
        let result = act(pair, &mut around);
        pair.progress(&mut around);
        self.stale |= pair.is_stale();
        self.strike(now);
        result
    }

    /// Takes completions out of a queue, at most as many as `into` takes.
    pub(crate) fn poll(&mut self, queue: u32, most: usize, mut into: impl FnMut(sys::Wc)) -> Verb<usize> {
        if self.queues.get(&queue).ok_or(Errno(libc::EINVAL))?.is_empty() {
            self.turn(|made| made.send_queue == queue || made.receive_queue == queue);
        }
        let Self { queues, pairs, contexts, devices, .. } = self;
        let completions = queues.get_mut(&queue).ok_or(Errno(libc::EINVAL))?;
        if completions.has_overflowed() {
            return Err(Errno(libc::EOVERFLOW));
        }
        let mut count = 0;
        while count < most
            && let Some((completion, pair, is_receive)) = completions.pop()
        {
            into(completion);
            count += 1;
            if let Some(pair) = pairs.get_mut(&pair) {
                pair.polled(is_receive);
            }
        }
        let is_dead = contexts.get(&completions.context).is_some_and(|device| devices[*device].is_dead());
        if count == 0 && is_dead { Err(Errno(libc::EIO)) } else { Ok(count) }
    }

    /// Lets the queue pairs that are `chosen` go on, where something has come or a moment is reached.
    pub(crate) fn turn(&mut self, chosen: impl Fn(&Made) -> bool) {
        let now = Instant::now();
        self.strike(now);
        let mut watched = Vec::new();
        let mut turns = Vec::new();
        for pair in self.pairs.values().filter(|pair| chosen(&pair.made)) {
            let outlook = pair.outlook();
            watched.extend(outlook.streams.iter().map(engine::watched));
            turns.push((pair.made.handle, watched.len(), outlook.moment.is_some_and(|moment| moment <= now)));
        }
        engine::poll_now(&mut watched);
        let Self { devices, regions, queues, pairs, stale, .. } = self;
        let mut start = 0;
        for (handle, end, is_due) in turns {
            let is_ready = watched[start..end].iter().any(|stream| stream.revents != 0);
            start = end;
            if let Some(pair) = pairs.get_mut(&handle).filter(|_| is_ready || is_due) {
                let device = &mut devices[pair.made.device];
                pair.progress(&mut Around { queues, regions, device, now });
                *stale |= pair.is_stale();
            }
        }
        self.strike(now);
    }

    /// Lets faults of whole devices come about whose time has come.
    fn strike(&mut self, now: Instant) {
        let Self { devices, regions, queues, pairs, stale, .. } = self;
        for (index, device) in devices.iter_mut().enumerate() {
            let (dies, falls_deaf) = (device.dies_now(now), device.falls_deaf(now));
            if !dies && !falls_deaf {
                continue;
            }
            for pair in pairs.values_mut().filter(|pair| pair.made.device == index) {
                let mut around = Around { queues, regions, device, now };
                if dies { pair.break_down(&mut around) } else { pair.progress(&mut around) }
            }
            *stale = true;
        }
    }

    /// What the background thread is to wait for, and until when.
    pub(crate) fn watch(&mut self, watched: &mut Vec<libc::pollfd>) -> Option<Instant> {
        self.stale = false;
        let now = Instant::now();
        let mut next = self.devices.iter().filter_map(|device| device.next_change(now)).min();
        for pair in self.pairs.values_mut() {
            let outlook = pair.await_outlook();
            watched.extend(outlook.streams.iter().map(engine::watched));
            next = next.into_iter().chain(outlook.moment).min();
        }
        next
    }
}

/// Takes an object out of its register, unless others need it.
fn remove<T>(register: &mut BTreeMap<u32, T>, handle: u32, in_use: bool) -> Verb<()> {
    if in_use {
        return Err(Errno(libc::EBUSY));
    }
    register.remove(&handle).map(|_| ()).ok_or(Errno(libc::EINVAL))
}

impl From<Refused> for Errno {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Full => Self(libc::ENOMEM),
            Refused::State => Self(libc::EINVAL),
        }
    }
}
