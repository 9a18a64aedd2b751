//! Expensive schemas in flows of tenants, and checks whose clients have disconnected.

use std::{
    io::{Read, Write},
    net::SocketAddr,
    thread,
    time::{Duration, Instant},
};

use flowcell_server::Limits;
use serde_json::{Map, Value, json};

use super::household::Household;
use crate::client::connect;

/// The longest time for a check and its answer.
const LATEST: Duration = Duration::from_secs(30);

fn of(schema: &Value) -> Value {
    json!({ "flow": { "name": "costly", "inputSchema": schema }, "nodes": [{ "id": "a", "type": "control.noop" }], "edges": [] })
}

/// Returns a schema whose references unfold to 2^40 visits, for inputs `{ x }`.
fn doubling() -> Value {
    let part = |index: usize| {
        let next = json!({ "$ref": format!("#/$defs/a{}", index + 1) });
        (format!("a{index}"), json!({ "anyOf": [next, next] }))
    };
    let mut defs: Map<String, Value> = (0..40).map(part).collect();
    defs.insert("a40".into(), json!({ "type": "integer" }));
    json!({ "type": "object", "properties": { "x": { "$ref": "#/$defs/a0" } }, "$defs": defs })
}

/// Returns a schema with a cycle that has very many paths through a deep value.
fn ambiguous() -> Value {
    let way =
        |needs: &str| json!({ "type": "object", "required": [needs], "properties": { "x": { "$ref": "#/$defs/t" } } });
    let ways: Vec<_> = (0..6).map(|_| way("y")).chain([json!({ "type": "integer" })]).collect();
    json!({ "type": "object", "properties": { "x": { "$ref": "#/$defs/t" } }, "$defs": { "t": { "oneOf": ways } } })
}

fn deep(depth: usize) -> Value {
    (0..depth).fold(json!("s"), |inner, _| json!({ "x": inner, "y": 1 }))
}

#[test]
fn y3_an_input_that_costs_much_to_check_stops_nobody() {
    let house = Household::new(Limits::default());
    let begin = Instant::now();
    let validated = house.call(&house.a, "POST", "/v1/validate", &json!({ "flow": of(&doubling()) })).json();
    assert_eq!(
        (&validated["valid"], &validated["diagnostics"][0]["code"]),
        (&json!(false), &json!("schema_too_costly"))
    );
    let pattern = json!({ "properties": { "x": { "pattern": "^[ab]*a[ab]{5000}c" } } });
    let table = [
        (doubling(), json!("s"), "invalid_flow"),
        (ambiguous(), deep(90), "schema_too_costly"),
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
    assert!(begin.elapsed() < 4 * LATEST, "{:?}", begin.elapsed());
}

#[test]
fn y3_a_trigger_with_a_costly_input_holds_up_no_other_tenant() {
    let house = Household::new(Limits::default());
    let costly = of(&ambiguous());
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
        assert!(begin.elapsed() < LATEST, "the trigger of `b` waits");
        thread::sleep(Duration::from_millis(100));
    }
    let failed = house.call(&house.a, "GET", "/v1/runs", &Value::Null).json();
    assert_eq!(failed["runs"], json!([]));
}

#[test]
fn v2_checks_that_nobody_waits_for_leave_room_to_others() {
    let house = Household::new(Limits::default());
    let source = "while (true) {}\nexport async function run(services) { return 1 }";
    let script =
        |index: usize| json!({ "id": format!("s{index}"), "type": "script.run", "input": { "source": source } });
    let nodes: Vec<_> = (0..60).map(script).collect();
    let body = json!({ "flow": { "flow": { "name": "endless" }, "nodes": nodes, "edges": [] } }).to_string();
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
        assert!(begin.elapsed() < LATEST, "{path}: {:?}", begin.elapsed());
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
