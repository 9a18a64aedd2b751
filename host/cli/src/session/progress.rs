//! Shows the progress of a run's tasks.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use flowcell::{Channel, Event, Hub, Json};
use parking_lot::Mutex;

use super::{
    lines::{Line, Subject},
    screen::Screen,
};
use crate::duration;

/// Maximum number of lines about tasks in bodies and child runs that have succeeded or were skipped.
const MAX_INNER_LINES: usize = 200;
/// Maximum number of names of running tasks, and of waiting tasks, in the status line.
const MAX_NAMED_TASKS: usize = 4;
/// The shortest compile time of the components that is shown.
const MIN_SHOWN_COMPILE_TIME: Duration = Duration::from_secs(1);

/// A channel that writes a line when a task waits, ends or logs, and keeps the status line current.
pub(crate) struct Progress {
    screen: Arc<Screen>,
    /// True if the [`Asker`](super::ask::Asker) shows the questions, so that this channel does not.
    hides_questions: bool,
    flow: String,
    tally: Mutex<Tally>,
}

#[derive(Default)]
struct Tally {
    root: String,
    running: BTreeSet<String>,
    /// Tasks that wait for a timer, an answer, an event or another attempt.
    waiting: BTreeSet<String>,
    /// The time at which compiling the components began. `None` once the first event of the run has arrived.
    preparing: Option<Instant>,
    ended: usize,
    inner_lines: usize,
}

impl Progress {
    /// Creates the progress on a screen.
    pub(crate) fn new(screen: Arc<Screen>, flow: &str) -> Progress {
        Progress { screen, hides_questions: false, flow: flow.to_owned(), tally: Mutex::default() }
    }

    /// Hides questions, because the channel that asks them shows them.
    pub(crate) fn without_questions(self) -> Progress {
        Progress { hides_questions: true, ..self }
    }
}

impl Channel for Progress {
    fn on_start(&self, hub: &Hub) {
        let mut tally = self.tally.lock();
        if tally.root.is_empty() {
            tally.root = hub.run_id().to_string();
            let paint = self.screen.paint();
            self.screen.line(&format!("{} {}", paint.name(&self.flow), paint.faint(&tally.root)));
            tally.preparing = Some(Instant::now());
            self.screen.status("compiling components for their first run");
        }
    }

    fn on_event(&self, event: &Event) {
        let mut tally = self.tally.lock();
        if let Some(took) =
            tally.preparing.take().map(|since| since.elapsed()).filter(|took| *took >= MIN_SHOWN_COMPILE_TIME)
            && self.screen.is_watched()
        {
            let text = format!("  compiled the components in {}", duration::show(took));
            self.screen.line(&self.screen.paint().faint(&text));
        }
        let Some(subject) = Subject::of(event, &tally.root) else { return };
        tally.count(event, &subject);
        let elsewhere = self.hides_questions && event.data.get("question").is_some();
        if let Some(line) = Line::about(event, &subject).filter(|line| !elsewhere && tally.admit_line(line)) {
            self.screen.line(&line.render(self.screen.paint()));
        }
        self.screen.status(&tally.status());
    }
}

impl Tally {
    fn count(&mut self, event: &Event, subject: &Subject) {
        let address = &subject.address;
        let (runs, waits) = match event.kind {
            "task:start" | "task:resumed" | "task:repeated" | "task:busy" | "task:woken" => (true, false),
            // Tasks that own a body or call a flow pause for their own nodes. Such a task is shown neither as running
            // nor as waiting.
            "task:paused" => (false, is_waiting_outside(&event.data)),
            "task:idle" | "task:retry" | "call:held" => (false, true),
            "task:blocked" | "task:complete" | "task:failed" | "task:cancelled" => (false, false),
            _ => return,
        };
        self.ended += usize::from(matches!(event.kind, "task:complete" | "task:failed" | "task:cancelled"));
        for (set, belongs) in [(&mut self.running, runs), (&mut self.waiting, waits)] {
            if belongs {
                set.insert(address.clone());
            } else {
                set.remove(address);
            }
        }
    }

    /// Returns true if this line may be shown: any line that is not routine, and the first [`MAX_INNER_LINES`] routine
    /// lines.
    fn admit_line(&mut self, line: &Line) -> bool {
        if !line.is_routine() {
            return true;
        }
        self.inner_lines += 1;
        self.inner_lines <= MAX_INNER_LINES
    }

    /// Returns the text of the status line.
    fn status(&self) -> String {
        let named = |what: &str, tasks: &BTreeSet<String>| {
            let names: Vec<_> = tasks.iter().take(MAX_NAMED_TASKS).map(String::as_str).collect();
            let more = match tasks.len().saturating_sub(MAX_NAMED_TASKS) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            if names.is_empty() { String::new() } else { format!(", {what}: {}{more}", names.join(", ")) }
        };
        format!("{} done{}{}", self.ended, named("running", &self.running), named("waiting", &self.waiting))
    }
}

/// Returns whether a pause waits for a timer, an answer or an event.
fn is_waiting_outside(data: &Json) -> bool {
    let until = data.get("until").and_then(Json::as_array).unwrap_or_default();
    until.iter().filter_map(Json::as_str).any(|wake| matches!(wake, "after" | "event" | "answer"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use flowcell::{RunId, contract::Tenant};

    use super::*;

    fn status(events: &[(&'static str, &str, &str)]) -> String {
        let mut tally = Tally { root: "r".into(), ..Tally::default() };
        for (kind, task, until) in events {
            let data = format!(r#"{{"taskId":"{task}","until":["{until}"]}}"#);
            let (tenant, run_id) = (Tenant::local(), RunId::from("r"));
            let event = Event { seq: 0, ts: 0, tenant, run_id, kind, data: Json::parse(&data).unwrap() };
            let subject = Subject::of(&event, "r").unwrap();
            tally.count(&event, &subject);
        }
        tally.status()
    }

    #[test]
    fn the_status_line_names_running_and_waiting_tasks() {
        let both = [("task:start", "long", ""), ("task:start", "short", "")];
        assert_eq!(status(&both), "0 done, running: long, short");
        let paused = [("task:paused", "long", "after"), ("task:paused", "short", "after")];
        let ended = [("task:woken", "short", ""), ("task:resumed", "short", ""), ("task:complete", "short", "")];
        assert_eq!(status(&[&both[..], &paused].concat()), "0 done, waiting: long, short");
        assert_eq!(status(&[&both[..], &paused, &ended].concat()), "1 done, waiting: long");
        let owner = [("task:start", "each", ""), ("task:paused", "each", "each"), ("task:start", "a", "")];
        assert_eq!(status(&owner), "0 done, running: a");
        let agent = [("task:start", "ask", ""), ("task:idle", "ask", "")];
        assert_eq!(status(&agent), "0 done, waiting: ask");
        assert_eq!(status(&[&agent[..], &[("task:busy", "ask", "")]].concat()), "0 done, running: ask");
    }
}
