//! A process with a script of its own for each test, and two connected ends.

use pomar_fake_verbs::{FOLDER_VARIABLE, SCRIPT_VARIABLE, Script, library_path, live};
use pomar_verbs::{
    Completion, CompletionQueue, Depth, Device, Gid, Library, LocalEnd, MemoryRegion, PathMtu,
    ProtectionDomain, QpKind, QueuePair, RemoteEnd,
};
use std::{
    any::type_name,
    env,
    ops::{Range, RangeInclusive},
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

/// Bounds every wait of a test, generously: the machine may be busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// How long a send to nobody takes to fail, at least.
pub(crate) const RETRIES_TAKE: Duration = Duration::from_millis(500);

pub(crate) const BOTH_KINDS: [QpKind; 2] = [QpKind::Rc, QpKind::Uc];

const SCENE: &str = "POMAR_FAKE_VERBS_SCENE";

/// Runs `body` in a process of its own, with this script, and sees that it leaves nothing behind: no object of the
/// verbs, no file in the shared folder.
pub(crate) fn alone<F: FnOnce()>(script: &Script, body: F) {
    // The name of the test that the closure is in.
    let path = type_name::<F>();
    let name =
        path.split_once("::").and_then(|(_, name)| name.strip_suffix("::{{closure}}")).expect("a closure");
    if env::var(SCENE).is_ok_and(|scene| scene == name) {
        body();
        assert_eq!(live(), Ok(0), "objects are left");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = this_program(script, folder.path());
    let output = command.env(SCENE, name).args(["--exact", name]).output().expect("this program");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{name}: {}\n{text}\n{errors}",
        output.status
    );
    let left: Vec<_> = folder.path().read_dir().expect("the folder").collect();
    assert!(left.is_empty(), "{name} left {left:?}");
}

/// This test program, to be started again with a script and a shared folder.
pub(crate) fn this_program(script: &Script, folder: &Path) -> Command {
    let mut command = Command::new(env::current_exe().expect("this program"));
    command.env(SCRIPT_VARIABLE, script.to_json()).env(FOLDER_VARIABLE, folder);
    command
}

pub(crate) fn library() -> Library {
    Library::open(&library_path().expect("the fake library")).expect("a verbs library")
}

/// The address that programs should choose.
pub(crate) fn mapped_gid(device: &Device) -> (u8, Gid) {
    *device.gids().unwrap().iter().find(|(_, gid)| gid.ipv4().is_some()).expect("a mapped GID")
}

/// A queue pair with what it needs.
pub(crate) struct End {
    pub(crate) device: Device,
    pub(crate) domain: ProtectionDomain,
    pub(crate) completions: CompletionQueue,
    pub(crate) pair: QueuePair,
    pub(crate) memory: MemoryRegion,
    gid: (u8, Gid),
}

/// How an [`End`] is made.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    pub(crate) depth: u32,
    pub(crate) memory: usize,
}

pub(crate) const SMALL: Size = Size { depth: 8, memory: 1 << 16 };

const PACKET_SEQUENCE: u32 = 7;

impl End {
    pub(crate) fn new(device: &str, kind: QpKind, size: Size) -> Self {
        let device = library().open_device(device).unwrap();
        let domain = device.protection_domain().unwrap();
        let completions = device.completion_queue(2 * size.depth).unwrap();
        let depth = Depth { send: size.depth, receive: size.depth };
        let pair = domain.queue_pair(&completions, kind, depth).unwrap();
        let memory = domain.register(size.memory).unwrap();
        pair.init().unwrap();
        let gid = mapped_gid(&device);
        Self { device, domain, completions, pair, memory, gid }
    }

    pub(crate) fn local(&self) -> LocalEnd {
        LocalEnd { gid_index: self.gid.0, packet_sequence: PACKET_SEQUENCE, path_mtu: PathMtu::M1024 }
    }

    /// What the peer needs to know of this one.
    pub(crate) fn as_remote(&self) -> RemoteEnd {
        self.as_remote_with(self.pair.number())
    }

    /// As if this end's queue pair had another number.
    pub(crate) fn as_remote_with(&self, queue_pair: u32) -> RemoteEnd {
        RemoteEnd { queue_pair, packet_sequence: PACKET_SEQUENCE, lid: 0, gid: self.gid.1 }
    }

    pub(crate) fn connect(&self, to: &Self) {
        self.pair.connect(&self.local(), &to.as_remote()).unwrap();
    }

    pub(crate) fn fill(&self, range: Range<usize>, with: u8) {
        assert!(range.end <= self.memory.len());
        // SAFETY: inside the region; tests fill only what no work request uses.
        unsafe { self.memory.as_ptr().add(range.start).write_bytes(with, range.len()) };
    }

    pub(crate) fn bytes(&self, range: Range<usize>) -> Vec<u8> {
        assert!(range.end <= self.memory.len());
        let start = self.memory.as_ptr().wrapping_add(range.start);
        // SAFETY: inside the region; tests look only at what no work request uses.
        unsafe { std::slice::from_raw_parts(start, range.len()) }.to_vec()
    }

    pub(crate) fn post_send(&self, id: u64, range: Range<usize>) {
        self.try_send(id, range).unwrap();
    }

    pub(crate) fn try_send(&self, id: u64, range: Range<usize>) -> Result<(), pomar_verbs::VerbsError> {
        // SAFETY: tests change a range only after its completion, but for the one that shows what happens else, where
        // nothing but these bytes is at stake.
        unsafe { self.pair.post_send(id, &self.memory, range) }
    }

    pub(crate) fn post_receive(&self, id: u64, range: Range<usize>) {
        // SAFETY: tests look at a range only after its completion.
        unsafe { self.pair.post_receive(id, &self.memory, range) }.unwrap();
    }

    /// The next completion.
    pub(crate) fn wait(&self) -> Completion {
        let start = Instant::now();
        let mut found = [Completion::default()];
        while self.completions.poll(&mut found).unwrap() == 0 {
            assert!(start.elapsed() < PATIENCE, "no completion");
        }
        found[0]
    }

    /// The next completion, which must be the good one of `id`.
    pub(crate) fn wait_for(&self, id: u64) -> Completion {
        let completion = self.wait();
        assert!(
            completion.status.is_ok() && completion.id == id,
            "{id}: {completion:?} {}",
            completion.status
        );
        completion
    }

    /// The next completions, which must be the good ones of these numbers in order.
    pub(crate) fn wait_for_each(&self, ids: RangeInclusive<u64>) {
        for id in ids {
            self.wait_for(id);
        }
    }

    /// The next completion, which must be that of `id`, with the words of its status.
    pub(crate) fn wait_for_failure(&self, id: u64) -> String {
        let completion = self.wait();
        assert!(
            !completion.status.is_ok() && completion.id == id,
            "{id}: {completion:?} {}",
            completion.status
        );
        completion.status.to_string()
    }

    /// Sees that nothing completes for a while.
    pub(crate) fn stays_quiet(&self, during: Duration) {
        let start = Instant::now();
        let mut found = [Completion::default()];
        while start.elapsed() < during {
            assert_eq!(self.completions.poll(&mut found).unwrap(), 0, "{found:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Two connected ends, on `fake0` and `fake1`.
pub(crate) fn connected(kind: QpKind, size: Size) -> [End; 2] {
    let ends = [End::new("fake0", kind, size), End::new("fake1", kind, size)];
    ends[0].connect(&ends[1]);
    ends[1].connect(&ends[0]);
    ends
}

/// The default script with other faults for `fake0`.
pub(crate) fn first_device_with(change: impl FnOnce(&mut pomar_fake_verbs::FakeDevice)) -> Script {
    let mut script = Script::default();
    change(&mut script.devices[0]);
    script
}
