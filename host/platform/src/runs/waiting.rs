//! Derives the waits of a run from its events. A wait is something that a task waits for: an answer, a message, a named
//! event, or the decision of a person about a blocked task. The address of a task is its path in the run: `ask`,
//! `each[2].ask` in a pass of the body of `each`, or `review/ask` in the child run that `review` called.

mod followed;

use std::{collections::BTreeMap, ops::ControlFlow};

use flowcell_contract::{Json, RunId};
use flowcell_runtime::{
    Event, OpenError,
    paging::{Filling, PAGE_BYTES, PageLimits},
    ports::{RunRow, StoreError},
};
use serde_json::{Value, json};

pub use self::followed::FollowedWaits;

use crate::{
    Host, StartError,
    host::{
        events::{Until, each_until},
        task_inputs::{calling_task, run_at},
    },
};

/// All events count.
const NOW: Until = Until::Event(u64::MAX);
/// Maximum number of levels of child runs that are searched.
const MAX_DEPTH: usize = 16;
/// Maximum size in bytes of a question's arguments in a list, as JSON text.
pub(crate) const MAX_LISTED_BYTES: usize = 16 * 1024;

/// Lists the waits of a run and its child runs as they are: see [`list_before`].
pub fn list(host: &Host, run: &RunId) -> Result<Vec<Value>, StartError> {
    list_before(host, run, u64::MAX)
}

/// Lists the waits of a run and its child runs as they were before the event number `end` of the run, up to
/// [`PAGE_BYTES`]. If some do not fit, a last item `{ "kind": "more", "leftOut" }` has their number. Arguments of more
/// than [`MAX_LISTED_BYTES`] are omitted, and for an open question `wholeAt` has the URL path of the whole question.
///
/// Of a child run, the events before the time of the event `end` count.
pub fn list_before(host: &Host, run: &RunId, end: u64) -> Result<Vec<Value>, StartError> {
    let mut list = BoundedList { is_earlier: end != u64::MAX, ..BoundedList::new(run) };
    Search { host, whole: false }.list_waits((run, Until::Event(end)), "", MAX_DEPTH, &mut |waits| list.take(waits))?;
    Ok(list.end())
}

/// The waits of a run in a list of at most [`PAGE_BYTES`].
struct BoundedList<'a> {
    run: &'a RunId,
    /// True for an earlier moment, whose questions have no address of their own.
    is_earlier: bool,
    filling: Filling,
    found: Vec<Value>,
    left_out: u64,
}

impl BoundedList<'_> {
    fn new(run: &RunId) -> BoundedList<'_> {
        let filling = Filling::new(PageLimits { items: usize::MAX, bytes: PAGE_BYTES });
        BoundedList { run, is_earlier: false, filling, found: Vec::new(), left_out: 0 }
    }

    fn take(&mut self, waits: Value) {
        let waits = if self.is_earlier { waits } else { with_place(self.run, waits) };
        match self.filling.take(waits.to_string().len() as u64) {
            true => self.found.push(waits),
            false => self.left_out += 1,
        }
    }

    fn end(mut self) -> Vec<Value> {
        if self.left_out > 0 {
            self.found.push(json!({ "kind": "more", "leftOut": self.left_out }));
        }
        self.found
    }
}

/// A wait of a run for a person, at its place in the order of the run's waits.
pub(super) struct PersonWait {
    /// The address and the kind.
    pub(super) key: String,
    pub(super) wait: Value,
}

/// Lists the waits of a run and its child runs that a person can end, in the order of their keys, after the key `after`.
/// Waits for named events are left out.
pub(super) fn list_of_people(host: &Host, run: &RunId, after: &str) -> Result<Vec<PersonWait>, StartError> {
    let mut found = Vec::new();
    let mut take = |wait: Value| {
        let text = |member: &str| wait[member].as_str().unwrap_or_default();
        let key = format!("{} {}", text("address"), text("kind"));
        if text("kind") != "event" && key.as_str() > after {
            found.push(PersonWait { key, wait: with_place(run, wait) });
        }
    };
    Search { host, whole: false }.list_waits((run, NOW), "", MAX_DEPTH, &mut take)?;
    found.sort_by(|a, b| a.key.cmp(&b.key));
    Ok(found)
}

/// Adds the URL path of the whole question to a wait whose arguments are omitted.
fn with_place(run: &RunId, mut waits: Value) -> Value {
    if waits.get("argumentsBytes").is_some() {
        let address = waits["address"].as_str().unwrap_or_default();
        waits["wholeAt"] =
            format!("/v1/runs/{}/gates/{}", escape_segment(run.as_str()), escape_segment(address)).into();
    }
    waits
}

/// Finds the time at which a person answered the question at an address last, in milliseconds since 1970. Returns `None` if
/// nobody has answered there. `children` returns the runs that a run has called.
pub fn answered_at(
    host: &Host,
    run: &RunId,
    address: &str,
    children: impl Fn(&RunId) -> Result<Vec<RunId>, StoreError>,
) -> Result<Option<u64>, StartError> {
    let (run, Some(here)) = run_at(run, address, children).map_err(OpenError::Store)? else { return Ok(None) };
    let (task, call) = here.split_once('#').map_or((here, None), |(task, call)| (task, Some(call)));
    let mut last = None;
    host.each_event(&run, 0, |event| {
        let answers = match call {
            None => event.kind == "session:reply",
            Some(call) => {
                event.kind == "agent:tool:decision"
                    && number_in(&event, "call").to_string() == call
                    && event.data.get("expired").and_then(Json::as_bool) == Some(false)
            }
        };
        if answers && address_of(&event).as_deref() == Some(task) {
            last = Some(event.ts);
        }
        ControlFlow::Continue(())
    })?;
    Ok(last)
}

/// Finds the open question of the task at an address, with its whole arguments. Returns `None` if no question is open
/// there.
pub fn question(host: &Host, run: &RunId, address: &str) -> Result<Option<Value>, StartError> {
    let mut found = None;
    let mut take = |waits: Value| {
        if waits["kind"] == "gate" && waits["address"] == address {
            found = Some(waits);
        }
    };
    Search { host, whole: true }.list_waits((run, NOW), "", MAX_DEPTH, &mut take)?;
    Ok(found)
}

/// A search through a run and its child runs.
struct Search<'a> {
    host: &'a Host,
    /// True to keep arguments of any size. False to omit those of more than [`MAX_LISTED_BYTES`].
    whole: bool,
}

impl Search<'_> {
    fn list_waits(
        &self,
        (run, until): (&RunId, Until),
        prefix: &str,
        depth: usize,
        take: &mut dyn FnMut(Value),
    ) -> Result<(), StartError> {
        let mut open = OpenWaits { whole: self.whole, ..OpenWaits::default() };
        let cut_at = each_until(self.host, run, until, |event| open.apply(event))?;
        for (_, mut waits) in open.waits.into_values().flatten() {
            let address = waits["address"].as_str().unwrap_or_default();
            waits["address"] = format!("{prefix}{address}").into();
            take(waits);
        }
        if depth == 0 {
            return Ok(());
        }
        // All runs below are shown at the moment of the topmost one.
        let at = if let Until::Time(at) = until { Some(at) } else { cut_at };
        let until = at.map_or(NOW, Until::Time);
        for child in self.live_children(run, at)? {
            if let Some(task) = calling_task(run, &child) {
                self.list_waits((&child, until), &format!("{prefix}{task}/"), depth - 1, take)?;
            }
        }
        Ok(())
    }

    /// Returns the child runs of a run that had not ended before a time, or that have not ended now. An ended one has no
    /// waits.
    fn live_children(&self, run: &RunId, at: Option<u64>) -> Result<Vec<RunId>, StartError> {
        let (Some(at), Some(runs)) = (at, self.host.runs()) else {
            return Ok(self.host.live_runs_below(run).map_err(OpenError::Store)?);
        };
        let mut live = Vec::new();
        for child in self.host.called_by(run)? {
            let row = runs.run(self.host.tenant(), &child).map_err(OpenError::Store)?;
            let was_live =
                |row: &RunRow| row.status != "removed" && row.created < at && (!row.has_ended() || row.updated >= at);
            if row.is_some_and(|(row, _)| was_live(&row)) {
                live.push(child);
            }
        }
        Ok(live)
    }
}

/// Returns the ids of the nodes that a move of a run to another version of its flow removed or starts anew.
pub(super) fn dropped_nodes(event: &Event) -> impl Iterator<Item = &str> {
    let dropped = event.data.get("dropped").and_then(Json::as_array).unwrap_or_default();
    dropped.iter().filter_map(Json::as_str)
}

/// Escapes a segment of a URL's path.
fn escape_segment(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    text.bytes().fold(String::with_capacity(text.len()), |mut out, byte| {
        match plain(byte) {
            true => out.push(char::from(byte)),
            false => out.push_str(&format!("%{byte:02X}")),
        }
        out
    })
}

/// The open waits of each task, by the task's address. A task may have several waits with different names.
#[derive(Default)]
pub(crate) struct OpenWaits {
    /// True to keep arguments of any size. False to omit those of more than [`MAX_LISTED_BYTES`].
    whole: bool,
    waits: BTreeMap<String, Vec<(String, Value)>>,
    /// The ids of agent runs that have an inbox, by the addresses of their tasks.
    listening: BTreeMap<String, String>,
}

impl OpenWaits {
    pub(crate) fn apply(&mut self, event: &Event) {
        if event.kind == "harness:complete" {
            return self.waits.clear();
        }
        if event.kind == "harness:migrated" {
            // A node that is gone or starts anew waits for nothing.
            for node in dropped_nodes(event) {
                self.waits.remove(node);
                self.listening.remove(node);
            }
            return;
        }
        let text = |key: &str| event.data.get(key).and_then(Json::as_str);
        let Some(address) = address_of(event) else { return };
        match event.kind {
            "task:paused" => self.add_pause(event, &address),
            "call:start" => {
                if let Some(question) = event.data.get("question") {
                    self.add_question(event.ts, &address, &format!("call {}", number_in(event, "call")), question);
                }
            }
            "agent:tool:decision" => self.remove(&address, &format!("call {}", number_in(event, "call"))),
            "task:blocked" => {
                let (reason, message) = (text("reason"), text("message"));
                let waits = json!({ "kind": "decision", "address": address, "reason": reason, "message": message });
                self.add(event.ts, &address, "decision", waits);
            }
            "task:resolved" => self.remove(&address, "decision"),
            "agent:start" => {
                let inbox = event.data.get("inbox");
                if inbox.is_some_and(|inbox| !inbox.is_null() && inbox.as_bool() != Some(false)) {
                    self.listening.insert(address, text("agentRunId").unwrap_or_default().to_owned());
                }
            }
            "task:idle" => {
                if let Some(agent_run) = self.listening.get(&address) {
                    let waits = json!({ "kind": "message", "address": address, "agentRunId": agent_run });
                    self.add(event.ts, &address, "message", waits);
                }
            }
            "task:busy" => self.remove(&address, "message"),
            "task:start" => _ = self.listening.remove(&address),
            "task:woken" | "task:resumed" | "task:complete" | "task:failed" | "task:cancelled" | "task:retry" => {
                self.waits.remove(&address);
            }
            _ => {}
        }
    }

    fn add_pause(&mut self, event: &Event, address: &str) {
        self.waits.remove(address);
        if let Some(question) = event.data.get("question") {
            self.add_question(event.ts, address, "question", question);
        }
        if let Some(name) = event.data.get("event").and_then(Json::as_str) {
            self.add(event.ts, address, "event", json!({ "kind": "event", "address": address, "event": name }));
        }
    }

    fn add_question(&mut self, since: u64, task: &str, name: &str, question: &Json) {
        let mut waits = question.to_serde();
        waits["kind"] = "gate".into();
        let bytes = waits.get("arguments").map_or(0, |arguments| arguments.to_string().len());
        if !self.whole && bytes > MAX_LISTED_BYTES {
            waits["argumentsBytes"] = bytes.into();
            waits.as_object_mut().map(|members| members.remove("arguments"));
        }
        self.add(since, task, name, waits);
    }

    fn add(&mut self, since: u64, task: &str, name: &str, mut waits: Value) {
        self.remove(task, name);
        waits["since"] = since.into();
        self.waits.entry(task.to_owned()).or_default().push((name.to_owned(), waits));
    }

    fn remove(&mut self, task: &str, name: &str) {
        if let Some(open) = self.waits.get_mut(task) {
            open.retain(|(known, _)| known != name);
        }
    }
}

/// Returns the address of the task of an event. `None`: the event is not about a task.
pub(super) fn address_of(event: &Event) -> Option<String> {
    let text = |key: &str| event.data.get(key).and_then(Json::as_str);
    let node = text("nodeId")?;
    Some(text("scope").map_or_else(|| node.to_owned(), |scope| format!("{scope}.{node}")))
}

fn number_in(event: &Event, key: &str) -> u64 {
    event.data.get(key).and_then(Json::as_u64).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use flowcell_flow::Source;
    use flowcell_runtime::{RunOptions, RunStatus};

    use super::*;

    #[test]
    fn a_list_of_questions_is_bounded_and_says_how_many_are_missing() {
        let host = Host::builder().build().unwrap();
        let text = "
flow: { name: asks, input: { text: '', list: [] } }
nodes:
  - { id: each, type: control.foreach, input: { list: '{{ flow.input.list }}', concurrency: 400 }, body: [ok] }
  - { id: ok, type: control.gate, input: { prompt: '{{ flow.input.text }}', choices: ['yes'] } }
edges: []
";
        let flow = host.load_source(Source { name: "asks.yaml".into(), text: text.into() }).unwrap();
        let list: Vec<u32> = (0..400).collect();
        let input = Json::from(json!({ "text": "x".repeat(60_000), "list": list }));
        let options = RunOptions { run_id: Some("r".into()), input, ..RunOptions::default() };
        let runner = host.runner(&flow, options).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        assert_eq!(runtime.block_on(runner.run()).status, RunStatus::Parked);
        let listed = list_of(&host);
        assert!(serde_json::to_string(&listed).unwrap().len() as u64 <= PAGE_BYTES + PAGE_BYTES / 100);
        let more = listed.last().unwrap();
        assert_eq!((&more["kind"], more["leftOut"].as_u64()), (&json!("more"), Some(401 - listed.len() as u64)));
        assert!(listed.len() > 200 && question(&host, &"r".into(), "each[399].ok").unwrap().is_some());
    }

    fn list_of(host: &Host) -> Vec<Value> {
        list(host, &"r".into()).unwrap()
    }

    #[test]
    fn a_node_that_a_move_drops_waits_for_nothing() {
        let event = |kind, data: Value| Event {
            seq: 1,
            ts: 0,
            tenant: "local".into(),
            run_id: "r".into(),
            kind,
            data: Json::from(data),
        };
        let mut open = OpenWaits::default();
        for node in ["a", "b"] {
            open.apply(&event("task:blocked", json!({ "nodeId": node, "reason": "nondeterministic" })));
        }
        open.apply(&event("harness:migrated", json!({ "dropped": ["a"] })));
        assert_eq!(open.waits.into_keys().collect::<Vec<_>>(), ["b"]);
    }

    #[test]
    fn a_child_names_the_task_that_called_it() {
        let parent = RunId::from("run-1.x");
        for (child, task) in [("run-1.x.review.1", "review"), ("run-1.x.each[3].review.2-1~7", "each[3].review")] {
            assert_eq!(calling_task(&parent, &child.into()), Some(task));
        }
        assert_eq!(calling_task(&parent, &"run-2.review.1".into()), None);
    }

    #[test]
    fn an_address_is_one_segment_of_a_path() {
        assert_eq!(escape_segment("review/each[0].ask#3"), "review%2Feach%5B0%5D.ask%233");
    }
}
