//! The editor in a real browser: a mistake is mended by keyboard alone, and the second of two people learns of the first.

use serde_json::{Value, json};

use super::browser::Browser;
use crate::{
    client::ask,
    kit::has_program,
    server::process::{serve, stop},
};

const ENTER: &str = "\u{e007}";
const TAB: &str = "\u{e004}";
/// Closes the list of suggestions, and lets the next Tab leave the text.
pub(super) const LEAVE: &str = "\u{e00c}\u{e00c}";
const FLOW: &str = "flow: { name: mend }\nnodes:\n  - id: say\n    type: control.noop\n";

/// Presses Tab until the focus is on an element that fits a selector.
pub(super) fn tab_to(browser: &Browser, selector: &str) {
    for _ in 0..100 {
        if browser.execute("return document.activeElement.matches(arguments[0])", &json!([selector])) == true {
            return;
        }
        browser.keys(TAB);
    }
    panic!("no press of Tab leads to {selector}");
}

/// Moves the caret to the end of a line of the text, counted from 0, by keys.
pub(super) fn go_to_line(browser: &Browser, line: usize) {
    browser.keys(&"\u{e013}".repeat(12));
    browser.keys(&"\u{e015}".repeat(line));
    browser.keys("\u{e010}");
}

#[test]
fn a_mistake_is_mended_by_keyboard_and_an_old_version_is_not_stored() {
    if !has_program("chromium") || !has_program("chromedriver") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (serving, address) = serve(folder.path(), &[]);
    let store = |text: &str| {
        let stored = ask(address, "POST", "/v1/flows", &[], &json!({ "flow": text }).to_string());
        assert_eq!(stored.status, 201, "{stored:?}");
    };
    let stored = || -> Value { ask(address, "GET", "/v1/flows/mend", &[], "").json() };
    store(FLOW);
    let page = format!("http://flowcell.localhost:{}/console/flows/mend/edit", address.port());
    let browser = Browser::start();
    browser.open(&page);
    browser.wait_until("document.querySelector('#findings [role=status]').textContent === 'The text has no mistakes.'");
    browser.wait_until("document.getElementById('lines').textContent.startsWith('1\\n2\\n3\\n4')");

    // A mistake is listed, and its entry leads to its place.
    tab_to(&browser, "#text");
    go_to_line(&browser, 3);
    browser.keys("\u{e003}\u{e003}p");
    browser.wait_until("document.querySelector('#findings li').textContent.includes('unknown_type')");
    let age = "document.querySelector('#age[role=status]').textContent";
    browser.wait_until(&format!("{age} === 'The picture shows an earlier text without errors.'"));
    browser.keys(LEAVE);
    tab_to(&browser, "#findings button.place");
    browser.keys(ENTER);
    browser.wait_until("document.activeElement.id === 'text'");
    let selected = "const field = document.getElementById('text'); \
                    return field.value.slice(field.selectionStart, field.selectionEnd)";
    assert_eq!(browser.execute(selected, &json!([])), "control.nop");
    browser.keys(LEAVE);
    tab_to(&browser, "#findings button[aria-label*='control.noop']");
    browser.keys(ENTER);
    browser.wait_until("document.getElementById('text').value.includes('type: control.noop')");
    browser.wait_until("document.querySelector('#findings [role=status]').textContent === 'The text has no mistakes.'");
    browser.wait_until(&format!("{age} === ''"));

    // A suggestion is chosen by keys, without leaving the text.
    browser.keys("\u{e010}");
    browser.keys(ENTER);
    browser.keys("    inp");
    browser.wait_until("!document.getElementById('offers').hidden");
    browser.keys("\u{e015}");
    browser.wait_until(
        "document.getElementById(document.activeElement.getAttribute('aria-activedescendant')).ariaSelected === 'true'",
    );
    browser.keys(ENTER);
    browser.wait_until("document.getElementById('text').value.includes('    input')");
    let end = "const field = document.getElementById('text'); \
               field.setSelectionRange(field.value.indexOf('    input') + 9, field.value.length)";
    browser.execute(end, &json!([]));
    browser.keys(": { value: 7 }");
    browser.wait_until("document.querySelector('#findings [role=status]').textContent === 'The text has no mistakes.'");

    // The picture follows when a person has left it.
    let focus = "document.querySelector('#drawing svg').setAttribute('tabindex', '0'); \
                 document.querySelector('#drawing svg').focus({ preventScroll: true })";
    browser.wait_until(&format!("{age} === ''"));
    browser.execute("document.getElementById('text').dispatchEvent(new Event('input'))", &json!([]));
    browser.execute(focus, &json!([]));
    browser.wait_until(&format!("{age}.startsWith('The picture shows an earlier text.')"));
    browser.execute("document.getElementById('text').focus()", &json!([]));
    browser.wait_until(&format!("{age} === ''"));

    // The review, and the version that it stores.
    browser.keys(LEAVE);
    tab_to(&browser, "button[value=save]");
    browser.keys(ENTER);
    browser.wait_until("document.querySelector('button[value=store]').textContent === 'Store as version 2 of mend'");
    assert_eq!(stored()["version"], 1);
    tab_to(&browser, "button[value=store]");
    browser.keys(ENTER);
    browser.wait_until("document.title === 'mend · Flowcell'");
    let now = stored();
    assert!(now["version"] == 2 && now["text"].as_str().unwrap().contains("value: 7"), "{now}");

    // Another person stores a version while the page is open.
    browser.open(&page);
    browser.wait_until("document.querySelector('#findings [role=status]').textContent === 'The text has no mistakes.'");
    store(&FLOW.replace("say", "theirs"));
    tab_to(&browser, "#text");
    go_to_line(&browser, 2);
    browser.keys("_mine");
    browser.keys(LEAVE);
    tab_to(&browser, "button[value=save]");
    browser.keys(ENTER);
    let told = "Version 3 was stored after you opened version 2";
    browser.wait_until(&format!("document.querySelector('#outcome [role=alert]').textContent.includes('{told}')"));
    browser.wait_until("document.getElementById('text').value.includes('id: say_mine')");
    let now = stored();
    assert!(now["version"] == 3 && now["text"].as_str().unwrap().contains("theirs"), "{now}");
    // The browser reports the refusal itself.
    let errors: Vec<_> = browser.errors().into_iter().filter(|error| !error.contains("409")).collect();
    assert_eq!(errors, Vec::<String>::new());
    drop(browser);
    assert_eq!(stop(serving), Some(0));
}
