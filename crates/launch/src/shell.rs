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

/// Seconds without a beat from the launcher after which the guard of another machine ends its ranks.
pub(crate) const SILENCE_SECONDS: u32 = 30;

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
    #[test]
    fn scripts_survive_single_quotes() {
        for script in [include_str!("scripts/guard.sh"), include_str!("scripts/stub.sh")] {
            let script = super::compact(script);
            // fish reads \\ and \' inside single quotes, other shells do not.
            assert!(!script.contains('\'') && !script.contains(r"\\"), "{script}");
        }
    }
}
