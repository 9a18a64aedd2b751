//! Checks every page with axe, the checker of the Web Content Accessibility Guidelines, in light and in dark colours.
//!
//! With `FLOWCELL_SCREENSHOTS=FOLDER` the test also writes a picture of each page into that folder.

use std::{net::SocketAddr, path::PathBuf};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::browser::Browser;
use crate::{
    client::ask,
    kit::{has_program, root, skip_without},
    server::process::{serve, stop},
};

/// Returns the text of axe, which lies beside the programs of its package manager.
fn axe() -> Option<String> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&paths).map(|folder| folder.join("../axe-core/axe.min.js"));
    let found = places.filter_map(|place: PathBuf| std::fs::read_to_string(place).ok()).next();
    if found.is_none() {
        skip_without("axe-core");
    }
    found
}

/// Sends a JSON body, and returns the answer.
fn post(address: SocketAddr, path: &str, body: &Value) -> Value {
    let answer = ask(address, "POST", path, &[], &body.to_string());
    assert!((200..300).contains(&answer.status), "{path}: {answer:?}");
    answer.json()
}

/// Stores flows and starts runs of each kind, so that no page is empty. Returns the ids of a failed run, a run that asks, and
/// one with passes.
fn fill(address: SocketAddr) -> [String; 3] {
    let order = json!({
        "flow": {
            "name": "order", "description": "Reserves, charges and ships an order.",
            "inputSchema": { "type": "object", "required": ["customer"], "properties": {
                "customer": { "type": "string", "description": "The name of the customer." },
                "express": { "type": "boolean" },
                "items": { "type": "array", "items": { "type": "string" } },
                "invoice": { "properties": { "kind": { "const": "file" }, "fileId": {} }, "required": ["kind", "fileId"] },
            } },
            "triggers": [{ "id": "nightly", "cron": "0 3 * * *" }],
        },
        "nodes": [
            { "id": "reserve", "type": "control.noop", "input": { "value": "{{ flow.input.customer }}" }, "undo": "release" },
            { "id": "release", "type": "control.noop" },
            { "id": "charge", "type": "control.noop" },
            { "id": "stock", "type": "control.noop" },
            { "id": "ship", "type": "control.fail", "join": "any", "input": { "code": "no_courier", "message": "No courier is free." } },
        ],
        "edges": ["reserve -> charge -> ship", "reserve -> stock -> ship"],
    });
    let mut earlier = order.clone();
    earlier["flow"]["description"] = "Charges and ships an order.".into();
    let gate = json!({ "id": "approve", "type": "control.gate",
        "input": { "prompt": "Publish the text?", "choices": ["publish", "discard"], "allowText": true } });
    let publish = json!({ "flow": { "name": "publish", "description": "Publishes a text after a person agrees." },
        "nodes": [gate, { "id": "out", "type": "control.noop" }], "edges": ["approve -> out"] });
    let many = json!({ "flow": { "name": "many", "description": "Checks each item of a list." }, "nodes": [
        { "id": "each", "type": "control.foreach", "input": { "list": (0..12).collect::<Vec<_>>(), "maxFailures": 9 },
            "body": ["fetch", "check"] },
        { "id": "fetch", "type": "control.noop", "input": { "value": "{{ each.item }}" } },
        { "id": "check", "type": "control.fail", "when": "each.item % 4 == 0", "input": { "code": "odd", "message": "Not this one." } },
        { "id": "report", "type": "control.noop" },
    ], "edges": ["each -> report", "fetch -> check"] });
    for flow in [earlier, order, publish, many] {
        post(address, "/v1/flows", &json!({ "flow": flow }));
    }
    let start = |flow: &str, input: Value| {
        let labels = json!({ "team": "billing" });
        let body = json!({ "flow": flow, "input": input, "labels": labels });
        post(address, "/v1/runs?wait=true", &body)["runId"].as_str().unwrap().to_owned()
    };
    let failed = start("order", json!({ "customer": "Ada" }));
    let asks = start("publish", json!({}));
    let passes = start("many", json!({}));
    post(
        address,
        "/v1/jobs",
        &json!({ "action": "label", "filter": { "flow": "order" }, "params": { "set": { "seen": "yes" } } }),
    );
    ask(address, "POST", "/v1/files?name=report.txt", &[("Content-Type", "application/octet-stream")], "hello");
    let key = json!({ "value": "a-secret-of-tests", "for": ["https://api.example.com"] });
    ask(address, "PUT", "/v1/secrets/API_KEY", &[], &key.to_string());
    let crm = json!({
        "kind": "oauth2", "secrets": { "clientSecret": "a-secret-of-tests" }, "for": ["https://api.example.com"],
        "settings": { "grant": "authorization_code", "tokenUrl": "https://login.example.com/token",
            "authorizeUrl": "https://login.example.com/authorize", "clientId": "flows", "scope": "read" },
    });
    ask(address, "PUT", "/v1/credentials/crm", &[], &crm.to_string());
    [failed, asks, passes]
}

#[test]
fn every_page_is_accessible_in_light_and_dark() {
    let Some(axe) = axe().filter(|_| has_program("chromium") && has_program("chromedriver")) else { return };
    let folder = tempfile::tempdir().unwrap();
    let (serving, address) = serve(folder.path(), &[]);
    let [failed, asks, passes] = fill(address);
    let assistant = std::fs::read_to_string(root().join("flows/agents/assistant.yaml")).unwrap();
    post(address, "/v1/runs?wait=true", &json!({ "flow": assistant, "runId": "talk" }));
    let agents = ask(address, "GET", "/v1/runs/talk/agents", &[], "").json();
    let agent = agents["agents"][0]["agentRunId"].as_str().unwrap().to_owned();
    let jobs = ask(address, "GET", "/v1/jobs", &[], "").json();
    let job = jobs["jobs"][0]["id"].as_str().unwrap().to_owned();
    let pages = [
        ("home", String::new()),
        ("runs", "/runs".into()),
        ("run-graph", format!("/runs/{failed}")),
        ("run-passes", format!("/runs/{passes}")),
        ("run-timeline", format!("/runs/{passes}/timeline")),
        ("run-tasks", format!("/runs/{passes}/list?under=each&order=urgent")),
        ("task", format!("/runs/{failed}/tasks/ship")),
        ("run-events", format!("/runs/{failed}/events")),
        ("run-logs", format!("/runs/{failed}/logs")),
        ("run-raw", format!("/runs/{failed}/raw")),
        ("run-asks", format!("/runs/{asks}")),
        ("run-agents", "/runs/talk/agents".into()),
        ("agent", format!("/runs/talk/agents/{agent}")),
        ("inbox", "/inbox".into()),
        ("bulk", "/jobs/new?status=failed&action=retry".into()),
        ("jobs", "/jobs".into()),
        ("job", format!("/jobs/{job}")),
        ("flows", "/flows".into()),
        ("flow", "/flows/order".into()),
        ("flow-diff", "/flows/order/diff".into()),
        ("flow-edit", "/flows/order/edit".into()),
        ("flow-new", "/edit".into()),
        ("start", "/flows/order/start".into()),
        ("catalog", "/catalog".into()),
        ("node-type", "/catalog/http.request".into()),
        ("packs", "/packs".into()),
        ("triggers", "/triggers".into()),
        ("secrets", "/secrets".into()),
        ("credentials", "/credentials?kind=hmac".into()),
        ("credential", "/credentials/crm".into()),
        ("credential-refused", "/connect/finish?state=x".into()),
        ("files", "/files".into()),
        ("usage", "/usage".into()),
        ("tokens", "/tokens".into()),
        ("operators", "/operators".into()),
        ("operators-runs", "/operators/runs".into()),
        ("operators-server", "/operators/server".into()),
        ("audit", "/audit".into()),
        ("manual", "/manual?q=retry".into()),
        ("manual-page", "/manual/retry".into()),
        ("login", "/login".into()),
        ("missing", "/nothing".into()),
    ];
    let pictures = std::env::var_os("FLOWCELL_SCREENSHOTS").map(PathBuf::from);
    let home = format!("http://flowcell.localhost:{}/console", address.port());
    let browser = Browser::start();
    browser.resize(1280);
    let mut violations = Vec::new();
    for scheme in ["light", "dark"] {
        browser.set_scheme(scheme);
        for (name, path) in &pages {
            browser.open(&format!("{home}{path}"));
            browser.wait_until("document.readyState === 'complete'");
            if let Some(folder) = &pictures {
                std::fs::create_dir_all(folder).unwrap();
                let picture = STANDARD.decode(browser.screenshot()).unwrap();
                std::fs::write(folder.join(format!("{name}-{scheme}.png")), picture).unwrap();
            }
            browser.execute(&axe, &json!([]));
            let found = browser.execute_async(
                "const done = arguments[arguments.length - 1]; \
                 axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'] }) \
                   .then((found) => done(found.violations.map((each) => \
                      [each.id, each.help, each.nodes.slice(0, 3).map((node) => node.html.slice(0, 200))])), \
                     (error) => done(String(error)));",
            );
            violations.extend((found != json!([])).then(|| format!("{name} in {scheme}: {found}")));
        }
    }
    assert!(violations.is_empty(), "{violations:#?}");
    let errors: Vec<_> = browser
        .errors()
        .into_iter()
        .filter(|error| !["/console/nothing", "/console/connect"].iter().any(|page| error.contains(page)))
        .collect();
    assert_eq!(errors, Vec::<String>::new());
    drop(browser);
    assert_eq!(stop(serving), Some(0));
}
