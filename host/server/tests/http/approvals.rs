//! Approvals of a person. An approval is valid for the run that asked for it. It is not valid for a later run that
//! repeats a part of that run.

use std::sync::{Arc, Mutex};

use flowcell_platform::{Providers, tenants::Tenants};
use flowcell_server::{
    Limits,
    identity::{Identify, Scope},
};
use serde_json::{Value, json};

use crate::{
    client::{Answer, Served},
    tenants::call,
};

/// Starts a server with a tenant, a token with all scopes, and a token that may only start and read runs.
pub(crate) fn served() -> (Served, String, String) {
    let tokens = Mutex::new(Vec::new());
    let script = json!({ "default": "scripted", "profiles": { "scripted": { "dialect": "simulated", "model": "one", "script": [
        { "match": "", "toolCalls": [{ "name": "data_map", "input": { "values": {} } }] },
        { "match": "", "text": "done" },
    ] } } });
    let providers = Providers::parse(&script.to_string(), std::path::Path::new(".")).unwrap();
    let served = Served::built(
        |builder| builder.providers(providers),
        |host| {
            let tenants = Tenants::of(host);
            tenants.create("a").unwrap();
            let all = Scope::of_tenants().map(|scope| scope.name().to_owned()).collect();
            for scopes in [all, vec!["run:create".to_owned(), "run:read".to_owned()]] {
                tokens.lock().unwrap().push(tenants.create_token("a", &scopes, "", None).unwrap().token);
            }
            let known: Arc<dyn Identify> = Arc::new(tenants);
            known
        },
        Limits::default(),
    );
    let [all, few]: [String; 2] = tokens.into_inner().unwrap().try_into().unwrap();
    (served, all, few)
}

pub(crate) fn gate() -> Value {
    json!({ "id": "ask", "type": "control.gate", "input": { "prompt": "Pay?", "choices": ["yes", "no"] } })
}

fn step(id: &str) -> Value {
    json!({ "id": id, "type": "control.noop", "input": {} })
}

pub(crate) fn flow(nodes: &[Value], edges: &[(&str, &str)]) -> Value {
    let edges: Vec<_> = edges.iter().map(|(from, to)| json!({ "from": from, "to": to })).collect();
    json!({ "flow": { "name": "pays" }, "nodes": nodes, "edges": edges })
}

/// The cases: a name, a flow, the address of its question, the node to retry from, and true if that node depends on the
/// answer.
fn cases() -> Vec<(&'static str, Value, &'static str, &'static str, bool)> {
    let each = json!({ "id": "each", "type": "control.foreach", "input": { "list": [1] }, "body": { "nodes": [gate()], "edges": [] } });
    let sub = json!({ "id": "sub", "type": "control.subflow", "input": { "name": "inner", "input": {} } });
    let agent = json!({ "id": "agent", "type": "agent.run", "input": { "prompt": "go", "tools": ["data.map"] },
        "grants": { "model": ["*"], "tools": ["data.map"] } });
    vec![
        ("next", flow(&[gate(), step("pay")], &[("ask", "pay")]), "ask", "pay", true),
        (
            "behind another",
            flow(&[gate(), step("sum"), step("pay")], &[("ask", "sum"), ("sum", "pay")]),
            "ask",
            "pay",
            true,
        ),
        (
            "joined later",
            flow(&[gate(), step("sum"), step("pay")], &[("ask", "pay"), ("sum", "pay")]),
            "ask",
            "sum",
            true,
        ),
        ("beside", flow(&[gate(), step("sum"), step("pay")], &[("sum", "pay")]), "ask", "pay", false),
        ("in a body", flow(&[each, step("pay")], &[("each", "pay")]), "each[0].ask", "pay", true),
        ("in a called flow", flow(&[sub, step("pay")], &[("sub", "pay")]), "sub/ask", "pay", true),
        ("of an agent", flow(&[agent, step("pay")], &[("agent", "pay")]), "agent#3", "pay", true),
    ]
}

struct Caller<'a>(&'a Served, &'a str);

impl Caller<'_> {
    fn post(&self, path: &str, body: &Value) -> Answer {
        call(self.0, self.1, "POST", path, body)
    }

    fn retry(&self, run: &str, body: &Value) -> Answer {
        self.post(&format!("/v1/runs/{run}/retry?wait=true"), body)
    }

    #[track_caller]
    fn status(&self, answer: &Answer) -> String {
        assert_eq!(answer.status, 201, "{answer:?}");
        answer.json()["status"].as_str().unwrap().to_owned()
    }

    /// Answers the question of a run, and waits until the run succeeds.
    #[track_caller]
    fn answer(&self, run: &str, address: &str, with: &str) {
        let gate = address.replace('/', "%2F").replace('#', "%23").replace('[', "%5B").replace(']', "%5D");
        let answered = self.post(&format!("/v1/runs/{run}/gates/{gate}/reply"), &json!({ "answer": with }));
        assert_eq!(answered.status, 200, "{run}: {answered:?}");
        let view = || call(self.0, self.1, "GET", &format!("/v1/runs/{run}"), &Value::Null).json();
        assert!((0..20_000).any(|_| view()["status"] == "succeeded"), "{}", view());
    }
}

#[test]
fn t6_an_approval_does_not_count_for_a_retry() {
    let (served, all, few) = served();
    let (owner, starter) = (Caller(&served, &all), Caller(&served, &few));
    let inner = json!({ "flow": { "name": "inner" }, "nodes": [gate()], "edges": [] });
    assert_eq!(owner.post("/v1/flows", &json!({ "flow": inner })).status, 201);
    for (index, (name, flow, address, from, depends)) in cases().into_iter().enumerate() {
        let (run, with) = (format!("r{index}"), if address.contains('#') { "allow" } else { "yes" });
        assert_eq!(owner.post("/v1/flows", &json!({ "flow": flow })).status, 201, "{name}");
        let begun = owner.post("/v1/runs?wait=true", &json!({ "flow": "pays", "runId": run }));
        assert_eq!(owner.status(&begun), "parked", "{name}: {begun:?}");
        owner.answer(&run, address, with);
        // If the retried node depends on the answer, the run asks again, for every caller.
        let expected = if depends { "parked" } else { "succeeded" };
        for caller in [&owner, &starter] {
            let again = caller.retry(&run, &json!({ "from": from }));
            assert_eq!(caller.status(&again), expected, "{name}: {again:?}");
        }
        // A retry from the node that has asked asks again, so the run has no answer to keep.
        let asking = address.split(['/', '#', '[', '.']).next();
        let none = owner.retry(&run, &json!({ "from": asking, "keepAnswers": true }));
        assert_eq!(none.fault(), (409, "no_answer_kept".to_owned()), "{name}");
        // Only a caller that may decide gates may keep the answer.
        let kept = json!({ "from": from, "keepAnswers": true, "runId": format!("{run}-kept") });
        assert_eq!(starter.retry(&run, &kept).fault(), (403, "forbidden".to_owned()), "{name}");
        assert_eq!(owner.status(&owner.retry(&run, &kept)), "succeeded", "{name}");
        // A kept answer is not kept for the next retry.
        let once_more = starter.retry(&format!("{run}-kept"), &json!({ "from": from }));
        assert_eq!(starter.status(&once_more), expected, "{name}: {once_more:?}");
    }
    let whole = owner.retry("r0", &json!({ "keepAnswers": true }));
    assert_eq!(whole.fault(), (400, "bad_request".to_owned()));
}

#[test]
fn t6_a_child_run_cannot_be_retried_alone() {
    let (served, all, few) = served();
    let (owner, starter) = (Caller(&served, &all), Caller(&served, &few));
    let inner = json!({ "flow": { "name": "inner" }, "nodes": [step("pay")], "edges": [] });
    assert_eq!(owner.post("/v1/flows", &json!({ "flow": inner })).status, 201);
    let sub = json!({ "id": "sub", "type": "control.subflow", "input": { "name": "inner", "input": {} } });
    let outer = flow(&[gate(), sub], &[("ask", "sub")]);
    assert_eq!(owner.post("/v1/flows", &json!({ "flow": outer })).status, 201);
    assert_eq!(owner.status(&owner.post("/v1/runs?wait=true", &json!({ "flow": "pays", "runId": "r" }))), "parked");
    owner.answer("r", "ask", "yes");
    // The answer allowed `inner` to pay once. A retry of `inner` alone would pay again without asking.
    for (caller, body) in [(&owner, json!({})), (&starter, json!({})), (&starter, json!({ "from": "pay" }))] {
        assert_eq!(caller.retry("r.sub.1", &body).fault(), (409, "called_run".to_owned()), "{body}");
    }
    assert_eq!(starter.status(&starter.retry("r", &json!({ "from": "sub" }))), "parked");
}
