//! Answers that a node reads in chunks, lines and events, played by scripts.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use flowcell_sdk::{
    http,
    prelude::*,
    testing::{Outcome, Script},
};

/// Opens a stream, and returns what `read` reads from it.
fn play(reply: Value, read: impl Fn(&mut http::Answer) -> Result<Value>) -> Outcome {
    let node = |_: &Task| -> Result<Step> {
        let times = http::Times { idle_ms: Some(5), total_ms: None };
        let request = http::Request::new("GET", "https://api.example.com/events");
        Step::value(read(&mut http::open_with(request, times)?)?)
    };
    let played = Script::new().reply(reply).play(|_, task| node(task), "acme.follow", Given::default());
    assert_eq!(played.of("http.open-stream")[0]["idleMs"], 5);
    played.outcome
}

fn chunks(chunks: &[&str]) -> Value {
    json!({ "status": 200, "headers": [["content-type", "text/event-stream"]], "chunks": chunks })
}

#[test]
fn an_answer_is_read_in_chunks_until_its_end() {
    let read = |answer: &mut http::Answer| {
        let texts = answer.chunks().map(|chunk| Ok(String::from_utf8(chunk?)?)).collect::<Result<Vec<_>>>()?;
        assert_eq!((answer.status, answer.header("content-type")), (200, Some("text/event-stream")));
        Ok(json!({ "texts": texts, "after": answer.next_chunk()? }))
    };
    assert_eq!(play(chunks(&["a", "bc"]), read), Outcome::Output(json!({ "texts": ["a", "bc"], "after": null })));
    let whole = json!({ "status": 200, "body": { "text": "abc" } });
    let read = |answer: &mut http::Answer| Ok(json!(answer.chunks().count()));
    assert_eq!(play(whole, read), Outcome::Output(json!(1)));
}

#[test]
fn lines_are_joined_from_chunks_and_can_be_left_and_read_on() {
    let read = |answer: &mut http::Answer| {
        let first = answer.lines().next().unwrap()?;
        let mut rest = answer.lines().collect::<Result<Vec<_>>>()?;
        rest.insert(0, first);
        Ok(json!(rest))
    };
    let given = chunks(&["a\r", "\n\nb", "c\nd"]);
    assert_eq!(play(given, read), Outcome::Output(json!(["a", "", "bc", "d"])));
    let not_text = json!({ "status": 200, "chunks": [[255, 10], "b\n"] });
    let read = |answer: &mut http::Answer| {
        let mut lines = answer.lines();
        let failure = lines.next().unwrap().unwrap_err();
        Ok(json!([failure.code, lines.next().is_none()]))
    };
    assert_eq!(play(not_text, read), Outcome::Output(json!(["not_text", true])));
}

#[test]
fn events_are_joined_from_chunks_and_can_be_left_and_read_on() {
    let read = |answer: &mut http::Answer| {
        let mut told = Vec::new();
        let first = answer.events().next().unwrap()?;
        for event in std::iter::once(Ok(first)).chain(answer.events()) {
            let event = event?;
            told.push(json!([event.name, event.data, event.id]));
        }
        Ok(json!(told))
    };
    let given = chunks(&["id: 7\nda", "ta: a\r", "\n\r", "\ndata: b\n\nevent: end\ndata: c\n\ndata: cut\n"]);
    let expected = json!([["message", "a", "7"], ["message", "b", "7"], ["end", "c", "7"]]);
    assert_eq!(play(given, read), Outcome::Output(expected));
}
