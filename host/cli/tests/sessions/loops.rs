//! Tests loops: steps that rules and fallbacks repeat, with the sessions and states that they leave.

use std::{
    io::{BufRead, BufReader},
    process::Stdio,
};

use serde_json::{Value, json};

use super::{
    killed::{by_the_journal, is_over, killed_after},
    project::{Project, stderr, steps},
};

/// A coder and a reviewer who take turns until the reviewer approves.
const TURNS: &str = r#"
flow:
  steps:
    - { id: first, prompt: First, rules: [{ then: coder }] }
    - id: coder
      maxIterations: 3
      prompt: "Code ${step.iteration} of ${args.prompt}"
      rules: [{ then: reviewer }]
    - id: reviewer
      prompt: "Review ${step.iteration}"
      output:
        schema:
          type: object
          required: [verdict]
          properties: { verdict: { type: string }, notes: { type: string } }
      rules:
        - { if: "${args.verdict} == again", then: coder }
        - { if: "${args.verdict} == fine", then: done }
    - { id: done, prompt: "Done: ${args}" }
"#;

/// The reviewer approves the second draft.
const FINE: &str = "
      - { match: 'Review 1', json: { verdict: again, notes: too short } }
      - { match: 'Review 2', json: { verdict: fine } }
";
/// The reviewer never approves.
const NEVER: &str = "
      - { match: 'Review 1', json: { verdict: again, notes: first } }
      - { match: 'Review', json: { verdict: again, notes: later } }
";

/// Returns a project with a flow and a script of the model.
fn project(flow: &str, script: &str) -> Project {
    let project = Project::new();
    project.write(".flowcell/flows/matrix.yaml", flow);
    project.set_script(&format!("{script}\n      - {{ match: ' ', text: well }}\n"));
    project
}

/// Returns the steps that began in a run, in their order.
fn ran(project: &Project, count: usize) -> Vec<String> {
    let events = project.events(&format!("p-matrix-first:{count}"));
    let begun = events.iter().filter(|event| event["type"] == "task:start");
    begun.map(|event| event["nodeId"].as_str().unwrap().to_owned()).collect()
}

/// Returns the arguments in the state of a step.
fn args(project: &Project, step: &str) -> Value {
    let found = project.query(&format!("SELECT args FROM flow_states WHERE step_id = '{step}'"));
    serde_json::from_str(&found[0]).unwrap()
}

#[test]
fn steps_take_turns_until_a_rule_leaves_the_loop() {
    let project = project(TURNS, FINE);
    let (exit, printed) = project.run("go", &[]);
    assert_eq!(exit, 0, "{printed}");
    assert_eq!(ran(&project, 1), ["first", "coder", "reviewer", "coder", "reviewer", "done"]);
    assert_eq!(steps(&printed, "completed_steps"), ["first", "coder", "reviewer", "done"]);
    let reviewer = &printed["completed_steps"][2];
    assert_eq!(reviewer["output"], json!(r#"{"verdict":"fine"}"#), "the state is that of the last iteration");
    assert_eq!(args(&project, "coder"), json!({ "prompt": "go", "verdict": "again", "notes": "too short" }));
    assert_eq!(args(&project, "done"), json!({ "prompt": "go", "verdict": "fine", "notes": "too short" }));
    let turn = ["user", "assistant"];
    assert_eq!(project.message_roles("coder"), [turn, turn].concat(), "the conversation goes on");
    // Another run goes on with the conversations, and `-D` begins new ones.
    assert_eq!(project.run("go", &[]).0, 0);
    assert_eq!(project.message_roles("coder").len(), 8);
    assert_eq!(project.run("go", &["-D"]).0, 0);
    assert_eq!(project.message_roles("coder").len(), 4);
}

#[test]
fn a_run_without_a_session_loops_too() {
    let project = project(TURNS, FINE);
    let file = project.path().join(".flowcell/flows/matrix.yaml").display().to_string();
    let output = project.done(&["run", &file, "-q", "-i", "prompt=go", "--providers", "providers.yaml"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let outputs: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(outputs["done"]["args"], json!({ "prompt": "go", "verdict": "fine", "notes": "too short" }));
}

#[test]
fn one_iteration_too_many_fails_the_step() {
    let project = project(TURNS, NEVER);
    let (exit, printed) = project.run("go", &[]);
    assert_eq!(exit, 1, "{printed}");
    let turns = ["coder", "reviewer"];
    assert_eq!(ran(&project, 1), [&["first"], &turns[..], &turns, &turns].concat());
    assert_eq!(steps(&printed, "failed_steps"), ["coder"]);
    let reason = printed["failed_steps"][0]["output"].as_str().unwrap();
    assert!(reason.contains("at most 3") && reason.contains("maxIterations"), "{reason}");
    // The next run begins with the failed step, and counts its iterations from 1.
    let (exit, printed) = project.run("go", &[]);
    assert_eq!((exit, steps(&printed, "failed_steps")), (1, vec!["coder".to_owned()]), "{printed}");
    assert_eq!(ran(&project, 2), [turns, turns, turns].concat());
    project.set_script(FINE);
    let (exit, printed) = project.run("go", &[]);
    assert_eq!((exit, steps(&printed, "failed_steps")), (0, vec![]), "{printed}");
    assert_eq!(ran(&project, 3), [&turns[..], &turns, &["done"]].concat());
}

#[test]
fn a_fallback_follows_one_iteration_too_many() {
    let flow = TURNS.replace("maxIterations: 3", "maxIterations: 2\n      fallback: { to: done }");
    let project = project(&flow, NEVER);
    let (exit, printed) = project.run("go", &[]);
    assert_eq!((exit, steps(&printed, "failed_steps")), (0, vec!["coder".to_owned()]), "{printed}");
    assert_eq!(ran(&project, 1), ["first", "coder", "reviewer", "coder", "reviewer", "done"]);
    let latest = json!({ "prompt": "go", "verdict": "again", "notes": "later" });
    assert_eq!(args(&project, "done"), latest, "the arguments are those of the iteration that did not begin");
}

#[test]
fn a_rule_may_count_the_iterations() {
    let flow = r#"
flow:
  steps:
    - id: first
      prompt: "Try ${step.iteration}"
      rules:
        - { if: "${step.iteration} < 4", then: first, cycle: true }
        - { if: "${step.iteration} >= 4", then: done }
    - { id: done, prompt: "Done after ${args.prompt}" }
"#;
    let project = project(flow, "");
    let (exit, printed) = project.run("go", &[]);
    assert_eq!((exit, ran(&project, 1)), (0, ["first"; 4].into_iter().chain(["done"]).map(str::to_owned).collect()));
    assert_eq!(steps(&printed, "completed_steps"), ["first", "done"]);
    let said = project.query("SELECT value FROM state WHERE key = 'session/matrix/first/p'").remove(0);
    let prompts = ["Try 1", "Try 2", "Try 3", "Try 4"].map(|prompt| said.matches(prompt).count());
    assert_eq!(prompts, [1; 4], "{said}");
}

/// An inner loop begins again in each iteration of the outer one, and counts anew.
#[test]
fn loops_may_contain_loops() {
    let flow = r#"
flow:
  steps:
    - { id: first, maxIterations: 2, prompt: "Plan ${step.iteration}", rules: [{ then: coder }] }
    - { id: coder, maxIterations: 2, prompt: "Code ${step.iteration}", rules: [{ then: reviewer }] }
    - id: reviewer
      prompt: "Review ${step.iteration}, ${args.plans}"
      output: { schema: { type: object, required: [verdict, plans], properties: { verdict: {}, plans: { type: integer } } } }
      rules:
        - { if: "${args.verdict} == code", then: coder }
        - { if: "${args.verdict} == plan", then: first }
        - { if: "${args.verdict} == fine", then: done }
    - { id: done, prompt: Done }
"#;
    let script = "
      - { match: 'Review 1, 1', json: { verdict: code, plans: 1 } }
      - { match: 'Review 2, 1', json: { verdict: plan, plans: 2 } }
      - { match: 'Review 1, 2', json: { verdict: code, plans: 2 } }
      - { match: 'Review 2, 2', json: { verdict: fine, plans: 2 } }
";
    let project = project(flow, script);
    let (exit, printed) = project.run("go", &["-A", "plans=1"]);
    assert_eq!(exit, 0, "{printed}");
    let turns = ["coder", "reviewer", "coder", "reviewer"];
    assert_eq!(ran(&project, 1), [&["first"], &turns[..], &["first"], &turns, &["done"]].concat());
    let said = project.query("SELECT value FROM state WHERE key = 'session/matrix/first/p'").remove(0);
    assert!(said.contains("Plan 1") && said.contains("Plan 2"), "{said}");
}

/// A run that goes on after a failure begins inside the loop, with the steps that failed.
#[test]
fn failed_steps_of_a_loop_begin_again() {
    let flow = r#"
flow:
  steps:
    - { id: first, prompt: First, rules: [{ then: coder }] }
    # These two stand before the step at which the iterations begin.
    - { id: lint, prompt: Lint, rules: [{ then: coder }] }
    - { id: test, prompt: "Test ${step.iteration}", rules: [{ then: coder }] }
    - id: coder
      maxIterations: 3
      prompt: "Code ${step.iteration}"
      rules:
        - { if: "${step.iteration} < 3", then: lint }
        - { if: "${step.iteration} < 3", then: test }
"#;
    let failing = "
      - { match: Lint, error: { code: model_invalid_request, message: no lint } }
      - { match: Test, error: { code: model_invalid_request, message: no test } }
";
    let project = project(flow, failing);
    let (exit, printed) = project.run("go", &[]);
    assert_eq!(exit, 1, "{printed}");
    assert_eq!(steps(&printed, "failed_steps"), ["lint", "test"]);
    project.set_script("\n      - { text: well }\n");
    let (exit, printed) = project.run("go", &[]);
    assert_eq!((exit, steps(&printed, "failed_steps")), (0, vec![]), "{printed}");
    let mut begun = ran(&project, 2);
    begun[..2].sort();
    begun[3..5].sort();
    assert_eq!(begun, ["lint", "test", "coder", "lint", "test", "coder"], "both lead back together");
}

#[test]
fn a_step_of_a_loop_may_be_postponed() {
    let flow = TURNS.replace(
        "        - { if: \"${args.verdict} == again\", then: coder }",
        "        - { if: \"${args.verdict} == again && ${step.iteration} < 2\", then: coder }
        - { if: \"${args.verdict} == again && ${step.iteration} >= 2\", then: coder, postpone: true }",
    );
    let project = project(&flow, NEVER);
    let (exit, printed) = project.run("go", &[]);
    assert_eq!((exit, steps(&printed, "postponed_steps")), (0, vec!["coder".to_owned()]), "{printed}");
    assert_eq!(ran(&project, 1), ["first", "coder", "reviewer", "coder", "reviewer"]);
    assert_eq!(args(&project, "coder")["notes"], "later");
    project.set_script(FINE);
    let (exit, printed) = project.run("go", &[]);
    assert_eq!((exit, steps(&printed, "postponed_steps")), (0, vec![]), "{printed}");
    assert_eq!(ran(&project, 2), ["coder", "reviewer", "coder", "reviewer", "done"]);
}

#[test]
fn a_fallback_may_lead_back() {
    let flow = r#"
flow:
  steps:
    - id: first
      maxIterations: 3
      prompt: "Write ${step.iteration}"
      rules: [{ then: check }]
    - { id: check, prompt: "Check ${step.iteration}", fallback: { to: first } }
"#;
    let script = "
      - { match: 'Check 1', error: { code: model_invalid_request, message: bad } }
      - { match: 'Check 2', text: good }
";
    let project = project(flow, script);
    let (exit, printed) = project.run("go", &[]);
    assert_eq!(exit, 0, "{printed}");
    assert_eq!(ran(&project, 1), ["first", "check", "first", "check"]);
    assert_eq!(steps(&printed, "completed_steps"), ["first", "check"]);
}

#[test]
fn a_loop_goes_on_after_a_kill_in_its_second_iteration() {
    let project = project(TURNS, &FINE.replace("verdict: fine }", "verdict: fine }, delayMs: 3600000"));
    let arguments = ["-F", "matrix", "-s", "p", "-q", "-p", "go", "--events", "-"];
    let mut child = project.command(&arguments).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let reviews = lines.by_ref().filter(|line| line.contains("\"task:start\"") && line.contains("\"reviewer\""));
    assert_eq!(reviews.take(2).count(), 2, "the second review has not begun");
    assert!(lines.any(|line| line.contains("\"call:start\"")), "the second review has called nothing");
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(project.states(), ["coder completed", "first completed", "reviewer running"]);
    project.set_script(FINE);
    let (exit, printed) = project.run("ignored", &[]);
    assert_eq!(exit, 0, "{printed}");
    assert_eq!(steps(&printed, "completed_steps"), ["first", "coder", "reviewer", "done"]);
    assert_eq!(args(&project, "done"), json!({ "prompt": "go", "verdict": "fine", "notes": "too short" }));
    assert_eq!(project.message_roles("reviewer").len(), 4, "nothing was said twice");
}

#[test]
fn states_of_a_loop_agree_with_the_journal_wherever_the_process_is_killed() {
    let mut kills = 0;
    for count in (5..80).step_by(9) {
        let project = project(TURNS, FINE);
        kills += usize::from(killed_after(&project, count));
        assert_eq!(project.states(), by_the_journal(&project), "killed after {count} events");
        if is_over(&project) {
            continue;
        }
        let (exit, printed) = project.run("go", &[]);
        assert_eq!((exit, steps(&printed, "failed_steps")), (0, vec![]), "{printed}");
        assert_eq!(project.states(), by_the_journal(&project));
        assert_eq!(project.message_roles("reviewer").len(), 4, "killed after {count} events: nothing was said twice");
    }
    assert!(kills > 4, "only {kills} processes were killed");
}

#[test]
fn paths_that_meet_in_a_loop_run_the_step_once_in_each_iteration() {
    let flow = r#"
flow:
  steps:
    - { id: first, maxIterations: 2, prompt: "Code ${step.iteration}", rules: [{ then: lint }, { then: test }] }
    - { id: lint, prompt: Lint, rules: [{ then: judge }] }
    - { id: test, prompt: Test, rules: [{ then: judge }] }
    - { id: judge, prompt: Judge, rules: [{ if: "${step.iteration} < 2", then: first }] }
"#;
    let project = project(flow, "");
    let (exit, printed) = project.run("go", &[]);
    assert_eq!(exit, 0, "{printed}");
    let begun = ran(&project, 1);
    let count = |step: &str| begun.iter().filter(|ran| *ran == step).count();
    assert_eq!(["first", "lint", "test", "judge"].map(count), [2; 4], "{begun:?}");
    assert!(begun[..4].contains(&"judge".to_owned()), "an iteration ends before the next one begins: {begun:?}");
}

/// No prompt can be rendered, so no iteration calls a model.
#[test]
fn iterations_that_fail_before_they_call_a_model_are_counted() {
    let flow = r#"
flow:
  steps:
    - { id: first, maxIterations: 20, prompt: "${args.missing}", fallback: { to: first } }
"#;
    let project = project(flow, "");
    let (exit, printed) = project.run("go", &[]);
    assert_eq!(exit, 1, "{printed}");
    let output = project.done(&["runs", "show", "p-matrix-first:1", "--json"]);
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(shown.contains("loop_limit"), "{shown}");
}
