//! Runs a case of a flow, and compares the outcome with the expectations of the case.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use flowcell_contract::{Json, code};
use flowcell_flow::graph::{BodyIx, Graph};
use flowcell_runtime::{Channel, Event, FlowRunner, RunOptions, RunResult, Waiting};
use parking_lot::Mutex;

use super::{
    addresses::node_part,
    expected::differences,
    fixtures::{ReplyFixture, unused_error},
    format::{Case, Expect, REFUSED, misfits, unknown_nodes},
};
use crate::{
    host::{
        Host,
        error::{InputError, StartError},
        loaded::LoadedFlow,
    },
    world::test_run::Fixtures,
};

/// The id of the run of a case, and of a flow that runs once as a test. The random values follow from it and the seed.
pub const RUN_ID: &str = "test";

/// The run of a case, or the reason why its input does not fit the flow.
pub struct Trial {
    began: Result<Began, InputError>,
}

/// A run that can begin.
struct Began {
    /// `None` once the run has been taken.
    runner: Option<FlowRunner>,
    route: Arc<Route>,
    script: Arc<Fixtures>,
}

/// The end of the run of a case.
pub enum CaseEnd {
    /// It ended or waits.
    Ended(Box<RunResult>),
    /// It was stopped, for this reason.
    Late(String),
}

impl Trial {
    /// Prepares the run of a case. `most_bytes` bounds its events and files in memory, as [`Fixtures`] does.
    pub fn new(host: &Host, flow: &LoadedFlow, case: &Case, most_bytes: Option<u64>) -> Result<Trial, StartError> {
        let route = Arc::new(Route::new(flow.graph()));
        let answer = |value: &str| Json::object([("content", Json::from(value))]);
        let options = RunOptions {
            run_id: Some(RUN_ID.into()),
            input: case.input.clone(),
            channels: vec![route.clone()],
            answers: case.answers.iter().map(|(gate, value)| (gate.clone(), answer(value))).collect(),
            without_events: true,
            ..RunOptions::default()
        };
        let given: HashMap<_, _> = case.given.iter().map(|(node, given)| (node.clone(), given.as_fixture())).collect();
        let calls: Vec<_> = case.calls.iter().map(ReplyFixture::as_fixture).collect();
        let (begin, seed) = (case.clock, case.seed);
        let script =
            Fixtures { nodes: given, calls: Mutex::new(calls), begin, seed, most_bytes, ..Fixtures::default() };
        let script = Arc::new(script);
        let began = match host.test_runner(flow, script.clone(), options) {
            Ok(runner) => Ok(Began { runner: Some(runner), route, script }),
            Err(StartError::Input(error)) => Err(error),
            Err(error) => return Err(error),
        };
        Ok(Trial { began })
    }

    /// Returns the run, which the caller drives. `None` if the flow has refused the input, or after the first call.
    pub fn take_runner(&mut self) -> Option<FlowRunner> {
        self.began.as_mut().ok()?.runner.take()
    }

    /// Returns a sentence for each difference between the outcome of the run and the expectations. `end` is `None`
    /// if there was no run. A comparison of values that is not finished at the time `until` ends, and says so.
    pub fn differences(
        &self,
        case: &Case,
        flow: &LoadedFlow,
        end: Option<&CaseEnd>,
        until: Option<Instant>,
    ) -> Vec<String> {
        let began = match &self.began {
            Ok(began) => began,
            Err(error) => return compare_refusal(&case.expect, error),
        };
        let mut wrong = match end {
            Some(CaseEnd::Ended(result)) => compare(case, result, &began.route.take(), flow.graph(), until),
            Some(CaseEnd::Late(why)) => vec![why.clone()],
            None => Vec::new(),
        };
        let has_called = began.route.has_called.load(Ordering::Relaxed);
        wrong.extend(unknown_nodes(case, flow.graph(), has_called));
        wrong.extend(misfits(case, flow, until));
        wrong.extend(unused_error(&began.script));
        wrong
    }
}

/// Compares the expected result of a case with `error`, which reports that the case's input does not fit the flow.
/// Returns a sentence for each difference.
fn compare_refusal(expect: &Expect, error: &InputError) -> Vec<String> {
    let mut wrong = Vec::new();
    if expect.status != REFUSED {
        wrong.push(format!("the status is {REFUSED}, not {}: {error}", expect.status));
    }
    if let Some(code) = expect.error.as_ref().filter(|code| *code != code::INVALID_INPUT) {
        wrong.push(format!("the error is {}, not {code}", code::INVALID_INPUT));
    }
    if expect.outputs.is_some() || expect.route.is_some() {
        wrong.push("no node ran, so the run has no outputs and no route".into());
    }
    wrong
}

fn compare(case: &Case, result: &RunResult, route: &[String], graph: &Graph, until: Option<Instant>) -> Vec<String> {
    let expect = &case.expect;
    let mut wrong = Vec::new();
    let status = serde_json::to_value(result.status).unwrap_or_default();
    if status != expect.status {
        let why = result.error.as_ref().map(|error| format!(": {}", error.failure)).unwrap_or_default();
        wrong.push(format!("the status is {}, not {}{why}", text(&status), expect.status));
        wrong.extend(waiting_sentences(result, &case.answers));
    }
    if let Some(code) = &expect.error {
        let came = result.error.as_ref().map(|error| error.failure.code.as_str());
        if came != Some(code) {
            wrong.push(format!("the error is {}, not {code}", came.unwrap_or("none")));
        }
    }
    if let Some(outputs) = &expect.outputs {
        wrong.extend(differences("outputs", outputs, &result.outputs, until));
    }
    if let Some(expected) = &expect.route {
        match is_same_route(expected, route, graph, until) {
            Some(true) => {}
            Some(false) => {
                wrong.push(format!("the route is {}\n         not {}", route.join(", "), expected.join(", ")));
            }
            None => wrong.push("the comparison of the routes takes too long, and was ended: expect fewer nodes".into()),
        }
    }
    wrong
}

/// Returns true if two routes have the same nodes, with two nodes in the same order if a path of edges leads from one
/// to the other. The order of other nodes depends on their durations, so it is not compared. Returns `None` if the
/// comparison is not finished at the time `until`.
fn is_same_route(expected: &[String], route: &[String], graph: &Graph, until: Option<Instant>) -> Option<bool> {
    let sorted = |route: &[String]| {
        let mut nodes = route.to_vec();
        nodes.sort();
        nodes
    };
    let undoing: HashSet<_> = graph.nodes.iter().filter_map(|node| Some(node.undo?.0 as usize)).collect();
    let leads = |from: &String, to: &String| {
        let index = |id: &String| graph.nodes.iter().position(|node| node.id.as_str() == id);
        let (Some(from), Some(to)) = (index(from), index(to)) else { return true };
        // The undos run one after another, when nothing else runs.
        if undoing.contains(&from) || undoing.contains(&to) {
            return true;
        }
        let (mut seen, mut open) = (HashSet::from([from]), vec![from]);
        while let Some(node) = open.pop() {
            let next = graph.nodes[node].outgoing.iter().map(|edge| graph.edge(*edge).to.0 as usize);
            open.extend(next.filter(|next| seen.insert(*next)).collect::<Vec<_>>());
        }
        seen.contains(&to)
    };
    if sorted(expected) != sorted(route) || expected == route {
        return Some(expected == route);
    }
    // A node of a cycle counts by its first end.
    let mut places: HashMap<&String, usize> = HashMap::new();
    route.iter().enumerate().for_each(|(at, node)| _ = places.entry(node).or_insert(at));
    for (at, first) in expected.iter().enumerate() {
        for later in &expected[at + 1..] {
            if places.get(first) < places.get(later) {
                continue;
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                return None;
            }
            if leads(first, later) || leads(later, first) {
                return Some(false);
            }
        }
        if until.is_some_and(|until| Instant::now() >= until) {
            return None;
        }
    }
    Some(true)
}

/// Returns a sentence for each answer or event that a parked run waits for. `answers` are the answers in the case.
pub fn waiting_sentences(result: &RunResult, answers: &BTreeMap<String, String>) -> Vec<String> {
    let sentence = |waiting: &Waiting| match waiting {
        Waiting::Answer { address, question, .. } => {
            let answered = answer_for(address, answers).map(|answer| format!(", and refused `{answer}`"));
            let takes = match question.choices.iter().map(|choice| format!("`{}`", choice.value)).collect::<Vec<_>>() {
                choices if choices.is_empty() => "a text".to_owned(),
                choices => {
                    format!("{}{}", choices.join(", "), if question.allow_text { " or another text" } else { "" })
                }
            };
            let hint = if answered.is_none() { "; add an answer under `answers` of the case" } else { "" };
            let prompt = &question.prompt;
            format!("`{address}` asks: {prompt}; it takes {takes}{}{hint}", answered.unwrap_or_default())
        }
        Waiting::Decision { address, reason } => format!("`{address}` is blocked: {reason}"),
        Waiting::Message { address, .. } => format!("`{address}` waits for a message"),
        Waiting::Event { address, name } => format!("`{address}` waits for the event `{name}`"),
    };
    result.waiting.iter().map(sentence).collect()
}

/// Returns the case's answer to the question at an address: one for this address, or one for the id of its node.
fn answer_for<'a>(address: &str, answers: &'a BTreeMap<String, String>) -> Option<&'a String> {
    let last = Some(node_part(address)).filter(|_| !address.contains('/'));
    answers.get(address).or_else(|| answers.get(last?))
}

fn text(value: &serde_json::Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The flow's own nodes that ran, in the order of their ends.
struct Route {
    /// The ids of the flow's own nodes, those on cycles of edges and those that undo others among them.
    of_flow: HashSet<String>,
    ended: Mutex<Vec<String>>,
    /// Set when the run has called other flows.
    has_called: AtomicBool,
}

impl Route {
    fn new(graph: &Graph) -> Route {
        let of_flow = graph.nodes.iter().filter(|node| node.body_of == BodyIx::ROOT).map(|node| node.id.to_string());
        Route { of_flow: of_flow.collect(), ended: Mutex::default(), has_called: AtomicBool::default() }
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.ended.lock())
    }
}

impl Channel for Route {
    fn on_event(&self, event: &Event) {
        let ended = matches!(event.kind, "task:complete" | "task:failed");
        let id = event.data.get("taskId").and_then(Json::as_str).unwrap_or_default();
        if ended && event.run_id.as_str() == RUN_ID && self.of_flow.contains(id) {
            self.ended.lock().push(id.to_owned());
        }
        if event.run_id.as_str() != RUN_ID {
            self.has_called.store(true, Ordering::Relaxed);
        }
    }
}
