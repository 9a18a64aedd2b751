//! A well-behaved guest: the parts of its task, its pauses, and its wait for an instance.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use flowcell_contract::{
    Arrival, Attempt, BlobRef, Call, Calls, Choice, Failure, FanOut, FlowCall, Json, NodeRunner, Pause, Question, Step,
    Value, Wake,
};
use flowcell_engine::{Config, Engine, Limits, Pack};
use futures_util::{FutureExt, future::BoxFuture, future::join_all};
use tokio::sync::Semaphore;

use crate::support::{attempt, engine, run};

const INPUT: &str = r#"{"list":[1,{"b":2}],"text":"äx"}"#;

fn value(text: &str) -> Value {
    Value::parse(text).unwrap()
}

/// Returns the answer of the node type `hostile.rest` after `round` pauses.
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
async fn pauses_arrive_unchanged() {
    let (engine, pack) = engine(Config::default());
    let question = Question {
        prompt: "really?".into(),
        choices: vec![Choice { value: "yes".into(), label: Some("Yes".into()) }],
        allow_text: true,
        schema: Some(Json::parse(r#"{"type":"string"}"#).unwrap()),
        audience: vec!["ops".into()],
    };
    let items = value(r#"[1,{"b":2}]"#);
    let fan_out = FanOut { items, concurrency: Some(2), stop_on_failure: true, max_failures: None };
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

/// Answers calls only while the semaphore has permits.
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
async fn concurrent_first_attempts_share_one_compilation() {
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

/// Ends the first started call with success, and the second with a failure.
#[derive(Default)]
struct Outside {
    started: AtomicU32,
    ended: AtomicU32,
}

impl Calls for Outside {
    fn call(&self, _: Call) -> BoxFuture<'_, Result<Value, Failure>> {
        async { Ok(Value::null()) }.boxed()
    }

    fn start(&self, call: Call) -> BoxFuture<'_, Result<u32, Failure>> {
        assert_eq!((&*call.interface, &*call.function), ("http", "start-send"));
        let file = call.args.json().get("body").and_then(|body| body.get("file"));
        assert_eq!(file.and_then(|file| file.get("size")).and_then(Json::as_u64), Some(2));
        let id = self.started.fetch_add(1, Ordering::Relaxed) + 1;
        async move { Ok(id) }.boxed()
    }

    fn next(&self, timeout_ms: Option<u32>) -> BoxFuture<'_, Option<Arrival>> {
        assert_eq!(timeout_ms, None);
        let ended = self.ended.fetch_add(1, Ordering::Relaxed);
        let reply =
            value(r#"{"status":204,"headers":[["a","b"]],"body":{"file":{"kind":"file","fileId":"f","size":3}}}"#);
        let arrival = match ended {
            0 => Some(Arrival::Ended { id: 2, outcome: Err(Failure::new("http_connect", "nobody listens")) }),
            1 => Some(Arrival::Ended { id: 1, outcome: Ok(reply) }),
            _ => None,
        };
        async move { arrival }.boxed()
    }

    fn now_ms(&self) -> Option<u64> {
        Some(1_700_000_000_123 + u64::from(self.ended.load(Ordering::Relaxed)) * 100)
    }

    fn keep(&self, bytes: Arc<[u8]>, mime: &str) -> Result<BlobRef, Failure> {
        Ok(BlobRef { file_id: "f".into(), size: bytes.len() as u64, mime: mime.into() })
    }

    fn bytes(&self, _: &BlobRef) -> Result<Arc<[u8]>, Failure> {
        Ok([1, 2, 3].into())
    }
}

#[tokio::test]
async fn concurrent_calls_are_announced_as_they_end_and_answers_are_taken_once() {
    let (engine, pack) = engine(Config::default());
    let result = engine.run(attempt(&pack, "hostile.scatter", "{}"), Arc::new(Outside::default())).await;
    let expected = r#"{"heard":["2: http_connect","1: {\"status\":204}"],"status":204,"body":3,"again":"invalid_input",
        "failed":"invalid_input","passed":300}"#;
    assert_eq!(result, Ok(Step::Done(value(expected))));
}
