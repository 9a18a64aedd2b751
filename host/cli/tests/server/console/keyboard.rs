//! Further ways through the console by keyboard alone: a run is repeated from its failed task, versions are compared, and
//! a run is shown at an earlier moment.

use serde_json::json;

use super::{browser::Browser, editor::tab_to};
use crate::{
    client::ask,
    kit::has_program,
    server::process::{serve, stop},
};

const ENTER: &str = "\u{e007}";
const LEFT: &str = "\u{e012}";

#[test]
fn a_failed_run_is_repeated_compared_and_seen_earlier_by_keyboard_alone() {
    if !has_program("chromium") || !has_program("chromedriver") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (serving, address) = serve(folder.path(), &[]);
    let flow = |message: &str| {
        let fail = json!({ "id": "pay", "type": "control.fail", "input": { "code": "refused", "message": message } });
        let flow = json!({ "flow": { "name": "order" }, "nodes": [{ "id": "pick", "type": "control.noop" }, fail], "edges": ["pick -> pay"] });
        let stored = ask(address, "POST", "/v1/flows", &[], &json!({ "flow": flow }).to_string());
        assert_eq!(stored.status, 201, "{stored:?}");
    };
    flow("no money");
    flow("no card");
    let start = json!({ "flow": "order", "runId": "first" }).to_string();
    assert_eq!(ask(address, "POST", "/v1/runs?wait=true", &[], &start).status, 201);
    let home = format!("http://flowcell.localhost:{}/console", address.port());
    let browser = Browser::start();

    // From the list to the failed task, and from there to a new run.
    browser.open(&home);
    browser.keys("gr");
    browser.wait_until("document.title === 'Runs · Flowcell'");
    browser.keys("j");
    browser.keys(ENTER);
    browser.wait_until("document.querySelector('#head .state')?.textContent === 'failed'");
    browser.keys("]");
    browser.wait_until("document.activeElement.dataset.node === 'pay'");
    browser.keys(ENTER);
    browser.wait_until("location.pathname.endsWith('/tasks/pay')");
    browser.enter("main summary");
    browser.enter("form[action$='/retry'] button");
    browser.wait_until("location.pathname.startsWith('/console/runs/') && !location.pathname.includes('/first')");
    browser.wait_until("document.querySelector('#head .state').textContent === 'failed'");
    browser.wait_until("document.querySelector('#head').textContent.includes('Repeats first')");

    // An earlier moment of it, by an arrow key of the slider.
    tab_to(&browser, "form.scrub input[type=range]");
    browser.keys(LEFT);
    browser.wait_until("new URLSearchParams(location.search).has('before') && document.activeElement.type === 'range'");

    // The versions of its flow.
    browser.enter("header nav a[href='/console/flows']");
    browser.wait_until("document.title === 'Flows · Flowcell'");
    browser.keys("j");
    browser.keys(ENTER);
    browser.wait_until("document.title === 'order · Flowcell'");
    browser.enter("main a[href*='/diff']");
    browser.wait_until("document.querySelector('table.diff .added').textContent.includes('no card')");
    assert_eq!(browser.errors(), Vec::<String>::new());
    drop(browser);
    assert_eq!(stop(serving), Some(0));
}
