//! What a well-behaved guest gets: its parts, its pauses, and a place when it is its turn.

use std::sync::Arc;

use flowcell_contract::{
    Attempt, Call, Calls, Choice, Failure, FanOut, FlowCall, Json, NodeRunner, Pause, Question, Step, Value, Wake,
};
use flowcell_engine::{Config, Engine, Limits, Pack};
use futures_util::{FutureExt, future::BoxFuture, future::join_all};
use tokio::sync::Semaphore;

use crate::support::{attempt, engine, run};

const INPUT: &str = r#"{"list":[1,{"b":2}],"text":"äx"}"#;

fn value(text: &str) -> Value {
    Value::parse(text).unwrap()
}

/// The attempt after `round` pauses.
async fn rest(engine: &Engine, pack: &Pack, round: u32) -> Step {
    let attempt = Attempt {
        resumes: round,
        state: (round > 0).then(|| value(&format!(r#"{{"round":{round}}}"#))),
        woken: (round > 0).then(|| value(r#"{"index":0,"wake":"after","value":{"elapsedMs":5}}"#)),
        has_body: true,
        config: value(r#"{"c/d":[true]}"#),
        ..attempt(pack, "hostile.rest", INPUT)
    };
    run(engine, attempt).await.0.unwrap()
}

#[tokio::test]
async fn pauses_arrive_as_they_were_asked_for() {
    let (engine, pack) = engine(Config::default());
    let question = Question {
        prompt: "really?".into(),
        choices: vec![Choice { value: "yes".into(), label: Some("Yes".into()) }],
        allow_text: true,
        schema: Some(Json::parse(r#"{"type":"string"}"#).unwrap()),
        audience: vec!["ops".into()],
    };
    let items = value(r#"[1,{"b":2}]"#);
    let fan_out = FanOut { items, concurrency: Some(2), stop_on_failure: true };
    let expected = [
        vec![Wake::Answer(question), Wake::After(5), Wake::Event("go".into())],
        vec![Wake::Body(value(r#"{"a":1}"#))],
        vec![Wake::Each(fan_out)],
        vec![Wake::Flow(FlowCall { name: "child".into(), input: value(r#"{"elapsedMs":5}"#) })],
    ];
    for (round, until) in (0..).zip(expected) {
        let state = value(&format!(r#"{{"round":{}}}"#, round + 1));
        assert_eq!(rest(&engine, &pack, round).await, Step::Pause(Pause { until, state }));
    }
}

#[tokio::test]
async fn a_task_sees_its_parts() {
    let (engine, pack) = engine(Config::default());
    let Step::Done(output) = rest(&engine, &pack, 4).await else { panic!("a pause") };
    let expected = r#"{"list":[1,{"b":2}],"value":{"elapsedMs":5},"state":{"round":4},"config":[true],
        "task":{"runId":"r1","flow":"test","nodeId":"n1","nodeType":"hostile.rest","scope":"","attempt":1,"resumes":4,
                "hasBody":true,"nowMs":1700000000123,"seed":0},
        "lens":2,"bytes":3,"scalar":99}"#;
    assert_eq!(output, value(expected));
}

/// Answers when it is allowed to.
struct Held(Semaphore);

impl Calls for Held {
    fn call(&self, _: Call) -> BoxFuture<'_, Result<Value, Failure>> {
        async { self.0.acquire().await.map(|_| Value::null()).map_err(|_| Failure::new("closed", "closed")) }.boxed()
    }
}

#[tokio::test]
async fn more_attempts_than_instances_take_turns() {
    let (engine, pack) = engine(Config { instances: Some(32), ..Config::default() });
    let calls = Arc::new(Held(Semaphore::new(0)));
    let attempts = (0..100).map(|_| engine.run(attempt(&pack, "hostile.log-text", "{}"), calls.clone()));
    let opened = async { calls.0.add_permits(1) };
    let (results, ()) = tokio::join!(join_all(attempts), opened);
    assert!(results.iter().all(Result::is_ok));
}

#[tokio::test]
async fn many_may_be_the_first_to_use_a_pack() {
    let dir = tempfile::tempdir().unwrap();
    let config = Config { cache_dir: Some(dir.path().into()), limits: Limits::default(), ..Config::default() };
    let (engine, pack) = engine(config);
    let runs = (0..20).map(|_| run(&engine, attempt(&pack, "hostile.echo", "{}")));
    assert!(join_all(runs).await.iter().all(|(result, _)| result.is_ok()));
    let code = std::fs::read_dir(dir.path()).unwrap();
    let code =
        code.filter(|entry| entry.as_ref().unwrap().path().extension().is_some_and(|extension| extension == "code"));
    assert_eq!(code.count(), 1);
}
