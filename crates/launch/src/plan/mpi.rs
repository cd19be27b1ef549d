//! One mpirun for all ranks, in the words of its make.

use super::{HostPlan, Labels, PlanError, Process, Role, Value, environment::user_env, unset_beside};
use crate::{
    Host, StdinTo,
    job::{Directory, Facts, Job, Mpi, MpiFlavour},
};
use std::collections::BTreeMap;

/// The process, and why it has options that nobody asked for. The hosts get one more, this machine, if it runs no rank.
pub(super) fn mpirun(
    job: &Job,
    facts: &Facts,
    hosts: &mut Vec<HostPlan>,
) -> Result<(Process, Vec<String>), PlanError> {
    let mpi = facts.mpi.as_ref().ok_or(PlanError::NoMpirun)?;
    let mut env = user_env(job, facts);
    if let Some(library) = &mpi.library {
        env.entry("MLX_MPI_LIBNAME".into()).or_insert_with(|| Value::Text(library.clone()));
    }
    let (mut command, mut notes) = match mpi.flavour {
        MpiFlavour::OpenMpi => open_mpi(job, facts, mpi, &env)?,
        MpiFlavour::Mpich => (mpich(job, mpi)?, Vec::new()),
    };
    if job.stdin == StdinTo::All && job.hosts.len() > 1 {
        // Open MPI 4.1 takes `--stdin all`, gives nobody anything and never ends; MPICH has no such option.
        notes.push("mpirun gives standard input to rank 0 only".into());
    }
    if let Directory::Must(path) = &job.directory {
        command.extend(["-wdir".into(), path.clone()]);
    }
    command.extend(job.mpi_args.iter().cloned());
    command.extend(job.command.iter().cloned());
    let host = hosts.iter().position(|host| host.this_machine).unwrap_or_else(|| {
        hosts.push(HostPlan { name: "localhost".into(), this_machine: true, files: BTreeMap::new() });
        hosts.len() - 1
    });
    let process = Process {
        role: Role::Mpirun,
        host,
        command,
        // mpirun itself starts here; -wdir is for the ranks.
        directory: Directory::Try(job.directory.path().into()),
        unset: unset_beside(&env),
        env,
        labels: match mpi.flavour {
            MpiFlavour::OpenMpi if job.prefix => Labels::OpenMpi,
            _ => Labels::AsIs,
        },
        stdin: job.stdin != StdinTo::None,
    };
    Ok((process, notes))
}

/// Names variables for Open MPI to hand on; their values come with mpirun's own environment, not on its command line.
fn open_mpi(
    job: &Job,
    facts: &Facts,
    mpi: &Mpi,
    env: &BTreeMap<String, Value>,
) -> Result<(Vec<String>, Vec<String>), PlanError> {
    let (mut command, mut notes) = (vec![mpi.program.clone()], Vec::new());
    let mut add = |words: &[&str]| command.extend(words.iter().map(|&word| word.to_owned()));
    if facts.root {
        add(&["--allow-run-as-root"]);
        notes.push("--allow-run-as-root, because this is root".into());
    }
    let here = job.hosts.iter().filter(|host| host.is_this_machine()).count();
    if here > facts.processors {
        add(&["--oversubscribe"]);
        notes.push(format!("--oversubscribe, because {here} ranks share {} processors", facts.processors));
    }
    if job.ssh != "ssh" {
        add(&["--mca", "plm_rsh_agent", &job.ssh]);
    }
    if job.prefix {
        add(&["--tag-output"]);
    }
    match job.stdin {
        StdinTo::All => add(&["--stdin", "0"]),
        StdinTo::Rank(rank) => add(&["--stdin", &rank.to_string()]),
        StdinTo::None => add(&["--stdin", "none"]),
    }
    env.keys().for_each(|name| add(&["-x", name]));
    add(&["--host", &slots(job)?, "-n", &job.hosts.len().to_string()]);
    Ok((command, notes))
}

/// MPICH's Hydra hands on its whole environment by itself, and may run as root and on few processors. It gives
/// standard input to rank 0.
fn mpich(job: &Job, mpi: &Mpi) -> Result<Vec<String>, PlanError> {
    let mut command = vec![mpi.program.clone()];
    let mut add = |words: &[&str]| command.extend(words.iter().map(|&word| word.to_owned()));
    if job.ssh != "ssh" {
        add(&["-launcher", "ssh", "-launcher-exec", &job.ssh]);
    }
    if job.prefix {
        add(&["-prepend-rank"]);
    }
    if matches!(job.stdin, StdinTo::Rank(1..)) {
        return Err(PlanError::MpichStdin);
    }
    if !job.hosts.iter().all(Host::is_this_machine) {
        add(&["-hosts", &slots(job)?]);
    }
    add(&["-n", &job.hosts.len().to_string()]);
    Ok(command)
}

/// `host:count,...`, each host once: mpirun numbers its ranks host by host.
fn slots(job: &Job) -> Result<String, PlanError> {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for host in &job.hosts {
        let name = if host.is_this_machine() { "localhost" } else { host.ssh.as_str() };
        if name.contains(':') {
            return Err(PlanError::MpiHost { host: name.into() });
        }
        match counts.iter_mut().find(|(known, _)| *known == name) {
            Some((_, count)) => *count += 1,
            None => counts.push((name, 1)),
        }
    }
    Ok(counts.iter().map(|(name, count)| format!("{name}:{count}")).collect::<Vec<_>>().join(","))
}
