//! Helpers of the tests: attempts, and calls that answer from memory.

use std::{
    collections::HashMap,
    path::Path,
    sync::{Arc, Mutex, Weak},
    time::Duration,
};

use flowcell_contract::{
    Attempt, Call, Calls, Failure, Grants, Json, NodeId, NodeRunner, RunId, ScopePath, StepResult, Tenant, Value,
};
use flowcell_engine::{Config, Engine, Pack};
use futures_util::{
    FutureExt,
    future::{BoxFuture, Either, select},
};

use crate::guests::HOSTILE;

/// Returns an engine with the hostile pack.
pub(crate) fn engine(config: Config) -> (Engine, Pack) {
    let engine = Engine::new(config).unwrap();
    let pack = engine.add_pack(HOSTILE.as_slice(), "hostile.wasm").unwrap();
    (engine, pack)
}

/// Returns an engine that keeps compiled code in the cache of all tests. The packs of the catalog take a minute to compile.
pub(crate) fn caching_engine() -> Engine {
    let cache_dir = Some(Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache"));
    Engine::new(Config { cache_dir, ..Config::default() }).unwrap()
}

/// Returns an attempt at a node type.
pub(crate) fn attempt(pack: &Pack, node_type: &str, input: &str) -> Attempt {
    Attempt {
        tenant: Tenant::local(),
        run_id: RunId::from("r1"),
        flow: "test".into(),
        node_id: NodeId::from("n1"),
        node_type: node_type.into(),
        pack: pack.digest.clone(),
        scope: ScopePath::root(),
        attempt: 1,
        resumes: 0,
        input: Value::parse(input).unwrap(),
        config: Value::null(),
        state: None,
        woken: None,
        has_body: false,
        grants: Arc::new(Grants::default()),
        now_ms: 1_700_000_000_123,
        seed: 7,
        alone: false,
    }
}

/// Runs an attempt with new calls, and returns both its result and the calls.
pub(crate) async fn run(engine: &Engine, attempt: Attempt) -> (StepResult, Arc<Memory>) {
    let calls = Arc::new(Memory::default());
    let result = engine.run(attempt, calls.clone()).await;
    (result, calls)
}

/// Records the calls, and keeps state in memory.
#[derive(Default)]
pub(crate) struct Memory {
    calls: Mutex<Vec<Call>>,
    state: Mutex<HashMap<String, (Json, u64)>>,
}

impl Memory {
    /// Returns the number of calls of an interface.
    pub(crate) fn count(&self, interface: &str) -> usize {
        self.calls.lock().unwrap().iter().filter(|call| &*call.interface == interface).count()
    }

    /// Returns the log messages, each after its level.
    pub(crate) fn log(&self) -> Vec<String> {
        let text = |args: &Json, key: &str| args.get(key).unwrap().as_str().unwrap().to_owned();
        let calls = self.calls.lock().unwrap();
        let lines = calls.iter().filter(|call| &*call.interface == "log").map(|call| call.args.json());
        lines.map(|args| format!("{} {}", text(args, "level"), text(args, "message"))).collect()
    }

    fn answer(&self, call: &Call) -> Json {
        let args = call.args.json();
        let key = || args.get("key").unwrap().as_str().unwrap().to_owned();
        let expected = args.get("expected").and_then(Json::as_u64);
        let mut state = self.state.lock().unwrap();
        match (&*call.interface, &*call.function) {
            ("state", "get") => state.get(&key()).map_or(Json::Null, |(value, version)| {
                Json::object([("value", value.clone()), ("version", Json::from(*version))])
            }),
            ("state", "set-if") if state.get(&key()).map(|(_, version)| *version) != expected => Json::Null,
            ("state", "set" | "set-if") => {
                let entry = state.entry(key()).or_default();
                *entry = (args.get("value").unwrap().clone(), entry.1 + 1);
                Json::from(entry.1)
            }
            // There is one file, with the content `[1]`.
            ("files", "read") => Json::object([("text", Json::from("[1]"))]),
            ("files", "write") => {
                let size = args.get("text").and_then(Json::as_str).unwrap().len();
                Json::object([("size", Json::from(size as u64))])
            }
            ("files", "list") => {
                let (path, kind) = (Json::from("notes/a.txt"), Json::from("file"));
                let (size, modified) = (Json::from(3u64), Json::from(0u64));
                let entry = [("path", path), ("kind", kind), ("size", size), ("modifiedMs", modified)];
                Json::object([("entries", Json::array([Json::object(entry)]))])
            }
            // The answer is the same as with `--simulate http`.
            ("http", "send") => {
                let told = |name: &str| args.get(name).cloned().unwrap();
                let told = [("simulated", Json::from(true)), ("method", told("method")), ("url", told("url"))];
                let header = Json::array([Json::from("content-type"), Json::from("application/json")]);
                Json::object([
                    ("status", Json::from(200u32)),
                    ("headers", Json::array([header])),
                    ("body", Json::object([("text", Json::from(Json::object(told).to_text()))])),
                ])
            }
            _ => Json::Null,
        }
    }
}

impl Calls for Memory {
    fn call(&self, call: Call) -> BoxFuture<'_, Result<Value, Failure>> {
        let reply = self.answer(&call);
        self.calls.lock().unwrap().push(call);
        async { Ok(reply.into()) }.boxed()
    }
}

/// Lets an endless attempt run beside its neighbours, and drops it when they have ended. Returns when the engine has let go of
/// its calls.
pub(crate) async fn ends_after(
    endless: BoxFuture<'_, StepResult>,
    neighbours: impl Future<Output = ()>,
    calls: &Weak<Memory>,
) {
    match select(endless, std::pin::pin!(neighbours)).await {
        Either::Right((_, endless)) => drop(endless),
        Either::Left((result, _)) => panic!("{result:?}"),
    }
    let gone = async {
        while calls.strong_count() > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), gone).await.unwrap();
}
