//! What is right with the hosts and cables, and what is not, with what to do about it.

mod cable;
mod group;
mod host;

use crate::{Backend, CableAddresses, Cabling, Choice, Host, Reach, Survey};
use serde::Serialize;

/// The most pairs or places that a sentence lists.
const MAX_LISTED: usize = 8;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As it should be.
    Ok,
    /// Good to know.
    Note,
    /// Something is slower than it could be, or will not work when it is tried.
    Warning,
    /// What was asked for does not work.
    Error,
}

/// A finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// How much it matters.
    pub level: Level,
    /// A name for programs, which stays the same when the sentence changes.
    pub code: &'static str,
    /// The hosts that it is about, by name.
    pub hosts: Vec<String>,
    /// The finding, a sentence.
    pub text: String,
    /// What to do, where that is known.
    pub hint: Option<String>,
}

impl Check {
    fn new<'a>(
        level: Level,
        code: &'static str,
        hosts: impl IntoIterator<Item = &'a String>,
        text: impl Into<String>,
    ) -> Self {
        Self { level, code, hosts: hosts.into_iter().cloned().collect(), text: text.into(), hint: None }
    }

    /// The cables allow a backend, but the hostfile cannot be written.
    pub(crate) fn hostfile(hosts: &[Host], why: String) -> Self {
        Self::new(Level::Error, "hostfile", hosts.iter().map(|host| &host.name), why)
    }

    fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// All that the checks look at.
pub(crate) struct Subject<'a> {
    pub(crate) survey: &'a Survey,
    pub(crate) cabling: &'a Cabling,
    pub(crate) addresses: &'a [Option<CableAddresses>],
    pub(crate) reach: &'a Reach,
    /// The backend that was asked for.
    pub(crate) wanted: Option<Backend>,
    /// The one that works, or why none does; nothing when the ranks are to use the ordinary network.
    pub(crate) choice: Option<&'a Result<Choice, String>>,
}

impl Subject<'_> {
    /// Pairs of Macs without a cable.
    fn missing(&self) -> Vec<(usize, usize)> {
        self.reach.missing(&self.survey.hosts)
    }

    /// Lack of RDMA matters unless TCP was asked for.
    fn rdma_level(&self) -> Level {
        if self.wanted == Some(Backend::Ring) || self.choice.is_none() { Level::Note } else { Level::Warning }
    }
}

/// Every finding: hosts first, then cables, then all together.
pub(crate) fn checks(subject: &Subject<'_>) -> Vec<Check> {
    let mut checks = host::checks(subject);
    checks.extend(cable::checks(subject));
    checks.extend(group::checks(subject));
    checks
}

/// Some words, and how many more there are.
pub(crate) fn listed(words: &[String]) -> String {
    let shown = words[..words.len().min(MAX_LISTED)].join(", ");
    if words.len() > MAX_LISTED { format!("{shown} and {} more", words.len() - MAX_LISTED) } else { shown }
}
