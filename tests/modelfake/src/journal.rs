//! What came, and what it would have cost.

use serde::Serialize;
use serde_json::{Value, json};

/// Headers with secrets.
const SECRET: [&str; 4] = ["authorization", "x-api-key", "api-key", "cookie"];

/// A request.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Recorded {
    /// Path and query.
    pub path: String,
    /// Names in lower case, and values; those of secrets are `[redacted]`.
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

    /// The first header of a name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }
}

/// What a real provider would have billed: every turn that it began to answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Billing {
    /// Turns that were answered.
    pub turns: u64,
    /// Tokens that were read.
    pub input: u64,
    /// Tokens that were written.
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
