//! Links that answer a gate without a token: one question, one answer, and one refusal for every code that is not right.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::Duration,
};

use flowcell_platform::{Host, Providers, tenants::Tenants};
use flowcell_server::identity::{Identify, Scope};
use serde_json::{Value, json};

use crate::{
    client::{Answer, Served, ask},
    samples::asks,
    tenants::call,
};

/// The time limit for a message to arrive.
const SOON: Duration = Duration::from_secs(60);

/// A server with the tenants `a` and `b`, a token of each, and a target that gets links.
struct House {
    served: Served,
    tokens: [String; 2],
    hook: SocketAddr,
    messages: Mutex<Receiver<Value>>,
}

/// Takes posts on one connection after the other.
fn hook() -> (SocketAddr, Receiver<Value>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, (tell, messages)) = (listener.local_addr().unwrap(), channel());
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            if take_post(stream, &tell).is_err() {
                return;
            }
        }
    });
    (address, messages)
}

fn take_post(mut stream: TcpStream, tell: &Sender<Value>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let (mut length, mut line) = (0, String::new());
    while reader.read_line(&mut line)? > 2 {
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        line.clear();
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")?;
    tell.send(serde_json::from_slice(&body).unwrap()).map_err(std::io::Error::other)
}

fn file(hook: SocketAddr, rest: &str) -> String {
    format!(
        "console: https://flows.example.com\ntargets:\n  - {{ name: ops, channel: webhook, url: 'http://{hook}/', \
         allowPrivate: true, kinds: [gate_opened]{rest} }}\n"
    )
}

impl House {
    fn new() -> House {
        let folder = tempfile::tempdir().unwrap();
        let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache");
        let script = json!({ "default": "scripted", "profiles": { "scripted": { "dialect": "simulated", "model": "one",
            "script": [{ "match": "", "toolCalls": [{ "name": "data_map", "input": { "values": {} } }] }, { "match": "", "text": "done" }] } } });
        let providers = Providers::parse(&script.to_string(), Path::new(".")).unwrap();
        let builder = Host::builder().cache_dir(cache).instances(16).state_dir(folder.path());
        let host = builder.providers(providers).build().unwrap();
        let tenants = Tenants::of(&host);
        let all: Vec<_> = Scope::of_tenants().map(|scope| scope.name().to_owned()).collect();
        let tokens = ["a", "b"].map(|name| {
            tenants.create(name).unwrap();
            tenants.create_token(name, &all, "", None).unwrap().token
        });
        let identity: Arc<dyn Identify> = Arc::new(tenants);
        let (hook, messages) = hook();
        let served = Served::with_notifications(None, host, folder, identity, &file(hook, ", answer: true"));
        House { served, tokens, hook, messages: Mutex::new(messages) }
    }

    fn call(&self, method: &str, path: &str, body: &Value) -> Answer {
        call(&self.served, &self.tokens[0], method, path, body)
    }

    /// Starts a run of the tenant `a` that asks, and returns the message about it.
    #[track_caller]
    fn begin(&self, flow: &Value, run: &str) -> Value {
        let begun = self.call("POST", "/v1/runs?wait=true", &json!({ "flow": flow, "runId": run }));
        assert_eq!((begun.status, &begun.json()["status"]), (201, &json!("parked")), "{begun:?}");
        let message = self.messages.lock().unwrap().recv_timeout(SOON).unwrap();
        assert_eq!((&message["kind"], &message["run"]), (&json!("gate_opened"), &json!(run)));
        message
    }

    /// Starts a run that asks, and returns the code of its link.
    #[track_caller]
    fn code(&self, run: &str) -> String {
        code_of(&self.begin(&asks(), run))
    }

    fn show(&self, code: &str) -> Answer {
        self.served.post("/v1/links/question", &json!({ "code": code }))
    }

    fn answer(&self, code: &str, with: &Value) -> Answer {
        self.served.post("/v1/links/answer", &json!({ "code": code, "answer": with }))
    }

    fn tenants(&self) -> Tenants {
        Tenants::of(&self.served.host())
    }

    /// Writes another file of notifications, and lets the server read it. Returns the errors.
    fn reload(&self, text: &str) -> Vec<String> {
        std::fs::write(self.served.folder().join("notify.yaml"), text).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(self.served.reloader().reload()).errors
    }

    #[track_caller]
    fn is_invalid(&self, code: &str) {
        for answer in [self.show(code), self.answer(code, &json!("yes"))] {
            assert_eq!(answer.fault(), (404, "link_invalid".to_owned()), "{code:?}");
            assert_eq!(answer.body, self.show("guessed").body, "a refusal does not tell why: {code:?}");
        }
    }
}

#[track_caller]
fn code_of(message: &Value) -> String {
    let link = message["link"].as_str().unwrap_or_else(|| panic!("no link: {message}"));
    link.strip_prefix("https://flows.example.com/console/answer#").unwrap_or_else(|| panic!("{link}")).to_owned()
}

#[test]
fn k1_a_link_shows_its_question_and_the_first_answer_counts() {
    let house = House::new();
    let code = house.code("r");
    let shown = house.show(&code).json();
    let of = |name: &str| &shown[name];
    assert_eq!((of("prompt"), of("flow"), of("runId")), (&json!("Go on?"), &json!("asks"), &json!("r")));
    assert_eq!(of("choices").as_array().map(Vec::len), Some(2), "{shown}");
    let wrong = house.answer(&code, &json!("maybe"));
    assert!(wrong.status >= 400 && wrong.status < 500, "{wrong:?}");
    // Of many answers at the same time one is first, by link or by token.
    let taken = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for index in 0..8 {
            let (house, code, taken) = (&house, &code, &taken);
            scope.spawn(move || {
                let answer = match index % 2 {
                    0 => house.answer(code, &json!("yes")),
                    _ => house.call("POST", "/v1/runs/r/gates/ok/reply", &json!({ "answer": "no" })),
                };
                taken.lock().unwrap().push((index % 2, answer));
            });
        }
    });
    let taken = taken.into_inner().unwrap();
    let first: Vec<_> = taken.iter().filter(|(_, answer)| answer.status == 200).collect();
    assert_eq!(first.len(), 1, "{taken:?}");
    for (way, late) in taken.iter().filter(|(_, answer)| answer.status != 200) {
        assert_eq!(late.status, 409, "{late:?}");
        if *way == 0 {
            assert!(!late.body.contains("answeredBy") && !late.body.contains("link:"), "{late:?}");
        }
    }
    let expected = if first[0].0 == 0 { "yes" } else { "no" };
    let view = || house.call("GET", "/v1/runs/r", &Value::Null).json();
    assert!((0..20_000).any(|_| view()["status"] == "succeeded"), "{}", view());
    assert_eq!(view()["outputs"]["said"], expected, "{}", view());
    for late in [house.show(&code), house.answer(&code, &json!("yes"))] {
        assert_eq!(late.fault(), (409, "gate_closed".to_owned()));
        assert!(late.json()["error"]["details"]["answeredAt"].is_u64(), "{late:?}");
    }
}

#[test]
fn k2_the_audit_log_names_the_target_of_a_link() {
    let house = House::new();
    let code = house.code("r");
    assert_eq!(house.answer(&code, &json!({ "content": "yes", "choice": "yes" })).status, 200);
    let log = house.tenants().audit("a", 0, 100).unwrap();
    let entry = log.iter().find(|entry| entry.action == "gate.reply").unwrap();
    assert_eq!((entry.actor.as_str(), entry.subject.as_str()), ("link:ops", "r/ok"));
    // A person with a token learns that a link was first.
    let late = house.call("POST", "/v1/runs/r/gates/ok/reply", &json!({ "answer": "no" }));
    assert!(late.status == 409 && late.body.contains("link:ops"), "{late:?}");
}

#[test]
fn k3_every_wrong_code_gets_the_same_refusal() {
    let house = House::new();
    let code = house.code("r");
    let (signed, tag) = code.split_once('.').unwrap();
    for wrong in [
        "",
        ".",
        "fca_",
        signed,
        &format!("{signed}.{}", tag.replace(|_| true, "A")),
        &format!("{code}A"),
        &house.tokens[0],
    ] {
        house.is_invalid(wrong);
    }
    house.is_invalid(&"x".repeat(100_000));
    // A token and a cookie give a code no rights.
    let token = format!("Bearer {}", house.tokens[0]);
    let body = json!({ "code": "guessed" }).to_string();
    let answer = ask(house.served.address, "POST", "/v1/links/question", &[("Authorization", &token)], &body);
    assert_eq!(answer.fault(), (404, "link_invalid".to_owned()));
    assert_eq!(house.served.post("/v1/links/question", &json!({})).fault(), (400, "bad_request".to_owned()));
    assert_eq!(house.served.get("/v1/links/question").status, 405);
    // The tenant is disabled, and enabled again.
    house.tenants().enable("a", false).unwrap();
    house.is_invalid(&code);
    house.tenants().enable("a", true).unwrap();
    assert_eq!(house.show(&code).status, 200);
    // Another site may not send a code.
    let headers = [("Sec-Fetch-Site", "cross-site")];
    let body = json!({ "code": code, "answer": "yes" }).to_string();
    let foreign = ask(house.served.address, "POST", "/v1/links/answer", &headers, &body);
    assert_eq!(foreign.fault(), (403, "foreign_site".to_owned()));
    assert_eq!(house.answer(&code, &json!("yes")).status, 200);
}

#[test]
fn k4_guesses_are_limited_by_address_and_right_codes_are_not() {
    let house = House::new();
    let code = house.code("r");
    let refused: Vec<_> = (0..110).map(|index| house.show(&format!("fca_{index}"))).collect();
    assert_eq!(refused[99].fault(), (404, "link_invalid".to_owned()));
    let last = &refused[109];
    assert_eq!(last.fault(), (429, "too_many_failures".to_owned()));
    assert!(last.header("retry-after").is_some());
    assert_eq!(house.show(&code).status, 200);
    assert_eq!(house.answer(&code, &json!("yes")).status, 200);
}

#[test]
fn k5_a_link_ends_with_its_run_and_its_target() {
    let house = House::new();
    let code = house.code("r");
    assert_eq!(house.call("POST", "/v1/runs/r/cancel", &json!({})).status, 200);
    for late in [house.show(&code), house.answer(&code, &json!("yes"))] {
        assert_eq!(late.fault(), (409, "gate_closed".to_owned()));
        assert!(late.body.contains("has ended"), "{late:?}");
    }
    assert_eq!(house.call("DELETE", "/v1/runs/r", &Value::Null).status, 204);
    assert!(house.show(&code).body.contains("does not exist any more"));
    let code = house.code("s");
    let broken = house.reload("targets: [{ name: ops }]");
    assert!(broken.len() == 1 && broken[0].contains("stay in force"), "{broken:?}");
    assert_eq!(house.show(&code).status, 200, "the earlier file stays in force");
    assert_eq!(house.reload(&file(house.hook, ", answer: true, flows: [other]")), Vec::<String>::new());
    house.is_invalid(&code);
    assert_eq!(house.reload(&file(house.hook, "")), Vec::<String>::new());
    house.is_invalid(&code);
    let message = house.begin(&asks(), "t");
    assert_eq!(message["link"], "https://flows.example.com/console/runs/t");
    assert_eq!(house.reload(&file(house.hook, ", answer: true")), Vec::<String>::new());
    assert_eq!(house.answer(&code, &json!("yes")).status, 200);
}

#[test]
fn k6_a_link_reaches_a_called_flow_and_never_the_approval_of_a_call() {
    let house = House::new();
    let inner = json!({ "flow": { "name": "inner" }, "nodes": [{ "id": "ask", "type": "control.gate",
        "input": { "prompt": "Pay?", "choices": ["yes", "no"] } }] });
    assert_eq!(house.call("POST", "/v1/flows", &json!({ "flow": inner })).status, 201);
    let outer = json!({ "flow": { "name": "outer" }, "nodes": [
        { "id": "sub", "type": "control.subflow", "input": { "name": "inner", "input": {} } }] });
    assert_eq!(house.call("POST", "/v1/flows", &json!({ "flow": outer })).status, 201);
    let code = code_of(&house.begin(&json!("outer"), "r"));
    assert_eq!(house.show(&code).json()["prompt"], "Pay?");
    assert_eq!(house.answer(&code, &json!("yes")).status, 200);
    let late = house.show(&code);
    assert!(late.json()["error"]["details"]["answeredAt"].is_u64(), "{late:?}");
    let agent = json!({ "flow": { "name": "helps" }, "nodes": [{ "id": "agent", "type": "agent.run",
        "input": { "prompt": "go", "tools": ["data.map"] }, "config": { "permissions": { "default": "ask" } },
        "grants": { "model": ["*"], "tools": ["data.map"] } }] });
    let message = house.begin(&agent, "s");
    assert!(message["address"].as_str().unwrap().starts_with("agent#"), "{message}");
    assert_eq!(message["link"], "https://flows.example.com/console/runs/s");
}
