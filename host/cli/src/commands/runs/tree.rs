//! Prints a run as a tree of tasks, passes through their bodies, attempts, durations and errors.

use std::{collections::BTreeMap, time::Duration};

use flowcell::{Event, Json, RunRow, shape::time};

use crate::{
    duration,
    terminal::{Paint, inert},
};

/// The tree, built from a run's events.
#[derive(Default)]
pub(super) struct Tree {
    head: String,
    tail: String,
    /// The tasks by address. In this order, nested tasks follow the task that owns their body, and passes follow each
    /// other by number.
    tasks: BTreeMap<Vec<Part>, Task>,
}

/// One part of an address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Pass(u64),
    /// A node: the number of the first event about it, by which nodes are ordered, and its id.
    Node(u64, String),
}

#[derive(Default)]
struct Task {
    status: &'static str,
    attempts: u64,
    calls: u64,
    millis: Option<u64>,
    note: String,
    /// The open questions about calls, by the numbers of the calls.
    asks: BTreeMap<u64, String>,
}

impl Tree {
    pub(super) fn add(&mut self, event: &Event) {
        let text = |key: &str| event.data.get(key).and_then(Json::as_str).unwrap_or_default().to_owned();
        match event.kind {
            "harness:start" => self.head = format!("{}  {}", event.run_id, text("name")),
            "harness:parked" => self.tail = parked_text(&text("reason"), event),
            "harness:resumed" => self.tail.clear(),
            "harness:complete" => self.tail = end_text(event, &text("status")),
            _ => {}
        }
        let Some(id) = event.data.get("taskId").and_then(Json::as_str) else { return };
        let status = match event.kind {
            "task:ready" | "task:woken" | "task:due" => "ready",
            "task:start" | "task:resumed" | "task:repeated" => "running",
            "task:blocked" => "blocked",
            "task:resolved" => "resolved",
            "call:held" => "waits for a quota",
            "call:start" | "service:call" => return self.add_call(event, &text("scope"), id),
            "agent:tool:decision" | "call:result" | "call:error" => {
                let place = self.task_path(&text("scope"), id, event.seq);
                return self.tasks.entry(place).or_default().close_question(event);
            }
            "task:idle" => "waiting",
            "task:busy" => "running",
            "task:paused" => "waiting",
            "task:retry" => "waits for a retry",
            "task:complete" => "succeeded",
            "task:failed" => "failed",
            "task:skipped" => "skipped",
            "task:cancelled" => "cancelled",
            _ => return,
        };
        let place = self.task_path(&text("scope"), id, event.seq);
        let task = self.tasks.entry(place).or_default();
        task.status = status;
        let number = |key: &str| event.data.get(key).and_then(Json::as_u64);
        task.attempts += u64::from(event.kind == "task:start");
        task.millis = number("durationMs").or(task.millis);
        task.note = note(event);
        if !matches!(event.kind, "task:idle" | "task:busy") {
            task.asks.clear();
        }
    }

    /// Sets the run's present status. If the status is `active` although the last event parked the run, an answer has
    /// arrived since. The tree then shows how to continue the run.
    pub(super) fn set_status(&mut self, status: &str) {
        if status == "active" && self.tail.starts_with("parked") {
            self.tail = "active: continue it with `flowcell drive` or `flowcell runs resume`".into();
        }
    }

    /// Completes the tree of a run whose later events cannot be read: sets its first line, and the present status as its
    /// last line.
    pub(super) fn set_cut(&mut self, run: &RunRow) {
        if self.head.is_empty() {
            self.head = format!("{}  {}", run.run_id, run.flow);
        }
        let status = if run.status == "active" { "running" } else { &run.status };
        self.tail = format!("{status}; further tasks are unknown");
    }

    /// Counts an external call of a task. If a person has to allow the call, records its question.
    fn add_call(&mut self, event: &Event, scope: &str, id: &str) {
        let place = self.task_path(scope, id, event.seq);
        let task = self.tasks.entry(place).or_default();
        task.calls += 1;
        if let Some(question) = event.data.get("question") {
            let member = |name: &str| question.get(name).and_then(Json::as_str).unwrap_or_default();
            task.asks.insert(call_of(event), format!("asks `{}`: {}", member("address"), member("prompt")));
        }
    }

    /// Returns the position of a task in the tree: the parts of its address. A known task keeps its position. `seq` is
    /// the number of the event, for a task that is new.
    fn task_path(&self, scope: &str, id: &str, seq: u64) -> Vec<Part> {
        let mut place = Vec::new();
        let step = |place: &mut Vec<Part>, name: &str| {
            let mut below = self.tasks.keys().filter(|key| key.len() > place.len() && key.starts_with(place));
            let known = below.find_map(|key| match &key[place.len()] {
                Part::Node(_, known) if known == name => Some(key[place.len()].clone()),
                _ => None,
            });
            place.push(known.unwrap_or_else(|| Part::Node(seq, name.to_owned())));
        };
        for part in scope.split('.').filter(|part| !part.is_empty()) {
            let (owner, pass) = part.split_once('[').unwrap_or((part, "0]"));
            step(&mut place, owner);
            place.push(Part::Pass(pass.trim_end_matches(']').parse().unwrap_or(0)));
        }
        step(&mut place, id);
        place
    }

    pub(super) fn render(&self, paint: Paint) -> String {
        let mut text = format!("{}\n", inert(&self.head));
        let mut pass: &[Part] = &[];
        for (place, task) in &self.tasks {
            let parent = &place[..place.len() - 1];
            if parent != pass {
                pass = parent;
                if let [owner @ .., Part::Pass(number)] = parent {
                    // No line stands for a cycle of edges, so its passes have the id of its entry.
                    let name = match owner.last() {
                        Some(Part::Node(_, name)) if !self.tasks.contains_key(owner) => inert(name).to_string(),
                        _ => String::new(),
                    };
                    text.push_str(&format!("{}{name}[{number}]\n", "  ".repeat(parent.len())));
                }
            }
            let Some(Part::Node(_, name)) = place.last() else { continue };
            let indent = "  ".repeat(place.len());
            text.push_str(&format!("{indent}{}\n", task.line(&inert(name), paint)));
            for asks in task.asks.values() {
                text.push_str(&format!("{indent}  {}\n", paint.warning(&inert(asks))));
            }
        }
        if !self.tail.is_empty() {
            text.push_str(&format!("{}\n", inert(&self.tail)));
        }
        text
    }
}

fn call_of(event: &Event) -> u64 {
    event.data.get("call").and_then(Json::as_u64).unwrap_or_default()
}

impl Task {
    /// Removes the question about a call that was allowed, was denied, or has ended.
    fn close_question(&mut self, event: &Event) {
        self.asks.remove(&call_of(event));
    }

    fn line(&self, name: &str, paint: Paint) -> String {
        let status = match self.status {
            "succeeded" => paint.success(self.status),
            "failed" => paint.error(self.status),
            "skipped" | "cancelled" => paint.faint(self.status),
            _ => paint.warning(self.status),
        };
        let mut line = format!("{} {status}", paint.name(name));
        if let Some(millis) = self.millis {
            line.push_str(&format!("  {}", duration::show(Duration::from_millis(millis))));
        }
        if self.attempts > 1 {
            line.push_str(&format!("  {} attempts", self.attempts));
        }
        match self.calls {
            0 => {}
            1 => line.push_str("  1 call"),
            calls => line.push_str(&format!("  {calls} calls")),
        }
        if !self.note.is_empty() {
            line.push_str(&format!("  {}", inert(&self.note)));
        }
        line
    }
}

fn note(event: &Event) -> String {
    let member = |key: &str, inner: &str| event.data.get(key)?.get(inner)?.as_str().map(str::to_owned);
    let error = || Some(format!("{}: {}", member("error", "code")?, member("error", "message")?));
    let event_name = || event.data.get("event").and_then(Json::as_str).map(|name| format!("for the event `{name}`"));
    let blocked = || (event.kind == "task:blocked").then(|| event.data.get("message")?.as_str().map(str::to_owned))?;
    error().or_else(|| member("question", "prompt")).or_else(event_name).or_else(blocked).unwrap_or_default()
}

fn parked_text(reason: &str, event: &Event) -> String {
    let quota = event.data.get("quota").and_then(Json::as_str).unwrap_or_default();
    let until = event.data.get("until").and_then(Json::as_u64).map(time).unwrap_or_default();
    let parked = match reason {
        "quota_exceeded" => {
            return format!("parked: the quota `{}` is used up; the run goes on by itself at {until}", inert(quota));
        }
        "needs_attention" => "parked: a task needs a decision",
        "crash_loop" => "parked: its process ended repeatedly",
        "restored" => "parked: the store was restored from an older copy",
        _ => "parked",
    };
    parked.to_owned()
}

fn end_text(event: &Event, status: &str) -> String {
    let millis = event.data.get("durationMs").and_then(Json::as_u64).unwrap_or(0);
    format!("{status} in {}", duration::show(Duration::from_millis(millis)))
}
