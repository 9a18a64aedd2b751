//! Decisions at gates that are not permitted, too late, or made twice.

use flowcell_server::Limits;
use serde_json::{Value, json};

use super::household::{Household, all_scopes};
use crate::samples::asks;

#[test]
fn t6_only_one_decision_of_a_permitted_caller_is_accepted() {
    let house = Household::new(Limits::default());
    let scopes: Vec<_> = all_scopes().into_iter().filter(|name| name != "gate:decide").collect();
    let watcher = house.tenants.create_token("a", &scopes, "", None).unwrap().token;
    let late = house.tenants.create_token("a", &all_scopes(), "", Some(0)).unwrap().token;
    let start = json!({ "flow": asks(), "runId": "r" });
    assert_eq!(house.call(&house.a, "POST", "/v1/runs?wait=true", &start).json()["status"], "parked");
    let reply = |token: &str, answer: &str| {
        let body = json!({ "answer": answer });
        let answer = house.call(token, "POST", "/v1/runs/r/gates/ok/reply", &body);
        if answer.status == 200 { (200, String::new()) } else { answer.fault() }
    };
    assert_eq!(reply(&house.b, "yes"), (404, "run_not_found".to_owned()));
    assert_eq!(reply(&watcher, "yes"), (403, "forbidden".to_owned()));
    assert_eq!(reply(&late, "yes"), (401, "unauthorized".to_owned()));
    assert_eq!(reply(&house.a, "yes, and delete everything"), (422, "answer_refused".to_owned()));
    // Many callers decide at the same time, and only one decision counts.
    let decided = std::thread::scope(|scope| {
        let all: Vec<_> = (0..16)
            .map(|number| {
                let (reply, token) = (&reply, &house.a);
                scope.spawn(move || reply(token, if number % 2 == 0 { "yes" } else { "no" }))
            })
            .collect();
        all.into_iter().map(|one| one.join().unwrap()).collect::<Vec<_>>()
    });
    assert_eq!(decided.iter().filter(|(status, _)| *status == 200).count(), 1, "{decided:?}");
    assert!(decided.iter().all(|(status, _)| [200, 409].contains(status)), "{decided:?}");
    let ended = house.call(&house.a, "POST", "/v1/runs?wait=true", &start).json();
    assert_eq!(ended["status"], "succeeded", "{ended}");
    let events = house.call(&house.a, "GET", "/v1/runs/r/events", &Value::Null).json();
    let replies = events["events"].as_array().unwrap().iter().filter(|event| event["type"] == "session:reply");
    assert_eq!(replies.count(), 1, "{events}");
    assert_eq!(reply(&house.a, "no").0, 409);
    house.canary();
}

#[test]
fn t6_a_decision_that_comes_too_late_changes_nothing() {
    let house = Household::new(Limits::default());
    let mut flow = asks();
    flow["nodes"][0]["input"]["timeoutMs"] = 1.into();
    let start = json!({ "flow": flow, "runId": "r" });
    let wait = || house.call(&house.a, "POST", "/v1/runs?wait=true", &start).json();
    // The run is parked until the gate times out.
    let ended = std::iter::repeat_with(wait).find(|run| run["status"] != "parked").unwrap();
    assert_eq!((&ended["status"], &ended["error"]["code"]), (&json!("failed"), &json!("gate_timeout")), "{ended}");
    let late = house.call(&house.a, "POST", "/v1/runs/r/gates/ok/reply", &json!({ "answer": "yes" }));
    assert_eq!(late.fault(), (409, "run_not_active".to_owned()));
    let after = wait();
    assert_eq!((&after["status"], &after["outputs"]), (&ended["status"], &ended["outputs"]));
}

#[test]
fn t6_a_question_shows_deceptive_characters_escaped() {
    let house = Household::new(Limits::default());
    let mut flow = asks();
    flow["nodes"][0]["input"]["prompt"] = "Pay \u{202e}000,1\u{202c} to pay\u{200b}pal?".into();
    let shown = "Pay \\u{202e}000,1\\u{202c} to pay\\u{200b}pal?";
    let started = house.call(&house.a, "POST", "/v1/runs?wait=true", &json!({ "flow": flow, "runId": "r" }));
    let told = |path: &str| house.call(&house.a, "GET", path, &Value::Null);
    for answer in [started, told("/v1/runs/r/gates"), told("/v1/runs/r/events")] {
        let escaped = serde_json::to_string(shown).unwrap();
        assert!(answer.body.contains(&escaped), "{answer:?}");
    }
}

#[test]
fn w2_a_reply_counts_for_the_question_that_it_names() {
    let house = Household::new(Limits::default());
    let start = json!({ "flow": asks(), "runId": "r" });
    let parked = house.call(&house.a, "POST", "/v1/runs?wait=true", &start).json();
    let listed = house.call(&house.a, "GET", "/v1/runs/r/gates", &Value::Null).json();
    let question = house.call(&house.a, "GET", "/v1/runs/r/gates/ok", &Value::Null).json();
    assert_eq!((&listed["waiting"][0]["digest"], &question["attempt"]), (&question["digest"], &json!(1)));
    assert_eq!(parked["waiting"][0]["digest"], question["digest"], "{parked}");
    let digest = question["digest"].as_str().filter(|digest| digest.len() == 32).unwrap();
    let reply = |body: Value| house.call(&house.a, "POST", "/v1/runs/r/gates/ok/reply", &body);
    let other = "0".repeat(32);
    for (body, part) in [
        (json!({ "answer": "yes", "digest": other }), digest),
        (json!({ "answer": "yes", "attempt": 2, "digest": digest }), "attempt 2"),
    ] {
        let refused = reply(body);
        assert_eq!(refused.fault(), (409, "gate_closed".to_owned()));
        assert!(refused.body.contains(part), "{refused:?}");
    }
    assert_eq!(reply(json!({ "answer": "yes", "attempt": 1, "digest": digest })).status, 200);
    let again = reply(json!({ "answer": "yes" }));
    assert!([409].contains(&again.status), "{again:?}");
    let events = house.call(&house.a, "GET", "/v1/runs/r/events", &Value::Null).json();
    let named = |event: &&Value| event["type"] == "session:reply" && event["digest"] == digest;
    assert_eq!(events["events"].as_array().unwrap().iter().filter(named).count(), 1, "{events}");
    let late = house.call(&house.a, "GET", "/v1/runs/r/gates/ok", &Value::Null);
    assert_eq!(late.fault(), (404, "gate_not_found".to_owned()));
    let hidden = house.call(&house.b, "GET", "/v1/runs/r/gates/ok", &Value::Null);
    assert_eq!(hidden.fault(), (404, "run_not_found".to_owned()));
}
