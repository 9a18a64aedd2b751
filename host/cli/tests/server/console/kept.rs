//! The editor in a real browser, by keyboard alone: its colours, a renaming, and a text that outlives its login.

use serde_json::{Value, json};

use super::{
    browser::Browser,
    editor::{LEAVE, go_to_line, tab_to},
    run,
};
use crate::{
    kit::has_program,
    server::process::{serve, stop},
};

const ENTER: &str = "\u{e007}";
const CONTROL: char = '\u{e009}';
const F2: &str = "\u{e032}";
/// A flow whose comments name a node, and would be HTML in a page that does not escape them.
const FLOW: &str = "# say <img src=x onerror=alert(1)>\nflow: { name: kept, input: { who: world } }\nnodes:\n  \
                    - id: say\n    type: control.if\n    input: { condition: \"flow.input.who == 'you'\" }\n  \
                    - { id: end, type: control.noop }\nedges: [say -> end]\n";
/// The names of the texts that the tab keeps.
const KEPT: &str = "Object.keys(sessionStorage).filter((name) => name.startsWith('flowcell-draft:'))";

/// Lines of YAML, and one of a script behind a block of comment, with the words that have a kind.
const KINDS: [(&str, &str); 12] = [
    (
        "flow: { a: 1, \"b\": [true, 'it''s'] } # c",
        "key=flow key=a number=1 key=\"b\" keyword=true string='it''s' comment=# c",
    ),
    ("  - id: say-it", "key=id"),
    ("    url: https://a.test/#x", "key=url"),
    ("    text: Hi {{ flow.x | upper }} # c", "key=text variable=flow property=x function=upper comment=# c"),
    ("    more: |", "key=more"),
    ("      id: {{ a }} # no comment", "string=      id:  variable=a string= # no comment"),
    ("    next: -1.5e3", "key=next number=-1.5e3"),
    ("    long: \"a", "key=long string=\"a"),
    ("      b\" # c", "string=      b\" comment=# c"),
    ("  open: {", "key=open"),
    ("nodes: [null, a -> b]", "key=nodes keyword=null"),
    ("\\\"'{[`\u{1f600}", ""),
];

/// Checks the tokenizer of the page.
fn check_kinds(browser: &Browser) {
    let lines = KINDS.map(|(line, _)| line);
    let expected = KINDS.map(|(_, words)| words);
    let script = format!(
        "const [done, lines] = [arguments[0], {}]; \
         const path = document.querySelector('script[src]').src.replace('editor.js', 'lexer.js'); \
         import(path).then(({{ KINDS, START, readScript, readYaml }}) => {{ \
           let state = START; \
           const words = (read, line) => {{ const found = []; \
             state = read(line, state, (kind, from, to) => kind && kind !== 6 && from < to && found.push(KINDS[kind] + '=' + line.slice(from, to))); \
             return found.join(' '); }}; \
           const yaml = lines.map((line) => words(readYaml, line)); \
           state = START; \
           done([yaml, ['/* a', 'b */ const x = `${{1}}`; f(2) // c'].map((line) => words(readScript, line))]); }}, (error) => done(String(error)))",
        json!(lines)
    );
    let script_words =
        ["comment=/* comment= a", "comment=b */ keyword=const string=` string=${1}` function=f number=2 comment=// c"];
    assert_eq!(browser.execute_async(&script), json!([expected, script_words]));
}

fn text(browser: &Browser) -> String {
    let text = browser.execute("return document.getElementById('text').value", &json!([]));
    text.as_str().unwrap().to_owned()
}

#[test]
fn a_text_is_coloured_renamed_and_kept_until_it_is_stored_or_its_writer_logs_out() {
    if !has_program("chromium") || !has_program("chromedriver") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("kept.yaml"), FLOW).unwrap();
    run(folder, &["tenant", "create", "acme"]);
    run(folder, &["flows", "create", "kept.yaml", "--tenant", "acme"]);
    let (serving, _) = serve(folder, &[]);
    let log_in = |browser: &Browser| {
        let link = run(folder, &["console", "--tenant", "acme"]);
        browser.open(&link);
        browser.wait_until("document.title === 'Home · Flowcell'");
        format!("{}/flows/kept/edit", link.split_once("/login").unwrap().0)
    };
    let browser = Browser::start();
    let page = log_in(&browser);
    browser.open(&page);

    // The layer has the letters of the field, with the colours of the tokenizer and of the assistance.
    browser.wait_until("document.querySelector('.coloured #paint .in-key').textContent === 'flow'");
    browser
        .wait_until("[...document.querySelectorAll('#paint .in-property')].some((word) => word.textContent === 'who')");
    let same = "[...document.querySelectorAll('#paint div > span')].map((row) => row.textContent).join('\\n') \
                === document.getElementById('text').value";
    assert_eq!(browser.execute(&format!("return {same}"), &json!([])), json!(true));
    check_kinds(&browser);
    assert_eq!(browser.execute("return document.querySelectorAll('main img').length", &json!([])), json!(0));

    // A renaming says what changes, changes all of it at once, and comes back by one undo.
    tab_to(&browser, "#text");
    go_to_line(&browser, 3);
    browser.keys(F2);
    browser.wait_until("document.querySelector('#rename[open] label').textContent === 'New id of say'");
    browser.keys("end");
    browser
        .wait_until("document.querySelector('#rename [role=status]').textContent.includes('has a node `end` already')");
    browser.keys("\u{e003}\u{e003}\u{e003}tell");
    let told = "2 places change. say stays in plain text, in line 1.";
    browser.wait_until(&format!("document.querySelector('#rename [role=status]').textContent === '{told}'"));
    browser.keys(ENTER);
    browser.wait_until("document.activeElement.id === 'text'");
    let renamed = FLOW.replace("id: say", "id: tell").replace("[say", "[tell");
    assert_eq!(text(&browser), renamed);
    browser.hold(CONTROL, 'z');
    assert_eq!(text(&browser), FLOW);

    // The login ends while a text is written.
    go_to_line(&browser, 0);
    browser.keys("_mine");
    let mine = text(&browser);
    assert!(mine.contains("_mine") && mine != FLOW, "{mine}");
    browser.wait_until(&format!("document.querySelector('#kept') === null && {same}"));
    browser.execute_async("const done = arguments[0]; fetch('/v1/logout', { method: 'POST' }).then(() => done())");
    browser.keys(LEAVE);
    tab_to(&browser, "button[value=save]");
    browser.keys(ENTER);
    browser.wait_until("document.title === 'Log in · Flowcell'");
    assert_eq!(log_in(&browser), page);
    browser.open(&page);
    browser.wait_until("document.querySelector('#kept time[title]').textContent");
    assert_eq!(text(&browser), FLOW, "a kept text is offered, and replaces nothing");
    browser.enter("#kept button");
    browser.wait_until("document.getElementById('kept') === null && document.activeElement.id === 'text'");
    assert_eq!(text(&browser), mine);

    // A stored text is not kept any more.
    browser.keys(LEAVE);
    tab_to(&browser, "button[value=save]");
    browser.keys(ENTER);
    browser.wait_until("document.querySelector('button[value=store]')");
    assert_eq!(browser.execute(&format!("return {KEPT}.length"), &json!([])), json!(1));
    browser.enter("button[value=store]");
    browser.wait_until("document.title === 'kept · Flowcell'");
    browser.wait_until(&format!("{KEPT}.length === 0 && location.hash === ''"));

    // Nor is what its writer leaves behind.
    browser.open(&page);
    tab_to(&browser, "#text");
    browser.keys("#");
    browser.wait_until("document.querySelector('#editor').textContent.includes('The text is kept in this tab')");
    assert_eq!(browser.execute(&format!("return {KEPT}.length"), &json!([])), json!(1));
    browser.open(&page);
    browser.wait_until("document.querySelector('#kept')");
    browser.enter(".logout button");
    browser.wait_until("document.title === 'Log in · Flowcell'");
    browser.wait_until(&format!("{KEPT}.length === 0"));
    log_in(&browser);
    browser.open(&page);
    browser.wait_until("document.querySelector('.coloured #paint')");
    assert_eq!(browser.execute("return document.getElementById('kept')", &json!([])), Value::Null);
    // The browser reports the answers after the end of the login itself.
    let errors: Vec<_> = browser.errors().into_iter().filter(|error| !error.contains("401")).collect();
    assert_eq!(errors, Vec::<String>::new());
    drop(browser);
    assert_eq!(stop(serving), Some(0));
}
