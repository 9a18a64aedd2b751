//! The quotas of tenants over HTTP. A tenant over quota gets an error, and other tenants are not affected.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    sync::{Arc, mpsc},
    thread,
};

use flowcell_platform::{
    Host, Providers,
    policy::{OnExhausted, PerDay, Policy},
    tenants::Tenants,
};
use flowcell_server::Limits;
use serde_json::{Value, json};

use crate::{
    client::Served,
    fake::{Fake, Reply},
    samples::{asks, hello},
    stream::{Sent, Stream},
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

/// A run whose next turn may exceed the quota is parked. The tenant's other runs and other tenants go on, nothing is
/// charged twice, and the run goes on when the operator raises the quota.
#[test]
fn t5_a_pausing_quota_parks_a_run_until_it_is_raised() {
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
";
    let providers = Providers::parse(providers, Path::new("")).unwrap();
    let limit = |usd: f64| {
        let per_day = PerDay { model_usd: Some(usd), on_exhausted: OnExhausted::Pause, ..PerDay::default() };
        Policy { per_day, ..Policy::default() }
    };
    let (served, [a, b]) = served_with(&limit(8.0), |builder| builder.providers(providers));
    let agent =
        |id: &str| json!({ "id": id, "type": "agent.run", "input": { "prompt": "hi" }, "grants": { "model": ["*"] } });
    let nodes = ["one", "two", "three"].map(agent);
    let edges = json!([{ "from": "one", "to": "two" }, { "from": "two", "to": "three" }]);
    let flow = json!({ "flow": { "name": "agents" }, "nodes": nodes, "edges": edges });
    let run = |token: &str, id: &str| {
        call(&served, token, "POST", "/v1/runs?wait=true", &json!({ "flow": flow, "runId": id })).json()
    };
    let get = |token: &str, path: &str| call(&served, token, "GET", path, &Value::Null).json();
    // Each turn costs 3 and at most 4. After two turns 2 are left.
    let parked = run(&a, "waits");
    assert_eq!((&parked["status"], &parked["reason"]), (&json!("parked"), &json!("quota_exceeded")), "{parked}");
    let shown = get(&a, "/v1/runs/waits");
    assert_eq!(
        (&shown["status"], &shown["reason"], &shown["errorCode"]),
        (&json!("parked"), &parked["reason"], &Value::Null)
    );
    assert_eq!((&shown["pausedUntil"], &shown["due"]), (&parked["pausedUntil"], &parked["pausedUntil"]), "{shown}");
    assert!(shown["pausedUntil"].as_u64().unwrap().is_multiple_of(86_400_000), "{shown}");
    let resumed = call(&served, &a, "POST", "/v1/runs/waits/resume", &json!({}));
    assert_eq!((resumed.fault(), resumed.header("retry-after").is_some()), ((429, "quota_exceeded".into()), true));
    assert_eq!(run(&b, "waits")["status"], "succeeded");
    let free = call(&served, &a, "POST", "/v1/runs?wait=true", &json!({ "flow": hello() })).json();
    assert_eq!(free["status"], "succeeded", "a run without models: {free}");
    assert_eq!(get(&a, "/v1/usage")["modelUsd"], 6.0, "the turn that was not made costs nothing");
    let metrics = call(&served, &a, "GET", "/metrics", &Value::Null);
    assert_eq!(metrics.status, 200, "{metrics:?}");
    assert!(metrics.body.contains("flowcell_runs_paused_total{tenant=\"a\"} 1\n"), "{}", metrics.body);
    Tenants::of(&served.host()).set_policy("a", &limit(12.0)).unwrap();
    let seen = events_until(&served, &a, "waits", |event| event.kind == "harness:complete");
    for kind in ["harness:paused", "call:held", "harness:parked", "harness:renewed", "call:repeated"] {
        assert_eq!(seen.iter().filter(|event| event.kind == kind).count(), 1, "{kind}: {seen:?}");
    }
    assert_eq!(get(&a, "/v1/runs/waits")["status"], "succeeded");
    assert_eq!(get(&a, "/v1/usage")["modelUsd"], 9.0);
}

/// Reads the events of a run, from the first one to the one that `is_last` accepts.
fn events_until(served: &Served, token: &str, run: &str, is_last: impl Fn(&Sent) -> bool) -> Vec<Sent> {
    let path = format!("/v1/runs/{run}/events/stream");
    let mut stream = Stream::open(served, &path, &[("Authorization", &format!("Bearer {token}"))]);
    let mut seen = Vec::new();
    while !seen.last().is_some_and(&is_last) {
        seen.push(stream.next().unwrap_or_else(|| panic!("{seen:?}")));
    }
    seen
}

/// A gate is answered while its run is paused, and the answer counts after a restart of the server.
#[test]
fn t2_a_paused_run_takes_in_an_answer_and_goes_on_after_a_restart() {
    let per_day = PerDay { events: Some(5), on_exhausted: OnExhausted::Pause, ..PerDay::default() };
    let (served, [a, b]) = served(&Policy { per_day, ..Policy::default() });
    let of = |served: &Served, token: &str| call(served, token, "GET", "/v1/runs/asks", &Value::Null).json();
    for token in [&a, &b] {
        let start = json!({ "flow": asks(), "runId": "asks" });
        let parked = call(&served, token, "POST", "/v1/runs?wait=true", &start).json();
        assert_eq!((&parked["status"], &parked["reason"]), (&json!("parked"), &Value::Null), "{parked}");
        let reply = call(&served, token, "POST", "/v1/runs/asks/gates/ok/reply", &json!({ "answer": "yes" }));
        assert_eq!(reply.status, 200, "{reply:?}");
    }
    events_until(&served, &b, "asks", |event| event.kind == "harness:complete");
    let is_paused = |event: &Sent| event.data["reason"] == "quota_exceeded";
    let seen = events_until(&served, &a, "asks", is_paused);
    assert!(seen.iter().any(|event| event.kind == "session:reply"), "{seen:?}");
    let paused = of(&served, &a);
    let folder = served.end();
    let host = Host::builder().instances(16).state_dir(folder.path()).build().unwrap();
    let tenants = Tenants::of(&host);
    tenants.set_policy("a", &Policy::default()).unwrap();
    let served = Served::over(host, folder, Arc::new(tenants), Limits::default());
    events_until(&served, &a, "asks", |event| event.kind == "harness:complete");
    let ended = of(&served, &a);
    assert_eq!((&paused["status"], &ended["outputs"]["said"]), (&json!("parked"), &json!("yes")), "{paused} {ended}");
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
