//! The memory that a run uses for input from outside, and the shared budget of the runs of a test.

use std::sync::Arc;

use flowcell_contract::{Json, Value, code};
use flowcell_flow::graph::FlowPolicy;

use super::{
    driving::{block, chain, world},
    graphs::{Plan, lower},
};
use crate::{
    FlowRunner, HubError, MemoryBudget, Pinned, RunCommand, RunOptions, RunStatus,
    decide::{Input, decide},
    fact::{AgentFact, TaskKey},
    limits::{MAX_INBOX_BYTES, MAX_KEPT_EVENT_BYTES, MAX_MESSAGE_ID_BYTES, MAX_REQUEST_BYTES},
    outstanding::{Outstanding, outstanding},
    ports::Pin,
    state::RunState,
};

#[test]
fn runs_of_a_world_with_a_budget_end_when_it_is_used_up() {
    for (budget, status) in [(1 << 20, RunStatus::Succeeded), (500, RunStatus::Failed)] {
        let scripted = lower(&chain(vec![Plan::Call("child"), Plan::Done]), FlowPolicy::default());
        let mut world = world(&scripted, Some(lower(&chain(vec![Plan::Done]), FlowPolicy::default())));
        world.budget = Some(Arc::new(MemoryBudget::new(budget)));
        let flow = Pinned { graph: Arc::new(scripted.graph), pin: Pin("planned".into()) };
        let result = block(FlowRunner::new(flow, Arc::new(world), RunOptions::default()).unwrap().run());
        assert_eq!(result.status, status, "{:?}", result.error);
        let code = result.error.as_ref().map(|error| error.failure.code.as_str());
        assert!(code.is_none_or(|code| code == code::RUN_TOO_LARGE), "{:?}", result.error);
    }
}

/// Returns a run with one running attempt, and a function that passes more input to the run.
fn begun() -> (RunState, TaskKey, impl FnMut(&mut RunState, Input) -> Result<(), HubError>) {
    let scripted = lower(&chain(vec![Plan::Hang]), FlowPolicy::default());
    let mut state = RunState::new(Arc::new(scripted.graph), FlowPolicy::default());
    let mut dice = super::readiness::Counter(1);
    let mut bring = move |state: &mut RunState, input: Input| decide(state, input, 0, &mut dice).map(drop);
    bring(&mut state, Input::Start { input: Json::object::<&str>([]), seed: 1, about: None }).unwrap();
    let task = outstanding(&state).into_iter().find_map(|outstanding| match outstanding {
        Outstanding::Attempt { task, .. } => Some(task),
        _ => None,
    });
    (state, task.unwrap(), bring)
}

/// Returns the largest value that a caller may send at a time, with a name of one letter.
fn large() -> Value {
    Value::from(Json::from("x".repeat(MAX_REQUEST_BYTES - 3)))
}

#[test]
fn named_events_are_kept_by_number_and_by_bytes() {
    let (mut state, _, mut bring) = begun();
    let mut emit = |payload: Value| bring(&mut state, Input::Command(RunCommand::Emit { name: "e".into(), payload }));
    let kept = (0..100).take_while(|_| emit(large()).is_ok()).count();
    assert_eq!(kept, MAX_KEPT_EVENT_BYTES / (MAX_REQUEST_BYTES));
    assert_eq!(emit(large()), Err(HubError::TooManyEvents));
}

#[test]
fn the_id_of_a_message_is_bounded() {
    let write = |id: usize| RunCommand::Write { to: "a".into(), message: Some("x".repeat(id)), value: Value::null() };
    assert!(!write(MAX_MESSAGE_ID_BYTES).is_too_large());
    assert!(write(MAX_MESSAGE_ID_BYTES + 1).is_too_large());
}

#[test]
fn an_inbox_is_full_by_number_and_by_bytes() {
    let (mut state, task, mut bring) = begun();
    for (mark, id) in [(1, "one"), (2, "two")] {
        let about = Json::object([("inbox", Json::object([("capacity", Json::from(1_000u64))]))]);
        let report = AgentFact::Opened { mark, id: id.into(), about };
        bring(&mut state, Input::AgentReport { task, attempt: (1, 0), report, before: Box::default() }).unwrap();
    }
    let mut write = |to: &str, value: Value| {
        bring(&mut state, Input::Command(RunCommand::Write { to: to.into(), message: None, value }))
    };
    let taken = (0..100).take_while(|index| write(["one", "two"][index % 2], large()).is_ok()).count();
    assert_eq!(taken, MAX_INBOX_BYTES / MAX_REQUEST_BYTES, "the agent runs of a task share it");
    assert_eq!(write("one", large()), Err(HubError::InboxFull));
    assert!(write("two", Value::null()).is_ok(), "a small one fits");
}
