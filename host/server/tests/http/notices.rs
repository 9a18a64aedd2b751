//! The stream of notices over all runs and jobs of a tenant.

use std::net::TcpListener;

use flowcell_platform::{policy::Policy, tenants::Tenants};
use serde_json::{Value, json};

use crate::{
    approvals::{flow, gate},
    client::{Served, ask},
    samples::{asks, hello},
    stream::{Sent, Stream},
    tenants::{call, served_with},
};

/// Opens a stream with a token, or with none.
fn open(served: &Served, token: Option<&str>, more: &[(&str, &str)]) -> Stream {
    let token = token.map(|token| format!("Bearer {token}"));
    let mut headers: Vec<_> = token.iter().map(|token| ("Authorization", token.as_str())).collect();
    headers.extend(more);
    Stream::open(served, "/v1/stream", &headers)
}

/// Reads notices until one is of this type and, if `run` is not empty, about this run.
fn hear(stream: &mut Stream, kind: &str, run: &str) -> (Vec<Sent>, Sent) {
    let mut others = Vec::new();
    loop {
        let sent = stream.next().unwrap_or_else(|| panic!("no {kind} of {run}: {others:?}"));
        assert_eq!(sent.data["type"], sent.kind.as_str());
        if sent.kind == kind && (run.is_empty() || sent.data["runId"] == run) {
            return (others, sent);
        }
        others.push(sent);
    }
}

fn kinds_of(sent: &[Sent], run: &str) -> Vec<String> {
    sent.iter().filter(|sent| sent.data["runId"] == run).map(|sent| sent.kind.clone()).collect()
}

#[test]
fn a_run_is_told_from_its_start_to_its_end() {
    let served = Served::local();
    let mut stream = open(&served, None, &[]);
    let ready = stream.next().unwrap();
    assert_eq!((ready.kind.as_str(), ready.id), ("ready", ready.data["ts"].as_u64()));
    served.post("/v1/runs?wait=true", &json!({ "flow": asks(), "runId": "g" }));
    // The driver tells of the gate at once, and the row of the run tells of it again, with its task.
    let mut told = Vec::new();
    let opened = loop {
        let (others, opened) = hear(&mut stream, "gate:opened", "g");
        told.extend(others);
        if opened.data.get("task").is_some() {
            break opened;
        }
    };
    assert_eq!(kinds_of(&told, "g"), ["run:created", "run:parked"]);
    assert_eq!((&opened.data["task"], &opened.data["reason"]), (&json!("ok"), &json!("gate")), "{opened:?}");
    assert_eq!(told[0].data["flow"], "asks");
    assert_eq!(served.post("/v1/runs/g/gates/ok/reply", &json!({ "answer": "yes" })).status, 200);
    let (before, ended) = hear(&mut stream, "run:ended", "g");
    assert_eq!(ended.data["status"], "succeeded");
    assert!(ended.id >= ready.id && ended.id.is_some());
    if !kinds_of(&before, "g").contains(&"gate:closed".to_owned()) {
        hear(&mut stream, "gate:closed", "g");
    }
    let fails = json!({ "flow": { "name": "fails" }, "nodes": [{ "id": "bad", "type": "control.fail", "input": { "message": "no" } }] });
    let failed = served.post("/v1/runs?wait=true", &json!({ "flow": fails, "runId": "f" })).json();
    assert_eq!(failed["status"], "failed", "{failed}");
    let (_, told) = hear(&mut stream, "run:failed", "f");
    assert_eq!((&told.data["status"], &told.data["failedNode"]), (&json!("failed"), &json!("bad")), "{told:?}");
    let job = served.post("/v1/jobs", &json!({ "action": "delete", "filter": { "flow": "fails" } })).json();
    let (_, changed) = hear(&mut stream, "job:changed", "");
    assert_eq!((&changed.data["jobId"], &changed.data["action"]), (&job["id"], &json!("delete")), "{changed:?}");
}

#[test]
fn a_stream_goes_on_after_its_last_notice_and_misses_none() {
    let served = Served::local();
    let mut stream = open(&served, None, &[]);
    let id = stream.next().unwrap().id.unwrap().to_string();
    drop(stream);
    served.post("/v1/runs?wait=true", &json!({ "flow": asks(), "runId": "g" }));
    served.post("/v1/runs?wait=true", &json!({ "flow": hello(), "runId": "h" }));
    for (path, headers) in
        [("/v1/stream".to_owned(), vec![("Last-Event-ID", id.as_str())]), (format!("/v1/stream?cursor={id}"), vec![])]
    {
        let mut stream = Stream::open(&served, &path, &headers);
        let (missed, ready) = hear(&mut stream, "ready", "");
        assert_eq!(kinds_of(&missed, "g"), ["run:created", "run:parked", "gate:opened"]);
        assert_eq!(kinds_of(&missed, "h"), ["run:created", "run:ended"]);
        assert!(missed.iter().all(|sent| sent.id.map(|id| id.to_string()).as_deref() == Some(&id)), "{missed:?}");
        assert!(ready.id.unwrap() >= id.parse().unwrap());
    }
}

#[test]
fn a_stream_that_has_missed_too_much_says_so() {
    let served = Served::local();
    let mut stream = open(&served, None, &[]);
    let id = stream.next().unwrap().id.unwrap().to_string();
    drop(stream);
    for index in 0..=1_000 {
        let begun = served.post("/v1/runs?wait=true", &json!({ "flow": hello(), "runId": format!("r{index}") }));
        assert_eq!(begun.status, 201, "{begun:?}");
    }
    let mut stream = open(&served, None, &[("Last-Event-ID", &id)]);
    let gap = stream.next().unwrap();
    assert_eq!((gap.kind.as_str(), &gap.data["lists"]), ("gap", &json!(["runs", "gates", "jobs"])));
    assert_eq!(stream.next().unwrap().kind, "ready");
}

#[test]
fn a_gate_beside_a_busy_task_is_told_to_its_own_tenant_only() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let loopback = "127.0.0.0/8".parse().unwrap();
    let (served, [a, b]) = served_with(&Policy::default(), |builder| builder.allow_private([loopback]));
    let [mut mine, mut theirs] = [&a, &b].map(|token| open(&served, Some(token), &[]));
    let id = [&mut mine, &mut theirs].map(|stream| stream.next().unwrap().id.unwrap())[0].to_string();
    let busy = json!({ "id": "busy", "type": "http.request", "input": { "url": url }, "grants": { "http": [url] } });
    let begun = json!({ "flow": flow(&[busy, gate()], &[]), "runId": "both" });
    assert_eq!(call(&served, &a, "POST", "/v1/runs", &begun).status, 201);
    let (_, opened) = hear(&mut mine, "gate:opened", "both");
    assert_eq!((&opened.data["status"], &opened.data["flow"]), (&json!("running"), &json!("pays")), "{opened:?}");
    let _pending = listener.accept().unwrap();
    // A stream that goes on cannot know which gates of the active run it has missed.
    let mut again = open(&served, Some(&a), &[("Last-Event-ID", &id)]);
    let (missed, _) = hear(&mut again, "ready", "");
    let gaps: Vec<_> = missed.iter().filter(|sent| sent.kind == "gap").map(|sent| &sent.data["lists"]).collect();
    assert_eq!(gaps, [&json!(["gates"])], "{missed:?}");
    assert_eq!(call(&served, &a, "POST", "/v1/runs/both/gates/ask/reply", &json!({ "answer": "yes" })).status, 200);
    hear(&mut mine, "gate:closed", "both");
    assert_eq!(call(&served, &a, "POST", "/v1/runs/both/cancel", &json!({})).status, 200);
    hear(&mut mine, "run:ended", "both");
    let theirs_run = json!({ "flow": hello(), "runId": "other" });
    assert_eq!(call(&served, &b, "POST", "/v1/runs?wait=true", &theirs_run).status, 201);
    let (others, _) = hear(&mut theirs, "run:ended", "other");
    assert!(others.iter().all(|sent| sent.data["runId"] == "other"), "{others:?}");
}

#[test]
fn wrong_cursors_are_refused() {
    let served = Served::local();
    let later = (served.host().now() + 7_200_000).to_string();
    let forged = ["abc", "-1", "1e3", "0x1", "", " ", "1,2", "18446744073709551615", "18446744073709551616", &later];
    for last in forged {
        let answer = ask(served.address, "GET", "/v1/stream", &[("Last-Event-ID", last)], "");
        assert_eq!(answer.fault(), (400, "bad_request".to_owned()), "{last:?}");
        let answer = served.get(&format!("/v1/stream?cursor={}", last.replace(' ', "%20")));
        assert_eq!(answer.fault(), (400, "bad_request".to_owned()), "{last:?}");
    }
    assert_eq!(served.get("/v1/stream?from=1").fault().0, 400);
}

#[test]
fn a_stream_ends_soon_after_its_token_was_revoked() {
    let limits = flowcell_server::Limits { heartbeat: std::time::Duration::from_millis(50), ..Default::default() };
    let tokens = std::sync::Mutex::new(Vec::new());
    let served = Served::of(
        |host| {
            let tenants = Tenants::of(host);
            tenants.create("a").unwrap();
            tokens.lock().unwrap().push(tenants.create_token("a", &["run:read".to_owned()], "", None).unwrap());
            std::sync::Arc::new(tenants)
        },
        limits,
    );
    let token = tokens.into_inner().unwrap().remove(0);
    let mut stream = open(&served, Some(&token.token), &[]);
    assert_eq!(stream.next().unwrap().kind, "ready");
    Tenants::of(&served.host()).revoke_token(&token.id).unwrap();
    assert_eq!(stream.next().map(|sent: Sent| sent.data), None::<Value>);
}

#[test]
fn listeners_are_bounded() {
    let limits = flowcell_server::Limits { subscribers: 2, ..Default::default() };
    let served = Served::with(std::sync::Arc::new(flowcell_server::identity::Local), limits);
    let _open = open(&served, None, &[]);
    let full = served.get("/v1/stream");
    assert_eq!((full.fault(), full.header("retry-after").is_some()), ((429, "too_many_subscribers".to_owned()), true));
}
