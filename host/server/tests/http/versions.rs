//! Retries of runs in another version of their flow.

use flowcell_platform::policy::Policy;
use serde_json::{Value, json};

use crate::{
    client::{Answer, Served},
    tenants::{call, served},
};

struct Caller<'a>(&'a Served, &'a str);

impl Caller<'_> {
    fn retry(&self, run: &str, body: &Value) -> Answer {
        call(self.0, self.1, "POST", &format!("/v1/runs/{run}/retry?wait=true"), body)
    }

    #[track_caller]
    fn post(&self, path: &str, body: &Value, status: u16) -> Value {
        let answer = call(self.0, self.1, "POST", path, body);
        assert_eq!(answer.status, status, "{path}: {answer:?}");
        answer.json()
    }
}

/// Returns a version of the flow `order`: `sum`, then `pay`, which fails or not, then `end`.
fn order(pay: &Value, schema: &Value) -> Value {
    let step = |id: &str, value: &str| json!({ "id": id, "type": "control.noop", "input": { "value": value } });
    json!({
        "flow": { "name": "order", "input": { "n": 7 }, "inputSchema": schema, "outputs": { "paid": "{{ end.value }}" } },
        "nodes": [step("sum", "{{ flow.input.n }}"), pay, step("end", "{{ pay }}")],
        "edges": [{ "from": "sum", "to": "pay" }, { "from": "pay", "to": "end" }],
    })
}

#[test]
fn a_failed_run_is_repeated_in_another_version_of_its_flow() {
    let (served, [token, other]) = served(&Policy::default());
    let caller = Caller(&served, &token);
    let fails = json!({ "id": "pay", "type": "control.fail", "input": { "message": "no money" } });
    let pays = json!({ "id": "pay", "type": "control.noop", "input": { "value": "{{ sum.value + 1 }}" } });
    let versions = [
        order(&fails, &json!({ "type": "object" })),
        order(&pays, &json!({ "type": "object" })),
        order(&pays, &json!({ "type": "object", "required": ["currency"] })),
    ];
    caller.post("/v1/flows", &json!({ "flow": versions[0] }), 201);
    let failed = caller.post("/v1/runs?wait=true", &json!({ "flow": "order", "runId": "r" }), 201);
    assert_eq!(failed["status"], "failed", "{failed}");
    for version in &versions[1..] {
        caller.post("/v1/flows", &json!({ "flow": version }), 201);
    }
    let plan = caller.retry("r", &json!({ "flowVersion": 2, "check": true }));
    let expected = json!({
        "version": 2,
        "kept": ["sum"],
        "runs": [
            { "node": "pay", "reason": "changed", "part": "type" },
            { "node": "end", "reason": "after", "after": "pay" },
        ],
        "skipped": [],
        "gone": [],
    });
    assert_eq!((plan.status, plan.json()), (200, expected));
    let again = caller.retry("r", &json!({ "flowVersion": 2, "runId": "again" }));
    let view = again.json();
    assert_eq!(
        (again.status, &view["status"], &view["outputs"]),
        (201, &json!("succeeded"), &json!({ "paid": { "value": 8 } }))
    );
    let view = call(&served, &token, "GET", "/v1/runs/again", &Value::Null).json();
    assert_eq!((&view["version"], &view["retryOf"]), (&json!(2), &json!("r")), "{view}");
    // The newest version needs another input.
    let refused = caller.retry("r", &json!({ "flowVersion": "latest" }));
    assert_eq!(refused.fault(), (422, "invalid_input".to_owned()));
    assert!(refused.json()["error"]["message"].as_str().unwrap().contains("currency"), "{refused:?}");
    for (body, fault) in [
        (json!({ "flowVersion": 9 }), (404, "flow_not_found")),
        (json!({ "flowVersion": 0 }), (404, "flow_not_found")),
        (json!({ "flowVersion": "newest" }), (400, "bad_request")),
        (json!({ "flowVersion": -1 }), (400, "bad_request")),
        (json!({ "check": true }), (400, "bad_request")),
        (json!({ "flowVersion": 2, "from": "nobody" }), (404, "node_not_found")),
        (json!({ "flowVersion": 2, "keepAnswers": true }), (400, "bad_request")),
        (json!({ "flowVersion": 2, "runId": "again" }), (409, "run_exists")),
    ] {
        let refused = caller.retry("r", &body);
        assert_eq!(refused.fault(), (fault.0, fault.1.to_owned()), "{body}");
    }
    // Another tenant has no such run, and its flow of the same name does not count.
    let stranger = Caller(&served, &other);
    stranger.post("/v1/flows", &json!({ "flow": versions[1] }), 201);
    assert_eq!(stranger.retry("r", &json!({ "flowVersion": 1 })).fault(), (404, "run_not_found".to_owned()));
    // A flow of a request has no versions.
    let inline = caller.post("/v1/runs?wait=true", &json!({ "flow": versions[0], "runId": "inline" }), 201);
    assert_eq!(inline["status"], "failed", "{inline}");
    for version in [json!("latest"), json!(1)] {
        let refused = caller.retry("inline", &json!({ "flowVersion": version }));
        assert_eq!(refused.fault(), (404, "flow_not_found".to_owned()), "{refused:?}");
    }
}
