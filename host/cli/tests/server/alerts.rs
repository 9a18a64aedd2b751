//! Tests the alert rules and the dashboard in `host/server/alerts`: the metrics and sections that they name exist, and
//! each alert fires and does not fire as the tests of the rules say.

use std::{collections::BTreeSet, fs, path::PathBuf, process::Command};

use flowcell_runtime::fact::WaitReason;

use crate::kit::{has_program, root, stderr, stdout};

const RULES: &str = "flowcell.rules.yml";
const TESTS: &str = "flowcell.rules.test.yml";
const DASHBOARD: &str = "flowcell.dashboard.json";

fn folder() -> PathBuf {
    root().join("host/server/alerts")
}

fn read(file: &str) -> String {
    fs::read_to_string(folder().join(file)).unwrap()
}

/// Returns the names of metrics in a text.
fn metrics_in(text: &str) -> BTreeSet<String> {
    let names = text.match_indices("flowcell_").map(|(at, _)| {
        let is_part = |letter: &char| letter.is_ascii_lowercase() || *letter == '_';
        text[at..].chars().take_while(is_part).collect()
    });
    names.collect()
}

/// Returns the names of the series in the tables of the manual, which has each metric of the program.
fn documented() -> BTreeSet<String> {
    let page = flowcell_server::manual::page("monitor").unwrap().text;
    let columns = page.lines().filter_map(|line| line.strip_prefix("| `flowcell_")?.split(" | ").next());
    let metrics: BTreeSet<_> = columns.flat_map(|column| metrics_in(&format!("flowcell_{column}"))).collect();
    let parts = metrics.iter().filter(|name| name.ends_with("_duration_seconds"));
    let parts = parts.flat_map(|name| ["_bucket", "_count", "_sum"].map(|end| format!("{name}{end}")));
    parts.chain(metrics.iter().cloned()).collect()
}

/// Returns the values of a member in the rules, in their order.
fn members<'a>(rules: &'a str, member: &str) -> Vec<&'a str> {
    rules.lines().filter_map(|line| line.trim().strip_prefix(member)).collect()
}

#[test]
fn rules_and_dashboard_name_metrics_that_exist() {
    let documented = documented();
    for (file, least) in [(RULES, 9), (TESTS, 9), (DASHBOARD, 24)] {
        let named = metrics_in(&read(file));
        assert!(named.len() >= least, "{file}: {named:?}");
        let unknown: Vec<_> = named.difference(&documented).collect();
        assert!(unknown.is_empty(), "{file} names {unknown:?}, but the manual has {documented:?}");
    }
}

#[test]
fn every_alert_has_a_section_of_the_manual_and_tests() {
    let (rules, tests) = (read(RULES), read(TESTS));
    let (alerts, sections) = (members(&rules, "- alert: "), members(&rules, "runbook: "));
    assert!(alerts.len() >= 14 && alerts.len() == sections.len(), "{alerts:?} {sections:?}");
    let page = |topic: &str| flowcell_server::manual::page(topic).unwrap().text;
    for section in sections {
        let heading = format!("\n## {section}\n");
        assert!(
            ["runbook", "runbook-outside"].iter().any(|topic| page(topic).contains(&heading)),
            "no section `{section}`"
        );
    }
    for alert in alerts {
        assert!(page("monitor").contains(&format!("`{alert}`")), "the manual does not list {alert}");
        assert!(tests.contains(&format!("alertname: {alert} }}")), "no test sees that {alert} does not fire");
        assert!(tests.contains(&format!("alertname: {alert}\n        exp_alerts:")), "no test sees {alert} fire");
    }
}

#[test]
fn every_reason_of_a_wait_that_needs_a_person_has_an_alert() {
    let rules = read(RULES);
    for reason in WaitReason::ALL {
        let name = reason.name();
        let is_named = [format!("\"{name}\""), format!("\"{name}|"), format!("|{name}|"), format!("|{name}\"")]
            .iter()
            .any(|word| rules.contains(word));
        let waits_by_itself = matches!(reason, WaitReason::Message | WaitReason::Event);
        assert_eq!(is_named, !waits_by_itself, "{name}");
    }
}

#[test]
fn rules_are_valid_and_fire_as_their_tests_say() {
    if !has_program("promtool") {
        return;
    }
    for arguments in [["check", "rules", RULES], ["test", "rules", TESTS]] {
        let output = Command::new("promtool").args(arguments).current_dir(folder()).output().unwrap();
        assert!(output.status.success(), "{arguments:?}\n{}\n{}", stdout(&output), stderr(&output));
    }
}
