//! Tests an action on many runs in a real browser, by keyboard alone.

use serde_json::json;

use super::browser::Browser;
use crate::{
    client::ask,
    kit::has_program,
    server::process::{serve, stop},
};

/// The number of failed runs.
const RUNS: usize = 500;

#[test]
fn failed_runs_are_retried_together_by_keyboard_alone() {
    if !has_program("chromium") || !has_program("chromedriver") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (serving, address) = serve(folder.path(), &[]);
    let fail = json!({ "id": "pay", "type": "control.fail", "input": { "code": "refused", "message": "no" } });
    let flow = json!({ "flow": { "name": "order" }, "nodes": [fail] });
    let stored = ask(address, "POST", "/v1/flows", &[], &json!({ "flow": flow }).to_string());
    assert_eq!(stored.status, 201, "{stored:?}");
    for index in 0..RUNS {
        let start = json!({ "flow": "order", "runId": format!("order-{index}") });
        let started = ask(address, "POST", "/v1/runs", &[], &start.to_string());
        assert_eq!(started.status, 201, "{started:?}");
    }
    let home = format!("http://flowcell.localhost:{}/console", address.port());
    let browser = Browser::start();
    browser.open(&format!("{home}/runs?flow=order&status=failed"));
    // The counts change while the runs end.
    browser.wait_until("document.querySelector('#states').textContent.includes('failed 500')");
    browser.enter("a[href^='/console/jobs/new']");
    browser.wait_until("document.title === 'Act on many runs · Flowcell'");
    browser.enter("nav.tabs a[href*='action=retry']");
    browser.wait_until("document.querySelector('main form button.primary')?.textContent === 'Retry 500 runs'");
    browser.enter("main form[method=post] button.primary");
    browser.wait_until("location.pathname.startsWith('/console/jobs/') && !location.pathname.endsWith('/new')");
    browser.wait_until("document.querySelector('#job').textContent.includes('500 done of 500')");
    assert_eq!(browser.errors(), Vec::<String>::new());
    let job = browser.execute("return location.pathname.split('/').pop()", &json!([]));
    let job = ask(address, "GET", &format!("/v1/jobs/{}", job.as_str().unwrap()), &[], "").json();
    assert_eq!(
        (&job["done"], &job["failed"], &job["filter"]["flow"]),
        (&json!(RUNS), &json!(0), &json!("order")),
        "{job}"
    );
    drop(browser);
    assert_eq!(stop(serving), Some(0));
}
