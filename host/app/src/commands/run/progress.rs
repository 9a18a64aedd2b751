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
pub(crate) struct Progress {
    screen: Arc<Screen>,
    /// Whether somebody else shows questions, to ask them.
    asked_elsewhere: bool,
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
    pub(crate) fn new(screen: Arc<Screen>, flow: &str) -> Progress {
        Progress { screen, asked_elsewhere: false, flow: flow.to_owned(), tally: Mutex::default() }
    }

    /// Leaves questions to somebody who asks them.
    pub(super) fn without_questions(self) -> Progress {
        Progress { asked_elsewhere: true, ..self }
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
        let elsewhere = self.asked_elsewhere && event.data.get("question").is_some();
        if let Some(line) = Line::about(event, &subject).filter(|line| !elsewhere && tally.admits(line)) {
            self.screen.line(&line.render(self.screen.paint()));
        }
        if let Some(status) = tally.status() {
            self.screen.status(&status);
        }
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

    /// What is running. None if that is nothing: then something is about to.
    fn status(&self) -> Option<String> {
        let named: Vec<_> = self.running.iter().take(NAMED).map(String::as_str).collect();
        let more = match self.running.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        (!named.is_empty()).then(|| format!("{} done, running: {}{more}", self.ended, named.join(", ")))
    }
}
