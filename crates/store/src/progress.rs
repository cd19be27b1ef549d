//! Telling a person, or nobody, how far a long job is.

use std::io::IsTerminal;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Hears of long jobs. One job runs at a time: `start`, any number of `at`, `finish`.
pub trait Progress: Send + Sync {
    /// A job begins. `total` is its size in bytes where that is known.
    fn start(&self, label: &str, total: Option<u64>);
    /// `done` bytes are finished (including any that an earlier run had finished).
    fn at(&self, done: u64);
    /// The job is over, well or not.
    fn finish(&self);
    /// Something worth a line, for instance that another source is tried.
    fn note(&self, text: &str);
}

/// Says nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Progress for Silent {
    fn start(&self, _label: &str, _total: Option<u64>) {}
    fn at(&self, _done: u64) {}
    fn finish(&self) {}
    fn note(&self, _text: &str) {}
}

/// A bar on standard error that vanishes when its job is done. Draws nothing where standard error is no
/// terminal; notes are printed either way.
#[derive(Debug)]
pub struct Bar {
    bar: Mutex<ProgressBar>,
    terminal: bool,
}

impl Bar {
    /// A bar that is not drawn before its first job.
    pub fn new() -> Self {
        Bar { bar: Mutex::new(ProgressBar::hidden()), terminal: std::io::stderr().is_terminal() }
    }

    fn with_bar(&self, act: impl FnOnce(&mut ProgressBar)) {
        act(&mut self.bar.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn fresh_bar(total: Option<u64>) -> ProgressBar {
        let (bar, template) = match total {
            Some(total) => (
                ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr()),
                "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}",
            ),
            None => (
                ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr()),
                "{spinner} {msg} {bytes} {elapsed}",
            ),
        };
        match ProgressStyle::with_template(template) {
            Ok(style) => bar.with_style(style),
            Err(_) => bar,
        }
    }
}

impl Default for Bar {
    fn default() -> Self {
        Self::new()
    }
}

impl Progress for Bar {
    fn start(&self, label: &str, total: Option<u64>) {
        if !self.terminal {
            return;
        }
        self.with_bar(|bar| {
            bar.finish_and_clear();
            *bar = Self::fresh_bar(total).with_message(label.to_owned());
            bar.enable_steady_tick(Duration::from_millis(200));
        });
    }

    fn at(&self, done: u64) {
        self.with_bar(|bar| bar.set_position(done));
    }

    fn finish(&self) {
        self.with_bar(|bar| bar.finish_and_clear());
    }

    fn note(&self, text: &str) {
        self.with_bar(|bar| bar.suspend(|| eprintln!("{text}")));
    }
}

/// Ends its job when it goes out of scope, so that an error return leaves no bar on the screen.
pub(crate) struct Job<'a>(&'a dyn Progress);

impl<'a> Job<'a> {
    pub(crate) fn start(progress: &'a dyn Progress, label: &str, total: Option<u64>) -> Self {
        progress.start(label, total);
        Job(progress)
    }

    pub(crate) fn at(&self, done: u64) {
        self.0.at(done);
    }
}

impl Drop for Job<'_> {
    fn drop(&mut self) {
        self.0.finish();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_templates_are_valid() {
        for total in [None, Some(7)] {
            assert_eq!(Bar::fresh_bar(total).length(), total);
        }
        for template in [
            "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}",
            "{spinner} {msg} {bytes} {elapsed}",
        ] {
            assert!(ProgressStyle::with_template(template).is_ok());
        }
    }
}
