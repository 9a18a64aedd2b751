//! Measures the console in a real browser, and prints the figures:
//!
//! ```sh
//! cargo test --release --package flowcell --test cli -- --ignored --nocapture server::console::speed
//! ```

use std::{net::SocketAddr, time::Instant};

use serde_json::{Value, json};

use super::browser::Browser;
use crate::{
    client::ask,
    server::process::{serve, stop},
};

/// Prints the measurements of a page: the time until it is loaded, its first paint, the time of scripts, the bytes
/// over the network, and the memory of scripts.
fn measure(browser: &Browser, name: &str, url: &str) {
    let before = browser.metric("ScriptDuration");
    let began = Instant::now();
    browser.open(url);
    let opened = began.elapsed();
    let seen = browser.execute_async(
        "const done = arguments[arguments.length - 1]; setTimeout(() => { \
           const paint = performance.getEntriesByName('first-contentful-paint')[0]; \
           const sent = [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]; \
           done([paint ? paint.startTime : -1, sent.reduce((sum, each) => sum + each.transferSize, 0), \
             document.querySelectorAll('*').length]); }, 300);",
    );
    let scripts = (browser.metric("ScriptDuration") - before) * 1_000.0;
    println!(
        "{name}: opened in {} ms, first paint {:.0} ms, scripts {scripts:.0} ms, {} bytes, {} elements, heap {:.1} MB",
        opened.as_millis(),
        seen[0].as_f64().unwrap_or_default(),
        seen[1],
        seen[2],
        browser.metric("JSHeapUsedSize") / 1e6,
    );
}

/// Stores a flow, runs it to its end, and returns the id of the run.
fn run(address: SocketAddr, flow: &Value) -> String {
    let stored = ask(address, "POST", "/v1/flows", &[], &json!({ "flow": flow }).to_string());
    assert_eq!(stored.status, 201, "{stored:?}");
    let start = json!({ "flow": flow["flow"]["name"] }).to_string();
    let started = ask(address, "POST", "/v1/runs?wait=true", &[], &start);
    assert_eq!(started.status, 201, "{started:?}");
    started.json()["runId"].as_str().unwrap().to_owned()
}

/// A flow of nodes in layers, each with edges to nodes of the next layer.
fn layered(name: &str, nodes: usize) -> Value {
    let each = 10;
    let edges: Vec<String> = (0..nodes - each)
        .flat_map(|at| [at + each, (at / each + 1) * each + (at + 3) % each].map(|to| format!("n{at} -> n{to}")))
        .collect::<std::collections::BTreeSet<_>>()
        .into_iter()
        .collect();
    let nodes: Vec<_> = (0..nodes).map(|at| json!({ "id": format!("n{at}"), "type": "control.noop" })).collect();
    json!({ "flow": { "name": name }, "nodes": nodes, "edges": edges })
}

/// A flow with one node of many passes.
fn loops(name: &str, passes: usize) -> Value {
    let items = format!("{{{{ range({passes}) }}}}");
    json!({ "flow": { "name": name, "outputs": {} }, "nodes": [
        { "id": "each", "type": "control.foreach", "input": { "list": items }, "body": ["one"] },
        { "id": "one", "type": "control.noop" },
    ] })
}

#[test]
#[ignore = "it measures, and checks nothing"]
fn the_speed_of_pages() {
    let folder = tempfile::tempdir().unwrap();
    let (serving, address) = serve(folder.path(), &[]);
    let home = format!("http://flowcell.localhost:{}/console", address.port());
    let small = run(address, &layered("small", 30));
    for _ in 0..60 {
        ask(address, "POST", "/v1/runs", &[], &json!({ "flow": "small" }).to_string());
    }
    let thousand = run(address, &layered("thousand", 1_000));
    let huge = run(address, &layered("huge", 10_000));
    let tasks = run(address, &loops("tasks", 10_000));
    let events = run(address, &loops("events", 20_000));
    let view = ask(address, "GET", &format!("/v1/runs/{events}"), &[], "").json();
    println!("the run with the most events has {}", view["events"]);
    let browser = Browser::start();
    browser.watch();
    browser.resize(1280);
    for (name, path) in [
        ("home, nothing cached", String::new()),
        ("home", String::new()),
        ("runs", "/runs".into()),
        ("run, 30 nodes", format!("/runs/{small}")),
        ("graph, 1,000 nodes", format!("/runs/{thousand}")),
        ("graph, 10,000 nodes", format!("/runs/{huge}")),
        ("tasks, 10,000 passes", format!("/runs/{tasks}/list?under=each")),
        ("timeline, 10,000 passes", format!("/runs/{tasks}/timeline")),
        ("events, latest", format!("/runs/{events}/events")),
        ("events, in the middle", format!("/runs/{events}/events?from=50000")),
        ("manual page", "/manual/limits".into()),
    ] {
        measure(&browser, name, &format!("{home}{path}"));
    }
    // The time of a key in the editor of a flow of 5,000 lines, with the work of the browser.
    let lines: String = (0..1_250)
        .map(|at| format!("  - id: n{at}\n    type: control.noop\n    input:\n      value: {at}\n"))
        .collect();
    let text = format!("flow: {{ name: long }}\nnodes:\n{lines}");
    let stored = ask(address, "POST", "/v1/flows", &[], &json!({ "flow": text }).to_string());
    assert_eq!(stored.status, 201, "{stored:?}");
    measure(&browser, "editor, 5,000 lines", &format!("{home}/flows/long/edit"));
    let keys = browser.execute(
        "const field = document.getElementById('text'); field.focus(); field.setSelectionRange(40, 40); const times = []; \
         for (let at = 0; at < 100; at++) { const began = performance.now(); document.execCommand('insertText', false, 'x'); \
         times.push(performance.now() - began) } return times.sort((a, b) => a - b)",
        &json!([]),
    );
    println!("a key in the editor: median {} ms, longest {} ms", keys[50], keys[99]);
    // A run that makes events as fast as it can, while the page of it is open.
    let start = json!({ "flow": "events" }).to_string();
    let started = ask(address, "POST", "/v1/runs", &[], &start).json();
    let id = started["runId"].as_str().unwrap();
    let began = Instant::now();
    browser.open(&format!("{home}/runs/{id}"));
    browser.execute(
        "window.longest = 0; new PerformanceObserver((list) => { for (const each of list.getEntries()) \
           window.longest = Math.max(window.longest, each.duration) }).observe({ entryTypes: ['longtask'] })",
        &json!([]),
    );
    browser.wait_until("document.querySelector('#head .state').textContent !== 'running'");
    let events = ask(address, "GET", &format!("/v1/runs/{id}"), &[], "").json()["events"].as_u64().unwrap();
    let rate = events as f64 / began.elapsed().as_secs_f64();
    let longest = browser.execute("return window.longest", &json!([]));
    println!(
        "live: {events} events, {rate:.0} a second, the longest task of the page {longest} ms (0: none over 50 ms)"
    );
    drop(browser);
    assert_eq!(stop(serving), Some(0));
}
