//! Decisions that somebody makes who may not, too late, or twice.

use flowcell::server::Limits;
use serde_json::{Value, json};

use super::household::{Household, all_scopes};
use crate::runs::asks;

#[test]
fn t6_one_decision_is_taken_from_one_who_may() {
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
    // Of many who decide at once one has decided.
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
    // It rests until its time has come.
    let ended = std::iter::repeat_with(wait).find(|run| run["status"] != "parked").unwrap();
    assert_eq!((&ended["status"], &ended["error"]["code"]), (&json!("failed"), &json!("gate_timeout")), "{ended}");
    let late = house.call(&house.a, "POST", "/v1/runs/r/gates/ok/reply", &json!({ "answer": "yes" }));
    assert_eq!(late.fault(), (409, "run_not_active".to_owned()));
    let after = wait();
    assert_eq!((&after["status"], &after["outputs"]), (&ended["status"], &ended["outputs"]));
}
