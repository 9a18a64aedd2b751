//! Tests a conversation with an agent in a real browser, by keyboard alone: its question, its text while it is written, a
//! message, and its end.

use serde_json::json;

use super::browser::Browser;
use crate::{
    client::ask,
    kit::{has_program, root},
    server::process::{serve, stop},
};

/// The key that is held while another one is pressed.
const CONTROL: char = '\u{e009}';
const ENTER: char = '\u{e007}';

#[test]
fn a_person_talks_with_an_agent_by_keyboard_alone() {
    if !has_program("chromium") || !has_program("chromedriver") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let set = json!({ "name": "data_set", "input": { "object": {}, "path": "parcels", "value": 3 } });
    let script = json!([
        { "match": "Count", "toolCalls": [set] },
        // The first words are there 6 s before the rest, so that they are seen while the text is written.
        { "match": "Count", "text": "There are 3 **parcels**. ".repeat(12), "chunk": 10, "chunkDelayMs": 200 },
        { "match": "boxes", "text": "There is 1 box." },
    ]);
    let profile = json!({ "dialect": "simulated", "model": "one", "script": script });
    let providers = json!({ "default": "scripted", "profiles": { "scripted": profile } });
    std::fs::write(folder.path().join("providers.yaml"), providers.to_string()).unwrap();
    let (serving, address) = serve(folder.path(), &["--providers", "providers.yaml"]);
    let post = |path: &str, body: &serde_json::Value| {
        let answer = ask(address, "POST", path, &[], &body.to_string());
        assert!((200..300).contains(&answer.status), "{path}: {answer:?}");
        answer.json()
    };
    let flow = std::fs::read_to_string(root().join("flows/agents/assistant.yaml")).unwrap();
    let parked = post("/v1/runs?wait=true", &json!({ "flow": flow, "runId": "talk" }));
    assert_eq!(parked["status"], "parked", "{parked}");
    let home = format!("http://flowcell.localhost:{}/console", address.port());
    let browser = Browser::start();
    browser.open(&format!("{home}/runs/talk"));
    browser.wait_until("document.querySelector('#head .prompt')");

    // From the run to its agent.
    browser.keys("va");
    browser.wait_until("location.pathname.endsWith('/agents') && document.querySelector('table.rows')");
    browser.keys("j");
    browser.keys(&ENTER.to_string());
    browser.wait_until("document.querySelector('#talk form.answer')");
    let talk = "document.querySelector('#talk').textContent";
    assert_eq!(browser.execute("return document.querySelectorAll('form.answer').length", &json!([])), json!(1));

    // The first choice allows the call.
    browser.keys("1");
    browser.wait_until("document.activeElement.value === 'allow'");
    browser.keys(&ENTER.to_string());
    browser.wait_until("location.hash === '#write'");
    browser.execute("window.isSamePage = true", &json!([]));
    browser.wait_until(
        "!document.querySelector('#speech').hidden && document.querySelector('.speech').textContent.includes('There are')",
    );
    browser.wait_until(&format!("{talk}.includes('There are 3 parcels.') && document.querySelector('#speech').hidden"));
    browser.wait_until("document.querySelector('#agent .state').textContent === 'listening'");
    assert_eq!(browser.execute("return window.isSamePage", &json!([])), json!(true), "the page was loaded again");
    assert_eq!(
        browser.execute("return document.querySelectorAll('#talk .said strong').length", &json!([])),
        json!(12),
        "the whole answer is shown once"
    );

    browser.keys("m");
    browser.wait_until("document.activeElement.id === 'text'");
    // Letters in the field are no keys of the page.
    browser.keys("and how many boxes?");
    browser.hold(CONTROL, ENTER);
    browser.wait_until(&format!("{talk}.includes('and how many boxes?') && {talk}.includes('There is 1 box.')"));
    browser.enter("#write details summary");
    browser.enter("#write form[action$='/close'] button");
    browser.wait_until("document.querySelector('#write').textContent.includes('The agent has ended.')");
    browser.wait_until("document.querySelector('#head .state').textContent === 'succeeded'");
    assert_eq!(browser.errors(), Vec::<String>::new());
    let outputs = ask(address, "GET", "/v1/runs/talk", &[], "").json()["outputs"].clone();
    assert_eq!(outputs, json!({ "answer": "There is 1 box.", "turns": 2 }));
    drop(browser);
    assert_eq!(stop(serving), Some(0));
}
