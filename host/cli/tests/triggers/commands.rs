//! Tests the commands and HTTP requests that show and change triggers.

use std::{path::Path, sync::Arc};

use flowcell::server::{Limits, identity::Local};
use serde_json::{Value, json};

use crate::{
    client::Served,
    kit::{Owner, flowcell, output_of, stderr, stdout},
    triggers::household::{builder, write},
};

fn json_of_command(folder: &Path, arguments: &[&str]) -> Value {
    let output = output_of(folder, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
    serde_json::from_str(&stdout(&output)).unwrap()
}

#[test]
fn triggers_are_bound_to_flows_on_the_command_line() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write(folder, "report", "{ id: nightly, cron: \"0 2 * * *\" }");
    let create = ["trigger", "create", "report", "noon", "--cron", "0 12 * * *", "--time-zone", "Europe/Berlin"];
    let made = json_of_command(folder, &[&create[..], &["--input", "{\"a\":1}"]].concat());
    assert_eq!(
        (&made["declared"], &made["enabled"], &made["input"]),
        (&json!(false), &json!(true), &json!({ "a": 1 }))
    );
    let again = output_of(folder, &create);
    assert!(!again.status.success() && stderr(&again).contains("already"), "{}", stderr(&again));
    let taken = output_of(folder, &["trigger", "create", "report", "nightly", "--webhook", "key"]);
    assert!(stderr(&taken).contains("already"), "{}", stderr(&taken));
    let wrong = output_of(folder, &["trigger", "create", "report", "x", "--cron", "0 12 * *"]);
    assert!(stderr(&wrong).contains("invalid cron expression"), "{}", stderr(&wrong));
    let scheme = |name| ["trigger", "create", "report", "pushed", "--webhook", "hook-key", "--scheme", name];
    let wrong = output_of(folder, &scheme("githup"));
    assert!(stderr(&wrong).contains("`scheme` must be one of: standard, github"), "{}", stderr(&wrong));
    let set = ["secret", "set", "hook-key", "--for", "webhook", "--from-env", "HOOK_KEY"];
    assert!(flowcell(folder).args(set).env("HOOK_KEY", "a-secret-of-github").status().unwrap().success());
    assert_eq!(
        json_of_command(folder, &scheme("github"))["webhook"],
        json!({ "secret": ["hook-key"], "scheme": "github" })
    );
    json_of_command(folder, &["trigger", "delete", "report", "pushed"]);
    let sum = [&scheme("hmac")[..], &["--header", "X-Sum", "--post-id", "/order/id"]].concat();
    assert_eq!(
        json_of_command(folder, &sum)["webhook"],
        json!({ "secret": ["hook-key"], "scheme": "hmac", "header": "X-Sum", "id": { "pointer": "/order/id" } })
    );
    json_of_command(folder, &["trigger", "delete", "report", "pushed"]);
    let basic = [&scheme("basic")[..], &["--user", "me", "--post-id", "X-Id"]].concat();
    assert_eq!(
        json_of_command(folder, &basic)["webhook"],
        json!({ "secret": ["hook-key"], "scheme": "basic", "user": "me", "id": { "header": "X-Id" } })
    );
    json_of_command(folder, &["trigger", "delete", "report", "pushed"]);
    for (odd, why) in [
        (&["--header", "Content-Length"][..], "cannot be `content-length`"),
        (&["--header", "X-Sum", "--user", "me"], "unknown key `user`"),
        (&[], "no `header`"),
    ] {
        let wrong = output_of(folder, &[&scheme("hmac")[..], odd].concat());
        assert!(!wrong.status.success() && stderr(&wrong).contains(why), "{}", stderr(&wrong));
    }
    let listed = json_of_command(folder, &["trigger", "list"]);
    let ids: Vec<_> = listed.as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["nightly", "noon"]);
    assert_eq!(json_of_command(folder, &["trigger", "disable", "report", "nightly"])["enabled"], false);
    let shown = json_of_command(folder, &["trigger", "show", "report", "nightly"]);
    assert!(shown["next"].is_null() && shown["declared"] == true, "{shown}");
    assert!(json_of_command(folder, &["trigger", "enable", "report", "nightly"])["next"].is_string());
    let kept = output_of(folder, &["trigger", "delete", "report", "nightly"]);
    assert!(stderr(&kept).contains("disable it"), "{}", stderr(&kept));
    json_of_command(folder, &["trigger", "delete", "report", "noon"]);
    assert!(stderr(&output_of(folder, &["trigger", "show", "report", "noon"])).contains("does not exist"));
}

#[test]
fn missing_objects_of_a_trigger_are_shown_and_logged() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write(
        folder,
        "report",
        "{ id: posted, webhook: { secret: nokey } }, { id: after, event: { flow: nobuild } }, { id: nightly, cron: \"0 2 * * *\" }",
    );
    let listed = json_of_command(folder, &["trigger", "list"]);
    let problems =
        |id: &str| listed.as_array().unwrap().iter().find(|one| one["id"] == id).unwrap()["problems"].to_string();
    assert!(problems("posted").contains("nokey") && problems("after").contains("nobuild"), "{listed}");
    assert_eq!(problems("nightly"), "null");
    // One of two secrets is gone, and the other one still counts.
    for name in ["first-key", "second-key"] {
        let set = ["secret", "set", name, "--for", "webhook", "--from-env", "HOOK_KEY"];
        assert!(flowcell(folder).args(set).env("HOOK_KEY", "a-secret-of-hooks").status().unwrap().success());
    }
    let create = ["trigger", "create", "report", "both", "--webhook", "first-key", "--webhook", "second-key"];
    assert!(json_of_command(folder, &create)["problems"].is_null());
    let removed = output_of(folder, &["secret", "rm", "second-key"]);
    assert!(removed.status.success(), "{}", stderr(&removed));
    let shown = json_of_command(folder, &["trigger", "show", "report", "both"]);
    let found = shown["problems"].as_array().map(Vec::len);
    assert!(found == Some(1) && shown["problems"].to_string().contains("second-key"), "{shown}");
    json_of_command(folder, &["trigger", "delete", "report", "both"]);
    let fired = output_of(folder, &["trigger", "fire", "report", "after"]);
    assert!(fired.status.success() && stderr(&fired).contains("`flowcell serve` starts the run"), "{}", stderr(&fired));
    let log = Owner::start(folder, &["serve", "--listen", "127.0.0.1:0"], "nobuild");
    drop(log);
}

#[test]
fn a_server_fires_triggers_on_request_and_after_runs() {
    let folder = tempfile::tempdir().unwrap();
    let host = builder().state_dir(folder.path()).build().unwrap();
    let served = Served::over(host, folder, Arc::new(Local), Limits::default());
    let flow = |name: &str| json!({ "flow": { "name": name }, "nodes": [{ "id": "say", "type": "control.noop" }] });
    for name in ["build", "tell"] {
        assert_eq!(served.post("/v1/flows", &json!({ "flow": flow(name) })).status, 201);
    }
    let bind = |flow: &str, trigger: Value| served.post("/v1/triggers", &json!({ "flow": flow, "trigger": trigger }));
    assert_eq!(bind("build", json!({ "id": "yearly", "cron": "0 0 1 1 *" })).status, 201);
    assert_eq!(bind("tell", json!({ "id": "after", "event": { "flow": "build" } })).status, 201);
    assert_eq!(bind("build", json!({ "id": "yearly", "cron": "0 0 1 1 *" })).fault(), (409, "trigger_exists".into()));
    let wrong = bind("build", json!({ "id": "x", "cron": "0 0 1 1 *", "timeZone": "Mars/Base" }));
    assert_eq!(wrong.fault(), (422, "invalid_trigger".into()));
    assert_eq!(wrong.json()["error"]["details"]["diagnostics"][0]["code"], "bad_time_zone");
    assert_eq!(bind("none", json!({ "id": "x", "cron": "0 0 1 1 *" })).fault(), (404, "flow_not_found".into()));
    let fired = served.post("/v1/triggers/build/yearly/fire", &json!({}));
    assert_eq!(fired.status, 202, "{fired:?}");
    let run = fired.json()["runId"].as_str().unwrap().to_owned();
    // The end of this run starts the other flow.
    let both = loop {
        let runs = served.get("/v1/runs?status=succeeded").json()["runs"].as_array().unwrap().clone();
        if runs.len() == 2 {
            break runs;
        }
        std::thread::yield_now();
    };
    assert!(both.iter().any(|row| row["runId"] == run.as_str()), "{both:?}");
    assert!(both.iter().any(|row| row["runId"].as_str().unwrap().starts_with("event.tell.after.1.")), "{both:?}");
    assert_eq!(served.ask("DELETE", "/v1/triggers/tell/after", "").status, 204);
    assert_eq!(served.get("/v1/triggers/tell/after").fault(), (404, "trigger_not_found".into()));
}
