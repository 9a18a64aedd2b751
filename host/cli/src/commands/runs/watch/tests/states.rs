//! The states of waiting tasks, the tasks of called flows, the end of a run, and narrow terminals.

use flowcell::{
    RunEnd,
    contract::{Failure, Json},
};

use super::super::outcome::Outcome;
use super::*;

fn called(model: &mut Model, address: &str, run: &str, kind: &'static str, node: &str, more: Value) {
    let mut data = json!({ "taskId": node });
    data.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
    let (tenant, run_id) = (Tenant::local(), run.into());
    model.add_to_call(address, &Event { seq: 0, ts: 0, tenant, run_id, kind, data: Json::from(data) });
}

/// A run whose task `review` has called a flow.
fn calls() -> Model {
    let mut model = empty();
    add(&mut model, "task:start", "", "review", Value::Null);
    add(&mut model, "task:paused", "", "review", json!({ "until": ["flow"], "flow": "checks" }));
    add(&mut model, "task:start", "", "last", Value::Null);
    model
}

#[test]
fn tasks_that_wait_for_different_causes_differ_by_sign_and_word() {
    let mut model = empty();
    for (node, kind, data) in [
        ("gate", "task:paused", json!({ "until": ["answer", "after"], "question": { "prompt": "Pay?" } })),
        ("event", "task:paused", json!({ "until": ["event"], "event": "paid" })),
        ("timer", "task:paused", json!({ "until": ["after"] })),
        ("again", "task:retry", json!({})),
        ("owner", "task:paused", json!({ "until": ["body"] })),
    ] {
        add(&mut model, kind, "", node, data);
    }
    add(&mut model, "task:start", "", "agent", Value::Null);
    add(&mut model, "task:idle", "", "agent", Value::Null);
    assert_eq!(
        rows(&mut model),
        [
            ">   ? gate  asking",
            "    ◎ event  listening",
            "    ◷ timer  waiting",
            "    ↻ again  retrying",
            "    ◌ owner  waiting",
            "    ◎ agent  listening  3.0 s",
        ]
    );
    assert!(lines(&mut model, 100, 24)[1].ends_with("1 asking, 2 listening, 2 waiting, 1 retrying"));
    // In a body, passes that ask stand before those that wait for a timer.
    let mut model = empty();
    add(&mut model, "task:paused", "", "each", json!({ "until": ["body"] }));
    add(&mut model, "task:paused", "each[0]", "t", json!({ "until": ["after"] }));
    add(&mut model, "task:paused", "each[1]", "e", json!({ "event": "paid" }));
    add(&mut model, "task:paused", "each[2]", "g", json!({ "question": {} }));
    press(&mut model, &[Key::Right]);
    let shown = rows(&mut model);
    assert!(shown[0].ends_with("3 passes: 1 asking, 1 listening, 1 waiting"), "{shown:#?}");
    assert_eq!(
        shown[1..],
        ["    ▸ ? [2]  asking  1 asking", "    ▸ ◎ [1]  listening  1 listening", "    ▸ ◌ [0]  waiting  1 waiting"]
    );
    // The waits below the tree have the same signs.
    let waits = [
        gate("ok", &[], "d"),
        json!({ "kind": "message", "address": "bot" }),
        json!({ "kind": "decision", "address": "pay", "message": "m" }),
    ];
    let signs: Vec<_> = waits.iter().map(|wait| Wait::of(wait).state).collect();
    assert_eq!(signs, ["asking", "listening", "blocked"]);
}

#[test]
fn tasks_of_a_called_flow_stand_below_the_task_that_calls() {
    let mut model = calls();
    assert_eq!(rows(&mut model), ["> ▸ ◌ review  waiting  3.0 s", "    ● last  running  3.0 s"]);
    assert!(!model.lacks_call());
    press(&mut model, &[Key::Right]);
    // The feed reads the run because the task is open.
    assert_eq!((model.open_calls(), model.lacks_call()), (vec!["review".to_owned()], true));
    assert!(rows(&mut model)[1].contains("not read yet"));
    model.begin_call("review", &"r.review.1".into());
    assert!(!model.lacks_call());
    called(&mut model, "review", "r.review.1", "task:complete", "check", json!({ "durationMs": 7 }));
    called(&mut model, "review", "r.review.1", "task:paused", "ok", json!({ "question": { "prompt": "Pay?" } }));
    called(&mut model, "review", "r.review.1", "task:paused", "deeper", json!({ "flow": "other" }));
    wait(&mut model, &[gate("review/ok", &["yes"], "d")]);
    let shown = rows(&mut model);
    assert_eq!(
        shown,
        [
            "> ▾ ◌ review  waiting  3.0 s",
            "        the run r.review.1",
            "      ✓ check  succeeded  7 ms",
            "      ? ok  asking  Pay 100?",
            "    ▸ ◌ deeper  waiting",
            "    ● last  running  3.0 s",
            "    ? review/ok  Pay 100?",
        ]
    );
    // A question, the details and a retry are found from a row of the called flow.
    let below = [Key::Down, Key::Down, Key::Down];
    assert_eq!(press(&mut model, &[&below[..], &[Key::Enter]].concat()), Some(Action::ShowTask("review/ok".into())));
    press(&mut model, &[Key::Char('a')]);
    assert!(matches!(&model.view, View::Answer { wait, .. } if wait.address == "review/ok"));
    press(&mut model, &[Key::Escape]);
    model.head = head("failed");
    assert_eq!(press(&mut model, &typed("ry")), Some(Action::Retry(Some("review".into()))));
    // A called flow in a called flow opens, too.
    press(&mut model, &[Key::Down, Key::Right]);
    assert_eq!(model.open_calls(), ["review", "review/deeper"]);
    // Folding the outer task forgets both.
    press(&mut model, &typed("hhh"));
    assert!(model.open_calls().is_empty());
    model.keep_calls(&[]);
    assert_eq!(rows(&mut model).len(), 3);
}

#[test]
fn only_some_called_flows_are_read_at_a_time() {
    let mut model = empty();
    for pass in 0..20 {
        add(&mut model, "task:paused", &format!("each[{pass}]"), "call", json!({ "flow": "f" }));
    }
    press(&mut model, &[Key::Right]);
    // Opens each pass, and then the call in it, from the last one on.
    press(&mut model, &[Key::End]);
    for _ in 0..20 {
        press(&mut model, &[Key::Right, Key::Right, Key::Right, Key::Up, Key::Up]);
    }
    let open = model.open_calls();
    assert_eq!((open.len(), &*open[0]), (8, "each[0].call"));
    open.iter().for_each(|address| model.begin_call(address, &format!("r.{address}.1").into()));
    assert!(!model.lacks_call());
    let text: Vec<_> = snapshot(&mut model, NOW).iter().map(Line::text).collect();
    assert_eq!(text.iter().filter(|line| line.contains("the run r.each[")).count(), 8);
    assert_eq!(text.iter().filter(|line| line.contains("not read yet")).count(), 12, "{text:#?}");
    // An error stands in the place of the run, and the tasks before it stay.
    called(&mut model, "each[0].call", "r.each[0].call.1", "task:start", "one", Value::Null);
    model.set_call_note("each[0].call", "the called run cannot be read: \u{1b}[2J".into());
    let shown = rows(&mut model);
    assert!(shown.iter().any(|row| row.contains("cannot be read: \\u{1b}[2J")), "{shown:#?}");
    assert!(shown.iter().any(|row| row.contains("● one")), "{shown:#?}");
}

fn failure(message: &str) -> RunEnd {
    let failure = Failure::new("refused", message);
    RunEnd::Failed { outputs: Json::from(json!({})), failure, task: Some("each[1].pay".into()) }
}

fn succeeded(outputs: Value) -> RunEnd {
    RunEnd::Succeeded { outputs: Json::from(outputs) }
}

#[test]
fn an_ended_run_shows_its_outputs_or_its_error_with_the_command_for_the_rest() {
    let end = |status: &str, end: &RunEnd| {
        let mut model = shop();
        (model.head, model.outcome) = (head(status), Some(Outcome::of(end)));
        model
    };
    let mut model = end("succeeded", &succeeded(json!({ "said": "a  b" })));
    let shown = lines(&mut model, 80, 12);
    assert_eq!(shown[2], r#"outputs: {"said":"a  b"}"#);
    assert_eq!(shown[3], "`flowcell runs resume r` prints the outputs, and repeats nothing");
    assert!(shown[4].starts_with(">   ✓ first"), "{shown:#?}");
    assert_eq!(shown[11], "? help  q quit  ↑↓ go  →← open  Enter details  o outputs  r repeat");
    // A long text is cut with its size. All of it is on a page.
    let long = json!({ "text": "word ".repeat(200), "last": true });
    let bytes = Json::from(long.clone()).to_string().len();
    let mut model = end("succeeded", &succeeded(long));
    let shown = lines(&mut model, 80, 12);
    assert!(shown[2].starts_with("outputs: {") && !shown[3].is_empty(), "{shown:#?}");
    assert_eq!(shown[4], format!("… cut: the outputs have {bytes} bytes"));
    press(&mut model, &[Key::Char('o')]);
    let page = lines(&mut model, 80, 40).join("\n");
    assert!(page.contains("\"last\": true") && page.contains("flowcell runs resume r"), "{page}");
    assert_eq!(press(&mut model, &[Key::Escape]), None);
    assert_eq!(model.view, View::Tree);
    // An error, with its task, and the command that shows the attempts.
    let mut model = end("failed", &failure("not today"));
    let shown = lines(&mut model, 80, 12);
    assert_eq!(shown[2], "refused at `each[1].pay`: not today");
    assert_eq!(shown[3], "`flowcell runs show r 'each[1].pay'` shows the task that failed");
    // A small terminal keeps its rows and its keys.
    for height in 5..12 {
        let shown = lines(&mut model, 80, height);
        assert!(shown.iter().any(|line| line.starts_with("> ")), "{height}: {shown:#?}");
        assert!(shown[height - 1].starts_with("? help  q quit"), "{height}: {shown:#?}");
    }
    // Outputs that are too large for the screen, and an end that is unknown.
    let mut model = end("succeeded", &succeeded(json!({ "text": "数".repeat(300_000) })));
    press(&mut model, &[Key::Char('o'), Key::End]);
    let page = lines(&mut model, 200, 24).join("\n");
    assert!(page.contains("… cut: the outputs have 900011 bytes"), "{page}");
    let mut model = end("failed", &failure("x"));
    model.outcome = Some(Outcome::unknown("a record is damaged".into()));
    assert_eq!(lines(&mut model, 80, 12)[2], "the outputs are unknown: a record is damaged");
    let text: Vec<_> = snapshot(&mut model, NOW).iter().map(Line::text).collect();
    assert_eq!(text[2], "the outputs are unknown: a record is damaged");
    // Without outputs nothing is shown, and a run that goes on has no page.
    assert!(lines(&mut end("succeeded", &succeeded(json!({}))), 80, 12)[2].starts_with(">   ✓ first"));
    let mut model = shop();
    press(&mut model, &[Key::Char('o')]);
    assert_eq!(model.message, "the run has not ended, so it has no outputs");
}

#[test]
fn a_narrow_terminal_keeps_states_and_keys_and_marks_each_cut() {
    let mut model = empty();
    let name = "数据库".repeat(10);
    for node in [&*name, "a-very-long-name-of-a-node-in-a-flow-that-goes-on"] {
        add(&mut model, "task:failed", "", node, json!({ "error": { "code": "x", "message": "long ".repeat(20) } }));
    }
    add(&mut model, "task:paused", "a[0].b[0].c[0].d[0].e[0]", "deep-name-of-a-node", json!({ "question": {} }));
    for _ in 0..24 {
        press(&mut model, &[Key::Down, Key::Right]);
    }
    let shown = lines(&mut model, 40, 24);
    assert!(shown[2].contains("…  failed") && shown[3].contains("…  failed"), "{shown:#?}");
    assert!(shown[2].ends_with('…') && shown[3].ends_with('…'), "the error is cut: {shown:#?}");
    assert!(shown.iter().any(|line| line.contains("? deep-n") && line.contains("asking")), "{shown:#?}");
    assert_eq!(shown[23], "? help  q quit  a answer  c cancel");
    for width in 24..100 {
        let lines = lines(&mut model, width, 24);
        assert!(lines[23].starts_with("? help  q quit") && !lines[23].contains('…'), "{width}: {lines:#?}");
        let has_state = |line: &String| ["…  failed", "on  failed", "库  failed"].iter().any(|end| line.contains(end));
        assert!(lines[2..4].iter().all(has_state), "{width}: {lines:#?}");
    }
    // A state that cannot be read does not hide the state of the run.
    model.trouble = Some("the run cannot be read: ".repeat(5));
    assert!(lines(&mut model, 40, 24)[1].starts_with("running  the run cannot be read"));
    model.trouble = None;
    // A question of a prompt and a message have several lines.
    model.head = head("failed");
    press(&mut model, &[Key::Home, Key::Down, Key::Char('r')]);
    let shown = lines(&mut model, 40, 24);
    assert_eq!(shown[23], "y yes  any other key: no");
    assert!(shown[19..23].join(" ").contains("as a new run?"), "{shown:#?}");
    // The typed end of an answer is visible, with a mark for the rest.
    let mut model = empty();
    add(&mut model, "task:paused", "", "ok", json!({ "question": {} }));
    wait(&mut model, &[gate("ok", &[], "d")]);
    press(&mut model, &[Key::Char('a')]);
    press(&mut model, &typed(&"数".repeat(40)));
    press(&mut model, &typed("end"));
    let answer = lines(&mut model, 20, 10)[8].clone();
    assert!(answer.starts_with("> …数") && answer.ends_with("数end_"), "{answer}");
}

#[test]
fn hostile_names_of_called_flows_and_outputs_cannot_steer_the_terminal() {
    let evil = "\u{1b}[2J\u{1b}]0;t\u{7}\r\n\t\u{9b}31m \u{202e}txt\u{200b} 数据 e\u{301}";
    let mut model = empty();
    add(&mut model, "task:paused", "", evil, json!({ "flow": evil }));
    press(&mut model, &[Key::Right]);
    model.begin_call(evil, &evil.into());
    called(&mut model, evil, evil, "task:failed", evil, json!({ "error": { "code": evil, "message": evil } }));
    let failure = Failure::new("refused", evil.repeat(30));
    let end = RunEnd::Failed { outputs: Json::from(json!({ evil: evil })), failure, task: Some(evil.into()) };
    (model.head, model.outcome) = (head("failed"), Some(Outcome::of(&end)));
    for page in [false, true] {
        if page {
            press(&mut model, &[Key::Char('o')]);
        }
        for (width, height) in [(100, 30), (40, 12), (20, 9), (7, 6), (0, 4)] {
            for line in frame(&mut model, (width, height), NOW) {
                let text = line.text();
                let is_obeyed = |c: char| c.is_control() || matches!(c, '\u{202e}' | '\u{200b}');
                assert!(!text.contains(is_obeyed), "{width}: {text:?}");
                let columns: usize = text.chars().map(|c| c.width().unwrap_or(0)).sum();
                assert!(columns <= width, "{width}: {text:?}");
            }
        }
    }
}

#[test]
fn printed_commands_select_the_tenant_of_the_run() {
    let long = |lines: u32| (0..lines).map(|line| format!("line {line}\n")).collect::<String>();
    let of_tenant = || {
        let mut model = shop();
        model.selection = " --tenant acme".into();
        model
    };
    let mut ended = of_tenant();
    (ended.head, ended.outcome) = (head("failed"), Some(Outcome::of(&failure("not today"))));
    let shown = lines(&mut ended, 100, 12);
    assert_eq!(shown[3], "`flowcell runs show r 'each[1].pay' --tenant acme` shows the task that failed");
    ended.outcome = Some(Outcome::of(&succeeded(json!({ "text": "x" }))));
    let shown = lines(&mut ended, 100, 12);
    assert_eq!(shown[3], "`flowcell runs resume r --tenant acme` prints the outputs, and repeats nothing");
    let mut details = of_tenant();
    details.show_details("first", long(6_000));
    press(&mut details, &[Key::End]);
    let shown = lines(&mut details, 200, 24).join("\n");
    assert!(shown.contains("`flowcell runs show r 'first' --tenant acme` prints it"), "{shown}");
    let mut asks = of_tenant();
    let mut question = gate("ok", &["yes"], "d");
    question["prompt"] = long(6_000).into();
    wait(&mut asks, &[question]);
    press(&mut asks, &[Key::Tab, Key::Char('a'), Key::End]);
    let shown = lines(&mut asks, 200, 24).join("\n");
    assert!(shown.contains("`flowcell answer r 'ok' --show --tenant acme` prints it"), "{shown}");
}

#[test]
fn the_help_explains_the_signs_of_the_rows() {
    let mut model = shop();
    press(&mut model, &[Key::Char('?')]);
    let page = lines(&mut model, 100, 60);
    for line in ["◷ waiting  it waits for a time", "✗ failed  it failed", "✓ succeeded  it succeeded"] {
        assert!(page.iter().any(|shown| shown == line), "{line}: {page:#?}");
    }
    // Each sign of the tree is in the list.
    press(&mut model, &[Key::Char('q')]);
    for row in rows(&mut model) {
        let sign = row.trim_start_matches(['>', '▸', '▾', ' ']).chars().next().unwrap();
        assert!(page.iter().any(|shown| shown.starts_with(sign)), "{row}: {page:#?}");
    }
}
