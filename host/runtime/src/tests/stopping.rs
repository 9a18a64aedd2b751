//! A driver that stops before its process ends: nothing that this end causes becomes a fact of the run.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use flowcell_contract::{
    Admission, Attempt, Call, Caller, Calls, Capability, Effect, Failure, Json, NodeRunner, Outgoing, Step, StepResult,
    Value, code,
};
use flowcell_flow::graph::FlowPolicy;
use futures_util::future::{self, BoxFuture};
use tokio::sync::Notify;

use super::{
    driving::{OneFlow, VirtualTimers, block, chain},
    graphs::{Plan, lower},
};
use crate::{FlowRunner, Pinned, RunOptions, RunResult, RunStatus, World, ports::Pin};

/// A node that makes one call, whose function is the effect.
struct OneCall(&'static str);

impl NodeRunner for OneCall {
    fn run(&self, _attempt: Attempt, calls: Arc<dyn Calls>) -> BoxFuture<'static, StepResult> {
        let call = Call { interface: "slow".into(), function: self.0.into(), args: Value::null() };
        Box::pin(async move { calls.call(call).await.map(Step::Done) })
    }
}

/// A capability whose first call has no end. If the call is dropped, whoever shares its connection sees it break.
#[derive(Default)]
struct Slow {
    keys: Mutex<Vec<Arc<str>>>,
    left: Notify,
}

impl Capability for Slow {
    fn admit(&self, call: &Call, _: &Caller) -> Result<Admission, Failure> {
        let effect = if &*call.function == "once" { Effect::Once } else { Effect::Idempotent };
        Ok(Admission::new(effect, Json::Null))
    }

    fn perform(&self, outgoing: Outgoing) -> BoxFuture<'static, Result<Value, Failure>> {
        let mut keys = self.keys.lock().unwrap();
        keys.push(outgoing.key);
        match keys.len() {
            1 => {
                self.left.notify_one();
                Box::pin(future::pending())
            }
            _ => Box::pin(future::ready(Ok(Value::null()))),
        }
    }
}

struct Stopping {
    slow: Arc<Slow>,
    world: Arc<World>,
    flow: Pinned,
}

impl Stopping {
    fn new(function: &'static str, policy: FlowPolicy) -> Stopping {
        let slow = Arc::new(Slow::default());
        let graph = Arc::new(lower(&chain(vec![Plan::Done]), policy).graph);
        let mut world = World::in_memory(Arc::new(OneCall(function)), Arc::new(OneFlow(graph.clone())));
        world.timers = Arc::new(VirtualTimers::default());
        world.capabilities = Arc::new(HashMap::from([("slow".into(), slow.clone() as Arc<dyn Capability>)]));
        let flow = Pinned { graph, pin: Pin("planned".into()) };
        Stopping { slow, world: Arc::new(world), flow }
    }

    /// Drives the run until its call has left, and stops the driver.
    fn stop(&self) -> RunResult {
        let options = RunOptions { run_id: Some("run-1".into()), ..RunOptions::default() };
        let runner = FlowRunner::new(self.flow.clone(), self.world.clone(), options).unwrap();
        let hub = runner.hub();
        let stop = async {
            self.slow.left.notified().await;
            hub.stop().await;
        };
        block(async { tokio::join!(runner.run(), stop).0 })
    }

    fn resume(&self) -> RunResult {
        let runner = FlowRunner::resume(self.world.clone(), "run-1".into(), RunOptions::default()).unwrap();
        block(runner.run())
    }
}

fn kinds(result: &RunResult) -> Vec<&str> {
    let boring = ["phase:start", "phase:complete", "task:ready"];
    result.events.iter().map(|event| event.kind).filter(|kind| !boring.contains(kind)).collect()
}

#[test]
fn a_call_that_is_cut_has_no_end_and_is_made_again_with_its_key() {
    let run = Stopping::new("again", FlowPolicy::default());
    let stopped = run.stop();
    assert_eq!(stopped.status, RunStatus::Parked);
    assert_eq!(kinds(&stopped), ["harness:start", "task:start", "call:start", "harness:parked"]);
    let parked = stopped.events.last().unwrap();
    assert_eq!(parked.data.get("due").and_then(Json::as_u64), Some(parked.ts), "another process resumes it at once");
    let resumed = run.resume();
    assert_eq!(resumed.status, RunStatus::Succeeded, "{:?}", resumed.error);
    let keys = run.slow.keys.lock().unwrap();
    assert!(keys.len() == 2 && keys[0] == keys[1], "{keys:?}");
}

#[test]
fn a_call_that_is_cut_and_must_not_be_repeated_waits_for_a_person() {
    let run = Stopping::new("once", FlowPolicy::default());
    assert_eq!(run.stop().status, RunStatus::Parked);
    let resumed = run.resume();
    assert_eq!(resumed.status, RunStatus::NeedsAttention, "{:?}", kinds(&resumed));
    assert!(resumed.events.iter().any(|event| event.data.to_text().contains(code::AMBIGUOUS)));
    assert_eq!(run.slow.keys.lock().unwrap().len(), 1);
}

#[test]
fn a_timer_that_is_due_while_the_driver_stops_is_left_to_the_next_process() {
    // Virtual time reaches a short timer before the end of the grace period.
    let run = Stopping::new("again", FlowPolicy { total_timeout_ms: Some(900), ..FlowPolicy::default() });
    let stopped = run.stop();
    assert_eq!(stopped.status, RunStatus::Parked, "{:?}", stopped.error);
    assert_eq!(kinds(&stopped), ["harness:start", "task:start", "call:start", "harness:parked"]);
}
