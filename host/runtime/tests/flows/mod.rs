//! Small flows for tests of stores, and a runner for the nodes of these flows.

use std::sync::Arc;

use flowcell_contract::{
    Attempt, Call, Calls, Catalog, Digest, Failure, Json, Manifest, NodeRunner, Pause, Question, Step, StepResult,
    Tenant, Value, Wake,
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
  - { type: t.count, title: Counts in the state, input: { type: object } }
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
                ("t.ask", Some(woken)) => Ok(Step::Done(woken)),
                ("t.count", _) => count(&*calls).await,
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

pub(crate) struct FlowMap(pub(crate) Arc<Graph>);

impl Flows for FlowMap {
    fn resolve(&self, name: &str, caller: &Pin) -> Result<Pinned, Failure> {
        NoFlows.resolve(name, caller)
    }

    fn pinned(&self, _: &Pin) -> Result<Arc<Graph>, Failure> {
        Ok(self.0.clone())
    }
}

pub(crate) fn graph(nodes: &str) -> Arc<Graph> {
    let mut catalog = Catalog::default();
    catalog.add(Manifest::parse(MANIFEST).unwrap(), &Digest("00".into()));
    let text = format!("flow: {{ name: f, input: {{ a: 1 }} }}\nnodes:\n{nodes}\nedges: []\n");
    let checked = flowcell_flow::load(&Source { name: "f.yaml".into(), text }, &catalog, &NoContext);
    Arc::new(checked.graph.unwrap_or_else(|| panic!("{:?}", checked.diagnostics)))
}

pub(crate) const ASKS: &str = "  - { id: count, type: t.count }\n  - { id: ask, type: t.ask }";
pub(crate) const COUNTS: &str = "  - { id: count, type: t.count }";

pub(crate) fn options(run: &str) -> RunOptions {
    RunOptions { run_id: Some(run.into()), ..RunOptions::default() }
}

pub(crate) fn answered(run: &str) -> RunOptions {
    let yes = Json::object([("content", Json::from("yes"))]);
    RunOptions { answers: [("ask".to_owned(), yes)].into(), ..options(run) }
}

pub(crate) fn tenant() -> Tenant {
    Tenant::local()
}
