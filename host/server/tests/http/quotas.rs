//! The quotas of tenants over HTTP. A tenant over quota gets an error, and other tenants are not affected.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    sync::mpsc,
    thread,
};

use flowcell_platform::{
    Providers,
    policy::{PerDay, Policy},
};
use serde_json::{Value, json};

use crate::{
    fake::{Fake, Reply},
    samples::{asks, hello},
    tenants::{call, served, served_with},
};

/// Starts runs until the server refuses one. Returns the status and the code of the refusal, and the number of runs
/// that the server accepted before it.
fn until_refused(policy: PerDay, body: &Value) -> (u16, String, u32) {
    let policy = Policy { per_day: policy, ..Policy::default() };
    let (served, [a, b]) = served(&policy);
    let begun = std::iter::repeat_with(|| call(&served, &a, "POST", "/v1/runs?wait=true", body));
    // The server stores the usage once a second. Some thousand runs may start in that time.
    let (begun, refused) = begun.enumerate().take(200_000).find(|(_, answer)| answer.status != 201).expect("a limit");
    let (status, code) = refused.fault();
    let wait: u64 = refused.header("retry-after").unwrap_or_else(|| panic!("{refused:?}")).parse().unwrap();
    assert!((1..=86_400).contains(&wait), "{refused:?}");
    assert_eq!(call(&served, &b, "POST", "/v1/runs?wait=true", body).status, 201, "the neighbour goes on");
    (status, code, begun as u32)
}

#[test]
fn t2_a_tenant_over_its_bytes_is_refused_and_the_next_is_not() {
    let filled = until_refused(PerDay { events: Some(5), ..PerDay::default() }, &json!({ "flow": hello() }));
    assert_eq!((filled.0, filled.1.as_str(), filled.2 > 0), (429, "quota_exceeded", true));
    let text = "x".repeat(20_000);
    let large = json!({ "flow": hello(), "input": { "who": "x", "more": text } });
    let filled = until_refused(PerDay { written_mib: Some(1), ..PerDay::default() }, &large);
    assert_eq!((filled.0, filled.1.as_str(), filled.2 > 1), (429, "quota_exceeded", true));
}

#[test]
fn a_tenant_over_its_compute_time_waits_for_the_next_day() {
    let computed = until_refused(PerDay { compute_ms: Some(1), ..PerDay::default() }, &json!({ "flow": hello() }));
    assert_eq!((computed.0, computed.1.as_str(), computed.2 > 0), (429, "quota_exceeded", true));
}

#[test]
fn t5_a_model_turn_that_may_exceed_the_quota_is_not_made() {
    let providers = "
default: priced
profiles:
  priced:
    dialect: simulated
    model: m
    maxTokens: 4
    maxRetries: 0
    prices: [{ model: m, input: 0, output: 1000000 }]
    script: [{ text: done, usage: { input: 10, output: 3 } }]
  free: { dialect: simulated, model: f, maxTokens: 4, script: [{ text: done }] }
";
    let providers = Providers::parse(providers, Path::new("")).unwrap();
    let per_day = PerDay { model_usd: Some(8.0), ..PerDay::default() };
    let policy = Policy { per_day, ..Policy::default() };
    let (served, [a, b]) = served_with(&policy, |builder| builder.providers(providers));
    let agent = |id: &str, provider: &str| {
        json!({ "id": id, "type": "agent.run", "input": { "prompt": "hello" }, "config": { "provider": provider },
            "grants": { "model": ["*"] } })
    };
    let nodes = ["one", "two", "three"].map(|id| agent(id, "priced"));
    let edges = json!([{ "from": "one", "to": "two" }, { "from": "two", "to": "three" }]);
    let flow = json!({ "flow": { "name": "agents" }, "nodes": nodes, "edges": edges });
    let run = |token: &str, flow: &Value| call(&served, token, "POST", "/v1/runs?wait=true", &json!({ "flow": flow }));
    // Each turn costs 3 and at most 4. After two turns 2 are left.
    let ended = run(&a, &flow).json();
    assert_eq!((&ended["status"], &ended["error"]["task"]), (&json!("failed"), &json!("three")), "{ended}");
    assert_eq!(ended["error"]["code"], "quota_exceeded", "{ended}");
    assert_eq!(call(&served, &a, "GET", "/v1/usage", &Value::Null).json()["modelUsd"], 6.0);
    assert_eq!(run(&b, &flow).json()["status"], "succeeded");
    let free = json!({ "flow": { "name": "free" }, "nodes": [agent("one", "free")] });
    let ended = run(&a, &free).json();
    assert_eq!(ended["error"]["code"], "quota_exceeded", "a model whose price nobody knows: {ended}");
    assert_eq!(run(&b, &free).json()["status"], "succeeded");
}

/// W7: the cost of a model's answer that breaks off counts towards the quota of the tenant.
#[test]
fn w7_t5_interrupted_attempts_count_towards_the_quota() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let text = "a text of forty letters, in ten pieces..";
    let turns = json!([{ "reply": { "text": text }, "fault": { "endAfter": 10 }, "repeat": true }]);
    let fake = runtime.block_on(flowcell_modelfake::Fake::start(json!({ "turns": turns }))).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    std::fs::write(&key, "test-key").unwrap();
    // A token costs 0.001, so that an attempt costs at most 0.012, and a turn with its two retries 0.036.
    let profile = json!({ "dialect": "chat", "model": "m", "baseUrl": fake.url("/v1"), "keyFile": key,
        "allowPrivate": [fake.address().to_string()], "maxTokens": 12, "prices": [{ "model": "m", "input": 0, "output": 1000 }] });
    let providers = json!({ "default": "fake", "profiles": { "fake": profile } });
    let providers = Providers::parse(&providers.to_string(), Path::new("")).unwrap();
    let per_day = PerDay { model_usd: Some(0.05), ..PerDay::default() };
    let (served, [a, b]) =
        served_with(&Policy { per_day, ..Policy::default() }, |builder| builder.providers(providers));
    let flow = json!({ "flow": { "name": "breaks" }, "nodes": [{ "id": "a", "type": "agent.run",
        "input": { "prompt": "hello" }, "grants": { "model": ["*"] } }] });
    let run = |token: &str| {
        let ended = call(&served, token, "POST", "/v1/runs?wait=true", &json!({ "flow": flow })).json();
        ended["error"]["code"].as_str().unwrap().to_owned()
    };
    let used = || call(&served, &a, "GET", "/v1/usage", &Value::Null).json()["modelUsd"].as_f64().unwrap();
    assert_eq!(run(&a), "model_stream_truncated");
    let first = used();
    assert!(fake.requests().len() == 3 && first > 0.014 && first <= 0.036, "{first}");
    // The next turn may cost more than is left, so none of its attempts is made.
    assert_eq!(run(&a), "quota_exceeded");
    assert_eq!((fake.requests().len(), used()), (3, first));
    assert_eq!(run(&b), "model_stream_truncated");
}

#[test]
fn t5_images_that_may_exceed_the_quota_are_not_made() {
    let fake = Fake::start(|_, _| Reply::Image(flowcell_services::images::sample([1, 2, 3])));
    let setting = json!({ "baseUrl": format!("http://{}/v1", fake.address), "auth": "none",
        "allowPrivate": [fake.address.to_string()] });
    let mut priced = setting.clone();
    (priced["usdPerImage"], priced["maxRetries"]) = (json!(3), json!(0));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("services.yaml");
    let services = json!({ "img": { "images": priced }, "free": { "images": setting } });
    std::fs::write(&file, services.to_string()).unwrap();
    let per_day = PerDay { model_usd: Some(8.0), ..PerDay::default() };
    let policy = Policy { per_day, ..Policy::default() };
    let (served, [a, b]) = served_with(&policy, |builder| builder.services_file(&file));
    let run = |token: &str, body: &str| {
        let script = format!("export const run = async services => {{ {body} }}");
        let flow = json!({ "flow": { "name": "images", "script": script } });
        call(&served, token, "POST", "/v1/runs?wait=true", &flow).json()
    };
    // Two requested images cost at most 6, and the one that arrives costs 3. After another image 2 are left.
    let asks = "const [first] = await services.img(null, 'a', { n: 2 });
        await services.img(null, 'b');
        const third = await services.img(null, 'c').catch(e => e.code);
        return [first.meta.costUsd, third];";
    assert_eq!(run(&a, asks)["outputs"]["result"], json!([3, "quota_exceeded"]));
    assert_eq!(fake.seen().len(), 2, "the third was not asked for");
    assert_eq!(call(&served, &a, "GET", "/v1/usage", &Value::Null).json()["modelUsd"], 6.0);
    let free = "return (await services.free(null, 'a')).kind";
    let ended = run(&a, free);
    assert_eq!(ended["error"]["details"]["code"], "quota_exceeded", "{ended}");
    assert!(ended["error"]["message"].as_str().unwrap().contains("needs `usdPerImage`"), "{ended}");
    assert_eq!(run(&b, free)["outputs"]["result"], "file");
}

#[test]
fn t1_calls_that_hang_at_a_shared_endpoint_do_not_delay_other_tenants() {
    let image = || flowcell_services::images::sample([1, 2, 3]);
    let (told, hanging) = mpsc::channel();
    let fake = Fake::start(move |seen, _| match seen.prompt().as_str() {
        "hang" => {
            told.send(()).unwrap();
            Reply::Silence
        }
        _ => Reply::Image(image()),
    });
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("services.yaml");
    let images = json!({ "baseUrl": format!("http://{}/v1", fake.address), "auth": "none", "maxCalls": 4,
        "allowPrivate": [fake.address.to_string()] });
    std::fs::write(&file, json!({ "img": { "images": images } }).to_string()).unwrap();
    let (served, [a, b]) = served_with(&Policy::default(), |builder| builder.services_file(&file));
    let run = |token: &str, query: &str, body: &str| {
        let script = format!("export const run = async services => {{ {body} }}");
        call(
            &served,
            token,
            "POST",
            &format!("/v1/runs{query}"),
            &json!({ "flow": { "name": "images", "script": script } }),
        )
    };
    let hangs = "return await Promise.all(Array.from({ length: 12 }, () => services.img(null, 'hang')))";
    assert_eq!(run(&a, "", hangs).status, 201);
    // The tenant holds half of the permits, and its other calls wait.
    (0..2).for_each(|_| hanging.recv().unwrap());
    let ended = run(&b, "?wait=true", "return (await services.img(null, 'a')).kind").json();
    assert_eq!(ended["outputs"]["result"], "file", "{ended}");
    assert_eq!(fake.seen().iter().filter(|seen| seen.prompt() == "hang").count(), 2);
}

#[test]
fn concurrent_attempts_of_a_tenant_are_limited() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let policy = Policy { max_concurrency: Some(1), ..Policy::default() };
    let loopback = "127.0.0.0/8".parse().unwrap();
    let (served, [a, b]) = served_with(&policy, |builder| builder.allow_private([loopback]));
    let asks = |id: &str| {
        let input = json!({ "url": format!("{url}{id}") });
        json!({ "id": id, "type": "http.request", "input": input, "grants": { "http": [url] } })
    };
    let flow = json!({ "flow": { "name": "two" }, "nodes": [asks("one"), asks("two")] });
    let ended = |token: &str, flow: &Value| {
        let ended = call(&served, token, "POST", "/v1/runs?wait=true", &json!({ "flow": flow }));
        assert_eq!(ended.json()["status"], "succeeded", "{ended:?}");
    };
    thread::scope(|scope| {
        scope.spawn(|| ended(&a, &flow));
        let (first, _) = listener.accept().unwrap();
        listener.set_nonblocking(true).unwrap();
        for _ in 0..3 {
            ended(&b, &hello());
            if let Ok((second, _)) = listener.accept() {
                panic!("two at a time: {} {}", request(&first), request(&second));
            }
        }
        listener.set_nonblocking(false).unwrap();
        answer(first);
        answer(listener.accept().unwrap().0);
    });
}

/// Reads the first line of a request.
fn request(mut connection: &TcpStream) -> String {
    let mut head = [0; 4_096];
    let length = connection.read(&mut head).unwrap();
    String::from_utf8_lossy(&head[..length]).lines().next().unwrap_or_default().to_owned()
}

/// Answers a request without reading it to its end.
fn answer(mut connection: TcpStream) {
    request(&connection);
    connection.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").unwrap();
}

#[test]
fn t1_a_tenant_at_its_run_limit_is_refused_and_the_next_is_not() {
    let (served, [a, b]) = served(&Policy { max_live_runs: Some(20), ..Policy::default() });
    let start = |token: &str, flow: Value| call(&served, token, "POST", "/v1/runs", &json!({ "flow": flow }));
    let answers: Vec<_> = (0..100).map(|_| start(&a, asks()).status).collect();
    assert_eq!(answers.iter().filter(|status| **status == 201).count(), 20, "{answers:?}");
    assert!(answers[20..].iter().all(|status| *status == 429), "{answers:?}");
    let answer = call(&served, &b, "POST", "/v1/runs?wait=true", &json!({ "flow": hello() }));
    assert_eq!((answer.status, &answer.json()["status"]), (201, &json!("succeeded")));
}
