//! Answers that are read in chunks.

use std::collections::VecDeque;

use serde::Deserialize;
use serde_json::Value;

use super::{
    Body, Request,
    events::{Event, Parser},
};
use crate::{
    failure::{Failure, Result},
    wit::flowcell::host::http::{self, StreamTimes},
};

/// Maximum size in bytes of a line.
const MAX_LINE_BYTES: usize = 8 << 20;

/// How long an answer that is read in chunks may take. Default: no byte for 60 seconds, and 10 minutes in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// The longest time in milliseconds without a byte, while the node waits for a chunk.
    pub idle_ms: Option<u32>,
    /// The longest time in milliseconds from the head of the answer to its end.
    pub total_ms: Option<u32>,
}

/// An answer that is read in chunks. Dropping it closes its connection.
///
/// The host reads from the server only while the node waits for a chunk, and records each chunk. If the attempt is
/// repeated, the node gets the same chunks again. If the connection is gone then, the next one is the failure
/// `stream_interrupted`.
///
/// ```no_run
/// # use flowcell_sdk::{Result, http};
/// # fn follow() -> Result<()> {
/// let mut answer = http::open(http::Request::new("GET", "https://api.example.com/events"))?;
/// for event in answer.events() {
///     let event = event?;
///     println!("{}: {}", event.name, event.data);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The headers, as pairs of name and value. The names are in lower case.
    pub headers: Vec<(String, String)>,
    source: Source,
    /// Bytes that were received after the end of the last line.
    rest: Vec<u8>,
    events: Parser,
}

/// The events of an answer. A later iterator goes on after the last event of an earlier one. An event that the end of the
/// answer cuts is dropped, as the standard says. Bytes that are not UTF-8 become `U+FFFD`. A line or an event of more than
/// 8 MiB is the failure `limit_exceeded`.
#[derive(Debug)]
pub struct Events<'a> {
    answer: &'a mut Answer,
}

impl Iterator for Events<'_> {
    type Item = Result<Event>;

    fn next(&mut self) -> Option<Result<Event>> {
        loop {
            if let Some(event) = self.answer.events.ready.pop_front() {
                return Some(Ok(event));
            }
            let fed = match self.answer.next_chunk() {
                Ok(None) => return None,
                Ok(Some(chunk)) => self.answer.events.feed(&chunk),
                Err(failure) => Err(failure),
            };
            if let Err(failure) = fed {
                self.answer.close();
                return Some(Err(failure));
            }
        }
    }
}

#[derive(Debug)]
enum Source {
    /// An open stream of the host.
    Host(u32),
    /// The chunks of a test.
    Given(VecDeque<Vec<u8>>),
    /// There is nothing more to read.
    Ended,
}

/// The reply of a script.
#[derive(Deserialize)]
struct GivenAnswer {
    status: u16,
    #[serde(default)]
    headers: Vec<(String, String)>,
    #[serde(default)]
    body: Body,
    /// The chunks, in place of a body.
    #[serde(default)]
    chunks: Vec<Value>,
}

/// Sends a request, and returns when the head of its answer has arrived. `timeout_ms` of the request is the time until
/// then.
pub fn open(request: Request) -> Result<Answer> {
    open_with(request, Times::default())
}

/// Sends a request like [`open`], with other times.
pub fn open_with(request: Request, times: Times) -> Result<Answer> {
    #[cfg(not(target_family = "wasm"))]
    if let Some(given) = crate::script::call("http.open-stream", || {
        let mut args = request.recorded_args();
        args["idleMs"] = times.idle_ms.into();
        args["totalMs"] = times.total_ms.into();
        args
    }) {
        return Answer::given(serde_json::from_value(given?)?);
    }
    let times = StreamTimes { idle_ms: times.idle_ms, total_ms: times.total_ms };
    let opened = http::open_stream(&request.to_wit(), times).map_err(Failure::from_call)?;
    Ok(Answer::new(opened.status, opened.headers, Source::Host(opened.stream)))
}

impl Answer {
    fn new(status: u16, headers: Vec<(String, String)>, source: Source) -> Answer {
        Answer { status, headers, source, rest: Vec::new(), events: Parser::default() }
    }

    #[cfg_attr(target_family = "wasm", allow(dead_code, reason = "for tests without a host"))]
    fn given(given: GivenAnswer) -> Result<Answer> {
        let GivenAnswer { status, headers, body, chunks } = given;
        let mut given = VecDeque::new();
        for chunk in chunks {
            given.push_back(match chunk {
                Value::String(text) => text.into_bytes(),
                bytes => serde_json::from_value(bytes)?,
            });
        }
        match body {
            Body::Empty => {}
            Body::Text(text) => given.push_back(text.into_bytes()),
            Body::Bytes(bytes) => given.push_back(bytes),
            Body::File(_) => return Err(Failure::invalid_input("a script cannot answer a stream with a file")),
        }
        given.retain(|chunk| !chunk.is_empty());
        Ok(Answer::new(status, headers, Source::Given(given)))
    }

    /// Returns the first value of a header, whose name is in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    /// Waits for the next chunk: at most 64 KiB, as soon as the first byte has arrived. None at the end. After the end and
    /// after a failure there is nothing more to read.
    pub fn next_chunk(&mut self) -> Result<Option<Vec<u8>>> {
        if !self.rest.is_empty() {
            return Ok(Some(std::mem::take(&mut self.rest)));
        }
        let read = match &mut self.source {
            Source::Host(stream) => http::read_stream(*stream).map_err(Failure::from_call),
            Source::Given(chunks) => Ok(chunks.pop_front()),
            Source::Ended => Ok(None),
        };
        if !matches!(read, Ok(Some(_))) {
            self.source = Source::Ended;
        }
        read
    }

    /// Returns the chunks, until the end or the first failure.
    pub fn chunks(&mut self) -> impl Iterator<Item = Result<Vec<u8>>> {
        std::iter::from_fn(|| self.next_chunk().transpose())
    }

    /// Returns the lines of a text in UTF-8, without their ends (`\n` or `\r\n`), until the end or the first failure. A
    /// line of more than 8 MiB is the failure `limit_exceeded`, and one that is not UTF-8 the failure `not_text`.
    pub fn lines(&mut self) -> impl Iterator<Item = Result<String>> {
        let mut has_ended = false;
        std::iter::from_fn(move || {
            if has_ended {
                return None;
            }
            let line = self.next_line().transpose();
            has_ended = !matches!(line, Some(Ok(_)));
            line
        })
    }

    /// Returns the events of a stream of server-sent events (`text/event-stream`), until the end or the first failure.
    pub fn events(&mut self) -> Events<'_> {
        Events { answer: self }
    }

    /// Closes the connection. Further reads are at the end.
    pub fn close(&mut self) {
        if let Source::Host(stream) = std::mem::replace(&mut self.source, Source::Ended) {
            http::close_stream(stream);
        }
        self.rest.clear();
    }

    fn next_line(&mut self) -> Result<Option<String>> {
        let mut line = Vec::new();
        while let Some(mut chunk) = self.next_chunk()? {
            let end = chunk.iter().position(|byte| *byte == b'\n');
            if let Some(end) = end {
                self.rest = chunk.split_off(end + 1);
                chunk.pop();
            }
            line.extend_from_slice(&chunk);
            if line.len() > MAX_LINE_BYTES {
                self.close();
                return Err(Failure::new("limit_exceeded", format!("a line has more than {MAX_LINE_BYTES} bytes")));
            }
            if end.is_some() {
                return self.line(line).map(Some);
            }
        }
        if line.is_empty() { Ok(None) } else { self.line(line).map(Some) }
    }

    fn line(&mut self, mut line: Vec<u8>) -> Result<String> {
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        String::from_utf8(line).map_err(|_| {
            self.close();
            Failure::new("not_text", "a line of the answer is not UTF-8")
        })
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.close();
    }
}
