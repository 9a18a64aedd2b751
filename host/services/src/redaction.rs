//! Replaces secrets, which this module calls keys, in the answers of a peer, in all encodings that the search knows.
//!
//! A [`Redaction`] has the keys that were sent to one peer. All answers of the peer pass it before their bytes become
//! values: bodies, headers, JSON values, error texts, replies of models, results of tools, answers of registries. The
//! search finds a key in plain text, in another case, as UTF-16, and in these encodings, also nested:
//!
//! * escapes of JSON and of programming languages, percent-encoding, HTML entities and quoted-printable, up to
//!   [`search::MAX_LAYERS`] layers deep, mixed with plain characters;
//! * hexadecimal and base64 at every offset, in both alphabets, with line ends and with escaped characters;
//! * gzip and zlib.
//!
//! A key is also found if line breaks split it, or if its parts are the items of a JSON list.
//!
//! `[key]` replaces the encoded key, or the whole compressed stream. The time of a search is limited in proportion to
//! the number of bytes. If a search would take longer, `[key]` replaces all bytes that it searches. A search
//! decompresses at most 64 MiB. The host does not search the rest of the compressed data, and logs a warning.

mod escapes;
mod lists;
mod search;
mod stream_redactor;
#[cfg(test)]
mod tests;

use std::{ops::Range, sync::Arc};

use flowcell_contract::{Failure, Json};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};

use self::search::{Search, Spans, is_line_end};
pub(crate) use self::stream_redactor::{StreamRedactor, Unit};
use crate::{code, secret::Key};

/// The replacement of a key.
const REPLACEMENT: &str = "[key]";

/// Maximum bytes that are searched on the current thread. Larger inputs are searched on a thread for blocking work.
const MAX_INLINE_BYTES: usize = 16 * 1024;

/// The keys that a peer received, and that must not appear in the peer's answers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Redaction {
    keys: Arc<[Key]>,
}

impl FromIterator<Key> for Redaction {
    fn from_iter<I: IntoIterator<Item = Key>>(keys: I) -> Redaction {
        Redaction { keys: keys.into_iter().collect() }
    }
}

impl Redaction {
    /// Returns true if there is no key to redact.
    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Returns a text with keys redacted.
    pub(crate) fn text(&self, text: &str) -> String {
        self.redacted(text.as_bytes()).map_or_else(|| text.to_owned(), |bytes| readable(&bytes))
    }

    /// Returns bytes with keys redacted.
    pub(crate) fn bytes(&self, bytes: Vec<u8>) -> Vec<u8> {
        self.redacted(&bytes).unwrap_or(bytes)
    }

    /// Returns bytes with keys redacted. More than [`MAX_INLINE_BYTES`] bytes are searched on a thread for blocking
    /// work.
    pub(crate) async fn many_bytes(&self, bytes: Vec<u8>) -> Result<Vec<u8>, Failure> {
        let large = bytes.len() > MAX_INLINE_BYTES;
        self.run_search(large, move |redaction| redaction.bytes(bytes)).await
    }

    /// Returns bytes with keys redacted. Bytes that are JSON stay JSON: their values are searched after parsing, and
    /// the result is searched once more as text.
    pub(crate) async fn document(&self, bytes: Vec<u8>) -> Result<Vec<u8>, Failure> {
        let large = bytes.len() > MAX_INLINE_BYTES;
        self.run_search(large, move |redaction| {
            let json = std::str::from_utf8(&bytes).ok().and_then(|text| Json::parse(text).ok());
            match json.and_then(|json| redaction.redacted_json(&json)) {
                Some(changed) => redaction.bytes(changed.to_text().into_bytes()),
                None => redaction.bytes(bytes),
            }
        })
        .await
    }

    /// Returns a value with keys redacted in its texts, its numbers and the names of its members.
    pub(crate) fn json(&self, json: Json) -> Json {
        if self.is_empty() { json } else { self.redacted_json(&json).unwrap_or(json) }
    }

    /// Returns a value with keys redacted. The search runs on a thread for blocking work.
    pub(crate) async fn many_values(&self, json: Json) -> Result<Json, Failure> {
        self.run_search(true, move |redaction| redaction.json(json)).await
    }

    /// Returns a failure with keys redacted in its message and its details.
    pub(crate) fn failure(&self, failure: Failure) -> Failure {
        if self.is_empty() {
            return failure;
        }
        let details = failure.details.map(|details| self.json(details));
        Failure { message: self.text(&failure.message), details, ..failure }
    }

    /// Redacts keys in the values of headers. Removes headers whose name contains a key.
    pub(crate) fn headers(&self, headers: &mut HeaderMap) {
        if self.is_empty() {
            return;
        }
        let named: Vec<HeaderName> =
            headers.keys().filter(|name| self.redacted(name.as_str().as_bytes()).is_some()).cloned().collect();
        for name in named {
            headers.remove(name);
        }
        for value in headers.values_mut() {
            if let Some(redacted) = self.redacted(value.as_bytes()) {
                *value = HeaderValue::from_bytes(&redacted).unwrap_or_else(|_| HeaderValue::from_static(REPLACEMENT));
            }
        }
    }

    /// Runs the search `work`, on a thread for blocking work if `large` is true.
    async fn run_search<T: Send + 'static>(
        &self,
        large: bool,
        work: impl FnOnce(&Redaction) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        if self.is_empty() || !large {
            return Ok(work(self));
        }
        let redaction = self.clone();
        let lost =
            |error| Failure::retryable(code::PROTOCOL, format!("the search of the answer for keys failed: {error}"));
        tokio::task::spawn_blocking(move || work(&redaction)).await.map_err(lost)
    }

    /// Returns the value with keys redacted, or `None` if it contains no key.
    fn redacted_json(&self, json: &Json) -> Option<Json> {
        match json {
            Json::Null | Json::Bool(_) => None,
            Json::Number(number) => self.redacted(number.to_string().as_bytes()).map(|_| Json::from(REPLACEMENT)),
            Json::String(text) => self.redacted(text.as_bytes()).map(|bytes| Json::from(readable(&bytes))),
            Json::Array(items) => {
                let mut changed: Vec<_> = items.iter().map(|item| self.redacted_json(item)).collect();
                for index in self.in_parts(items) {
                    changed[index] = Some(Json::from(REPLACEMENT));
                }
                let any = changed.iter().any(Option::is_some);
                let items = items.iter().zip(changed);
                any.then(|| Json::array(items.map(|(item, changed)| changed.unwrap_or_else(|| item.clone()))))
            }
            Json::Object(members) => {
                let member = |(name, value): (&Arc<str>, &Json)| {
                    let named = self.redacted(name.as_bytes()).map(|bytes| Arc::from(readable(&bytes)));
                    (named, self.redacted_json(value))
                };
                let changed: Vec<_> = members.iter().map(member).collect();
                let any = changed.iter().any(|(name, value)| name.is_some() || value.is_some());
                let members = members.iter().zip(changed).map(|((name, value), (named, changed))| {
                    (named.unwrap_or_else(|| name.clone()), changed.unwrap_or_else(|| value.clone()))
                });
                any.then(|| Json::object(members))
            }
        }
    }

    fn search(&self, bytes: &[u8]) -> Spans {
        let keys: Vec<Vec<u8>> = self.keys.iter().filter_map(Key::searchable).map(in_one_line).collect();
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).filter(|key| !key.is_empty()).collect();
        if keys.is_empty() { Spans::new() } else { Search::new(&keys, bytes.len()).everywhere(bytes) }
    }

    /// Returns the bytes with keys redacted, or `None` if they contain no key.
    fn redacted(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let spans = self.search(bytes);
        (!spans.is_empty()).then(|| replaced(bytes, &spans))
    }
}

/// Returns a key without its line breaks.
fn in_one_line(key: &[u8]) -> Vec<u8> {
    key.iter().copied().filter(|character| !is_line_end(*character)).collect()
}

/// Replaces each span by [`REPLACEMENT`]. The spans are ordered and do not touch.
fn replaced(bytes: &[u8], spans: &[Range<usize>]) -> Vec<u8> {
    let mut kept = Vec::with_capacity(bytes.len());
    let mut from = 0;
    for span in spans {
        kept.extend_from_slice(&bytes[from..span.start]);
        kept.extend_from_slice(REPLACEMENT.as_bytes());
        from = span.end;
    }
    kept.extend_from_slice(&bytes[from..]);
    kept
}

fn readable(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
