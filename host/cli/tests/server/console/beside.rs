//! The files beside a flow in a real browser, by keyboard alone: a file is added in a tab, cases are written and run,
//! mended, and stored with the flow in a shared store.

use flowcell_runtime::sql::Dialect;
use serde_json::{Value, json};

use super::{
    browser::Browser,
    editor::{LEAVE, tab_to},
};
use crate::{
    client::ask,
    kit::{has_program, output_of, stderr},
    server::process::{serve, stop},
    servers,
};

const ENTER: &str = "\u{e007}";
const RIGHT: &str = "\u{e014}";
const LEFT: &str = "\u{e012}";

/// Returns the URL of a new shared store. Returns `None` if no database server is installed.
fn store() -> Option<String> {
    let server = servers::server(Dialect::Postgres)?;
    let url = server.url(&server.database());
    let migrated = output_of(&std::env::temp_dir(), &["store", "migrate", "--store", &url]);
    assert!(migrated.status.success(), "{}", stderr(&migrated));
    Some(url)
}

#[test]
fn files_and_cases_are_written_run_and_stored_by_keyboard_alone() {
    if !has_program("chromium") || !has_program("chromedriver") {
        return;
    }
    let Some(url) = store() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (serving, address) = serve(folder.path(), &["--store", &url]);
    let gate = json!({ "id": "ask", "type": "control.gate", "input": { "prompt": "Go on?", "choices": ["yes"] } });
    let flow = json!({ "flow": { "name": "asks" }, "nodes": [gate] });
    let stored = ask(address, "POST", "/v1/flows", &[], &json!({ "flow": flow }).to_string());
    assert_eq!(stored.status, 201, "{stored:?}");
    let browser = Browser::start();
    browser.open(&format!("http://flowcell.localhost:{}/console/flows/asks/edit", address.port()));
    browser.wait_until("document.querySelectorAll('#beside [role=tab]').length === 2");
    // In the text, Tab indents until Esc is pressed.
    let past_text = |selector: &str| {
        tab_to(&browser, "#text");
        browser.keys(LEAVE);
        tab_to(&browser, selector);
    };
    let open_tab = "document.querySelector('#beside [role=tab][aria-selected=true]').textContent";

    // A case that fails says how, and a mended one passes.
    past_text("#cases");
    browser.keys("cases: [{ name: it ends }]");
    tab_to(&browser, "button[value=cases]");
    browser.keys(ENTER);
    browser.wait_until("document.querySelector('#cases-outcome [role=status]').textContent.includes('1 failed')");
    browser.wait_until("document.querySelector('.difference').textContent.includes('the status is parked')");
    past_text("#cases");
    browser.execute("document.getElementById('cases').setSelectionRange(23, 23)", &json!([]));
    browser.keys(", expect: { status: parked }");
    tab_to(&browser, "button[value=cases]");
    browser.keys(ENTER);
    browser.wait_until("document.querySelector('#cases-outcome [role=status]').textContent.includes('1 case passed')");

    // Another file, in a tab of its own.
    past_text("#beside [role=tab]");
    browser.keys(LEFT);
    browser.wait_until(&format!("{open_tab} === 'Add a file'"));
    assert_eq!(browser.execute("return document.getElementById('cases').checkVisibility()", &json!([])), json!(false));
    tab_to(&browser, "#beside input[name=path]");
    browser.keys("prompts/ask.md");
    tab_to(&browser, "#file-new");
    browser.keys("From a file?");
    tab_to(&browser, "button[value=add]");
    browser.keys(ENTER);
    browser.wait_until("document.querySelectorAll('#beside [role=tab]').length === 3");
    browser.wait_until(&format!("{open_tab} === 'prompts/ask.md'"));

    // The review shows the files, and one version has all of them.
    past_text("button[value=save]");
    browser.keys(ENTER);
    browser.wait_until("document.querySelector('button[value=store]').textContent === 'Store as version 2 of asks'");
    browser.wait_until("document.querySelector('#outcome').textContent.includes('asks.test.yaml, new file')");
    browser.enter("button[value=store]");
    browser.wait_until("document.title === 'asks · Flowcell'");
    let files = |path: &str| -> Value { ask(address, "GET", &format!("/v1/flows/asks/files{path}"), &[], "").json() };
    assert_eq!(files("")["version"], 2);
    assert_eq!(files("?path=prompts/ask.md")["files"][0]["text"], "From a file?");
    assert!(files("?path=asks.test.yaml")["files"][0]["text"].as_str().unwrap().contains("status: parked"));

    // One of them is removed again.
    browser.open(&format!("http://flowcell.localhost:{}/console/flows/asks/edit", address.port()));
    browser.wait_until("document.querySelectorAll('#beside [role=tab]').length === 3");
    past_text("#beside [role=tab]");
    browser.keys(RIGHT);
    browser.wait_until(&format!("{open_tab} === 'prompts/ask.md'"));
    tab_to(&browser, "#beside input[name=drop]");
    browser.keys(" ");
    browser.wait_until("document.querySelector('#beside [role=tab].dropped')");
    past_text("button[value=save]");
    browser.keys(ENTER);
    browser.wait_until("document.querySelector('#outcome').textContent.includes('prompts/ask.md, removed file')");
    browser.enter("button[value=store]");
    browser.wait_until("document.title === 'asks · Flowcell'");
    assert_eq!(files("")["files"].as_array().unwrap().len(), 1);
    assert_eq!(browser.errors(), Vec::<String>::new());
    drop(browser);
    assert_eq!(stop(serving), Some(0));
}
