//! The progress of a run's tasks, for whoever watches.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use flowcell::{Channel, Event, Hub};

use super::{
    lines::{Line, Subject},
    screen::Screen,
};

/// Lines about tasks that went well inside bodies and children; after that many, only the others are told.
const MAX_INNER_LINES: usize = 200;
/// Running tasks that the status names.
const NAMED: usize = 4;

/// Tells of tasks as they go on and end.
pub(super) struct Progress {
    screen: Arc<Screen>,
    flow: String,
    tally: Mutex<Tally>,
}

#[derive(Default)]
struct Tally {
    root: String,
    running: BTreeSet<String>,
    ended: usize,
    inner_lines: usize,
}

impl Progress {
    /// Progress on a screen.
    pub(super) fn new(screen: Arc<Screen>, flow: &str) -> Progress {
        Progress { screen, flow: flow.to_owned(), tally: Mutex::default() }
    }

    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Channel for Progress {
    fn on_start(&self, hub: &Hub) {
        let mut tally = self.tally();
        if tally.root.is_empty() {
            tally.root = hub.run_id().to_string();
            let paint = self.screen.paint();
            self.screen.line(&format!("{} {}", paint.name(&self.flow), paint.faint(&tally.root)));
        }
    }

    fn on_event(&self, event: &Event) {
        let mut tally = self.tally();
        let Some(subject) = Subject::of(event, &tally.root) else { return };
        tally.count(event.kind, &subject);
        if let Some(line) = Line::about(event, &subject).filter(|line| tally.admits(line)) {
            self.screen.line(&line.render(self.screen.paint()));
        }
        self.screen.status(&tally.status());
    }
}

impl Tally {
    fn count(&mut self, kind: &str, subject: &Subject) {
        match kind {
            "task:start" | "task:resumed" => {
                self.running.insert(subject.address.clone());
            }
            "task:complete" | "task:failed" | "task:cancelled" => {
                self.running.remove(&subject.address);
                self.ended += 1;
            }
            "task:paused" | "task:retry" => {
                self.running.remove(&subject.address);
            }
            _ => {}
        }
    }

    /// A body of ten thousand passes is not told pass by pass.
    fn admits(&mut self, line: &Line) -> bool {
        if !line.is_routine() {
            return true;
        }
        self.inner_lines += 1;
        self.inner_lines <= MAX_INNER_LINES
    }

    fn status(&self) -> String {
        let mut names: Vec<_> = self.running.iter().take(NAMED).map(String::as_str).collect();
        let more = self.running.len().saturating_sub(NAMED);
        let more = format!("{more} more");
        if self.running.len() > NAMED {
            names.push(&more);
        }
        format!("{} done, running: {}", self.ended, if names.is_empty() { "nothing".into() } else { names.join(", ") })
    }
}
