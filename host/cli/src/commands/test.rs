//! `flowcell test`: runs the cases of a flow in virtual time, or runs the flow once with an input of the command line.

mod cases;
mod once;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use clap::{Args, ValueHint};
use flowcell::{
    Channel, Event, Fixtures, FlowRunner, Host, InputError, Json, LoadedFlow, RunOptions, RunResult, StartError,
    Waiting,
    contract::code,
    graph::{BodyIx, Graph},
};
use parking_lot::Mutex;

pub(super) use self::cases::cases_path;
use self::cases::{Case, Expect, REFUSED};
use super::{
    expected::differences,
    fixtures::{self, ReplyFixture},
    verdicts::{Verdict, Verdicts},
};
use crate::{
    cli_error::{CliError, Exit},
    options::{BesideArgs, PackArgs},
    owner,
    session::{answers, inputs},
    terminal::Terminal,
};

/// Maximum real time of a case. A case that takes longer fails.
pub(super) const MAX_CASE_TIME: Duration = Duration::from_secs(60);

/// Arguments of `flowcell test`.
#[derive(Args)]
pub(crate) struct TestArgs {
    /// The flows; the cases of `triage.yaml` are in `triage.test.yaml`; a script without cases runs once
    #[arg(required = true, value_hint = ValueHint::FilePath)]
    flows: Vec<PathBuf>,
    /// Run the flow with this input instead of its cases, and print the result; `KEY=VALUE` as for `run`; may be
    /// repeated
    #[arg(short, long = "input", value_name = "KEY=VALUE", value_parser = inputs::pair, conflicts_with_all = ["only", "junit"])]
    input: Vec<(String, inputs::Member)>,
    /// Run the flow instead of its cases, and print one JSON object: `{ status, outputs, error? }`
    #[arg(long, conflicts_with_all = ["only", "junit"])]
    json: bool,
    /// Run only the cases whose name contains this text
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Write the results as JUnit XML to this file, too
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    junit: Option<PathBuf>,
    #[command(flatten)]
    packs: PackArgs,
    #[command(flatten)]
    beside: BesideArgs,
}

pub(super) fn execute(args: &TestArgs, terminal: Terminal) -> Result<Exit, CliError> {
    let host = args.packs.checking_host(&args.beside)?;
    if once::runs_once(args) {
        return once::execute(&host, args, terminal);
    }
    let mut verdicts = Verdicts::default();
    let mut unread: Option<CliError> = None;
    for path in &args.flows {
        let wanted = |case: &Case| args.only.as_ref().is_none_or(|only| case.name.contains(only.as_str()));
        match read(&host, path) {
            Ok((flow, cases)) => {
                for case in cases.into_iter().filter(wanted) {
                    verdicts.add(perform(&host, &flow, path, &case)?, terminal);
                }
            }
            // Continue with the cases of the other flows.
            Err(problem) => {
                if let Some(before) = unread.replace(problem) {
                    before.print(terminal);
                }
            }
        }
    }
    match unread {
        Some(problem) if verdicts.is_empty() => Err(problem),
        Some(problem) => verdicts.conclude(args.junit.as_deref(), terminal).and(Err(problem)),
        None => verdicts.conclude(args.junit.as_deref(), terminal),
    }
}

/// Reads a flow and its cases.
fn read(host: &Host, path: &Path) -> Result<(LoadedFlow, Vec<Case>), CliError> {
    Ok((host.load_flow(path)?, cases::read(path)?))
}

/// Drives a run to its end. Returns `None` if it has not ended after [`MAX_CASE_TIME`].
fn run(runner: FlowRunner) -> Result<Option<RunResult>, CliError> {
    runner.start_session();
    owner::block_on(async { tokio::time::timeout(MAX_CASE_TIME, runner.run()).await.ok() })
}

fn timeout_message() -> String {
    format!("it does not end within {} s", MAX_CASE_TIME.as_secs())
}

fn perform(host: &Host, flow: &LoadedFlow, path: &Path, case: &Case) -> Result<Verdict, CliError> {
    let route = Arc::new(Route::new(flow.graph()));
    let answers = case.answers.iter().map(|(gate, value)| (gate.clone(), answers::answer(value)));
    let options = RunOptions {
        run_id: Some("test".into()),
        input: case.input.clone(),
        channels: vec![route.clone()],
        answers: answers.collect(),
        without_events: true,
        ..RunOptions::default()
    };
    let given: HashMap<_, _> = case.given.iter().map(|(node, given)| (node.clone(), given.as_fixture())).collect();
    let calls: Vec<_> = case.calls.iter().map(ReplyFixture::as_fixture).collect();
    let (begin, seed) = (case.clock, case.seed);
    let script = Fixtures { nodes: given, calls: Mutex::new(calls), begin, seed, ..Fixtures::default() };
    let script = Arc::new(script);
    let began = std::time::Instant::now();
    let wrong = match host.test_runner(flow, script.clone(), options) {
        Ok(runner) => {
            let mut wrong = match run(runner)? {
                Some(result) => compare(case, &result, &route.take(), flow.graph()),
                None => vec![timeout_message()],
            };
            let has_called = route.has_called.load(Ordering::Relaxed);
            wrong.extend(cases::unknown_nodes(case, flow.graph(), has_called));
            wrong.extend(cases::misfits(case, flow));
            wrong.extend(fixtures::unused_error(&script));
            wrong
        }
        Err(StartError::Input(error)) => compare_refusal(&case.expect, &error),
        Err(error) => return Err(error.into()),
    };
    Ok(Verdict { of: path.display().to_string(), case: case.name.clone(), took: began.elapsed(), wrong })
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

fn compare(case: &Case, result: &RunResult, route: &[String], graph: &Graph) -> Vec<String> {
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
        wrong.extend(differences("outputs", outputs, &result.outputs));
    }
    if let Some(expected) = expect.route.as_ref().filter(|expected| !is_same_route(expected, route, graph)) {
        wrong.push(format!("the route is {}\n         not {}", route.join(", "), expected.join(", ")));
    }
    wrong
}

/// Returns true if two routes have the same nodes, and in the same order wherever a path of edges leads from one node
/// to the other. The order of other nodes depends on their durations, so it is not compared.
fn is_same_route(expected: &[String], route: &[String], graph: &Graph) -> bool {
    let sorted = |route: &[String]| {
        let mut nodes = route.to_vec();
        nodes.sort();
        nodes
    };
    let leads = |from: &String, to: &String| {
        let index = |id: &String| graph.nodes.iter().position(|node| node.id.as_str() == id);
        let (Some(from), Some(to)) = (index(from), index(to)) else { return true };
        let (mut seen, mut open) = (HashSet::from([from]), vec![from]);
        while let Some(node) = open.pop() {
            let next = graph.nodes[node].outgoing.iter().map(|edge| graph.edge(*edge).to.0 as usize);
            open.extend(next.filter(|next| seen.insert(*next)).collect::<Vec<_>>());
        }
        seen.contains(&to)
    };
    let stands = |node: &String| route.iter().position(|other| other == node);
    let is_kept = |(at, first): (usize, &String)| {
        expected[at + 1..]
            .iter()
            .all(|later| stands(first) < stands(later) || !leads(first, later) && !leads(later, first))
    };
    sorted(expected) == sorted(route) && (expected == route || expected.iter().enumerate().all(is_kept))
}

/// Returns a sentence for each answer or event that a parked run waits for. `answers` are the answers in the case.
fn waiting_sentences(result: &RunResult, answers: &BTreeMap<String, String>) -> Vec<String> {
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
    let last = address.rsplit('.').next().filter(|_| !address.contains('/'));
    answers.get(address).or_else(|| answers.get(last?))
}

fn text(value: &serde_json::Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The flow's own nodes that ran, in the order of their ends.
struct Route {
    /// The ids of the flow's own nodes, those on cycles of edges among them.
    of_flow: HashSet<String>,
    ended: Mutex<Vec<String>>,
    /// Set when the run has called other flows.
    has_called: AtomicBool,
}

impl Route {
    fn new(graph: &Graph) -> Route {
        let of_flow = graph.body(BodyIx::ROOT).nodes.iter().map(|node| graph.node(*node).id.to_string());
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
        if ended && event.run_id.as_str() == "test" && self.of_flow.contains(id) {
            self.ended.lock().push(id.to_owned());
        }
        if event.run_id.as_str() != "test" {
            self.has_called.store(true, Ordering::Relaxed);
        }
    }
}
