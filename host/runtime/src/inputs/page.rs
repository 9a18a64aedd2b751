//! The inputs of one task, a page at a time.

use std::{collections::BTreeSet, ops::ControlFlow, sync::Arc};

use flowcell_contract::{Failure, Json, RunId, Tenant, VALUE_BYTES, Value};
use serde::Serialize;

use super::{InputDigest, MadeCall, Rendered, Reply, TaskPosition, Visited, each_attempt_with};
use crate::{
    fact::Received,
    paging::{Filling, PageLimits},
    ports::{Journal, Record, StoreError},
    versions::RunGraphs,
};

/// Maximum number of addresses in [`TaskInputs::elsewhere`].
const MAX_ELSEWHERE: usize = 5;

/// The part of a task's attempts that a page contains.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// The first attempt, counted from 0. A resumption after a pause counts as a further attempt.
    pub from: u64,
    /// The maximum number of attempts on the page.
    pub limit: usize,
    /// The number of the first event that does not count: the attempts are shown as they were before it.
    pub end: u64,
    /// The number of a call whose reply is shown whole in each attempt, also if it is large.
    pub whole_call: Option<u32>,
    /// Approximate maximum bytes of JSON text. A page has at least one attempt.
    pub bytes: u64,
}

/// The inputs of one task.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskInputs {
    /// The id of the run.
    pub run_id: RunId,
    /// The address of the task.
    pub task: String,
    /// The type of the task's node. `None`: the task made no attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_type: Option<Arc<str>>,
    /// The attempts in order. A resumption after a pause is a further entry.
    pub attempts: Vec<AttemptInput>,
    /// The value of [`Window::from`] for the next page. `None`: this page is the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
    /// Other addresses at which the node made attempts, if it made none at this one: the first few, in the order of
    /// their passes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub elsewhere: Vec<String>,
    /// The reason why there are no attempts.
    #[serde(skip)]
    pub absence: Absence,
}

/// The reason why a task made no attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Absence {
    /// The flow has no node with this id.
    UnknownNode,
    /// The run has not reached the task, or the address names no pass of the run.
    #[default]
    NotBegun,
    /// The task was skipped.
    Skipped,
    /// The task was cancelled before its first attempt.
    Cancelled,
}

/// The input of one attempt.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AttemptInput {
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// The number of resumptions after a pause.
    pub resumes: u32,
    /// The time at which the attempt began or was resumed, in milliseconds since 1970.
    pub began: u64,
    /// The outcome: `succeeded`, `failed`, `cancelled`, `paused`, `retried`, `abandoned` or `running`.
    pub status: &'static str,
    /// The input of the attempt, as far as the page shows it.
    #[serde(flatten)]
    pub input: Input,
    /// The comparison with the digest in the journal.
    pub input_digest: InputDigest,
    /// The calls that left the host.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<MadeCall>,
    /// The time at which the attempt ended or paused, in milliseconds since 1970. `None`: it has not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<u64>,
    /// The output of an attempt that succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// The error of an attempt that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Json>,
}

/// The input of an attempt, as far as the page shows it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", untagged)]
pub enum Input {
    /// The whole input is shown.
    Whole {
        /// The rendered input.
        input: Value,
        /// The config, if there is one.
        #[serde(skip_serializing_if = "Option::is_none")]
        config: Option<Value>,
    },
    /// The input equals that of the previous attempt on this page.
    Same {
        /// Always `true`. Readers recognise by this member that the attempt has the input of the previous one.
        same_input: bool,
    },
    /// The input could not be rendered, so the attempt failed.
    Failed {
        /// The reason for the failure.
        input_error: Json,
        /// The members of the input that can be rendered.
        input: Value,
    },
    /// The JSON text of the input would be larger than a value may be, because the input contains some parts many
    /// times.
    TooLarge {
        /// A hint to another way to read the input.
        input_error: Json,
    },
}

impl TaskInputs {
    /// Returns the inputs of a task that made no attempt: an empty list.
    pub fn none(run: RunId, address: &str) -> TaskInputs {
        TaskInputs {
            run_id: run,
            task: address.to_owned(),
            node_type: None,
            attempts: Vec::new(),
            next: None,
            elsewhere: Vec::new(),
            absence: Absence::default(),
        }
    }

    /// Returns a sentence that says why the task has no inputs, or `None` if it made an attempt.
    pub fn missing(&self) -> Option<String> {
        let (run, task) = (&self.run_id, &self.task);
        let why = match self.absence {
            _ if self.node_type.is_some() => return None,
            Absence::UnknownNode => format!("the flow of the run `{run}` has no node at `{task}`"),
            Absence::NotBegun => format!("the run `{run}` has begun no attempt at `{task}`"),
            Absence::Skipped => format!("the run `{run}` skipped `{task}`, which therefore has no input"),
            Absence::Cancelled => {
                format!("the run `{run}` cancelled `{task}` before its first attempt, so that it has no input")
            }
        };
        Some(why)
    }

    /// Reads the inputs of the task at an address of a run. The time is proportional to the length of the run's
    /// journal.
    pub fn read(
        journal: &dyn Journal,
        graphs: &RunGraphs,
        record: &Record,
        (tenant, run): (&Tenant, &RunId),
        (address, window): (&str, Window),
    ) -> Result<TaskInputs, StoreError> {
        let place = TaskPosition::parse(address);
        let mut inputs = TaskInputs::none(run.clone(), address);
        if !graphs.last().nodes.iter().any(|node| node.id.as_str() == place.node) {
            inputs.absence = Absence::UnknownNode;
            return Ok(inputs);
        }
        let most = PageLimits { items: window.limit, bytes: window.bytes };
        let filling = Filling::new(most);
        let mut page =
            Page { inputs, from: window.from, filling, seen: 0, last: None, other_addresses: BTreeSet::new() };
        let mut visit = |visited: &Visited<'_>| match visited.is_at(&place) {
            true => page.add(visited),
            false => page.note(visited),
        };
        let wanted = (Some(place.node), window.whole_call, window.end);
        each_attempt_with(journal, graphs, record, (tenant, run), wanted, &mut visit)?;
        if page.inputs.node_type.is_none() {
            page.inputs.elsewhere = page.other_addresses.into_iter().map(|(_, address)| address).collect();
        }
        Ok(page.inputs)
    }
}

struct Page {
    inputs: TaskInputs,
    /// The first attempt of the page, counted from 0.
    from: u64,
    filling: Filling,
    seen: u64,
    /// The digest of the input of the previous attempt on this page.
    last: Option<Received>,
    /// Other addresses at which the node made attempts: the first [`MAX_ELSEWHERE`], each after the numbers of its
    /// passes. The set sorts by these numbers, because parallel passes end in a different order in each run.
    other_addresses: BTreeSet<(Vec<u64>, String)>,
}

impl Page {
    fn add(&mut self, visited: &Visited<'_>) -> ControlFlow<()> {
        if visited.ended_without_attempt {
            self.inputs.absence = if visited.status == "skipped" { Absence::Skipped } else { Absence::Cancelled };
            return ControlFlow::Continue(());
        }
        let index = self.seen;
        self.seen += 1;
        self.inputs.node_type.get_or_insert_with(|| visited.node_type().clone());
        if index < self.from {
            return ControlFlow::Continue(());
        }
        if self.filling.is_full() {
            self.inputs.next = Some(index);
            return ControlFlow::Break(());
        }
        let rendered = visited.render();
        let received = rendered.received.clone();
        let is_same = received.is_some() && received == self.last;
        let mut attempt = AttemptInput::new(visited, rendered);
        if is_same {
            attempt.input = Input::Same { same_input: true };
        }
        attempt.ended = visited.ended_at();
        attempt.output = visited.result.and_then(Result::ok).cloned();
        attempt.error = visited.result.and_then(Result::err).map(Failure::to_json);
        let bytes = attempt.bytes();
        if !self.filling.fits(bytes) {
            self.inputs.next = Some(index);
            return ControlFlow::Break(());
        }
        self.filling.add(bytes);
        self.last = received;
        self.inputs.attempts.push(attempt);
        ControlFlow::Continue(())
    }

    /// Records another address where the node made an attempt.
    fn note(&mut self, visited: &Visited<'_>) -> ControlFlow<()> {
        if visited.ended_without_attempt {
            return ControlFlow::Continue(());
        }
        let address = visited.address();
        let numbers = address.split(|char: char| !char.is_ascii_digit()).filter_map(|digits| digits.parse().ok());
        self.other_addresses.insert((numbers.collect(), address));
        if self.other_addresses.len() > MAX_ELSEWHERE {
            self.other_addresses.pop_last();
        }
        ControlFlow::Continue(())
    }
}

impl AttemptInput {
    /// Returns the entry of an attempt with its rendered input.
    pub(crate) fn new(visited: &Visited<'_>, rendered: Rendered) -> AttemptInput {
        let input = match rendered.parts {
            Ok(_) if rendered.received.is_none() => too_large(),
            Ok((input, config)) => {
                Input::Whole { input, config: Some(config).filter(|config| !config.json().is_null()) }
            }
            Err((failure, input)) if input.json().measure(VALUE_BYTES).is_ok() => {
                Input::Failed { input_error: failure.to_json(), input }
            }
            Err((failure, _)) => Input::TooLarge { input_error: failure.to_json() },
        };
        let (attempt, resumes) = visited.number();
        AttemptInput {
            attempt,
            resumes,
            began: visited.began(),
            status: visited.status,
            input,
            input_digest: rendered.digest,
            calls: visited.calls.to_vec(),
            ended: None,
            output: None,
            error: None,
        }
    }

    /// Returns the approximate bytes of the entry as JSON text.
    pub(crate) fn bytes(&self) -> u64 {
        let input = match &self.input {
            Input::Whole { input, config } => {
                json_bytes(input.json()) + config.as_ref().map_or(0, |config| json_bytes(config.json()))
            }
            Input::Failed { input, .. } => json_bytes(input.json()),
            Input::Same { .. } | Input::TooLarge { .. } => 0,
        };
        let results = self.output.as_ref().map(Value::json).into_iter().chain(&self.error).map(json_bytes).sum::<u64>();
        let of_call = |call: &MadeCall| {
            json_bytes(&call.about) + json_bytes(&call.preview) + call.reply.as_ref().map_or(0, Reply::bytes)
        };
        input + results + self.calls.iter().map(of_call).sum::<u64>()
    }
}

fn json_bytes(json: &Json) -> u64 {
    json.measure(VALUE_BYTES).unwrap_or(VALUE_BYTES)
}

fn too_large() -> Input {
    let message = format!(
        "the input is larger than {} MiB as text, because it repeats parts; see the outputs that it names",
        VALUE_BYTES >> 20
    );
    Input::TooLarge { input_error: Failure::new(flowcell_contract::code::INVALID_INPUT, message).to_json() }
}
