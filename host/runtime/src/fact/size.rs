//! The sizes of facts, so that the limits on a run bound its length.

use flowcell_contract::{Failure, Json, Pause, Value, Wake};

use super::{AgentFact, Fact, Note, Observed, PassOutcome, Resolution, RunEnd, Unsuccessful, Write};
use crate::limits::MAX_RUN_BYTES;

/// Bytes that [`Fact::size`] adds to the contents of each fact.
const FACT_OVERHEAD_BYTES: u64 = 64;
/// Approximate bytes of a node in the JSON text of a fact.
const NODE_BYTES: u64 = 32;

impl Fact {
    /// Returns the approximate bytes of the fact's JSON text. A fact that is larger than the limit of a whole run
    /// counts as that limit.
    pub(crate) fn size(&self) -> u64 {
        let values = match self {
            Fact::RunStarted { input, .. } => of(input),
            Fact::TaskPaused { pause, writes, .. } => of_pause(pause) + writes.iter().map(of_write).sum::<u64>(),
            Fact::TaskWoken { outcome, .. } | Fact::CallEnded { reply: outcome, .. } => of_outcome(outcome),
            Fact::TaskRetrying { failure, .. } => of_failure(failure),
            Fact::TaskSucceeded { output, .. } => of_value(output),
            Fact::TaskFailed { failure, input, .. } => of_failure(failure) + input.as_ref().map_or(0, of),
            Fact::CallStarted { call, .. } => {
                let arguments = call.ask.as_ref().and_then(|ask| ask.arguments.as_ref());
                let before = call.before.iter().map(of_observed).sum::<u64>();
                of(&call.about) + of(&call.preview) + arguments.map_or(0, of_value) + before
            }
            Fact::TaskResolved { resolution, .. } => match &**resolution {
                Resolution::Reply(value) | Resolution::Output(value) => of_value(value),
                Resolution::Repeat | Resolution::Fail(_) => 0,
            },
            Fact::PassStarted { variables, own, .. } => variables.iter().chain(own).map(of).sum(),
            Fact::PassEnded { outcome: PassOutcome::Done(value), .. } => of(value),
            Fact::UndosBegan { end, .. } => match &**end {
                Unsuccessful::Failed { failure, .. } => of_failure(failure),
                Unsuccessful::Cancelled => 0,
            },
            Fact::UndoStarted { path, value, .. } => path.len() as u64 + value.as_ref().map_or(0, of),
            Fact::EventKept { payload: value, .. } | Fact::MessageSent { content: value } => of_value(value),
            Fact::Replied { answer, .. } => of(answer),
            Fact::Migrated { migration } => {
                let nodes = migration.dropped.len() + migration.restarted.len() + 2 * migration.names.len();
                let names: usize = migration.names.iter().map(|(id, name)| id.0.len() + name.0.len()).sum();
                migration.input.as_ref().map_or(0, of) + NODE_BYTES * nodes as u64 + names as u64
            }
            Fact::Noted { note, .. } => match &**note {
                Note::Log { message, .. } => message.len() as u64,
                Note::Metric { tags, .. } => of(tags),
            },
            Fact::Agent { agent_fact, before, .. } => {
                of_agent(agent_fact) + before.iter().map(of_observed).sum::<u64>()
            }
            Fact::RunEnded { end } => match &**end {
                RunEnd::Succeeded { outputs } | RunEnd::Failed { outputs, .. } | RunEnd::Cancelled { outputs } => {
                    of(outputs)
                }
            },
            _ => 0,
        };
        FACT_OVERHEAD_BYTES + values
    }
}

fn of(json: &Json) -> u64 {
    json.measure(MAX_RUN_BYTES).unwrap_or(MAX_RUN_BYTES)
}

/// Returns the approximate bytes of a value's JSON text.
pub(crate) fn value_bytes(value: &Value) -> u64 {
    of_value(value)
}

fn of_value(value: &Value) -> u64 {
    of(value.json())
}

fn of_failure(failure: &Failure) -> u64 {
    failure.message.len() as u64 + failure.details.as_ref().map_or(0, of)
}

fn of_outcome(outcome: &Result<Value, Box<Failure>>) -> u64 {
    match outcome {
        Ok(value) => of_value(value),
        Err(failure) => of_failure(failure),
    }
}

fn of_pause(pause: &Pause) -> u64 {
    let wakes = pause.until.iter().map(|wake| match wake {
        Wake::Body(value) => of_value(value),
        Wake::Each(fan_out) => of_value(&fan_out.items),
        Wake::Flow(call) => of_value(&call.input),
        Wake::Answer(question) => question.prompt.len() as u64 + question.schema.as_ref().map_or(0, of),
        _ => 0,
    });
    of_value(&pause.state) + wakes.sum::<u64>()
}

fn of_write(write: &Write) -> u64 {
    of_value(&write.value)
}

fn of_observed(observed: &Observed) -> u64 {
    match observed {
        Observed::Answered(_, outcome) => of_outcome(outcome),
        _ => 0,
    }
}

fn of_agent(fact: &AgentFact) -> u64 {
    match fact {
        AgentFact::Opened { about: json, .. } | AgentFact::Told { data: json, .. } => of(json),
        AgentFact::Used { usage: json, .. } | AgentFact::Closed { outcome: Ok(json), .. } => of(json),
        AgentFact::Written { value, .. } => of_value(value),
        _ => 0,
    }
}

impl Resolution {
    /// Returns the size in bytes of what the person sent: the JSON text of the value, or the reason.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Resolution::Repeat => 0,
            Resolution::Reply(value) | Resolution::Output(value) => value.text().len(),
            Resolution::Fail(why) => why.len(),
        }
    }
}
