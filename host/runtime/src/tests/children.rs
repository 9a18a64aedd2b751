//! Runs that call runs wait for live permits, and end when there will be none.

use std::sync::Arc;

use flowcell_contract::Tenant;
use flowcell_flow::graph::FlowPolicy;
use futures_util::future;

use super::{
    driving::{block, chain, world},
    graphs::{Plan, Planned, PlannedBody, lower},
};
use crate::{FlowRunner, LiveRuns, Pinned, RunOptions, RunResult, RunStatus, ports::Pin};

/// Returns a run that calls a flow this many times at once, with a limit of live runs.
fn calls(times: usize, child: &PlannedBody, most: u32, options: RunOptions) -> (FlowRunner, Arc<LiveRuns>) {
    let plans = (0..times).map(|_| Planned::new(Plan::Call("child"))).collect();
    let scripted = lower(&PlannedBody { nodes: plans, ..PlannedBody::default() }, FlowPolicy::default());
    let world = world(&scripted, Some(lower(child, FlowPolicy::default())));
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
