//! Layouts, descriptions and tests of flows over HTTP, and posts that expect a version.

use serde_json::{Value, json};

use crate::{
    approvals::{flow, gate},
    client::Served,
    samples::{asks, hello},
    tenants::{call, served},
};

fn ids(list: &Value) -> Vec<&str> {
    list.as_array().unwrap_or_else(|| panic!("{list}")).iter().map(|node| node["id"].as_str().unwrap()).collect()
}

#[test]
fn a_text_and_a_run_have_the_same_layout() {
    let served = Served::local();
    let step = json!({ "id": "pay", "type": "control.noop", "input": {} });
    let text = flow(&[gate(), step], &[("ask", "pay")]);
    let drawn = served.post("/v1/graph", &json!({ "flow": text }));
    assert_eq!((drawn.status, drawn.header("content-type")), (200, Some("application/json")));
    let layout = drawn.json();
    assert_eq!(ids(&layout["nodes"]), ["ask", "pay"]);
    let edge = &layout["edges"][0];
    assert_eq!((&edge["from"], &edge["to"], &edge["on"]), (&json!("ask"), &json!("pay"), &json!("success")));
    assert!(layout["width"].as_i64() > Some(0) && edge["points"].as_array().unwrap().len() >= 2, "{layout}");
    served.post("/v1/runs?wait=true", &json!({ "flow": text, "runId": "r" }));
    // The layout of the run also has the states of its tasks.
    let mut of_run = served.get("/v1/runs/r/graph").json();
    let ask = &mut of_run["nodes"][0].as_object_mut().unwrap();
    assert_eq!((ask.remove("states"), ask.remove("task")), (Some(json!({ "waiting": 1 })), Some(json!("ask"))));
    assert_eq!(of_run, layout);
    // The run keeps the version with which it began.
    served.post("/v1/flows", &json!({ "flow": asks() }));
    served.post("/v1/runs?wait=true", &json!({ "flow": "asks", "runId": "old" }));
    let mut newer = asks();
    newer["nodes"].as_array_mut().unwrap().push(json!({ "id": "more", "type": "control.noop" }));
    assert_eq!(served.post("/v1/flows", &json!({ "flow": newer })).json()["version"], 2);
    assert_eq!(ids(&served.get("/v1/runs/old/graph").json()["nodes"]), ["ok"]);
    assert_eq!(ids(&served.post("/v1/graph", &json!({ "flow": "asks" })).json()["nodes"]), ["ok", "more"]);
    assert_eq!(ids(&served.post("/v1/graph", &json!({ "flow": "asks", "version": 1 })).json()["nodes"]), ["ok"]);
}

#[test]
fn a_wide_picture_is_drawn_in_parts() {
    let served = Served::local();
    let noop = |id: String| json!({ "id": id, "type": "control.noop" });
    let fan = 9_999;
    let nodes: Vec<_> =
        std::iter::once("root".to_owned()).chain((0..fan).map(|at| format!("n{at}"))).map(noop).collect();
    let edges: Vec<_> = (0..fan).map(|at| json!({ "from": "root", "to": format!("n{at}") })).collect();
    let body = json!({ "flow": { "flow": { "name": "fan" }, "nodes": nodes, "edges": edges } });
    let part = |number: u64| served.post(&format!("/v1/graph?part={number}"), &body);
    let first = part(0);
    assert!(first.status == 200 && first.body.len() < 400_000, "{}", first.body.len());
    let of = first.json()["part"]["of"].as_u64().unwrap();
    let about = &first.json()["part"];
    assert_eq!((&about["nodes"], &about["top"], &about["hasBodies"]), (&json!(fan + 1), &json!(0), &json!(false)));
    let drawn = first.json()["edges"].as_array().unwrap().len() as u64;
    assert_eq!(drawn + about["edgesLeftOut"].as_u64().unwrap(), fan as u64, "the root is in the first part");
    assert!(drawn <= 800);
    let (mut seen, mut bottom) = (std::collections::BTreeSet::new(), 0);
    for number in 0..of {
        let part = part(number).json();
        let about = part["part"].clone();
        assert_eq!((about["number"].as_u64(), about["top"].as_i64()), (Some(number), Some(bottom)), "{about}");
        bottom = about["bottom"].as_i64().unwrap();
        seen.extend(ids(&part["nodes"]).into_iter().map(str::to_owned));
    }
    assert_eq!((seen.len(), part(of + 7).json()["part"]["number"].as_u64()), (fan + 1, Some(of - 1)));
    for wrong in ["-1", "x", "99999999999", ""] {
        let answer = served.post(&format!("/v1/graph?part={wrong}"), &body);
        assert_eq!(answer.fault(), (400, "bad_request".to_owned()), "{wrong}");
    }
    let whole = served.post("/v1/graph", &json!({ "flow": hello() })).json();
    assert!(whole.get("part").is_none(), "{whole}");
}

#[test]
fn bodies_are_folded_and_passes_are_listed_by_page() {
    let served = Served::local();
    let each = json!({ "id": "each", "type": "control.foreach", "input": { "list": [1, 2, 3], "maxFailures": 1 }, "body": ["one"] });
    let one = json!({ "id": "one", "type": "control.fail", "when": "each.item == 2", "input": { "code": "bad", "message": "two" } });
    let loops = json!({ "flow": { "name": "loops" }, "nodes": [each, one] });
    served.post("/v1/runs?wait=true", &json!({ "flow": loops, "runId": "r" }));
    let graph = |query: &str| served.get(&format!("/v1/runs/r/graph{query}"));
    let whole = graph("").json();
    assert_eq!(ids(&whole["nodes"]), ["each", "one"]);
    assert_eq!(whole["nodes"][0]["passes"], json!({ "failed": 1, "skipped": 2 }), "{whole}");
    for (query, folded) in
        [("?fold=each", true), ("?fold=all", true), ("?fold=all&open=each", false), ("?fold=other", false)]
    {
        let nodes = graph(query).json()["nodes"].clone();
        assert_eq!(ids(&nodes).len(), if folded { 1 } else { 2 }, "{query}: {nodes}");
        assert_eq!(nodes[0]["folded"].as_u64(), folded.then_some(1), "{query}");
    }
    for wrong in ["?open=each", "?fold=each&open=one", "?folded=all"] {
        assert_eq!(graph(wrong).fault(), (400, "bad_request".to_owned()), "{wrong}");
    }
    let long = format!("?fold={}", "x".repeat((64 << 10) + 1));
    assert!([400, 414, 431].contains(&graph(&long).status));
    let list = |query: &str| served.get(&format!("/v1/runs/r/tasks{query}"));
    let addresses = |query: &str| -> Vec<String> {
        let list = list(query).json();
        list["tasks"].as_array().unwrap().iter().map(|task| task["address"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(addresses(""), ["each"]);
    assert_eq!(addresses("?under=each"), ["each[0]", "each[1]", "each[2]"]);
    assert_eq!(addresses("?under=each&order=urgent"), ["each[1]", "each[0]", "each[2]"]);
    assert_eq!(addresses("?deep=true&status=failed"), ["each[1].one"]);
    assert_eq!(addresses("?under=each%5B1%5D"), ["each[1].one"]);
    assert_eq!(addresses("?task=each%5B1%5D.one"), ["each[1].one"]);
    assert_eq!(list("?task=each%5B-1%5D.one").fault(), (404, "task_not_found".to_owned()));
    assert_eq!(list("?task=each&deep=true").fault(), (400, "bad_request".to_owned()));
    let page = list("?under=each&limit=2").json();
    assert_eq!((&page["total"], &page["next"]), (&json!(3), &json!(2)), "{page}");
    assert_eq!(addresses("?under=each&limit=2&from=2"), ["each[2]"]);
    assert_eq!(list("?under=each&from=99").json()["tasks"], json!([]));
    assert_eq!(list("?under=each&from=18446744073709551615").json()["tasks"], json!([]));
    assert_eq!(list("?under=none").fault(), (404, "task_not_found".to_owned()));
    assert_eq!(served.get("/v1/runs/none/tasks").fault(), (404, "run_not_found".to_owned()));
    for wrong in ["?status=odd", "?order=up", "?limit=0", "?limit=1001", "?deep=maybe", "?from=-1"] {
        assert_eq!(list(wrong).fault(), (400, "bad_request".to_owned()), "{wrong}");
    }
}

#[test]
fn flows_of_a_node_type_are_listed_with_their_grants() {
    let served = Served::local();
    served.post("/v1/flows", &json!({ "flow": hello() }));
    let calls = json!({ "flow": { "name": "calls" }, "nodes": [{ "id": "get", "type": "http.request",
        "input": { "url": "https://a.test/" }, "grants": { "http": ["https://a.test"] } }] });
    assert_eq!(served.post("/v1/flows", &json!({ "flow": calls })).status, 201);
    let users = served.get("/v1/nodes/http.request/flows").json();
    let [user] = <[Value; 1]>::try_from(users["flows"].as_array().unwrap().clone()).unwrap();
    assert_eq!((&user["flow"], &user["version"], &user["nodes"][0]["id"]), (&json!("calls"), &json!(1), &json!("get")));
    assert_eq!(user["nodes"][0]["grants"]["http"], json!(["https://a.test"]), "{user}");
    assert_eq!((&users["unread"], users.get("next")), (&json!([]), None));
    assert_eq!(served.get("/v1/nodes/http.other/flows").fault(), (404, "node_type_not_found".to_owned()));
    assert_eq!(served.get("/v1/nodes/http.request@99/flows").fault(), (404, "node_type_not_found".to_owned()));
}

#[test]
fn a_flow_is_inspected_and_tested_without_a_run() {
    let served = Served::local();
    let told = served.post("/v1/inspect", &json!({ "flow": hello() })).json();
    assert_eq!((&told["name"], ids(&told["nodes"])), (&json!("hello"), vec!["say"]), "{told}");
    assert_eq!(told["inputSchema"]["properties"]["who"]["default"], "world");
    let tested = served.post("/v1/test", &json!({ "flow": hello(), "input": { "who": "you" } })).json();
    assert_eq!(tested["status"], "succeeded", "{tested}");
    assert!(tested.to_string().contains("Hello you"), "{tested}");
    let parked = served.post("/v1/test", &json!({ "flow": asks() })).json();
    assert_eq!((&parked["status"], &parked["waiting"][0]["address"]), (&json!("parked"), &json!("ok")), "{parked}");
    let calls = json!({ "flow": { "name": "calls" }, "nodes": [{ "id": "get", "type": "http.request",
        "input": { "url": "https://a.test/" }, "grants": { "http": ["https://a.test"] } }] });
    let refused = served.post("/v1/test", &json!({ "flow": calls })).json();
    assert_eq!(refused["status"], "failed", "no call leaves the host: {refused}");
    let simulated = served.post("/v1/test", &json!({ "flow": calls, "simulate": ["http"] })).json();
    assert_eq!(simulated["status"], "succeeded", "{simulated}");
    assert_eq!(served.get("/v1/runs").json()["runs"], json!([]));
}

#[test]
fn broken_flows_and_wrong_bodies_are_refused() {
    let served = Served::local();
    let broken = json!({ "flow": { "name": "b" }, "nodes": [{ "id": "a", "type": "no.such" }] });
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    for route in ["/v1/graph", "/v1/inspect", "/v1/test"] {
        let refused = served.post(route, &json!({ "flow": broken }));
        assert_eq!(refused.fault(), (422, "invalid_flow".to_owned()), "{route}");
        assert_eq!(refused.json()["error"]["details"]["diagnostics"][0]["code"], "unknown_type", "{refused:?}");
        assert_eq!(served.post(route, &json!({ "flow": "none" })).fault(), (404, "flow_not_found".to_owned()));
        for body in [
            json!({}),
            json!({ "flow": 7 }),
            json!({ "flow": hello(), "version": 1 }),
            json!({ "flow": hello(), "x": 1 }),
        ] {
            assert_eq!(served.post(route, &body).fault(), (400, "bad_request".to_owned()), "{route} {body}");
        }
        assert_eq!(served.post(route, &json!({ "flow": deep })).fault().0, 422, "{route}");
        let large = json!({ "flow": "x".repeat(9 << 20) });
        assert_eq!(served.post(route, &large).fault(), (413, "too_large".to_owned()), "{route}");
    }
    let unknown = json!({ "flow": hello(), "simulate": ["everything"] });
    assert_eq!(served.post("/v1/test", &unknown).fault(), (400, "bad_request".to_owned()));
    assert_eq!(served.get("/v1/runs/none/graph").fault(), (404, "run_not_found".to_owned()));
}

#[test]
fn a_post_that_expects_another_version_is_refused() {
    let (served, [a, b]) = served(&Default::default());
    let post = |token: &str, text: &str, version: Value| {
        let mut flow = hello();
        flow["flow"]["description"] = text.into();
        let mut body = json!({ "flow": flow });
        if !version.is_null() {
            body["ifVersion"] = version;
        }
        call(&served, token, "POST", "/v1/flows", &body)
    };
    assert_eq!(post(&a, "1", json!(1)).fault(), (409, "version_conflict".to_owned()), "the flow does not exist");
    assert_eq!(post(&a, "1", json!(0)).json()["version"], 1);
    let late = post(&a, "other", json!(0));
    assert_eq!(
        (late.fault(), &late.json()["error"]["details"]["version"]),
        ((409, "version_conflict".to_owned()), &json!(1))
    );
    assert_eq!(post(&a, "2", json!(1)).json()["version"], 2);
    assert_eq!(post(&a, "3", json!(1)).fault(), (409, "version_conflict".to_owned()));
    // A repeated post adds no version and loses nothing.
    assert_eq!(post(&a, "2", json!(1)).json()["version"], 2);
    assert_eq!(post(&a, "3", Value::Null).json()["version"], 3);
    assert_eq!(post(&b, "1", json!(3)).fault().0, 409, "the flow of another tenant has no version");
    for wrong in [json!(-1), json!("1"), json!(1.5), json!(4_294_967_296_u64)] {
        assert_eq!(post(&a, "4", wrong.clone()).fault(), (400, "bad_request".to_owned()), "{wrong}");
    }
}
