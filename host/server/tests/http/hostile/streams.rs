//! Streams that stay open after their token has become invalid.

use std::time::Duration;

use flowcell_server::Limits;
use serde_json::json;

use super::household::Household;
use crate::{live::Socket, samples::asks, stream::Stream};

#[test]
fn h1_streams_end_with_the_token_that_opened_them() {
    let house = Household::new(Limits { heartbeat: Duration::from_millis(50), ..Limits::default() });
    let ends = [
        ("revoked", Box::new(|id: &str| house.tenants.revoke_token(id).unwrap()) as Box<dyn Fn(&str)>),
        ("disabled", Box::new(|_: &str| house.tenants.enable("a", false).unwrap())),
    ];
    for (run, end) in ends {
        let body = json!({ "flow": asks(), "runId": run });
        assert_eq!(house.call(&house.a, "POST", "/v1/runs?wait=true", &body).status, 201);
        let scopes = ["run:read", "run:control", "gate:decide"].map(str::to_owned);
        let token = house.tenants.create_token("a", &scopes, "", None).unwrap();
        let bearer = format!("Bearer {}", token.token);
        let bearer = [("Authorization", bearer.as_str())];
        let path = |what: &str| format!("/v1/runs/{run}/{what}");
        let mut hears = Stream::open(&house.served, &path("events/stream"), &bearer);
        let mut speaks = Socket::with(&house.served, &path("socket"), &bearer);
        let mut waits = Socket::with(&house.served, &path("socket"), &bearer);
        speaks.say(&json!({ "verb": "emit", "name": "e", "id": 1 }));
        while speaks.hear().unwrap()["type"] != "channel:answer" {}
        end(&token.id);
        // The server refuses its commands, unless it has closed the connection before.
        speaks.say(&json!({ "verb": "reply", "gate": "ok", "answer": "yes", "id": 2 }));
        let refused = std::iter::from_fn(|| speaks.hear()).find(|said| said["id"] == 2);
        assert!(refused.is_none_or(|said| said["error"]["code"] == "unauthorized"), "{run}");
        // Both streams end although the run has not ended.
        while waits.hear().is_some() {}
        while hears.next().is_some() {}
        house.tenants.enable("a", true).unwrap();
        assert_eq!(house.call(&house.a, "GET", &path("tree"), &json!(null)).json()["tasks"][0]["status"], "waiting");
    }
}

#[test]
fn t6_decisions_over_a_socket_are_in_the_audit_log() {
    let house = Household::new(Limits::default());
    let body = json!({ "flow": asks(), "runId": "r" });
    assert_eq!(house.call(&house.a, "POST", "/v1/runs?wait=true", &body).status, 201);
    let bearer = format!("Bearer {}", house.a);
    let mut socket = Socket::with(&house.served, "/v1/runs/r/socket", &[("Authorization", &bearer)]);
    socket.say(&json!({ "verb": "reply", "gate": "ok", "answer": "yes" }));
    while socket.hear().is_some() {}
    let noted = house.tenants.audit("a", 0, 100).unwrap();
    let decided: Vec<_> = noted.iter().filter(|entry| entry.action == "gate.reply").collect();
    assert_eq!(decided.len(), 1, "{noted:?}");
    assert_eq!(&*decided[0].subject, "r/ok");
}
