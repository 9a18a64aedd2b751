//! Node types that misbehave, each in one way. The engine's tests check the results.

use std::{hint::black_box, io::Write};

mod world;

wit_bindgen::generate!({ path: "../../../wit", world: "flowcell:pack/everything", generate_all });

use flowcell::{
    host::{agent, cache, http, log, metrics, model, queue, services, state, tools},
    node::{
        context::{self, Part},
        types::{Choice, Failure, FanOut, FlowCall, Output, Pause, Question, Source, Step, Wake},
    },
};

#[used]
#[unsafe(link_section = "flowcell:manifest")]
static MANIFEST: [u8; include_bytes!("../node.yaml").len()] = *include_bytes!("../node.yaml");

struct Hostile;

export!(Hostile);

impl exports::flowcell::node::node::Guest for Hostile {
    fn run(node_type: String) -> Result<Step, Failure> {
        match node_type.trim_start_matches("hostile.") {
            "echo" | "typed" | "costly" | "patient" => Ok(Step::Done(Output::One(Source::Input(String::new())))),
            "copy" => json(context::get_json(Part::Input, "").unwrap_or_default()),
            "rest" => pause_in_turn(),
            "spin" => spin(),
            "sleep" => {
                std::thread::sleep(std::time::Duration::from_secs(1 << 30));
                json("null".into())
            }
            "handles" => loop {
                world::subscribe(1);
            },
            "recurse" => json(recurse(&[0; 64]).to_string()),
            "hog" => hog(),
            "large" | "small" => fill(),
            "wide" => json(format!("\"{}\"", "x".repeat(number("/kib") << 10))),
            "huge" => json(format!("\"{}\"", "x".repeat(10 << 20))),
            "huge-keys" => Ok(Step::Done(Output::Object(
                (0..50).map(|n| (format!("{n}{}", "k".repeat(100 << 10)), Source::Input(String::new()))).collect(),
            ))),
            "deep" => json("[".repeat(100_000) + &"]".repeat(100_000)),
            "bad-json" => json("{ no".into()),
            "twice" => json(r#"{ "a": 1, "a": 2 }"#.into()),
            "missing" => Ok(Step::Done(Output::One(Source::Input("/not/there".into())))),
            "trap" => core::arch::wasm32::unreachable(),
            "panic" => panic!("\x1b[31msecret\n\0 {}", "x".repeat(1 << 20)),
            "fail" => Err(Failure {
                code: "x\ny".repeat(1000),
                message: "\x1b]0;title\x07\n".repeat(1000),
                retryable: true,
                retry_after_ms: Some(5),
                details: Some("{ no".into()),
            }),
            "escape" => {
                println!("\x1b[2J\0out");
                log::log(log::Level::Error, "\x1b[2Jlog");
                json("null".into())
            }
            "exit" => std::process::exit(3),
            "log-flood" => loop {
                log::log(log::Level::Info, "again");
            },
            "log-text" => {
                (0..100).for_each(|_| log::log(log::Level::Info, &"x".repeat(10 << 10)));
                json("null".into())
            }
            "print-flood" => loop {
                let _ = std::io::stdout().write(b"");
                println!("again");
            },
            "huge-call" => {
                log::log(log::Level::Info, &"x".repeat(10 << 20));
                json("null".into())
            }
            "log-unasked" => {
                log::log(log::Level::Info, "may I?");
                json("null".into())
            }
            "state" | "state-unasked" => count(),
            "http-unasked" => {
                http::start_send(&request())?;
                json("null".into())
            }
            "cache-unasked" => null_or_failure(cache::get("a")),
            "metrics-unasked" => {
                metrics::measure("a", 1.0, &[]);
                json("null".into())
            }
            "model-unasked" => null_or_failure(model::generate("{}")),
            "model-started" => null_or_failure(model::start_generate("{}")),
            "tools-unasked" => null_or_failure(tools::find(&["*".into()])),
            "tools-called" => null_or_failure(tools::call("{}")),
            "tools-started" => null_or_failure(tools::start_call("{}")),
            "services-unasked" | "services-odd" => null_or_failure(services::start_call("{}")),
            "agent-unasked" => null_or_failure(agent::open("{}")),
            "agent-told" => null_or_failure(agent::tell("a", "state", "{}")),
            "agent-closed" => null_or_failure(agent::close("a", Ok("{}"))),
            "wrap" => input_under(&["a"]),
            "double" => input_under(&["a", "b"]),
            "huge-list" => {
                let headers = (0..400_000).map(|_| ("a".into(), "b".into())).collect();
                http::start_send(&http::Request { headers, ..request() })?;
                json("null".into())
            }
            "call-flood" => loop {
                let _ = http::start_send(&request());
            },
            "forge" => forge(),
            "take-nothing" => {
                http::take_response(7)?;
                json("null".into())
            }
            "scatter" => scatter(),
            "streams" => streams(),
            "streams-unasked" => {
                http::close_stream(1);
                http::read_stream(1)?;
                json("null".into())
            }
            "listen-flood" => loop {
                queue::next_event(Some(0));
            },
            "random-huge" => {
                world::random(1 << 40);
                json("null".into())
            }
            "world" => json(world::describe()),
            "no-wake" => pause(vec![], "null".into()),
            "forever" => pause(vec![Wake::After(u64::MAX)], "null".into()),
            "crowd" => pause(vec![Wake::Now, Wake::After(1)], "null".into()),
            "bodiless" => pause(vec![Wake::Body(Source::Json("{}".into()))], "null".into()),
            "no-list" => {
                let items = Source::Input("/n".into());
                let fan_out = FanOut { items, concurrency: None, stop_on_failure: true };
                pause(vec![Wake::Each(fan_out)], "null".into())
            }
            "big-state" => pause(vec![Wake::Now], format!("\"{}\"", "x".repeat(300 << 10))),
            other => unreachable!("no node type `{other}`"),
        }
    }
}

fn request() -> http::Request {
    let (method, url) = ("GET".into(), "https://example.com".into());
    http::Request { method, url, headers: vec![], body: http::Content::Bytes(vec![1, 2]), timeout_ms: None }
}

/// Starts two HTTP calls and waits for their ends. Then takes the response of the first call, which works once. A
/// second attempt, and an attempt to take the response of the second call, must fail.
fn scatter() -> Result<Step, Failure> {
    let began = std::time::SystemTime::now();
    let calls = [http::start_send(&request())?, http::start_send(&request())?];
    let mut heard = Vec::new();
    while let Some(queue::Event::CallResult(result)) = queue::next_event(None) {
        heard.push(format!("{}: {}", result.id, result.outcome.unwrap_or_else(|failure| failure.code)));
    }
    let taken = http::take_response(calls[0])?;
    let again = http::take_response(calls[0]).unwrap_err().code;
    let failed = http::take_response(calls[1]).unwrap_err().code;
    let passed = began.elapsed().unwrap_or_default().as_millis();
    let body = match taken.body {
        http::Content::Bytes(bytes) => bytes.len(),
        _ => 0,
    };
    json(format!(
        r#"{{"heard":{heard:?},"status":{},"body":{body},"again":"{again}","failed":"{failed}","passed":{passed}}}"#,
        taken.status
    ))
}

/// Opens nine streams, the last one too many, reads eight of them to their ends, and reads and closes streams that are not
/// open.
fn streams() -> Result<Step, Failure> {
    let times = || http::StreamTimes { idle_ms: None, total_ms: Some(5) };
    let open = (0..8).map(|_| http::open_stream(&request(), times())).collect::<Result<Vec<_>, _>>()?;
    let mut told = vec![http::open_stream(&request(), times()).unwrap_err().code];
    for opened in &open {
        let mut read = format!("{} {}", opened.stream, opened.status);
        loop {
            match http::read_stream(opened.stream) {
                Ok(Some(bytes)) => read.push_str(&format!(" {}", bytes.len())),
                Ok(None) => break read.push_str(" end"),
                Err(failure) => break read.push_str(&format!(" {}", failure.code)),
            }
        }
        told.push(read);
    }
    told.extend([1, 0, 99].map(|stream| http::read_stream(stream).unwrap_err().code));
    let late = http::open_stream(&request(), times())?;
    http::close_stream(late.stream);
    http::close_stream(late.stream);
    http::close_stream(99);
    told.push(http::read_stream(late.stream).unwrap_err().code);
    json(format!("{told:?}"))
}

fn json(text: String) -> Result<Step, Failure> {
    Ok(Step::Done(Output::One(Source::Json(text))))
}

fn pause(until: Vec<Wake>, state: String) -> Result<Step, Failure> {
    Ok(Step::Pause(Pause { until, state }))
}

/// Pauses four times, each time for other wakes. Then returns parts of the input, the wake, the state, the config and
/// the information about the task.
fn pause_in_turn() -> Result<Step, Failure> {
    let given = context::get_json(Part::State, "/round");
    let round: u32 = given.and_then(|round| round.parse().ok()).unwrap_or(0);
    let state = format!(r#"{{"round":{}}}"#, round + 1);
    let question = Question {
        prompt: "really?".into(),
        choices: vec![Choice { value: "yes".into(), label: Some("Yes".into()) }],
        allow_text: true,
        schema: Some(r#"{"type":"string"}"#.into()),
        audience: vec!["ops".into()],
    };
    let items = Source::Input("/list".into());
    let fan_out = FanOut { items, concurrency: Some(2), stop_on_failure: true };
    let call = FlowCall { name: "child".into(), input: Source::Woken("/value".into()) };
    match round {
        0 => pause(vec![Wake::Answer(question), Wake::After(5), Wake::Event("go".into())], state),
        1 => pause(vec![Wake::Body(Source::Json(r#"{"a":1}"#.into()))], state),
        2 => pause(vec![Wake::Each(fan_out)], state),
        3 => pause(vec![Wake::Flow(call)], state),
        _ => {
            let part = |part, path: &str| Source::Json(context::get_json(part, path).unwrap_or("null".into()));
            let len = |path: &str| Source::Json(format!("{:?}", context::len(Part::Input, path).unwrap_or(99)));
            Ok(Step::Done(Output::Object(vec![
                ("list".into(), Source::Input("/list".into())),
                ("value".into(), Source::Woken("/value".into())),
                ("state".into(), part(Part::State, "")),
                ("config".into(), part(Part::Config, "/c~1d")),
                ("task".into(), part(Part::Task, "")),
                ("lens".into(), len("/list")),
                ("bytes".into(), len("/text")),
                ("scalar".into(), len("/list/0")),
            ])))
        }
    }
}

/// Reports an event of an agent run with members that only the host may set. Then tries a reserved event name and the
/// agent run of another task, and returns the codes of the failures.
fn forge() -> Result<Step, Failure> {
    let words = r#"{ "type": "harness:complete", "seq": 1, "runId": "r0", "nodeId": "canary", "taskId": "canary",
        "agentRunId": "a0", "tenant": "other", "ts": 0 }"#;
    let run = agent::open(words)?;
    agent::tell(&run, "state", words)?;
    let refused =
        [agent::tell(&run, "agent:complete", "{}"), agent::tell("a0", "state", "{}"), agent::close("a0", Ok("{}"))];
    let codes: Vec<_> = refused.into_iter().map(|refused| refused.err().map(|failure| failure.code)).collect();
    agent::close(&run, Ok(words))?;
    json(format!("{codes:?}").replace("Some(", "").replace(')', ""))
}

/// Fails as the call has failed. Returns null if the call has succeeded.
fn null_or_failure<T>(answer: Result<T, Failure>) -> Result<Step, Failure> {
    answer?;
    json("null".into())
}

/// Returns an object in which each of these members is the whole input.
fn input_under(keys: &[&str]) -> Result<Step, Failure> {
    let members = keys.iter().map(|key| (key.to_string(), Source::Input(String::new())));
    Ok(Step::Done(Output::Object(members.collect())))
}

fn spin() -> ! {
    let mut count = 0_u64;
    loop {
        count = black_box(count.wrapping_add(1));
    }
}

#[allow(unconditional_recursion, reason = "that is the point")]
fn recurse(frame: &[u8; 64]) -> u64 {
    let next = black_box(*frame);
    recurse(&next) + u64::from(black_box(next[0]))
}

fn hog() -> ! {
    let mut all = Vec::new();
    loop {
        all.push(black_box(vec![1_u8; 1 << 20]));
    }
}

/// Fills as many MiB as the input says. With `hold` in the input, it then makes a call.
fn fill() -> Result<Step, Failure> {
    let filled = black_box(vec![1_u8; number("/mib") << 20]);
    if context::get_json(Part::Input, "/hold").is_some() {
        state::get("held")?;
    }
    json(filled.len().to_string())
}

fn number(path: &str) -> usize {
    context::get_json(Part::Input, path).and_then(|text| text.parse().ok()).unwrap_or_default()
}

fn count() -> Result<Step, Failure> {
    let entry = state::get("count")?;
    let count: u64 = entry.map_or(0, |entry| entry.value.parse().unwrap_or(0)) + 1;
    state::set("count", &count.to_string())?;
    let name = context::get_text(Part::Input, "/name").unwrap_or_default();
    json(format!("{{\"name\":\"{name}\",\"count\":{count}}}"))
}
