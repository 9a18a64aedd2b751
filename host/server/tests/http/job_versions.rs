//! Jobs that repeat runs in another version of their flow.

use flowcell_platform::policy::Policy;
use serde_json::{Value, json};

use crate::{
    jobs::{amounts, execute, get, park, post},
    stream::Stream,
    tenants::served,
};

/// Returns a version of the flow `order`: a first node, and then one that fails or gives the value of the first one.
fn order([sum, pay]: [&str; 2], fails: bool, needs: &[&str]) -> Value {
    let (kind, input) = match fails {
        true => ("control.fail", json!({ "message": "no money" })),
        false => ("control.noop", json!({ "value": format!("{{{{ {sum}.value }}}}") })),
    };
    json!({
        "flow": { "name": "order", "inputSchema": { "type": "object", "required": needs }, "outputs": { "paid": format!("{{{{ {pay} }}}}") } },
        "nodes": [{ "id": sum, "type": "control.noop", "input": { "value": 1 } }, { "id": pay, "type": kind, "input": input }],
        "edges": [{ "from": sum, "to": pay }],
    })
}

#[test]
fn a_job_repeats_runs_in_another_version_and_its_preview_says_which_ones_it_cannot() {
    let (served, [a, _]) = served(&Policy::default());
    let publish = |flow: Value| assert_eq!(post(&served, &a, "/v1/flows", &json!({ "flow": flow })).status, 201);
    publish(order(["sum", "pay"], true, &[]));
    for run in ["r1", "r2"] {
        let started = post(&served, &a, "/v1/runs?wait=true", &json!({ "flow": "order", "runId": run })).json();
        assert_eq!(started["status"], "failed", "{started}");
    }
    let paid = json!({ "flow": "order", "runId": "r3", "input": { "currency": "EUR" } });
    assert_eq!(post(&served, &a, "/v1/runs?wait=true", &paid).json()["status"], "failed");
    publish(order(["total", "charge"], false, &[]));
    publish(order(["total", "charge"], false, &["currency"]));
    let failed = json!({ "flow": "order", "status": "failed" });
    let retry = |params: Value| json!({ "action": "retry", "filter": failed, "params": params });
    let preview = |job: &Value| {
        let seen = post(&served, &a, "/v1/jobs?preview=true", job).json();
        assert_eq!((&seen["runs"], &seen["moves"]), (&json!(3), &Value::Null), "{seen}");
        seen["retries"].clone()
    };
    assert_eq!(preview(&retry(json!({}))), Value::Null, "a repetition in the same version needs no check");
    let rename = json!({ "sum": "total", "pay": "charge" });
    let second = retry(json!({ "flowVersion": 2, "rename": rename }));
    let seen = preview(&second);
    assert_eq!(seen, json!({ "checked": 3, "unchecked": 0, "refused": {}, "first": [] }));

    // The newest version needs a member that only one of the runs has.
    let latest = retry(json!({ "flowVersion": "latest", "rename": rename }));
    let seen = preview(&latest);
    assert_eq!((&seen["checked"], &seen["refused"]), (&json!(3), &json!({ "invalid_input": 2 })), "{seen}");
    assert_eq!((&seen["first"][0]["run"], &seen["first"][1]["run"]), (&json!("r2"), &json!("r1")), "{seen}");
    assert!(seen["first"][0]["message"].as_str().unwrap().contains("currency"), "{seen}");
    for (params, code) in [
        (json!({ "flowVersion": 9 }), "flow_not_found"),
        (json!({ "flowVersion": 2, "rename": { "nobody": "charge" } }), "rename_unknown"),
        (json!({ "flowVersion": 2, "from": "nobody" }), "node_not_found"),
    ] {
        let job = retry(params);
        let [seen, ended] = [preview(&job)["refused"].clone(), execute(&served, &a, &job)];
        assert_eq!((&seen, &ended["failures"]), (&json!({ code: 3 }), &json!({ code: 3 })), "{ended}");
    }
    let job = execute(&served, &a, &latest);
    assert_eq!(amounts(&job), json!(["done", 3, 1, {}, 2]), "{job}");
    assert_eq!(job["failures"], json!({ "invalid_input": 2 }), "the preview has said so: {job}");
    assert_eq!(job["params"], latest["params"], "{job}");

    let job = execute(&served, &a, &second);
    assert_eq!(amounts(&job), json!(["done", 3, 3, {}, 0]), "{job}");
    for run in ["r1", "r2", "r3"] {
        let again = get(&served, &a, &format!("/v1/runs?retryOf={run}&version=2"))["runs"][0]["runId"].clone();
        let path = format!("/v1/runs/{}", again.as_str().unwrap());
        let bearer = format!("Bearer {a}");
        let mut stream = Stream::open(&served, &format!("{path}/events/stream"), &[("Authorization", &bearer)]);
        while stream.next().is_some() {}
        let view = get(&served, &a, &path);
        assert_eq!(
            (&view["status"], &view["outputs"]),
            (&json!("succeeded"), &json!({ "paid": { "value": 1 } })),
            "{view}"
        );
    }
    // A run that has not ended is refused.
    park(&served, &a, ["open".to_owned()].into_iter());
    let parked = json!({ "action": "retry", "filter": { "status": "parked" }, "params": { "flowVersion": "latest" } });
    let seen = post(&served, &a, "/v1/jobs?preview=true", &parked).json();
    assert_eq!(seen["retries"]["refused"], json!({ "run_not_ended": 1 }), "{seen}");
}
