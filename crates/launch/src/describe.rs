//! A plan as text or JSON, for reading before anything is started.

use crate::{
    Directory, Plan,
    plan::{HostPlan, Process, Value, setup_line},
    quote::quote_all,
    shell,
};
use serde::Serialize;
use std::fmt;

/// Every command, variable and file of a launch. The key is shown as `<random>`, a launch's folder as `<folder>`.
#[derive(Debug, Serialize)]
pub struct Description<'a> {
    #[serde(flatten)]
    plan: &'a Plan,
    guards: Vec<Vec<String>>,
    starts: Vec<Start>,
}

/// How one process comes to be.
#[derive(Debug, Serialize)]
struct Start {
    command: Vec<String>,
    standard_input: String,
}

impl<'a> Description<'a> {
    /// Describes the plan, with this ssh program.
    #[must_use]
    pub fn new(plan: &'a Plan, ssh: &str) -> Self {
        let start = |process: &Process| Start {
            command: shell::stub(plan.host_of(process), ssh),
            standard_input: setup_line(process, "<folder>", &Value::Key.to_string()),
        };
        Self {
            plan,
            guards: plan.hosts.iter().map(|host| shell::guard(host, ssh)).collect(),
            starts: plan.processes.iter().map(start).collect(),
        }
    }

    fn host(&self, host: &HostPlan, guard: &[String], f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if host.this_machine { " (this machine)" } else { "" };
        writeln!(f, "\nhost {}{place}", host.name)?;
        writeln!(f, "  guard      {}", first_line(guard))?;
        for (name, content) in &host.files {
            writeln!(f, "  file       <folder>/{name}: {content}")?;
        }
        Ok(())
    }

    fn process(&self, process: &Process, start: &Start, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n{} on {}", process.role, self.plan.host_of(process).name)?;
        writeln!(f, "  start      {}", first_line(&start.command))?;
        writeln!(f, "  then       {}", start.standard_input)?;
        writeln!(f, "  command    {}", quote_all(&process.command))?;
        match &process.directory {
            Directory::Must(path) => writeln!(f, "  folder     {path}")?,
            Directory::Try(path) => writeln!(f, "  folder     {path} where it exists, else the home folder")?,
        }
        for (name, value) in &process.env {
            writeln!(f, "  variable   {name}={value}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Description<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan { backend, ranks, hosts, .. } = self.plan;
        let plural = |count: usize| if count == 1 { "" } else { "s" };
        let machines = hosts.len();
        writeln!(
            f,
            "backend {backend}, {ranks} rank{} on {machines} host{}",
            plural(*ranks),
            plural(machines)
        )?;
        for note in &self.plan.notes {
            writeln!(f, "note: {note}")?;
        }
        for (host, guard) in hosts.iter().zip(&self.guards) {
            self.host(host, guard, f)?;
        }
        for (process, start) in self.plan.processes.iter().zip(&self.starts) {
            self.process(process, start, f)?;
        }
        writeln!(f)?;
        for listen in &self.plan.listens {
            writeln!(f, "rank {} listens on {}", listen.rank, listen.at)?;
        }
        for hop in &self.plan.hops {
            let at = hop.at.iter().map(ToString::to_string).collect::<Vec<_>>();
            let at = at.join(if hop.any { " or " } else { " and " });
            writeln!(f, "rank {} must reach rank {} at {at}", hop.from, hop.to)?;
        }
        f.write_str("(... is the rest of a script, which --json prints whole)")
    }
}

/// A command whose last words are a long script, up to that script's second line. `--json` has all of it.
fn first_line(command: &[String]) -> String {
    let shown = |word: &String| match word.split_once('\n') {
        Some((first, _)) => format!("{first} ..."),
        None => word.clone(),
    };
    quote_all(&command.iter().filter(|word| !word.is_empty()).map(shown).collect::<Vec<_>>())
}
