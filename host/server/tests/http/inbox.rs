//! The inbox: what all runs of a tenant wait for a person to do, and answers that come too late.

use std::net::TcpListener;

use flowcell_platform::{policy::Policy, tenants::Tenants};
use serde_json::{Value, json};

use crate::{
    approvals::{self, flow, gate},
    client::Served,
    samples::{asks, hello},
    tenants::{call, served, served_with},
};

/// Returns a flow that asks `times` questions at the same time.
fn asks_often(times: usize) -> Value {
    let list: Vec<_> = (0..times).collect();
    let each = json!({ "id": "each", "type": "control.foreach", "input": { "list": list, "concurrency": times },
        "body": { "nodes": [gate()], "edges": [] } });
    let mut flow = flow(&[each], &[]);
    flow["flow"]["name"] = "often".into();
    flow
}

fn park(served: &Served, flow: &Value, run: &str) {
    let begun = served.post("/v1/runs?wait=true", &json!({ "flow": flow, "runId": run })).json();
    assert_eq!(begun["status"], "parked", "{begun}");
}

fn shown(page: &Value) -> Vec<String> {
    let gates = page["gates"].as_array().unwrap_or_else(|| panic!("{page}"));
    gates
        .iter()
        .map(|gate| format!("{} {} {}", gate["kind"], gate["runId"], gate["address"]).replace('"', ""))
        .collect()
}

/// Reads all pages of at most `limit` waits.
fn pages(get: impl Fn(&str) -> Value, query: &str, limit: usize) -> Vec<Vec<String>> {
    let (mut pages, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = get(&format!("/v1/gates?limit={limit}{query}{cursor}"));
        pages.push(shown(&page));
        assert!(pages.last().unwrap().len() <= limit && pages.len() < 50, "{pages:?}");
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return pages,
        }
    }
}

#[test]
fn the_longest_waiting_run_comes_first_and_pages_leave_out_none() {
    let served = Served::local();
    park(&served, &asks(), "z");
    park(&served, &asks_often(3), "m");
    let waits = json!({ "flow": { "name": "hears" }, "nodes": [{ "id": "n", "type": "control.wait", "input": { "until": "go" } }] });
    park(&served, &waits, "event");
    park(&served, &asks(), "a");
    served.post("/v1/runs?wait=true", &json!({ "flow": hello(), "runId": "ended" }));
    let all = ["gate z ok", "gate m each[0].ask", "gate m each[1].ask", "gate m each[2].ask", "gate a ok"];
    let get = |path: &str| served.get(path).json();
    assert_eq!(shown(&get("/v1/gates")), all);
    assert_eq!(get("/v1/gates").get("next"), None);
    for limit in 1..=6 {
        assert_eq!(pages(get, "", limit).concat(), all, "{limit}");
    }
    assert_eq!(pages(get, "&flow=often&kind=gate", 2).concat(), all[1..4]);
    for nothing in ["kind=approval", "kind=message", "kind=blocked", "flow=none"] {
        assert_eq!(get(&format!("/v1/gates?{nothing}"))["gates"], json!([]), "{nothing}");
    }
    // A wait of the list has what an answer to exactly this question needs.
    let first = get("/v1/gates")["gates"][0].clone();
    let single = get("/v1/runs/z/gates")["waiting"][0].clone();
    for member in ["address", "prompt", "choices", "allowText", "attempt", "digest", "since"] {
        assert_eq!(first[member], single[member], "{member}: {first}");
    }
    let updated = get("/v1/runs/z")["updated"].as_u64().unwrap();
    assert!(first["since"].as_u64().unwrap() <= updated, "{first}");
    assert_eq!((&first["flow"], &first["mayDecide"]), (&json!("asks"), &json!(true)));
    let answer = json!({ "answer": "yes", "attempt": first["attempt"], "digest": first["digest"] });
    assert_eq!(served.post("/v1/runs/z/gates/ok/reply", &answer).status, 200);
    let ended = || get("/v1/runs/z")["status"] == "succeeded";
    assert!((0..20_000).any(|_| ended()));
    assert_eq!(shown(&get("/v1/gates")), all[1..]);
}

#[test]
fn the_time_limit_of_a_gate_is_shown() {
    let served = Served::local();
    let limited = json!({ "id": "ask", "type": "control.gate",
        "input": { "prompt": "Pay?", "choices": ["yes"], "timeoutMs": 3_600_000 } });
    // A request that waits for the run would wait for the timer.
    let begun = served.post("/v1/runs", &json!({ "flow": flow(&[limited], &[]), "runId": "r" }));
    assert_eq!(begun.status, 201, "{begun:?}");
    assert!((0..20_000).any(|_| shown(&served.get("/v1/gates").json()) == ["gate r ask"]));
    let gate = served.get("/v1/gates").json()["gates"][0].clone();
    let times = ["since", "expires"].map(|member| gate[member].as_u64().unwrap_or_else(|| panic!("{gate}")));
    assert_eq!(times[1] - times[0], 3_600_000);
}

#[test]
fn a_gate_beside_a_busy_task_is_in_the_inbox() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let loopback = "127.0.0.0/8".parse().unwrap();
    let (served, [a, b]) = served_with(&Policy::default(), |builder| builder.allow_private([loopback]));
    let busy = json!({ "id": "busy", "type": "http.request", "input": { "url": url }, "grants": { "http": [url] } });
    let begun =
        call(&served, &a, "POST", "/v1/runs", &json!({ "flow": flow(&[busy.clone(), gate()], &[]), "runId": "both" }));
    assert_eq!(begun.status, 201, "{begun:?}");
    let begun = call(&served, &a, "POST", "/v1/runs", &json!({ "flow": flow(&[busy], &[]), "runId": "busy" }));
    assert_eq!(begun.status, 201, "{begun:?}");
    // Both calls have begun, and neither ends.
    let _pending = [listener.accept().unwrap(), listener.accept().unwrap()];
    let get = |token: &str| shown(&call(&served, token, "GET", "/v1/gates", &Value::Null).json());
    assert!((0..20_000).any(|_| get(&a) == ["gate both ask"]), "{:?}", get(&a));
    let run = call(&served, &a, "GET", "/v1/runs/both", &Value::Null).json();
    assert_eq!(run["status"], "running", "{run}");
    assert_eq!(get(&b), [""; 0]);
    for run in ["both", "busy"] {
        assert_eq!(call(&served, &a, "POST", &format!("/v1/runs/{run}/cancel"), &json!({})).status, 200);
    }
}

#[test]
fn an_approval_of_an_agent_is_shown_to_a_token_that_may_not_decide() {
    let (served, all, few) = approvals::served();
    let agent = json!({ "id": "agent", "type": "agent.run", "input": { "prompt": "go", "tools": ["data.map"] },
        "grants": { "model": ["*"], "tools": ["data.map"] } });
    let begun =
        call(&served, &all, "POST", "/v1/runs?wait=true", &json!({ "flow": flow(&[agent], &[]), "runId": "r" }));
    assert_eq!(begun.json()["status"], "parked", "{begun:?}");
    for (token, may) in [(&all, true), (&few, false)] {
        let page = call(&served, token, "GET", "/v1/gates?kind=approval", &Value::Null).json();
        assert_eq!(shown(&page), ["approval r agent#3"]);
        let gate = &page["gates"][0];
        assert_eq!((&gate["choices"], &gate["mayDecide"]), (&json!(["allow", "deny"]), &json!(may)), "{gate}");
        assert!(gate["expires"].as_u64() > gate["since"].as_u64(), "{gate}");
    }
    let page = call(&served, &all, "GET", "/v1/gates?kind=gate", &Value::Null).json();
    assert_eq!(page["gates"], json!([]));
}

#[test]
fn another_tenant_sees_no_waits_and_wrong_queries_are_refused() {
    let (served, [a, b]) = served(&Policy::default());
    for run in ["r", "s"] {
        let begun = call(&served, &a, "POST", "/v1/runs?wait=true", &json!({ "flow": asks(), "runId": run }));
        assert_eq!(begun.json()["status"], "parked");
    }
    let get = |token: &str, query: &str| call(&served, token, "GET", &format!("/v1/gates?{query}"), &Value::Null);
    assert_eq!(get(&b, "").json(), json!({ "gates": [] }));
    let page = get(&a, "limit=1").json();
    let cursor = page["next"].as_str().unwrap();
    assert_eq!(shown(&get(&a, &format!("cursor={cursor}")).json()), ["gate s ok"]);
    // The cursor of another tenant selects nothing of that tenant.
    assert_eq!(get(&b, &format!("cursor={cursor}")).json(), json!({ "gates": [] }));
    let long = "5b".repeat(9 << 10);
    let of = |text: &str| text.bytes().map(|byte| format!("{byte:02x}")).collect::<String>();
    let cursors =
        ["", "x", "7", "5b", "zz", &long, &of(r#"[1,"r"]"#), &of(r#"[-1,"r",null]"#), &of(r#"["1","r",null]"#)];
    for cursor in cursors {
        assert_eq!(get(&a, &format!("cursor={cursor}")).fault(), (400, "bad_request".to_owned()), "{cursor:.40}");
    }
    for query in ["limit=0", "limit=201", "limit=-1", "kind=none", "kind=", "x=1"] {
        assert_eq!(get(&a, query).fault(), (400, "bad_request".to_owned()), "{query}");
    }
}

#[test]
fn the_second_who_answers_learns_who_was_first() {
    let (served, [a, _]) = served(&Policy::default());
    let tenants = Tenants::of(&served.host());
    let decides = ["run:read".to_owned(), "gate:decide".to_owned()];
    let lena = tenants.create_named_token("a", "lena", &decides, "", None).unwrap();
    let other = tenants.create_token("a", &decides, "", None).unwrap();
    let reply = |token: &str, run: &str, gate: &str| {
        let answer = if gate.contains("%23") { "allow" } else { "yes" };
        call(&served, token, "POST", &format!("/v1/runs/{run}/gates/{gate}/reply"), &json!({ "answer": answer }))
    };
    let mut kid = flow(&[gate()], &[]);
    kid["flow"]["name"] = "kid".into();
    assert_eq!(call(&served, &a, "POST", "/v1/flows", &json!({ "flow": kid })).status, 201);
    let sub = json!({ "id": "sub", "type": "control.subflow", "input": { "name": "kid", "input": {} } });
    let mut two = gate();
    two["id"] = "later".into();
    let flows = [
        // The run goes on to its next gate, or it ends.
        ("waits", flow(&[gate(), two], &[("ask", "later")]), "ask", "parked"),
        ("ends", flow(&[gate()], &[]), "ask", "succeeded"),
        ("calls", flow(&[sub], &[]), "sub%2Fask", "succeeded"),
    ];
    for (run, flow, gate, expected) in flows {
        // Only a stored flow can call another one.
        assert_eq!(call(&served, &a, "POST", "/v1/flows", &json!({ "flow": flow })).status, 201);
        let begun = call(&served, &a, "POST", "/v1/runs?wait=true", &json!({ "flow": "pays", "runId": run }));
        assert_eq!(begun.json()["status"], "parked", "{begun:?}");
        assert_eq!(reply(&lena.token, run, gate).status, 200);
        let view = || call(&served, &a, "GET", &format!("/v1/runs/{run}"), &Value::Null).json();
        assert!((0..20_000).any(|_| view()["status"] == expected), "{}", view());
        let late = reply(&other.token, run, gate);
        let (status, code) = late.fault();
        // An ended run may still have its driver for a moment.
        let is_ended = expected == "succeeded" && code == "run_not_active";
        assert!(status == 409 && (code == "gate_closed" || is_ended), "{late:?}");
        let error = &late.json()["error"];
        assert_eq!(error["details"]["answeredBy"], json!({ "id": lena.id, "name": "lena" }), "{error}");
        assert!(error["details"]["answeredAt"].as_u64().unwrap() <= served.host().now(), "{error}");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(&format!("it was answered by `lena` (`{}`)", lena.id)), "{message}");
        assert!(!late.body.contains(lena.token.rsplit('_').next().unwrap()));
    }
    // A gate that nobody has answered tells of no answer.
    let unknown = reply(&other.token, "waits", "none");
    assert_eq!((unknown.fault().0, unknown.json()["error"].get("details")), (409, None), "{unknown:?}");
}
