//! Node types that call a server or services. Tests use them to check how the host records calls.

use flowcell_sdk::{http, prelude::*, queue, services};

#[derive(Deserialize)]
struct Errand {
    url: String,
    errand: String,
    #[serde(default = "one")]
    times: u32,
}

fn one() -> u32 {
    1
}

impl Errand {
    fn request(&self, index: u32, seen: &[Value]) -> http::Request {
        let body = json!({ "errand": self.errand, "index": index, "seen": seen });
        http::Request::new("POST", &self.url).json(&body)
    }
}

fn send(errand: Errand) -> Result<Value> {
    let mut seen = Vec::new();
    for index in 0..errand.times {
        seen.push(http::send(errand.request(index, &seen))?.json()?);
    }
    Ok(json!({ "answers": seen }))
}

fn scatter(errand: Errand) -> Result<Value> {
    for index in 0..errand.times {
        http::start_send(errand.request(index, &[]))?;
    }
    let mut answers = Vec::new();
    while let Some(queue::Event::Ended(call, outcome)) = queue::next_event(None)? {
        outcome?;
        answers.push(http::take_response(call)?.json()?);
    }
    Ok(json!({ "answers": answers }))
}

#[derive(Deserialize)]
struct Questions {
    calls: Vec<Question>,
}

#[derive(Deserialize)]
struct Question {
    service: String,
    #[serde(default)]
    args: Vec<Value>,
}

fn ask(questions: Questions) -> Result<Value> {
    let mut answers = vec![Value::Null; questions.calls.len()];
    for (index, Question { service, args }) in questions.calls.into_iter().enumerate() {
        services::start_call(&services::Call { id: index.to_string(), service, args })?;
    }
    while let Some(queue::Event::Ended(_, outcome)) = queue::next_event(None)? {
        let answer = outcome?;
        let place = services::Answer::read(answer.clone())?.call_id.parse::<usize>()?;
        answers[place] = answer;
    }
    Ok(json!({ "answers": answers }))
}

flowcell_sdk::pack! {
    manifest: "node.yaml",
    "courier.send" => send,
    "courier.scatter" => scatter,
    "courier.pay" => send,
    "courier.ask" => ask,
}
