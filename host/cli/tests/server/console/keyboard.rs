//! Further ways through the console: by keyboard alone a run is repeated from its failed task, versions are compared, and a
//! run is shown at an earlier moment; and a wide picture is scrolled.

use serde_json::{Value, json};

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

#[test]
fn counts_of_passes_change_under_the_focus_and_the_latest_pass_is_followed() {
    if !has_program("chromium") || !has_program("chromedriver") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (serving, address) = serve(folder.path(), &[]);
    let each = json!({ "id": "each", "type": "control.foreach", "input": { "list": [0, 1, 2] }, "body": ["ask"] });
    let gate = json!({ "id": "ask", "type": "control.gate", "input": { "prompt": "Go on?", "choices": ["yes"] } });
    let flow = json!({ "flow": { "name": "passes" }, "nodes": [each, gate] });
    let start = json!({ "flow": flow, "runId": "r" }).to_string();
    assert_eq!(ask(address, "POST", "/v1/runs?wait=true", &[], &start).status, 201);
    let answer = |pass: usize| {
        let path = format!("/v1/runs/r/gates/each%5B{pass}%5D.ask/reply");
        let sent = ask(address, "POST", &path, &[], &json!({ "answer": "yes" }).to_string());
        assert_eq!(sent.status, 200, "{sent:?}");
    };
    let home = format!("http://flowcell.localhost:{}/console/runs/r", address.port());
    let browser = Browser::start();

    // In the picture the focus stays on a node while its counts change.
    browser.open(&home);
    tab_to(&browser, "#picture a[data-node=each]");
    let counts = "document.activeElement.closest('a[data-node=each]')?.textContent ?? ''";
    answer(0);
    browser.wait_until(&format!("{counts}.includes('1 succeeded')"));

    // So does it in the list of tasks.
    browser.open(&format!("{home}/list"));
    tab_to(&browser, "a.passes");
    answer(1);
    browser.wait_until(
        "document.activeElement.matches('a.passes') && document.activeElement.textContent.includes('2 succeeded')",
    );
    assert_eq!(
        browser.execute("return document.activeElement.ariaLabel.includes('2 succeeded')", &json!([])),
        json!(true)
    );

    // A page that follows the passes shows the tasks of the last one.
    browser.open(&format!("{home}/list?under=each&follow=yes"));
    browser.wait_until("document.querySelector('main .label').textContent === 'latest pass'");
    let shown = browser.execute("return document.querySelector('main td .id').textContent", &json!([]));
    assert_eq!(shown, Value::from("each[2].ask"));
    answer(2);
    browser.wait_until("document.querySelector('#head .state').textContent === 'succeeded'");
    assert_eq!(browser.errors(), Vec::<String>::new());
    drop(browser);
    assert_eq!(stop(serving), Some(0));
}

#[test]
fn a_wide_picture_begins_at_its_first_node_and_stays_where_it_is_scrolled() {
    if !has_program("chromium") || !has_program("chromedriver") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (serving, address) = serve(folder.path(), &[]);
    let gate = json!({ "id": "root", "type": "control.gate", "input": { "prompt": "Use `a`?", "choices": ["yes"] } });
    let noops = (0..20).map(|at| json!({ "id": format!("n{at}"), "type": "control.noop" }));
    let nodes: Vec<_> = std::iter::once(gate).chain(noops).collect();
    let edges: Vec<_> = (0..20).map(|at| format!("root -> n{at}")).collect();
    let start = json!({ "flow": { "flow": { "name": "wide" }, "nodes": nodes, "edges": edges }, "runId": "r" });
    assert_eq!(ask(address, "POST", "/v1/runs?wait=true", &[], &start.to_string()).status, 201);
    let browser = Browser::start();
    browser.open(&format!("http://flowcell.localhost:{}/console/runs/r", address.port()));
    browser.wait_until("document.querySelector('.zoom')");
    let is_seen = "const [box, node] = ['.picture', '#picture a[data-node=root] rect'] \
                   .map((each) => document.querySelector(each).getBoundingClientRect()); \
                   return box.width < 2000 && node.left > box.left && node.right < box.right";
    assert_eq!(browser.execute(is_seen, &json!([])), json!(true));
    let question = browser.execute("return document.querySelector('.prompt').innerHTML", &json!([]));
    assert_eq!(question, json!("Use <code>a</code>?"));

    // The event of a scroll comes before the next frame.
    browser.execute_async(
        "const done = arguments[0]; document.querySelector('.picture').scrollLeft = 7; \
         requestAnimationFrame(() => requestAnimationFrame(() => done(true)))",
    );
    let answer = json!({ "answer": "yes" }).to_string();
    assert_eq!(ask(address, "POST", "/v1/runs/r/gates/root/reply", &[], &answer).status, 200);
    browser.wait_until("document.querySelectorAll('#picture .node.good').length === 21");
    assert_eq!(browser.execute("return document.querySelector('.picture').scrollLeft", &json!([])), json!(7));
    assert_eq!(browser.errors(), Vec::<String>::new());
    drop(browser);
    assert_eq!(stop(serving), Some(0));
}
