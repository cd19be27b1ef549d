//! Telling a background thread to end, at once.

use std::{
    sync::{Condvar, Mutex},
    time::Duration,
};

/// Starts out as "go on"; once stopped, stays so.
#[derive(Debug, Default)]
pub(crate) struct Stop {
    stopped: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    stopped: bool,
    hurried: bool,
}

impl Stop {
    /// Ends every present and future wait.
    pub(crate) fn stop(&self) {
        crate::transport::lock(&self.stopped).stopped = true;
        self.changed.notify_all();
    }

    /// Ends the wait of now, or the next one.
    pub(crate) fn hurry(&self) {
        crate::transport::lock(&self.stopped).hurried = true;
        self.changed.notify_all();
    }

    /// Waits for `pause`, or less when hurried or stopped; says whether to stop.
    pub(crate) fn wait(&self, pause: Duration) -> bool {
        let state = crate::transport::lock(&self.stopped);
        let idle = |state: &mut State| !state.stopped && !state.hurried;
        let answer = self.changed.wait_timeout_while(state, pause, idle);
        let (mut state, _) = answer.unwrap_or_else(std::sync::PoisonError::into_inner);
        state.hurried = false;
        state.stopped
    }
}
