//! `pomar topology`: which cables join which machines, what is wrong with them, and the hostfile for ranks on them.
//!
//! It asks over ssh, or reads what `--record` wrote, and changes nothing: the commands that would set the cables up are
//! printed.

use crate::output::{print_json, print_line, print_table};
use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use pomar_topology::{
    Backend, CableFacts, Cabling, Check, EndFacts, Fix, Form, HostFacts, Level, Recorded, Recording, Report,
    Request, Source, Ssh, Step, Survey, check_hosts, dot,
};
use std::{path::PathBuf, process::ExitCode};

/// Sentences are broken at this column.
const COLUMNS: usize = 110;

#[derive(Args)]
pub(crate) struct Topology {
    /// Machines to ask over ssh, by the names that ssh knows; localhost is asked without it
    #[arg(long, value_delimiter = ',', required_unless_present = "from")]
    hosts: Vec<String>,
    /// Read the answers from a folder that --record wrote, instead of asking
    #[arg(long, value_name = "DIR", conflicts_with = "record")]
    from: Option<PathBuf>,
    /// Keep the answers in this folder: a folder for each host, a file for each command
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
    /// Show what has changed since this recording
    #[arg(long, value_name = "DIR")]
    since: Option<PathBuf>,
    /// The backend that has to work: jaccl, jaccl-ring or ring; else the fastest that does
    #[arg(long, conflicts_with = "lan")]
    backend: Option<Backend>,
    /// Leave the cables alone: a TCP ring over the ordinary network
    #[arg(long)]
    lan: bool,
    /// Write the hostfile for mlx.launch and pomar launch
    #[arg(long, value_name = "FILE")]
    hostfile: Option<PathBuf>,
    /// How the hostfile is written: with its backend, or as the list of hosts alone
    #[arg(long, value_name = "FORM", default_value = "object")]
    hostfile_form: HostfileForm,
    /// Print the result as JSON
    #[arg(long, conflicts_with = "dot")]
    json: bool,
    /// Print a drawing for Graphviz
    #[arg(long)]
    dot: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum HostfileForm {
    Object,
    List,
}

impl Topology {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let (survey, names) = self.survey()?;
        let before = self.since.as_ref().map(|folder| earlier(folder.clone(), &names)).transpose()?;
        let request = Request { backend: self.backend, over_lan: self.lan };
        let report = Report::new(&survey, request, before.as_ref());
        if self.json {
            print_json(&report)?;
        } else if self.dot {
            print_line(dot(&survey.hosts, &Cabling::of(&survey.hosts)).trim_end())?;
        } else {
            self.print(&report)?;
        }
        self.write_hostfile(&report)?;
        Ok(if report.has_errors() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    fn survey(&self) -> anyhow::Result<(Survey, Vec<String>)> {
        let recorded = self.from.as_ref().map(Recorded::new);
        let names = match &recorded {
            Some(recorded) if self.hosts.is_empty() => recorded.hosts()?,
            _ => self.hosts.clone(),
        };
        check_hosts(&names)?;
        let survey = match (&recorded, &self.record) {
            (Some(recorded), _) => Survey::take(recorded, &names),
            (None, Some(folder)) => Survey::take(&Recording::new(Ssh::default(), folder), &names),
            (None, None) => Survey::take(&Ssh::default() as &dyn Source, &names),
        };
        Ok((survey, names))
    }

    fn form(&self) -> Form {
        match self.hostfile_form {
            HostfileForm::Object => Form::Object,
            HostfileForm::List => Form::List,
        }
    }

    fn write_hostfile(&self, report: &Report) -> anyhow::Result<()> {
        let Some(path) = &self.hostfile else { return Ok(()) };
        let Some(hostfile) = &report.hostfile else {
            let errors = report.checks.iter().filter(|check| check.level == Level::Error);
            let why: Vec<_> = errors.map(|check| check.text.as_str()).collect();
            bail!("{} was not written: {}", path.display(), why.join("; "));
        };
        std::fs::write(path, hostfile.text(self.form())).with_context(|| path.display().to_string())
    }

    fn print(&self, report: &Report) -> anyhow::Result<()> {
        print_hosts(&report.hosts)?;
        print_cables(&report.cables)?;
        print_line("\nCHECKS")?;
        report.checks.iter().try_for_each(print_check)?;
        if let Some(changes) = &report.changes {
            print_line("\nCHANGES")?;
            let none = ["none".to_owned()];
            let changes = if changes.is_empty() { &none[..] } else { changes };
            changes.iter().try_for_each(|change| print_wrapped("  ", "  ", change))?;
        }
        if let Some(hostfile) = &report.hostfile {
            match &self.hostfile {
                Some(path) => print_line(format!("\nHOSTFILE  {}", path.display()))?,
                None => print_line("\nHOSTFILE  (--hostfile FILE writes it)")?,
            }
            print_line(hostfile.text(self.form()).trim_end())?;
        }
        print_commands(&report.commands)
    }
}

/// The hosts as they were recorded; those that were not are left out.
fn earlier(folder: PathBuf, names: &[String]) -> anyhow::Result<Survey> {
    let mut survey = Survey::take(&Recorded::new(folder), names);
    match survey.unread.pop() {
        Some(unread) if survey.hosts.is_empty() => Err(unread.error.into()),
        _ => Ok(survey),
    }
}

fn print_hosts(hosts: &[HostFacts]) -> anyhow::Result<()> {
    let row = |host: &HostFacts| {
        vec![
            host.name.clone(),
            or_dash(host.model.as_ref()),
            host.system.clone(),
            host.rdma.to_string(),
            host.rdma_devices.len().to_string(),
            or_dash(host.lan.as_ref()),
        ]
    };
    let rows: Vec<_> = hosts.iter().map(row).collect();
    print_table(&["HOST", "MODEL", "SYSTEM", "RDMA", ">DEVICES", "NETWORK"], &rows)
}

fn print_cables(cables: &[CableFacts]) -> anyhow::Result<()> {
    if cables.is_empty() {
        return print_line("\nThere is no cable between these hosts.");
    }
    let row = |cable: &CableFacts| {
        let ends = cable.ends.iter().flat_map(end_cells);
        let rdma = if cable.rdma { "yes" } else { "no" };
        ends.chain([cable.speed.clone(), rdma.into()]).collect()
    };
    let rows: Vec<_> = cables.iter().map(row).collect();
    print_line("")?;
    let end = ["HOST", ">PORT", "INTERFACE", "ADDRESS"];
    print_table(&[&end[..], &end[..], &[">SPEED", "RDMA"]].concat(), &rows)
}

fn end_cells(end: &EndFacts) -> [String; 4] {
    [
        end.host.clone(),
        or_dash(end.port.as_ref()),
        or_dash(end.interface.as_ref()),
        or_dash(end.address.as_ref()),
    ]
}

fn or_dash(value: Option<&impl ToString>) -> String {
    value.map_or_else(|| "-".into(), ToString::to_string)
}

fn print_check(check: &Check) -> anyhow::Result<()> {
    let level = match check.level {
        Level::Ok => "ok",
        Level::Note => "note",
        Level::Warning => "warning",
        Level::Error => "ERROR",
    };
    print_wrapped(&format!("  {level:<9}"), "           ", &check.text)?;
    let hint = check.hint.as_ref().map(|hint| format!("hint: {hint}"));
    hint.map_or(Ok(()), |hint| print_wrapped("           ", "           ", &hint))
}

fn print_commands(fixes: &[Fix]) -> anyhow::Result<()> {
    if fixes.is_empty() {
        return Ok(());
    }
    print_line("\nCOMMANDS  that set the cables up; pomar has run none of them")?;
    for fix in fixes {
        let parts = [("until the next restart", &fix.until_restart), ("to last", &fix.lasting)];
        for (how_long, steps) in parts.iter().filter(|(_, steps)| !steps.is_empty()) {
            print_steps(&format!("on {}, {how_long}", fix.host), steps)?;
        }
    }
    Ok(())
}

/// The lines to paste, and in opposite order those that take them back.
fn print_steps(heading: &str, steps: &[Step]) -> anyhow::Result<()> {
    print_line(format!("{heading}:"))?;
    steps.iter().try_for_each(|step| print_line(format!("    {}", step.run)))?;
    print_line("  to undo that:")?;
    steps.iter().rev().try_for_each(|step| print_line(format!("    {}", step.undo)))
}

/// Prints a sentence in lines of at most 110 columns, broken between words.
fn print_wrapped(first: &str, other: &str, text: &str) -> anyhow::Result<()> {
    let mut line = first.to_owned();
    let mut is_empty = true;
    for word in text.split_whitespace() {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > COLUMNS {
            print_line(std::mem::replace(&mut line, other.to_owned()))?;
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    print_line(line)
}
