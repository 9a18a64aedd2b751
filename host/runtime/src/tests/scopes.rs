//! Nodes that own a body and are tried again: the passes of a later attempt.

use std::sync::Arc;

use flowcell_contract::{RunId, Tenant};
use flowcell_flow::graph::FlowPolicy;

use super::{
    crashes::Story,
    driving::{block, chain, flow, world},
    graphs::{Plan, Planned, PlannedBody, lower},
};
use crate::{FlowRunner, Pinned, RunOptions, RunStatus, ports::Pin};

/// Returns a flow of one scope with this body, which is tried at most this often.
fn scope(attempts: u32, body: PlannedBody) -> PlannedBody {
    flow(vec![Planned { body: Some(body), ..Planned::new(Plan::Scope(attempts)) }], vec![])
}

/// A flow that a body calls is called again by the next attempt. The called runs have different ids, so the next attempt
/// does not get the failure of the one before.
#[test]
fn a_later_attempt_calls_flows_anew() {
    let scripted = lower(&scope(3, chain(vec![Plan::Call("child")])), FlowPolicy::default());
    let world = Arc::new(world(&scripted, Some(lower(&chain(vec![Plan::Fail]), FlowPolicy::default()))));
    let options = RunOptions { run_id: Some("run-1".into()), ..RunOptions::default() };
    let flow = Pinned { graph: Arc::new(scripted.graph), pin: Pin("planned".into()) };
    let result = block(FlowRunner::new(flow, world.clone(), options).unwrap().run());
    assert_eq!(result.status, RunStatus::Failed);
    let mut children = world.journal.children_of(&Tenant::local(), &"run-1".into()).unwrap();
    children.sort_by_key(RunId::to_string);
    assert_eq!(children, ["run-1.n0[0].n1.1", "run-1.n0[0].n1.1~2", "run-1.n0[0].n1.1~3"].map(RunId::from));
}

/// Calls of a later attempt have the keys of the attempt before. The server of a call sees a repetition, and a call that
/// must not be made twice gets the recorded reply.
#[test]
fn a_later_attempt_repeats_no_effect() {
    let inner = chain(vec![Plan::InTurn(&["once", "once", "idempotent"]), Plan::Fail]);
    // The reply is kept also if the failing owner is inside of the one with retries.
    for body in [inner.clone(), scope(1, inner.clone()), scope(2, inner)] {
        let mut story = Story::new(&scope(2, body), 3, 2, false);
        let result = story.live(u64::MAX).unwrap();
        assert_eq!(result.status, RunStatus::Failed);
        story.check();
        let made = story.told("call:start");
        let keys: Vec<_> = made.iter().map(|event| event.data.get("key").unwrap().to_text()).collect();
        let (first, later) = keys.split_at(3);
        assert!(!later.is_empty() && later.chunks(3).all(|attempt| attempt == first), "{keys:?}");
    }
}
