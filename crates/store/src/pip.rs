//! Fetching one wheel with the user's own pip, so that its index, proxy and certificates apply.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::StoreError;
use crate::fetch::Context;
use crate::progress::Job;
use crate::reference::WheelRef;

/// How often a running pip is looked at.
const POLL: Duration = Duration::from_millis(100);

/// Bytes of pip's last words that are kept.
const MAX_TAIL: usize = 8 * 1024;

/// Lines of them that are shown.
const LINES_SHOWN: usize = 4;

/// Fetches the wheel into a new folder `into` and returns its path. `size` is the wheel's, where known.
pub(crate) fn download(
    wheel: &WheelRef,
    into: &Path,
    size: Option<u64>,
    context: &Context<'_>,
) -> Result<PathBuf, StoreError> {
    let requirement = wheel.to_string().trim_start_matches("pypi:").to_owned();
    let python = context.settings.python.display().to_string();
    // pip's temporary files go beside its result: on the disk whose space was checked, and gone with it.
    let temporary = into.join("tmp");
    crate::disk::create_folder(&temporary)?;
    let mut child = command(context, &requirement, into, &temporary)
        .spawn()
        .map_err(|e| StoreError::NoPip { python: python.clone(), why: e.to_string() })?;
    let tail = keep_tail(&mut child);
    let job = Job::start(context.progress, &requirement, size);
    let pip_error =
        |why: String| StoreError::Pip { package: requirement.clone(), python: python.clone(), why };
    let succeeded = wait(&mut child, context.settings.limits.pip, || job.at(bytes_in(into, 3)))
        .map_err(|e| pip_error(e.to_string()))?;
    if succeeded {
        return only_wheel(into).map_err(pip_error);
    }
    let last = tail.recv_timeout(Duration::from_secs(2)).unwrap_or_default();
    if last.contains("No module named pip") || last.contains("No module named 'pip'") {
        return Err(StoreError::NoPip { python, why: "it has no pip".into() });
    }
    Err(pip_error(last_lines(&last)))
}

/// `python3 -m pip download` for one requirement. `-m` looks for pip in the working folder first, so that
/// is an empty one of ours and not wherever the user happens to be.
fn command(context: &Context<'_>, requirement: &str, into: &Path, temporary: &Path) -> Command {
    let mut command = Command::new(&context.settings.python);
    command
        .args(["-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--quiet", "--no-input"])
        .args(["--disable-pip-version-check", "--progress-bar", "off", "--dest"])
        .arg(into)
        .arg(requirement)
        .env("TMPDIR", temporary)
        .current_dir(temporary)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command
}

/// Waits for the child to end, or ends it when its time is over. `each` is called at every look.
fn wait(child: &mut Child, limit: Duration, mut each: impl FnMut()) -> io::Result<bool> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status.success());
        }
        if start.elapsed() >= limit {
            child.kill()?;
            child.wait()?;
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("no end after {} s", limit.as_secs()),
            ));
        }
        each();
        thread::sleep(POLL);
    }
}

/// Reads the child's standard error to its end in the background and hands over the last of it.
fn keep_tail(child: &mut Child) -> Receiver<String> {
    let (send, receive) = mpsc::channel();
    if let Some(mut stderr) = child.stderr.take() {
        thread::spawn(move || {
            let mut tail = Vec::new();
            let mut buffer = [0; 4096];
            while let Ok(n @ 1..) = stderr.read(&mut buffer) {
                tail.extend_from_slice(&buffer[..n]);
                tail.drain(..tail.len().saturating_sub(MAX_TAIL));
            }
            // Nobody listens when pip did well.
            let _ = send.send(String::from_utf8_lossy(&tail).into_owned());
        });
    }
    receive
}

/// The last lines, with addresses left out: they may carry passwords, and say nothing that the user can act
/// on.
fn last_lines(text: &str) -> String {
    let lines: Vec<_> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let shown = &lines[lines.len().saturating_sub(LINES_SHOWN)..];
    if shown.is_empty() {
        return "it gave no reason".into();
    }
    shown.iter().map(|line| without_addresses(line)).collect::<Vec<_>>().join("\n")
}

fn without_addresses(line: &str) -> String {
    let is_address = |word: &str| word.contains("://") || word.contains("host=");
    line.split(' ')
        .map(|word| if is_address(word) { "(address)" } else { word })
        .collect::<Vec<_>>()
        .join(" ")
}

/// The one `.whl` file in a folder.
fn only_wheel(folder: &Path) -> Result<PathBuf, String> {
    let listed = fs::read_dir(folder).map_err(|e| e.to_string())?;
    let mut wheels = listed
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|p| p.extension() == Some(OsStr::new("whl")));
    match (wheels.next(), wheels.next()) {
        (Some(wheel), None) => Ok(wheel),
        (None, _) => Err("it left no wheel".into()),
        (Some(_), Some(_)) => Err("it left more than one wheel".into()),
    }
}

/// Bytes in a folder down to a depth; files that vanish meanwhile don't count.
fn bytes_in(folder: &Path, depth: u32) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(meta) if meta.is_dir() && depth > 0 => bytes_in(&entry.path(), depth - 1),
        Ok(meta) if meta.is_file() => meta.len(),
        _ => 0,
    });
    sizes.fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_words_are_short_and_without_addresses() {
        let text = "one\ntwo\n\nERROR: at https://user:pw@index.example/simple failed\nthree\nfour\n";
        assert_eq!(last_lines(text), "two\nERROR: at (address) failed\nthree\nfour");
        assert_eq!(last_lines("x Pool(host='index.example', port=443): no"), "x (address) port=443): no");
        assert_eq!(last_lines(" \n"), "it gave no reason");
    }

    #[test]
    fn a_child_that_never_ends_is_ended() {
        let mut child = Command::new("sleep").arg("60").spawn().expect("sleep runs");
        let start = Instant::now();
        assert!(wait(&mut child, Duration::from_millis(50), || ()).is_err());
        assert!(start.elapsed() < Duration::from_secs(10));
    }
}
