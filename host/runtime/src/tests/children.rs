//! Runs that call runs wait for live permits, and end when there will be none.

use std::{
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use flowcell_contract::{Attempt, Calls, Digest, NodeRunner, StepResult, Tenant};
use flowcell_flow::graph::FlowPolicy;
use futures_util::{FutureExt, future, future::BoxFuture};

use super::{
    driving::{block, chain, world},
    graphs::{Plan, Planned, PlannedBody, lower},
};
use crate::{FlowRunner, LiveRuns, Pinned, RunOptions, RunResult, RunStatus, ports::Pin};

/// A runner that panics in the driver of the second run that it prepares.
struct Panics {
    runner: Arc<dyn NodeRunner>,
    prepared: AtomicUsize,
}

impl NodeRunner for Panics {
    fn run(&self, attempt: Attempt, calls: Arc<dyn Calls>) -> BoxFuture<'static, StepResult> {
        self.runner.run(attempt, calls)
    }

    fn prepare(&self, tenant: &Tenant, packs: Vec<Digest>) -> BoxFuture<'static, ()> {
        assert_eq!(self.prepared.fetch_add(1, Ordering::Relaxed), 0, "the second run");
        self.runner.prepare(tenant, packs)
    }
}

/// Returns a run that calls a flow this many times at once, with a limit of live runs.
fn calls(times: usize, child: &PlannedBody, most: u32, options: RunOptions) -> (FlowRunner, Arc<LiveRuns>) {
    calls_in(times, child, most, options, |runner| runner)
}

/// Does the same with another runner of nodes.
fn calls_in(
    times: usize,
    child: &PlannedBody,
    most: u32,
    options: RunOptions,
    runner: impl FnOnce(Arc<dyn NodeRunner>) -> Arc<dyn NodeRunner>,
) -> (FlowRunner, Arc<LiveRuns>) {
    let plans = (0..times).map(|_| Planned::new(Plan::Call("child"))).collect();
    let scripted = lower(&PlannedBody { nodes: plans, ..PlannedBody::default() }, FlowPolicy::default());
    let mut world = world(&scripted, Some(lower(child, FlowPolicy::default())));
    world.runner = runner(world.runner);
    world.live.set_limit(&Tenant::local(), Some(most));
    let live = world.live.clone();
    let options = RunOptions { run_id: Some("run-1".into()), ..options };
    let flow = Pinned { graph: Arc::new(scripted.graph), pin: Pin("planned".into()) };
    (FlowRunner::new(flow, Arc::new(world), options).unwrap(), live)
}

fn run(times: usize, child: &PlannedBody, most: u32) -> RunResult {
    let (runner, live) = calls(times, child, most, RunOptions::default());
    let result = block(runner.run());
    assert_eq!(live.all_children(), 0);
    result
}

#[test]
fn more_children_than_live_permits_take_turns() {
    for most in [2, 3, 100] {
        let result = run(20, &chain(vec![Plan::Done, Plan::Done]), most);
        assert_eq!(result.status, RunStatus::Succeeded, "{most}: {:?}", result.error);
    }
}

#[test]
fn a_child_that_can_get_no_permit_fails() {
    assert_eq!(run(2, &chain(vec![Plan::Done]), 1).status, RunStatus::Failed);
    // The runs with permits wait for a person. Without a failure, the run without a permit would wait forever.
    assert_eq!(run(3, &chain(vec![Plan::Ask]), 3).status, RunStatus::Failed);
    assert_eq!(run(3, &chain(vec![Plan::Ask]), 4).status, RunStatus::Parked);
}

#[test]
fn a_caller_panics_if_the_driver_of_a_called_run_panics() {
    let panics = |runner| Arc::new(Panics { runner, prepared: AtomicUsize::new(0) }) as Arc<dyn NodeRunner>;
    let (runner, live) = calls_in(2, &chain(vec![Plan::Done]), 9, RunOptions::default(), panics);
    let ended = block(AssertUnwindSafe(runner.run()).catch_unwind());
    assert!(ended.is_err(), "{:?}", ended.map(|result| result.status));
    block(async {
        while live.all_children() > 0 {
            tokio::task::yield_now().await;
        }
    });
}

#[test]
fn a_run_with_children_that_wait_for_permits_is_cancelled_at_once() {
    let options = RunOptions { wait_for_answers: true, ..RunOptions::default() };
    let (runner, live) = calls(9, &chain(vec![Plan::Hang]), 3, options);
    let hub = runner.start_session().hub();
    let (result, cancelled) = block(future::join(runner.run(), hub.abort()));
    assert_eq!((result.status, cancelled), (RunStatus::Cancelled, Ok(())));
    block(async {
        while live.all_children() > 0 {
            tokio::task::yield_now().await;
        }
    });
}
