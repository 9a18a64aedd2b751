//! Undos: a naive check of the facts of any run, and the order, the values and the ends of undos.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex},
};

use flowcell_contract::{Attempt, Calls, Json, NodeRunner, StepResult};
use flowcell_flow::graph::{FlowPolicy, Graph, On, Retry, RetryOn};
use futures_util::future::{self, BoxFuture};

use super::{
    crashes::{FlowMap, Story},
    driving::{block, chain, flow, world},
    graphs::{Plan, Planned, PlannedBody, lower},
};
use crate::{
    FlowRunner, OpenError, Pinned, Repeat, RunCommand, RunOptions, RunResult, RunStatus, World,
    fact::{Fact, PassOutcome, Resolution, RunEnd, ScopeId, TaskKey},
    ports::Pin,
};

/// Checks the undos in the facts of a run: a scope that fails undoes all of its succeeded tasks, one after another, the
/// last one first, and before its end.
pub(super) fn check<'f>(graph: &Graph, facts: impl IntoIterator<Item = &'f Fact>) {
    let mut owners: HashMap<ScopeId, TaskKey> = HashMap::new();
    let (mut done, mut begun, mut live) = (Vec::new(), HashSet::new(), HashMap::new());
    let is_within = |owners: &HashMap<ScopeId, TaskKey>, mut scope: ScopeId, within: ScopeId| loop {
        if scope == within {
            return true;
        }
        match owners.get(&scope) {
            Some(owner) => scope = owner.scope,
            None => return false,
        }
    };
    for fact in facts {
        match fact {
            Fact::PassStarted { scope, owner, .. } => _ = owners.insert(*scope, *owner),
            Fact::TaskSucceeded { task, .. } if graph.node(task.node).undo.is_some() => done.push(*task),
            Fact::UndosBegan { scope, .. } => assert!(begun.insert(*scope), "a scope begins twice to undo"),
            Fact::UndoStarted { scope, within, undone, undo, .. } => {
                assert!(begun.contains(within), "an undo without a failure");
                assert_eq!(live.insert(*within, *scope), None, "two undos at once");
                let last = done.iter().rposition(|task| is_within(&owners, task.scope, *within));
                assert_eq!(last.map(|last| done.remove(last)), Some(*undone), "undone in another order");
                assert_eq!(graph.node(undone.node).undo, Some(*undo));
            }
            Fact::UndoEnded { scope } => {
                let within = live.iter().find(|(_, live)| *live == scope).map(|(within, _)| *within).unwrap();
                live.remove(&within);
            }
            Fact::PassEnded { scope, outcome } => {
                let owner = graph.node(owners[scope].node);
                let undoes = owner.node_type.body.as_ref().is_some_and(|body| body.undoes);
                let failed = !matches!(outcome, PassOutcome::Done(_));
                let left = done.iter().any(|task| is_within(&owners, task.scope, *scope));
                assert!(!(live.contains_key(scope) || undoes && failed && left), "a pass ends before its undos");
                assert!(failed || !begun.contains(scope), "a pass succeeds after its undos");
            }
            Fact::RunEnded { end } => {
                let succeeded = matches!(**end, RunEnd::Succeeded { .. });
                assert!(succeeded || done.is_empty(), "a run ends before its undos: {done:?}");
                assert!(live.is_empty() && !(succeeded && begun.contains(&ScopeId::ROOT)));
            }
            _ => {}
        }
    }
}

/// Nodes that follow their plans, and the inputs of the attempts.
struct Given {
    plans: Vec<Plan>,
    inputs: Mutex<Vec<(String, Json)>>,
    /// The address of a node that fails for now.
    failing: Mutex<Option<&'static str>>,
}

impl NodeRunner for Given {
    fn run(&self, attempt: Attempt, _: Arc<dyn Calls>) -> BoxFuture<'static, StepResult> {
        let index: usize = attempt.node_id.as_str()[1..].parse().unwrap();
        let address = attempt.scope.address(&attempt.node_id);
        let fails = *self.failing.lock().unwrap() == Some(&address);
        self.inputs.lock().unwrap().push((address, attempt.input.json().clone()));
        match super::graphs::perform(
            if fails { &Plan::Fail } else { &self.plans[index] },
            attempt.attempt,
            attempt.woken.as_ref(),
            attempt.state.as_ref(),
        ) {
            Some(result) => Box::pin(future::ready(result)),
            None => Box::pin(future::pending()),
        }
    }
}

/// A flow with its store and its nodes.
struct Case {
    world: Arc<World>,
    flow: Pinned,
    given: Arc<Given>,
}

impl Case {
    fn new(body: &PlannedBody, policy: FlowPolicy) -> Case {
        Case::changed(body, policy, |_| {})
    }

    fn changed(body: &PlannedBody, policy: FlowPolicy, change: impl FnOnce(&mut Graph)) -> Case {
        let mut scripted = lower(body, policy);
        change(&mut scripted.graph);
        let mut world = world(&scripted, None);
        let given = Arc::new(Given { plans: scripted.plans, inputs: Mutex::default(), failing: Mutex::default() });
        world.runner = given.clone();
        let flow = Pinned { graph: Arc::new(scripted.graph), pin: Pin("planned".into()) };
        world.flows = Arc::new(FlowMap(HashMap::from([("planned".to_owned(), flow.graph.clone())])));
        Case { world: Arc::new(world), flow, given }
    }

    fn runner(&self) -> FlowRunner {
        let options = RunOptions { run_id: Some("run-1".into()), ..RunOptions::default() };
        FlowRunner::new(self.flow.clone(), self.world.clone(), options).unwrap()
    }

    fn run(&self) -> RunResult {
        block(self.runner().run())
    }

    fn resolve(&self, task: &str, resolution: Resolution) -> RunResult {
        let resume = || FlowRunner::resume(self.world.clone(), "run-1".into(), RunOptions::default()).unwrap();
        block(resume().ask(RunCommand::Resolve { task: task.into(), resolution })).unwrap();
        block(resume().run())
    }
}

fn run(body: &PlannedBody) -> RunResult {
    Case::new(body, FlowPolicy::default()).run()
}

/// Returns the addresses of the undone tasks, in the order of their undos.
fn undone(result: &RunResult) -> Vec<String> {
    let started = result.events.iter().filter(|event| event.kind == "undo:start");
    started.map(|event| event.data.get("undoes").and_then(Json::as_str).unwrap().to_owned()).collect()
}

fn owner(plan: Plan, body: PlannedBody) -> Planned {
    Planned { body: Some(body), ..Planned::new(plan) }
}

#[test]
fn a_failed_flow_undoes_its_tasks_in_reverse_order() {
    // n0 -> n1 -> n2, which fails. n3 undoes n0, n4 undoes n1, n5 would undo n2.
    let body = chain(vec![Plan::Done, Plan::Done, Plan::Fail]);
    let body = body.with_undo(0, Plan::Done).with_undo(1, Plan::FailTimes(1)).with_undo(2, Plan::Done);
    let result = run(&body);
    assert_eq!((result.status, undone(&result)), (RunStatus::Failed, vec!["n1".into(), "n0".into()]));
    let error = result.error.unwrap();
    assert_eq!((error.failure.code.as_str(), error.task.as_deref()), ("planned", Some("n2")));
    assert_eq!(error.failure.details.unwrap().to_text(), r#"{"undone":{"count":2,"tasks":["n1","n0"]}}"#);
    assert_eq!(result.outputs.to_text().matches("n3").count(), 0, "a node that undoes is no output");
    let last = result.events.iter().rev().map(|event| event.kind);
    assert_eq!(
        last.take(4).collect::<Vec<_>>(),
        ["harness:complete", "phase:failed", "undo:complete", "task:complete"]
    );
}

#[test]
fn a_succeeded_flow_and_an_expected_failure_undo_nothing() {
    let body = chain(vec![Plan::Done, Plan::Done]).with_undo(0, Plan::Done);
    let result = run(&body);
    assert_eq!((result.status, undone(&result).len()), (RunStatus::Succeeded, 0));
    // A node that failed under `continueOnError` has done nothing that could be undone.
    let mut body = chain(vec![Plan::Fail, Plan::Fail]).with_undo(0, Plan::Done);
    body.nodes[0].continue_on_error = true;
    let result = run(&body);
    assert_eq!((result.status, undone(&result).len()), (RunStatus::Failed, 0));
}

/// The passes of a body have ended when the flow fails. Each of their tasks is undone with its own values.
#[test]
fn the_tasks_of_ended_passes_are_undone_with_their_values() {
    // n0 owns n2, which n3 undoes; then n1 fails.
    let each = Plan::Each { items: 3, concurrency: 1, may_fail: 0 };
    let inner = chain(vec![Plan::Done]).with_undo(0, Plan::Done);
    let body = flow(vec![owner(each, inner), Planned::new(Plan::Fail)], vec![(0, 1, On::Success)]);
    let case = Case::new(&body, FlowPolicy::default());
    let result = case.run();
    assert_eq!(undone(&result), ["n0[2].n2", "n0[1].n2", "n0[0].n2"]);
    let inputs = case.given.inputs.lock().unwrap();
    for pass in 0..3 {
        let of = |address: &str| inputs.iter().find(|(at, _)| at == address).unwrap().1.clone();
        let (task, undo) = (of(&format!("n0[{pass}].n2")), of(&format!("n0[{pass}].n3")));
        let given = undo.get("undo").unwrap();
        assert_eq!(given.get("input"), Some(&task), "the input as it was given");
        assert_eq!(given.get("output").unwrap().to_text(), r#"{"done":true}"#);
        assert_eq!(given.get("task").unwrap().as_str(), Some(format!("n0[{pass}].n2").as_str()));
        assert_eq!(undo.get("output"), given.get("output"), "the id of the undone node is its output");
    }
}

/// A list whose later attempt does the same again has done it once: the calls have the same keys.
#[test]
fn what_a_retried_list_does_again_is_undone_once() {
    // n0 owns n1, which n3 undoes, and n2, which fails.
    let each = Plan::Each { items: 2, concurrency: 1, may_fail: 0 };
    let inner = chain(vec![Plan::Done, Plan::Fail]).with_undo(0, Plan::Done);
    let body = flow(vec![owner(each, inner)], vec![]);
    let case = Case::changed(&body, FlowPolicy::default(), |graph| {
        graph.nodes[0].policy.retry = Retry { max_attempts: 3, backoff_ms: 0, on: RetryOn::Any, ..Retry::default() };
    });
    let result = case.run();
    assert_eq!(undone(&result), ["n0[0].n1"]);
    assert_eq!(result.events.iter().filter(|event| event.kind == "pass:start").count(), 3);
}

/// A scope undoes its tasks before each next attempt. Those of a scope that succeeded are undone with the flow.
#[test]
fn each_attempt_of_a_scope_is_undone_before_the_next() {
    // n0 is a scope of n5, which n6 undoes, and is undone by n3. n1 is a scope of n7, which n9 undoes, and n8, which fails.
    // n4 undoes n2.
    let failing = chain(vec![Plan::Done, Plan::Fail]).with_undo(0, Plan::Done);
    let good = chain(vec![Plan::Done]).with_undo(0, Plan::Done);
    let nodes = vec![owner(Plan::Scope(1), good), owner(Plan::Scope(2), failing), Planned::new(Plan::Done)];
    let body = flow(nodes, vec![(0, 1, On::Success)]).with_undo(0, Plan::Done).with_undo(2, Plan::Done);
    let result = run(&body);
    let lines = result.events.iter().filter(|event| matches!(event.kind, "undo:start" | "task:retry"));
    let text = |event: &crate::Event, key: &str| event.data.get(key).and_then(Json::as_str).map(str::to_owned);
    let lines: Vec<_> = lines.map(|event| text(event, "undoes").or(text(event, "taskId")).unwrap()).collect();
    assert_eq!(lines, ["n1[0].n7", "n1", "n1[0].n7", "n0", "n0[0].n5", "n2"], "{:?}", result.error);
    let details = result.error.unwrap().failure.details.unwrap();
    assert_eq!(details.get("undone").unwrap().get("count").and_then(Json::as_u64), Some(3));
    let passes = result.events.iter().filter(|event| event.kind == "pass:complete");
    let listed =
        passes.filter_map(|event| event.data.get("error")?.get("details")?.get("undone")?.get("count")?.as_u64());
    assert_eq!(listed.collect::<Vec<_>>(), [1, 1], "each pass lists its own undos");
}

/// A cancel during the undos changes nothing, and the time limit of the flow does not end them.
#[test]
fn nothing_ends_undos_early() {
    let policy = FlowPolicy { total_timeout_ms: Some(1_000), ..FlowPolicy::default() };
    let body = chain(vec![Plan::Done, Plan::After(5_000)]).with_undo(0, Plan::After(100_000));
    let case = Case::new(&body, policy);
    let result = case.run();
    assert_eq!(result.error.as_ref().unwrap().failure.code, "total_timeout");
    assert_eq!((undone(&result), result.events.last().unwrap().ts), (vec!["n0".to_owned()], 101_000));
    // n2 undoes n0 and waits for an event.
    let body = chain(vec![Plan::Done, Plan::Hang]).with_undo(0, Plan::Event("go"));
    let case = Case::new(&body, FlowPolicy::default());
    let options = RunOptions { run_id: Some("run-1".into()), wait_for_answers: true, ..RunOptions::default() };
    let runner = FlowRunner::new(case.flow.clone(), case.world.clone(), options).unwrap();
    let hub = runner.start_session().hub();
    let (result, ()) = block(future::join(runner.run(), async {
        hub.abort().await.unwrap();
        hub.abort().await.unwrap();
        hub.emit("go", Json::Null).await.unwrap();
    }));
    assert_eq!((result.status, undone(&result)), (RunStatus::Cancelled, vec!["n0".to_owned()]));
}

/// The time limit of a scope stands still while its tasks are undone, and goes on with the next attempt.
#[test]
fn undos_are_outside_the_time_limit_of_their_scope() {
    let with_limit = |attempts: u32, inner: Vec<Plan>, limit: Option<u64>| {
        let inner = chain(inner).with_undo(0, Plan::After(5_000));
        let body = flow(vec![owner(Plan::Scope(attempts), inner)], vec![]);
        let case = Case::changed(&body, FlowPolicy::default(), |graph| {
            graph.nodes[0].policy.total_timeout_ms = limit;
            graph.nodes[0].policy.retry =
                Retry { max_attempts: attempts, backoff_ms: 0, on: RetryOn::Any, ..Retry::default() };
        });
        let result = case.run();
        let end = result.events.last().unwrap().ts;
        let failed = result.events.iter().rev().find(|event| event.kind == "task:failed").unwrap();
        let details = failed.data.get("error").and_then(|error| error.get("details"));
        let listed = details.and_then(|details| details.get("undone")?.get("count")?.as_u64());
        (result.error.clone().unwrap().failure.code, undone(&result).len(), end, listed)
    };
    let without = with_limit(1, vec![Plan::Done, Plan::Fail], None);
    assert_eq!(with_limit(1, vec![Plan::Done, Plan::Fail], Some(1_000)), without);
    assert_eq!((without.1, without.2), (1, 5_000));
    // 600 ms, the undo of 5 s, the 400 ms that are left, and another undo, which the failure of the limit lists.
    let (code, undos, end, listed) = with_limit(2, vec![Plan::Done, Plan::After(600), Plan::Fail], Some(1_000));
    assert_eq!((code.as_str(), undos, end, listed), ("total_timeout", 2, 11_000, Some(1)));
}

/// A failed undo waits for a person, who repeats it, records its output, or leaves the task as it is.
#[test]
fn a_person_decides_about_a_failed_undo() {
    let body = chain(vec![Plan::Done, Plan::Done, Plan::Fail]).with_undo(0, Plan::Done).with_undo(1, Plan::Fail);
    for (resolution, listed) in [
        (Resolution::Output(flowcell_contract::Value::null()), r#"{"undone":{"count":2,"tasks":["n1","n0"]}}"#),
        (Resolution::Fail("never mind".into()), r#"{"undone":{"count":2,"tasks":["n0"],"failed":["n1"]}}"#),
    ] {
        let case = Case::new(&body, FlowPolicy::default());
        let parked = case.run();
        assert_eq!(parked.status, RunStatus::NeedsAttention);
        let waiting: Vec<_> = parked.waiting.iter().map(|waiting| waiting.address()).collect();
        assert_eq!(waiting, ["n4"], "the undo of n1, and not yet that of n0");
        let again = case.resolve("n4", Resolution::Repeat);
        assert_eq!(again.status, RunStatus::NeedsAttention);
        let ended = case.resolve("n4", resolution);
        assert_eq!(ended.status, RunStatus::Failed);
        assert_eq!(ended.error.unwrap().failure.details.unwrap().to_text(), listed);
    }
}

/// What was undone is done anew: the calls of the next attempt have other keys, those of nodes that were not undone keep
/// theirs.
#[test]
fn calls_after_an_undo_are_other_calls() {
    // The scope n0 has n1, which n4 undoes, n2, and n3, which fails.
    let mut inner = chain(vec![Plan::InTurn(&["once"]), Plan::InTurn(&["once"]), Plan::Fail]);
    inner = inner.with_undo(0, Plan::InTurn(&["once"]));
    let mut story = Story::new(&flow(vec![owner(Plan::Scope(2), inner)], vec![]), 5, 2, false);
    assert_eq!(story.live(u64::MAX).unwrap().status, RunStatus::Failed);
    story.check();
    let keys = |node: &str| {
        let calls = story.told("call:start").into_iter();
        let of_node = calls.filter(|event| event.data.get("taskId").and_then(Json::as_str) == Some(node));
        of_node.map(|event| event.data.get("key").unwrap().to_text()).collect::<Vec<_>>()
    };
    let (done, kept, undos) = (keys("n1"), keys("n2"), keys("n4"));
    assert_eq!((done.len(), kept.len(), undos.len()), (2, 2, 2));
    assert!(done[0] != done[1] && undos[0] != undos[1] && kept[0] == kept[1], "{done:?} {kept:?} {undos:?}");
}

/// A run that repeats a part of another one does anew what the other one has undone.
#[test]
fn a_retry_does_anew_what_was_undone() {
    let body = chain(vec![Plan::Done, Plan::Done, Plan::Fail]).with_undo(1, Plan::Done);
    let case = Case::new(&body, FlowPolicy::default());
    case.run();
    case.given.inputs.lock().unwrap().clear();
    let repeat = Repeat { from: Some("n2".into()), ..Repeat::default() };
    let options = RunOptions { run_id: Some("run-2".into()), ..RunOptions::default() };
    block(FlowRunner::retry(case.world.clone(), &"run-1".into(), repeat, options).unwrap().run());
    let ran: Vec<_> = case.given.inputs.lock().unwrap().iter().map(|(at, _)| at.clone()).collect();
    assert_eq!(ran, ["n1", "n2", "n3"], "n0 keeps its output, n1 was undone");
}

/// A node that can be undone belongs to one run: a second run that would keep it too is refused, and names the first one.
/// If that one has failed and undone the node, a run that repeats it does the node anew.
#[test]
fn one_run_takes_over_what_can_be_undone() {
    let body = chain(vec![Plan::Done, Plan::Done, Plan::Done]).with_undo(1, Plan::Done);
    let case = Case::new(&body, FlowPolicy::default());
    let retry = |of: &str, from: &str, id: &str| {
        let repeat = Repeat { from: Some(from.into()), ..Repeat::default() };
        let options = RunOptions { run_id: Some(id.into()), ..RunOptions::default() };
        FlowRunner::retry(case.world.clone(), &of.into(), repeat, options)
    };
    assert_eq!(case.run().status, RunStatus::Succeeded);
    *case.given.failing.lock().unwrap() = Some("n2");
    let second = retry("run-1", "n2", "run-2").unwrap();
    // The second run is not in the store yet. It keeps others from taking over the node.
    assert!(matches!(retry("run-1", "n2", "run-3"), Err(OpenError::Driven(run)) if run == "run-1".into()));
    let second = block(second.run());
    *case.given.failing.lock().unwrap() = None;
    assert_eq!((second.status, undone(&second)), (RunStatus::Failed, vec!["n1".to_owned()]));
    // The same request again finds its run.
    assert!(!retry("run-1", "n2", "run-2").unwrap().is_new());
    let refused = retry("run-1", "n2", "run-3").err().unwrap().to_string();
    assert_eq!(
        refused,
        "the run `run-2`, which repeats a part of `run-1`, has taken over `n1` and undoes it if it fails; repeat `run-2`, \
         or begin at `n1`"
    );
    case.given.inputs.lock().unwrap().clear();
    block(retry("run-1", "n1", "run-4").unwrap().run());
    block(retry("run-2", "n2", "run-5").unwrap().run());
    let ran: Vec<_> = case.given.inputs.lock().unwrap().iter().map(|(at, _)| at.clone()).collect();
    assert_eq!(ran, ["n1", "n2", "n1", "n2"]);
}

/// A run that waits may still undo its nodes, so no other run takes them over.
#[test]
fn a_run_that_has_not_ended_keeps_what_can_be_undone() {
    let body = chain(vec![Plan::Done, Plan::Done, Plan::Fail]).with_undo(1, Plan::Fail);
    let case = Case::new(&body, FlowPolicy::default());
    assert_eq!(case.run().status, RunStatus::NeedsAttention, "the undo has failed");
    let retry = |from: &str| {
        let repeat = Repeat { from: Some(from.into()), ..Repeat::default() };
        FlowRunner::retry(case.world.clone(), &"run-1".into(), repeat, RunOptions::default())
    };
    assert_eq!(
        retry("n2").err().unwrap().to_string(),
        "the run `run-1` has not ended, and may undo `n1`, which this run would keep; end it, or begin at `n1`"
    );
    let (one, two) = (retry("n1"), retry("n1"));
    assert!(one.is_ok() && two.is_ok(), "nothing that can be undone is kept");
}
