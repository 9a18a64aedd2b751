//! Tests the answers of runs to the posts that have started them.

use std::{
    collections::BTreeMap,
    fs,
    io::BufReader,
    net::SocketAddr,
    path::Path,
    sync::{Arc, mpsc},
    thread,
};

use flowcell::{
    contract::Tenant,
    triggers::{
        reply::{MAX_WAITING_POSTS, Reply, wait_for_reply},
        webhook::PostResult,
    },
};
use flowcell_engine::FairSemaphore;
use flowcell_runtime::sql::Dialect;
use flowcell_server::{Limits, identity::Local};
use serde_json::{Value, json};

use crate::{
    client::{Answer, Served, ask, connect, read, send},
    server::process,
    servers,
    stores::{outages::Serving, run_ok},
    triggers::{
        hooks::{SECRET, count_runs, headers_signed_by, json_of, now},
        household::{self, builder},
    },
};

/// Answers as the post says, and goes on until the event `end`.
const SAYS: &str = "
- { id: answer, type: control.respond, input: '{{ flow.input.trigger.body }}' }
- { id: more, type: control.wait, after: answer, input: { until: end } }
";
/// Answers with a random value after the event `go`.
const HELD: &str = "
- { id: hold, type: control.wait, input: { until: go } }
- { id: answer, type: control.respond, after: hold, input: { body: { is: '{{ uuid() }}' } } }
";
const SILENT: &str = "[{ id: say, type: control.noop, input: { value: '{{ flow.input.trigger.body }}' } }]";
/// Answers with twice the post.
const GROWS: &str = "
- { id: answer, type: control.respond, input: { body: ['{{ flow.input.trigger.body }}', '{{ flow.input.trigger.body }}'] } }
";
const FAILS: &str = "
- { id: fail, type: control.fail, input: { code: sold_out, message: the secret stock is empty } }
- { id: answer, type: control.respond, after: fail }
";

fn write(folder: &Path, name: &str, nodes: &str) {
    let webhook = |id: &str, respond: &str| format!("{{ id: {id}, webhook: {{ secret: hook-key, {respond} }} }}");
    let triggers = [
        webhook("node", "respond: node"),
        webhook("outputs", "respond: outputs"),
        webhook("soon", "respond: node, respondTimeoutMs: 1"),
        webhook("plain", "respond: run"),
    ];
    let nodes = nodes.trim_end().replace('\n', "\n  ");
    let text = format!("flow:\n  name: {name}\n  triggers: [{}]\nnodes: {nodes}\n", triggers.join(", "));
    fs::create_dir_all(folder.join("flows")).unwrap();
    fs::write(folder.join("flows").join(format!("{name}.yaml")), text).unwrap();
}

fn prepare(folder: &Path) {
    fs::write(folder.join("key"), SECRET).unwrap();
    fs::write(folder.join("secrets.yaml"), "hook-key: { keyFile: key, for: webhook }\n").unwrap();
    for (name, nodes) in [("says", SAYS), ("held", HELD), ("silent", SILENT), ("fails", FAILS), ("grows", GROWS)] {
        write(folder, name, nodes);
    }
}

fn serve() -> Served {
    let folder = tempfile::tempdir().unwrap();
    prepare(folder.path());
    let host = builder().state_dir(folder.path()).secrets_file(folder.path().join("secrets.yaml")).build().unwrap();
    let served = Served::over(host, folder, Arc::new(Local), Limits::default());
    assert_eq!(served.get("/v1/triggers").json()["triggers"].as_array().unwrap().len(), 20);
    served
}

/// Posts to a trigger, as a signed request with this id.
fn post(address: SocketAddr, place: &str, id: &str, body: &Value) -> Answer {
    let stream = connect(address);
    send_post(&stream, address, place, id, body);
    read(&mut BufReader::new(stream))
}

fn send_post(stream: &std::net::TcpStream, address: SocketAddr, place: &str, id: &str, body: &Value) {
    let body = body.to_string();
    let signed = headers_signed_by(SECRET, id, now(), &body);
    let signed: Vec<_> = signed.iter().map(|(name, value)| (*name, value.as_str())).collect();
    send(stream, address, "POST", &format!("/v1/hooks/local/{place}"), &signed, &body);
}

/// Waits until a trigger has started a run of a flow, and returns its id.
fn run_of(address: SocketAddr, flow: &str) -> String {
    let path = format!("/v1/runs?flow={flow}&limit=1");
    let find = || Some(ask(address, "GET", &path, &[], "").json()["runs"][0]["runId"].as_str()?.to_owned());
    (0..20_000).find_map(|_| find()).unwrap_or_else(|| panic!("no run of {flow} begins"))
}

/// Sends an event to a run. A run keeps an event until it waits for it.
fn emit(address: SocketAddr, run: &str, event: &str) {
    let answer = ask(address, "POST", &format!("/v1/runs/{run}/events/{event}"), &[], "{}");
    assert_eq!(answer.status, 200, "{answer:?}");
}

#[test]
fn a_run_answers_its_post_and_goes_on() {
    let served = serve();
    let body =
        json!({ "status": 201, "headers": { "X-Order": "7", "Content-Type": "text/html" }, "body": "<p>Hello</p>" });
    let mut first = None;
    for _ in 0..2 {
        let answer = post(served.address, "says/node", "m1", &body);
        assert_eq!((answer.status, answer.body.as_str()), (201, "<p>Hello</p>"), "{answer:?}");
        assert_eq!((answer.header("x-order"), answer.header("content-type")), (Some("7"), Some("text/html")));
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        assert!(answer.header("content-security-policy").unwrap().starts_with("sandbox; default-src 'none'"));
        let lengths = answer.headers.iter().filter(|(name, _)| name == "content-length").count();
        assert_eq!(lengths, 1, "{answer:?}");
        // A repeated post gets the same answer.
        let names = |answer: &Answer| {
            answer
                .headers
                .iter()
                .filter(|(name, _)| !["date", "x-request-id"].contains(&name.as_str()))
                .cloned()
                .collect::<Vec<_>>()
        };
        assert_eq!(*first.get_or_insert(names(&answer)), names(&answer));
    }
    assert_eq!(count_runs(&served), 1);
    let run = run_of(served.address, "says");
    let status = || served.get(&format!("/v1/runs/{run}")).json()["status"].clone();
    assert!(["running", "parked"].contains(&status().as_str().unwrap()), "{}", status());
    emit(served.address, &run, "end");
    assert_eq!(json_of(&served, &run)["status"], "succeeded");
    assert_eq!(post(served.address, "says/node", "m1", &body).body, "<p>Hello</p>");
    assert_eq!(
        post(served.address, "says/node", "m1", &json!({ "status": 202 })).fault(),
        (409, "webhook_conflict".into())
    );
    for (id, body, expected) in [
        ("m2", json!({ "body": { "a": [1, 2.5] } }), (200, Some("application/json"), r#"{"a":[1,2.5]}"#)),
        ("m3", json!({ "status": 404, "body": "no" }), (404, Some("text/plain; charset=utf-8"), "no")),
        ("m4", json!({ "status": 204 }), (204, None, "")),
        ("m5", json!({ "status": 303, "headers": { "location": "https://a.test/" } }), (303, None, "")),
    ] {
        let answer = post(served.address, "says/node", id, &body);
        assert_eq!((answer.status, answer.header("content-type"), answer.body.as_str()), expected, "{body}");
    }
}

#[test]
fn answers_that_are_not_safe_are_not_sent() {
    let served = serve();
    let headers = |name: &str, value: &str| json!({ "headers": { name: value }, "body": "marked" });
    for (id, body) in [
        headers("Set-Cookie", "flowcell=1"),
        headers("content-length", "1"),
        headers("Transfer-Encoding", "chunked"),
        headers("access-control-allow-origin", "*"),
        headers("content-security-policy", "default-src *"),
        headers("strict-transport-security", "max-age=0"),
        headers("speculation-rules", "\"https://evil.test/rules.json\""),
        headers("x-accel-redirect", "/secret"),
        headers("x-note", "a\r\nset-cookie: b=1"),
        headers("location", "javascript:alert(1)"),
        json!({ "status": 101 }),
        json!({ "status": 200, "headers": (0..33).map(|n| (format!("x-{n}"), "v".into())).collect::<serde_json::Map<_, _>>() }),
    ]
    .iter()
    .enumerate()
    {
        let answer = post(served.address, "says/node", &format!("m{id}"), body);
        assert_eq!(answer.fault(), (500, "run_failed".into()), "{id}: {answer:?}");
        let details = &answer.json()["error"]["details"];
        assert_eq!((&details["status"], &details["code"]), (&json!("failed"), &json!("invalid_input")), "{id}");
        assert!(answer.header("set-cookie").is_none() && !answer.body.contains("marked"), "{answer:?}");
    }
    let most = |bytes: usize| post(served.address, "grows/node", &format!("m{bytes}"), &json!("x".repeat(bytes)));
    // Each of the two texts has quotes, and the list has brackets and a comma.
    let fits = (1 << 19) - 4;
    assert_eq!(most(fits).body.len(), 2 * fits + 7);
    assert_eq!(most(fits + 1).fault(), (500, "run_failed".into()));
}

#[test]
fn the_outputs_of_a_run_answer_and_a_failure_tells_its_code_alone() {
    let served = serve();
    for _ in 0..2 {
        let answer = post(served.address, "silent/outputs", "m1", &json!({ "a": 1 }));
        assert_eq!((answer.status, answer.json()), (200, json!({ "say": { "value": { "a": 1 } } })));
        assert_eq!(answer.header("content-type"), Some("application/json"));
        assert!(answer.header("content-security-policy").is_some());
    }
    let large = json!(["x".repeat(600 << 10)]);
    write(
        served.folder(),
        "twice",
        "\n- { id: a, type: control.noop, input: { value: '{{ flow.input.trigger.body }}' } }\n\
        - { id: b, type: control.noop, input: { value: '{{ flow.input.trigger.body }}' } }\n",
    );
    served.get("/v1/triggers");
    let answer = post(served.address, "twice/outputs", "m1", &large);
    assert_eq!(answer.fault(), (500, "response_refused".into()));
    for trigger in ["outputs", "node"] {
        let answer = post(served.address, &format!("fails/{trigger}"), "m1", &json!({}));
        assert_eq!(answer.fault(), (500, "run_failed".into()));
        let details = &answer.json()["error"]["details"];
        assert_eq!((&details["status"], &details["code"]), (&json!("failed"), &json!("sold_out")));
        assert!(details["runId"].is_string() && !answer.body.contains("stock"), "{answer:?}");
    }
}

#[test]
fn a_run_without_an_answer_gives_its_id() {
    let served = serve();
    let answer = post(served.address, "silent/node", "m1", &json!({}));
    assert_eq!((answer.status, answer.json()["runId"].is_string()), (200, true), "{answer:?}");
    // It waits for an event that does not come, and is cancelled.
    thread::scope(|scope| {
        let waiting = scope.spawn(|| post(served.address, "held/node", "m1", &json!({})));
        let run = run_of(served.address, "held");
        assert!(ask(served.address, "POST", &format!("/v1/runs/{run}/cancel"), &[], "{}").status < 300);
        let answer = waiting.join().unwrap();
        assert_eq!(answer.fault(), (500, "run_failed".into()));
        assert_eq!(answer.json()["error"]["details"]["status"], "cancelled");
    });
    let plain = post(served.address, "says/plain", "m1", &json!({ "status": 201 }));
    assert_eq!((plain.status, plain.json()["runId"].is_string()), (202, true), "{plain:?}");
}

#[test]
fn a_late_answer_reaches_the_repeated_post() {
    let served = serve();
    let late = post(served.address, "held/soon", "m1", &json!({}));
    assert_eq!(late.status, 202, "{late:?}");
    let run = late.json()["runId"].as_str().unwrap().to_owned();
    assert_eq!(post(served.address, "held/soon", "m1", &json!({})).status, 202);
    emit(served.address, &run, "go");
    let outputs = json_of(&served, &run)["outputs"].clone();
    let answer = post(served.address, "held/soon", "m1", &json!({}));
    assert_eq!(answer.status, 200, "a post looks at least once: {answer:?}");
    assert_eq!(answer.json(), outputs["answer"]["body"]);
}

#[test]
fn a_client_that_goes_away_changes_nothing() {
    let served = serve();
    let stream = connect(served.address);
    send_post(&stream, served.address, "held/node", "m1", &json!({}));
    let run = run_of(served.address, "held");
    drop(stream);
    emit(served.address, &run, "go");
    let view = json_of(&served, &run);
    assert_eq!(view["status"], "succeeded");
    let answer = post(served.address, "held/node", "m1", &json!({}));
    assert_eq!((answer.status, answer.json()), (200, view["outputs"]["answer"]["body"].clone()));
}

#[test]
fn posts_beyond_the_limit_of_a_tenant_get_the_id_at_once() {
    let served = serve();
    // A tenant alone gets a half.
    let most = MAX_WAITING_POSTS as usize / 2;
    let address = served.address;
    let (sender, answers) = mpsc::channel();
    for post in 0..most + 2 {
        let (stream, sender) = (connect(address), sender.clone());
        send_post(&stream, address, "held/node", &format!("m{post}"), &json!({}));
        thread::spawn(move || sender.send(read(&mut BufReader::new(stream))));
    }
    // The runs wait, so only those answers come.
    let mut seen: Vec<Answer> = answers.iter().take(2).collect();
    assert!(seen.iter().all(|answer| answer.status == 202 && answer.json()["runId"].is_string()), "{seen:?}");
    let runs = served.get("/v1/runs?flow=held&limit=500").json()["runs"].as_array().unwrap().clone();
    assert_eq!(runs.len(), most + 2);
    runs.iter().for_each(|run| emit(address, run["runId"].as_str().unwrap(), "go"));
    seen.extend(answers.iter().take(most));
    let mut counts = BTreeMap::<u16, usize>::new();
    seen.iter().for_each(|answer| *counts.entry(answer.status).or_default() += 1);
    assert_eq!(counts, BTreeMap::from([(200, most), (202, 2)]));
    let found: std::collections::BTreeSet<_> =
        seen.iter().filter(|answer| answer.status == 200).map(|answer| answer.body.clone()).collect();
    assert_eq!(found.len(), most, "each post gets the answer of its own run");
}

#[test]
fn a_server_that_stops_answers_with_the_id() {
    let mut served = serve();
    let stream = connect(served.address);
    send_post(&stream, served.address, "held/node", "m1", &json!({}));
    run_of(served.address, "held");
    served.begin_stop();
    let answer = read(&mut BufReader::new(stream));
    assert_eq!((answer.status, answer.json()["runId"].is_string()), (202, true), "{answer:?}");
}

/// The process dies after the answer is in the journal, and before a client has read it.
#[test]
fn an_answer_outlives_its_process() {
    let folder = tempfile::tempdir().unwrap();
    prepare(folder.path());
    let arguments = ["--secrets", "secrets.yaml"];
    let (mut child, address) = process::serve(folder.path(), &arguments);
    let stream = connect(address);
    send_post(&stream, address, "held/node", "m1", &json!({}));
    let run = run_of(address, "held");
    emit(address, &run, "go");
    let events =
        || ask(address, "GET", &format!("/v1/runs/{run}/events?type=task:complete&task=answer"), &[], "").json();
    let recorded = || events()["events"].as_array().unwrap().first().cloned();
    let recorded = (0..20_000).find_map(|_| recorded()).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    drop(stream);
    let (child, address) = process::serve(folder.path(), &arguments);
    for _ in 0..2 {
        let answer = post(address, "held/node", "m1", &json!({}));
        assert_eq!((answer.status, answer.json()), (200, recorded["result"]["body"].clone()), "{answer:?}");
    }
    assert_eq!(process::stop(child), Some(0));
}

/// The second process does not drive the run, and gives the same answer.
#[test]
fn another_process_of_the_store_answers_too() {
    for dialect in [Dialect::Postgres, Dialect::MySql] {
        let Some(server) = servers::server(dialect) else { continue };
        let folder = tempfile::tempdir().unwrap();
        prepare(folder.path());
        let url = server.url(&server.database());
        run_ok(folder.path(), &["store", "migrate", "--store", &url]);
        let serving: Vec<_> =
            (0..2).map(|_| Serving::start_with(folder.path(), &url, &["--secrets", "secrets.yaml"])).collect();
        let addresses: Vec<SocketAddr> = serving.iter().map(|serving| serving.address.parse().unwrap()).collect();
        let answers: Vec<Answer> = thread::scope(|scope| {
            let first = scope.spawn(|| post(addresses[0], "held/node", "m1", &json!({})));
            let run = run_of(addresses[0], "held");
            let second = scope.spawn(|| post(addresses[1], "held/node", "m1", &json!({})));
            emit(addresses[1], &run, "go");
            [first, second].map(|post| post.join().unwrap()).into()
        });
        assert_eq!((answers[0].status, answers[0].json()["is"].is_string()), (200, true), "{dialect:?}: {answers:?}");
        assert_eq!((answers[1].status, &answers[1].body), (200, &answers[0].body), "{dialect:?}");
        serving.into_iter().for_each(|serving| drop(serving.stop()));
    }
}

/// The test holds the clock, and the run is not driven.
#[tokio::test(start_paused = true)]
async fn a_post_waits_for_30_seconds_or_less() {
    let folder = tempfile::tempdir().unwrap();
    prepare(folder.path());
    let secrets = folder.path().join("secrets.yaml");
    let host = builder().state_dir(folder.path().join("store")).secrets_file(secrets).build().unwrap();
    let (household, triggers) = household::over(host, folder.path());
    triggers.refresh(&Tenant::local()).await.unwrap();
    let reads = FairSemaphore::new(8);
    for (trigger, expected) in [("node", 30_000), ("outputs", 30_000), ("soon", 1)] {
        let headers = headers_signed_by(SECRET, trigger, now(), "{}").into_iter();
        let headers = headers.map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        let place = (&Tenant::local(), "held", trigger);
        let taken = triggers.receive(place, None, &headers.collect(), b"{}", household.host.now()).await.unwrap();
        let PostResult::Awaits(post) = taken else { panic!("{taken:?}") };
        let began = tokio::time::Instant::now();
        assert_eq!(wait_for_reply(&triggers, &post, &reads).await, Reply::Late);
        let waited = began.elapsed().as_millis();
        assert!((expected..expected + 2).contains(&waited), "{trigger}: {waited} ms");
    }
}
