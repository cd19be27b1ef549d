//! All hosts, asked at the same time.

use crate::{Host, ProbeError, Source};
use std::thread;

/// The hosts that answered, and those that did not.
#[derive(Debug, Default)]
pub struct Survey {
    /// In the order in which they were named.
    pub hosts: Vec<Host>,
    /// The others, with the reason.
    pub unread: Vec<Unread>,
}

/// A host of which nothing is known.
#[derive(Debug)]
pub struct Unread {
    /// Its name.
    pub name: String,
    /// Why.
    pub error: ProbeError,
}

impl Survey {
    /// Asks every host, each on a thread of its own. [`check_hosts`](crate::check_hosts) bounds how many
    /// there are.
    pub fn take<'n>(source: &dyn Source, names: &'n [String]) -> Self {
        let read = thread::scope(|scope| {
            let ask = |name: &'n String| scope.spawn(move || (name, Host::read(source, name)));
            let threads: Vec<_> = names.iter().map(ask).collect();
            // A thread that panicked would be a bug here; it must not be taken for a host without cables.
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect::<Vec<_>>()
        });
        let mut survey = Self::default();
        for (name, host) in read {
            match host {
                Ok(host) => survey.hosts.push(host),
                Err(error) => survey.unread.push(Unread { name: name.clone(), error }),
            }
        }
        survey
    }
}
