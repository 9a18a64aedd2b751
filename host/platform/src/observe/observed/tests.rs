//! Tests the spans that are derived from a run's events.

use flowcell_contract::Json;
use parking_lot::Mutex;

use super::*;

#[derive(Default)]
struct Seen(Mutex<Vec<EndedSpan>>, Mutex<Vec<String>>);

impl Observer for Seen {
    fn needs_attention(&self, tenant: &Tenant, run: &RunId, reason: &str) {
        assert_eq!((tenant, run.as_str()), (&Tenant::local(), "r"));
        self.1.lock().push(reason.to_owned());
    }

    fn paused(&self, _: &Tenant, _: &RunId, quota: &str, until: u64) {
        self.1.lock().push(format!("{quota} until {until}"));
    }

    fn ended(&self, root: &RunId, ended: &EndedSpan) {
        assert_eq!(root.as_str(), "r");
        self.0.lock().push(ended.clone());
    }
}

fn watch(events: &[(u64, &'static str, &str)]) -> Vec<EndedSpan> {
    watched(events).0.lock().clone()
}

fn watched(events: &[(u64, &'static str, &str)]) -> Arc<Seen> {
    let seen = Arc::new(Seen::default());
    let watch = RunWatch::new(Arc::new([seen.clone() as Arc<dyn Observer>]), RunId::from("r"), "flow");
    for (seq, (ts, kind, data)) in (0..).zip(events) {
        let data = Json::parse(data).unwrap();
        let (tenant, run_id) = (Tenant::local(), RunId::from("r"));
        watch.on_event(&Event { seq, ts: *ts, tenant, run_id, kind, data });
    }
    seen
}

#[test]
fn a_run_that_waits_for_a_person_to_resume_it_is_reported() {
    let seen = watched(&[
        (10, "harness:parked", r#"{"reason":"waiting","due":20}"#),
        (20, "harness:parked", r#"{"reason":"needs_attention"}"#),
        (30, "harness:parked", r#"{"reason":"crash_loop"}"#),
        (40, "harness:parked", r#"{"reason":"quota_exceeded","quota":"perDay.events","until":90}"#),
    ]);
    assert_eq!(*seen.1.lock(), ["needs_attention", "crash_loop", "perDay.events until 90"]);
}

#[test]
fn a_turn_is_reported_with_its_usage_and_its_agent() {
    let seen = watch(&[
        (10, "harness:start", r#"{"name":"flow","input":{"secret":"canary"}}"#),
        (11, "task:start", r#"{"taskId":"a","scope":"each[2]","attempt":1,"nodeType":"agent.run"}"#),
        (12, "agent:start", r#"{"taskId":"a","scope":"each[2]","attempt":1,"agentRunId":"ar","model":"m"}"#),
        (
            13,
            "call:start",
            r#"{"taskId":"a","scope":"each[2]","attempt":1,"call":0,"interface":"model","function":"turn",
                "about":{"provider":"p","model":"m","prompt":"canary"}}"#,
        ),
        (20, "call:result", r#"{"taskId":"a","scope":"each[2]","attempt":1,"call":0}"#),
        (20, "agent:message", r#"{"taskId":"a","agentRunId":"ar","model":"m-1","content":"canary"}"#),
        (20, "agent:usage", r#"{"taskId":"a","agentRunId":"ar","usage":{"input":5,"output":7}}"#),
        (21, "agent:complete", r#"{"taskId":"a","scope":"each[2]","attempt":1,"agentRunId":"ar","result":"canary"}"#),
        (22, "task:complete", r#"{"taskId":"a","scope":"each[2]","attempt":1,"durationMs":11,"result":"canary"}"#),
        (30, "harness:complete", r#"{"status":"succeeded","durationMs":20}"#),
    ]);
    assert!(!format!("{seen:?}").contains("canary"), "{seen:?}");
    let times: Vec<_> = seen.iter().map(|ended| (ended.began, ended.ended)).collect();
    assert_eq!(times, [(13, 20), (12, 21), (11, 22), (10, 30)]);
    let SpanSubject::Call { task, agent, call } = &seen[0].what else { panic!("{seen:?}") };
    assert_eq!((task.task.as_str(), task.attempt, agent.as_deref()), ("each[2].a", 1, Some("ar")));
    assert_eq!((call.model.as_deref(), call.answered.as_deref()), (Some("m"), Some("m-1")));
    assert_eq!(call.usage, Some(Tokens { input: 5, output: 7 }));
    assert!(matches!(&seen[2].what, SpanSubject::Attempt { node_type, .. } if node_type == "agent.run"), "{seen:?}");
    assert!(matches!(&seen[3].what, SpanSubject::Run { flow } if flow == "flow"), "{seen:?}");
}

#[test]
fn a_span_that_began_elsewhere_is_reported_at_its_end() {
    let seen = watch(&[
        (50, "call:result", r#"{"taskId":"a","attempt":1,"call":3}"#),
        (60, "task:failed", r#"{"taskId":"a","attempt":1,"durationMs":40,"error":{"code":"No Code!","message":"m"}}"#),
        (61, "task:cancelled", r#"{"taskId":"never"}"#),
        (70, "harness:complete", r#"{"status":"failed","durationMs":60,"error":{"code":"trap"}}"#),
    ]);
    assert_eq!(seen.len(), 2, "{seen:?}");
    assert!(matches!(&seen[0].what, SpanSubject::Attempt { node_type, .. } if node_type == "unknown"));
    assert_eq!((seen[0].began, seen[0].outcome, seen[0].error.as_deref()), (20, "failed", Some("other")));
    assert_eq!((seen[1].began, seen[1].error.as_deref()), (10, Some("trap")));
}
