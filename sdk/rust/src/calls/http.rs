//! Sends HTTP requests to servers. The flow grants origins, with optional path prefixes: `grants: { http:
//! ["https://api.example.com"] }`.
//!
//! The host records a request before it sends the request. If the attempt is repeated, a request whose answer was
//! recorded is not sent again. A status of 400 and above is an answer, not an error.
//!
//! [`send`] returns the whole answer. [`open`] returns an answer whose chunks, lines or events the node reads one by one.

mod events;
mod stream;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub use self::{
    events::Event,
    stream::{Answer, Events, Times, open, open_with},
};
pub use super::queue::CallId;
use crate::{
    failure::{Failure, Result},
    wit::flowcell::host::http::{self, Content},
};

/// A request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Request {
    /// `GET`, `POST` …
    pub method: String,
    /// The whole URL.
    pub url: String,
    /// The headers, as pairs of name and value.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Body,
    /// Milliseconds from the beginning of the call to the end of the answer. Default: 30 seconds.
    pub timeout_ms: Option<u32>,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Response {
    /// The status.
    pub status: u16,
    /// The headers, as pairs of name and value. The names are in lower case.
    #[serde(default)]
    pub headers: Vec<(String, String)>,
    /// The body.
    #[serde(default)]
    pub body: Body,
}

/// The content of a request or an answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Body {
    /// No content.
    #[default]
    Empty,
    /// A text in UTF-8.
    Text(String),
    /// Bytes of any kind.
    Bytes(Vec<u8>),
    /// A file value, `{ "kind": "file", "fileId": … }`, for content that is too large for the sandbox.
    File(Value),
}

impl Request {
    /// Creates a request without body and headers.
    pub fn new(method: &str, url: &str) -> Request {
        Request { method: method.into(), url: url.into(), ..Request::default() }
    }

    /// Adds a header.
    pub fn header(mut self, name: &str, value: &str) -> Request {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Sets a JSON body and its content type.
    pub fn json(mut self, body: &Value) -> Request {
        self.body = Body::Text(body.to_string());
        self.header("content-type", "application/json")
    }

    /// Converts the request to the arguments that a script records.
    fn recorded_args(&self) -> Value {
        let Request { method, url, headers, body, timeout_ms } = self;
        json!({ "method": method, "url": url, "headers": headers, "body": body, "timeoutMs": timeout_ms })
    }

    fn to_wit(&self) -> http::Request {
        let Request { method, url, headers, body, timeout_ms } = self.clone();
        let body = match body {
            Body::Empty => Content::Empty,
            Body::Text(text) => Content::Text(text),
            Body::Bytes(bytes) => Content::Bytes(bytes),
            Body::File(file) => Content::File(file.to_string()),
        };
        http::Request { method, url, headers, body, timeout_ms }
    }
}

impl Response {
    /// Parses the body as JSON. Fails with `no_json` if the body is empty or a file.
    pub fn json(&self) -> Result<Value> {
        match &self.body {
            Body::Text(text) => super::read(text),
            Body::Bytes(bytes) => Ok(serde_json::from_slice(bytes)?),
            Body::Empty | Body::File(_) => Err(Failure::new("no_json", "the answer contains no JSON")),
        }
    }

    fn from_wit(response: http::Response) -> Result<Response> {
        let http::Response { status, headers, body } = response;
        let body = match body {
            Content::Empty => Body::Empty,
            Content::Text(text) => Body::Text(text),
            Content::Bytes(bytes) => Body::Bytes(bytes),
            Content::File(file) => Body::File(super::read(&file)?),
        };
        Ok(Response { status, headers, body })
    }
}

/// Sends a request and waits for the answer.
pub fn send(request: Request) -> Result<Response> {
    super::call(
        "http.send",
        || request.recorded_args(),
        || Response::from_wit(http::send(&request.to_wit()).map_err(Failure::from_call)?),
    )
}

/// Sends a request without waiting for the answer. Once [`next_event`](crate::queue::next_event) has reported the end
/// of the call, [`take_response`] returns the answer.
pub fn start_send(request: Request) -> Result<CallId> {
    Ok(CallId(http::start_send(&request.to_wit()).map_err(Failure::from_call)?))
}

/// Returns the answer of a call that has succeeded, as [`next_event`](crate::queue::next_event) has reported. A second
/// call of this function with the same id fails.
pub fn take_response(call: CallId) -> Result<Response> {
    Response::from_wit(http::take_response(call.0).map_err(Failure::from_call)?)
}

/// Stores bytes, such as the body of an answer, as a file with the media type `mime`. Returns its file value,
/// `{ "kind": "file", "fileId": … }`.
pub fn keep(bytes: Vec<u8>, mime: &str) -> Result<Value> {
    let keep = || super::parse_answer(http::keep(&bytes, mime));
    super::call("http.keep", || json!({ "size": bytes.len(), "mime": mime }), keep)
}
