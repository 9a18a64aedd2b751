//! Tests the text of the metrics and the limits of labels.

use flowcell_contract::Json;
use flowcell_services::{
    client::{Client, Message, Progress},
    egress::{Egress, EgressPolicy, Resolve},
};
use futures_util::future::BoxFuture;

use super::*;
use crate::observe::observed::{AttemptId, CallTarget};

const NOTHING: ScrapeValues = ScrapeValues {
    runs_waiting: 0,
    runs_below: 0,
    requests_active: 0,
    subscribers: 0,
    commits: None,
    free_room: None,
    least_room: None,
    store_available: true,
    started: 1_500,
    now: 0,
    fleet: None,
};

fn ended(tenant: &str, what: SpanSubject) -> EndedSpan {
    let (tenant, run) = (Tenant::from(tenant), RunId::from("r"));
    EndedSpan { tenant, run, what, began: 1_000, ended: 1_250, outcome: "succeeded", error: None }
}

#[test]
fn the_text_has_all_counts() {
    let metrics = Metrics::default();
    metrics.started(&Tenant::from("a"), &RunId::from("r"), "flow");
    metrics.ended(&RunId::from("r"), &ended("a", SpanSubject::Run { flow: "flow".into() }));
    let task = AttemptId { task: "say".into(), attempt: 1 };
    metrics.ended(
        &RunId::from("r"),
        &ended("a", SpanSubject::Attempt { task: task.clone(), node_type: "control.noop".into() }),
    );
    let call = CallTarget {
        ordinal: 0,
        interface: "http".into(),
        function: "send".into(),
        provider: None,
        model: None,
        answered: None,
        usage: None,
        tool: None,
    };
    metrics.ended(&RunId::from("r"), &ended("a", SpanSubject::Call { task, agent: None, call }));
    metrics.add_compute_time(&Tenant::from("a"), Duration::from_millis(1_500));
    let reply = r#"{"provider":"p","model":"m","usage":{"input":3,"output":4}}"#;
    metrics.add_turn_tokens(&Ok(Value::from(Json::parse(reply).unwrap())));
    metrics.add_cost(&Tenant::from("a"), 0.25);
    metrics.count_request("GET", "/v1/runs/{id}", 404, Duration::from_millis(2));
    let _driven = metrics.count_driven_run();
    metrics.count_post(Some(&Tenant::from("a")), PostOutcome::Repeated);
    metrics.count_post(None, PostOutcome::UnknownTrigger);
    let text = metrics.render(&ScrapeValues { commits: Some(7), runs_waiting: 3, least_room: Some(9), ..NOTHING });
    for line in [
        r#"flowcell_runs_started_total{tenant="a"} 1"#,
        r#"flowcell_runs_ended_total{tenant="a",status="succeeded"} 1"#,
        r#"flowcell_run_duration_seconds_sum{status="succeeded"} 0.25"#,
        "flowcell_runs_driven 1",
        "flowcell_runs_waiting 3",
        r#"flowcell_attempts_total{node_type="control.noop",outcome="succeeded"} 1"#,
        r#"flowcell_compute_seconds_total{tenant="a"} 1.5"#,
        r#"flowcell_call_duration_seconds_count{interface="http",outcome="succeeded"} 1"#,
        r#"flowcell_model_tokens_total{provider="p",model="m",kind="output"} 4"#,
        r#"flowcell_model_cost_usd_total{tenant="a"} 0.25"#,
        r#"flowcell_http_request_duration_seconds_count{method="GET",route="/v1/runs/{id}",status="404"} 1"#,
        "flowcell_store_commits_total 7",
        "flowcell_store_least_free_bytes{} 9",
        "flowcell_store_available 1",
        "flowcell_process_start_time_seconds 1.5",
        r#"flowcell_webhook_posts_total{tenant="a",outcome="repeated"} 1"#,
        r#"flowcell_webhook_posts_total{tenant="other",outcome="unknown_trigger"} 1"#,
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    assert!(text.ends_with("# EOF\n") && text.matches("# EOF").count() == 1, "{text}");
}

#[test]
fn a_tenant_sees_its_own_posts_and_its_own_part_of_the_store() {
    let metrics = Metrics::default();
    metrics.count_post(Some(&Tenant::from("a")), PostOutcome::Unsigned);
    metrics.count_post(Some(&Tenant::from("b")), PostOutcome::Later);
    metrics.count_post(None, PostOutcome::UnknownTrigger);
    let triggers = LateTriggers { timed: 1, late: 0, longest: 0 };
    let own = || TenantFleet { triggers, ..TenantFleet::default() };
    let tenants = ["a", "b"].map(|name| (Tenant::from(name), own())).into();
    let fleet = Fleet { read: 0, tenants, ..Fleet::default() };
    let mut shown = series(&metrics.render_for(&Tenant::from("a"), Some(&fleet), 9_000))
        .into_iter()
        .map(str::to_owned)
        .collect::<Vec<_>>();
    shown.sort();
    let expected = [
        r#"flowcell_tenant_counted{tenant="a"} 1"#,
        r#"flowcell_triggers_late_longest_seconds{tenant="a"} 0.0"#,
        r#"flowcell_triggers_late{tenant="a"} 0"#,
        r#"flowcell_webhook_posts_total{tenant="a",outcome="unsigned"} 1"#,
    ];
    assert_eq!(shown, expected);
    let all = metrics.render(&ScrapeValues { fleet: Some(Arc::new(fleet)), now: 9_000, ..NOTHING });
    for line in [r#"flowcell_triggers_late{tenant="b"} 0"#, "flowcell_fleet_age_seconds 9.0"] {
        assert!(all.lines().any(|found| found == line), "{line}\n{all}");
    }
}

#[tokio::test]
async fn requests_that_are_not_sent_are_counted_for_their_tenant() {
    let metrics = Metrics::default();
    let egress = Egress::new(EgressPolicy::default()).unwrap().with_outbound(metrics.watch_outbound());
    let client = Client::new(egress.with_resolver(Arc::new(NoNames)));
    let grants = ["http://down.test".parse().unwrap()].into_iter().collect();
    let to = client.egress().admit("http://down.test/", &grants).unwrap();
    for _ in 0..13 {
        let message = Message {
            method: Default::default(),
            headers: Default::default(),
            body: Default::default(),
            reuse: true,
            run: None,
            until: None,
        };
        client.send(&Tenant::from("a"), &to, message, &mut Progress::default()).await.map(drop).unwrap_err();
    }
    let own = [
        r#"flowcell_outbound_breakers_open{tenant="a"} 1"#,
        r#"flowcell_outbound_refusals_total{tenant="a",code="circuit_open"} 3"#,
        r#"flowcell_tenant_counted{tenant="a"} 1"#,
    ];
    let text = metrics.render_for(&Tenant::from("a"), None, 0);
    let mut shown = series(&text);
    shown.sort_unstable();
    assert_eq!(shown, own);
    let text = metrics.render(&NOTHING);
    assert!(own[..2].iter().all(|line| text.lines().any(|found| found == *line)), "{text}");
    let of_others = metrics.render_for(&Tenant::from("b"), None, 0);
    assert_eq!(series(&of_others), [r#"flowcell_tenant_counted{tenant="b"} 1"#]);
}

/// A resolver that knows no name.
struct NoNames;

impl Resolve for NoNames {
    fn resolve<'a>(&'a self, _: &'a Tenant, _: &'a str) -> BoxFuture<'a, std::io::Result<Vec<std::net::IpAddr>>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }
}

#[test]
fn tenants_beyond_the_limit_share_one_label() {
    let metrics = Metrics::default();
    for number in 0..MAX_TENANT_LABELS + 50 {
        metrics.started(&Tenant::from(format!("t{number}")), &RunId::from("r"), "flow");
    }
    let text = metrics.render(&NOTHING);
    assert_eq!(text.matches("flowcell_runs_started_total{").count(), MAX_TENANT_LABELS + 1);
    assert!(text.contains("flowcell_runs_started_total{tenant=\"other\"} 50\n"), "{text}");
}

/// Counts one of everything for a tenant.
fn count_all(metrics: &Metrics, tenant: &str) {
    let (name, run) = (Tenant::from(tenant), RunId::from("r"));
    metrics.started(&name, &run, "flow");
    metrics.ended(&run, &ended(tenant, SpanSubject::Run { flow: "flow".into() }));
    metrics.count_removed(&name, 2);
    metrics.add_compute_time(&name, Duration::from_millis(500));
    metrics.add_cost(&name, 0.5);
    metrics.count_request("GET", "/v1/runs", 200, Duration::from_millis(2));
}

/// Returns the lines of series, without those that describe families.
fn series(text: &str) -> Vec<&str> {
    text.lines().filter(|line| !line.starts_with('#')).collect()
}

#[test]
fn h1_a_tenant_sees_its_own_series_alone() {
    let metrics = Metrics::default();
    // Prefixes of each other, and names that would end a label or a line if they were not escaped.
    let tenants = ["a", "ab", "A", "a\"", "a\"} 9\nflowcell_runs_started_total{tenant=\"a", "a\\", "", "other"];
    tenants.iter().enumerate().for_each(|(index, tenant)| (0..=index).for_each(|_| count_all(&metrics, tenant)));
    for (index, tenant) in tenants.iter().enumerate().filter(|(_, tenant)| **tenant != "other") {
        let text = metrics.render_for(&Tenant::from(*tenant), None, 0);
        let count = index + 1;
        let label = tenant.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let expected = [
            format!(r#"flowcell_tenant_counted{{tenant="{label}"}} 1"#),
            format!(r#"flowcell_runs_started_total{{tenant="{label}"}} {count}"#),
            format!(r#"flowcell_runs_removed_total{{tenant="{label}"}} {}"#, 2 * count),
            format!(r#"flowcell_runs_ended_total{{tenant="{label}",status="succeeded"}} {count}"#),
            format!(r#"flowcell_compute_seconds_total{{tenant="{label}"}} {:.1}"#, 0.5 * count as f64),
            format!(r#"flowcell_model_cost_usd_total{{tenant="{label}"}} {:.1}"#, 0.5 * count as f64),
        ];
        assert_eq!(series(&text), expected, "{text}");
    }
    assert_eq!(
        series(&metrics.render_for(&Tenant::from("new"), None, 0)),
        [r#"flowcell_tenant_counted{tenant="new"} 1"#]
    );
}

#[test]
fn a_tenant_beyond_the_limit_sees_that_it_is_not_counted_apart() {
    let metrics = Metrics::default();
    (0..MAX_TENANT_LABELS).for_each(|number| count_all(&metrics, &format!("t{number}")));
    count_all(&metrics, "late");
    // A tenant may have the name of the shared label.
    for tenant in ["late", "other"] {
        let text = metrics.render_for(&Tenant::from(tenant), None, 0);
        assert_eq!(series(&text), [format!(r#"flowcell_tenant_counted{{tenant="{tenant}"}} 0"#)], "{text}");
    }
    assert!(metrics.render(&NOTHING).contains("flowcell_runs_started_total{tenant=\"other\"} 1\n"));
}
