//! The spans that have not ended yet.

use std::collections::HashMap;

use flowcell_contract::{BuiltIn, Json, RunId};
use flowcell_runtime::Event;

use super::{AttemptId, CallTarget, EndedSpan, SpanSubject, Tokens, code_in, name_in};

/// The open spans of a run and its child runs.
#[derive(Default)]
pub(super) struct OpenSpans {
    runs: HashMap<RunId, Run>,
    /// A model's turn that has ended but is not reported yet, since the next events contain its model and usage.
    turn: Option<Box<EndedSpan>>,
}

#[derive(Default)]
struct Run {
    flow: Option<String>,
    attempts: HashMap<AttemptId, Attempt>,
}

/// An attempt. It has no type if it began before the run was watched.
#[derive(Default)]
struct Attempt {
    node_type: Option<String>,
    /// The calls, with their start times.
    calls: HashMap<u64, (Call, u64)>,
    /// The agent runs, the latest last.
    agents: Vec<Agent>,
}

struct Call {
    called: CallTarget,
    agent: Option<String>,
}

struct Agent {
    id: String,
    model: Option<String>,
    began: u64,
}

type Report<'a> = &'a mut dyn FnMut(EndedSpan);

impl OpenSpans {
    pub(super) fn new(run: RunId, flow: &str) -> OpenSpans {
        let flow = Some(flow.to_owned());
        OpenSpans { runs: HashMap::from([(run, Run { flow, ..Run::default() })]), turn: None }
    }

    fn run(&mut self, event: &Event) -> &mut Run {
        self.runs.entry(event.run_id.clone()).or_default()
    }

    fn attempt(&mut self, event: &Event) -> &mut Attempt {
        self.run(event).attempts.entry(attempt_id(event)).or_default()
    }

    pub(super) fn apply(&mut self, event: &Event, report: Report<'_>) {
        self.complete_turn(event, report);
        match event.kind {
            "harness:start" => {
                self.run(event).flow = name_in(&event.data, "name");
            }
            "harness:complete" => self.run_ended(event, report),
            "task:start" => {
                self.attempt(event).node_type = name_in(&event.data, "nodeType");
            }
            "task:complete" => self.attempt_ended(event, "succeeded", report),
            "task:failed" => self.attempt_ended(event, "failed", report),
            "task:cancelled" => self.attempt_ended(event, "cancelled", report),
            "task:retry" => self.attempt_ended(event, "retried", report),
            "call:start" | "service:call" => self.call_started(event),
            "call:repeated" => self.call_repeated(event),
            "call:result" | "service:result" => self.call_ended(event, "succeeded", report),
            "call:error" | "service:error" => self.call_ended(event, "failed", report),
            "agent:start" => self.agent_started(event),
            "agent:complete" => self.agent_ended(event, "succeeded", report),
            "agent:error" => self.agent_ended(event, "failed", report),
            _ => {}
        }
    }

    fn run_ended(&mut self, event: &Event, report: Report<'_>) {
        let outcome = match event.data.get("status").and_then(Json::as_str) {
            Some("succeeded") => "succeeded",
            Some("cancelled") => "cancelled",
            _ => "failed",
        };
        let flow = self.runs.remove(&event.run_id).and_then(|run| run.flow).unwrap_or_else(unknown);
        report(ended(event, SpanSubject::Run { flow }, start_time(event), outcome));
    }

    fn attempt_ended(&mut self, event: &Event, outcome: &'static str, report: Report<'_>) {
        let task = attempt_id(event);
        let known = self.run(event).attempts.remove(&task);
        // A task that never began ends without an attempt.
        if task.attempt == 0 {
            return;
        }
        let node_type = known.and_then(|attempt| attempt.node_type).unwrap_or_else(unknown);
        report(ended(event, SpanSubject::Attempt { task, node_type }, start_time(event), outcome));
    }

    fn call_started(&mut self, event: &Event) {
        let about = event.data.get("about").cloned().unwrap_or_default();
        let name = |member| name_in(&event.data, member).unwrap_or_default();
        let called = CallTarget {
            ordinal: ordinal(event),
            interface: name("interface"),
            function: name("function"),
            provider: name_in(&about, "provider"),
            model: name_in(&about, "model"),
            answered: None,
            usage: None,
            tool: name_in(&about, "tool"),
        };
        let attempt = self.attempt(event);
        let agent = attempt.agents.last().map(|agent| agent.id.clone());
        attempt.calls.insert(called.ordinal, (Call { called, agent }, event.ts));
    }

    /// The time before the repetition does not count: a person decided, or the call waited for a quota.
    fn call_repeated(&mut self, event: &Event) {
        if let Some((_, began)) = self.attempt(event).calls.get_mut(&ordinal(event)) {
            *began = event.ts;
        }
    }

    fn call_ended(&mut self, event: &Event, outcome: &'static str, report: Report<'_>) {
        let begun = self.attempt(event).calls.remove(&ordinal(event));
        let Some((Call { called, agent }, began)) = begun else { return };
        let awaits = agent.is_some() && called.interface == BuiltIn::Model.name() && outcome == "succeeded";
        let ended = ended(event, SpanSubject::Call { task: attempt_id(event), agent, call: called }, began, outcome);
        match awaits {
            true => self.turn = Some(Box::new(ended)),
            false => report(ended),
        }
    }

    /// Adds the model and the usage to the turn that has ended last, from the events that follow it.
    fn complete_turn(&mut self, event: &Event, report: Report<'_>) {
        let Some(mut turn) = self.turn.take() else { return };
        if let SpanSubject::Call { call, .. } = &mut turn.what {
            match event.kind {
                "agent:message" => {
                    call.answered = name_in(&event.data, "model");
                    self.turn = Some(turn);
                    return;
                }
                "agent:usage" => call.usage = event.data.get("usage").and_then(Tokens::read),
                _ => {}
            }
        }
        report(*turn);
    }

    fn agent_started(&mut self, event: &Event) {
        let id = name_in(&event.data, "agentRunId").unwrap_or_default();
        let agent = Agent { id, model: name_in(&event.data, "model"), began: event.ts };
        self.attempt(event).agents.push(agent);
    }

    fn agent_ended(&mut self, event: &Event, outcome: &'static str, report: Report<'_>) {
        let id = name_in(&event.data, "agentRunId").unwrap_or_default();
        let agents = &mut self.attempt(event).agents;
        let Some(at) = agents.iter().position(|agent| agent.id == id) else { return };
        let Agent { id, model, began } = agents.remove(at);
        let usage = event.data.get("usage").and_then(Tokens::read);
        report(ended(event, SpanSubject::Agent { task: attempt_id(event), id, model, usage }, began, outcome));
    }
}

fn ended(event: &Event, what: SpanSubject, began: u64, outcome: &'static str) -> EndedSpan {
    let (tenant, run) = (event.tenant.clone(), event.run_id.clone());
    EndedSpan { tenant, run, what, began, ended: event.ts.max(began), outcome, error: code_in(&event.data) }
}

/// Returns the time at which the span began that this event ends: the time of the event less its `durationMs`.
fn start_time(event: &Event) -> u64 {
    event.ts.saturating_sub(event.data.get("durationMs").and_then(Json::as_u64).unwrap_or(0))
}

fn ordinal(event: &Event) -> u64 {
    event.data.get("call").and_then(Json::as_u64).unwrap_or(0)
}

fn unknown() -> String {
    "unknown".to_owned()
}

fn attempt_id(event: &Event) -> AttemptId {
    let id = event.data.get("taskId").and_then(Json::as_str).unwrap_or_default();
    let task = match event.data.get("scope").and_then(Json::as_str) {
        Some(scope) => format!("{scope}.{id}"),
        None => id.to_owned(),
    };
    let attempt = event.data.get("attempt").and_then(Json::as_u64).unwrap_or(0);
    AttemptId { task, attempt }
}
