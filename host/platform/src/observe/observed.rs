//! Derives the spans of runs from their events, for metrics, traces and logs.
//!
//! A [`RunWatch`] is a channel of one run and its child runs. It stores open spans and passes each span to
//! [`Observers`] when the span ends. Spans contain only names, durations, outcomes and codes of the host. They contain
//! no inputs, messages or outputs of nodes.
//!
//! Each process watches a run by itself. If a span began in another process, this process sees only its end, so the
//! type of an attempt and the names of a call are unknown.

#![cfg_attr(not(feature = "otlp"), allow(dead_code, reason = "only spans read every field"))]

pub(crate) mod log;
mod open;

use std::sync::Arc;

use flowcell_contract::{Json, RunId, Tenant, code};
use flowcell_runtime::{Channel, Event};
use parking_lot::Mutex;

use self::open::OpenSpans;

/// Maximum number of characters of a name in a span.
pub(crate) const NAME_CHARS: usize = 128;

/// The reasons for which a run is parked that no person has to resume: it waits for an answer, a message or a timer, or
/// until a quota renews.
const BY_ITSELF: [&str; 2] = ["waiting", code::QUOTA_EXCEEDED];

/// A span that has ended.
#[derive(Clone, Debug)]
pub(crate) struct EndedSpan {
    pub(crate) tenant: Tenant,
    pub(crate) run: RunId,
    pub(crate) what: SpanSubject,
    /// The start, in milliseconds since 1970.
    pub(crate) began: u64,
    pub(crate) ended: u64,
    /// One of `succeeded`, `failed`, `cancelled` and `retried`.
    pub(crate) outcome: &'static str,
    /// The code of the failure, if the span's subject has failed.
    pub(crate) error: Option<String>,
}

/// The subject of a span.
#[derive(Clone, Debug)]
pub(crate) enum SpanSubject {
    /// A run of a flow.
    Run { flow: String },
    /// An attempt of a task.
    Attempt { task: AttemptId, node_type: String },
    /// A call of an attempt.
    Call { task: AttemptId, agent: Option<String>, call: CallTarget },
    /// An agent run.
    Agent { task: AttemptId, id: String, model: Option<String>, usage: Option<Tokens> },
}

/// The identity of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct AttemptId {
    /// The address of the task.
    pub(crate) task: String,
    pub(crate) attempt: u64,
}

/// The interface, function and target of a call.
#[derive(Clone, Debug)]
pub(crate) struct CallTarget {
    pub(crate) ordinal: u64,
    pub(crate) interface: String,
    pub(crate) function: String,
    /// The provider, for a model's turn.
    pub(crate) provider: Option<String>,
    pub(crate) model: Option<String>,
    /// The model that answered.
    pub(crate) answered: Option<String>,
    pub(crate) usage: Option<Tokens>,
    /// The name of the tool, for a tool call.
    pub(crate) tool: Option<String>,
}

/// The tokens that a model's turns used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tokens {
    pub(crate) input: u64,
    pub(crate) output: u64,
}

impl Tokens {
    pub(crate) fn read(usage: &Json) -> Option<Tokens> {
        let count = |name| usage.get(name).and_then(Json::as_u64);
        Some(Tokens { input: count("input")?, output: count("output").unwrap_or(0) })
    }
}

/// A receiver of spans.
pub(crate) trait Observer: Send + Sync {
    /// Reports that a run has begun. A resumed run is not reported again.
    fn started(&self, _tenant: &Tenant, _run: &RunId, _flow: &str) {}

    /// Reports that a run was parked until a person resumes it. `reason` is a snake-case name, such as `crash_loop`.
    fn needs_attention(&self, _tenant: &Tenant, _run: &RunId, _reason: &str) {}

    /// Reports that a run was parked because its tenant has used up a quota. `until` is the time at which the quota renews,
    /// in milliseconds since 1970.
    fn paused(&self, _tenant: &Tenant, _run: &RunId, _quota: &str, _until: u64) {}

    /// Reports a span that has ended in the run `root` or a child run. The reports follow the order of the run's
    /// events. The method must return quickly.
    fn ended(&self, root: &RunId, ended: &EndedSpan);
}

/// The receivers of a process's spans.
pub(crate) type Observers = Arc<[Arc<dyn Observer>]>;

/// Watches one run and its child runs.
pub(crate) struct RunWatch {
    observers: Observers,
    root: RunId,
    open: Mutex<OpenSpans>,
}

impl RunWatch {
    /// Watches a run. `flow` is the name of the run's own flow.
    pub(crate) fn new(observers: Observers, run: RunId, flow: &str) -> RunWatch {
        RunWatch { observers, root: run.clone(), open: Mutex::new(OpenSpans::new(run, flow)) }
    }

    fn report(&self, ended: &EndedSpan) {
        self.observers.iter().for_each(|observer| observer.ended(&self.root, ended));
    }
}

impl Channel for RunWatch {
    fn on_event(&self, event: &Event) {
        if event.kind == "harness:start" {
            let flow = name_in(&event.data, "name").unwrap_or_default();
            self.observers.iter().for_each(|observer| observer.started(&event.tenant, &event.run_id, &flow));
        }
        if event.kind == "harness:parked"
            && let Some(quota) = name_in(&event.data, "quota")
        {
            let until = event.data.get("until").and_then(Json::as_u64).unwrap_or_default();
            self.observers.iter().for_each(|observer| observer.paused(&event.tenant, &event.run_id, &quota, until));
        }
        if event.kind == "harness:parked"
            && let Some(reason) = name_in(&event.data, "reason").filter(|reason| !BY_ITSELF.contains(&reason.as_str()))
        {
            self.observers.iter().for_each(|observer| observer.needs_attention(&event.tenant, &event.run_id, &reason));
        }
        let mut open = self.open.lock();
        open.apply(event, &mut |ended| self.report(&ended));
    }
}

/// Returns a name from an event's members, cut to [`NAME_CHARS`].
fn name_in(data: &Json, member: &str) -> Option<String> {
    Some(data.get(member)?.as_str()?.chars().take(NAME_CHARS).collect())
}

/// Returns the code of a failure. A text that is not a valid code becomes `other`.
fn code_in(data: &Json) -> Option<String> {
    let code = data.get("error")?.get("code")?.as_str()?;
    let plain =
        code.len() <= 64 && code.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_' || byte.is_ascii_digit());
    Some(if plain { code.to_owned() } else { "other".to_owned() })
}

#[cfg(test)]
mod tests;
