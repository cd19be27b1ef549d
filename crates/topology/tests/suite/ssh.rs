//! Hosts over ssh, with a script in its place: what it is asked, and what becomes of its failures.

use pomar_topology::{Probe, ProbeError, Recorded, Recording, Source, Ssh, Survey};
use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    time::{Duration, Instant},
};

/// An ssh that runs these lines of shell; `$host` and `$line` are what it was asked.
fn ssh(folder: &Path, script: &str) -> Ssh {
    let program = folder.join("ssh");
    let fake = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake-ssh");
    if !program.exists() {
        symlink(fake, &program).unwrap();
    }
    fs::write(folder.join("script"), script).unwrap();
    Ssh { program, time: Duration::from_secs(10) }
}

#[test]
fn it_never_asks_for_a_password_and_passes_the_command_on() {
    let folder = tempfile::tempdir().unwrap();
    let ssh = ssh(folder.path(), r#"printf '%s\n' "$@""#);
    let arguments = ssh.run("studio-1", Probe::RdmaCtl).unwrap();
    let arguments: Vec<_> = arguments.lines().collect();
    assert!(arguments.windows(2).any(|pair| pair == ["-o", "BatchMode=yes"]), "{arguments:?}");
    assert!(arguments.contains(&"ConnectTimeout=5"));
    let [.., dashes, host, line] = arguments.as_slice() else { panic!("{arguments:?}") };
    assert_eq!((*dashes, *host), ("--", "studio-1"));
    assert!(line.ends_with(" rdma_ctl status"), "{line}");
}

#[test]
fn every_failure_names_host_and_command() {
    let folder = tempfile::tempdir().unwrap();
    let script = r#"
        case $host in
            gone) echo 'ssh: connect to host gone: No route to host' >&2; exit 255 ;;
            bare) exit 127 ;;
            broken) echo 'first line' >&2; echo 'last line' >&2; exit 3 ;;
            chatty) exec yes ;;
            status) echo disabled; exit 1 ;;
        esac"#;
    let ssh = ssh(folder.path(), script);
    let error = |host: &str| ssh.run(host, Probe::RdmaCtl).unwrap_err().to_string();
    assert!(error("gone").starts_with("gone: ssh failed (ssh: connect to host gone: No route to host)"));
    assert!(error("gone").contains("ssh -o BatchMode=yes gone true"));
    assert!(matches!(ssh.run("bare", Probe::RdmaCtl), Err(ProbeError::Missing { .. })));
    assert_eq!(error("broken"), "broken: `rdma_ctl status` failed (last line)");
    assert!(error("chatty").contains("more than 4194304 bytes"));
    assert_eq!(ssh.run("status", Probe::RdmaCtl).unwrap(), "disabled\n");
}

#[test]
fn a_host_that_hangs_is_given_up_with_all_that_ssh_started() {
    let folder = tempfile::tempdir().unwrap();
    let mut ssh = ssh(folder.path(), "sleep 600 & echo $! > \"$folder/helper\"; wait");
    ssh.time = Duration::from_millis(500);
    let begin = Instant::now();
    let error = ssh.run("slow", Probe::SwVers).unwrap_err();
    assert!(matches!(error, ProbeError::TimedOut { .. }), "{error}");
    assert!(begin.elapsed() < Duration::from_secs(5));
    let helper: i32 = fs::read_to_string(folder.path().join("helper")).unwrap().trim().parse().unwrap();
    let helper = rustix::process::Pid::from_raw(helper).unwrap();
    let gone = || rustix::process::test_kill_process(helper).is_err() || is_zombie(helper);
    while !gone() {
        assert!(begin.elapsed() < Duration::from_secs(10), "the helper is still there");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Ended, and not yet collected by the process that inherited it.
fn is_zombie(pid: rustix::process::Pid) -> bool {
    let output = std::process::Command::new("ps")
        .args(["-o", "stat=", "-p", &pid.as_raw_nonzero().to_string()])
        .output()
        .expect("ps is needed: apt-get install procps");
    String::from_utf8_lossy(&output.stdout).trim_start().starts_with('Z')
}

#[test]
fn a_recording_reads_back_as_it_was_asked() {
    let folder = tempfile::tempdir().unwrap();
    // A machine of the mesh behind each name, by the file that belongs to the command.
    let names = Probe::ALL.map(|probe| format!("*'{}') file={} ;;", probe.command(), probe.file()));
    let script = format!(
        "case $line in {} esac\ncat \"{}/$host/$file\" 2>/dev/null || exit 127",
        names.join(" "),
        crate::common::fixture("rdma-off").display()
    );
    let hosts = ["c".to_owned(), "a".into(), "b".into()];
    let recording = folder.path().join("recording");
    let asked = Survey::take(&Recording::new(ssh(folder.path(), &script), &recording), &hosts);
    let read = Survey::take(&Recorded::new(&recording), &hosts);
    assert!(asked.unread.is_empty(), "{:?}", asked.unread);
    assert_eq!(asked.hosts.iter().map(|host| host.name.as_str()).collect::<Vec<_>>(), ["c", "a", "b"]);
    assert_eq!(format!("{:?}", asked.hosts), format!("{:?}", read.hosts));
    assert_eq!(Recorded::new(&recording).hosts().unwrap(), ["a", "b", "c"]);
    // c has no rdma_ctl, so it has no such file, and an old one would not stay.
    fs::write(recording.join("c").join(Probe::RdmaCtl.file()), "enabled\n").unwrap();
    Survey::take(&Recording::new(ssh(folder.path(), &script), &recording), &hosts);
    assert!(!recording.join("c").join(Probe::RdmaCtl.file()).exists());
}

#[test]
fn one_unreachable_host_does_not_hide_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let names = Probe::ALL.map(|probe| format!("*'{}') file={} ;;", probe.command(), probe.file()));
    let script = format!(
        "if [[ $host == d ]]; then echo 'Permission denied (publickey).' >&2; exit 255; fi\n\
         case $line in {} esac\ncat \"{}/$host/$file\" 2>/dev/null || exit 127",
        names.join(" "),
        crate::common::fixture("mesh").display()
    );
    let survey = Survey::take(&ssh(folder.path(), &script), &["a", "b", "c", "d"].map(str::to_owned));
    assert_eq!(survey.hosts.len(), 3);
    assert_eq!(survey.unread[0].name, "d");
    assert!(survey.unread[0].error.to_string().contains("Permission denied (publickey)"));
}

#[test]
fn this_machine_is_asked_without_ssh() {
    let ssh = Ssh { program: "/nonexistent/ssh".into(), time: Duration::from_secs(10) };
    assert!(ssh.run("localhost", Probe::Uname).unwrap().contains(std::env::consts::OS.get(1..).unwrap()));
    let error = ssh.run("other", Probe::Uname).unwrap_err().to_string();
    assert!(error.starts_with("cannot start /nonexistent/ssh"), "{error}");
}
