//! Compares the events of runs with `tests/fixtures/flow/*/events.txt`. `BLESS=1` writes these files anew.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::{
    collections::HashMap,
    fs,
    path::Path,
    sync::{Arc, Mutex, OnceLock},
};

use flowcell_platform::{Channel, Event, Host, Hub, HubError, Json, RunOptions};
use serde::Deserialize;
use tokio::task::JoinHandle;

/// Formats the members of an event that are the same in every run.
fn line(event: &Event) -> String {
    const SHOWN_MEMBERS: [&str; 15] = [
        "name",
        "taskId",
        "scope",
        "attempt",
        "from",
        "to",
        "reason",
        "result",
        "success",
        "status",
        "agentRunId",
        "messageId",
        "state",
        "content",
        "stopReason",
    ];
    let mut line = event.kind.to_owned();
    for key in SHOWN_MEMBERS {
        if let Some(value) = event.data.get(key) {
            line.push_str(&format!(" {key}={value}"));
        }
    }
    if let Some(code) = event.data.get("error").and_then(|error| error.get("code")?.as_str()) {
        line.push_str(&format!(" error={code}"));
    }
    line
}

/// A message that the test sends to an agent run after a number of events of a kind.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Message {
    on: String,
    count: usize,
    to: String,
    id: Option<String>,
    text: Option<Json>,
    #[serde(default)]
    close: bool,
}

/// Sends messages during the run, and records their outcomes.
#[derive(Default)]
struct Writer {
    messages: Vec<Message>,
    hub: OnceLock<Hub>,
    seen: Mutex<HashMap<&'static str, usize>>,
    /// The agent run of the latest event that names one.
    latest: Mutex<String>,
    outcomes: Arc<Mutex<Vec<String>>>,
    writing: Mutex<Vec<JoinHandle<()>>>,
}

impl Writer {
    /// Reads the messages beside a flow.
    fn of(folder: &Path) -> Arc<Writer> {
        let text = fs::read_to_string(folder.join("messages.yaml")).unwrap_or_else(|_| "[]".into());
        Arc::new(Writer { messages: serde_yaml::from_str(&text).unwrap(), ..Writer::default() })
    }
}

impl Channel for Writer {
    fn on_start(&self, hub: &Hub) {
        let _ = self.hub.set(hub.clone());
    }

    fn on_event(&self, event: &Event) {
        let count = {
            let mut seen = self.seen.lock().unwrap();
            let count = seen.entry(event.kind).or_default();
            *count += 1;
            *count
        };
        let due = self.messages.iter().filter(|message| message.on == event.kind && message.count == count);
        let due: Vec<_> = due.cloned().collect();
        let (hub, outcomes) = (self.hub.get().unwrap().clone(), self.outcomes.clone());
        if let Some(run) = event.data.get("agentRunId").and_then(Json::as_str) {
            run.clone_into(&mut self.latest.lock().unwrap());
        }
        let run = self.latest.lock().unwrap().clone();
        if !due.is_empty() {
            let writing = tokio::spawn(async move {
                for message in due {
                    let outcome = write(&hub, &run, &message).await;
                    let outcome = outcome.map_or_else(|error| error.code().to_owned(), |()| "accepted".to_owned());
                    let what = message.id.as_deref().unwrap_or("close");
                    outcomes.lock().unwrap().push(format!("{what} to {}: {outcome}", message.to));
                }
            });
            self.writing.lock().unwrap().push(writing);
        }
    }
}

async fn write(hub: &Hub, run: &str, message: &Message) -> Result<(), HubError> {
    let text = message.text.clone().unwrap_or_default();
    match (message.close, &*message.to) {
        (true, _) => hub.close_run(run).await,
        (false, "run") => hub.send_to_run(run, message.id.as_deref(), text).await,
        (false, node) => hub.send_to(node, message.id.as_deref(), text).await,
    }
}

fn event_lines(folder: &Path) -> String {
    let models = folder.join("providers.yaml");
    let builder = Host::builder();
    let builder = if models.is_file() { builder.providers_file(models) } else { builder };
    let host = builder.build().unwrap();
    let flow = host.load_flow(folder.join("flow.yaml")).unwrap();
    // With one permit, independent nodes run in the order of the file.
    let writer = Writer::of(folder);
    let mut options = RunOptions { run_id: Some("session-1".into()), ..RunOptions::default() };
    options.channels.push(writer.clone());
    options.wait_for_answers = true;
    options.policy.max_concurrency = Some(1);
    let runner = host.runner(&flow, options).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runner.start_session();
    let result = runtime.block_on(runner.run());
    for writing in std::mem::take(&mut *writer.writing.lock().unwrap()) {
        runtime.block_on(writing).unwrap();
    }
    for (seq, event) in result.events.iter().enumerate() {
        assert_eq!((event.seq, event.run_id.as_str()), (seq as u64, "session-1"));
    }
    let mut lines: Vec<_> = result.events.iter().map(line).collect();
    lines.extend(writer.outcomes.lock().unwrap().iter().map(|outcome| format!("-> {outcome}")));
    lines.push(format!(
        "=> {:?} {}",
        result.status,
        if result.outputs.is_null() { Json::Null } else { result.outputs }
    ));
    lines.join("\n") + "\n"
}

fn check(name: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/flow").join(name);
    let golden = folder.join("events.txt");
    let lines = event_lines(&folder);
    if std::env::var_os("BLESS").is_some() {
        fs::write(&golden, &lines).unwrap();
    }
    assert_eq!(lines, fs::read_to_string(&golden).unwrap_or_default(), "{}", golden.display());
}

#[test]
fn run_lifecycle() {
    check("run-lifecycle");
}

#[test]
fn policy_timeout() {
    check("policy-timeout");
}

#[test]
fn policy_retry() {
    check("policy-retry");
}

#[test]
fn policy_retry_codes() {
    check("policy-retry-codes");
}

#[test]
fn many_failures() {
    check("many-failures");
}

#[test]
fn race() {
    check("race");
}

#[test]
fn edge_when() {
    check("edge-when");
}

#[test]
fn inbox_routing() {
    check("inbox-routing");
}
