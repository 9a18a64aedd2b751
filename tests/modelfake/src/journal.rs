//! The requests that the server received, and the usage that a real provider would bill for them.

use serde::Serialize;
use serde_json::{Value, json};

/// The headers that contain secrets.
const SECRET: [&str; 4] = ["authorization", "x-api-key", "api-key", "cookie"];

/// One received request.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Recorded {
    /// The path with its query.
    pub path: String,
    /// The header names in lower case, with their values. Secret values are `[redacted]`.
    pub headers: Vec<(String, String)>,
    /// The body; `null` if it is not JSON.
    pub body: Value,
}

impl Recorded {
    pub(crate) fn new(path: &str, headers: &hyper::HeaderMap, body: Value) -> Recorded {
        let shown = headers.iter().map(|(name, value)| {
            let secret = SECRET.contains(&name.as_str());
            let value =
                if secret { "[redacted]".into() } else { String::from_utf8_lossy(value.as_bytes()).into_owned() };
            (name.as_str().to_owned(), value)
        });
        Recorded { path: path.to_owned(), headers: shown.collect(), body }
    }

    /// Returns the value of the first header with this name, or `None`.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }
}

/// The usage that a real provider would bill. A turn counts as soon as the server has begun to answer it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Billing {
    /// The number of turns that the server has begun to answer.
    pub turns: u64,
    /// The number of input tokens, including cached ones.
    pub input: u64,
    /// The number of output tokens.
    pub output: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Journal {
    pub(crate) requests: Vec<Recorded>,
    pub(crate) billing: Billing,
    pub(crate) failures: Vec<String>,
}

impl Journal {
    pub(crate) fn to_json(&self) -> Value {
        json!({ "requests": self.requests, "billing": self.billing, "failures": self.failures })
    }
}
