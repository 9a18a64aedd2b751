//! The driver with scripted nodes under virtual time: the published events, in order.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    task::Poll,
};

use flowcell_contract::{Attempt, Calls, Failure, Json, NodeRunner, StepResult};
use flowcell_flow::graph::{FlowPolicy, Graph, Join, On};
use futures_util::future::{self, BoxFuture};

use super::graphs::{Plan, Planned, PlannedBody, Scripted, lower, perform};
use crate::{
    Channel, Closed, Event, FlowRunner, Flows, Hub, HubError, NoFlows, Pinned, RunOptions, RunResult, RunStatus, World,
    decide::{Input, decide},
    fact::RunEnd,
    outstanding::{Outstanding, outstanding},
    ports::{Pin, Timers},
    state::RunState,
};

/// Time that passes only when nothing else can happen.
#[derive(Clone, Default)]
pub(super) struct VirtualTimers(pub(super) Arc<AtomicU64>);

impl Timers for VirtualTimers {
    fn now(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn wait(&self, due: u64) -> BoxFuture<'static, ()> {
        let clock = self.0.clone();
        // Long timers wait longer, so that work in progress can end first.
        let mut patience = if due.saturating_sub(self.now()) < 1_000 { 16 } else { 2_000 };
        Box::pin(future::poll_fn(move |context| {
            if patience > 0 {
                patience -= 1;
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            clock.fetch_max(due, Ordering::Relaxed);
            Poll::Ready(())
        }))
    }
}

struct PlanRunner(HashMap<String, Vec<Plan>>);

impl NodeRunner for PlanRunner {
    fn run(&self, attempt: Attempt, _calls: Arc<dyn Calls>) -> BoxFuture<'static, StepResult> {
        let index: usize = attempt.node_id.as_str()[1..].parse().unwrap();
        let plan = &self.0[&*attempt.flow][index];
        match perform(plan, attempt.attempt, attempt.woken.as_ref(), attempt.state.as_ref()) {
            Some(result) => Box::pin(future::ready(result)),
            None => Box::pin(future::pending()),
        }
    }
}

pub(super) struct OneFlow(pub(super) Arc<Graph>);

impl Flows for OneFlow {
    fn resolve(&self, name: &str, _: &Pin) -> Result<Pinned, Failure> {
        let pin = Pin(name.into());
        Ok(Pinned { graph: self.pinned(&pin)?, pin })
    }

    fn pinned(&self, pin: &Pin) -> Result<Arc<Graph>, Failure> {
        if pin.0 == self.0.name { Ok(self.0.clone()) } else { NoFlows.pinned(pin) }
    }
}

pub(super) fn flow(nodes: Vec<Planned>, edges: Vec<(usize, usize, On)>) -> PlannedBody {
    PlannedBody { nodes, edges, ..PlannedBody::default() }
}

pub(crate) fn chain(plans: Vec<Plan>) -> PlannedBody {
    let edges = (1..plans.len()).map(|to| (to - 1, to, On::Success)).collect();
    flow(plans.into_iter().map(Planned::new).collect(), edges)
}

pub(crate) fn world(main: &Scripted, child: Option<Scripted>) -> World {
    let mut plans = HashMap::from([("planned".to_owned(), main.plans.clone())]);
    let mut flows: Arc<dyn Flows> = Arc::new(NoFlows);
    if let Some(mut child) = child {
        child.graph.name = "child".into();
        plans.insert("child".into(), child.plans);
        flows = Arc::new(OneFlow(Arc::new(child.graph)));
    }
    let mut world = World::in_memory(Arc::new(PlanRunner(plans)), flows);
    world.timers = Arc::new(VirtualTimers::default());
    world
}

fn start(main: &PlannedBody, child: Option<&PlannedBody>, policy: FlowPolicy, options: RunOptions) -> FlowRunner {
    let child = child.map(|child| lower(child, FlowPolicy::default()));
    let scripted = lower(main, policy);
    let world = world(&scripted, child);
    let options = RunOptions { run_id: Some("run-1".into()), ..options };
    let flow = Pinned { graph: Arc::new(scripted.graph), pin: Pin("planned".into()) };
    FlowRunner::new(flow, Arc::new(world), options).unwrap()
}

pub(crate) fn block<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

fn run(main: &PlannedBody, options: RunOptions) -> RunResult {
    block(start(main, None, FlowPolicy::default(), options).run())
}

/// Returns the events as lines: time, type and subject, without the events of readiness.
fn event_lines(result: &RunResult) -> Vec<String> {
    let boring = ["task:ready", "task:woken", "task:due", "phase:start", "phase:complete", "phase:failed"];
    let interesting = result.events.iter().filter(|event| !boring.contains(&event.kind));
    interesting.map(line).collect()
}

fn line(event: &Event) -> String {
    let text = |key: &str| event.data.get(key).map(|value| value.as_str().map_or(value.to_text(), str::to_owned));
    let about = match (text("from"), text("to")) {
        (Some(from), Some(to)) => format!("{from}->{to}"),
        _ => text("taskId").unwrap_or_default(),
    };
    let scope = text("scope").map(|scope| format!(" in {scope}")).unwrap_or_default();
    let error = event.data.get("error").and_then(|error| error.get("code")?.as_str()).map(|code| format!(" {code}"));
    format!("{} {} {about}{scope}{}", event.ts, event.kind, error.unwrap_or_default()).replace("  ", " ").trim().into()
}

#[test]
fn a_chain_publishes_its_events_in_order() {
    let result = run(&chain(vec![Plan::Done, Plan::Done]), RunOptions::default());
    let expected = [
        "0 harness:start",
        "0 task:start n0",
        "0 task:complete n0",
        "0 edge:fired n0->n1",
        "0 task:start n1",
        "0 task:complete n1",
        "0 harness:complete",
    ];
    assert_eq!(event_lines(&result), expected);
    assert_eq!(result.status, RunStatus::Succeeded);
    assert_eq!(result.outputs.to_text(), r#"{"n0":{"done":true},"n1":{"done":true}}"#);
    let seqs: Vec<_> = result.events.iter().map(|event| event.seq).collect();
    assert_eq!(seqs, (0..result.events.len() as u64).collect::<Vec<_>>(), "seq is dense");
}

#[test]
fn a_failure_is_tried_again_and_then_succeeds() {
    let result = run(&chain(vec![Plan::FailTimes(2)]), RunOptions::default());
    let kinds: Vec<_> = result.events.iter().map(|event| event.kind).filter(|kind| kind.starts_with("task:")).collect();
    let again = ["task:start", "task:retry", "task:due"];
    let expected = [&["task:ready"][..], &again, &again, &["task:start", "task:complete"]].concat();
    assert_eq!(kinds, expected);
    let delays: Vec<_> = result.events.iter().filter_map(|event| event.data.get("delayMs")?.as_u64()).collect();
    assert!(delays[0] <= 500 && delays[1] <= 1_000, "delays are within their bounds: {delays:?}");
}

#[test]
fn an_attempt_that_hangs_times_out_and_its_neighbour_goes_on() {
    let mut body = flow(vec![Planned::new(Plan::Hang), Planned::new(Plan::Done)], vec![]);
    body.nodes[0].continue_on_error = true;
    let result = run(&body, RunOptions::default());
    let expected = [
        "0 harness:start",
        "0 task:start n0",
        "0 task:start n1",
        "0 task:complete n1",
        "300000 task:failed n0 timeout",
        "300000 harness:complete",
    ];
    assert_eq!(event_lines(&result), expected);
}

#[test]
fn fail_fast_cancels_the_running_tasks() {
    let body = flow(vec![Planned::new(Plan::Hang), Planned::new(Plan::Fail)], vec![]);
    let result = run(&body, RunOptions::default());
    assert_eq!(result.status, RunStatus::Failed);
    assert_eq!(result.error.unwrap().task.as_deref(), Some("n1"));
    let last: Vec<_> = result.events.iter().map(|event| event.kind).rev().take(3).collect();
    assert_eq!(last, ["harness:complete", "phase:failed", "task:cancelled"]);
}

#[test]
fn the_flow_has_a_total_timeout() {
    let policy = FlowPolicy { total_timeout_ms: Some(1_000), ..FlowPolicy::default() };
    let result = block(start(&chain(vec![Plan::After(5_000)]), None, policy, RunOptions::default()).run());
    assert_eq!(result.status, RunStatus::Failed);
    assert_eq!(result.error.unwrap().failure.code, "total_timeout");
    assert_eq!(result.events.last().unwrap().ts, 1_000);
}

#[test]
fn a_body_runs_once_per_item_within_its_concurrency() {
    let mut owner = Planned::new(Plan::Each { items: 3, concurrency: 2, may_fail: 0 });
    owner.body = Some(chain(vec![Plan::Done]));
    let result = run(&flow(vec![owner], vec![]), RunOptions::default());
    let passes: Vec<_> = event_lines(&result).into_iter().filter(|line| line.contains("pass:")).collect();
    let expected = [
        "0 pass:start in n0[0]",
        "0 pass:start in n0[1]",
        "0 pass:complete in n0[0]",
        "0 pass:start in n0[2]",
        "0 pass:complete in n0[1]",
        "0 pass:complete in n0[2]",
    ];
    assert_eq!(passes, expected);
    assert_eq!(result.status, RunStatus::Succeeded);
}

#[test]
fn a_question_parks_the_run_unless_its_answer_was_given_before() {
    let body = chain(vec![Plan::Ask]);
    let parked = run(&body, RunOptions::default());
    assert_eq!(parked.status, RunStatus::Parked);
    assert_eq!(parked.waiting.iter().map(|waiting| waiting.address()).collect::<Vec<_>>(), ["n0"]);
    let yes = Json::object([("content", Json::from("yes"))]);
    let options = RunOptions { answers: HashMap::from([("n0".to_owned(), yes)]), ..RunOptions::default() };
    assert_eq!(run(&body, options).status, RunStatus::Succeeded);
}

#[test]
fn the_hub_refuses_commands_that_do_not_fit_the_run() {
    let options = RunOptions { wait_for_answers: true, ..RunOptions::default() };
    let runner = start(&chain(vec![Plan::Ask, Plan::Event("go")]), None, FlowPolicy::default(), options);
    let hub = runner.hub();
    let reply = |content: &str| Json::object([("content", Json::from(content))]);
    block(async move {
        assert_eq!(hub.send(Json::Null).await, Err(HubError::SessionNotStarted));
        runner.start_session();
        let talk = async {
            hub.emit("go", Json::from("early")).await.unwrap();
            while hub.reply("nobody", reply("yes")).await != Err(HubError::NotOpen(Closed::NoNode)) {}
            let refused = hub.reply("n0", reply("perhaps")).await;
            assert_eq!(refused, Err(HubError::AnswerRefused("the answer must be one of: yes, no".into())));
            hub.reply("n0", reply("yes")).await.unwrap();
        };
        let (result, ()) = future::join(runner.run(), talk).await;
        assert_eq!(result.status, RunStatus::Succeeded);
        assert!(result.events.iter().any(|event| event.kind == "event:taken"), "the early event was kept");
        assert_eq!(hub.send(Json::Null).await, Err(HubError::RunEnded));
    });
}

#[test]
fn abort_cancels_bodies_and_children() {
    let mut owner = Planned::new(Plan::Loop(1));
    owner.body = Some(chain(vec![Plan::Hang]));
    let body = flow(vec![owner, Planned::new(Plan::Call("child"))], vec![]);
    let options = RunOptions { wait_for_answers: true, ..RunOptions::default() };
    let child = chain(vec![Plan::Ask]);
    let runner = start(&body, Some(&child), FlowPolicy::default(), options);
    runner.start_session();
    let hub = runner.hub();
    let (result, aborted) = block(async { future::join(runner.run(), hub.abort()).await });
    assert_eq!((result.status, aborted), (RunStatus::Cancelled, Ok(())));
}

#[test]
fn a_child_flow_asks_through_its_parent() {
    let body = chain(vec![Plan::Call("child")]);
    let child = chain(vec![Plan::Done, Plan::Ask]);
    let parked = block(start(&body, Some(&child), FlowPolicy::default(), RunOptions::default()).run());
    assert_eq!(parked.waiting.iter().map(|waiting| waiting.address()).collect::<Vec<_>>(), ["n0/n1"]);
    let yes = Json::object([("content", Json::from("yes"))]);
    let options = RunOptions { answers: HashMap::from([("n0/n1".to_owned(), yes)]), ..RunOptions::default() };
    let result = block(start(&body, Some(&child), FlowPolicy::default(), options).run());
    assert_eq!(result.status, RunStatus::Succeeded);
}

#[test]
fn a_missing_flow_fails_its_caller() {
    let result =
        block(start(&chain(vec![Plan::Call("nowhere")]), None, FlowPolicy::default(), RunOptions::default()).run());
    assert_eq!(result.error.unwrap().failure.code, "pass_failed");
}

#[test]
fn an_any_join_opens_once() {
    let mut body = chain(vec![Plan::Done, Plan::Done]);
    body.nodes.push(Planned { join: Join::Any, ..Planned::new(Plan::Done) });
    body.edges = vec![(0, 2, On::Success), (1, 2, On::Success)];
    let result = run(&body, RunOptions::default());
    let starts = event_lines(&result).iter().filter(|line| line.contains("task:start n2")).count();
    assert_eq!(starts, 1);
}

#[derive(Default)]
struct Recorder(Mutex<Vec<String>>);

impl Channel for Recorder {
    fn on_start(&self, hub: &Hub) {
        self.0.lock().unwrap().push(format!("start {}", hub.run_id()));
    }

    fn on_event(&self, event: &Event) {
        self.0.lock().unwrap().push(event.kind.to_owned());
        assert_ne!(event.kind, "task:complete", "a channel's panic is its own");
    }

    fn on_complete(&self, result: &RunResult) {
        self.0.lock().unwrap().push(format!("complete {:?}", result.status));
    }
}

#[test]
fn a_channel_gets_all_events_and_its_panics_harm_no_run() {
    let recorder = Arc::new(Recorder::default());
    let options = RunOptions { channels: vec![recorder.clone()], ..RunOptions::default() };
    let result = run(&chain(vec![Plan::Done]), options);
    assert_eq!(result.status, RunStatus::Succeeded);
    let seen = recorder.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
    assert_eq!((seen[0].as_str(), seen[1].as_str()), ("start run-1", "harness:start"));
    assert_eq!(seen.last().map(String::as_str), Some("complete Succeeded"));
}

#[test]
fn a_run_with_too_many_events_is_ended() {
    let (state, failure) = ended_by(|state| state.max_events = 50);
    assert!(failure.message.contains("more than 50 events; move parts into other flows"), "{failure}");
    assert!(state.events < 80, "{}", state.events);
}

#[test]
fn a_run_with_too_large_events_is_ended() {
    let (state, failure) = ended_by(|state| state.max_bytes = 6 << 10);
    assert!(failure.message.contains("pass large values as files"), "{failure}");
    assert!(state.bytes > 6 << 10 && state.bytes < 9 << 10, "{}", state.bytes);
    assert!(state.events < 200, "{}", state.events);
}

/// A list of ten million items is never unfolded. Few passes are live at a time, and the run ends at its limit of
/// events.
#[test]
fn y9_a_fan_out_over_ten_million_items_ends_and_stays_small() {
    const CONCURRENCY: u32 = 8;
    let (mut scopes, mut queue) = (0, 0);
    let look = |state: &RunState| {
        scopes = scopes.max(state.scopes.len());
        queue = queue.max(state.queue.len());
    };
    let (state, failure) = ended_with(10_000_000, CONCURRENCY, |_| {}, look);
    assert!(failure.message.contains("more than 5000000 events"), "{failure}");
    assert!(state.events < 5_000_100, "{}", state.events);
    assert!(scopes <= CONCURRENCY as usize + 1 && queue <= CONCURRENCY as usize, "{scopes} scopes, {queue} queued");
}

/// Returns a run that meets a limit, and the failure that ends it.
fn ended_by(limit: impl FnOnce(&mut RunState)) -> (RunState, flowcell_contract::Failure) {
    ended_with(100, 1, limit, |_| {})
}

/// Runs a fan-out over this many items until the run meets a limit. `limit` sets the limit. `look` is called with the
/// state of the run after each answer.
fn ended_with(
    items: u32,
    concurrency: u32,
    limit: impl FnOnce(&mut RunState),
    mut look: impl FnMut(&RunState),
) -> (RunState, flowcell_contract::Failure) {
    let mut owner = Planned::new(Plan::Each { items, concurrency, may_fail: 0 });
    owner.body = Some(chain(vec![Plan::Done]));
    let scripted = lower(&flow(vec![owner], vec![]), FlowPolicy::default());
    let mut state = RunState::new(Arc::new(scripted.graph), FlowPolicy::default());
    limit(&mut state);
    let mut dice = super::readiness::Counter(1);
    let input = Json::object::<&str>([]);
    decide(&mut state, Input::Start { input, seed: 1, about: None }, 0, &mut dice).unwrap();
    while state.end().is_none() {
        let running = outstanding(&state).into_iter().find_map(|outstanding| match outstanding {
            Outstanding::Attempt { task, attempt, resumes } => Some((task, (attempt, resumes))),
            _ => None,
        });
        let (task, attempt) = running.unwrap();
        let (node, details) = (task.node.0 as usize, state.task(task).details.as_deref());
        let woken = details.and_then(|details| details.woken.clone());
        let result = perform(&scripted.plans[node], attempt.0, woken.as_ref(), None).unwrap();
        decide(
            &mut state,
            Input::Answered { task, attempt, result, writes: vec![], heard: Box::default() },
            0,
            &mut dice,
        )
        .unwrap();
        look(&state);
    }
    let Some(RunEnd::Failed { failure, .. }) = state.end().cloned() else { panic!("{:?}", state.end()) };
    assert_eq!(failure.code, "run_too_large");
    (state, failure)
}

#[test]
fn input_from_people_has_a_limit() {
    let options = RunOptions { wait_for_answers: true, ..RunOptions::default() };
    let runner = start(&chain(vec![Plan::Event("go")]), None, FlowPolicy::default(), options);
    let hub = runner.start_session().hub();
    let large = Json::from("x".repeat(crate::limits::MAX_REQUEST_BYTES));
    let sending = async {
        let refused = hub.emit("go", large).await;
        hub.emit("go", Json::Null).await.unwrap();
        refused
    };
    let (result, refused) = block(future::join(runner.run(), sending));
    assert_eq!((result.status, refused), (RunStatus::Succeeded, Err(HubError::TooLarge)));
}

#[test]
fn an_agent_receives_every_message_once_despite_crashes() {
    for seed in 0..2_000 * u64::from(super::readiness::scale()) {
        let flow = PlannedBody { nodes: vec![Planned::new(Plan::Agent)], ..PlannedBody::default() };
        super::crashes::run_story(&flow, seed, 1 + (seed % 2) as u32, false);
    }
}
