//! The policy of the flow after a move: `failFast` and `maxConcurrency` follow the new version.

use flowcell_runtime::PolicyOverride;

use super::*;

/// Two gates beside each other: `one` comes before `bad`, which fails, and `two` before `after`.
fn forked(policy: &str, edges: &str) -> String {
    format!(
        "flow: {{ name: f, policy: {{ {policy} }} }}
nodes:
  - {{ id: one, type: t.ask, input: {{}} }}
  - {{ id: bad, type: t.fail, input: {{}} }}
  - {{ id: fix, type: t.noop, join: all, input: {{}} }}
  - {{ id: two, type: t.ask, input: {{}} }}
  - {{ id: after, type: t.noop, input: {{}} }}
edges: [{{ from: one, to: bad }}, {{ from: two, to: after }}, {edges}]
"
    )
}

const PLAIN: &str = "{ from: after, to: fix }";

/// Runs in both versions up to the answer to `one`, and returns the statuses of the moved run and of the fresh one.
fn after_failure(from: &str, to: &str) -> [RunStatus; 2] {
    let story = Story::new(&[&forked(from, PLAIN), &forked(to, PLAIN)]);
    story.run(1, "r", &[]);
    let plan = story.migrate("r", 2).unwrap();
    assert!(!plan.keeps_policy && plan.moved.len() == 2, "{plan:?}");
    let fresh = story.run(2, "fresh", &["one"]).status;
    let moved = story.resume_with("r", &["one"]).status;
    // The next process folds the same policy.
    if moved == RunStatus::Parked {
        let done = [story.resume_with("r", &["two"]), story.resume_with("fresh", &["two"])];
        assert_eq!((done[0].status, &done[0].outputs), (done[1].status, &done[1].outputs));
    }
    [moved, fresh]
}

#[test]
fn fail_fast_of_the_new_version_holds_after_a_move() {
    assert_eq!(after_failure("failFast: true", "failFast: false"), [RunStatus::Parked, RunStatus::Parked]);
    assert_eq!(after_failure("failFast: false", "failFast: true"), [RunStatus::Failed, RunStatus::Failed]);
}

#[test]
fn values_that_a_run_was_started_with_and_its_total_time_stay() {
    let old = forked("failFast: true, maxConcurrency: 3, totalTimeoutMs: 100000", PLAIN);
    let story = Story::new(&[&old, &forked("failFast: false, maxConcurrency: 2, totalTimeoutMs: 200000", PLAIN)]);
    let policy = PolicyOverride { fail_fast: Some(false), max_concurrency: Some(1), ..PolicyOverride::default() };
    let given = RunOptions { policy, ..options("r", &[]) };
    block(FlowRunner::new(story.version(1).flow, story.world(), given).unwrap().run());
    assert!(story.migrate("r", 2).unwrap().keeps_policy);
    let policies: Vec<_> = story.units("r").iter().flat_map(|unit| unit.facts.clone()).collect();
    let changed = policies.iter().find_map(|fact| match fact {
        Fact::Migrated { migration } => Some(migration.policy.clone()),
        _ => None,
    });
    assert_eq!(changed, Some(None), "the run keeps all values");
    assert_eq!(story.resume_with("r", &["one"]).status, RunStatus::Parked);
}

#[test]
fn a_failure_that_would_end_the_run_at_once_keeps_it_from_moving() {
    let versions = [forked("failFast: false", PLAIN), forked("failFast: true", PLAIN)];
    let story = Story::new(&[&versions[0], &versions[1]]);
    assert_eq!(story.run(1, "r", &["one"]).status, RunStatus::Parked);
    let plan = story.plan_of_move("r", 2);
    assert_eq!(plan.refused.iter().map(|refused| refused.obstacle.code()).collect::<Vec<_>>(), ["unhandled"]);
    assert_eq!(plan.refused[0].task.as_deref(), Some("bad"));
}

/// The condition of an edge shows only with the move that a failure is not handled.
#[test]
fn a_failure_whose_edge_no_longer_fires_ends_the_run_as_a_fresh_one() {
    let handled = |when: bool| {
        let edges = format!("{PLAIN}, {{ from: bad, to: fix, on: error, when: '{{{{ {when} }}}}' }}");
        forked("failFast: true", &edges)
    };
    let story = Story::new(&[&handled(true), &handled(false)]);
    assert_eq!(story.run(1, "r", &["one"]).status, RunStatus::Parked);
    let plan = block(story.migration("r", 2, true).perform()).unwrap();
    assert_eq!((ids(&plan.kept), plan.moved.len()), (vec!["one", "bad"], 1));
    let fresh = story.run(2, "fresh", &["one"]);
    let moved = story.resume("r");
    assert_eq!((moved.status, fresh.status), (RunStatus::Failed, RunStatus::Failed));
    assert_eq!(moved.outputs, fresh.outputs);
}
