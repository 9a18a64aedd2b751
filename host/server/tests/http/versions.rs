//! Retries of runs in another version of their flow.

use std::sync::{Arc, Mutex};

use flowcell_platform::{policy::Policy, tenants::Tenants};
use flowcell_server::{
    Limits,
    identity::{Identify, Scope},
};
use serde_json::{Value, json};

use crate::{
    client::{Answer, Served},
    stream::Stream,
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

#[test]
fn a_failed_run_is_repeated_in_a_version_with_other_names() {
    let (served, [token, other]) = served(&Policy::default());
    let caller = Caller(&served, &token);
    let flow = |[sum, pay]: [&str; 2], kind: &str, input: Value| {
        let (first, paid) = (format!("{{{{ flow.input.n + {sum}.value }}}}"), format!("{{{{ {pay} }}}}"));
        let input = if kind == "control.noop" { json!({ "value": first }) } else { input };
        json!({
            "flow": { "name": "order", "input": { "n": 7 }, "outputs": { "paid": paid } },
            "nodes": [
                { "id": sum, "type": "control.noop", "input": { "value": 1 } },
                { "id": pay, "type": kind, "input": input },
            ],
            "edges": [{ "from": sum, "to": pay }],
        })
    };
    caller.post("/v1/flows", &json!({ "flow": flow(["sum", "pay"], "control.fail", json!({ "message": "no" })) }), 201);
    let failed = caller.post("/v1/runs?wait=true", &json!({ "flow": "order", "runId": "r" }), 201);
    assert_eq!(failed["status"], "failed", "{failed}");
    caller.post("/v1/flows", &json!({ "flow": flow(["total", "charge"], "control.noop", json!({})) }), 201);
    let proposed = caller.retry("r", &json!({ "flowVersion": 2, "check": true })).json();
    assert_eq!((&proposed["kept"], &proposed["gone"]), (&json!([]), &json!(["sum", "pay"])), "{proposed}");
    let rename = json!({ "sum": "total", "pay": "charge" });
    let plan = caller.retry("r", &json!({ "flowVersion": 2, "rename": rename, "check": true }));
    let expected = json!({
        "version": 2,
        "kept": ["total"],
        "runs": [{ "node": "charge", "reason": "changed", "part": "type" }],
        "skipped": [],
        "gone": [],
        "renamed": [{ "node": "pay", "name": "charge" }, { "node": "sum", "name": "total" }],
    });
    assert_eq!((plan.status, plan.json()), (200, expected));
    for (rename, code) in [
        (json!({ "nobody": "charge" }), "rename_unknown"),
        (json!({ "pay": "nobody" }), "rename_missing"),
        (json!({ "sum": "charge", "pay": "charge" }), "rename_twice"),
    ] {
        for check in [true, false] {
            let refused = caller.retry("r", &json!({ "flowVersion": 2, "rename": rename, "check": check }));
            assert_eq!(refused.fault(), (409, "rename_refused".to_owned()), "{rename}");
            let error = &refused.json()["error"];
            assert_eq!(error["details"]["refused"][0]["obstacle"], code, "{error}");
        }
    }
    for (body, fault) in [
        (json!({ "rename": rename }), (400, "bad_request")),
        (json!({ "flowVersion": 2, "rename": [] }), (400, "bad_request")),
        (json!({ "flowVersion": 2, "rename": { "pay": 1 } }), (400, "bad_request")),
        (json!({ "flowVersion": 2, "rename": "pay=charge" }), (400, "bad_request")),
        (json!({ "flowVersion": 2, "renames": {} }), (400, "bad_request")),
        (json!({ "flowVersion": 2, "rename": rename, "from": "pay" }), (404, "node_not_found")),
    ] {
        assert_eq!(caller.retry("r", &body).fault(), (fault.0, fault.1.to_owned()), "{body}");
    }
    let stranger = Caller(&served, &other);
    let refused = stranger.retry("r", &json!({ "flowVersion": 2, "rename": rename }));
    assert_eq!(refused.fault(), (404, "run_not_found".to_owned()));
    let again = caller.retry("r", &json!({ "flowVersion": 2, "rename": rename, "from": "charge", "runId": "again" }));
    let view = again.json();
    assert_eq!((again.status, &view["outputs"]), (201, &json!({ "paid": { "value": 8 } })), "{view}");
}

/// Returns a version of the flow `asks`: `ask`, a question, then `pay`, which gives a value.
fn asks(value: u32, prompt: &str) -> Value {
    json!({
        "flow": { "name": "asks", "outputs": { "paid": "{{ pay.value }}" } },
        "nodes": [
            { "id": "ask", "type": "control.gate", "input": { "prompt": prompt, "choices": ["yes", "no"] } },
            { "id": "pay", "type": "control.noop", "input": { "value": value } },
        ],
        "edges": [{ "from": "ask", "to": "pay" }],
    })
}

/// Starts a server as [`served`] does, and stores a token of `a` that controls runs and starts none in `weak`.
fn served_with_token(weak: &Mutex<String>) -> (Served, [String; 2]) {
    let tokens = Mutex::new(Vec::new());
    let served = Served::built(
        |builder| builder,
        |host| {
            let tenants = Tenants::of(host);
            let scopes = |all: &[Scope]| all.iter().map(|scope| scope.name().to_owned()).collect::<Vec<_>>();
            let all: Vec<_> = Scope::of_tenants().collect();
            for name in ["a", "b"] {
                tenants.create(name).unwrap();
                let token = tenants.create_token(name, &scopes(&all), "", None).unwrap().token;
                tokens.lock().unwrap().push(token);
            }
            let some = scopes(&[Scope::RunRead, Scope::RunControl, Scope::GateDecide]);
            *weak.lock().unwrap() = tenants.create_token("a", &some, "", None).unwrap().token;
            let known: Arc<dyn Identify> = Arc::new(tenants);
            known
        },
        Limits::default(),
    );
    (served, tokens.into_inner().unwrap().try_into().unwrap())
}

#[test]
fn h1_a_parked_run_moves_to_another_version_of_its_flow() {
    let weak = Mutex::new(String::new());
    let (served, [token, other]) = served_with_token(&weak);
    let weak = weak.into_inner().unwrap();
    let caller = Caller(&served, &token);
    let migrate =
        |token: &str, run: &str, body: &Value| call(&served, token, "POST", &format!("/v1/runs/{run}/migrate"), body);
    for (value, prompt) in [(1, "Go on?"), (2, "Go on?"), (2, "Really?")] {
        caller.post("/v1/flows", &json!({ "flow": asks(value, prompt) }), 201);
    }
    for run in ["r", "s"] {
        let begun = json!({ "flow": "asks", "version": 1, "runId": run });
        assert_eq!(caller.post("/v1/runs?wait=true", &begun, 201)["status"], "parked");
    }
    let refused = migrate(&token, "r", &json!({ "to": 3 }));
    assert_eq!(refused.fault(), (409, "migration_refused".to_owned()));
    let why = &refused.json()["error"]["details"]["refused"][0];
    assert_eq!(
        (&why["task"], &why["obstacle"], &why["why"]["part"]),
        (&json!("ask"), &json!("in_progress"), &json!("input"))
    );
    // Another tenant has no such run. A token without the scope of a start, or with a wrong body, moves nothing.
    let stranger = Caller(&served, &other);
    stranger.post("/v1/flows", &json!({ "flow": asks(9, "Go on?") }), 201);
    for (token, body, fault) in [
        (&other, json!({ "to": "latest" }), (404, "run_not_found")),
        (&other, json!({ "to": 1, "check": true }), (404, "run_not_found")),
        (&weak, json!({ "to": 2 }), (403, "forbidden")),
        (&weak, json!({ "to": 2, "check": true }), (403, "forbidden")),
        (&token, json!({ "to": 9 }), (404, "flow_not_found")),
        (&token, json!({}), (400, "bad_request")),
        (&token, json!({ "to": 2, "renames": {} }), (400, "bad_request")),
        (&token, json!({ "to": 1 }), (409, "migration_refused")),
    ] {
        assert_eq!(migrate(token, "r", &body).fault(), (fault.0, fault.1.to_owned()), "{body}");
    }
    let view = |run: &str| call(&served, &token, "GET", &format!("/v1/runs/{run}"), &Value::Null).json();
    assert_eq!(view("r")["version"], 1);
    let plan = migrate(&token, "r", &json!({ "to": 2, "check": true }));
    let expected = json!({
        "runId": "r", "fromVersion": 1, "version": 2, "kept": [], "waiting": [], "gone": [], "refused": [],
        "moved": [{ "node": "ask", "state": "waiting" }],
        "starts": [{ "node": "pay", "reason": "changed", "part": "input" }],
    });
    assert_eq!((plan.status, plan.json()), (200, expected.clone()));
    assert_eq!(view("r")["version"], 1);
    // A listener that has read the events of the old version hears those of the new one, too.
    let bearer = format!("Bearer {token}");
    let mut listener = Stream::open(&served, "/v1/runs/r/events/stream", &[("Authorization", &bearer)]);
    while listener.next().unwrap().data["type"] != "harness:parked" {}
    let moved = migrate(&token, "r", &json!({ "to": 2 }));
    assert_eq!((moved.status, moved.json()), (200, expected));
    assert_eq!(view("r")["version"], 2);
    caller.post("/v1/runs/r/gates/ask/reply", &json!({ "answer": "yes" }), 200);
    caller.post("/v1/runs/s/gates/ask/reply", &json!({ "answer": "yes" }), 200);
    for (run, paid) in [("r", 2), ("s", 1)] {
        let ended = std::iter::repeat_with(|| view(run)).find(|view| view["status"] == "succeeded").unwrap();
        assert_eq!(ended["outputs"], json!({ "paid": paid }), "{run}");
    }
    let heard: Vec<_> = std::iter::from_fn(|| listener.next()).map(|sent| sent.data).collect();
    let seqs: Vec<_> = heard.iter().filter_map(|event| event["seq"].as_u64()).collect();
    assert!(seqs.windows(2).all(|pair| pair[1] == pair[0] + 1), "{seqs:?}");
    assert!(
        heard.iter().any(|event| event["type"] == "harness:migrated" && event["dropped"] == json!(["pay"])),
        "{heard:?}"
    );
    assert!(heard.iter().any(|event| event["type"] == "task:start" && event["nodeId"] == "pay"), "{heard:?}");
    assert_eq!(migrate(&token, "r", &json!({ "to": 1 })).fault(), (409, "migration_refused".to_owned()));
}

#[test]
fn a_run_moves_to_a_version_with_other_names_and_keeps_its_ids() {
    let weak = Mutex::new(String::new());
    let (served, [token, _]) = served_with_token(&weak);
    let caller = Caller(&served, &token);
    let flow = |ask: &str, pay: &str, value: u32| {
        let read = |path: String| format!("{{{{ {path} }}}}");
        let outputs = json!({ "said": read(format!("{ask}.response.choice")), "paid": read(format!("{pay}.value")) });
        json!({
            "flow": { "name": "asks", "outputs": outputs },
            "nodes": [
                { "id": ask, "type": "control.gate", "input": { "prompt": "Go on?", "choices": ["yes", "no"] } },
                { "id": pay, "type": "control.noop", "input": { "value": value } },
            ],
            "edges": [{ "from": ask, "to": pay }],
        })
    };
    for version in [flow("ask", "pay", 1), flow("confirm", "charge", 2)] {
        caller.post("/v1/flows", &json!({ "flow": version }), 201);
    }
    for run in ["r", "s", "t"] {
        let begun = json!({ "flow": "asks", "version": 1, "runId": run });
        assert_eq!(caller.post("/v1/runs?wait=true", &begun, 201)["status"], "parked");
    }
    let migrate = |run: &str, body: &Value| call(&served, &token, "POST", &format!("/v1/runs/{run}/migrate"), body);
    let view = |run: &str| call(&served, &token, "GET", &format!("/v1/runs/{run}"), &Value::Null).json();
    let proposed = migrate("r", &json!({ "to": 2, "check": true })).json();
    assert_eq!(
        proposed["similar"],
        json!([{ "node": "ask", "name": "confirm" }, { "node": "pay", "name": "charge" }]),
        "{proposed}"
    );
    for (rename, code) in [
        (json!({ "nobody": "charge" }), "rename_unknown"),
        (json!({ "pay": "nobody" }), "rename_missing"),
        (json!({ "pay": "charge", "ask": "charge" }), "rename_twice"),
    ] {
        let refused = migrate("r", &json!({ "to": 2, "rename": rename }));
        assert_eq!(refused.fault(), (409, "migration_refused".to_owned()));
        assert_eq!(refused.json()["error"]["details"]["refused"][0]["obstacle"], code);
    }
    for rename in [json!([]), json!({ "pay": 1 }), json!("pay=charge")] {
        let refused = migrate("r", &json!({ "to": 2, "rename": rename }));
        assert_eq!(refused.fault(), (400, "bad_request".to_owned()));
    }
    let rename = json!({ "ask": "confirm", "pay": "charge" });
    let moved = migrate("r", &json!({ "to": 2, "rename": rename })).json();
    let expected = json!({
        "runId": "r", "fromVersion": 1, "version": 2, "kept": [], "waiting": [], "gone": [], "refused": [],
        "starts": [{ "node": "pay", "reason": "changed", "part": "input" }],
        "moved": [{ "node": "ask", "state": "waiting" }],
        "renamed": [{ "node": "ask", "name": "confirm" }, { "node": "pay", "name": "charge" }],
    });
    assert_eq!(moved, expected);
    assert_eq!((&view("r")["version"], &view("r")["nodeNames"]), (&json!(2), &rename));
    assert!(view("s").get("nodeNames").is_none());
    // A job moves the other runs, and its preview checks them with the names.
    let job = |rename: Value| {
        let params = json!({ "to": 2, "rename": rename });
        json!({ "action": "migrate", "filter": { "flow": "asks", "version": 1 }, "params": params })
    };
    let preview = |rename: Value| caller.post("/v1/jobs?preview=true", &job(rename), 200)["moves"]["refused"].clone();
    assert_eq!(preview(json!({ "ask": "charge" })), json!({ "in_progress": 2 }));
    assert_eq!(preview(json!({ "asks": "charge" })), json!({ "rename_unknown": 2 }));
    assert_eq!(preview(rename.clone()), json!({}));
    let id = caller.post("/v1/jobs", &job(rename.clone()), 202)["id"].as_str().unwrap().to_owned();
    let done = call(&served, &token, "GET", &format!("/v1/jobs/{id}?wait=true"), &Value::Null).json();
    assert_eq!((&done["done"], &done["failures"]), (&json!(2), &json!({})), "{done}");
    let wrong = json!({ "action": "cancel", "filter": { "flow": "asks" }, "params": { "rename": rename } });
    assert_eq!(call(&served, &token, "POST", "/v1/jobs", &wrong).fault(), (400, "bad_request".to_owned()));
    // The question has the address that it had, and expressions read it by its new name.
    for run in ["r", "s", "t"] {
        caller.post(&format!("/v1/runs/{run}/gates/ask/reply"), &json!({ "answer": "yes" }), 200);
        let ended = std::iter::repeat_with(|| view(run)).find(|view| view["status"] == "succeeded").unwrap();
        assert_eq!(ended["outputs"], json!({ "said": "yes", "paid": 2 }), "{run}");
    }
    // An expression of a person has the names of the version of its place, and the address has the ids of the run.
    for (expression, task, value) in [
        ("confirm.response.choice", Some("pay"), json!("yes")),
        ("[confirm.response.choice, charge.value]", None, json!(["yes", 2])),
        ("flow.name", Some("ask"), json!("asks")),
    ] {
        let mut asked = json!({ "expression": expression, "runId": "r" });
        if let Some(task) = task {
            asked["task"] = task.into();
        }
        let answer = caller.post("/v1/eval", &asked, 200);
        assert_eq!(answer["value"], value, "{expression}: {answer}");
    }
}

#[test]
fn a_preview_names_the_runs_that_would_not_move_and_moves_none() {
    let weak = Mutex::new(String::new());
    let (served, [token, other]) = served_with_token(&weak);
    let weak = weak.into_inner().unwrap();
    let caller = Caller(&served, &token);
    for (value, prompt) in [(1, "Go on?"), (2, "Really?")] {
        caller.post("/v1/flows", &json!({ "flow": asks(value, prompt) }), 201);
    }
    for (run, version) in [("old", 1), ("new", 2), ("done", 1)] {
        let begun = json!({ "flow": "asks", "version": version, "runId": run });
        assert_eq!(caller.post("/v1/runs?wait=true", &begun, 201)["status"], "parked");
    }
    let view = |run: &str| call(&served, &token, "GET", &format!("/v1/runs/{run}"), &Value::Null).json();
    caller.post("/v1/runs/done/gates/ask/reply", &json!({ "answer": "yes" }), 200);
    std::iter::repeat_with(|| view("done")).find(|view| view["status"] == "succeeded").unwrap();
    let migrate = |to: u32| json!({ "action": "migrate", "filter": { "flow": "asks" }, "params": { "to": to } });
    let preview = |to: u32| caller.post("/v1/jobs?preview=true", &migrate(to), 200)["moves"].clone();
    let named = |moves: &Value| {
        let first = moves["first"].as_array().unwrap().iter();
        first.map(|refused| (refused["run"].clone(), refused["code"].clone())).collect::<Vec<_>>()
    };
    let refused = |reasons: [(&str, &str); 3]| reasons.map(|(run, code)| (json!(run), json!(code))).to_vec();
    // `old` asks another question in version 2, and `new` has that version.
    let to_2 = preview(2);
    assert_eq!(named(&to_2), refused([("done", "run_not_active"), ("new", "same_version"), ("old", "in_progress")]));
    assert!(to_2["first"][2]["message"].as_str().unwrap().contains("`ask`: it is waiting"), "{to_2}");
    assert_eq!((&to_2["checked"], &to_2["unchecked"]), (&json!(3), &json!(0)));
    assert_eq!(to_2["refused"], json!({ "run_not_active": 1, "same_version": 1, "in_progress": 1 }));
    let nowhere = preview(9);
    let unknown = refused([("done", "run_not_active"), ("new", "flow_not_found"), ("old", "flow_not_found")]);
    assert_eq!(named(&nowhere), unknown);
    assert_eq!(["old", "new", "done"].map(|run| view(run)["version"].clone()), [1, 2, 1].map(Value::from));
    // Other actions check no moves, another tenant has no such runs, and a token without the scope sees none.
    let cancel = json!({ "action": "cancel", "filter": { "flow": "asks" } });
    assert!(caller.post("/v1/jobs?preview=true", &cancel, 200).get("moves").is_none());
    let strange = call(&served, &other, "POST", "/v1/jobs?preview=true", &migrate(2)).json();
    assert_eq!(strange["moves"], json!({ "checked": 0, "unchecked": 0, "refused": {}, "first": [] }));
    let weakly = call(&served, &weak, "POST", "/v1/jobs?preview=true", &migrate(2));
    assert_eq!(weakly.fault(), (403, "forbidden".to_owned()));
}

#[test]
fn a_job_moves_the_runs_of_a_flow_and_reports_each_refusal() {
    let weak = Mutex::new(String::new());
    let (served, [token, other]) = served_with_token(&weak);
    let weak = weak.into_inner().unwrap();
    let caller = Caller(&served, &token);
    for (value, prompt) in [(1, "Go on?"), (2, "Go on?"), (2, "Really?")] {
        caller.post("/v1/flows", &json!({ "flow": asks(value, prompt) }), 201);
    }
    for (run, version) in [("r1", 1), ("r2", 1), ("r3", 3), ("done", 1)] {
        let begun = json!({ "flow": "asks", "version": version, "runId": run });
        assert_eq!(caller.post("/v1/runs?wait=true", &begun, 201)["status"], "parked");
    }
    let view = |run: &str| call(&served, &token, "GET", &format!("/v1/runs/{run}"), &Value::Null).json();
    let end = |run: &str| {
        caller.post(&format!("/v1/runs/{run}/gates/ask/reply"), &json!({ "answer": "yes" }), 200);
        std::iter::repeat_with(|| view(run)).find(|view| view["status"] == "succeeded").unwrap()["outputs"].clone()
    };
    end("done");
    let migrate = |to: u32| json!({ "action": "migrate", "filter": { "flow": "asks" }, "params": { "to": to } });
    let execute = |job: &Value| {
        let id = caller.post("/v1/jobs", job, 202)["id"].as_str().unwrap().to_owned();
        call(&served, &token, "GET", &format!("/v1/jobs/{id}?wait=true"), &Value::Null).json()
    };
    let amounts = |job: &Value| json!([job["state"], job["matched"], job["done"], job["skipped"], job["failures"]]);
    // A token that may not start runs moves none, and neither does the job of another tenant with a flow of this name.
    for body in [
        migrate(2),
        json!({ "action": "migrate", "filter": { "flow": "asks" }, "params": { "to": 2, "keepAnswers": true } }),
    ] {
        assert_eq!(call(&served, &weak, "POST", "/v1/jobs", &body).fault(), (403, "forbidden".to_owned()));
    }
    let stranger = Caller(&served, &other);
    stranger.post("/v1/flows", &json!({ "flow": asks(9, "Go on?") }), 201);
    stranger.post("/v1/jobs", &migrate(1), 202);
    let job = execute(&migrate(9));
    assert_eq!(amounts(&job), json!(["done", 4, 0, { "run_not_active": 1 }, { "flow_not_found": 3 }]), "{job}");
    let job = execute(&migrate(2));
    // `r3` asks another question in version 2.
    assert_eq!(amounts(&job), json!(["done", 4, 2, { "run_not_active": 1 }, { "in_progress": 1 }]), "{job}");
    let failure = &job["errors"][0];
    assert_eq!((&failure["run"], &failure["code"]), (&json!("r3"), &json!("in_progress")), "{job}");
    assert!(failure["message"].as_str().unwrap().contains("`ask`: it is waiting"), "{job}");
    // The moved runs may still go on until they wait again, and a batch that was cut at its time limit counts runs that
    // have the version already as done.
    let ended = |job: &Value| job["skipped"]["same_version"] == 2;
    let job = std::iter::repeat_with(|| execute(&migrate(2))).find(ended).unwrap();
    assert_eq!(amounts(&job)[3], json!({ "run_not_active": 1, "same_version": 2 }), "{job}");
    assert_eq!(["r1", "r2", "r3", "done"].map(|run| view(run)["version"].clone()), [2, 2, 3, 1].map(Value::from));
    assert_eq!([end("r1"), end("r3")], [json!({ "paid": 2 }), json!({ "paid": 2 })]);
}
