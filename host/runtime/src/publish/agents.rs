//! Turns facts about agent runs into events.

use std::sync::Arc;

use flowcell_contract::{Failure, Json};

use super::{Members, Projector};
use crate::{
    call_log::Reply,
    fact::{AgentFact, BlockReason, CallRecord, Resolution, TaskKey},
};

/// Maximum size in bytes of the part of a tool's answer that its event shows.
const MAX_SUMMARY_BYTES: usize = 1_024;

/// The label of a node that names the step of a flow to which its agent runs belong.
pub(crate) const FLOW_STEP: &str = "flowStepId";

/// The data for the events of an agent run's call: the call as it began, and its reply once it has ended.
#[derive(Default)]
pub(super) struct AgentCall {
    call: Option<Box<CallRecord>>,
    reply: Option<Reply>,
    /// True if the end of the call is unknown.
    ambiguous: bool,
}

impl Projector {
    /// Remembers a call if an agent run makes it, for a later event.
    pub(super) fn record_agent_call(&mut self, task: TaskKey, call: &CallRecord) {
        if call.agent.is_some() {
            let open = AgentCall { call: Some(Box::new(call.clone())), ..AgentCall::default() };
            self.open_agent_calls.insert((task, call.ordinal), open);
        }
    }

    pub(super) fn agent_call_replied(&mut self, task: TaskKey, ordinal: u32, reply: &Reply) {
        if let Some(open) = self.open_agent_calls.get_mut(&(task, ordinal)) {
            open.reply = Some(reply.clone());
        }
    }

    /// Records that the end of a call is unknown.
    pub(super) fn agent_blocked(&mut self, task: TaskKey, reason: &BlockReason) {
        if let BlockReason::Ambiguous { ordinal, .. } = reason
            && let Some(open) = self.open_agent_calls.get_mut(&(task, *ordinal))
        {
            open.ambiguous = true;
        }
    }

    /// Records the decision of a person about a call with an unknown end.
    pub(super) fn agent_resolved(&mut self, task: TaskKey, resolution: &Resolution) {
        for (_, open) in self.open_agent_calls.iter_mut().filter(|((of, _), open)| *of == task && open.ambiguous) {
            open.ambiguous = false;
            if let Resolution::Reply(reply) = resolution {
                open.reply = Some(Ok(reply.clone()));
            }
        }
    }

    pub(super) fn agent_event(&mut self, task: TaskKey, agent_fact: &AgentFact) -> (&'static str, Members) {
        let (kind, mut more) = match agent_fact {
            AgentFact::Opened { about, .. } => ("agent:start", members_of(about)),
            AgentFact::Told { kind, data, .. } => match &**kind {
                "state" => ("agent:state", members_of(data)),
                name => ("agent:event", vec![("name", Json::from(name)), ("data", data.clone())]),
            },
            AgentFact::Closed { outcome, discarded, .. } => closed(outcome, discarded),
            AgentFact::Written { message, value, .. } => {
                let more = [("messageId", Json::from(message.clone())), ("state", Json::from("accepted"))];
                ("agent:inbox", more.into_iter().chain([("content", value.json().clone())]).collect())
            }
            AgentFact::Applied { message, .. } => {
                let message = message.iter().map(|message| ("messageId", Json::from(message.clone())));
                let state = if message.len() == 0 { "closed" } else { "applied" };
                ("agent:inbox", message.chain([("state", Json::from(state))]).collect())
            }
            AgentFact::Closing { .. } => ("agent:inbox", vec![("state", Json::from("closing"))]),
            AgentFact::Spoke { ordinal, .. } => ("agent:message", self.spoke(task, *ordinal)),
            AgentFact::Used { usage, .. } => ("agent:usage", vec![("usage", usage.clone())]),
            AgentFact::ToolStarted { ordinal, .. } => ("agent:tool:start", self.tool(task, *ordinal)),
            AgentFact::ToolAsked { ordinal, .. } => ("agent:tool:permission", self.asked(task, *ordinal)),
            AgentFact::ToolEnded { ordinal, .. } => self.tool_ended(task, *ordinal),
        };
        let id = agent_fact.agent_run().clone();
        let mut members = self.with(task, [("agentRunId", Json::from(id))]);
        members.extend(self.step_of(task));
        members.append(&mut more);
        (kind, members)
    }

    /// Returns the step of a flow to which the agent runs of a task belong, if any.
    pub(super) fn step_of(&self, task: TaskKey) -> Option<(&'static str, Json)> {
        self.graph.node(task.node).labels.get(FLOW_STEP).map(|step| (FLOW_STEP, step.clone()))
    }

    fn spoke(&mut self, task: TaskKey, ordinal: u32) -> Members {
        let reply = self.open_agent_calls.remove(&(task, ordinal)).and_then(|open| open.reply);
        let Some(Ok(reply)) = reply else { return Vec::new() };
        let names = ["content", "stop", "model", "provider"];
        let members = names.into_iter().filter_map(|name| Some((name, reply.json().get(name)?.clone())));
        [("call", Json::from(ordinal))].into_iter().chain(members).collect()
    }

    /// Describes the tool of a call. `tool` and `input` come from the description of the call for people.
    fn tool(&self, task: TaskKey, ordinal: u32) -> Members {
        let call = self.open_agent_calls.get(&(task, ordinal)).and_then(|open| open.call.as_deref());
        let mut members = vec![("call", Json::from(ordinal))];
        if let Some(call) = call {
            let id = call.agent.as_ref().and_then(|agent| agent.tool_use.clone());
            members.extend(id.map(|id| ("toolUseId", Json::from(id))));
            members
                .extend(["tool", "input"].into_iter().filter_map(|name| Some((name, call.about.get(name)?.clone()))));
        }
        members
    }

    fn asked(&self, task: TaskKey, ordinal: u32) -> Members {
        let mut members = self.tool(task, ordinal);
        let call = self.open_agent_calls.get(&(task, ordinal)).and_then(|open| open.call.as_deref());
        if let Some((call, ask)) = call.and_then(|call| Some((call, call.ask.as_ref()?))) {
            members.extend(self.permission(task, call, ask).into_iter().filter(|(name, _)| *name != "attempt"));
        }
        members
    }

    /// Returns the address at which a person allows or denies a call.
    pub(super) fn permission_address(&self, task: TaskKey, ordinal: u32) -> String {
        format!("{}#{ordinal}", self.path_of(task).address(&self.graph.node(task.node).id))
    }

    fn tool_ended(&mut self, task: TaskKey, ordinal: u32) -> (&'static str, Members) {
        let mut members = self.tool(task, ordinal);
        members.retain(|(name, _)| *name != "input");
        match self.open_agent_calls.remove(&(task, ordinal)).and_then(|open| open.reply) {
            Some(Err(failure)) => {
                members.push(("error", failure.to_json()));
                ("agent:tool:error", members)
            }
            reply => {
                let output = reply.and_then(Result::ok);
                let text = output.as_ref().map(|reply| summary(reply.json().get("output").unwrap_or(reply.json())));
                members.push(("ok", Json::from(true)));
                members.extend(text.map(|text| ("summary", Json::from(text))));
                ("agent:tool:result", members)
            }
        }
    }
}

impl AgentFact {
    /// Returns the id of the agent run of a report.
    pub fn agent_run(&self) -> &Arc<str> {
        match self {
            AgentFact::Opened { id, .. }
            | AgentFact::Told { id, .. }
            | AgentFact::Closed { id, .. }
            | AgentFact::Written { id, .. }
            | AgentFact::Applied { id, .. }
            | AgentFact::Closing { id }
            | AgentFact::Spoke { id, .. }
            | AgentFact::Used { id, .. }
            | AgentFact::ToolStarted { id, .. }
            | AgentFact::ToolAsked { id, .. }
            | AgentFact::ToolEnded { id, .. } => id,
        }
    }
}

fn closed(outcome: &Result<Json, Box<Failure>>, discarded: &[Arc<str>]) -> (&'static str, Members) {
    let left = Json::array(discarded.iter().map(|id| Json::from(id.clone())));
    let (kind, mut members) = match outcome {
        Ok(result) => ("agent:complete", members_of(result)),
        Err(failure) => ("agent:error", vec![("error", failure.to_json())]),
    };
    if !discarded.is_empty() {
        members.push(("discarded", left));
    }
    (kind, members)
}

/// Returns the members of an event from the data of an agent run: members with known names stay, and all other members
/// move into `more`.
fn members_of(data: &Json) -> Members {
    const NAMES: [&str; 14] = [
        "agent",
        "model",
        "provider",
        "tools",
        "prompt",
        "state",
        "reason",
        "result",
        "structuredOutput",
        "usage",
        "turns",
        "stopReason",
        "inbox",
        "session",
    ];
    let members = data.as_object().into_iter().flatten();
    let (known, other): (Vec<_>, Vec<_>) = members
        .map(|(name, value)| (NAMES.iter().find(|known| ***known == **name), name, value))
        .partition(|(known, ..)| known.is_some());
    let mut named: Members = known.into_iter().filter_map(|(known, _, value)| Some((*known?, value.clone()))).collect();
    if !other.is_empty() {
        let rest = other.into_iter().map(|(_, name, value)| (name.clone(), value.clone()));
        named.push(("more", Json::object(rest)));
    }
    named
}

fn summary(output: &Json) -> String {
    let mut text = output.as_str().map_or_else(|| output.to_text(), str::to_owned);
    if text.len() > MAX_SUMMARY_BYTES {
        let cut = (0..=MAX_SUMMARY_BYTES).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(cut);
        text.push('…');
    }
    text
}
