//! The pack `conform`, written in Rust.

use std::{collections::BTreeMap, io};

use flowcell_sdk::{
    agent, cache, files,
    http::{self, Body},
    log, metrics,
    model::{self, Message, Reply},
    prelude::*,
    queue::{self, CallId, Event},
    services::{self, Answer},
    state, tools, FanOut,
};

const DAY_MS: u64 = 86_400_000;

fn parts(task: &Task) -> Result<Step> {
    let value = |value: Value| Source::Value(value);
    let missing = task.input_at::<Value>("/nothing")?.is_none() && task.input_text("/list").is_none();
    let output = Output::object()
        .with("text", Source::input("/text"))
        .with("first", value(json!(task.input_at::<Value>("/list/0")?)))
        .with("bytes", value(json!(task.input_len("/text"))))
        .with("items", value(json!(task.input_len("/list"))))
        .with("missing", value(json!(missing)));
    Ok(output.into())
}

fn described(task: &Task) -> Result<Step> {
    let info = task.info()?;
    let first = task.state::<Value>()?.is_none() && task.woken()?.is_none();
    Step::value(json!({
        "config": task.config::<Value>()?,
        "node": info.node_id,
        "type": info.node_type,
        "attempt": info.attempt,
        "hasBody": info.has_body,
        "first": first,
    }))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Given {
    code: String,
    message: String,
    retry_after_ms: Option<u32>,
    details: Option<Value>,
}

fn fail(given: Given) -> Result<()> {
    let failure = Failure { details: given.details, ..Failure::new(given.code, given.message) };
    Err(match given.retry_after_ms {
        Some(ms) => failure.retry_after_ms(ms),
        None => failure,
    })
}

fn crash(_: Value) -> Result<()> {
    Err(io::Error::other("no such thing"))?
}

fn no_json(_: Value) -> Result<BTreeMap<(u8, u8), u8>> {
    Ok(BTreeMap::from([((1, 2), 3)]))
}

fn random(task: &Task) -> Result<Step> {
    Step::value(task.info()?.seed)
}

fn pause(task: &Task) -> Result<Step> {
    let Some(woken) = task.woken()? else {
        let on = task.input_text("/on").unwrap_or_default();
        return Ok(waiting(&on).remember(json!({ "on": on }))?.into());
    };
    if let Some(error) = woken.error {
        return Err(error.into_failure());
    }
    let value = if woken.wake == "now" { Source::Value(Value::Null) } else { Source::woken("/value") };
    let output = Output::object()
        .with("wake", Source::value(&woken.wake)?)
        .with("index", Source::value(woken.index)?)
        .with("value", value)
        .with("remembered", Source::value(task.state::<Value>()?)?);
    Ok(output.into())
}

fn waiting(on: &str) -> Pause {
    match on {
        "now" => Pause::now(),
        "after" => Pause::after_ms(DAY_MS),
        "event" => Pause::event("ready").or_after_ms(1000),
        "answer" => {
            let choices = vec![("a".into(), None), ("b".into(), Some("The other".into()))];
            Pause::answer(Question { prompt: "Which?".into(), choices, ..Question::default() })
        }
        "body" => Pause::body(Source::Value(json!({ "number": 1 }))),
        "each" => Pause::each(FanOut { items: Source::input("/list"), concurrency: Some(1), stop_on_failure: true }),
        _ => Pause::flow("double", Source::Value(json!({ "n": 2 }))),
    }
}

fn entry(entry: Option<state::Entry<Value>>) -> Option<Value> {
    entry.map(|entry| json!({ "value": entry.value, "version": entry.version }))
}

fn counted(_: Value) -> Result<Value> {
    let before = entry(state::get("count")?);
    let set = state::set("count", &[1])?;
    let lost = state::set_if("count", &[0], None)?;
    let won = state::set_if("count", &[1, 2], Some(set))?;
    Ok(json!({ "before": before, "set": set, "lost": lost, "won": won, "after": entry(state::get("count")?) }))
}

fn cached(_: Value) -> Result<Value> {
    let before = cache::get::<Value>("conform")?;
    cache::set("conform", &json!({ "a": 1 }), Some(60_000))?;
    Ok(json!({ "before": before, "after": cache::get::<Value>("conform")? }))
}

fn denied(input: Value) -> Result<Value> {
    match cache::get::<Value>("conform") {
        Err(failure) if input["catch"] == true => Ok(json!({ "code": failure.code, "retryable": failure.retryable })),
        other => Ok(json!(other?)),
    }
}

fn tell(_: Value) -> Result<()> {
    log::debug("one");
    log::info("two");
    log::warn("three");
    log::error("four");
    metrics::measure("conform_size", 1.5, &[("unit".into(), "kg".into())]);
    Ok(())
}

fn requests(_: Value) -> Result<Value> {
    let to = |path: &str| format!("https://api.example.com/{path}");
    let answer = http::send(http::Request::new("POST", &to("orders")).json(&json!({ "n": 1 })))?;
    let a = http::start_send(http::Request::new("GET", &to("a")))?;
    let b = http::start_send(http::Request::new("GET", &to("b")))?;
    let mut failed = Value::Null;
    for _ in 0..2 {
        let Event::Ended(call, outcome) = arriving()? else { return Err(Failure::new("odd", "no call has ended")) };
        if let (true, Err(failure)) = (call == b, outcome) {
            failed = json!({ "code": failure.code, "retryable": failure.retryable });
        }
    }
    let Body::Text(text) = http::take_response(a)?.body else { return Err(Failure::new("odd", "it is no text")) };
    let kind = answer.headers.iter().find(|(name, _)| name == "content-type").map(|(_, value)| value);
    Ok(json!({
        "status": answer.status,
        "type": kind,
        "id": answer.json()?["id"],
        "a": text,
        "b": failed,
        "kept": http::keep(vec![1, 2], "application/x-conform")?["kind"],
    }))
}

fn streams(_: Value) -> Result<Value> {
    let open = |path: &str| http::open(http::Request::new("GET", &format!("https://api.example.com/{path}")));
    let mut answer = open("events")?;
    let mut events = Vec::new();
    for event in answer.events() {
        let event = event?;
        events.push(json!([event.name, event.data, event.id, event.retry_ms]));
    }
    let lines = open("lines")?.lines().collect::<Result<Vec<_>>>()?;
    let mut size = 0;
    for chunk in open("chunks")?.chunks() {
        size += chunk?.len();
    }
    let left = open("left")?.lines().next().transpose()?;
    let broken = open("broken").err().map(|failure| json!({ "code": failure.code, "retryable": failure.retryable }));
    Ok(json!({
        "status": answer.status,
        "type": answer.header("content-type"),
        "events": events,
        "lines": lines,
        "chunks": size,
        "left": left,
        "broken": broken,
    }))
}

fn arriving() -> Result<Event> {
    queue::next_event(None)?.ok_or_else(|| Failure::new("odd", "nothing arrives"))
}

fn ended(call: CallId) -> Result<Result<Value>> {
    match arriving()? {
        Event::Ended(ended, outcome) if ended == call => Ok(outcome),
        other => Err(Failure::new("odd", format!("{other:?}"))),
    }
}

fn notes(_: Value) -> Result<Value> {
    let size = files::write_text("notes/a.txt", "one")?;
    let text = files::read_text("notes/a.txt")?;
    let first = files::list("notes")?.into_iter().next();
    let absent = files::stat("notes/b.txt")?.is_none();
    let removed = files::remove("notes/a.txt")?;
    Ok(json!({ "size": size, "text": text, "first": first, "absent": absent, "removed": removed }))
}

fn asked(_: Value) -> Result<Value> {
    let request = model::Request::new([Message::user("Hello?")]);
    let reply = model::generate(&request)?;
    let later = Reply::read(ended(model::start_generate(&request)?)??)?.text();
    let uses: Vec<_> = reply.tool_uses().map(|tool| tool.name.to_owned()).collect();
    Ok(json!({ "text": reply.text(), "uses": uses, "later": later }))
}

fn called(_: Value) -> Result<Value> {
    let found: Vec<_> = tools::find(&["data.*".into()])?.into_iter().map(|tool| tool.tool).collect();
    let set = tools::Call::new("data.set", json!({ "object": {}, "path": "a", "value": 1 }));
    let output = tools::call(&set)?;
    let pick = tools::Call::new("data.pick", json!({ "object": {}, "keys": [] }));
    let later = ended(tools::start_call(&pick)?)?.err().map(|failure| failure.code);
    Ok(json!({ "found": found, "called": output, "later": later }))
}

fn served(_: Value) -> Result<Value> {
    let start = |id: &str, service: &str, args| {
        services::start_call(&services::Call { id: id.into(), service: service.into(), args })
    };
    let cat = start("cat", "img", vec![json!([]), json!("A cat")])?;
    let hello = start("agent", "agent", vec![json!("Hello?")])?;
    let mut answers = BTreeMap::new();
    for _ in 0..2 {
        let Event::Ended(call, outcome) = arriving()? else { return Err(Failure::new("odd", "no call has ended")) };
        answers.insert(call, Answer::read(outcome?)?);
    }
    let (cat, hello) = (&answers[&cat], &answers[&hello]);
    let refused = hello.error.as_ref().map(|error| error.code.as_str());
    Ok(json!({ "ids": [cat.call_id, hello.call_id], "ok": [cat.ok, hello.ok], "made": cat.result, "refused": refused }))
}

fn listening(_: Value) -> Result<Value> {
    let run = agent::open(&json!({ "inbox": { "capacity": 4 } }))?;
    agent::tell(&run, "conform.plan", &json!({ "step": 1 }))?;
    let mut heard = Vec::new();
    let closing = loop {
        match arriving()? {
            Event::Message { value, .. } => heard.push(value),
            other => break matches!(other, Event::Closing(_)),
        }
    };
    agent::close(&run, Ok(&json!({ "result": "done" })))?;
    let other = agent::open(&json!({}))?;
    agent::close(&other, Err(&Failure::new("given_up", "this one fails")))?;
    Ok(json!({ "heard": heard, "closing": closing }))
}

flowcell_sdk::pack! {
    manifest: "node.yaml",
    "conform.parts" => parts,
    "conform.task" => described,
    "conform.fail" => fail,
    "conform.crash" => crash,
    "conform.no_json" => no_json,
    "conform.random" => random,
    "conform.pause" => pause,
    "conform.state" => counted,
    "conform.cache" => cached,
    "conform.denied" => denied,
    "conform.tell" => tell,
    "conform.http" => requests,
    "conform.stream" => streams,
    "conform.files" => notes,
    "conform.model" => asked,
    "conform.tools" => called,
    "conform.services" => served,
    "conform.agent" => listening,
}
