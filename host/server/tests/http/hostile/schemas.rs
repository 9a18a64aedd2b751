//! Expensive schemas in flows of tenants, and checks whose clients have disconnected.

use std::{
    fs,
    io::{Read, Write},
    net::SocketAddr,
    path::Path,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use flowcell_platform::{Host, Providers, policy::Policy, tenants::Tenants};
use flowcell_server::{Limits, identity::Identify};
use serde_json::{Map, Value, json};

use super::household::{Household, all_scopes};
use crate::{
    client::{Answer, Served, connect},
    doors::{hook, signing_key, tool},
    samples::hello,
    tenants::{call, served_with},
};

/// The longest time for a check and its answer.
const MAX_ANSWER_TIME: Duration = Duration::from_secs(30);
/// The code of a check that exceeds its budget.
const TOO_COSTLY: &str = "schema_too_costly";

fn of(schema: &Value) -> Value {
    json!({ "flow": { "name": "costly", "inputSchema": schema }, "nodes": [{ "id": "a", "type": "control.noop" }], "edges": [] })
}

/// Returns a schema for inputs `{ x }`. A check that follows every reference would visit 2^40 subschemas.
fn doubling_schema() -> Value {
    let part = |index: usize| {
        let next = json!({ "$ref": format!("#/$defs/a{}", index + 1) });
        (format!("a{index}"), json!({ "anyOf": [next, next] }))
    };
    let mut defs: Map<String, Value> = (0..40).map(part).collect();
    defs.insert("a40".into(), json!({ "type": "integer" }));
    json!({ "type": "object", "properties": { "x": { "$ref": "#/$defs/a0" } }, "$defs": defs })
}

/// Returns a schema with a cycle that has very many paths through a deep value.
fn ambiguous_schema() -> Value {
    let way =
        |needs: &str| json!({ "type": "object", "required": [needs], "properties": { "x": { "$ref": "#/$defs/t" } } });
    let ways: Vec<_> = (0..6).map(|_| way("y")).chain([json!({ "type": "integer" })]).collect();
    json!({ "type": "object", "properties": { "x": { "$ref": "#/$defs/t" } }, "$defs": { "t": { "oneOf": ways } } })
}

fn deep(depth: usize) -> Value {
    (0..depth).fold(json!("s"), |inner, _| json!({ "x": inner, "y": 1 }))
}

#[test]
fn y3_an_input_that_is_costly_to_check_does_not_block_others() {
    let house = Household::new(Limits::default());
    let begin = Instant::now();
    let validated = house.call(&house.a, "POST", "/v1/validate", &json!({ "flow": of(&doubling_schema()) })).json();
    assert_eq!(
        (&validated["valid"], &validated["diagnostics"][0]["code"]),
        (&json!(false), &json!("schema_too_costly"))
    );
    let pattern = json!({ "properties": { "x": { "pattern": "^[ab]*a[ab]{5000}c" } } });
    let table = [
        (doubling_schema(), json!("s"), "invalid_flow"),
        (ambiguous_schema(), deep(90), "schema_too_costly"),
        (pattern, json!("ab".repeat(100_000)), "schema_too_costly"),
    ];
    let asked = &house;
    thread::scope(|scope| {
        for (schema, x, code) in &table {
            for _ in 0..4 {
                scope.spawn(move || {
                    let body = json!({ "flow": of(schema), "input": { "x": x } });
                    let answer = asked.call(&asked.a, "POST", "/v1/runs", &body);
                    assert_eq!((answer.status, &answer.json()["error"]["code"]), (422, &json!(code)), "{answer:?}");
                });
            }
        }
        house.canary();
    });
    assert!(begin.elapsed() < 4 * MAX_ANSWER_TIME, "{:?}", begin.elapsed());
}

#[test]
fn y3_a_trigger_with_a_costly_input_does_not_delay_other_tenants() {
    let house = Household::new(Limits::default());
    let costly = of(&ambiguous_schema());
    let cheap = json!({ "flow": { "name": "cheap" }, "nodes": [{ "id": "a", "type": "control.noop" }], "edges": [] });
    let trigger = |flow: &str, input: Value| json!({ "flow": flow, "trigger": { "id": "each", "cron": "* * * * *", "input": input } });
    let done = [
        house.call(&house.a, "POST", "/v1/flows", &json!({ "flow": costly })),
        house.call(&house.b, "POST", "/v1/flows", &json!({ "flow": cheap })),
        house.call(&house.a, "POST", "/v1/triggers", &trigger("costly", json!({ "x": deep(50) }))),
        house.call(&house.b, "POST", "/v1/triggers", &trigger("cheap", json!({}))),
    ];
    done.iter().for_each(|answer| assert!(answer.status < 300, "{answer:?}"));
    // Both triggers fire at the same time. The one of `b` starts a run, and the one of `a` fails.
    for (token, flow) in [(&house.a, "costly"), (&house.b, "cheap")] {
        let asked = house.call(token, "POST", &format!("/v1/triggers/{flow}/each/fire"), &Value::Null);
        assert!(asked.status < 300, "{asked:?}");
    }
    let begin = Instant::now();
    let runs = || house.call(&house.b, "GET", "/v1/runs", &Value::Null).json()["runs"].as_array().unwrap().len();
    while runs() == 0 {
        assert!(begin.elapsed() < MAX_ANSWER_TIME, "the trigger of `b` waits");
        thread::sleep(Duration::from_millis(100));
    }
    let failed = house.call(&house.a, "GET", "/v1/runs", &Value::Null).json();
    assert_eq!(failed["runs"], json!([]));
}

/// Returns a flow that calls the flow `called` with its own input `x`.
fn forwarding_flow(name: &str, called: &str) -> Value {
    json!({
        "flow": { "name": name, "input": { "n": "costly", "x": null } },
        "nodes": [{ "id": "sub", "type": "control.subflow", "input": { "name": called, "input": { "x": "{{ flow.input.x }}" } } }],
    })
}

/// The budget for checking an input against its schema also holds if the input comes from another flow, from an agent's
/// tool call, or from a post to a trigger.
#[test]
fn y3_every_way_to_an_input_respects_the_budget_of_a_schema() {
    let agent = json!({
        "flow": { "name": "agent" },
        "nodes": [{ "id": "a", "type": "agent.run", "input": { "prompt": "go", "tools": ["flow:costly"] },
            "config": { "permissions": { "default": "allow" } }, "grants": { "model": ["*"], "tools": ["flow:costly"] } }],
    });
    let calls = json!([{ "name": "flow_costly", "input": { "x": deep(50) } }]);
    let script = json!([{ "match": "", "toolCalls": calls }, { "match": "", "text": "done" }]);
    let models =
        json!({ "default": "one", "profiles": { "one": { "dialect": "simulated", "model": "m", "script": script } } });
    let providers = Providers::parse(&models.to_string(), Path::new("")).unwrap();
    let (served, [a, b]) = served_with(&Policy::default(), |builder| builder.providers(providers));
    let post = |path: &str, body: &Value| call(&served, &a, "POST", path, body);
    let set = call(&served, &a, "PUT", "/v1/secrets/key", &signing_key());
    assert_eq!(set.status, 200, "{set:?}");
    let mut costly = of(&ambiguous_schema());
    costly["flow"]["triggers"] = json!([{ "id": "hook", "webhook": { "secret": "key" }, "input": { "x": deep(50) } }]);
    for flow in
        [&costly, &forwarding_flow("literal", "costly"), &forwarding_flow("computed", "{{ flow.input.n }}"), &agent]
    {
        let kept = post("/v1/flows", &json!({ "flow": flow }));
        assert_eq!(kept.status, 201, "{kept:?}");
    }
    assert!((0..20_000).any(|_| call(&served, &a, "GET", "/v1/triggers", &Value::Null).body.contains("hook")));
    let input = json!({ "x": deep(50) });
    let run = |flow: &str| post("/v1/runs?wait=true", &json!({ "flow": flow, "input": input }));
    let events = |run: &Value| {
        let path = format!("/v1/runs/{}/events?limit=1000", run["runId"].as_str().unwrap());
        call(&served, &a, "GET", &path, &Value::Null)
    };
    let doors: [(&str, &(dyn Fn() -> Answer + Sync)); 9] = [
        ("start", &|| run("costly")),
        ("literal name", &|| run("literal")),
        ("computed name", &|| run("computed")),
        ("agent", &|| events(&post("/v1/runs?wait=true", &json!({ "flow": "agent" })).json())),
        ("steps", &|| post("/api/run_flow", &json!({ "flow_name": "costly", "inputs": input }))),
        ("flow tool", &|| tool(&served, &a, "costly", &input)),
        ("run tool", &|| tool(&served, &a, "flowcell_run_flow", &json!({ "flow": costly, "input": input }))),
        ("test tool", &|| tool(&served, &a, "flowcell_test_flow", &json!({ "flow": "costly", "input": input }))),
        ("webhook", &|| hook(&served, "/v1/hooks/a/costly/hook", "m", "{}")),
    ];
    let begin = Instant::now();
    thread::scope(|scope| {
        for (door, enter) in &doors {
            scope.spawn(move || {
                let answer = enter();
                // The routes under `/api` have no codes of their own.
                let told: &[&str] =
                    if *door == "steps" { &["than its budget allows", "takes more than 1 s"] } else { &[TOO_COSTLY] };
                assert!(told.iter().any(|told| answer.body.contains(told)), "{door}: {answer:?}");
            });
        }
        let beside = call(&served, &b, "POST", "/v1/runs?wait=true", &json!({ "flow": hello() }));
        assert_eq!(beside.json()["status"], "succeeded", "{beside:?}");
    });
    assert!(begin.elapsed() < MAX_ANSWER_TIME, "{:?}", begin.elapsed());
}

/// An agent checks the answer of its model against a schema. This happens in the agent's own sandbox, so a costly check
/// does not delay other runs.
#[test]
fn y3_an_answer_that_is_costly_to_check_does_not_delay_others() {
    let script = json!([{ "match": "", "text": deep(50).to_string() }]);
    let models =
        json!({ "default": "one", "profiles": { "one": { "dialect": "simulated", "model": "m", "script": script } } });
    let providers = Providers::parse(&models.to_string(), Path::new("")).unwrap();
    let (served, [a, b]) = served_with(&Policy::default(), |builder| builder.providers(providers));
    let agent = |index: usize| {
        json!({ "id": format!("a{index}"), "type": "agent.run", "input": { "prompt": "go" },
            "config": { "output": { "schema": ambiguous_schema() } }, "grants": { "model": ["*"] } })
    };
    let flow = json!({ "flow": { "name": "agents" }, "nodes": (0..8).map(agent).collect::<Vec<_>>() });
    let begun = call(&served, &a, "POST", "/v1/runs", &json!({ "flow": flow, "runId": "r" }));
    assert_eq!(begun.status, 201, "{begun:?}");
    let begin = Instant::now();
    for _ in 0..5 {
        let beside = call(&served, &b, "POST", "/v1/runs?wait=true", &json!({ "flow": hello() }));
        assert_eq!(beside.json()["status"], "succeeded", "{beside:?}");
    }
    assert_eq!(call(&served, &a, "POST", "/v1/runs/r/cancel", &json!({})).status, 200);
    assert!(begin.elapsed() < MAX_ANSWER_TIME, "{:?}", begin.elapsed());
}

/// Starts a server with the tenants `a` and `b` over a folder, as after a restart.
fn serve_folder(folder: tempfile::TempDir) -> (Served, [String; 2]) {
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache");
    let host = Host::builder().cache_dir(cache).instances(4).state_dir(folder.path()).build().unwrap();
    let tenants = Tenants::of(&host);
    let tokens = ["a", "b"].map(|name| {
        // The tenant exists from the second start on.
        let _ = tenants.create(name);
        tenants.create_token(name, &all_scopes(), "", None).unwrap().token
    });
    let known: Arc<dyn Identify> = Arc::new(tenants);
    (Served::over(host, folder, known, Limits::default()), tokens)
}

/// The test writes flows with costly schemas directly into the library's folder, as an older version could have stored
/// them. A server of this version refuses to store such flows.
#[test]
fn y3_a_server_restarts_with_a_costly_schema_in_its_library() {
    let mut folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("flows/.tenants/a/flows");
    fs::create_dir_all(&library).unwrap();
    for (name, schema, x) in [("doubling", doubling_schema(), json!("s")), ("ambiguous", ambiguous_schema(), deep(50))]
    {
        let mut flow = of(&schema);
        flow["flow"]["name"] = json!(name);
        flow["flow"]["triggers"] = json!([
            { "id": "each", "cron": "* * * * *", "input": { "x": x } },
            { "id": "after", "event": { "flow": "hello" }, "input": { "x": x } },
        ]);
        fs::write(library.join(format!("{name}.json")), flow.to_string()).unwrap();
    }
    fs::write(library.join("hello.json"), hello().to_string()).unwrap();
    let begin = Instant::now();
    for _ in 0..2 {
        let (served, [a, b]) = serve_folder(folder);
        let post = |token: &str, path: &str, body: &Value| call(&served, token, "POST", path, body);
        let listed = || call(&served, &a, "GET", "/v1/triggers", &Value::Null).body;
        assert!((0..20_000).any(|_| listed().contains("ambiguous")), "{}", listed());
        for (name, x) in [("doubling", json!("s")), ("ambiguous", deep(50))] {
            post(&a, &format!("/v1/triggers/{name}/each/fire"), &Value::Null);
            let refused = post(&a, "/v1/runs", &json!({ "flow": name, "input": { "x": x } }));
            assert!(refused.status == 422 && refused.body.contains(TOO_COSTLY), "{name}: {refused:?}");
        }
        // The end of the run of `a` starts the triggers `after`.
        for (token, flow) in [(&a, json!("hello")), (&b, hello()), (&a, hello()), (&b, hello())] {
            let ended = post(token, "/v1/runs?wait=true", &json!({ "flow": flow })).json();
            assert_eq!(ended["status"], "succeeded", "{ended}");
        }
        let runs = call(&served, &a, "GET", "/v1/runs", &Value::Null).json();
        let costly = runs["runs"].as_array().unwrap().iter().filter(|run| run["flow"] != "hello").count();
        assert_eq!(costly, 0, "{runs}");
        folder = served.end();
    }
    assert!(begin.elapsed() < 2 * MAX_ANSWER_TIME, "{:?}", begin.elapsed());
}

/// Returns a flow with this many scripts that do not end.
fn endless(scripts: usize) -> Value {
    let source = "while (true) {}\nexport async function run(services) { return 1 }";
    let script =
        |index: usize| json!({ "id": format!("s{index}"), "type": "script.run", "input": { "source": source } });
    json!({ "flow": { "name": "endless" }, "nodes": (0..scripts).map(script).collect::<Vec<_>>(), "edges": [] })
}

/// The flow has 60 scripts that do not end. If each script had a deadline of its own, this check would take ten
/// minutes.
#[test]
fn v2_scripts_of_a_check_share_a_deadline_and_are_charged_to_the_tenant() {
    let house = Household::new(Limits::default());
    // The pack that reads scripts is compiled before.
    let ready = json!({ "name": "ready", "script": "export async function run(services) { return 1 }" });
    let checked = house.call(&house.b, "POST", "/v1/validate", &json!({ "flow": ready })).json();
    assert_eq!(checked["valid"], true, "{checked}");
    let begin = Instant::now();
    let checked = house.call(&house.a, "POST", "/v1/validate", &json!({ "flow": endless(60) })).json();
    assert!(begin.elapsed() < 2 * MAX_ANSWER_TIME, "{:?}", begin.elapsed());
    let found = checked["diagnostics"].as_array().unwrap();
    let late = found.iter().filter(|found| found.to_string().contains("take longer than 10 s")).count();
    assert_eq!((&checked["valid"], late), (&json!(false), 60), "{checked}");
    let computed = |token: &str| {
        let usage = house.call(token, "GET", "/v1/usage", &Value::Null).json();
        usage["computeMs"].as_f64().unwrap()
    };
    // The usage is stored once a second. The scripts share this machine with other tests. The other tenant paid for the
    // compilation of the pack, which may have taken longer.
    assert!((0..20_000).any(|_| computed(&house.a) > 1_000.0), "{}", computed(&house.a));
}

#[test]
fn v2_checks_of_disconnected_clients_leave_permits_to_others() {
    let house = Household::new(Limits::default());
    let body = json!({ "flow": endless(60) }).to_string();
    let address = house.served.address;
    for path in ["/v1/validate", "/v1/runs", "/v1/flows", "/api/create_flow"] {
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            house.a,
            body.len()
        );
        leave_without_an_answer(address, &head, &body);
        let begin = Instant::now();
        house.canary();
        let listed = house.call(&house.b, "GET", "/v1/runs", &Value::Null);
        assert_eq!(listed.status, 200, "{path}: {listed:?}");
        assert!(begin.elapsed() < MAX_ANSWER_TIME, "{path}: {:?}", begin.elapsed());
    }
}

/// Sends a request more often than the server has threads for blocking work, and disconnects without reading an answer.
fn leave_without_an_answer(address: SocketAddr, head: &str, body: &str) {
    thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| {
                for _ in 0..30 {
                    let mut stream = connect(address);
                    stream.write_all(head.as_bytes()).unwrap();
                    stream.write_all(body.as_bytes()).unwrap();
                    stream.set_read_timeout(Some(Duration::from_millis(30))).unwrap();
                    let _ = stream.read(&mut [0]);
                }
            });
        }
    });
}
