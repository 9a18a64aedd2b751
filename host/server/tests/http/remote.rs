//! Live events of a run that another process of the same store drives. Each server of these tests has a store of its own on
//! one database, as another process has.

use std::{path::Path, sync::Arc};

use flowcell_platform::{Host, Providers, identity::Local};
use flowcell_runtime::sql::Dialect;
use flowcell_server::Limits;
use serde_json::{Value, json};

use crate::{client::Served, servers, stream::Stream};

/// Starts a process on a store. Its model fails, and the next attempt, 5 s later, is a live event.
fn process(url: &str) -> Served {
    let error = json!({ "code": "model_overloaded", "times": 3, "retryAfterMs": 5_000 });
    let script = json!([{ "error": error, "text": "done" }]);
    let profile = json!({ "dialect": "simulated", "model": "one", "script": script });
    let providers = json!({ "default": "scripted", "profiles": { "scripted": profile } });
    let providers = Providers::parse(&providers.to_string(), Path::new("")).unwrap();
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache");
    let host = Host::builder().cache_dir(cache).instances(16).providers(providers).server(url).build().unwrap();
    Served::over(host, tempfile::tempdir().unwrap(), Arc::new(Local), Limits::default())
}

fn talks() -> Value {
    json!({ "flow": { "name": "talks" }, "nodes": [{ "id": "a", "type": "agent.run", "input": { "prompt": "hello" },
        "grants": { "model": ["*"] } }] })
}

#[test]
fn live_events_reach_subscribers_at_another_process() {
    let Some(server) = servers::server(Dialect::Postgres) else { return };
    let url = server.url(&server.database());
    let driver = process(&url);
    let started = driver.post("/v1/runs", &json!({ "flow": talks(), "runId": "r" }));
    assert_eq!(started.status, 201, "{started:?}");
    // The other process begins later, so that it does not take the run.
    let mut own = Stream::open(&driver, "/v1/runs/r/events/stream", &[]);
    while own.next().unwrap().kind != "call:start" {}
    let reader = process(&url);
    let mut stream = Stream::open(&reader, "/v1/runs/r/events/stream", &[]);
    let mut kinds = Vec::new();
    let live = loop {
        let sent = stream.next().unwrap_or_else(|| panic!("the run has ended without live events: {kinds:?}"));
        kinds.push(sent.kind.clone());
        if sent.kind == "agent:retry" {
            break sent;
        }
    };
    assert_eq!((live.id, &live.data["runId"], &live.data["nodeId"]), (None, &json!("r"), &json!("a")), "{live:?}");
    let is_driven_by = |served: &Served| served.host().hubs().get(served.host().tenant(), &"r".into()).is_some();
    assert_eq!((is_driven_by(&driver), is_driven_by(&reader)), (true, false), "the reader drives the run: {kinds:?}");
    assert_eq!(driver.ask("POST", "/v1/runs/r/cancel", "").status, 200);
    let mut numbers = Vec::new();
    let mut last = None;
    while let Some(sent) = stream.next() {
        numbers.extend(sent.id);
        last = Some(sent.kind);
    }
    assert_eq!(last.as_deref(), Some("harness:complete"));
    assert!(
        numbers.windows(2).all(|pair| pair[1] == pair[0] + 1),
        "no recorded event is missed or repeated: {numbers:?}"
    );
}
