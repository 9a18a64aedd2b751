//! Pages of a run at an earlier event.

use serde_json::{Value, json};

use crate::{client::Served, local, store};

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
