//! Incidents of other servers, of tokens and of notifications.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use serde_json::{Value, json};

use super::{
    Person, assert_ended, assert_fires, done, fails, follow, metrics_token, post, scrape, scrape_above, scrape_with,
    scrape_without, status, tenant, value_of, wait_until,
};
use crate::{
    client::ask,
    kit::{stderr, stdout},
    outside::server::{Server, answer},
    server::{
        notify::Hook,
        process::{serve, stop},
    },
};

/// The number of runs by which a circuit breaker has refused one.
const MAX_RUNS: usize = 60;

/// A switch that a test and a server share.
fn switch() -> (Arc<AtomicBool>, Arc<AtomicBool>) {
    let switch = Arc::new(AtomicBool::new(false));
    (switch.clone(), switch)
}

#[test]
fn a_server_that_flows_call_and_that_fails() {
    let folder = tempfile::tempdir().unwrap();
    let (works, mended) = switch();
    let called = Server::start(move |_, _| match mended.load(Ordering::Acquire) {
        true => answer("200 OK", &[], "{}"),
        false => answer("503 Service Unavailable", &[], ""),
    });
    let allowed = called.address.to_string();
    let (child, address) = serve(folder.path(), &["--allow-private", &allowed]);
    let flow = |retry: Value| {
        let origin = called.origin();
        json!({ "flow": { "name": "calls" }, "nodes": [{
            "id": "get", "type": "http.request", "input": { "url": format!("{origin}/") }, "grants": { "http": [origin] },
            "policy": { "retry": retry },
        }] })
    };
    let once = json!({ "maxAttempts": 1 });
    let before = scrape(address, None);
    // The breaker opens after ten failures, and a late run may be its probe.
    let refused = (0..MAX_RUNS).map(|number| format!("r{number}")).find(|run| {
        let (_, ended) = post(address, "/v1/runs?wait=true", &json!({ "flow": flow(once.clone()), "runId": run }));
        assert_eq!(ended["status"], "failed", "{ended}");
        ended["error"]["code"] == "circuit_open"
    });
    let refused = refused.unwrap();
    let open = r#"flowcell_outbound_breakers_open{tenant="local"} 1"#;
    let during = scrape_with(address, None, open);
    assert_fires("FlowcellOriginFails", &[Some(&before), Some(&during)]);
    let listed = ask(address, "GET", "/v1/breakers", &[], "").json();
    assert_eq!(listed["breakers"][0]["origin"], called.origin(), "{listed}");

    works.store(true, Ordering::Release);
    // Requests leave again by themselves.
    let patient = flow(json!({ "maxAttempts": 10, "on": "any" }));
    let (_, first) = post(address, "/v1/runs?wait=true", &json!({ "flow": patient, "runId": "first" }));
    assert_eq!(first["status"], "succeeded", "{first}");
    let words = [("TENANT", "local"), ("RUN", &*refused)];
    let outputs = follow(folder.path(), "A server that flows call fails", &words, &[]);
    assert!(stdout(&outputs[0]).starts_with(&format!("{refused} ")), "{}", stdout(&outputs[0]));
    let repeated = ask(address, "GET", &format!("/v1/runs?retryOf={refused}"), &[], "").json();
    assert_eq!(repeated["runs"][0]["status"], "succeeded", "{repeated}");
    assert_ended("FlowcellOriginFails", &[Some(&during), Some(&scrape_without(address, None, open))]);
    assert_eq!(stop(child), Some(0));
}

#[test]
fn notifications_that_are_not_sent() {
    let folder = tempfile::tempdir().unwrap();
    let (works, mended) = switch();
    let hook =
        Hook::start(move |_| Some(if mended.load(Ordering::Acquire) { "200 OK" } else { "503 Service Unavailable" }));
    fs::write(folder.path().join("notify.yaml"), format!("targets:\n{}", hook.target("ops", ""))).unwrap();
    let (child, address) = Person::serve(folder.path(), &[]);
    let (_, ended) = post(address, "/v1/runs?wait=true", &json!({ "flow": fails("sells", "sold_out"), "runId": "f" }));
    assert_eq!(ended["status"], "failed", "{ended}");
    let failed = r#"flowcell_notifications_total{target="ops",outcome="failed"}"#;
    let before = scrape_above(address, failed, 1.0);
    let during = scrape_above(address, failed, value_of(&before, failed).unwrap() + 5.0);
    assert_fires("FlowcellNotificationsFail", &[Some(&before), Some(&during)]);
    works.store(true, Ordering::Release);
    let outputs = follow(folder.path(), "Notifications are not sent", &[("FILE", "notify.yaml")], &[]);
    assert!(stderr(&outputs[0]).contains("checked 1 target"), "{}", stderr(&outputs[0]));
    let after = scrape_with(address, None, r#"flowcell_notifications_total{target="ops",outcome="sent"} 1"#);
    assert_ended("FlowcellNotificationsFail", &[Some(&during), Some(&after)]);
    assert_eq!(status(address, "f"), "failed");
    assert_eq!(stop(child), Some(0));
}

#[test]
fn a_token_that_expires() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let lasting = tenant(folder, "acme");
    let metrics = metrics_token(folder);
    let created = done(folder, &["token", "create", "acme", "--expires", "2d", "--scopes", "run:read"]);
    let created: Value = serde_json::from_str(&created).unwrap();
    let ending = format!("Bearer {}", created["token"].as_str().unwrap());
    let use_token = |address, header: &str| ask(address, "GET", "/v1/runs", &[("Authorization", header)], "").status;
    let series = r#"flowcell_token_expiry_seconds{tenant="acme"}"#;
    let (child, address) = serve(folder, &[]);
    assert_eq!(use_token(address, &lasting), 200);
    let before = scrape(address, Some(&metrics));
    assert_eq!(use_token(address, &ending), 200);
    assert_eq!(stop(child), Some(0));
    // A process reads the tokens at its start, and then once a minute.
    let (child, address) = serve(folder, &[]);
    let during = scrape_with(address, Some(&metrics), &format!("{series} 17"));
    assert_fires("FlowcellTokenExpires", &[Some(&before), Some(&during)]);
    let id = created["id"].as_str().unwrap();
    let words = [("TENANT", "acme"), ("NAME", "reader-2"), ("SCOPES", "run:read"), ("ID", id)];
    let outputs = follow(folder, "A token expires", &words, &[]);
    assert!(stdout(&outputs[0]).contains(id), "{}", stdout(&outputs[0]));
    let new: Value = serde_json::from_str(&stdout(&outputs[1])).unwrap();
    assert_eq!(use_token(address, &format!("Bearer {}", new["token"].as_str().unwrap())), 200);
    wait_until("the end of the old token", || use_token(address, &ending) == 401);
    assert_eq!(stop(child), Some(0));
    let (child, address) = serve(folder, &[]);
    let ended = scrape_with(address, Some(&metrics), series);
    assert_ended("FlowcellTokenExpires", &[Some(&during), Some(&ended)]);
    assert_eq!(stop(child), Some(0));
}
