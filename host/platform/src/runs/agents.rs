//! The agent runs of a run: each with its state and its use, and its conversation by page.

mod conversation;

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    hash::{BuildHasher, RandomState},
    ops::ControlFlow,
};

use flowcell_contract::{Json, RunId, code};
use flowcell_runtime::{Event, paging::PAGE_BYTES};
use serde::Serialize;
use serde_json::Value;

pub use self::conversation::{Conversation, Entry, EntryWindow, ToolUse};
use super::{
    tree::is_zero,
    waiting::{address_of, dropped_nodes},
};
use crate::{Host, StartError};

/// Approximate size in bytes of an agent run as JSON text, without its texts.
const AGENT_BYTES: u64 = 640;

/// Tokens and cost of calls of models.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct AgentUsage {
    /// Tokens that the models read, without those of a cache.
    input: u64,
    /// Tokens that the models wrote, with those of their thoughts.
    output: u64,
    /// Tokens that a cache of the provider had.
    cache_read: u64,
    /// Tokens that were written into a cache of the provider.
    cache_write: u64,
    /// Tokens of thoughts.
    reasoning: u64,
    /// The known cost in US dollars.
    #[serde(skip_serializing_if = "Option::is_none")]
    cost_usd: Option<f64>,
    /// True if the cost of a call is unknown, so that `costUsd` lacks it.
    cost_unknown: bool,
    /// True if the numbers of tokens are estimates.
    estimated: bool,
}

impl AgentUsage {
    /// Adds the usage that an event reports.
    fn add(&mut self, usage: &Json) {
        let number = |name: &str| usage.get(name).and_then(Json::as_u64).unwrap_or(0);
        self.input = self.input.saturating_add(number("input"));
        self.output = self.output.saturating_add(number("output"));
        self.cache_read = self.cache_read.saturating_add(number("cacheRead"));
        self.cache_write = self.cache_write.saturating_add(number("cacheWrite"));
        self.reasoning = self.reasoning.saturating_add(number("reasoning"));
        if let Some(cost) = usage.get("costUsd").and_then(Json::as_f64) {
            self.cost_usd = Some(self.cost_usd.unwrap_or_default() + cost);
        }
        self.cost_unknown |= usage.get("costBasis").and_then(Json::as_str) == Some("unknown");
        self.estimated |= usage.get("estimated").and_then(Json::as_bool) == Some(true);
    }
}

/// An agent run.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct AgentRun {
    /// The id of the agent run.
    agent_run_id: String,
    /// The address of its task, such as `each[3].assistant`.
    task: String,
    /// The number of the task's attempt, from 1.
    attempt: u64,
    /// `running`, `asking` (a person has to allow a call), `listening` (it waits for a message), `succeeded`,
    /// `failed` or `cancelled`.
    status: &'static str,
    /// True if it takes messages until it ends.
    has_inbox: bool,
    /// True if it was asked to finish.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    closing: bool,
    /// The name of the agent, if the node names one.
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<String>,
    /// The step of a flow of steps to which it belongs.
    #[serde(skip_serializing_if = "Option::is_none")]
    flow_step_id: Option<String>,
    /// The provider that answered last, or the one of the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    provider: Option<String>,
    /// The model that answered last, or the one of the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    /// The time when it began, in milliseconds since 1970.
    began: u64,
    /// The time when it ended, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    ended: Option<u64>,
    /// The number of entries of its conversation.
    entries: u64,
    /// The number of answers of models.
    model_calls: u64,
    /// The number of calls of tools.
    tool_calls: u64,
    /// The number of messages that it was sent.
    messages: u64,
    /// Tokens and cost of all answers.
    usage: AgentUsage,
    /// The reason for its end, such as `end`, `closed` or `max_turns`.
    #[serde(skip_serializing_if = "Option::is_none")]
    stop_reason: Option<String>,
    /// Its failure: `{ code, message, … }`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    error: Option<Value>,
    #[serde(skip)]
    is_idle: bool,
    /// The numbers of the calls that a person has to allow.
    #[serde(skip)]
    asking: BTreeSet<u64>,
}

/// The agent runs of a run, in the order of their begins.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct AgentRuns {
    /// The agent runs.
    agents: Vec<AgentRun>,
    /// The number of the latest agent runs, which are left out because the list exceeds 16 MiB.
    #[serde(skip_serializing_if = "is_zero")]
    agents_left_out: u64,
    /// The `from` of the next page. Absent if no agent runs follow, and without `limit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    next: Option<u64>,
    #[serde(skip)]
    window: AgentWindow,
    /// The number of agent runs that have begun.
    #[serde(skip)]
    begun: u64,
    #[serde(skip)]
    places: HashMap<String, usize>,
    /// Hashes of the ids of agent runs that are not in the list.
    #[serde(skip)]
    others: HashSet<u64>,
    #[serde(skip)]
    hasher: RandomState,
    #[serde(skip)]
    bytes: u64,
}

/// The part of a list of agent runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct AgentWindow {
    /// The number of agent runs before the part.
    pub from: u64,
    /// The maximum number of agent runs. `None`: as many as the size of a list allows.
    pub limit: Option<usize>,
}

impl AgentRuns {
    /// Reads agent runs of a run from its events. Those of the runs that it called are not among them. Blocks its
    /// thread.
    pub fn of(host: &Host, run: &RunId, window: AgentWindow) -> Result<AgentRuns, StartError> {
        let mut all = AgentRuns { window, ..AgentRuns::default() };
        host.each_event(run, 0, |event| {
            all.add(&event);
            ControlFlow::Continue(())
        })?;
        Ok(all)
    }

    fn add(&mut self, event: &Event) {
        match event.kind {
            "agent:start" => self.open(event),
            "agent:tool:decision" => {
                let (task, call) = (address_of(event).unwrap_or_default(), number(event, "call"));
                let asking = self.agents.iter_mut().filter(|agent| agent.ended.is_none() && agent.task == task);
                asking.for_each(|agent| agent.set_asking(call, false));
            }
            "harness:migrated" => {
                // The agents of a node that is gone or starts anew do not go on.
                for node in dropped_nodes(event) {
                    let open = self.agents.iter_mut().filter(|agent| agent.ended.is_none() && agent.task == node);
                    open.for_each(|agent| agent.end("cancelled", event.ts));
                }
            }
            kind if kind.starts_with("agent:") => {
                let at = text(event, "agentRunId").and_then(|id| self.places.get(id));
                at.copied().into_iter().for_each(|at| self.bytes += self.agents[at].apply(event));
            }
            _ => {}
        }
    }

    fn open(&mut self, event: &Event) {
        let id = text(event, "agentRunId").unwrap_or_default();
        let hash = self.hasher.hash_one(id);
        if self.places.contains_key(id) || self.others.contains(&hash) {
            return;
        }
        self.begun += 1;
        let is_full = self.window.limit.is_some_and(|limit| self.agents.len() >= limit);
        if self.begun <= self.window.from || is_full || self.bytes > PAGE_BYTES {
            self.others.insert(hash);
            let listed = self.window.from.saturating_add(self.agents.len() as u64);
            match self.window.limit {
                Some(_) if self.begun > listed => self.next = Some(listed),
                Some(_) => {}
                None => self.agents_left_out += u64::from(self.begun > listed),
            }
            return;
        }
        let agent = AgentRun::begin(event);
        self.bytes += AGENT_BYTES + (id.len() + agent.task.len()) as u64;
        self.places.insert(id.to_owned(), self.agents.len());
        self.agents.push(agent);
    }
}

impl AgentRun {
    /// Creates an agent run from the event of its begin.
    fn begin(event: &Event) -> AgentRun {
        let named = |name: &str| text(event, name).map(str::to_owned);
        let inbox = event.data.get("inbox");
        AgentRun {
            agent_run_id: named("agentRunId").unwrap_or_default(),
            task: address_of(event).unwrap_or_default(),
            attempt: number(event, "attempt"),
            status: "running",
            has_inbox: inbox.is_some_and(|inbox| !inbox.is_null() && inbox.as_bool() != Some(false)),
            agent: named("agent"),
            flow_step_id: named("flowStepId"),
            provider: named("provider"),
            model: named("model"),
            began: event.ts,
            ..AgentRun::default()
        }
    }

    /// Counts an event of this agent run. Returns the approximate bytes that it adds.
    fn apply(&mut self, event: &Event) -> u64 {
        self.entries += u64::from(begins_entry(event));
        match event.kind {
            "agent:state" => self.is_idle = text(event, "state") == Some("idle"),
            "agent:message" => {
                self.model_calls += 1;
                for (name, known) in [("provider", &mut self.provider), ("model", &mut self.model)] {
                    *known = text(event, name).map(str::to_owned).or_else(|| known.take());
                }
            }
            "agent:usage" => event.data.get("usage").into_iter().for_each(|usage| self.usage.add(usage)),
            "agent:inbox" => match text(event, "state") {
                Some("accepted") => self.messages += 1,
                Some("closing") => self.closing = true,
                _ => {}
            },
            "agent:tool:start" => self.tool_calls += 1,
            "agent:tool:permission" => self.set_asking(number(event, "call"), true),
            "agent:tool:result" | "agent:tool:error" => self.set_asking(number(event, "call"), false),
            "agent:complete" => {
                self.stop_reason = text(event, "stopReason").map(str::to_owned);
                self.end("succeeded", event.ts);
            }
            "agent:error" => {
                self.error = event.data.get("error").map(Json::to_serde);
                let is_cancelled = self.error.as_ref().is_some_and(|error| error["code"] == code::CANCELLED);
                self.end(if is_cancelled { "cancelled" } else { "failed" }, event.ts);
                return self.error.as_ref().map_or(0, |error| error.to_string().len() as u64);
            }
            _ => {}
        }
        self.set_status();
        0
    }

    fn set_asking(&mut self, call: u64, asks: bool) {
        match asks {
            true => _ = self.asking.insert(call),
            false => _ = self.asking.remove(&call),
        }
        self.set_status();
    }

    fn set_status(&mut self) {
        if self.ended.is_some() {
            return;
        }
        self.status = match (self.asking.is_empty(), self.is_idle) {
            (false, _) => "asking",
            (true, true) => "listening",
            (true, false) => "running",
        };
    }

    fn end(&mut self, status: &'static str, ts: u64) {
        (self.status, self.ended, self.has_inbox, self.closing) = (status, Some(ts), false, false);
        self.asking.clear();
    }
}

/// Returns whether an event of an agent run begins an entry of its conversation: a message to it, an answer of a model,
/// or a note about it.
fn begins_entry(event: &Event) -> bool {
    match event.kind {
        "agent:message" => true,
        "agent:inbox" => text(event, "state") == Some("accepted"),
        "agent:event" => text(event, "name") != Some(DISCARDED),
        _ => false,
    }
}

/// The name of the note about a message that the agent did not read.
const DISCARDED: &str = "inbox.discarded";

fn text<'a>(event: &'a Event, name: &str) -> Option<&'a str> {
    event.data.get(name).and_then(Json::as_str)
}

fn number(event: &Event, name: &str) -> u64 {
    event.data.get(name).and_then(Json::as_u64).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use serde_json::json;

    use super::*;

    pub(super) fn event(seq: u64, kind: &'static str, mut data: serde_json::Value) -> Event {
        if data["nodeId"].is_null() {
            data["nodeId"] = "bot".into();
        }
        Event { seq, ts: 1_000 + seq, tenant: "local".into(), run_id: "r".into(), kind, data: Json::from(data) }
    }

    fn read(events: &[(&'static str, serde_json::Value)]) -> AgentRuns {
        let mut all = AgentRuns::default();
        (0..).zip(events).for_each(|(seq, (kind, data))| all.add(&event(seq, kind, data.clone())));
        all
    }

    fn statuses(events: &[(&'static str, serde_json::Value)]) -> Vec<&'static str> {
        (1..=events.len()).map(|count| read(&events[..count]).agents[0].status).collect()
    }

    #[test]
    fn the_status_of_an_agent_follows_its_events() {
        let of = |mut data: serde_json::Value| {
            data["agentRunId"] = "a".into();
            data
        };
        let events = [
            ("agent:start", of(json!({ "inbox": { "capacity": 8 } }))),
            ("agent:tool:permission", of(json!({ "call": 3 }))),
            ("agent:tool:permission", of(json!({ "call": 4 }))),
            ("agent:state", of(json!({ "state": "running" }))),
            ("agent:tool:decision", json!({ "call": 3 })),
            ("agent:tool:decision", json!({ "call": 4, "nodeId": "other" })),
            ("agent:tool:decision", json!({ "call": 4 })),
            ("agent:state", of(json!({ "state": "idle" }))),
            ("agent:inbox", of(json!({ "state": "closing" }))),
            ("agent:complete", of(json!({ "stopReason": "closed" }))),
            ("agent:state", of(json!({ "state": "idle" }))),
        ];
        let expected = [
            "running",
            "asking",
            "asking",
            "asking",
            "asking",
            "asking",
            "running",
            "listening",
            "listening",
            "succeeded",
            "succeeded",
        ];
        assert_eq!(statuses(&events), expected);
        assert!(read(&events[..9]).agents[0].closing && !read(&events).agents[0].has_inbox);
        let migrated = [events[0].clone(), ("harness:migrated", json!({ "dropped": ["bot"] }))];
        assert_eq!(statuses(&migrated), ["running", "cancelled"]);
        let error = |code: &str| [events[0].clone(), ("agent:error", of(json!({ "error": { "code": code } })))];
        assert_eq!((statuses(&error("cancelled"))[1], statuses(&error("timeout"))[1]), ("cancelled", "failed"));
    }

    #[test]
    fn the_use_of_an_agent_is_the_sum_of_its_answers() {
        let usage = |input: u64, more: serde_json::Value| {
            let mut usage = json!({ "input": input, "output": 2 });
            usage.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            ("agent:usage", json!({ "agentRunId": "a", "usage": usage }))
        };
        let events = [
            ("agent:start", json!({ "agentRunId": "a", "scope": "each[1]" })),
            ("agent:start", json!({ "agentRunId": "b" })),
            usage(5, json!({ "costUsd": 0.25, "costBasis": "reported" })),
            usage(7, json!({ "costBasis": "unknown", "estimated": true })),
            ("agent:message", json!({ "agentRunId": "a", "model": "two" })),
            ("agent:tool:start", json!({ "agentRunId": "a", "call": 1 })),
            ("agent:inbox", json!({ "agentRunId": "a", "state": "accepted" })),
            ("agent:inbox", json!({ "agentRunId": "a", "state": "applied" })),
            ("agent:event", json!({ "agentRunId": "a", "name": "inbox.discarded" })),
            ("agent:event", json!({ "agentRunId": "a", "name": "model.fallback" })),
        ];
        let all = read(&events);
        let (first, second) = (&all.agents[0], &all.agents[1]);
        let expected = AgentUsage {
            input: 12,
            output: 4,
            cost_usd: Some(0.25),
            cost_unknown: true,
            estimated: true,
            ..AgentUsage::default()
        };
        assert_eq!(first.usage, expected);
        assert_eq!((first.task.as_str(), first.model.as_deref()), ("each[1].bot", Some("two")));
        assert_eq!((first.entries, first.model_calls, first.tool_calls, first.messages), (3, 1, 1, 1));
        assert_eq!((second.usage.clone(), second.entries, second.has_inbox), (AgentUsage::default(), 0, false));
    }

    #[test]
    fn a_page_of_agents_has_their_later_events_and_the_place_of_the_next_page() {
        let page = |from: u64, limit: Option<usize>| {
            let mut all = AgentRuns { window: AgentWindow { from, limit }, ..AgentRuns::default() };
            let ids = ["a", "b", "a", "c", "c", "d", "e"];
            for (seq, id) in ids.iter().enumerate() {
                all.add(&event(seq as u64, "agent:start", json!({ "agentRunId": id })));
            }
            all.add(&event(9, "agent:complete", json!({ "agentRunId": "d", "stopReason": "end" })));
            let ids: String = all.agents.iter().map(|agent| agent.agent_run_id.as_str()).collect();
            let ended = all.agents.iter().filter(|agent| agent.status == "succeeded").count();
            (ids, ended, all.next, all.agents_left_out)
        };
        assert_eq!(page(0, Some(2)), ("ab".into(), 0, Some(2), 0));
        assert_eq!(page(2, Some(2)), ("cd".into(), 1, Some(4), 0));
        assert_eq!(page(4, Some(2)), ("e".into(), 0, None, 0));
        assert_eq!(page(5, Some(2)), (String::new(), 0, None, 0));
        assert_eq!(page(u64::MAX, Some(2)), (String::new(), 0, None, 0));
        assert_eq!(page(1, None), ("bcde".into(), 1, None, 0));
    }

    #[test]
    fn a_list_of_agents_is_bounded_and_counts_what_it_leaves_out() {
        let mut all = AgentRuns::default();
        let agents = 60_000;
        for seq in 0..agents {
            let id = format!("agent-{seq}");
            all.add(&event(seq, "agent:start", json!({ "agentRunId": id })));
            let error = json!({ "code": "bad", "message": "x".repeat(200) });
            all.add(&event(seq, "agent:error", json!({ "agentRunId": id, "error": error })));
        }
        assert_eq!(all.agents.len() as u64 + all.agents_left_out, agents);
        assert!(serde_json::to_string(&all).unwrap().len() as u64 <= PAGE_BYTES && all.agents_left_out > 0);
    }
}
