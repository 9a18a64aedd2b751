//! Small flows for tests, the runner of their nodes, and the outside world that they call.

use std::{
    collections::HashMap,
    fs::OpenOptions,
    io::Write,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use flowcell_contract::{
    Admission, Attempt, Call, Caller, Calls, Capability, Catalog, Digest, Effect, Failure, Json, Manifest, NodeRunner,
    Outgoing, Pause, Question, Step, StepResult, Tenant, Value, Wake,
};
use flowcell_flow::{NoContext, Source, graph::Graph};
use flowcell_runtime::{Flows, NoFlows, Pinned, RunOptions, ports::Pin};
use futures_util::future::BoxFuture;

const MANIFEST: &str = "
name: t
version: 1.0.0
nodes:
  - { type: t.noop, title: Hands its input on, input: { type: object } }
  - { type: t.ask, title: Asks, input: { type: object } }
  - { type: t.wait, title: Waits, input: { type: object } }
  - { type: t.count, title: Counts in the state, input: { type: object } }
  - { type: t.call, title: Calls the world outside, input: { type: object } }
";

pub(crate) struct Nodes;

impl NodeRunner for Nodes {
    fn run(&self, attempt: Attempt, calls: Arc<dyn Calls>) -> BoxFuture<'static, StepResult> {
        Box::pin(async move {
            match (&*attempt.node_type, attempt.woken) {
                ("t.ask", None) => {
                    let question = Question { prompt: "Well?".into(), allow_text: true, ..Question::default() };
                    Ok(Step::Pause(Pause { until: vec![Wake::Answer(question)], state: Value::null() }))
                }
                ("t.wait", None) => {
                    let ms = attempt.input.json().get("ms").and_then(Json::as_u64).unwrap_or(1);
                    Ok(Step::Pause(Pause { until: vec![Wake::After(ms)], state: Value::null() }))
                }
                (_, Some(woken)) => Ok(Step::Done(woken)),
                ("t.call", None) => {
                    let function = attempt.input.json().get("function").and_then(Json::as_str).unwrap_or("do");
                    let args = attempt.input.clone();
                    let call = Call { interface: "outside".into(), function: function.into(), args };
                    Ok(Step::Done(calls.call(call).await?))
                }
                ("t.count", None) => count(&*calls).await,
                _ => Ok(Step::Done(attempt.input)),
            }
        })
    }
}

async fn count(calls: &dyn Calls) -> StepResult {
    let call = |function: &str, args: Vec<(&str, Json)>| {
        calls.call(Call { interface: "state".into(), function: function.into(), args: Json::object(args).into() })
    };
    let found = call("get", vec![("key", Json::from("count"))]).await?;
    let value = found.json().get("value").and_then(Json::as_u64).unwrap_or(0) + 1;
    call("set", vec![("key", Json::from("count")), ("value", Json::from(value))]).await?;
    Ok(Step::Done(Json::object([("count", Json::from(value))]).into()))
}

/// The world outside: writes a line to a file for each call, with its key.
pub(crate) struct Outside(pub(crate) PathBuf);

impl Capability for Outside {
    fn admit(&self, call: &Call, _: &Caller) -> Result<Admission, Failure> {
        let effect = if &*call.function == "once" { Effect::Once } else { Effect::Idempotent };
        Ok(Admission::new(effect, Json::Null))
    }

    fn perform(&self, outgoing: Outgoing) -> BoxFuture<'static, Result<Value, Failure>> {
        let mut file = OpenOptions::new().append(true).create(true).open(&self.0).unwrap();
        // In one write, because other processes write to the same file.
        file.write_all(format!("{} {}\n", outgoing.key, outgoing.call.function).as_bytes()).unwrap();
        let ms = outgoing.call.args.json().get("ms").and_then(Json::as_u64).unwrap_or(0);
        Box::pin(async move {
            if ms > 0 {
                tokio::time::sleep(Duration::from_millis(ms)).await;
            }
            Ok(Value::from(Json::from("done")))
        })
    }
}

/// Returns the lines of the file of [`Outside`].
pub(crate) fn ledger(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

pub(crate) fn capabilities(path: &Path) -> Arc<HashMap<Arc<str>, Arc<dyn Capability>>> {
    Arc::new(HashMap::from([("outside".into(), Arc::new(Outside(path.to_owned())) as Arc<dyn Capability>)]))
}

/// A library whose pins are the texts of flows.
pub(crate) struct TextFlows;

impl Flows for TextFlows {
    fn resolve(&self, name: &str, caller: &Pin) -> Result<Pinned, Failure> {
        NoFlows.resolve(name, caller)
    }

    fn pinned(&self, pin: &Pin) -> Result<Arc<Graph>, Failure> {
        Ok(graph(&pin.0))
    }
}

/// Returns the flow with these nodes and edges.
pub(crate) fn graph(body: &str) -> Arc<Graph> {
    graph_named("f", body)
}

/// Returns the flow with this name. Flows with different names have different state.
fn graph_named(name: &str, body: &str) -> Arc<Graph> {
    let mut catalog = Catalog::default();
    catalog.add(Manifest::parse(MANIFEST).unwrap(), &Digest("00".into()));
    let text = format!("flow: {{ name: {name}, input: {{ a: 1 }} }}\n{body}");
    let checked = flowcell_flow::load(&Source { name: "f.yaml".into(), text }, &catalog, &NoContext);
    Arc::new(checked.graph.unwrap_or_else(|| panic!("{:?}", checked.diagnostics)))
}

pub(crate) fn pinned(body: &str) -> Pinned {
    Pinned { graph: graph(body), pin: Pin(body.into()) }
}

/// Returns a chain of nodes, each after the one before.
pub(crate) fn chain(nodes: &[&str]) -> String {
    let listed: String = nodes.iter().enumerate().map(|(n, node)| format!("  - {{ id: n{n}, {node} }}\n")).collect();
    let edges: Vec<_> = (1..nodes.len()).map(|n| format!("{{ from: n{}, to: n{n} }}", n - 1)).collect();
    format!("nodes:\n{listed}edges: [{}]\n", edges.join(", "))
}

pub(crate) fn options(run: &str) -> RunOptions {
    RunOptions { run_id: Some(run.into()), ..RunOptions::default() }
}

pub(crate) fn tenant() -> Tenant {
    Tenant::local()
}
