//! What happens in runs, as things that began and ended: from their events, for whoever counts or traces.
//!
//! A [`Watch`] is a channel of one run and the runs below it. It keeps what began until it ends, and tells [`Observers`] of it
//! then. Only what the host itself has named is told: names, durations, outcomes and codes, and nothing of what nodes were
//! given, said or made.
//!
//! A run that goes on in another process is watched by another watch. What began before is told by its end alone: of an
//! attempt its type is unknown then, and of a call everything is.

#![cfg_attr(not(feature = "otlp"), allow(dead_code, reason = "only spans read every field"))]

pub(crate) mod log;
mod open;

use std::sync::Arc;

use flowcell_contract::{Json, RunId, Tenant};
use flowcell_runtime::{Channel, Event};
use parking_lot::Mutex;

use self::open::Open;

/// Characters of a name that observers are told.
pub(crate) const NAME_CHARS: usize = 128;

/// Something that has ended.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    pub(crate) tenant: Tenant,
    pub(crate) run: RunId,
    pub(crate) what: What,
    /// Milliseconds since 1970.
    pub(crate) began: u64,
    pub(crate) ended: u64,
    /// `succeeded`, `failed`, `cancelled`, `retried`.
    pub(crate) outcome: &'static str,
    /// The code of its failure.
    pub(crate) error: Option<String>,
}

/// What has ended.
#[derive(Clone, Debug)]
pub(crate) enum What {
    /// A run.
    Run { flow: String },
    /// An attempt of a task.
    Attempt { task: Attempted, node_type: String },
    /// A call of an attempt.
    Call { task: Attempted, agent: Option<String>, call: Called },
    /// An agent run.
    Agent { task: Attempted, id: String, model: Option<String>, usage: Option<Tokens> },
}

/// Which attempt.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Attempted {
    /// The address of the task.
    pub(crate) task: String,
    pub(crate) attempt: u64,
}

/// A call.
#[derive(Clone, Debug)]
pub(crate) struct Called {
    pub(crate) ordinal: u64,
    pub(crate) interface: String,
    pub(crate) function: String,
    /// Of a turn of a model.
    pub(crate) provider: Option<String>,
    pub(crate) model: Option<String>,
    /// The model that answered.
    pub(crate) answered: Option<String>,
    pub(crate) usage: Option<Tokens>,
    /// Of a call of a tool.
    pub(crate) tool: Option<String>,
}

/// What turns of a model used.
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

/// One who wants to know.
pub(crate) trait Observer: Send + Sync {
    /// A run has begun, and not only gone on.
    fn started(&self, _tenant: &Tenant, _run: &RunId, _flow: &str) {}

    /// Something has ended in the run `root`, or in one below it. It is called in the order of the run, and must be quick.
    fn ended(&self, root: &RunId, ended: &Ended);
}

/// Those who want to know.
pub(crate) type Observers = Arc<[Arc<dyn Observer>]>;

/// Watches one run and the runs below it.
pub(crate) struct Watch {
    observers: Observers,
    root: RunId,
    open: Mutex<Open>,
}

impl Watch {
    /// `flow` is the name of the flow of the run itself.
    pub(crate) fn new(observers: Observers, run: RunId, flow: &str) -> Watch {
        Watch { observers, root: run.clone(), open: Mutex::new(Open::new(run, flow)) }
    }

    fn tell(&self, ended: &Ended) {
        self.observers.iter().for_each(|observer| observer.ended(&self.root, ended));
    }
}

impl Channel for Watch {
    fn on_event(&self, event: &Event) {
        if event.kind == "harness:start" {
            let flow = name_in(&event.data, "name").unwrap_or_default();
            self.observers.iter().for_each(|observer| observer.started(&event.tenant, &event.run_id, &flow));
        }
        let mut open = self.open.lock();
        open.take_in(event, &mut |ended| self.tell(&ended));
    }
}

/// A name among the members of an event, not longer than it may be.
fn name_in(data: &Json, member: &str) -> Option<String> {
    Some(data.get(member)?.as_str()?.chars().take(NAME_CHARS).collect())
}

/// The code of a failure: what is no code may be anything.
fn code_in(data: &Json) -> Option<String> {
    let code = data.get("error")?.get("code")?.as_str()?;
    let plain =
        code.len() <= 64 && code.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_' || byte.is_ascii_digit());
    Some(if plain { code.to_owned() } else { "other".to_owned() })
}

#[cfg(test)]
mod tests;
