//! Tests of `/metrics`: the numbers that it exports, and the data that it must not contain.

use std::sync::{Arc, Mutex};

use flowcell_platform::tenants::Tenants;
use flowcell_server::{Limits, identity::Identify};
use serde_json::{Value, json};

use crate::{
    client::Served,
    samples::{asks, hello},
    tenants::call,
};

/// Returns the value of a series.
fn number(text: &str, series: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok())
}

#[test]
fn metrics_count_work_and_do_not_contain_content() {
    let served = Served::local();
    let told = |served: &Served| served.get("/metrics");
    let before = told(&served);
    assert_eq!(before.status, 200);
    assert_eq!(before.header("content-type"), Some("application/openmetrics-text; version=1.0.0; charset=utf-8"));
    let refusing = json!({
        "flow": { "name": "refusing" },
        "nodes": [{ "id": "no", "type": "control.fail", "input": { "message": "canary-failure" } }],
    });
    for (flow, run, status) in
        [(hello(), "h", "succeeded"), (asks(), "canary-run", "parked"), (refusing, "f", "failed")]
    {
        let body = json!({ "flow": flow, "runId": run, "input": { "who": "canary-input" } });
        let answer = served.post("/v1/runs?wait=true", &body);
        assert_eq!((answer.status, answer.json()["status"].as_str()), (201, Some(status)), "{answer:?}");
    }
    assert_eq!(served.get("/v1/runs/canary-nowhere").status, 404);
    assert_eq!(served.get("/v1/runs/canary-run?canary-query=1").status, 400);
    assert_eq!(served.get("/canary-path").status, 404);
    let text = told(&served).body;
    let table = [
        (r#"flowcell_runs_started_total{tenant="local"}"#, 3.0),
        (r#"flowcell_runs_ended_total{tenant="local",status="succeeded"}"#, 1.0),
        (r#"flowcell_runs_ended_total{tenant="local",status="failed"}"#, 1.0),
        (r#"flowcell_run_duration_seconds_count{status="succeeded"}"#, 1.0),
        (r#"flowcell_http_request_duration_seconds_count{method="POST",route="/v1/runs",status="201"}"#, 3.0),
        (r#"flowcell_http_request_duration_seconds_count{method="GET",route="/v1/runs/{id}",status="404"}"#, 1.0),
        (r#"flowcell_http_request_duration_seconds_count{method="GET",route="other",status="404"}"#, 1.0),
        ("flowcell_http_requests_active", 1.0),
        ("flowcell_live_subscribers", 0.0),
        ("flowcell_runs_waiting", 0.0),
    ];
    for (series, expected) in table {
        assert_eq!(number(&text, series), Some(expected), "{series}\n{text}");
    }
    assert!(number(&text, "flowcell_store_commits_total").unwrap() >= 3.0, "{text}");
    assert!(text.contains(r#"flowcell_attempts_total{node_type="control.fail",outcome="failed"} 1"#), "{text}");
    assert!(!text.contains("canary"), "{text}");
}

#[test]
fn a_parked_run_that_is_cancelled_counts_as_ended() {
    let served = Served::local();
    let parked = served.post("/v1/runs?wait=true", &json!({ "flow": asks(), "runId": "g" }));
    assert_eq!(parked.json()["status"], "parked", "{parked:?}");
    assert_eq!(served.post("/v1/runs/g/cancel", &json!({})).status, 200);
    let ended = served.post("/v1/runs?wait=true", &json!({ "flow": asks(), "runId": "g" }));
    assert_eq!(ended.json()["status"], "cancelled", "{ended:?}");
    let text = served.get("/metrics").body;
    assert_eq!(number(&text, r#"flowcell_runs_ended_total{tenant="local",status="cancelled"}"#), Some(1.0), "{text}");
}

#[test]
fn a_request_keeps_its_id_or_gets_one() {
    let served = Served::local();
    let ask = |id: &str| crate::client::ask(served.address, "GET", "/healthz", &[("X-Request-Id", id)], "");
    assert_eq!(ask("req-1.a").header("x-request-id"), Some("req-1.a"));
    for strange in ["two words", "ä", "", &"x".repeat(129)] {
        let given = ask(strange);
        let name = given.header("x-request-id").unwrap();
        assert!(name.len() == 16 && name.bytes().all(|byte| byte.is_ascii_hexdigit()), "{strange}: {given:?}");
    }
}

/// Starts a server with two tenants. Returns their tokens and a token of the operators, all for metrics.
fn served_to_tenants() -> (Served, [String; 3]) {
    let known = Mutex::new(Vec::new());
    let served = Served::of(
        |host| {
            let tenants = Tenants::of(host);
            let scopes = ["metrics:read", "run:create"].map(str::to_owned);
            for name in ["acme", "acme-2"] {
                tenants.create(name).unwrap();
                known.lock().unwrap().push(tenants.create_token(name, &scopes, "", None).unwrap().token);
            }
            known.lock().unwrap().push(tenants.create_token("", &scopes[..1], "", None).unwrap().token);
            let known: Arc<dyn Identify> = Arc::new(tenants);
            known
        },
        Limits::default(),
    );
    (served, known.into_inner().unwrap().try_into().unwrap())
}

#[test]
fn h1_metrics_of_a_tenant_do_not_tell_of_others() {
    let (served, [first, second, operator]) = served_to_tenants();
    for (token, runs) in [(&first, 1), (&second, 2)] {
        for _ in 0..runs {
            assert_eq!(call(&served, token, "POST", "/v1/runs?wait=true", &json!({ "flow": hello() })).status, 201);
        }
    }
    let metrics = |token: &str| call(&served, token, "GET", "/metrics", &Value::Null);
    for (token, name, runs) in [(&first, "acme", 1.0), (&second, "acme-2", 2.0)] {
        let text = metrics(token).body;
        let started = format!(r#"flowcell_runs_started_total{{tenant="{name}"}}"#);
        assert_eq!(number(&text, &started), Some(runs), "{text}");
        let own = format!(r#"tenant="{name}""#);
        let foreign = text.lines().filter(|line| !line.starts_with('#') && !line.contains(&own));
        assert_eq!(foreign.collect::<Vec<_>>(), Vec::<&str>::new(), "{text}");
        assert!(text.ends_with("# EOF\n"), "{text}");
    }
    let text = metrics(&operator).body;
    for (series, expected) in [
        (r#"flowcell_runs_started_total{tenant="acme"}"#, 1.0),
        (r#"flowcell_runs_started_total{tenant="acme-2"}"#, 2.0),
        (r#"flowcell_http_request_duration_seconds_count{method="POST",route="/v1/runs",status="201"}"#, 3.0),
    ] {
        assert_eq!(number(&text, series), Some(expected), "{series}\n{text}");
    }
    // A token of the operators has no tenant, so it opens nothing else.
    for path in ["/v1/runs", "/v1/flows", "/v1/usage", "/v1/secrets"] {
        assert_eq!(
            call(&served, &operator, "GET", path, &Value::Null).fault(),
            (403, "forbidden".to_owned()),
            "{path}"
        );
    }
}

/// The store is read at the first request for metrics, and all parked runs are in it by then.
#[test]
fn h1_parked_runs_are_counted_for_their_tenant_and_the_operators() {
    let (served, [first, second, operator]) = served_to_tenants();
    let undo_fails = json!({
        "flow": { "name": "pay" },
        "nodes": [
            { "id": "book", "type": "control.noop", "undo": "unbook" },
            { "id": "unbook", "type": "control.fail", "input": { "message": "canary" } },
            { "id": "no", "type": "control.fail", "input": { "message": "canary" } },
        ],
        "edges": [{ "from": "book", "to": "no" }],
    });
    for (token, flow, status) in [
        (&first, asks(), "parked"),
        (&second, asks(), "parked"),
        (&second, asks(), "parked"),
        (&second, undo_fails, "needs_attention"),
        (&second, hello(), "succeeded"),
    ] {
        let answer = call(&served, token, "POST", "/v1/runs?wait=true", &json!({ "flow": flow }));
        assert_eq!(answer.json()["status"], status, "{answer:?}");
    }
    let text = |token: &str| call(&served, token, "GET", "/metrics", &Value::Null).body;
    let parked = |text: &str| {
        let mut lines: Vec<_> = text.lines().filter(|line| line.starts_with("flowcell_runs_parked{")).collect();
        lines.sort();
        lines.into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let expected = [
        r#"flowcell_runs_parked{tenant="acme",flow="asks",reason="gate"} 1"#,
        r#"flowcell_runs_parked{tenant="acme-2",flow="asks",reason="gate"} 2"#,
        r#"flowcell_runs_parked{tenant="acme-2",flow="pay",reason="undo_failed"} 1"#,
    ];
    let mut sorted = expected.to_vec();
    sorted.sort();
    let all = text(&operator);
    assert_eq!(parked(&all), sorted, "{all}");
    for gauge in ["flowcell_fleet_age_seconds", "flowcell_process_start_time_seconds", "flowcell_store_available"] {
        assert!(number(&all, gauge).is_some(), "{gauge}\n{all}");
    }
    for (token, name, runs, foreign) in
        [(&first, "acme", &expected[..1], "acme-2"), (&second, "acme-2", &expected[1..], "acme\"")]
    {
        let own = text(token);
        assert_eq!(parked(&own), runs, "{own}");
        assert!(!own.contains(foreign) && !own.contains("canary"), "{own}");
        let age = format!(r#"flowcell_runs_parked_oldest_seconds{{tenant="{name}",flow="asks",reason="gate"}}"#);
        assert!((0.0..600.0).contains(&number(&own, &age).unwrap()), "{own}");
    }
}
