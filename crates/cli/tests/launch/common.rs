//! A folder for each test, the command, and ways to look at processes.

use std::{
    fs,
    io::Read,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

/// No launch of these tests takes nearly as long, even on a busy machine.
const LONGEST: Duration = Duration::from_secs(180);

/// A test's own place. Launches put their files into `tmp` of it.
pub(crate) struct Place(tempfile::TempDir);

/// What a launch that has ended said.
pub(crate) struct Said {
    pub(crate) status: ExitStatus,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Place {
    pub(crate) fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        fs::create_dir(place.path("tmp")).unwrap();
        place
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    /// A shell script that can be started.
    pub(crate) fn script(&self, name: &str, text: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt;
        let path = self.write(name, &format!("#!/bin/sh\n{text}"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// `pomar launch` with these arguments, started in this place, with nothing on its standard input.
    pub(crate) fn launch<S: AsRef<str>>(&self, arguments: &[S]) -> Command {
        let mut command = pomar();
        command.arg("launch").args(arguments.iter().map(AsRef::as_ref)).current_dir(self.0.path());
        command.env("TMPDIR", self.path("tmp")).env("PLACE", self.0.path()).env("LC_ALL", "C");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Ranks on this machine that each run a script, in a group of pomar's own: its ports are always free.
    pub(crate) fn here(&self, ranks: usize, options: &[&str], script: &str) -> Command {
        let ranks = ranks.to_string();
        let start = ["-n", &ranks, "--backend", "pomar"];
        self.launch(&[&start[..], options, &["--", "sh", "-c", script]].concat())
    }

    /// The number that a rank has written into a file: its process.
    pub(crate) fn pid(&self, file: &str) -> u32 {
        let path = self.path(file);
        let read = || fs::read_to_string(&path).ok()?.trim().parse().ok();
        wait_for(&format!("a process number in {}", path.display()), read)
    }

    /// Launches leave nothing behind.
    pub(crate) fn assert_clean(&self) {
        let left =
            || fs::read_dir(self.path("tmp")).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
        let empty = within(Duration::from_secs(5), || left().is_empty());
        assert!(empty, "left behind: {:?}", left());
    }
}

/// pomar as a terminal starts it: a test run in the background, or under nohup, has signals ignored, children inherit
/// that, and pomar respects it.
fn pomar() -> Command {
    if cfg!(not(target_os = "linux")) {
        return Command::new(env!("CARGO_BIN_EXE_pomar"));
    }
    let mut command = Command::new("env");
    command.args(["--default-signal=HUP,INT,QUIT,TERM", env!("CARGO_BIN_EXE_pomar")]);
    command
}

/// Runs a launch to its end.
pub(crate) fn said(command: &mut Command) -> Said {
    Running::start(command).said()
}

/// Runs a launch that must succeed; its standard output, sorted, since ranks print when they like.
pub(crate) fn lines(command: &mut Command) -> Vec<String> {
    let Said { status, out, err } = said(command);
    assert!(status.success(), "{command:?}: {status}\n{out}\n{err}");
    let mut lines: Vec<String> = out.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// Runs a launch that must fail with this status; its standard error.
pub(crate) fn failure(command: &mut Command, code: i32) -> String {
    let Said { status, out, err } = said(command);
    assert_eq!(status.code(), Some(code), "{command:?}: {status}\n{out}\n{err}");
    err
}

pub(crate) fn assert_contains(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no '{part}' in:\n{text}");
    }
}

/// True once the condition holds, false when it has not by then.
pub(crate) fn within(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + limit;
    while !condition() {
        if Instant::now() > end {
            return false;
        }
        sleep(Duration::from_millis(20));
    }
    true
}

/// What the look finds, within a time that is long even for a busy machine.
pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let mut found = None;
    within(Duration::from_secs(30), || {
        found = look();
        found.is_some()
    });
    found.unwrap_or_else(|| panic!("{what} did not come"))
}

/// True while the process runs; one that only waits for its parent to notice its end does not.
pub(crate) fn runs(pid: u32) -> bool {
    let output = Command::new("ps").args(["-o", "stat=", "-p", &pid.to_string()]).output();
    let state = output.expect("ps is missing: apt-get install procps").stdout;
    !state.trim_ascii().is_empty() && !state.starts_with(b"Z")
}

/// Sends a signal to a process, or with a minus to a group.
pub(crate) fn kill(signal: &str, target: i64) {
    let status = Command::new("sh").args(["-c", &format!("kill -{signal} {target}")]).status().unwrap();
    assert!(status.success(), "kill -{signal} {target}");
}

/// Kills processes, or with a minus groups, at once. Some may have ended because others did.
pub(crate) fn kill_all(targets: &[i64]) {
    let targets: Vec<String> = targets.iter().map(ToString::to_string).collect();
    Command::new("sh")
        .args(["-c", &format!("kill -KILL {} 2>/dev/null", targets.join(" "))])
        .status()
        .unwrap();
}

/// Whether all of these processes have ended within the time.
pub(crate) fn gone(pids: &[u32], limit: Duration) -> bool {
    within(limit, || !pids.iter().any(|pid| runs(*pid)))
}

/// A port where nobody listens, with as many free ones after it.
pub(crate) fn free_ports(count: u16) -> u16 {
    let free = |first: u16| (first..first + count).all(|port| TcpListener::bind(("127.0.0.1", port)).is_ok());
    // Far from where the system takes ports for connections; each test process begins elsewhere.
    let begin = 12_000 + (std::process::id() % 400) as u16 * 30;
    let step = next() * 30;
    (0..200).map(|i| begin.wrapping_add(step + i * 30) % 18_000 + 12_000).find(|first| free(*first)).unwrap()
}

fn next() -> u16 {
    use std::sync::atomic::{AtomicU16, Ordering};
    static NEXT: AtomicU16 = AtomicU16::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Ends a launch that a test leaves early.
pub(crate) struct Running(pub(crate) Child);

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        Self(command.spawn().unwrap())
    }

    pub(crate) fn signal(&self, name: &str) {
        kill(name, self.0.id().into());
    }

    /// What it says until it ends. One that hangs is killed, which its status then shows.
    pub(crate) fn said(mut self) -> Said {
        let (mut out, mut err) = (String::new(), String::new());
        let (mut from_out, mut from_err) = (self.0.stdout.take().unwrap(), self.0.stderr.take().unwrap());
        std::thread::scope(|scope| {
            scope.spawn(|| from_err.read_to_string(&mut err).unwrap());
            scope.spawn(|| from_out.read_to_string(&mut out).unwrap());
            if !within(LONGEST, || self.0.try_wait().unwrap().is_some()) {
                self.0.kill().unwrap();
            }
        });
        Said { status: self.0.wait().unwrap(), out, err }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Stops the test unless a program is there.
pub(crate) fn need(program: &str, how: &str) -> PathBuf {
    let path = std::env::var("PATH").unwrap_or_default();
    let folders = path.split(':').chain(["/usr/sbin", "/usr/local/sbin"]);
    let found = folders.map(|folder| Path::new(folder).join(program)).find(|path| path.exists());
    found.unwrap_or_else(|| panic!("this test needs {program}: {how}"))
}
