//! Pages of a run at an earlier event, and its retry: all of it, from a task on, and in another version of its flow.

use serde_json::{Value, json};

use crate::{
    OWN,
    client::{Answer, Served, ask},
    cookie_of, local, post, store, with_tenants,
};

/// A flow with a loop, a question, and a failure after it.
fn asking() -> Value {
    let each = json!({ "id": "each", "type": "control.foreach", "input": { "list": [1, 2] }, "body": ["step"] });
    let step = json!({ "id": "step", "type": "control.noop", "input": { "value": "{{ each.item }}" } });
    let gate = json!({ "id": "ok", "type": "control.gate", "input": { "prompt": "Go on?", "choices": ["yes", "no"] } });
    let bad = json!({ "id": "bad", "type": "control.fail", "input": { "code": "refused", "message": "not today" } });
    let edges = json!([{ "from": "each", "to": "ok" }, { "from": "ok", "to": "bad" }]);
    json!({ "flow": { "name": "asks" }, "nodes": [each, step, gate, bad], "edges": edges })
}

/// Starts a run that waits at its question. Returns its id, and its number of events.
fn parked(served: &Served) -> (String, u64) {
    store(served, &asking());
    let parked = served.post("/v1/runs?wait=true", &json!({ "flow": "asks" })).json();
    assert_eq!(parked["status"], "parked", "{parked}");
    let run = parked["runId"].as_str().unwrap().to_owned();
    let events = served.get(&format!("/v1/runs/{run}")).json()["events"].as_u64().unwrap();
    (run, events)
}

fn wait_for_end(served: &Served, run: &str) {
    let status = || served.get(&format!("/v1/runs/{run}")).json()["status"].as_str().unwrap().to_owned();
    let has_ended = (0..20_000).any(|_| !["running", "parked"].contains(&status().as_str()));
    assert!(has_ended, "the run does not end");
}

/// Answers the question, and waits for the end of the run.
fn answer(served: &Served, run: &str) {
    let replied = served.post(&format!("/v1/runs/{run}/gates/ok/reply"), &json!({ "answer": "yes" }));
    assert_eq!(replied.status, 200, "{replied:?}");
    wait_for_end(served, run);
}

#[test]
fn all_views_of_a_run_show_the_same_earlier_moment() {
    let served = local();
    let (run, then) = parked(&served);
    answer(&served, &run);
    let page = |end: &str| served.get(&format!("/console/runs/{run}{end}"));
    let at = format!("?before={then}");
    for end in ["", "/timeline", "/list", "/tasks/ok", "/tasks/each%5B1%5D.step"] {
        let earlier = page(&format!("{end}{at}"));
        assert_eq!(earlier.status, 200, "{end}: {earlier:?}");
        let body = &earlier.body;
        assert!(body.contains(&format!("As it was after event {} of", then - 1)), "{end}: {body}");
        assert!(
            body.contains(&format!(r#"<a href="/console/runs/{run}{end}">Show it as it is now</a>"#)),
            "{end}: {body}"
        );
        // The state and the question of that time, and nothing that changes something.
        assert!(body.contains(">parked</span>") && body.contains("Go on?"), "{end}: {body}");
        assert!(body.contains("Nothing can be answered or steered at an earlier moment."), "{end}: {body}");
        assert!(!body.contains(r#"method="post" action="/console/runs/"#), "{end}: {body}");
        assert!(!body.contains("not today") && !body.contains("data-live=\"/v1"), "{end}: {body}");
        // The other views show the same moment.
        for tab in ["", "/timeline", "/list"] {
            assert!(body.contains(&format!(r#"href="/console/runs/{run}{tab}{at}""#)), "{end} {tab}: {body}");
        }
        let now = page(end).body;
        assert!(now.contains("not today") && !now.contains("As it was"), "{end}: {now}");
    }
    // Links to tasks keep the moment.
    for end in ["", "/timeline", "/list"] {
        let body = page(&format!("{end}{at}")).body;
        assert!(body.contains(&format!(r#"href="/console/runs/{run}/tasks/ok{at}""#)), "{end}: {body}");
    }
}

#[test]
fn the_slider_names_its_event_and_the_time_only_if_the_page_has_it() {
    let served = local();
    let (run, events) = parked(&served);
    let output = |query: &str| {
        let page = served.get(&format!("/console/runs/{run}/timeline{query}")).body;
        let (_, rest) = page.split_once("<output").unwrap_or_else(|| panic!("{page}"));
        rest.split("</output>").next().unwrap().to_owned()
    };
    for (query, at, text, has_time) in [
        (String::new(), events, format!("event {} of {events}", events - 1), false),
        (format!("?before={events}"), events, format!("event {} of {events}", events - 1), true),
        ("?before=1".into(), 1, format!("event 0 of {events}"), true),
        ("?before=0".into(), 0, "before the first event".into(), false),
    ] {
        let shown = output(&query);
        assert!(shown.contains(&format!(r#"data-at="{at}""#)) && shown.contains(&text), "{query}: {shown}");
        assert_eq!(shown.contains("<time"), has_time, "{query}: {shown}");
    }
    // Without a request, the script knows the number of events.
    let page = served.get(&format!("/console/runs/{run}/timeline")).body;
    assert!(page.contains(&format!(r#"data-events="{events}""#)), "{page}");
}

#[test]
fn a_task_is_shown_as_it_was() {
    let served = local();
    let (run, then) = parked(&served);
    answer(&served, &run);
    let page = |end: &str| served.get(&format!("/console/runs/{run}{end}"));
    let earlier = page(&format!("/tasks/ok?before={then}")).body;
    assert!(!earlier.contains("<h4>Output</h4>") && earlier.contains("Attempt 1"), "{earlier}");
    assert!(page("/tasks/ok").body.contains("<h4>Output</h4>"));
    // A task that had not begun has a page, and one that the run never has does not.
    let early = page("/tasks/bad?before=1");
    assert!(early.status == 200 && early.body.contains("No attempt of this task had begun."), "{early:?}");
    assert!(!early.body.contains("Retry from here"), "{early:?}");
    assert_eq!(page("/tasks/none?before=1").status, 404);
    // A timeline ends at the event, so that no task takes longer than it had.
    let start = page("/timeline?before=0").body;
    assert!(start.contains("No task has begun.") && start.contains("Before the first event."), "{start}");
    let timeline = page(&format!("/timeline?before={then}")).body;
    assert!(timeline.contains("so far") && !timeline.contains("/tasks/bad"), "{timeline}");
    assert!(page("/timeline").body.contains("/tasks/bad"));
    // Hostile values are the run as it is, or its end.
    for (value, is_earlier) in
        [("x", false), ("-1", false), ("", false), ("99999999999999999999", false), ("18446744073709551615", true)]
    {
        for end in ["/timeline", "/tasks/ok"] {
            let shown = page(&format!("{end}?before={value}"));
            assert_eq!((shown.status, shown.body.contains("As it was")), (200, is_earlier), "{end} {value}");
        }
    }
    let markup = page("/tasks/ok?before=%3Cscript%3E").body;
    assert!(!markup.contains("<script>"), "{markup}");
}

#[test]
fn a_run_is_repeated_from_a_task_in_a_body_and_in_the_newest_version() {
    let served = local();
    let (run, _) = parked(&served);
    answer(&served, &run);
    let page = |end: &str| served.get(&format!("/console/runs/{run}{end}")).body;
    let inside = page("/tasks/each%5B1%5D.step");
    assert!(inside.contains(r#"<input type="hidden" name="from" value="each">"#), "{inside}");
    let of_run = page("");
    assert!(of_run.contains("Retry…") && of_run.contains(r#"<option value="latest">"#), "{of_run}");
    let mut newer = asking();
    newer["nodes"][3]["input"]["message"] = "now this".into();
    store(&served, &newer);
    let retry = |body: &str| post(&served, &format!("/console/runs/{run}/retry"), &[OWN], body);
    let runs = || served.get("/v1/runs?limit=100").json()["runs"].as_array().unwrap().len();
    // The plan is shown first, and begins nothing.
    let plan = retry("version=latest");
    assert!(plan.status == 200 && plan.body.contains("Begin the new run"), "{plan:?}");
    assert!(plan.body.contains("version 2") && plan.body.contains("keeps its output"), "{plan:?}");
    assert!(plan.body.contains("input") && plan.body.contains("changed"), "{plan:?}");
    assert!(plan.body.contains(r#"<input type="hidden" name="version" value="2">"#), "{plan:?}");
    assert_eq!(runs(), 1);
    let begun = retry("version=2&sure=yes");
    assert_eq!(begun.status, 303, "{begun:?}");
    let new = begun.header("location").unwrap().rsplit('/').next().unwrap().to_owned();
    let view = served.get(&format!("/v1/runs/{new}")).json();
    assert_eq!((&view["retryOf"], &view["version"]), (&json!(run), &json!(2)), "{view}");
    for wrong in ["version=99", "version=x%00", "from=none", "from=%3Cb%3E"] {
        let refused = retry(wrong);
        assert!((400..500).contains(&refused.status), "{wrong}: {refused:?}");
        assert!(!refused.body.contains("<b>"), "{refused:?}");
    }
    assert_eq!(runs(), 2);
}

#[test]
fn answers_are_kept_only_with_the_scope_to_decide() {
    let served = with_tenants();
    let all = cookie_of(&served, "a", &["run:create", "run:read", "gate:decide"]);
    let few = cookie_of(&served, "a", &["run:create", "run:read"]);
    let reader = cookie_of(&served, "a", &["run:read"]);
    let asks = |cookie: &str, method: &str, path: &str, body: &str| -> Answer {
        ask(served.address, method, path, &[("Cookie", cookie), OWN], body)
    };
    let start = json!({ "flow": asking(), "runId": "r" }).to_string();
    assert_eq!(asks(&all, "POST", "/v1/runs?wait=true", &start).json()["status"], "parked");
    assert_eq!(asks(&all, "POST", "/v1/runs/r/gates/ok/reply", r#"{"answer":"yes"}"#).status, 200);
    let has_ended =
        |run: &str| (0..20_000).any(|_| asks(&all, "GET", &format!("/v1/runs/{run}"), "").json()["status"] == "failed");
    assert!(has_ended("r"));
    let page = |cookie: &str| asks(cookie, "GET", "/console/runs/r/tasks/bad", "").body;
    assert!(page(&all).contains(r#"name="keep""#), "{}", page(&all));
    let without = page(&few);
    assert!(without.contains("Retry from here") && !without.contains(r#"name="keep""#), "{without}");
    assert!(without.contains("gate:decide"), "{without}");
    let reading = page(&reader);
    assert!(!reading.contains("Retry from here") && reading.contains("run:create"), "{reading}");
    let retry = |cookie: &str, body: &str| post(&served, "/console/runs/r/retry", &[OWN, ("Cookie", cookie)], body);
    // A form that the page did not offer is refused as the API refuses it.
    let forged = retry(&few, "from=bad&keep=yes");
    assert!(forged.status == 403 && forged.body.contains("gate:decide"), "{forged:?}");
    assert_eq!(retry(&reader, "from=bad").status, 403);
    let kept = retry(&all, "from=bad&keep=yes");
    assert_eq!(kept.status, 303, "{kept:?}");
    let new = kept.header("location").unwrap().rsplit('/').next().unwrap().to_owned();
    assert!(has_ended(&new), "it asks nobody");
    // Without the scope the new run asks again.
    let again = retry(&few, "from=bad");
    assert_eq!(again.status, 303, "{again:?}");
    let new = again.header("location").unwrap().rsplit('/').next().unwrap().to_owned();
    let waits = || asks(&few, "GET", &format!("/v1/runs/{new}/gates"), "").json();
    assert!((0..20_000).any(|_| waits()["waiting"][0]["address"] == "ok"), "{}", waits());
}
