//! Runs: start, wait, commands and lists.

use std::sync::Arc;

use flowcell_server::{Limits, identity::Local};
use serde_json::{Value, json};

use crate::{
    client::{Served, ask},
    samples::{asks, hello},
};

#[test]
fn a_run_is_started_and_waited_for() {
    let served = Served::local();
    let answer =
        served.post("/v1/runs?wait=true", &json!({ "flow": hello(), "input": { "who": "Ada" }, "runId": "a" }));
    assert_eq!((answer.status, answer.header("location")), (201, Some("/v1/runs/a")), "{answer:?}");
    let run = answer.json();
    assert_eq!((&run["status"], &run["outputs"]["say"]["text"]), (&"succeeded".into(), &"Hello Ada".into()), "{run}");
    let shown = served.get("/v1/runs/a").json();
    assert_eq!(
        (&shown["status"], &shown["outputs"], &shown["flow"]),
        (&run["status"], &run["outputs"], &"hello".into())
    );
    let tree = served.get("/v1/runs/a/tree").json();
    assert_eq!((&tree["tasks"][0]["id"], &tree["tasks"][0]["status"]), (&"say".into(), &"succeeded".into()));
    let text = "flow: { name: hello }\nnodes: [{ id: a, type: control.noop }]\n";
    let answer = served.post("/v1/runs?wait=true", &json!({ "flow": text }));
    assert_eq!((answer.status, &answer.json()["status"]), (201, &"succeeded".into()), "{answer:?}");
    let answer = served.post("/v1/runs", &json!({ "flow": text }));
    assert_eq!((answer.status, &answer.json()["status"]), (201, &"running".into()), "{answer:?}");
}

#[test]
fn an_ended_run_is_deleted() {
    let served = Served::local();
    assert_eq!(served.post("/v1/runs?wait=true", &json!({ "flow": hello(), "runId": "r" })).status, 201);
    served.post("/v1/runs?wait=true", &json!({ "flow": asks(), "runId": "q" }));
    let delete = |run: &str| served.ask("DELETE", &format!("/v1/runs/{run}"), "");
    assert_eq!(delete("q").fault(), (409, "run_not_ended".into()));
    assert_eq!(delete("none").fault(), (404, "run_not_found".into()));
    let deleted = delete("r");
    assert_eq!((deleted.status, deleted.body.as_str()), (204, ""), "{deleted:?}");
    for path in ["/v1/runs/r", "/v1/runs/r/events", "/v1/runs/r/tree"] {
        assert_eq!(served.get(path).fault(), (404, "run_not_found".into()), "{path}");
    }
    assert_eq!(delete("r").fault(), (404, "run_not_found".into()));
    let again = served.post("/v1/runs", &json!({ "flow": hello(), "runId": "r" }));
    assert_eq!(again.fault(), (409, "run_removed".into()));
    assert_eq!(served.get("/v1/runs").json()["runs"].as_array().unwrap().len(), 1);
}

#[test]
fn a_store_without_room_refuses_new_runs_and_goes_on_with_others() {
    let mut host = None;
    let served = Served::of(
        |own| {
            host = Some(own.clone());
            Arc::new(Local)
        },
        Limits::default(),
    );
    let host = host.unwrap();
    let start = |run: &str, flow: Value| served.post("/v1/runs?wait=true", &json!({ "flow": flow, "runId": run }));
    assert_eq!(start("g", asks()).json()["status"], "parked");
    let store = host.store().unwrap();
    store.watch_room(u64::MAX);
    let refused = start("r", hello());
    assert_eq!(
        (refused.fault(), refused.header("retry-after")),
        ((503, "store_full".into()), Some("30")),
        "{refused:?}"
    );
    assert!(refused.body.contains("flowcell runs gc"), "{refused:?}");
    let ready = served.get("/readyz");
    assert_eq!((ready.fault(), ready.header("retry-after")), ((503, "store_full".into()), Some("30")), "{ready:?}");
    assert_eq!(served.get("/healthz").status, 200);
    assert_eq!(start("g", asks()).status, 200, "a run that the store has may be asked for again");
    assert_eq!(served.post("/v1/runs/g/gates/ok/reply", &json!({ "answer": "yes" })).status, 200);
    assert!(served.get("/v1/runs/g/events/stream").body.contains("harness:complete"));
    let metrics = served.get("/metrics").body;
    let free = metrics.lines().find_map(|line| line.strip_prefix("flowcell_store_free_bytes{} ")).unwrap();
    assert!(free.parse::<u64>().unwrap() > 0, "{free}");
    store.watch_room(0);
    assert_eq!((served.get("/readyz").status, start("r", hello()).status), (200, 201));
}

#[test]
fn the_inputs_of_a_task_are_shown_by_address_and_page() {
    let served = Served::local();
    let flow = json!({
        "flow": { "name": "given", "input": { "who": "world" } },
        "nodes": [{ "id": "again", "type": "control.loop", "input": { "while": "again.iteration < 3" }, "body": {
            "nodes": [{ "id": "say", "type": "control.noop", "input": { "value": "{{ flow.input.who }} {{ again.iteration }}" } }],
        } }],
    });
    assert_eq!(served.post("/v1/runs?wait=true", &json!({ "flow": flow, "runId": "r" })).status, 201);
    let shown = served.get("/v1/runs/r/tasks/again%5B2%5D.say").json();
    assert_eq!((&shown["runId"], &shown["nodeType"]), (&"r".into(), &"control.noop".into()), "{shown}");
    let attempt = &shown["attempts"][0];
    assert_eq!(
        (&attempt["input"]["value"], &attempt["inputDigest"]),
        (&"world 2".into(), &"matches".into()),
        "{shown}"
    );
    // The input of the loop differs after each pass.
    let page = served.get("/v1/runs/r/tasks/again?from=1&limit=2").json();
    let resumes: Vec<_> =
        page["attempts"].as_array().unwrap().iter().map(|attempt| attempt["resumes"].clone()).collect();
    assert_eq!((resumes, &page["next"]), (vec![json!(1), json!(2)], &3.into()), "{page}");
    assert!(served.get("/v1/runs/r/tasks/again?from=3").json().get("next").is_none());
    for (path, told) in [
        ("/v1/runs/r/tasks/say", "the addresses of the node include again[0].say, again[1].say, again[2].say"),
        ("/v1/runs/r/tasks/none", "the flow of the run `r` has no node at `none`"),
        ("/v1/runs/r/tasks/again%2Fsay", "no attempt at `again/say`"),
    ] {
        let answer = served.get(path);
        assert_eq!(answer.fault(), (404, "task_not_found".into()), "{path}");
        assert!(answer.json()["error"]["message"].as_str().unwrap().contains(told), "{answer:?}");
    }
    assert_eq!(served.get("/v1/runs/none/tasks/say").fault(), (404, "run_not_found".into()));
    assert_eq!(served.get("/v1/runs/r/tasks/again?limit=0").fault(), (400, "bad_request".into()));
}

#[test]
fn the_error_of_a_failed_run_is_shown() {
    let served = Served::local();
    let flow = json!({
        "flow": { "name": "fails" },
        "nodes": [{ "id": "no", "type": "control.fail", "input": { "message": "not today" } }],
    });
    let run = served.post("/v1/runs?wait=true", &json!({ "flow": flow, "runId": "f" })).json();
    assert_eq!((&run["status"], &run["error"]["task"]), (&"failed".into(), &"no".into()), "{run}");
    assert_eq!(served.get("/v1/runs/f").json()["error"], run["error"]);
}

#[test]
fn repeated_requests_start_one_run() {
    let served = Served::local();
    let ask_with = |key: &str, body: &Value| {
        ask(served.address, "POST", "/v1/runs?wait=true", &[("Idempotency-Key", key)], &body.to_string())
    };
    let body = json!({ "flow": hello(), "input": { "who": "Ada" } });
    let first = ask_with("k1", &body);
    let second = ask_with("k1", &body);
    assert_eq!((first.status, second.status), (201, 200), "{second:?}");
    assert_eq!(first.json()["runId"], second.json()["runId"]);
    let other = ask_with("k1", &json!({ "flow": hello(), "input": { "who": "Bob" } }));
    assert_eq!(other.fault(), (409, "idempotency_conflict".into()));
    assert_ne!(ask_with("k2", &body).json()["runId"], first.json()["runId"]);
    assert_eq!(served.get("/v1/runs").json()["runs"].as_array().unwrap().len(), 2);
    let named = served.post("/v1/runs?wait=true", &json!({ "flow": hello(), "runId": "r" }));
    let again = served.post("/v1/runs?wait=true", &json!({ "flow": hello(), "runId": "r" }));
    assert_eq!((named.status, again.status), (201, 200));
    let other = served.post("/v1/runs", &json!({ "flow": asks(), "runId": "r" }));
    assert_eq!(other.fault(), (409, "run_exists".into()));
}

#[test]
fn concurrent_requests_with_one_key_start_one_run() {
    let served = Served::local();
    let body = json!({ "flow": hello() }).to_string();
    let ids = std::thread::scope(|scope| {
        let one =
            || ask(served.address, "POST", "/v1/runs", &[("Idempotency-Key", "k")], &body).json()["runId"].clone();
        let all: Vec<_> = (0..8).map(|_| scope.spawn(one)).collect();
        all.into_iter().map(|asking| asking.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(ids.iter().all(|id| id.is_string() && *id == ids[0]), "{ids:?}");
    assert_eq!(served.get("/v1/runs").json()["runs"].as_array().unwrap().len(), 1);
}

#[test]
fn repeated_retries_with_one_key_begin_one_run() {
    let served = Served::local();
    for run in ["r", "s"] {
        let started = served.post("/v1/runs?wait=true", &json!({ "flow": hello(), "runId": run }));
        assert_eq!(started.status, 201, "{started:?}");
    }
    let retry = |run: &str, key: &str, body: &Value| {
        let path = format!("/v1/runs/{run}/retry?wait=true");
        ask(served.address, "POST", &path, &[("Idempotency-Key", key)], &body.to_string())
    };
    let ids = std::thread::scope(|scope| {
        let all: Vec<_> = (0..4).map(|_| scope.spawn(|| retry("r", "k", &json!({})))).collect();
        all.into_iter().map(|asking| asking.join().unwrap().json()["runId"].clone()).collect::<Vec<_>>()
    });
    assert!(ids.iter().all(|id| id.is_string() && *id == ids[0]), "{ids:?}");
    let again = retry("r", "k", &json!({}));
    assert_eq!((again.status, &again.json()["runId"]), (200, &ids[0]), "{again:?}");
    assert_eq!(served.get(&format!("/v1/runs/{}", ids[0].as_str().unwrap())).json()["retryOf"], "r");
    // Another body, another run, and the start of a run are other requests.
    let conflict = (409, "idempotency_conflict".to_owned());
    assert_eq!(retry("r", "k", &json!({ "from": "none" })).fault(), conflict);
    assert_eq!(retry("s", "k", &json!({})).fault(), conflict);
    let start = json!({ "flow": hello() }).to_string();
    let started = ask(served.address, "POST", "/v1/runs", &[("Idempotency-Key", "k")], &start);
    assert_eq!(started.fault(), conflict);
    for (key, body) in [("", json!({})), (&*"k".repeat(257), json!({})), ("other", json!({ "runId": "chosen" }))] {
        assert_eq!(retry("r", key, &body).fault(), (400, "bad_request".into()), "{key} {body}");
    }
    assert_eq!(served.get("/v1/runs").json()["runs"].as_array().unwrap().len(), 3);
    let other = retry("r", "k2", &json!({}));
    assert!(other.status == 201 && other.json()["runId"] != ids[0], "{other:?}");
    // The key counts when the repeated run is no longer there. A new key finds no run to repeat.
    assert_eq!(served.ask("DELETE", "/v1/runs/r", "").status, 204);
    let again = retry("r", "k", &json!({}));
    assert_eq!((again.status, &again.json()["runId"]), (200, &ids[0]), "{again:?}");
    assert_eq!(retry("r", "k", &json!({ "from": "none" })).fault(), conflict);
    assert_eq!(retry("r", "k3", &json!({})).fault(), (404, "run_not_found".into()));
}

#[test]
fn run_ids_reserved_for_triggers_and_keys_are_refused() {
    let served = Served::local();
    for id in
        ["cron.report.nightly.20260101T000000Z", "event.f.t.1.a", "hook.f.t.a", "manual.f.t.1", "idem-a", ".", ".."]
    {
        let refused = served.post("/v1/runs", &json!({ "flow": hello(), "runId": id }));
        assert_eq!(refused.fault(), (400, "bad_request".into()), "{id}");
    }
    assert_eq!(served.post("/v1/runs?wait=true", &json!({ "flow": hello(), "runId": "cron-1" })).status, 201);
    let taken = json!({ "runId": "hook.f.t.a" });
    assert_eq!(served.post("/v1/runs/cron-1/retry", &taken).fault(), (400, "bad_request".into()));
}

#[test]
fn a_decision_has_exactly_one_of_four_members() {
    let served = Served::local();
    served.post("/v1/runs?wait=true", &json!({ "flow": asks(), "runId": "g" }));
    let decide = |body: &Value| served.post("/v1/runs/g/tasks/ok/resolve", body);
    for body in [json!({}), json!({ "repeat": false }), json!({ "repeat": true, "fail": "x" }), json!({ "again": 1 })] {
        let refused = decide(&body);
        assert_eq!(refused.fault(), (400, "bad_request".into()), "{body}");
        assert!(refused.body.contains("exactly one of"), "{refused:?}");
    }
    // An output has the form that the node type promises, and the reason names what is wrong.
    let refused = decide(&json!({ "output": { "response": { "choice": "yes" } } }));
    assert_eq!(refused.fault(), (422, "answer_refused".into()));
    let why = "the output schema of `control.gate`: `response`: \"content\" is a required property";
    assert!(refused.json()["error"]["message"].as_str().unwrap().contains(why), "{refused:?}");
    // A valid decision is refused for another reason.
    assert_eq!(decide(&json!({ "output": { "response": { "content": 1 } } })).fault(), (409, "not_blocked".into()));
    assert_eq!(decide(&json!({ "reply": null })).fault(), (409, "not_blocked".into()));
}

#[test]
fn a_gate_is_answered() {
    let served = Served::local();
    let parked = served.post("/v1/runs?wait=true", &json!({ "flow": asks(), "runId": "g" })).json();
    assert_eq!((&parked["status"], &parked["waiting"][0]["address"]), (&"parked".into(), &"ok".into()), "{parked}");
    let gates = served.get("/v1/runs/g/gates").json();
    let gate = &gates["waiting"][0];
    assert_eq!((&gate["kind"], &gate["address"], &gate["prompt"]), (&"gate".into(), &"ok".into(), &"Go on?".into()));
    let refused = served.post("/v1/runs/g/gates/ok/reply", &json!({ "answer": "perhaps" }));
    assert_eq!(refused.fault(), (422, "answer_refused".into()));
    let told = served.post("/v1/runs/g/gates/ok/reply", &json!({ "answer": "yes" }));
    assert_eq!((told.status, &told.json()["accepted"]), (200, &true.into()), "{told:?}");
    // The same request again waits for the run, which continues.
    let done = served.post("/v1/runs?wait=true", &json!({ "flow": asks(), "runId": "g" })).json();
    assert_eq!((&done["status"], &done["outputs"]["said"]), (&"succeeded".into(), &"yes".into()), "{done}");
    assert_eq!(served.get("/v1/runs/g/gates").json()["waiting"], json!([]));
    let late = served.post("/v1/runs/g/gates/ok/reply", &json!({ "answer": "yes" }));
    assert_eq!(late.fault(), (409, "run_not_active".into()));
}

#[test]
fn a_run_is_cancelled_and_retried() {
    let served = Served::local();
    served.post("/v1/runs?wait=true", &json!({ "flow": asks(), "runId": "c" }));
    assert_eq!(served.ask("POST", "/v1/runs/c/cancel", "").status, 200);
    let ended = served.post("/v1/runs?wait=true", &json!({ "flow": asks(), "runId": "c" })).json();
    assert_eq!(ended["status"], "cancelled", "{ended}");
    assert_eq!(served.ask("POST", "/v1/runs/c/resume", "").fault(), (409, "run_not_active".into()));
    let again = served.post("/v1/runs/c/retry?wait=true", &json!({ "runId": "d" }));
    assert_eq!((again.status, &again.json()["status"]), (201, &"parked".into()), "{again:?}");
    assert_eq!(served.post("/v1/runs/c/retry", &json!({ "runId": "d" })).fault(), (409, "run_exists".into()));
    assert_eq!(served.post("/v1/runs/c/retry", &json!({ "from": "x" })).fault(), (404, "node_not_found".into()));
}

#[test]
fn an_event_wakes_a_run() {
    let served = Served::local();
    let flow = json!({
        "flow": { "name": "waits" },
        "nodes": [{ "id": "hold", "type": "control.wait", "input": { "until": "paid" } }],
    });
    let body = json!({ "flow": flow, "runId": "w" });
    let parked = served.post("/v1/runs?wait=true", &body).json();
    assert_eq!((&parked["status"], &parked["waiting"][0]["event"]), (&"parked".into(), &"paid".into()), "{parked}");
    assert_eq!(served.get("/v1/runs/w/gates").json()["waiting"][0]["event"], "paid");
    assert_eq!(served.post("/v1/runs/w/events/paid", &json!({ "payload": 7 })).status, 200);
    assert_eq!(served.post("/v1/runs?wait=true", &body).json()["status"], "succeeded");
}

#[test]
fn runs_are_listed_by_page() {
    let served = Served::local();
    for run in ["a", "b", "c"] {
        served.post("/v1/runs?wait=true", &json!({ "flow": hello(), "runId": run }));
    }
    served.post("/v1/runs?wait=true", &json!({ "flow": asks(), "runId": "p" }));
    let mut seen = Vec::new();
    let mut path = "/v1/runs?limit=3".to_owned();
    loop {
        let page = served.get(&path).json();
        seen.extend(page["runs"].as_array().unwrap().iter().map(|run| run["runId"].as_str().unwrap().to_owned()));
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/v1/runs?limit=3&cursor={next}");
    }
    assert_eq!(seen, ["p", "c", "b", "a"]);
    let of = |query: &str| served.get(&format!("/v1/runs?{query}")).json()["runs"].as_array().unwrap().len();
    assert_eq!((of("status=parked"), of("flow=hello"), of("status=running")), (1, 3, 0));
    for wrong in ["limit=0", "limit=501", "limit=x", "status=odd", "colour=red", "cursor=%20"] {
        assert_eq!(served.get(&format!("/v1/runs?{wrong}")).fault(), (400, "bad_request".into()), "{wrong}");
    }
}

#[test]
fn a_flow_in_a_request_reads_no_files_of_the_server() {
    let served = Served::local();
    let table = [
        json!({ "flow": { "name": "x", "packs": ["/etc/hostname"] }, "nodes": [{ "id": "a", "type": "control.noop" }] }),
        json!({ "flow": { "name": "x" }, "nodes": [{ "id": "a", "type": "control.noop", "promptFile": "./Cargo.toml" }] }),
        json!({ "flow": { "name": "x" }, "nodes": [{ "id": "a", "type": "control.subflow", "input": { "name": "hello" } }] }),
    ];
    for flow in table {
        let answer = served.post("/v1/runs", &json!({ "flow": flow }));
        assert_eq!(answer.fault(), (422, "invalid_flow".into()), "{flow}");
        let checked = served.post("/v1/validate", &json!({ "flow": flow })).json();
        assert_eq!(checked["valid"], false, "{checked}");
        assert!(checked["diagnostics"][0]["code"].is_string(), "{checked}");
    }
    assert_eq!(
        served.post("/v1/validate", &json!({ "flow": hello() })).json(),
        json!({ "valid": true, "diagnostics": [] })
    );
}

#[test]
fn the_catalog_is_served() {
    let served = Served::local();
    let nodes = served.get("/v1/nodes").json();
    let first = nodes["nodes"][0]["type"].as_str().unwrap().to_owned();
    assert_eq!(served.get(&format!("/v1/nodes/{first}")).json(), nodes["nodes"][0]);
    assert_eq!(served.get("/v1/nodes/acme.none").fault(), (404, "node_type_not_found".into()));
}

#[test]
fn a_run_shows_its_input_its_packs_and_what_it_waits_for() {
    let served = Served::local();
    let start = |run: &str, input: &Value| {
        let body = json!({ "flow": asks(), "runId": run, "input": input });
        assert_eq!(served.post("/v1/runs?wait=true", &body).status, 201);
    };
    let short = json!({ "who": "Ada" });
    start("short", &short);
    // Asked twice, because the second answer comes from memory.
    for _ in 0..2 {
        let shown = served.get("/v1/runs/short").json();
        assert_eq!((&shown["input"], &shown["inputCut"]), (&short, &Value::Null), "{shown}");
        assert_eq!(shown["waitsFor"], json!({ "reason": "gate", "task": "ok" }), "{shown}");
        let pack = &shown["packs"][0];
        assert_eq!((&pack["name"], pack["digest"].as_str().unwrap().len()), (&json!("control"), 64), "{shown}");
        assert!(pack["version"].is_string() && shown["packs"].as_array().unwrap().len() == 1, "{shown}");
    }
    let long = json!({ "who": "é".repeat(20_000) });
    start("long", &long);
    let shown = served.get("/v1/runs/long").json();
    let text = long.to_string();
    let cut = &shown["inputCut"];
    assert_eq!((&shown["input"], cut["bytes"].as_u64()), (&Value::Null, Some(text.len() as u64)), "{cut}");
    assert_eq!(cut["start"].as_str().unwrap(), text.chars().take(1_000).collect::<String>());
    assert_eq!(served.get("/v1/runs/long/input").json(), json!({ "runId": "long", "input": long }));
    assert_eq!(served.get("/v1/runs/none/input").fault(), (404, "run_not_found".to_owned()));
    // A list tells what a run waits for, and neither inputs nor packs.
    let listed = served.get("/v1/runs?status=parked").json();
    for run in listed["runs"].as_array().unwrap() {
        assert_eq!(run["waitsFor"]["task"], "ok", "{listed}");
        assert!(run["input"].is_null() && run["packs"].is_null(), "{listed}");
    }
    // The text of a wait is not the text of an error.
    assert_eq!(served.get("/v1/runs?text=gate").json()["runs"], json!([]));
    assert_eq!(served.get("/v1/runs?text=gate&status=parked").json()["runs"], json!([]));
    // A run that was answered waits for nothing.
    assert_eq!(served.post("/v1/runs/short/gates/ok/reply", &json!({ "answer": "yes" })).status, 200);
    assert_eq!(served.get("/v1/runs/short/events/stream").status, 200);
    let ended = served.get("/v1/runs/short").json();
    assert_eq!((&ended["status"], &ended["waitsFor"]), (&json!("succeeded"), &Value::Null), "{ended}");
    assert_eq!(ended["input"], short);
}
