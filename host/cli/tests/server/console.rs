//! Tests the console in a real browser, by keyboard alone: login by a link, a start from the form, a run that changes while
//! it is watched, and an answer in the inbox.

mod access;
mod agents;
mod beside;
pub(super) mod browser;
mod bulk;
mod connect;
mod editor;
mod kept;
mod keyboard;
mod speed;

use std::path::Path;

use browser::Browser;
use serde_json::{Value, json};

use crate::{
    kit::{has_program, output_of, stderr, stdout},
    server::process::{serve, stop},
};

/// The pages that are looked at in each width.
const PAGES: [&str; 13] = [
    "",
    "/runs",
    "/inbox",
    "/flows",
    "/flows/publish",
    "/flows/publish/start",
    "/flows/publish/edit",
    "/edit",
    "/catalog",
    "/secrets",
    "/credentials?kind=oauth2",
    "/usage",
    "/manual/limits",
];

/// Runs a command, and returns its output.
fn run(folder: &Path, arguments: &[&str]) -> String {
    let output = output_of(folder, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
    stdout(&output).trim().to_owned()
}

fn store_flow(folder: &Path) {
    let flow = json!({
        "flow": {
            "name": "publish", "description": "Publishes a text after a person agrees.",
            "inputSchema": { "type": "object", "required": ["text"], "properties": { "text": { "type": "string" } } },
        },
        "nodes": [
            { "id": "approve", "type": "control.gate",
                "input": { "prompt": "Publish {{ flow.input.text }}?", "choices": ["publish", "discard"] } },
            { "id": "out", "type": "control.noop" },
        ],
        "edges": [{ "from": "approve", "to": "out" }],
    });
    std::fs::write(folder.join("publish.json"), flow.to_string()).unwrap();
    run(folder, &["tenant", "create", "acme"]);
    run(folder, &["flows", "create", "publish.json", "--tenant", "acme"]);
}

/// Waits until the page of a run shows this state, without loading the page.
fn wait_for_state(browser: &Browser, state: &str) {
    browser.execute("window.isSamePage = true", &json!([]));
    browser.wait_until(&format!("document.querySelector('#head .state').textContent === '{state}'"));
    assert_eq!(browser.execute("return window.isSamePage", &json!([])), json!(true), "the page was loaded again");
}

#[test]
fn a_person_logs_in_starts_a_flow_watches_it_and_answers() {
    if !has_program("chromium") || !has_program("chromedriver") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    store_flow(folder);
    let (serving, address) = serve(folder, &[]);
    let link = run(folder, &["console", "--tenant", "acme"]);
    assert!(link.starts_with(&format!("http://flowcell.localhost:{}/console/login#fcc_", address.port())), "{link}");
    let home = link.split_once("/login").unwrap().0.to_owned();
    let browser = Browser::start();

    browser.open(&format!("{home}/runs"));
    browser.wait_until("document.title === 'Log in · Flowcell'");
    browser.open(&link);
    browser.wait_until("document.title === 'Home · Flowcell'");
    assert_eq!(
        browser.execute("return location.hash + document.cookie", &json!([])),
        json!(""),
        "no script reads the code or the token"
    );

    // From the list to the form.
    browser.keys("gf");
    browser.wait_until("document.title === 'Flows · Flowcell'");
    browser.keys("j");
    browser.keys("\u{e007}");
    browser.wait_until("document.title === 'publish · Flowcell'");
    browser.enter("a.button");
    browser.wait_until("document.title === 'Start publish · Flowcell'");
    browser.write("#field\\/text", "<b>news</b>");
    browser.enter("main form button.primary");
    browser.wait_until("location.pathname.startsWith('/console/runs/')");
    wait_for_state(&browser, "parked");
    browser.wait_until("document.querySelector('.prompt').textContent === 'Publish <b>news</b>?'");
    let first = browser.execute("return location.pathname.split('/').pop()", &json!([]));
    let first = first.as_str().unwrap();

    // An answer from elsewhere changes the page that is watched.
    run(folder, &["answer", first, "approve", "publish", "--tenant", "acme"]);
    wait_for_state(&browser, "succeeded");
    browser.wait_until("document.querySelectorAll('#picture .node.good').length === 2");

    browser.open(&format!("{home}/flows/publish/start"));
    browser.write("#field\\/text", "more news");
    browser.enter("main form button.primary");
    browser.wait_until("location.pathname.startsWith('/console/runs/')");
    wait_for_state(&browser, "parked");
    browser.keys("gi");
    browser.wait_until("document.title === 'Inbox · Flowcell'");
    browser.keys("2");
    browser.wait_until("document.activeElement.value === 'discard'");
    browser.keys("\u{e007}");
    browser.wait_until("document.body.textContent.includes('Nothing waits for you')");

    browser.keys("?");
    browser.wait_until("document.getElementById('keys').open");
    check_pages(&browser, &home);
    browser.enter(".logout button");
    browser.wait_until("document.title === 'Log in · Flowcell'");
    browser.open(&format!("{home}/runs"));
    browser.wait_until("document.title === 'Log in · Flowcell'");
    browser.open(&link);
    browser.wait_until("document.querySelector('[role=alert]')?.textContent.includes('works once')");
    drop(browser);
    assert_eq!(stop(serving), Some(0));
}

/// Checks that no page is wider than a narrow screen, that fields have labels, and that the policy of the page is kept.
fn check_pages(browser: &Browser, home: &str) {
    for width in [320, 1280] {
        browser.resize(width);
        for page in PAGES {
            browser.open(&format!("{home}{page}"));
            let widths = "return [document.documentElement.scrollWidth, innerWidth]";
            let [content, window] =
                <[Value; 2]>::try_from(browser.execute(widths, &json!([])).as_array().unwrap().clone()).unwrap();
            assert!(content.as_u64() <= window.as_u64(), "{page} is {content} wide in {window}");
            let unnamed = "return [...document.querySelectorAll('main input:not([type=hidden]), select, textarea')] \
                           .filter((field) => field.labels.length === 0 && !field.ariaLabel).map((field) => field.name)";
            assert_eq!(browser.execute(unnamed, &json!([])), json!([]), "{page} has fields without labels");
        }
    }
    assert_eq!(browser.errors(), Vec::<String>::new());
    // Neither inline scripts nor texts as HTML are possible, also for scripts of the page.
    let blocked = "try { document.body.innerHTML = '<p>x</p>'; return 'set' } catch (error) { return error.name }";
    assert_eq!(browser.execute(blocked, &json!([])), json!("TypeError"));
}
