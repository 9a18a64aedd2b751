//! An answer counts only for its own question.

use std::sync::Arc;

use flowcell_contract::{Choice, Effect, Failure, Json, Pause, Question, RunId, Step, StepResult, Tenant, Value, Wake};
use flowcell_flow::graph::{FlowPolicy, NodeIx};

use super::{
    graphs::{Plan, Planned, PlannedBody, lower},
    readiness::Counter,
};
use crate::{
    call_log::permission,
    command::{HubError, RunCommand, Stored},
    decide::{Input, decide},
    fact::{Asked, CallDigest, CallRecord, Fact, ScopeId, TaskKey},
    ports::Unit,
    publish::Projector,
    question::{self, Closed, QuestionRef},
    state::RunState,
};

pub(super) const TASK: TaskKey = TaskKey { scope: ScopeId::ROOT, node: NodeIx(0) };

/// A run of one node with many attempts, and all of its facts.
pub(super) struct Run {
    pub(super) state: RunState,
    facts: Vec<Fact>,
}

impl Run {
    pub(super) fn begin(seed: u64) -> Run {
        let nodes = vec![Planned::new(Plan::Hang)];
        let mut graph = lower(&PlannedBody { nodes, ..PlannedBody::default() }, FlowPolicy::default()).graph;
        graph.nodes[0].policy.retry.max_attempts = 9;
        graph.nodes[0].policy.retry.backoff_ms = 0;
        let mut run = Run { state: RunState::new(Arc::new(graph), FlowPolicy::default()), facts: Vec::new() };
        run.bring(Input::Start { input: Json::Null, seed, about: None }).unwrap();
        run
    }

    pub(super) fn bring(&mut self, input: Input) -> Result<Vec<Fact>, HubError> {
        let facts = decide(&mut self.state, input, 1, &mut Counter(1))?;
        self.facts.extend(facts.iter().cloned());
        Ok(facts)
    }

    fn answer(&mut self, attempt: (u32, u32), result: StepResult) {
        self.bring(Input::Answered { task: TASK, attempt, result, writes: vec![], heard: Box::default() }).unwrap();
    }

    fn fail(&mut self, attempt: (u32, u32)) {
        self.answer(attempt, Err(Failure::retryable("timeout", "too long")));
    }

    fn ask(&mut self, attempt: (u32, u32)) -> QuestionRef {
        let choice = |value: &str| Choice { value: value.into(), label: None };
        let question =
            Question { prompt: "Pay?".into(), choices: vec![choice("yes"), choice("no")], ..Question::default() };
        let pause = Pause { until: vec![Wake::Answer(question)], state: Value::null() };
        self.answer(attempt, Ok(Step::Pause(pause)));
        question::gate(&self.state, TASK).unwrap().2
    }

    /// Makes an attempt ask whether its third call may leave.
    pub(super) fn call(&mut self, attempt: (u32, u32), args: &str) -> QuestionRef {
        let digest = CallDigest::of("tools", "call", &Json::parse(args).unwrap());
        let ask = Asked { prompt: args.into(), expires: u64::MAX, arguments: None };
        let call = Box::new(CallRecord {
            ordinal: 3,
            interface: "tools".into(),
            function: "call".into(),
            digest,
            effect: Effect::Idempotent,
            key: "k".into(),
            about: Json::Null,
            preview: Json::Null,
            agent: None,
            ask: Some(Box::new(ask)),
            before: Box::default(),
        });
        self.bring(Input::Call { task: TASK, attempt, call, reply: None }).unwrap();
        question::permission(&self.state, TASK, 3).unwrap().1
    }

    pub(super) fn reply(&mut self, gate: &str, choice: &str, question: &QuestionRef) -> Result<Vec<Fact>, HubError> {
        let answer = Json::object([("content", Json::from(choice))]);
        self.bring(Input::Command(RunCommand::reply(gate, answer, question.clone())))
    }

    /// Returns the question of the latest event that has one.
    fn latest_question(&self) -> QuestionRef {
        let mut projector = Projector::new(Tenant::local(), RunId::from("r"), self.state.graph.clone());
        let events = projector.project(&Unit { first_seq: 0, ts: 1, facts: self.facts.clone() });
        let mut questions = events.iter().rev().filter_map(|event| event.data.get("question"));
        QuestionRef::of_json(questions.next().unwrap())
    }
}

fn only_digest(question: &QuestionRef) -> QuestionRef {
    QuestionRef { attempt: None, ..question.clone() }
}

fn refused(outcome: Result<Vec<Fact>, HubError>) -> Closed {
    match outcome {
        Err(HubError::NotOpen(closed)) => closed,
        other => panic!("{other:?}"),
    }
}

#[test]
fn w2_an_approval_does_not_count_for_the_next_attempt() {
    let mut run = Run::begin(7);
    let first = run.call((1, 0), r#"{"amount":1,"to":"alice"}"#);
    run.fail((1, 0));
    assert!(matches!(refused(run.reply("n0#3", "allow", &first)), Closed::OtherAttempt { named: 1, current: 2 }));
    for args in [r#"{"amount":1000000,"to":"mallory"}"#, r#"{"to":"alice","amount":1}"#] {
        let attempt = run.state.task(TASK).attempt;
        let open = run.call((attempt, 0), args);
        let latest = run.latest_question();
        assert_eq!(latest, open, "the event names the question by what the decider asks for");
        let other = Closed::OtherAttempt { named: 1, current: attempt };
        assert_eq!(refused(run.reply("n0#3", "allow", &first)), other);
        assert!(matches!(refused(run.reply("n0#3", "allow", &only_digest(&first))), Closed::OtherQuestion { .. }));
        let facts = run.reply("n0#3", "allow", &latest).unwrap();
        let decided = facts.iter().find_map(|fact| match fact {
            Fact::CallDecided { attempt, digest, allowed: true, .. } => Some((Some(*attempt), digest.clone())),
            _ => None,
        });
        assert_eq!(decided, Some((open.attempt, open.digest.clone())));
        assert_eq!(refused(run.reply("n0#3", "allow", &open)), Closed::Answered);
        run.fail((attempt, 0));
    }
}

#[test]
fn w2_an_answer_without_a_digest_is_recorded_for_the_open_question_alone() {
    let mut run = Run::begin(7);
    run.call((1, 0), "{}");
    run.fail((1, 0));
    assert_eq!(refused(run.reply("n0#3", "allow", &QuestionRef::default())), Closed::NoCall);
    let open = run.call((2, 0), r#"{"amount":2}"#);
    let facts = run.reply("n0#3", "deny", &QuestionRef::default()).unwrap();
    let named = |fact: &Fact| matches!(fact, Fact::CallDecided { attempt: 2, digest, .. } if *digest == open.digest);
    assert!(facts.iter().any(named), "{facts:?}");
}

#[test]
fn w2_the_same_prompt_asked_again_is_another_question() {
    let mut run = Run::begin(7);
    let first = run.ask((1, 0));
    assert_eq!(run.latest_question(), first);
    let facts = run.reply("n0", "yes", &first).unwrap();
    assert!(facts.iter().any(|fact| matches!(fact, Fact::Replied { attempt: Some(1), digest: Some(_), .. })));
    assert_eq!(refused(run.reply("n0", "yes", &first)), Closed::Answered);
    let second = run.ask((1, 1));
    assert_eq!(run.latest_question(), second);
    assert!(matches!(refused(run.reply("n0", "yes", &first)), Closed::OtherQuestion { .. }));
    run.reply("n0", "yes", &QuestionRef::default()).unwrap();
    run.fail((1, 2));
    run.ask((2, 0));
    assert!(matches!(refused(run.reply("n0", "yes", &second)), Closed::OtherAttempt { named: 1, current: 2 }));
}

#[test]
fn w2_questions_of_other_runs_and_passes_differ() {
    let open = Run::begin(7).ask((1, 0));
    assert_ne!(Run::begin(8).ask((1, 0)).digest, open.digest, "a child that is started anew has a seed of its own");
    let pass = TaskKey { scope: ScopeId(4), ..TASK };
    let call = CallDigest::of("tools", "call", &Json::Null);
    let of = |key, attempt| QuestionRef::of_call(7, key, (attempt, 3), &call).digest;
    assert!(of(TASK, 1) != of(pass, 1) && of(TASK, 1) != of(TASK, 2));
}

#[test]
fn a_refusal_says_why() {
    let mut run = Run::begin(7);
    let any = QuestionRef::default();
    assert_eq!(refused(run.reply("nobody", "yes", &any)), Closed::NoNode);
    assert_eq!(refused(run.reply("n0", "yes", &any)), Closed::NotAsked);
    for wrong in ["n0#3", "n0#03", "n0#", "n0#-1", "n0#x"] {
        assert_eq!(refused(run.reply(wrong, "allow", &any)), Closed::NoCall, "{wrong}");
    }
    assert_eq!(Closed::NotAsked.message(), "the node has not asked this question yet");
    assert_eq!(Closed::Ended.message(), "the node has ended or was skipped, so it asks no question now");
    run.ask((1, 0));
    assert!(matches!(run.reply("n0", "perhaps", &any), Err(HubError::AnswerRefused(_))));
    run.reply("n0", "yes", &any).unwrap();
    run.answer((1, 1), Ok(Step::Pause(Pause { until: vec![Wake::Event("go".into())], state: Value::null() })));
    assert_eq!(refused(run.reply("n0", "yes", &any)), Closed::NotAsked);
    for closed in [Closed::Answered, Closed::Expired, Closed::Ended, Closed::OtherAttempt { named: 1, current: 2 }] {
        let error = HubError::from(closed.clone());
        assert_eq!((error.code(), error.message()), ("gate_closed", closed.message()));
    }
}

/// The test reads facts that older versions have written.
#[test]
fn answers_without_attempt_and_digest_are_read() {
    let replied = r#"{"Replied":{"task":{"scope":0,"node":0},"answer":{"content":"yes"}}}"#;
    let decided =
        r#"{"CallDecided":{"task":{"scope":0,"node":0},"attempt":1,"ordinal":3,"allowed":true,"answer":null}}"#;
    for text in [replied, decided] {
        let fact: Fact = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&fact).unwrap(), text);
    }
    let asked: Asked = serde_json::from_str(r#"{"prompt":"May it?","expires":5}"#).unwrap();
    assert_eq!(asked.arguments, None);
    let Stored(command) = serde_json::from_str(r#"{"Reply":{"gate":"a","answer":null}}"#).unwrap();
    assert!(matches!(command, RunCommand::Reply { question, .. } if question.is_empty()));
    let refused: HubError = serde_json::from_str("\"GateClosed\"").unwrap();
    assert_eq!(refused.code(), "gate_closed");
    assert_eq!(permission("x".into()).choices.len(), 2);
}
