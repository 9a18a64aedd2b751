//! Converts a response to an output or to a failure.

use std::time::SystemTime;

use flowcell_expr::{Json, limits::JSON_VALUES};
use flowcell_sdk::{
    http::{self, Body, Response},
    prelude::*,
};
use serde_json::Map;

/// Statuses after which another attempt may succeed.
const RETRYABLE: [u16; 7] = [408, 425, 429, 500, 502, 503, 504];
/// Maximum size in bytes of a body that a failure shows completely.
const MAX_SHOWN_BYTES: usize = 4 << 10;

/// Maximum number of JSON values in a body. It is lower than the limit of an output, because the output has other
/// members too.
const MAX_BODY_VALUES: usize = JSON_VALUES - 1_000;

/// A response, with its headers by name and its body in the form of the output.
pub(crate) struct Answer {
    /// The status.
    pub(crate) status: u16,
    headers: Map<String, Value>,
    body: Source,
}

impl Answer {
    /// Reads a response. Parses the body if the content type is JSON.
    pub(crate) fn read(response: Response) -> Result<Answer> {
        let headers = headers_by_name(&response.headers);
        let mime = headers.get("content-type").and_then(Value::as_str).unwrap_or_default();
        let says_json = is_json(mime);
        let body = match response.body {
            Body::Empty => Source::Value(Value::Null),
            Body::Text(text) if says_json => json_value(text.into_bytes(), mime)?,
            Body::Bytes(bytes) if says_json => json_value(bytes, mime)?,
            Body::Text(text) => Source::Value(Value::String(text)),
            Body::Bytes(bytes) => {
                let mime = if mime.is_empty() { "application/octet-stream" } else { mime };
                Source::Value(http::keep(bytes, mime)?)
            }
            Body::File(file) => Source::Value(file),
        };
        Ok(Answer { status: response.status, headers, body })
    }

    /// Returns the output of the node.
    pub(crate) fn output(self) -> Result<Output> {
        let output = Output::object().with("status", Source::value(self.status)?);
        Ok(output.with("headers", Source::value(self.headers)?).with("body", self.body))
    }

    /// Returns the failure `http_status` for a status that the node does not expect. It is retryable if the status is
    /// in [`RETRYABLE`].
    pub(crate) fn failure(self, now: SystemTime) -> Failure {
        let after =
            self.headers.get("retry-after").and_then(Value::as_str).and_then(|after| retry_after_ms(after, now));
        let failure = Failure::new("http_status", format!("the answer has the status {}", self.status));
        let failure = failure.details(json!({ "status": self.status, "body": shown(self.body) }));
        match (RETRYABLE.contains(&self.status), after) {
            (true, Some(ms)) => failure.retry_after_ms(ms),
            (true, None) => failure.retryable(),
            (false, _) => failure,
        }
    }
}

/// Returns true if the media type is JSON or based on JSON.
fn is_json(mime: &str) -> bool {
    let essence = mime.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence == "application/json" || essence.ends_with("+json")
}

fn headers_by_name(headers: &[(String, String)]) -> Map<String, Value> {
    let mut named = Map::new();
    for (name, value) in headers {
        match named.get_mut(name) {
            Some(Value::String(before)) => *before = format!("{before}, {value}"),
            _ => drop(named.insert(name.clone(), Value::String(value.clone()))),
        }
    }
    named
}

/// Returns a JSON body in the form of the output. The body stays text, because a tree of values would take many times
/// its memory. A body with more values than an output may have becomes a file value.
fn json_value(bytes: Vec<u8>, mime: &str) -> Result<Source> {
    if Json::has_more_values(&bytes, MAX_BODY_VALUES) {
        return Ok(Source::Value(http::keep(bytes, mime)?));
    }
    json_text(&bytes)
}

fn json_text(bytes: &[u8]) -> Result<Source> {
    let wrong = |error: String| {
        Failure::new("invalid_answer", format!("the answer has the media type of JSON but is not JSON: {error}"))
    };
    let text = std::str::from_utf8(bytes).map_err(|error| wrong(error.to_string()))?;
    let compact = Json::compact(text, usize::MAX).map_err(|error| wrong(error.to_string()))?;
    Ok(Source::Text(compact.unwrap_or_default()))
}

/// Returns a body in the form that a failure shows: completely, or only the first [`MAX_SHOWN_BYTES`] bytes of its text
/// if it is longer.
fn shown(body: Source) -> Value {
    let text = match &body {
        Source::Value(Value::String(text)) | Source::Text(text) => text.clone(),
        Source::Value(other) => other.to_string(),
        Source::Input(_) | Source::Woken(_) => String::new(),
    };
    if text.len() <= MAX_SHOWN_BYTES {
        return match body {
            Source::Value(value) => value,
            _ => serde_json::from_str(&text).unwrap_or_default(),
        };
    }
    let end = (0..=MAX_SHOWN_BYTES).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    Value::String(format!("{}…", &text[..end]))
}

/// Parses the value of the header `retry-after`, in seconds or as a date. Returns the milliseconds from `now`; `None`
/// if the value has neither form.
pub(crate) fn retry_after_ms(after: &str, now: SystemTime) -> Option<u32> {
    let ms = match after.trim().parse::<u64>() {
        Ok(seconds) => u128::from(seconds) * 1000,
        Err(_) => httpdate::parse_http_date(after.trim()).ok()?.duration_since(now).unwrap_or_default().as_millis(),
    };
    Some(u32::try_from(ms).unwrap_or(u32::MAX))
}
