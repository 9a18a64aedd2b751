//! Tries a run alone after its process died repeatedly.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use flowcell_runtime::{Channel, Event, FlowRunner};
use tokio::{sync::Notify, time::Instant};

use super::Key;

/// Maximum time that other runs wait for a run that is tried alone.
const MAX_TRIAL_TIME: Duration = Duration::from_secs(30);

/// The trial of one run.
pub(super) struct Trial {
    run: Key,
    until: Instant,
    progress: Arc<ProgressWatch>,
}

impl Trial {
    /// Begins the trial of a run. Attaches a channel to the run, which signals `moved` when the run makes progress.
    pub(super) fn begin(run: Key, runner: &mut FlowRunner, moved: &Arc<Notify>) -> Trial {
        let progress = Arc::new(ProgressWatch { moved: moved.clone(), seen: AtomicBool::new(false) });
        runner.attach(progress.clone());
        Trial { run, until: Instant::now() + MAX_TRIAL_TIME, progress }
    }

    pub(super) fn is_of(&self, run: &Key) -> bool {
        self.run == *run
    }

    /// Returns whether other runs may begin: the run has made progress, or [`MAX_TRIAL_TIME`] has passed.
    pub(super) fn is_over(&self) -> bool {
        Instant::now() >= self.until || self.progress.seen.load(Ordering::Acquire)
    }

    /// Returns the remaining time of the trial.
    pub(super) fn remaining_time(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }
}

/// Observes whether a run makes progress.
struct ProgressWatch {
    moved: Arc<Notify>,
    seen: AtomicBool,
}

impl Channel for ProgressWatch {
    fn on_event(&self, event: &Event) {
        let begins = matches!(
            event.kind,
            "harness:resumed"
                | "harness:accompanied"
                | "harness:renewed"
                | "task:start"
                | "task:resumed"
                | "call:start"
                | "service:call"
                | "log"
                | "metric"
        );
        if !begins {
            self.seen.store(true, Ordering::Release);
            self.moved.notify_one();
        }
    }
}
