//! Tests triggers with a `cron` line, which names the times of their starts. Each of these times starts the flow at
//! most once, even if the triggers are examined repeatedly or by several processes.

use flowcell::contract::Tenant;
use flowcell_runtime::sql::Dialect;
use serde_json::json;

use crate::{
    kit::output_of,
    servers,
    triggers::household::{at, builder, examine, over, process, write},
};

const NIGHTLY: &str = "{ id: nightly, cron: \"0 2 * * *\", timeZone: Europe/Berlin }";

#[tokio::test]
async fn r30_a_time_starts_its_flow_once_over_restarts() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "report", NIGHTLY);
    let (household, triggers) = process(folder.path()).await;
    assert!(
        examine(&triggers, at("2026-03-28T12:00:00Z")).await.is_empty(),
        "a new trigger starts nothing for the past"
    );
    assert!(examine(&triggers, at("2026-03-29T00:59:59Z")).await.is_empty());
    // 02:00 does not exist on that day, so the time is 03:00, which is 01:00 UTC.
    let started = examine(&triggers, at("2026-03-29T01:00:03Z")).await;
    assert_eq!(started, ["cron.report.nightly.20260329T010000Z"]);
    assert!(examine(&triggers, at("2026-03-29T01:00:03Z")).await.is_empty());
    let result = household.drive(&started[0].as_str().into()).await;
    let about = json!({ "id": "nightly", "kind": "cron", "time": "2026-03-29T01:00:00Z" });
    assert_eq!(result.outputs.to_serde()["say"]["value"], about);
    drop((household, triggers));
    let (household, triggers) = process(folder.path()).await;
    assert!(examine(&triggers, at("2026-03-29T01:00:10Z")).await.is_empty());
    // No process examines the triggers for three nights, and the clock is wrong by a day for a while.
    assert_eq!(examine(&triggers, at("2026-04-01T12:00:00Z")).await, ["cron.report.nightly.20260401T000000Z"]);
    assert!(examine(&triggers, at("2026-03-31T12:00:00Z")).await.is_empty());
    assert!(examine(&triggers, at("2026-04-01T12:00:01Z")).await.is_empty());
    assert_eq!(household.count(), 2);
}

#[tokio::test]
async fn r30_missed_times_are_handled_as_each_trigger_says() {
    let folder = tempfile::tempdir().unwrap();
    let of = |missed: &str| format!("{{ id: {missed}, cron: \"0 * * * *\", missed: {missed} }}");
    write(folder.path(), "hourly", &[of("skip"), of("latest"), of("all")].join(", "));
    let (household, triggers) = process(folder.path()).await;
    examine(&triggers, at("2028-02-28T21:30:00Z")).await;
    drop((household, triggers));
    let (household, triggers) = process(folder.path()).await;
    let mut started = examine(&triggers, at("2028-02-29T00:30:00Z")).await;
    started.sort();
    let all =
        ["20280228T220000Z", "20280228T230000Z", "20280229T000000Z"].map(|slot| format!("cron.hourly.all.{slot}"));
    assert_eq!(started[..3], all, "a leap day begins like any other");
    assert_eq!(started[3..], ["cron.hourly.latest.20280229T000000Z"]);
    // Times that are examined soon enough are not missed.
    assert_eq!(examine(&triggers, at("2028-02-29T01:00:05Z")).await.len(), 3);
    assert_eq!(household.count(), 7);
}

#[tokio::test]
async fn a_trigger_is_late_until_it_starts() {
    let folder = tempfile::tempdir().unwrap();
    let of = |missed: &str| format!("{{ id: {missed}, cron: \"0 * * * *\", missed: {missed} }}");
    let after = "{ id: after, event: { flow: build } }".to_owned();
    write(folder.path(), "hourly", &[of("skip"), of("latest"), after].join(", "));
    let (_household, triggers) = process(folder.path()).await;
    let late = |began: &str, now: &str| {
        let found = triggers.late(&Tenant::local(), at(began), at(now)).unwrap();
        (found.timed, found.late, found.longest)
    };
    let began = "2028-02-28T21:30:00Z";
    assert_eq!(late(began, "2028-02-28T22:30:00Z"), (0, 0, 0), "the triggers were not read yet");
    examine(&triggers, at(began)).await;
    assert_eq!(late(began, "2028-02-28T22:00:59Z"), (2, 0, 0));
    assert_eq!(late(began, "2028-02-28T22:01:00Z"), (2, 2, 60_000));
    assert_eq!(late(began, "2028-02-29T00:10:00Z"), (2, 2, 7_800_000), "the first of several times counts");
    let later = "2028-02-28T22:00:30Z";
    assert_eq!(late(later, "2028-02-28T22:10:00Z"), (2, 1, 600_000), "`skip` gives up times without a process");
    assert_eq!(examine(&triggers, at("2028-02-29T00:00:10Z")).await.len(), 2);
    assert_eq!(late(began, "2028-02-29T00:10:00Z"), (2, 0, 0));
    assert_eq!(late(began, "2028-02-28T00:00:00Z"), (2, 0, 0), "the clock goes back");
}

#[tokio::test]
async fn r30_a_trigger_with_a_changed_cron_line_counts_as_new() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "report", NIGHTLY);
    let (_household, triggers) = process(folder.path()).await;
    examine(&triggers, at("2026-06-01T12:00:00Z")).await;
    write(folder.path(), "report", "{ id: nightly, cron: \"0 3 * * *\" }");
    assert!(examine(&triggers, at("2026-06-05T12:00:00Z")).await.is_empty(), "what it would have started is past");
    assert_eq!(examine(&triggers, at("2026-06-06T03:00:00Z")).await, ["cron.report.nightly.20260606T030000Z"]);
}

#[tokio::test]
async fn r30_two_concurrent_examinations_start_a_time_once() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "report", NIGHTLY);
    let (household, one) = process(folder.path()).await;
    let (_, other) = over(household.host.clone(), folder.path());
    examine(&one, at("2026-06-01T12:00:00Z")).await;
    for day in 2..6 {
        let now = at(&format!("2026-06-0{day}T12:00:00Z"));
        let (one, other) = tokio::join!(examine(&one, now), examine(&other, now));
        assert_eq!(one.len() + other.len(), 1, "{one:?} {other:?}");
    }
    assert_eq!(household.count(), 4);
}

/// Two processes on one store examine a trigger for the same time: only one of them starts a run. After both have
/// ended, a third process examines the trigger for that time again, and starts nothing.
fn check_two_processes_on(dialect: Dialect) {
    let Some(server) = servers::server(dialect) else { return };
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "report", NIGHTLY);
    let url = server.url(&server.database());
    assert!(output_of(folder.path(), &["store", "migrate", "--store", &url]).status.success());
    let process = || over(builder().server(&url).build().unwrap(), folder.path());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let ((household, one), (_other, other)) = (process(), process());
    runtime.block_on(examine(&one, at("2026-06-01T12:00:00Z")));
    for day in 2..6 {
        let now = at(&format!("2026-06-0{day}T12:00:00Z"));
        let (one, other) = runtime.block_on(async { tokio::join!(examine(&one, now), examine(&other, now)) });
        assert!(one.is_empty() != other.is_empty(), "{one:?} {other:?}");
        assert_eq!(household.count(), day - 1);
    }
    drop((one, other));
    let (_household, later) = process();
    assert!(runtime.block_on(examine(&later, at("2026-06-05T12:00:00Z"))).is_empty());
    assert_eq!(household.count(), 4);
}

#[test]
fn r30_two_processes_on_mariadb_start_a_time_once() {
    check_two_processes_on(Dialect::MySql);
}

#[test]
fn r30_two_processes_on_postgresql_start_a_time_once() {
    check_two_processes_on(Dialect::Postgres);
}
