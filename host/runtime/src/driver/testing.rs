//! Fixtures for the tests of the driver's parts.

use std::sync::Arc;

use flowcell_contract::Json;
use flowcell_flow::graph::{FlowPolicy, NodeIx};

use super::{Driver, entropy::SplitMix};
use crate::{
    decide::{Input, decide},
    fact::{ScopeId, TaskKey},
    ports::Pin,
    state::{RunState, Task},
    tests::{
        driving::{chain, world},
        graphs::{Plan, lower},
    },
    world::Pinned,
};

/// Returns the task of a node of the flow itself.
pub(super) fn task(node: u32) -> TaskKey {
    TaskKey { scope: ScopeId::ROOT, node: NodeIx(node) }
}

/// Returns a driver whose state has begun a chain of nodes. It has recorded and performed nothing, and the first
/// attempt runs.
pub(super) fn begun(plans: Vec<Plan>) -> Driver {
    let scripted = lower(&chain(plans), FlowPolicy::default());
    let world = Arc::new(world(&scripted, None));
    let flow = Pinned { graph: Arc::new(scripted.graph), pin: Pin("planned".into()) };
    let record = flow.record(FlowPolicy::default());
    let (mut driver, _) = Driver::new(&world, "run-1".into(), flow.graph, record);
    let start = Input::Start { input: Json::object::<&str>([]), seed: 1, about: None };
    decide(&mut driver.state, start, 10, &mut SplitMix(1)).unwrap();
    driver
}

/// Returns the state of a task of the flow itself.
pub(super) fn task_in(state: &mut RunState, node: usize) -> &mut Task {
    &mut state.scopes.get_mut(&ScopeId::ROOT).unwrap().tasks[node]
}
