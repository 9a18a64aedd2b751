//! Drives the screen by keys, and compares its lines.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod states;

use flowcell::{Event, Json, contract::Tenant};
use serde_json::{Value, json};
use unicode_width::UnicodeWidthChar;

use super::{
    draw::{frame, snapshot},
    frame::{Line, Style},
    model::{Action, Head, Key, Model, View},
    rows::Wait,
};

/// The time of each drawing. All events have the time 0.
const NOW: u64 = 3_000;

fn head(status: &str) -> Head {
    Head { flow: "shop".into(), status: status.into(), changed: 2_000, ..Head::default() }
}

fn add(model: &mut Model, kind: &'static str, scope: &str, node: &str, more: Value) {
    let mut data = json!({ "taskId": node });
    if !scope.is_empty() {
        data["scope"] = scope.into();
    }
    data.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
    let (tenant, run_id) = (Tenant::local(), "r".into());
    model.add(&Event { seq: 0, ts: 0, tenant, run_id, kind, data: Json::from(data) });
}

fn empty() -> Model {
    let mut model = Model::new("r".into(), String::new());
    model.head = head("running");
    model
}

/// A run with a task and with a body, one pass of which has failed.
fn shop() -> Model {
    let mut model = empty();
    add(&mut model, "task:start", "", "first", Value::Null);
    add(&mut model, "task:complete", "", "first", json!({ "durationMs": 1_500 }));
    add(&mut model, "task:start", "", "each", Value::Null);
    add(&mut model, "task:complete", "each[0]", "get", json!({ "durationMs": 4 }));
    add(&mut model, "task:failed", "each[1]", "get", json!({ "error": { "code": "x", "message": "it broke" } }));
    model
}

fn gate(address: &str, choices: &[&str], digest: &str) -> Value {
    let mut wait = json!({ "kind": "gate", "address": address, "prompt": "Pay 100?", "attempt": 1, "digest": digest });
    wait["choices"] = choices.into();
    wait
}

fn wait(model: &mut Model, waits: &[Value]) {
    model.set_waits(waits.iter().map(Wait::of).collect());
}

fn lines(model: &mut Model, width: usize, height: usize) -> Vec<String> {
    frame(model, (width, height), NOW).iter().map(|line| line.text().trim_end().to_owned()).collect()
}

/// The rows of the screen, without the lines above and below them.
fn rows(model: &mut Model) -> Vec<String> {
    let lines = lines(model, 100, 24);
    lines[2..22].iter().filter(|line| !line.is_empty()).cloned().collect()
}

fn press(model: &mut Model, keys: &[Key]) -> Option<Action> {
    keys.iter().fold(None, |_, key| {
        let action = model.press(*key);
        frame(model, (100, 24), NOW);
        action
    })
}

fn typed(text: &str) -> Vec<Key> {
    text.chars().map(Key::Char).collect()
}

#[test]
fn a_run_is_shown_with_its_passes_on_one_line() {
    assert_eq!(
        lines(&mut shop(), 80, 7),
        [
            "shop  r",
            "running  began 3.0 s ago  1 failed, 1 running, 2 succeeded",
            ">   ✓ first  succeeded  1.5 s",
            "  ▸ ● each  running  3.0 s  2 passes: 1 failed, 1 succeeded",
            "",
            "",
            "? help  q quit  ↑↓ go  →← open  Enter details  a answer  c cancel  r repeat",
        ]
    );
}

#[test]
fn bodies_open_and_fold_and_the_failed_pass_comes_first() {
    let mut model = shop();
    press(&mut model, &[Key::Down, Key::Right]);
    let opened = [
        "    ✓ first  succeeded  1.5 s",
        "> ▾ ● each  running  3.0 s  2 passes: 1 failed, 1 succeeded",
        "    ▸ ✗ [1]  failed  1 failed",
        "    ▸ ✓ [0]  succeeded  1 succeeded",
    ];
    assert_eq!(rows(&mut model), opened);
    // Into the first pass, open it, and into its task.
    press(&mut model, &typed("lll"));
    assert_eq!(rows(&mut model)[2..4], ["    ▾ ✗ [1]  failed  1 failed", ">       ✗ get  failed  x: it broke"]);
    assert_eq!(press(&mut model, &[Key::Enter]), Some(Action::ShowTask("each[1].get".into())));
    // Up to the pass, fold it, up to the owner, fold it.
    press(&mut model, &typed("hhhh"));
    assert_eq!(rows(&mut model)[1..], ["> ▸ ● each  running  3.0 s  2 passes: 1 failed, 1 succeeded"]);
    // The cursor stays where it is if nothing is above it.
    press(&mut model, &typed("hh"));
    assert!(rows(&mut model)[1].starts_with("> "));
}

#[test]
fn the_cursor_stays_on_its_row_while_the_run_goes_on() {
    let mut model = shop();
    press(&mut model, &[Key::Down, Key::Right, Key::Down, Key::Down]);
    assert!(rows(&mut model)[3].starts_with(">   ▸ ✓ [0]"));
    add(&mut model, "task:failed", "each[2]", "get", Value::Null);
    add(&mut model, "task:start", "", "last", Value::Null);
    let after = rows(&mut model);
    assert!(after[3].contains("[2]") && after[4].starts_with(">   ▸ ✓ [0]"), "{after:#?}");
    // A row that is gone leaves the cursor at its number.
    press(&mut model, &[Key::End]);
    wait(&mut model, &[gate("last", &[], "d")]);
    press(&mut model, &[Key::End]);
    assert!(rows(&mut model)[6].starts_with(">   ? last  Pay 100?"));
    wait(&mut model, &[]);
    assert!(rows(&mut model)[5].starts_with(">   ● last"));
}

#[test]
fn a_large_run_draws_only_the_rows_that_fit() {
    const PASSES: u64 = 10_000;
    let mut model = empty();
    add(&mut model, "task:start", "", "each", Value::Null);
    for pass in 0..PASSES {
        let kind = if pass == 7_777 { "task:failed" } else { "task:complete" };
        add(&mut model, kind, &format!("each[{pass}]"), "get", Value::Null);
    }
    press(&mut model, &[Key::Right]);
    let first = lines(&mut model, 100, 12);
    assert_eq!(first.len(), 12);
    assert_eq!(first[1], "running  began 3.0 s ago  1 failed, 1 running, 9999 succeeded");
    assert_eq!(first[2], "> ▾ ● each  running  3.0 s  10000 passes: 1 failed, 9999 succeeded");
    assert_eq!(first[3..5], ["    ▸ ✗ [7777]  failed  1 failed", "    ▸ ✓ [0]  succeeded  1 succeeded"]);
    press(&mut model, &[Key::End]);
    let last = lines(&mut model, 100, 12);
    assert!(last[2].contains("[9992]") && last[9].starts_with(">   ▸ ✓ [9999]"), "{last:#?}");
    // A page up and down ends at the same row.
    press(&mut model, &[Key::PageUp, Key::PageDown]);
    assert_eq!(lines(&mut model, 100, 12), last);
    press(&mut model, &[Key::Home]);
    assert_eq!(lines(&mut model, 100, 12), first);
}

#[test]
fn a_question_is_answered_by_its_choices_only() {
    let mut model = empty();
    add(&mut model, "task:paused", "", "ok", json!({ "question": { "prompt": "Pay 100?" } }));
    let waits = [gate("ok", &["yes", "no"], "d1"), json!({ "kind": "event", "address": "paid", "event": "paid" })];
    wait(&mut model, &waits);
    assert_eq!(
        rows(&mut model),
        [">   ? ok  asking  Pay 100?", "    ? ok  Pay 100?", "    ◎ paid  waits for the event `paid`",]
    );
    assert!(lines(&mut model, 100, 24)[1].contains("1 open question  1 asking"));
    // Enter without an answer, and an answer that is not a choice, send nothing.
    let a = Key::Char('a');
    assert_eq!(press(&mut model, &[a, Key::Enter]), None);
    assert!(matches!(&model.view, View::Answer { refusal, .. } if refusal == "it takes `yes`, `no`"));
    assert_eq!(press(&mut model, &[&typed("perhaps")[..], &[Key::Enter]].concat()), None);
    let shown = lines(&mut model, 100, 10);
    assert_eq!(shown[2..6], ["ok", "Pay 100?", "  1  yes", "  2  no"]);
    assert_eq!(shown[8..], ["> perhaps_", "it takes `yes`, `no`"]);
    // A number stands for a choice. The answer names the question that was read.
    let sent = press(&mut model, &[Key::Clear, Key::Char('x'), Key::Backspace, Key::Char('2'), Key::Enter]);
    let Some(Action::Answer { address, value, asked }) = sent else { panic!("{sent:?}") };
    assert_eq!((&*address, &*value, asked.attempt, asked.digest.as_deref()), ("ok", "no", Some(1), Some("d1")));
    // A refusal keeps the prompt.
    model.refuse("the store is away".into());
    assert_eq!(lines(&mut model, 100, 10)[8..], ["> 2_", "the store is away"]);
    // Another question at the same place closes this one. Keys that were meant for it do nothing, up to Escape.
    wait(&mut model, &[gate("ok", &["yes", "no"], "d2")]);
    let closed = "this question is closed: somebody has answered it, or its time is over; Esc goes back";
    let typed_on = [&typed("acy1q? r")[..], &[Key::Tab, Key::Pasted('y'), Key::Enter, Key::Clear, Key::Left]].concat();
    for key in typed_on {
        assert_eq!(press(&mut model, &[key]), None);
        assert_eq!(lines(&mut model, 100, 10)[8..], ["> 2_", closed]);
    }
    press(&mut model, &[Key::Escape]);
    assert_eq!((&model.view, &*model.message), (&View::Tree, ""));
}

#[test]
fn questions_are_found_from_their_tasks_and_by_tab() {
    let mut model = shop();
    add(&mut model, "task:start", "", "bot", Value::Null);
    let waits = [gate("each[7].ok", &[], "d"), gate("bot#3", &["allow", "deny"], "d"), gate("bot/ok", &[], "d")];
    wait(&mut model, &waits);
    let asked = |model: &mut Model| {
        press(model, &[Key::Char('a')]);
        let View::Answer { wait, .. } = &model.view else { return None };
        let address = wait.address.clone();
        press(model, &[Key::Escape]);
        Some(address)
    };
    let mut found = Vec::new();
    for _ in 0..6 {
        found.push(asked(&mut model));
        press(&mut model, &[Key::Down]);
    }
    let found: Vec<_> = found.iter().map(|found| found.as_deref().unwrap_or("-")).collect();
    assert_eq!(found, ["-", "each[7].ok", "bot#3", "each[7].ok", "bot#3", "bot/ok"]);
    // From the last wait, Tab goes to the first one.
    press(&mut model, &[Key::Tab]);
    assert_eq!(asked(&mut model).as_deref(), Some("each[7].ok"));
    // The details of a question are those of its task.
    assert_eq!(press(&mut model, &[Key::Tab, Key::Enter]), Some(Action::ShowTask("bot".into())));
}

#[test]
fn steering_needs_a_confirmation() {
    let mut model = shop();
    let yes = Key::Char('y');
    assert_eq!(press(&mut model, &[Key::Char('r')]), None);
    assert_eq!(model.message, "the run has not ended; it can be repeated then");
    for no in [Key::Char('n'), Key::Enter, Key::Escape, Key::Char('q'), Key::Char('c')] {
        assert_eq!(press(&mut model, &[Key::Char('c'), no]), None, "{no:?}");
        assert_eq!((&model.view, &*model.message), (&View::Tree, "nothing was changed"), "{no:?}");
    }
    press(&mut model, &[Key::Char('c')]);
    assert!(lines(&mut model, 100, 8)[6].starts_with("Cancel the run r?"));
    assert_eq!(press(&mut model, &[yes]), Some(Action::Cancel));
    model.head = head("failed");
    assert_eq!(press(&mut model, &[Key::Char('c'), yes]), None);
    // A task in a body stands for its outermost owner.
    press(&mut model, &[Key::Down, Key::Right, Key::Down, Key::Right, Key::Down]);
    assert_eq!(press(&mut model, &[Key::Char('r'), yes]), Some(Action::Retry(Some("each".into()))));
    let mut without_tasks = empty();
    without_tasks.head = head("cancelled");
    assert_eq!(press(&mut without_tasks, &[Key::Char('r'), yes]), Some(Action::Retry(None)));
}

const ALL_KEYS: [Key; 15] = [
    Key::Up,
    Key::Down,
    Key::Left,
    Key::Right,
    Key::PageUp,
    Key::PageDown,
    Key::Home,
    Key::End,
    Key::Tab,
    Key::Enter,
    Key::Backspace,
    Key::Clear,
    Key::Char(' '),
    Key::Char('a'),
    Key::Char('x'),
];

#[test]
fn keys_on_an_empty_tree_do_nothing() {
    let mut model = empty();
    for key in ALL_KEYS {
        assert_eq!(press(&mut model, &[key]), None, "{key:?}");
        assert_eq!(rows(&mut model), ["  no task has begun"], "{key:?}");
        assert_eq!(model.view, View::Tree, "{key:?}");
    }
    assert_eq!(press(&mut model, &[Key::Char('q')]), Some(Action::Quit));
    press(&mut model, &[Key::Char('?')]);
    // In a text, `q` leaves the text, and Ctrl-C the command.
    assert_eq!(press(&mut model, &[Key::Char('q')]), None);
    press(&mut model, &[Key::Char('?')]);
    assert_eq!(press(&mut model, &[Key::Interrupt]), Some(Action::Interrupt));
}

/// Models in each view, with names and texts that try to steer the terminal.
fn hostile() -> Vec<Model> {
    let evil = "\u{1b}[2J\u{1b}]0;title\u{7}\r\n\t\u{9b}31m \u{202e}txt.exe\u{200b} 数据库 e\u{301}\u{301}";
    let deep = (0..6).map(|level| format!("{evil}{level}[0]")).collect::<Vec<_>>().join("~").replace('.', "");
    let new = || {
        let mut model = empty();
        model.head = Head { flow: evil.into(), error: Some(evil.into()), ..head("parked") };
        model.trouble = Some(evil.into());
        add(&mut model, "task:failed", "", evil, json!({ "error": { "code": evil, "message": evil.repeat(50) } }));
        add(&mut model, "task:ready", &deep.replace('~', "."), evil, Value::Null);
        let waits = json!({ "kind": "gate", "address": evil, "prompt": evil.repeat(50), "choices": [evil, evil] });
        wait(&mut model, &[waits, json!({ "kind": "decision", "address": evil, "message": evil })]);
        press(&mut model, &[Key::Down]);
        // Opens each level.
        for _ in 0..12 {
            press(&mut model, &[Key::Right, Key::Down]);
        }
        model
    };
    let (mut asks, mut details, mut help, mut confirms) = (new(), new(), new(), new());
    press(&mut asks, &[Key::Tab, Key::Char('a')]);
    press(&mut asks, &typed(evil));
    assert!(matches!(asks.view, View::Answer { .. }));
    details.show_details(evil, evil.repeat(40));
    press(&mut help, &[Key::Char('?')]);
    press(&mut confirms, &[Key::Char('c')]);
    vec![new(), asks, details, help, confirms]
}

#[test]
fn texts_of_tenants_cannot_steer_the_terminal() {
    for mut model in hostile() {
        let lines = [frame(&mut model, (70, 30), NOW), snapshot(&mut model, NOW)].concat();
        for line in lines {
            let text = line.text();
            let is_obeyed = |c: char| c.is_control() || matches!(c, '\u{202e}' | '\u{200b}');
            assert!(!text.contains(is_obeyed), "{:?}: {text:?}", model.view);
        }
    }
}

#[test]
fn each_size_of_a_terminal_has_its_frame() {
    for mut model in hostile() {
        for (width, height) in
            [0, 1, 2, 3, 7, 20, 40, 41].into_iter().flat_map(|width| [0, 1, 4, 5, 11].map(|height| (width, height)))
        {
            let lines = frame(&mut model, (width, height), NOW);
            assert!(lines.len() <= height, "{width} {height}");
            for line in &lines {
                let columns: usize = line.text().chars().map(|c| c.width().unwrap_or(0)).sum();
                assert!(columns <= width, "{width} {height}: {:?}", line.text());
            }
        }
    }
    let mut model = shop();
    assert_eq!(
        lines(&mut model, 40, 6)[1..4],
        [
            "running  began 3.0 s ago  1 failed, 1 r…",
            ">   ✓ first  succeeded  1.5 s",
            "  ▸ ● each  running  3.0 s  2 passes: 1…",
        ]
    );
}

#[test]
fn a_long_text_is_scrolled_and_cut_with_its_size() {
    let mut model = shop();
    let text: String = (0..6_000).map(|line| format!("line {line}\n")).collect();
    model.show_details("first", text.clone());
    assert_eq!(lines(&mut model, 100, 7)[2..6], ["line 0", "line 1", "line 2", "4998 more lines below"]);
    press(&mut model, &[Key::End]);
    let end = lines(&mut model, 200, 24);
    let cut = format!("… cut: the text has {} bytes; `flowcell runs show r 'first'` prints it", text.len());
    assert_eq!(end[19..23], ["line 4998", "line 4999", &cut, ""]);
    press(&mut model, &[Key::Home, Key::PageDown]);
    assert_eq!(press(&mut model, &[Key::Escape]), None);
    assert_eq!(model.view, View::Tree);
}

#[test]
fn an_ended_run_shows_its_duration_and_a_row_under_the_cursor() {
    let mut model = shop();
    model.head = head("failed");
    let lines = frame(&mut model, (100, 8), NOW);
    assert!(lines[1].text().starts_with("failed  in 2.0 s  "), "{}", lines[1].text());
    let selected: Vec<_> = lines.iter().filter(|line| line.is_selected).map(Line::text).collect();
    assert_eq!(selected, [">   ✓ first  succeeded  1.5 s"]);
    assert_eq!(lines[1].parts[0].0, Style::Bad);
}

#[test]
fn a_snapshot_has_all_rows_and_no_keys() {
    let mut model = shop();
    wait(&mut model, &[gate("ok", &["yes"], "d")]);
    let text: Vec<_> = snapshot(&mut model, NOW).iter().map(Line::text).collect();
    assert_eq!(
        text,
        [
            "shop  r",
            "running  began 3.0 s ago  1 open question  1 failed, 1 running, 2 succeeded",
            "  ✓ first  succeeded  1.5 s",
            "▸ ● each  running  3.0 s  2 passes: 1 failed, 1 succeeded",
            "  ? ok  Pay 100?",
        ]
    );
}
