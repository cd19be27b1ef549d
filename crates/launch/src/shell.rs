//! How to run a script on a host: with `sh` here, or over ssh there.

use crate::plan::HostPlan;

/// What is given to ssh. BatchMode: never ask for a password, which nobody would see. ServerAlive: a connection
/// that is lost ends within 15 s.
const SSH_OPTIONS: [&str; 11] = [
    "-T",
    "-o",
    "BatchMode=yes",
    "-o",
    "ConnectTimeout=10",
    "-o",
    "ServerAliveInterval=5",
    "-o",
    "ServerAliveCountMax=3",
    "-o",
    "LogLevel=ERROR",
];

/// How often, in seconds, the guard of another machine asks itself whether there was a beat from the launcher since it
/// last did. So ranks end 15 to 30 s after the last one.
const SILENCE_SECONDS: u32 = 15;

/// The script's lines without comments and indentation: they travel on ssh's command line.
fn compact(script: &str) -> String {
    let lines = script.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.collect::<Vec<_>>().join("\n")
}

/// The command that guards a host.
pub(crate) fn guard(host: &HostPlan, ssh: &str) -> Vec<String> {
    let silence = if host.this_machine { 0 } else { SILENCE_SECONDS };
    on(host, ssh, include_str!("scripts/guard.sh"), &silence.to_string())
}

/// The command that becomes a rank.
pub(crate) fn stub(host: &HostPlan, ssh: &str) -> Vec<String> {
    on(host, ssh, include_str!("scripts/stub.sh"), "")
}

fn on(host: &HostPlan, ssh: &str, script: &str, argument: &str) -> Vec<String> {
    let script = compact(script);
    if host.this_machine {
        return ["sh", "-c", &script, "pomar-launch", argument].map(str::to_owned).into();
    }
    // ssh hands one string to the login shell there, which may be any: no more than quotes that all know.
    let remote = format!("exec sh -c '{script}' pomar-launch {argument}");
    let words = [ssh].into_iter().chain(SSH_OPTIONS).chain([host.name.as_str(), remote.trim_end()]);
    words.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead, BufReader, Write},
        os::unix::process::CommandExt,
        process::{Command, Stdio},
    };

    /// The connection is open and silent, as it is when a cable is pulled.
    #[test]
    fn silence_ends_the_ranks() {
        let script = super::compact(include_str!("scripts/guard.sh"));
        let temporary = tempfile::tempdir().unwrap();
        let mut guard = Command::new("sh")
            .args(["-c", &script, "pomar-launch", "1"])
            .env("TMPDIR", temporary.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut rank = Command::new("sleep").arg("60").process_group(0).spawn().unwrap();
        let mut calls = guard.stdin.take().unwrap();
        writeln!(calls, "add {}", rank.id()).unwrap();
        let mut replies = BufReader::new(guard.stdout.take().unwrap()).lines().map(Result::unwrap);
        assert!(replies.next().unwrap().starts_with("pomar ready "));
        assert_eq!(replies.next().unwrap(), format!("pomar added {}", rank.id()));
        let began = std::time::Instant::now();
        let beating = std::thread::spawn(move || {
            for _ in 0..15 {
                writeln!(calls, "beat").unwrap();
                std::thread::sleep(std::time::Duration::from_millis(200));
            }
            calls
        });
        assert!(!rank.wait().unwrap().success());
        assert!(began.elapsed().as_secs_f64() > 2.9, "it ended while there were beats");
        let _still_open = beating.join().unwrap();
        guard.wait().unwrap();
        assert_eq!(std::fs::read_dir(temporary.path()).unwrap().count(), 0);
    }

    #[test]
    fn scripts_survive_single_quotes() {
        for script in [include_str!("scripts/guard.sh"), include_str!("scripts/stub.sh")] {
            let script = super::compact(script);
            // fish reads \\ and \' inside single quotes, other shells do not.
            assert!(!script.contains('\'') && !script.contains(r"\\"), "{script}");
        }
    }
}
