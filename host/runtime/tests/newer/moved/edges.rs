//! Moves of flows with cycles of edges, which are refused, and with races, which go on.

use super::*;

/// A gate whose answer `more` begins another pass.
fn cycle() -> String {
    flow(
        "  - { id: a, type: t.noop, input: {} }\n  - { id: one, type: t.ask, input: {} }",
        "{ from: a, to: one }, { from: one, to: a, when: \"one == 'more'\" }",
    )
}

#[test]
fn a_cycle_in_either_version_keeps_the_run_from_moving() {
    let plain =
        flow("  - { id: a, type: t.noop, input: {} }\n  - { id: one, type: t.ask, input: {} }", "{ from: a, to: one }");
    for versions in [[&cycle(), &plain], [&plain, &cycle()], [&cycle(), &(cycle() + "# the same\n")]] {
        let story = Story::new(&versions.map(String::as_str));
        assert_eq!(story.run(1, "r", &[]).status, RunStatus::Parked);
        let (plan, before) = (story.plan_of_move("r", 2), story.units("r").len());
        assert!(plan.refused.iter().any(|found| found.obstacle == Obstacle::Cycle && found.task.is_none()), "{plan:?}");
        assert!(matches!(story.migrate("r", 2), Err(MigrateError::Refused(_))));
        assert_eq!(story.units("r").len(), before, "a refused move writes nothing");
        assert_eq!(story.resume_with("r", &["one"]).status, RunStatus::Succeeded, "the run goes on in its version");
    }
}

/// Two gates race for `first`; `end` follows it.
fn race(join: &str, end: &str) -> String {
    flow(
        &format!(
            "  - {{ id: one, type: t.ask, input: {{}} }}
  - {{ id: two, type: t.ask, input: {{}} }}
  - {{ id: first, type: t.noop, {join}, input: {{ x: '{{{{ inbound }}}}' }} }}
  - {{ id: end, type: t.noop, input: {{ x: {end} }} }}"
        ),
        "{ from: one, to: first }, { from: two, to: first }, { from: first, to: end }",
    )
}

const RACE: &str = "join: any, cancelRest: true";

#[test]
fn a_race_that_is_open_is_decided_in_the_version_after_the_move() {
    // Each pair of versions: a node behind the race changed, the race began to cancel, the race no longer cancels.
    for (from, to) in [(RACE, RACE), ("join: any", RACE), (RACE, "join: any")] {
        let story = Story::new(&[&race(from, "1"), &race(to, "2")]);
        assert_eq!(story.run(1, "r", &[]).status, RunStatus::Parked);
        let plan = story.migrate("r", 2).unwrap();
        assert_eq!(plan.moved.len(), 2, "both gates stay open: {plan:?}");
        let (done, fresh) = (story.resume_with("r", &["two"]), story.run(2, "fresh", &["two"]));
        assert_eq!((done.status, &done.outputs), (fresh.status, &fresh.outputs), "{from} to {to}");
        let cancels = to == RACE;
        assert_eq!(done.status, if cancels { RunStatus::Succeeded } else { RunStatus::Parked }, "{from} to {to}");
        if !cancels {
            assert_eq!(story.resume_with("r", &["one"]).status, RunStatus::Succeeded);
        }
    }
}
