//! R34: checks the checker itself. It finds violations in processes whose durability is broken, and none otherwise.

use crate::faults::{
    killed_anywhere::{After, Case, cases, end, live},
    process::Project,
};

const HELD_BACK: (&str, &str) = ("FLOWCELL_TEST_HOLD_BACK", "1");

/// Kills a flow's processes after every few events and every request. Returns the violations.
fn found(flow: &str, settings: &[(&'static str, &'static str)]) -> Vec<String> {
    let case: Case = cases().into_iter().find(|case| case.flow == flow).unwrap();
    let mut wrong = Vec::new();
    let moments = (3..16).step_by(4).map(After::Events).chain((1..4).map(After::Requests));
    for after in moments {
        let mut project = Project::new(1, 0);
        project.settings = settings.to_vec();
        live(&mut project, &case, after);
        wrong.extend(end(&mut project, &case).err());
        wrong.extend(project.check());
    }
    wrong
}

#[test]
fn the_checker_finds_nothing_in_a_correct_build() {
    for flow in ["pay.yaml", "send.yaml"] {
        assert_eq!(found(flow, &[HELD_BACK]), Vec::<String>::new());
    }
}

#[test]
fn r4_a_journal_that_is_not_forced_is_noticed() {
    let wrong = found("send.yaml", &[HELD_BACK, ("FLOWCELL_TEST_SABOTAGE", "forcing")]).join("\n");
    assert!(wrong.contains("what was told at"), "events of what was lost: {wrong}");
    assert!(wrong.contains("a call left that the journal does not know"), "{wrong}");
}

#[test]
fn calls_that_are_made_twice_are_noticed() {
    let wrong = found("pay.yaml", &[("FLOWCELL_TEST_SABOTAGE", "deduplication")]).join("\n");
    assert!(wrong.contains("instead of once"), "{wrong}");
}
