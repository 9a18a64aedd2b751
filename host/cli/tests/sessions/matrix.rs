//! Tests runs with a session prefix that an earlier run has used, for each possible result of the earlier run.

use serde_json::{Value, json};

use super::project::{MATRIX, Project, SCRIPT, stderr, steps};

/// One run: its prompt, its further arguments, another script of the model, and the expected result.
struct Run {
    prompt: &'static str,
    more: &'static [&'static str],
    model: Option<&'static str>,
    exit: i32,
    /// The steps that ran in this run.
    ran: &'static [&'static str],
    completed: &'static [&'static str],
    failed: &'static [&'static str],
    postponed: &'static [&'static str],
}

const RUN: Run =
    Run { prompt: "go", more: &[], model: None, exit: 0, ran: &[], completed: &[], failed: &[], postponed: &[] };
const GOES: Run = Run { ran: &["first", "second"], completed: &["first", "second"], ..RUN };
const LATER: Run = Run { prompt: "later", ran: &["first"], completed: &["first"], postponed: &["third"], ..RUN };

/// A script of the model with which the second step fails. The failure is not retried.
const FAILS: &str = "
      - { match: 'Second', error: { code: model_invalid_request, message: no such luck } }
      - { match: 'First: go', json: { route: go } }
";
/// A script of the model with which the third step fails.
const THIRD_FAILS: &str = "
      - { match: 'Third', error: { code: model_invalid_request, message: no such luck } }
";

fn check(runs: &[Run]) -> Project {
    let project = Project::new();
    for (index, run) in runs.iter().enumerate() {
        project.set_script(run.model.unwrap_or(SCRIPT));
        let (exit, printed) = project.run(run.prompt, run.more);
        assert_eq!(exit, run.exit, "run {index}: {printed}");
        assert_eq!((&printed["flow_id"], &printed["root_session_id"]), (&json!("matrix"), &json!("p-matrix-first")));
        let lists = [
            ("running_steps", &[][..]),
            ("completed_steps", run.completed),
            ("failed_steps", run.failed),
            ("postponed_steps", run.postponed),
        ];
        for (list, expected) in lists {
            assert_eq!(steps(&printed, list), expected, "run {index}: {list} of {printed}");
        }
        let events = project.events(&format!("p-matrix-first:{}", index + 1));
        let begun = events.iter().filter(|event| event["type"] == "task:start");
        let begun: Vec<_> = begun.map(|event| event["taskId"].as_str().unwrap()).collect();
        assert_eq!(begun, run.ran, "run {index}");
    }
    project
}

#[test]
fn a_finished_flow_begins_again_with_fresh_states_and_old_sessions() {
    let project = check(&[GOES]);
    assert_eq!(project.message_roles("first"), ["user", "assistant"]);
    assert_eq!(
        project.message_roles("second"),
        ["user", "assistant", "user", "assistant"],
        "a fork knows the step before"
    );
    let project = check(&[GOES, GOES]);
    assert_eq!(project.message_roles("first").len(), 4);
    assert_eq!(project.message_roles("second").len(), 6, "a fork is made anew");
    let project = check(&[GOES, Run { prompt: "end", ran: &["first"], completed: &["first"], ..RUN }]);
    assert_eq!(project.states(), ["first completed"]);
    let kept = project.query("SELECT id || ' ' || ifnull(parent_session_id, '-') FROM sessions ORDER BY id");
    assert_eq!(kept, ["p-matrix-first -", "p-matrix-second p-matrix-first"]);
}

#[test]
fn a_postponed_step_is_run_by_the_next_run_with_its_own_arguments() {
    let next = Run { prompt: "other", ran: &["third"], completed: &["first", "third"], ..RUN };
    let project = check(&[LATER, next]);
    let args = project.query("SELECT args FROM flow_states WHERE step_id = 'third'");
    assert_eq!(serde_json::from_str::<Value>(&args[0]).unwrap(), json!({ "prompt": "later", "route": "later" }));
    assert_eq!(project.message_roles("third"), ["user", "assistant"], "another agent begins with nothing");
    let then = Run { prompt: "other", ran: &["third"], completed: &["first", "third"], ..RUN };
    check(&[LATER, then, GOES]);
}

#[test]
fn a_failed_step_begins_again_without_the_steps_before_it() {
    let failing = Run {
        exit: 1,
        model: Some(FAILS),
        ran: &["first", "second"],
        completed: &["first"],
        failed: &["second"],
        ..RUN
    };
    let again =
        Run { exit: 1, model: Some(FAILS), ran: &["second"], completed: &["first"], failed: &["second"], ..RUN };
    let better = Run { ran: &["second"], completed: &["first", "second"], ..RUN };
    let project = check(&[failing, again, better, GOES]);
    assert_eq!(project.message_roles("second").len(), 6, "the history of both runs of the first step, and its own");
    let third =
        Run { exit: 1, model: Some(THIRD_FAILS), ran: &["third"], completed: &["first"], failed: &["third"], ..RUN };
    check(&[LATER, third, Run { ran: &["third"], completed: &["first", "third"], ..RUN }]);
}

/// With `resume_on_failure: false` a failure is no reason to continue; a postponed step is.
#[test]
fn a_flow_may_begin_anew_after_a_failure() {
    let project = Project::new();
    project.write(
        ".flowcell/flows/matrix.yaml",
        &MATRIX.replace("  args:", "  session: { resume_on_failure: false }\n  args:"),
    );
    let begun = |run: &str| {
        let events = project.events(run).into_iter().filter(|event| event["type"] == "task:start");
        events.map(|event| event["taskId"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    project.set_script(FAILS);
    let (exit, printed) = project.run("go", &[]);
    assert_eq!((exit, steps(&printed, "failed_steps")), (1, vec!["second".to_owned()]), "{printed}");
    project.set_script(SCRIPT);
    let (exit, printed) = project.run("later", &[]);
    assert_eq!((exit, steps(&printed, "postponed_steps")), (0, vec!["third".to_owned()]), "{printed}");
    assert_eq!(begun("p-matrix-first:2"), ["first"]);
    assert_eq!(steps(&printed, "failed_steps"), Vec::<String>::new(), "the states are those of the new run");
    assert_eq!(project.run("go", &[]).0, 0);
    assert_eq!(begun("p-matrix-first:3"), ["third"]);
}

/// Rules that lead back to their own step have an effect if they postpone it.
#[test]
fn a_step_may_postpone_itself() {
    let project = Project::new();
    let text = r#"
flow:
  steps:
    - { id: first, prompt: "First: end ${args.prompt}", rules: [{ then: second }] }
    - id: second
      prompt: Second
      output: { schema: { type: object, required: [left], properties: { left: { type: array, items: { type: string } } } } }
      rules:
        - { if: "sizeof ${args.left} != 0", then: second, postpone: true }
        - { if: "sizeof ${args.left} == 0", then: third }
    - { id: third, prompt: Third }
"#;
    project.write(".flowcell/flows/matrix.yaml", text);
    let script = |left: &str| SCRIPT.replace("text: second is done", &format!("json: {{ left: {left} }}"));
    let runs: [(&str, [&[&str]; 3]); 3] = [
        ("[a, b]", [&["first", "second"], &["first"], &["second"]]),
        ("[b]", [&["second"], &["first"], &["second"]]),
        ("[]", [&["second", "third"], &["first", "second", "third"], &[]]),
    ];
    for (left, [begun, completed, postponed]) in runs {
        project.set_script(&script(left));
        let (exit, printed) = project.run(if left == "[a, b]" { "go" } else { "other" }, &[]);
        assert_eq!(exit, 0, "{printed}");
        assert_eq!(steps(&printed, "completed_steps"), completed, "{left}: {printed}");
        assert_eq!(steps(&printed, "postponed_steps"), postponed, "{left}: {printed}");
        let run = project.query("SELECT run FROM sessions WHERE id = 'p-matrix-second'").remove(0);
        let events = project.events(&run).into_iter().filter(|event| event["type"] == "task:start");
        let ran: Vec<_> = events.map(|event| event["taskId"].as_str().unwrap().to_owned()).collect();
        assert_eq!(ran, begun, "{left}");
        let args = project.query("SELECT args FROM flow_states WHERE step_id = 'second'").remove(0);
        assert_eq!(serde_json::from_str::<Value>(&args).unwrap()["prompt"], "go", "{left}");
    }
    assert_eq!(project.message_roles("second").len(), 6, "the conversation goes on");
    let parents = project.query("SELECT id || ' ' || ifnull(parent_session_id, '-') FROM sessions ORDER BY id");
    let expected = ["p-matrix-first -", "p-matrix-second p-matrix-first", "p-matrix-third p-matrix-second"];
    assert_eq!(parents, expected);
}

#[test]
fn a_flow_may_name_its_prefix() {
    let project = Project::new();
    let own = |prefix: &str| {
        format!("flow:\n  session: {{ prefix: \"{prefix}\" }}\n  steps: [{{ id: one, prompt: 'First: end' }}]\n")
    };
    project.write(".flowcell/flows/own.yaml", &own("${args.issue.key}"));
    project.write(".flowcell/flows/fixed.yaml", &own("fixed_1.a"));
    let root = |arguments: &[&str]| {
        let output = project.done(&[&["-q", "-p", "x"], arguments].concat());
        let printed: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        printed["root_session_id"].as_str().map(str::to_owned).ok_or_else(|| stderr(&output))
    };
    assert_eq!(root(&["-F", "own", "-A", r#"issue={"key":"ABC-1"}"#]).unwrap(), "ABC-1-own-one");
    assert_eq!(root(&["-F", "own", "-A", r#"issue={"key":17}"#]).unwrap(), "17-own-one");
    assert_eq!(root(&["-F", "own", "-A", r#"issue={"key":"ABC-1"}"#, "-s", "mine"]).unwrap(), "mine-own-one");
    assert_eq!(root(&["-F", "own", "-s", "mine"]).unwrap(), "mine-own-one", "`-s` needs no argument");
    assert_eq!(root(&["-F", "fixed"]).unwrap(), "fixed_1.a-fixed-one");
    assert_eq!(project.query("SELECT count(*) || '' FROM sessions WHERE id = 'ABC-1-own-one'"), ["1"]);
    for (issue, expected) in [
        (r#"{"key":"../x"}"#, "`../x` is not a prefix"),
        (r#"{"key":"a b"}"#, "`a b` is not a prefix"),
        (r#"{"key":""}"#, "`` is not a prefix"),
        (r#"{"key":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}"#, "is not a prefix"),
        (r#"{"key":["a"]}"#, "`${args.issue.key}`, and this argument is not a text"),
        (r#"{"key":null}"#, "`${args.issue.key}`, and this argument is not a text"),
        ("ABC-1", "`${args.issue.key}`, and this argument is not a text"),
    ] {
        let refused = root(&["-F", "own", "-A", &format!("issue={issue}")]).unwrap_err();
        assert!(refused.contains(expected), "{issue}: {refused}");
    }
    assert!(root(&["-F", "own"]).unwrap_err().contains("give it with `-A key=value`"));
}

#[test]
fn deleting_removes_all_messages_and_states() {
    let delete: &[&str] = &["-D"];
    let anew = Run { more: delete, prompt: "end", ran: &["first"], completed: &["first"], ..RUN };
    let project = check(&[GOES, anew]);
    assert_eq!(project.message_roles("first").len(), 2);
    assert!(project.message_roles("second").is_empty());
    assert_eq!(project.query("SELECT id FROM sessions"), ["p-matrix-first"]);
    // With failed or postponed steps, a run can still begin with the first step.
    let failing = Run {
        exit: 1,
        model: Some(FAILS),
        ran: &["first", "second"],
        completed: &["first"],
        failed: &["second"],
        ..RUN
    };
    check(&[failing, Run { more: delete, ..GOES }]);
    check(&[LATER, Run { more: delete, ..GOES }]);
}

#[test]
fn prefixes_are_independent_of_each_other() {
    let project = Project::new();
    project.run("go", &[]);
    let other = project.done(&["-F", "matrix", "-s", "q", "-q", "-p", "end"]);
    assert!(other.status.success(), "{}", stderr(&other));
    assert_eq!(project.query("SELECT count(*) || '' FROM sessions"), ["3"]);
    let timed = project.done(&["-F", "matrix", "-q", "-p", "end"]);
    let timed: Value = serde_json::from_slice(&timed.stdout).unwrap();
    let root = timed["root_session_id"].as_str().unwrap();
    assert!(root.ends_with("-matrix-first") && root.as_bytes()[0].is_ascii_digit(), "{root}");
}

#[test]
fn a_postponed_step_that_no_longer_exists_is_reported() {
    let project = check(&[LATER]);
    project.write(".flowcell/flows/matrix.yaml", &MATRIX.replace("third", "fourth"));
    let refused = project.done(&["-F", "matrix", "-s", "p", "-q", "-p", "go"]);
    assert_eq!(refused.status.code(), Some(2));
    for part in ["a run cannot start with the unknown step `third`", "remove the sessions of the prefix with `-D`"] {
        assert!(stderr(&refused).contains(part), "{}", stderr(&refused));
    }
    assert_eq!(project.run("go", &["-D"]).0, 0);
}

#[test]
fn a_run_retried_by_hand_belongs_to_the_prefix() {
    let project = check(&[GOES]);
    let again = project.done(&["runs", "retry", "p-matrix-first:1", "--run-id", "again", "-q"]);
    assert!(again.status.success(), "{}", stderr(&again));
    assert_eq!(project.query("SELECT DISTINCT run FROM sessions"), ["again"]);
    assert_eq!(project.run("end", &[]).0, 0);
    assert_eq!(project.query("SELECT run FROM sessions WHERE id = 'p-matrix-first'"), ["p-matrix-first:2"]);
}

#[test]
fn a_fallback_gets_the_arguments_of_a_step_whose_prompt_lacks_one() {
    let project = Project::new();
    let flow = r#"
flow:
  steps:
    - id: gather
      prompt: "First: ${args.prompt}"
      output: { schema: { type: object, required: [route], properties: { route: { type: string } } } }
      rules: [{ then: use }]
    - { id: use, prompt: "Use ${args.missing}", fallback: { retry: 0, to: mend } }
    - { id: mend, prompt: "Second: ${args.route}" }
"#;
    project.write(".flowcell/flows/lacking.yaml", flow);
    let output = project.done(&["-F", "lacking", "-s", "p", "-q", "-p", "go"]);
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(steps(&printed, "failed_steps"), ["use"]);
    assert!(printed["failed_steps"][0]["output"].as_str().unwrap().contains("missing"), "{printed}");
    assert_eq!(steps(&printed, "completed_steps"), ["gather", "mend"]);
    // A failure that another step has handled is not resumed.
    let again = project.done(&["-F", "lacking", "-s", "p", "-q", "-p", "go"]);
    assert!(project.events("p-lacking-gather:2").iter().any(|event| event["taskId"] == "gather"), "{}", stderr(&again));
}
