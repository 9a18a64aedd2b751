//! Runs one case: the node runs alone in virtual time, and no call leaves the host.

use std::{
    collections::HashMap,
    path::Path,
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use flowcell::{
    Diagnostic, Fixtures, Host, Json, LoadError, LoadedFlow, NodeFixture, Probe, RunOptions, RunResult, RunStatus,
    StartError, Write,
    cases::{
        expected::{differences, fits, shown},
        fixtures::{ReplyFixture, unused_error},
    },
    contract::Failure,
};
use parking_lot::Mutex;

use super::{
    cases::{Case, Expect, ExpectedFailure, Failing},
    fakes,
    observer::{Observer, RUN_ID},
};
use crate::{
    cli_error::CliError,
    commands::{
        node::alone::{self, SingleNodeFlow},
        nodes,
        test::MAX_CASE_TIME,
        verdicts::Verdict,
    },
    owner::block_on,
    session::answers,
};

/// The name of the folder, within that of the cases, with the flows that nodes call.
const FLOWS_FOLDER: &str = "flows";

/// Runs a case and compares the result with the expected one.
pub(super) fn perform(host: &Host, folder: &Path, case: &Case) -> Result<Verdict, CliError> {
    let began = Instant::now();
    let wrong = match load(host, folder, case) {
        Ok(flow) => run_case(host, &flow, case)?,
        Err(LoadError::Host(error)) => return Err(error.into()),
        Err(LoadError::Invalid(findings)) => invalid(case, &findings),
    };
    Ok(Verdict { of: case.node_type.clone(), case: case.name.clone(), took: began.elapsed(), wrong })
}

/// Loads the flow of a case, which has the node alone. `folder` is that of the cases.
pub(in crate::commands::node) fn load(host: &Host, folder: &Path, case: &Case) -> Result<LoadedFlow, LoadError> {
    let grants = match nodes::find(&host.catalog(), &case.node_type) {
        Ok(node) => fakes::grants(host, &node, case),
        Err(_) => case.grants.clone(),
    };
    let alone =
        SingleNodeFlow { node_type: &case.node_type, grants: &grants, has_body: case.body.is_some(), timeout_ms: None };
    host.load_source(alone.source(&folder.join(FLOWS_FOLDER)))
}

/// Returns a sentence for each error of a node that the host does not accept.
fn invalid(case: &Case, findings: &[Diagnostic]) -> Vec<String> {
    let mut wrong: Vec<_> = findings
        .iter()
        .map(|Diagnostic { message, help, .. }| match help {
            Some(help) => format!("{message}; {help}"),
            None => message.clone(),
        })
        .collect();
    if case.example.is_some() {
        wrong.push("give the example grants and replies in a case whose `example` is its title".into());
    }
    wrong
}

/// A run of a case that has ended or was stopped.
pub(in crate::commands::node) struct CaseRun {
    pub(in crate::commands::node) end: CaseEnd,
    pub(in crate::commands::node) events: Vec<Json>,
    script: Arc<Fixtures>,
}

/// The end of the run of a case.
pub(in crate::commands::node) enum CaseEnd {
    /// The flow does not accept the input, for this reason.
    Refused(String),
    /// The run did not end in time.
    Overdue,
    Ended(Box<RunResult>),
}

/// Runs a case. Returns the differences from the expected result.
fn run_case(host: &Host, flow: &LoadedFlow, case: &Case) -> Result<Vec<String>, CliError> {
    Ok(differences_of(case, &block_on(run(host, flow, case, MAX_CASE_TIME, None))??, MAX_CASE_TIME))
}

/// Returns the differences of a run from the expected result of its case. `limit` is the time that the run had.
pub(in crate::commands::node) fn differences_of(case: &Case, run: &CaseRun, limit: Duration) -> Vec<String> {
    let result = match &run.end {
        CaseEnd::Refused(why) => return vec![why.clone()],
        CaseEnd::Overdue => return vec![format!("it does not end within {} s", limit.as_secs())],
        CaseEnd::Ended(result) => result,
    };
    let mut wrong = compare(&case.expect, result, &run.events);
    wrong.extend(unused_error(&run.script));
    wrong
}

/// Runs the node of a case for at most `limit` of real time. `probe` receives the measurements of its attempts.
pub(in crate::commands::node) async fn run(
    host: &Host,
    flow: &LoadedFlow,
    case: &Case,
    limit: Duration,
    probe: Option<Arc<Probe>>,
) -> Result<CaseRun, CliError> {
    let observer = Observer::new(&case.messages, None);
    let script = Arc::new(script(case, probe));
    let runner = match host.test_runner(flow, script.clone(), options(case, &observer)) {
        Ok(runner) => runner,
        Err(StartError::Input(error)) => {
            return Ok(CaseRun { end: CaseEnd::Refused(error.to_string()), events: Vec::new(), script });
        }
        Err(error) => return Err(error.into()),
    };
    runner.start_session();
    let hub = runner.hub();
    let sent = async {
        for (name, payload) in &case.emit {
            // A run that has ended earlier ignores the event.
            let _ = hub.emit(name, payload.clone()).await;
        }
    };
    let running = tokio::time::timeout(limit, async { tokio::join!(sent, runner.run()).1 }).await;
    let end = running.map_or(CaseEnd::Overdue, |result| CaseEnd::Ended(Box::new(result)));
    Ok(CaseRun { end, events: observer.events(), script })
}

/// Runs a case, drops the run after this number of events, and continues it from its store, as after the end of a process.
/// Returns the end of the run, which has at most `limit` of real time before the cut and again after it. The case sends no
/// events and no messages.
pub(in crate::commands::node) async fn run_with_cut(
    host: &Host,
    flow: &LoadedFlow,
    case: &Case,
    limit: Duration,
    after: usize,
) -> Result<CaseEnd, CliError> {
    let observer = Observer::new(&[], Some(after));
    let runner = host.test_runner(flow, Arc::new(script(case, None)), options(case, &observer))?;
    let resume = runner.continuation();
    let first = async {
        tokio::select! {
            biased;
            () = observer.cut() => None,
            result = runner.run() => Some(result),
        }
    };
    match tokio::time::timeout(limit, first).await {
        Err(_) => return Ok(CaseEnd::Overdue),
        Ok(Some(result)) => return Ok(CaseEnd::Ended(Box::new(result))),
        Ok(None) => {}
    }
    let runner = resume(RunOptions { without_events: true, by_hand: true, ..RunOptions::default() })
        .map_err(|error| CliError::internal("a run cannot be continued").because(&error))?;
    let running = tokio::time::timeout(limit, runner.run()).await;
    Ok(running.map_or(CaseEnd::Overdue, |result| CaseEnd::Ended(Box::new(result))))
}

/// Runs a case, and cancels the run after this number of events. Returns the end of the run, which has at most `limit` of
/// real time.
pub(in crate::commands::node) async fn run_with_cancel(
    host: &Host,
    flow: &LoadedFlow,
    case: &Case,
    limit: Duration,
    after: usize,
) -> Result<CaseEnd, CliError> {
    let observer = Observer::new(&[], Some(after));
    // No answer comes, and the run waits for one until it is cancelled.
    let case = Case { answer: None, ..case.clone() };
    let script = Arc::new(Fixtures { still: true, ..script(&case, None) });
    let options = RunOptions { wait_for_answers: true, ..options(&case, &observer) };
    let runner = host.test_runner(flow, script, options)?;
    runner.start_session();
    let hub = runner.hub();
    let cancel = async {
        observer.cut().await;
        // A run that has ended earlier is not cancelled.
        let _ = hub.abort().await;
    };
    let running = async {
        let mut run = pin!(runner.run());
        tokio::select! {
            result = &mut run => result,
            () = cancel => run.await,
        }
    };
    let end = tokio::time::timeout(limit, running).await;
    Ok(end.map_or(CaseEnd::Overdue, |result| CaseEnd::Ended(Box::new(result))))
}

/// Returns the options of the run of a case.
fn options(case: &Case, observer: &Arc<Observer>) -> RunOptions {
    let empty = || Json::object::<&str>([]);
    let input = alone::input(case.input.clone().unwrap_or_else(empty), case.config.clone().unwrap_or_else(empty));
    let answer = case.answer.iter().map(|answer| (alone::NODE_ID.to_owned(), answer_value(answer)));
    let kept = |(key, value): (&String, &Json)| Write { key: key.clone(), value: value.clone().into(), expected: None };
    RunOptions {
        run_id: Some(RUN_ID.into()),
        input,
        channels: vec![observer.clone()],
        answers: answer.collect(),
        wait_for_answers: !case.messages.is_empty(),
        writes: case.state.iter().map(kept).collect(),
        without_events: true,
        ..RunOptions::default()
    }
}

/// Returns the fixtures of a case.
fn script(case: &Case, probe: Option<Arc<Probe>>) -> Fixtures {
    let calls = case.calls.iter().map(ReplyFixture::as_fixture).collect();
    Fixtures {
        nodes: pass_fixtures(case),
        calls: Mutex::new(calls),
        still: !case.messages.is_empty(),
        begin: case.clock,
        seed: case.seed,
        probe,
        ..Fixtures::default()
    }
}

fn answer_value(answer: &Json) -> Json {
    answer.as_str().map_or_else(|| answer.clone(), answers::answer)
}

/// Returns the fixtures for the passes of the node's body. A pass for which the case has no result fails.
fn pass_fixtures(case: &Case) -> HashMap<String, NodeFixture> {
    let none = Failure::new("no_pass_given", "the case has no result for this pass of the body");
    let given = case.body.iter().flatten().enumerate();
    let address = |number: usize| format!("{}[{number}].{}", alone::NODE_ID, alone::PASS_ID);
    let passes = given.map(|(number, pass)| (address(number), pass.as_fixture()));
    passes.chain([(alone::PASS_ID.to_owned(), NodeFixture::Failure(none))]).collect()
}

fn compare(expect: &Expect, result: &RunResult, events: &[Json]) -> Vec<String> {
    let mut wrong = Vec::new();
    let failure = result.error.as_ref().map(|error| &error.failure);
    match (&expect.failure, failure) {
        (Some(expected), came) => wrong.extend(compare_failure(expected, came)),
        (None, Some(came)) if expect.pause.is_none() || expect.output.is_some() => {
            wrong.push(format!("it failed: {came}{}", details(came)));
        }
        (None, _) if result.status != RunStatus::Succeeded && expect.pause.is_none() => {
            wrong.push("it waits for an answer, event or message that the case does not give".into());
        }
        _ => {}
    }
    if let Some(expected) = &expect.output
        && result.status == RunStatus::Succeeded
    {
        let came = result.outputs.get("output").cloned().unwrap_or_default();
        wrong.extend(differences("output", expected, &came, None));
    }
    wrong.extend(expect.pause.as_deref().and_then(|expected| compare_pause(expected, events)));
    wrong.extend(missing_event(&expect.events, events));
    wrong
}

fn details(failure: &Failure) -> String {
    failure.details.as_ref().map_or_else(String::new, |details| format!(" {details}"))
}

fn compare_failure(expected: &Failing, came: Option<&Failure>) -> Vec<String> {
    let told = match expected {
        Failing::Code(code) => &ExpectedFailure { code: code.clone(), message: None, retryable: None, details: None },
        Failing::ExpectedFailure(told) => told,
    };
    let Some(came) = came else { return vec![format!("it did not fail; expected a failure with `{}`", told.code)] };
    let mut wrong = Vec::new();
    if *came.code != *told.code {
        wrong.push(format!("it failed with `{}`, not `{}`: {}", came.code, told.code, came.message));
    }
    if let Some(part) = told.message.as_ref().filter(|part| !came.message.contains(part.as_str())) {
        wrong.push(format!("the message is {:?}, which does not contain {part:?}", came.message));
    }
    if let Some(retryable) = told.retryable.filter(|retryable| *retryable != came.retryable) {
        wrong.push(format!("`retryable` is {}, not {retryable}", came.retryable));
    }
    let given = came.details.clone().unwrap_or_default();
    if let Some(part) = told.details.as_ref().filter(|part| !fits(part, &given)) {
        wrong.push(format!("the details are {}, which do not contain {}", shown(&given), shown(part)));
    }
    wrong
}

/// Compares the wakes of the first pause with the expected ones. Returns `None` if they are equal.
fn compare_pause(expected: &[String], events: &[Json]) -> Option<String> {
    let paused = events.iter().find(|event| event.get("type").and_then(Json::as_str) == Some("task:paused"));
    let Some(until) = paused.and_then(|event| event.get("until")) else {
        return Some(format!("it did not pause; expected a pause for {}", expected.join(", ")));
    };
    let expected = Json::array(expected.iter().map(|wake| Json::from(wake.as_str())));
    (*until != expected).then(|| format!("it pauses for {}, not {}", until.to_text(), expected.to_text()))
}

/// Searches the events for the expected ones in their order. Returns a sentence about the first expected event that
/// does not follow the ones before it. Returns `None` if all follow each other in order.
fn missing_event(expected: &[Json], events: &[Json]) -> Option<String> {
    let mut rest = events.iter();
    let lost = expected.iter().find(|expected| !rest.any(|event| fits(expected, event)))?;
    Some(format!("the event {} is missing at this position", shown(lost)))
}
