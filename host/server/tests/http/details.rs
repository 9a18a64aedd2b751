//! The timeline of a run, and events by type, task and size.

use serde_json::{Value, json};

use crate::{
    approvals::{flow, gate},
    client::Served,
    samples::{asks, hello},
};

#[test]
fn a_timeline_has_each_task_in_columns() {
    let served = Served::local();
    let each = json!({ "id": "each", "type": "control.foreach", "input": { "list": [1, 2] },
        "body": { "nodes": [{ "id": "step", "type": "control.noop" }], "edges": [] } });
    let flow = flow(&[each, gate()], &[("each", "ask")]);
    served.post("/v1/runs?wait=true", &json!({ "flow": flow, "runId": "r" }));
    let told = served.get("/v1/runs/r/timeline").json();
    let column = |name: &str| told[name].as_array().unwrap_or_else(|| panic!("{name}: {told}")).clone();
    let tasks: Vec<_> = column("task").iter().map(|task| task.as_str().unwrap().to_owned()).collect();
    let mut sorted = tasks.clone();
    sorted.sort();
    assert_eq!(sorted, ["ask", "each", "each[0].step", "each[1].step"]);
    for name in ["type", "begin", "end", "status", "attempts"] {
        assert_eq!(column(name).len(), tasks.len(), "{name}");
    }
    let at = |task: &str| tasks.iter().position(|known| known == task).unwrap();
    let status = |task: &str| told["statuses"][column("status")[at(task)].as_u64().unwrap() as usize].clone();
    assert_eq!((status("ask"), status("each[1].step")), (json!("waiting"), json!("succeeded")));
    let kind = |task: &str| told["types"][column("type")[at(task)].as_u64().unwrap() as usize].clone();
    assert_eq!((kind("ask"), kind("each[0].step")), (json!("control.gate"), json!("control.noop")));
    assert!(column("end")[at("ask")].is_null() && column("end")[at("each")].is_u64());
    assert_eq!(told["next"], served.get("/v1/runs/r/events?limit=1000").json()["next"]);
    assert_eq!(served.get("/v1/runs/none/timeline").fault(), (404, "run_not_found".to_owned()));
}

fn numbers(page: &Value) -> Vec<u64> {
    let events = page["events"].as_array().unwrap_or_else(|| panic!("{page}"));
    events.iter().map(|event| event["seq"].as_u64().unwrap()).collect()
}

#[test]
fn events_are_selected_by_type_and_task_in_both_directions() {
    let served = Served::local();
    let list: Vec<_> = (0..40).collect();
    let each = json!({ "id": "each", "type": "control.foreach", "input": { "list": list, "concurrency": 1 },
        "body": { "nodes": [{ "id": "step", "type": "control.noop" }], "edges": [] } });
    served.post("/v1/runs?wait=true", &json!({ "flow": flow(&[each], &[]), "runId": "r" }));
    let get = |query: &str| served.get(&format!("/v1/runs/r/events?{query}")).json();
    let all = get("limit=1000");
    let select = |fits: &dyn Fn(&Value) -> bool| -> Vec<u64> {
        all["events"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|event| fits(event))
            .map(|event| event["seq"].as_u64().unwrap())
            .collect()
    };
    let starts = select(&|event| event["type"] == "task:start");
    assert_eq!(starts.len(), 41);
    assert_eq!(numbers(&get("type=task:start&limit=1000")), starts);
    let one = select(&|event| event["nodeId"] == "step" && event["scope"] == "each[7]");
    assert!(one.len() >= 2);
    assert_eq!(numbers(&get("task=each%5B7%5D.step")), one);
    assert_eq!(numbers(&get("task=each%5B7%5D.step&type=task:start,log")).len(), 1);
    // Pages forward and backward contain every selected event.
    let (mut from, mut forward) = (0, Vec::new());
    loop {
        let page = get(&format!("type=task:start&limit=7&from={from}"));
        forward.extend(numbers(&page));
        let next = page["next"].as_u64().unwrap();
        if next == from {
            break;
        }
        from = next;
    }
    assert_eq!(forward, starts);
    let (mut before, mut backward) = (u64::MAX >> 1, Vec::new());
    loop {
        let page = get(&format!("type=task:start&limit=7&before={before}"));
        let mut numbers = numbers(&page);
        assert!(numbers.len() <= 7 && numbers.is_sorted());
        numbers.extend(std::mem::take(&mut backward));
        backward = numbers;
        match page["previous"].as_u64() {
            Some(previous) => before = previous,
            None => break,
        }
    }
    assert_eq!(backward, starts);
    assert_eq!(numbers(&get("from=3&before=5")), [3, 4]);
    assert_eq!(numbers(&get("before=0")), [0; 0]);
    for query in ["type=", "type=a%20b", "before=-1", "preview=-1", "preview=1048577", "task=a&task=b", "kinds=log"] {
        let answer = served.get(&format!("/v1/runs/r/events?{query}"));
        assert_eq!(answer.fault(), (400, "bad_request".to_owned()), "{query}");
    }
    assert_eq!(served.get("/v1/runs/none/events?type=log").fault(), (404, "run_not_found".to_owned()));
}

#[test]
fn large_values_of_events_are_cut_and_named_with_their_size() {
    let served = Served::local();
    let mut flow = hello();
    flow["flow"]["input"]["who"] = "ä".repeat(100_000).into();
    served.post("/v1/runs?wait=true", &json!({ "flow": flow, "runId": "r" }));
    let whole = served.get("/v1/runs/r/events?type=task:complete").json();
    let cut = served.get("/v1/runs/r/events?type=task:complete&preview=4096");
    assert!(cut.body.len() < 10_000, "{}", cut.body.len());
    let event = &cut.json()["events"][0];
    let result = whole["events"][0]["result"].to_string();
    assert_eq!((event.get("result"), &event["cut"]["result"]["bytes"]), (None, &json!(result.len())), "{event}");
    let start = event["cut"]["result"]["start"].as_str().unwrap();
    assert!(result.starts_with(start) && start.chars().count() == 1_000);
    assert_eq!((&event["nodeId"], &event["type"]), (&json!("say"), &json!("task:complete")));
    // Small events have no member `cut`.
    served.post("/v1/runs?wait=true", &json!({ "flow": asks(), "runId": "small" }));
    let small = served.get("/v1/runs/small/events?preview=4096").json();
    assert_eq!(small["events"], served.get("/v1/runs/small/events").json()["events"]);
}
