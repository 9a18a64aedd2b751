//! Incidents of the server, its store, its tenants and their triggers.

use std::{fs, net::TcpStream};

use flowcell_runtime::sql::Dialect;
use serde_json::{Value, json};

use super::{
    Person, assert_ended, assert_fires, done, follow, kill, metrics_token, post, scrape, scrape_with, scrape_without,
    status, tenant, wait_until,
};
use crate::{
    client::ask,
    guests,
    kit::{Disk, flowcell, output_of, stdout},
    proxy::{Behaviour, Proxy},
    samples::{asks, hello},
    server::process::{serve, serve_by, serve_with_output, stop},
    servers,
    triggers::hooks::{headers_signed_by, now},
};

#[test]
fn a_server_that_does_not_answer() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (child, address) = serve(folder, &[]);
    assert!(post(address, "/v1/runs?wait=true", &json!({ "flow": asks(), "runId": "asks" })).0 < 300);
    let before = scrape(address, None);
    kill(child);
    assert!(TcpStream::connect(address).is_err());
    assert_fires("FlowcellDown", &[Some(&before), None]);
    let outputs = follow(folder, "The server does not answer", &[], &[]);
    assert!(outputs.iter().all(|output| output.status.success()), "{outputs:?}");
    let (child, address) = serve(folder, &[]);
    wait_until("the run", || status(address, "asks") == "parked");
    assert_ended("FlowcellDown", &[None, Some(&scrape(address, None))]);
    assert_eq!(stop(child), Some(0));
}

#[test]
fn a_tenant_that_takes_too_much() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let [hot, calm] = ["hot", "calm"].map(|name| tenant(folder, name));
    let (child, address) = serve(folder, &[]);
    let start = |token: &str, flow: &Value, run: &str| {
        let body = json!({ "flow": flow, "runId": run }).to_string();
        ask(address, "POST", "/v1/runs?wait=true", &[("Authorization", token)], &body)
    };
    for run in 0..12 {
        let started = start(&hot, &asks(), &format!("hot-{run}"));
        assert!(started.status < 300, "{started:?}");
    }
    fs::write(folder.join("limits.yaml"), "maxLiveRuns: 10\n").unwrap();
    let outputs = follow(folder, "A tenant takes too much", &[("TENANT", "hot"), ("RUN", "hot-0")], &[]);
    assert_eq!(outputs.len(), 4);
    wait_until("the limit", || start(&hot, &asks(), "one-more").fault() == (429, "quota_exceeded".into()));
    assert_eq!(start(&calm, &hello(), "calm").json()["status"], "succeeded");
    let cancelled = || ask(address, "GET", "/v1/runs/hot-0", &[("Authorization", &*hot)], "").json();
    wait_until("the end of the run", || cancelled()["status"] == "cancelled");
    assert_eq!(stop(child), Some(0));
}

#[test]
fn a_key_that_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let environment = [("VALUE", "hunter2-hunter2")];
    let set = ["secret", "set", "old", "--for", "https://api.example.com", "--from-env", "VALUE"];
    assert!(flowcell(folder).args(set).envs(environment).status().unwrap().success());
    fs::remove_file(folder.join(".flowcell/secret.key")).unwrap();
    let (child, _, said) = serve_with_output(folder, &[]);
    let words = [("TENANT", "local"), ("NAME", "new")];
    let outputs = follow(folder, "The key of the secrets is lost", &words, &environment);
    assert!(stdout(&outputs[0]).contains("old"), "{}", stdout(&outputs[0]));
    let secrets: Value = serde_json::from_str(&stdout(&output_of(folder, &["secret", "list"]))).unwrap();
    assert!(secrets.to_string().contains("new") && !secrets.to_string().contains("old"), "{secrets}");
    assert_eq!(stop(child), Some(0));
    drop(said);
}

#[test]
fn a_quota_that_pauses_runs() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let token = tenant(folder, "hot");
    let headers = [("Authorization", &*token)];
    fs::write(folder.join("quota.yaml"), "perDay: { events: 5, onExhausted: pause }\n").unwrap();
    done(folder, &["tenant", "policy", "hot", "--set", "quota.yaml"]);
    let (person, metrics) = (Person::beside(folder), metrics_token(folder));
    let (child, address) = Person::serve(folder, &[]);
    let before = scrape(address, Some(&metrics));
    let run = || ask(address, "GET", "/v1/runs/asks", &headers, "").json();
    let start = json!({ "flow": asks(), "runId": "asks" }).to_string();
    assert!(ask(address, "POST", "/v1/runs?wait=true", &headers, &start).status < 300);
    let answer = json!({ "answer": "yes" }).to_string();
    assert_eq!(ask(address, "POST", "/v1/runs/asks/gates/ok/reply", &headers, &answer).status, 200);
    wait_until("the pause", || run()["reason"] == "quota_exceeded");
    person.hears("quota", &[("tenant", "hot")]);
    let parked = r#"flowcell_runs_parked{tenant="hot",flow="asks",reason="quota_exceeded"} 1"#;
    let during = scrape_with(address, Some(&metrics), parked);
    assert_fires("FlowcellQuotaPausesRuns", &[Some(&before), Some(&during)]);
    fs::write(folder.join("limits.yaml"), "perDay: { events: 1000, onExhausted: pause }\n").unwrap();
    let outputs = follow(folder, "A quota pauses runs", &[("TENANT", "hot")], &[]);
    assert!(stdout(&outputs[0]).starts_with("asks "), "{}", stdout(&outputs[0]));
    wait_until("the end of the run", || run()["status"] == "succeeded");
    let ended = scrape_without(address, Some(&metrics), parked);
    assert_ended("FlowcellQuotaPausesRuns", &[Some(&during), Some(&ended)]);
    assert_eq!(stop(child), Some(0));
}

#[test]
fn posts_that_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let token = tenant(folder, "shop");
    let headers = [("Authorization", &*token)];
    let set = ["secret", "set", "hook-key", "--tenant", "shop", "--for", "webhook", "--from-env", "VALUE"];
    let old = [("VALUE", "an-old-key-of-many-characters")];
    assert!(flowcell(folder).args(set).envs(old).status().unwrap().success());
    let (person, metrics) = (Person::beside(folder), metrics_token(folder));
    let (child, address) = Person::serve(folder, &[]);
    let triggers = json!([{ "id": "hook", "webhook": { "secret": "hook-key" } }]);
    let flow = json!({
        "flow": { "name": "posted", "triggers": triggers },
        "nodes": [{ "id": "say", "type": "control.noop" }],
    });
    let stored = ask(address, "POST", "/v1/flows", &headers, &json!({ "flow": flow }).to_string());
    assert_eq!(stored.status, 201, "{stored:?}");
    let key = "the-key-of-the-sender-itself";
    let post = || {
        let signed = headers_signed_by(key, "m1", now(), "{}");
        let signed: Vec<_> = signed.iter().map(|(name, value)| (*name, value.as_str())).collect();
        ask(address, "POST", "/v1/hooks/shop/posted/hook", &signed, "{}").status
    };
    assert_eq!(post(), 401);
    let refused = |number| format!(r#"flowcell_webhook_posts_total{{tenant="shop",outcome="unsigned"}} {number}"#);
    let before = scrape_with(address, Some(&metrics), &refused(1));
    (0..7).for_each(|_| assert_eq!(post(), 401));
    person.hears("webhook_refused", &[("tenant", "shop"), ("flow", "posted")]);
    let during = scrape_with(address, Some(&metrics), &refused(8));
    assert_fires("FlowcellWebhookRefused", &[Some(&before), Some(&during)]);
    let words = [("TENANT", "shop"), ("FLOW", "posted"), ("ID", "hook"), ("NAME", "hook-key")];
    let outputs = follow(folder, "Posts to a trigger are refused", &words, &[("VALUE", key)]);
    assert!(stdout(&outputs[0]).contains("/v1/hooks/shop/posted/hook"), "{}", stdout(&outputs[0]));
    wait_until("an accepted post", || post() == 202);
    assert_ended("FlowcellWebhookRefused", &[Some(&during), Some(&scrape(address, Some(&metrics)))]);
    assert_eq!(stop(child), Some(0));
}

#[cfg(target_os = "linux")]
#[test]
fn a_disk_that_is_full() {
    let folder = tempfile::tempdir().unwrap();
    let Some(disk) = Disk::mount(256) else { return };
    let state = disk.path().join("state").display().to_string();
    let options = ["--state", &*state, "--min-free", "100"];
    let person = Person::beside(folder.path());
    let (child, address) = Person::serve(folder.path(), &options);
    let ready = || ask(address, "GET", "/readyz", &[], "").status;
    assert_eq!(ready(), 200);
    let before = scrape(address, None);
    let mut runs = 0;
    let full = std::iter::repeat_with(|| {
        runs += 1;
        let big = format!("{runs}{}", "x".repeat(1 << 20));
        let flow = json!({ "flow": { "name": "big" }, "nodes": [{ "id": "keep", "type": "control.noop", "input": { "value": big } }] });
        ask(address, "POST", "/v1/runs?wait=true", &[], &json!({ "flow": flow }).to_string())
    });
    let full = full.take(200).find(|answer| answer.status >= 300).unwrap();
    assert_eq!(full.fault(), (503, "store_full".into()), "{full:?}");
    // A sweep spares values that the same process has stored a short time ago.
    assert_eq!(stop(child), Some(0));
    let (child, address) = Person::serve(folder.path(), &options);
    let ready = || ask(address, "GET", "/readyz", &[], "").status;
    assert_eq!(ready(), 503);
    person.hears("store_trouble", &[]);
    let during = scrape(address, None);
    assert_fires("FlowcellStoreFull", &[Some(&before), Some(&during)]);
    follow(folder.path(), "The disk is full", &[("N", "0")], &[("FLOWCELL_STATE", &state)]);
    wait_until("free room", || ready() == 200);
    assert_ended("FlowcellStoreFull", &[Some(&during), Some(&scrape(address, None))]);
    let (_, after) = post(address, "/v1/runs?wait=true", &json!({ "flow": hello() }));
    assert_eq!(after["status"], "succeeded", "{after}");
    assert_eq!(stop(child), Some(0));
}

#[test]
fn a_database_that_is_away() {
    let Some(server) = servers::server(Dialect::Postgres) else { return };
    let folder = tempfile::tempdir().unwrap();
    let database = server.database();
    let (url, proxy) = (server.url(&database), Proxy::to(server.port));
    let person = Person::beside(folder.path());
    let (child, address) = Person::serve(folder.path(), &["--store", &server.url_by(proxy.port, &database)]);
    let (_, asked) = post(address, "/v1/runs?wait=true", &json!({ "flow": asks(), "runId": "asks" }));
    assert_eq!(asked["status"], "parked", "{asked}");
    let before = scrape(address, None);
    proxy.set_behaviour(Behaviour::Hole);
    let start = || post(address, "/v1/runs", &json!({ "flow": hello(), "runId": "later" }));
    let (refused, why) = start();
    assert_eq!((refused, &why["error"]["code"]), (503, &"store_unavailable".into()));
    assert_eq!(ask(address, "GET", "/healthz", &[], "").status, 200);
    person.hears("store_trouble", &[]);
    let during = scrape_with(address, None, "flowcell_store_available 0");
    assert_fires("FlowcellStoreUnavailable", &[Some(&before), Some(&during)]);
    proxy.set_behaviour(Behaviour::Carry);
    wait_until("a start", || start().0 < 300);
    let ended = scrape_with(address, None, "flowcell_store_available 1");
    assert_ended("FlowcellStoreUnavailable", &[Some(&during), Some(&ended)]);
    let outputs = follow(folder.path(), "The database is away", &[], &[("FLOWCELL_STORE", &url)]);
    assert!(!stdout(&outputs[0]).contains("asks"), "{}", stdout(&outputs[0]));
    assert_eq!(post(address, "/v1/runs/asks/gates/ok/reply", &json!({ "answer": "yes" })).0, 200);
    wait_until("the end of the run", || status(address, "asks") == "succeeded");
    assert_eq!(stop(child), Some(0));
}

#[cfg(target_os = "linux")]
#[test]
fn a_trigger_that_is_late() {
    const HOUR: u64 = 3_600;
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let token = tenant(folder, "shop");
    let (headers, metrics) = ([("Authorization", &*token)], metrics_token(folder));
    let (child, address) = serve(folder, &[]);
    let flow = json!({
        "flow": { "name": "report", "triggers": [{ "id": "hourly", "cron": "0 * * * *" }] },
        "nodes": [{ "id": "say", "type": "control.noop" }],
    });
    let stored = ask(address, "POST", "/v1/flows", &headers, &json!({ "flow": flow }).to_string());
    assert_eq!(stored.status, 201, "{stored:?}");
    // The tenant may have one run at a time, and this one does not end by itself.
    fs::write(folder.join("one.yaml"), "maxLiveRuns: 1\n").unwrap();
    done(folder, &["tenant", "policy", "shop", "--set", "one.yaml"]);
    let open = json!({ "flow": asks(), "runId": "open" }).to_string();
    assert_eq!(ask(address, "POST", "/v1/runs?wait=true", &headers, &open).status, 201);
    // The server knows the trigger as soon as it has its next time.
    let next = || ask(address, "GET", "/v1/triggers", &headers, "").json()["triggers"][0]["next"].clone();
    wait_until("the next time", || next().is_string());
    let before = scrape_with(address, Some(&metrics), r#"flowcell_triggers_late{tenant="shop"} 0"#);
    assert_eq!(stop(child), Some(0));
    // An hour later, at half past.
    let now = now();
    let ahead = HOUR + (HOUR + HOUR / 2 - now % HOUR) % HOUR;
    let mut command = flowcell(folder);
    command.env("LD_PRELOAD", guests::bad_machine()).env("BAD_CLOCK", ahead.to_string());
    let (child, address, _output) = serve_by(command, &[]);
    let late = r#"flowcell_triggers_late{tenant="shop"} 1"#;
    let during = scrape_with(address, Some(&metrics), late);
    assert_fires("FlowcellTriggerLate", &[Some(&before), Some(&during)]);
    // The cause: the run that holds the only place.
    assert_eq!(ask(address, "POST", "/v1/runs/open/cancel", &headers, "{}").status, 200);
    let words = [("TENANT", "shop"), ("FLOW", "report"), ("ID", "hourly")];
    let outputs = follow(folder, "A trigger is late", &words, &[]);
    assert!(stdout(&outputs[0]).contains("hourly"), "{}", stdout(&outputs[0]));
    let fired: Value = serde_json::from_str(&stdout(&outputs[2])).unwrap();
    let path = format!("/v1/runs/{}", fired["runId"].as_str().unwrap());
    wait_until("the run", || ask(address, "GET", &path, &headers, "").json()["status"] == "succeeded");
    let ended = scrape_with(address, Some(&metrics), r#"flowcell_triggers_late{tenant="shop"} 0"#);
    assert_ended("FlowcellTriggerLate", &[Some(&during), Some(&ended)]);
    assert_eq!(stop(child), Some(0));
}
