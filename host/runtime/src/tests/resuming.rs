//! The conditions under which a run is resumed or stays parked.

use std::sync::Arc;

use flowcell_contract::{Json, Step, Value};
use flowcell_flow::graph::FlowPolicy;

use super::{
    graphs::{Plan, Planned, PlannedBody, lower},
    readiness::Counter,
};
use crate::{
    decide::{Input, decide},
    fact::{Fact, ParkReason, ScopeId, TaskKey},
    limits::{MAX_IDLE_RESUMES, MAX_LONE_DEATHS},
    result::Idle,
    state::RunState,
};

fn bring(state: &mut RunState, input: Input) -> Vec<Fact> {
    decide(state, input, 1, &mut Counter(1)).unwrap()
}

fn is_parked(facts: &[Fact]) -> bool {
    facts.iter().any(|fact| matches!(fact, Fact::RunParked { reason: ParkReason::CrashLoop, .. }))
}

/// Number of resumptions of a run without progress before the next one parks it.
const LIVES: u32 = MAX_IDLE_RESUMES + MAX_LONE_DEATHS;

/// Returns a run of two nodes whose first node is running.
fn begun() -> RunState {
    let nodes = [Plan::Hang, Plan::Hang].map(Planned::new).into();
    let edges = vec![(0, 1, flowcell_flow::graph::On::Success)];
    let graph = Arc::new(lower(&PlannedBody { nodes, edges, ..PlannedBody::default() }, FlowPolicy::default()).graph);
    let mut state = RunState::new(graph, FlowPolicy::default());
    bring(&mut state, Input::Start { input: Json::Null, seed: 7, about: None });
    state
}

fn resume(state: &mut RunState, by_hand: bool) -> bool {
    // A driver tries each suspect alone, and drives other runs together.
    let alone = state.is_suspect();
    resume_as(state, by_hand, alone)
}

fn resume_as(state: &mut RunState, by_hand: bool, alone: bool) -> bool {
    let parked = is_parked(&bring(state, Input::Resume { by_hand, alone }));
    assert_eq!(parked, state.park_reason().is_some());
    parked
}

#[test]
fn a_run_without_progress_is_parked_until_a_person_resumes_it() {
    let mut state = begun();
    for _ in 0..LIVES {
        assert!(!resume(&mut state, false));
    }
    assert!(resume(&mut state, false));
    assert!(!resume(&mut state, true));
    assert!(!resume(&mut state, false));
}

#[test]
fn r25_a_run_that_was_never_alone_when_its_process_died_is_never_parked() {
    let mut state = begun();
    for _ in 0..100 {
        assert!(!resume_as(&mut state, false, false));
    }
    assert!(state.is_suspect());
    // The run was tried alone, and other runs began before the process died.
    for tried in 1..100 {
        assert!(!resume_as(&mut state, false, true));
        assert_eq!(bring(&mut state, Input::Accompanied), [Fact::RunAccompanied]);
        assert_eq!(bring(&mut state, Input::Accompanied), []);
        assert_eq!((state.deaths.tried, state.deaths.lone), (tried, 0));
    }
    // Two deaths alone are enough.
    for _ in 0..MAX_LONE_DEATHS {
        assert!(!resume_as(&mut state, false, true));
    }
    assert!(resume_as(&mut state, false, true));
}

#[test]
fn a_run_with_progress_is_resumed_without_limit() {
    let mut state = begun();
    for _ in 0..LIVES {
        assert!(!resume(&mut state, false));
    }
    let task = TaskKey { scope: ScopeId::ROOT, node: flowcell_flow::graph::NodeIx(0) };
    let result = Ok(Step::Done(Value::null()));
    bring(&mut state, Input::Answered { task, attempt: (1, 0), result, writes: Vec::new(), heard: Box::default() });
    for _ in 0..LIVES {
        assert!(!resume(&mut state, false));
    }
    assert!(resume(&mut state, false));
}

#[test]
fn a_waiting_run_is_not_blamed_for_the_death_of_its_process() {
    let nodes = [Plan::Ask, Plan::After(1_000)].map(Planned::new).into();
    let graph = Arc::new(lower(&PlannedBody { nodes, ..PlannedBody::default() }, FlowPolicy::default()).graph);
    let mut state = RunState::new(graph, FlowPolicy::default());
    let mut now = 0;
    let mut bring = |input, at| {
        now = at;
        decide(&mut state, input, now, &mut Counter(1)).unwrap();
        state.clone()
    };
    bring(Input::Start { input: Json::Null, seed: 7, about: None }, 1);
    for node in 0..2 {
        let task = TaskKey { scope: ScopeId::ROOT, node: flowcell_flow::graph::NodeIx(node) };
        let plan = [Plan::Ask, Plan::After(1_000)][node as usize].clone();
        let result = super::graphs::perform(&plan, 1, None, None).unwrap();
        bring(Input::Answered { task, attempt: (1, 0), result, writes: Vec::new(), heard: Box::default() }, 1);
    }
    for _ in 0..=LIVES {
        assert!(bring(Input::Resume { by_hand: false, alone: true }, 500).park_reason().is_none());
    }
    // The timer is due, and its consequences may kill the process.
    for _ in 0..MAX_LONE_DEATHS {
        assert!(bring(Input::Resume { by_hand: false, alone: true }, 2_000).park_reason().is_none());
    }
    assert!(bring(Input::Resume { by_hand: false, alone: true }, 2_000).park_reason().is_some());
}

#[test]
fn a_parked_run_has_not_harmed_its_process() {
    let mut state = begun();
    for _ in 0..2 * LIVES {
        assert!(!resume(&mut state, false));
        bring(&mut state, Input::park(Idle::default()));
    }
}

#[test]
fn a_run_of_an_older_copy_is_left_alone_until_a_person_resumes_it() {
    let mut state = begun();
    state.apply(&Fact::RunParked { due: None, reason: ParkReason::Restored, waits_for: None, quota: None }, 1);
    for _ in 0..2 {
        let facts = bring(&mut state, Input::Resume { by_hand: false, alone: true });
        assert_eq!(
            facts.last(),
            Some(&Fact::RunParked { due: None, reason: ParkReason::Restored, waits_for: None, quota: None })
        );
        assert_eq!(state.park_reason(), Some(ParkReason::Restored));
    }
    assert!(!resume(&mut state, true));
    assert!(!resume(&mut state, false));
}

#[test]
fn nothing_begins_before_the_resume_is_recorded() {
    let mut state = begun();
    state.policy.max_concurrency = 0;
    let task = TaskKey { scope: ScopeId::ROOT, node: flowcell_flow::graph::NodeIx(0) };
    let result = Ok(Step::Done(Value::null()));
    bring(&mut state, Input::Answered { task, attempt: (1, 0), result, writes: Vec::new(), heard: Box::default() });
    state.policy.max_concurrency = 4;
    let starts = |facts: &[Fact]| facts.iter().filter(|fact| matches!(fact, Fact::AttemptStarted { .. })).count();
    assert_eq!(starts(&bring(&mut state, Input::Resume { by_hand: false, alone: true })), 0);
    assert_eq!(starts(&bring(&mut state, Input::Proceed)), 1);
}

#[test]
fn passes_of_older_journals_keep_their_variables() {
    let old = r#"{"PassStarted":{"scope":1,"owner":{"scope":0,"node":0},"index":2,"variables":{"last":7}}}"#;
    let Fact::PassStarted { index: 2, variables: Some(variables), own: None, .. } = serde_json::from_str(old).unwrap()
    else {
        panic!("not read as a pass with all of its variables");
    };
    assert_eq!(variables.to_string(), r#"{"last":7}"#);
}

#[test]
fn runs_of_older_versions_read_inner_cycles_as_before() {
    let old = r#"{"RunStarted":{"input":{},"seed":1,"deadline":null,"loops":true}}"#;
    let Fact::RunStarted { loops: true, nested: false, .. } = serde_json::from_str(old).unwrap() else {
        panic!("read as the start of a run of this version");
    };
}
