//! Reads the input of `http.request` and builds the HTTP request.

use std::collections::BTreeMap;

use flowcell_sdk::{file, given, http, prelude::*};
use serde_json::Map;

use crate::query;

/// The input of `http.request`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Input {
    #[serde(default = "default_method")]
    method: String,
    url: String,
    #[serde(default)]
    query: Map<String, Value>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "given")]
    json: Option<Value>,
    text: Option<String>,
    file: Option<Value>,
    expect: Option<Vec<Value>>,
    timeout_ms: Option<u32>,
}

fn default_method() -> String {
    "GET".into()
}

/// A range of statuses, from the first to the last.
#[derive(Debug, PartialEq)]
pub(crate) struct StatusRange(u16, u16);

impl StatusRange {
    /// Returns true if the range contains the status.
    pub(crate) fn contains(&self, status: u16) -> bool {
        (self.0..=self.1).contains(&status)
    }

    fn read(item: &Value) -> Option<StatusRange> {
        if let Some(status) = item.as_u64() {
            let status = u16::try_from(status).ok().filter(|status| (100..600).contains(status))?;
            return Some(StatusRange(status, status));
        }
        let first = item.as_str()?.strip_suffix("xx")?.parse::<u16>().ok().filter(|first| (1..6).contains(first))?;
        Some(StatusRange(first * 100, first * 100 + 99))
    }
}

impl Input {
    /// Returns the statuses that count as success, by default 200 to 299.
    pub(crate) fn expected(&self) -> Result<Vec<StatusRange>> {
        let Some(items) = &self.expect else { return Ok(vec![StatusRange(200, 299)]) };
        let wrong = |item: &Value| {
            Failure::invalid_input(format!("input.expect has {item}; write a status, or a class such as \"2xx\""))
        };
        items.iter().map(|item| StatusRange::read(item).ok_or_else(|| wrong(item))).collect()
    }

    /// Builds the request.
    pub(crate) fn request(self) -> Result<http::Request> {
        let url = query::add(&self.url, &self.query)?;
        let request = http::Request {
            timeout_ms: self.timeout_ms,
            ..http::Request::new(&self.method.to_ascii_uppercase(), &url)
        };
        let says = self.headers.keys().any(|name| name.eq_ignore_ascii_case("content-type"));
        let request = self.headers.iter().fold(request, |request, (name, value)| request.header(name, value));
        self.json.iter().try_for_each(|json| file::refuse_file("json", json))?;
        match (self.json, self.text, self.file) {
            (None, None, None) => Ok(request),
            (Some(json), None, None) if says => {
                Ok(http::Request { body: http::Body::Text(json.to_string()), ..request })
            }
            (Some(json), None, None) => Ok(request.json(&json)),
            (None, Some(text), None) => Ok(http::Request { body: http::Body::Text(text), ..request }),
            (None, None, Some(file)) => Ok(http::Request { body: http::Body::File(file), ..request }),
            _ => Err(Failure::invalid_input("give only one body: `json`, `text` or `file`")),
        }
    }
}
