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
//! A space of a key is also found as the `+` of a form, and the other way round. A key is also found if line breaks split it, or if its parts are the items of a JSON list.
//!
//! `[key]` replaces the encoded key, or the whole compressed stream. The searches of an answer have a [`Budget`] of steps,
//! and each search has a limit in proportion to the number of its bytes. If a search would take longer, `[key]` replaces all
//! bytes that it searches. The searches of an answer decompress at most 64 MiB. The host does not search the rest of the
//! compressed data, and logs a warning. As many large searches run at a time as the machine has cores, and a search ends
//! when its caller gives up.

mod budget;
mod escapes;
mod lists;
mod search;
mod stream_redactor;
#[cfg(test)]
mod tests;

use std::{
    fmt,
    num::NonZero,
    ops::Range,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use flowcell_contract::{Failure, Json};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use tokio::{sync::Semaphore, task::spawn_blocking};

pub(crate) use self::stream_redactor::{StreamRedactor, Unit};
use self::{
    budget::Budget,
    search::{Search, Spans, is_line_end},
};
use crate::{code, secret::Key};

/// The replacement of a key.
const REPLACEMENT: &str = "[key]";

/// Maximum bytes that are searched on the current thread. Larger inputs are searched on a thread for blocking work.
pub(crate) const MAX_INLINE_BYTES: usize = 16 * 1024;

/// The permits of large searches in this process: one for each core. Those who wait get them in their order.
static SEARCHES: LazyLock<Semaphore> =
    LazyLock::new(|| Semaphore::new(thread::available_parallelism().map_or(1, NonZero::get)));

/// Ends a search when its caller no longer waits for it.
struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

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
        self.text_within(text, &Budget::default())
    }

    /// Returns bytes with keys redacted.
    #[cfg(test)]
    pub(crate) fn bytes(&self, bytes: Vec<u8>) -> Vec<u8> {
        self.bytes_within(bytes, &Budget::default())
    }

    /// Returns bytes with keys redacted. More than [`MAX_INLINE_BYTES`] bytes are searched on a thread for blocking
    /// work.
    pub(crate) async fn many_bytes(&self, bytes: Vec<u8>) -> Result<Vec<u8>, Failure> {
        let large = bytes.len() > MAX_INLINE_BYTES;
        self.run_search(large, move |redaction, budget| redaction.bytes_within(bytes, budget)).await
    }

    /// Returns bytes with keys redacted. Bytes that are JSON stay JSON: their values are searched after parsing, and
    /// the result is searched once more as text.
    pub(crate) async fn document(&self, bytes: Vec<u8>) -> Result<Vec<u8>, Failure> {
        let large = bytes.len() > MAX_INLINE_BYTES;
        self.run_search(large, move |redaction, budget| {
            let json = std::str::from_utf8(&bytes).ok().and_then(|text| Json::parse(text).ok());
            match json.and_then(|json| redaction.redacted_json(&json, budget)) {
                Some(changed) => redaction.bytes_within(changed.to_text().into_bytes(), budget),
                None => redaction.bytes_within(bytes, budget),
            }
        })
        .await
    }

    /// Returns a value with keys redacted in its texts, its numbers and the names of its members.
    pub(crate) fn json(&self, json: Json) -> Json {
        self.json_within(json, &Budget::default())
    }

    /// Returns a value with keys redacted. The search runs on a thread for blocking work.
    pub(crate) async fn many_values(&self, json: Json) -> Result<Json, Failure> {
        self.run_search(true, move |redaction, budget| redaction.json_within(json, budget)).await
    }

    /// Returns a failure with keys redacted in its message and its details.
    pub(crate) fn failure(&self, failure: Failure) -> Failure {
        if self.is_empty() {
            return failure;
        }
        let budget = Budget::default();
        let details = failure.details.map(|details| self.json_within(details, &budget));
        Failure { message: self.text_within(&failure.message, &budget), details, ..failure }
    }

    /// Redacts keys in the values of headers. Removes headers whose name contains a key.
    pub(crate) fn headers(&self, headers: &mut HeaderMap) {
        if self.is_empty() {
            return;
        }
        let budget = Budget::default();
        let has_key = |name: &&HeaderName| self.redacted(name.as_str().as_bytes(), &budget).is_some();
        let named: Vec<HeaderName> = headers.keys().filter(has_key).cloned().collect();
        for name in named {
            headers.remove(name);
        }
        for value in headers.values_mut() {
            if let Some(redacted) = self.redacted(value.as_bytes(), &budget) {
                *value = HeaderValue::from_bytes(&redacted).unwrap_or_else(|_| HeaderValue::from_static(REPLACEMENT));
            }
        }
    }

    fn text_within(&self, text: &str, budget: &Budget) -> String {
        self.redacted(text.as_bytes(), budget).map_or_else(|| text.to_owned(), |bytes| readable(&bytes))
    }

    fn bytes_within(&self, bytes: Vec<u8>, budget: &Budget) -> Vec<u8> {
        self.redacted(&bytes, budget).unwrap_or(bytes)
    }

    fn json_within(&self, json: Json, budget: &Budget) -> Json {
        if self.is_empty() { json } else { self.redacted_json(&json, budget).unwrap_or(json) }
    }

    /// Runs the search `work`. If `large` is true, it waits for a permit, and runs on a thread for blocking work. If the
    /// caller gives up, the search ends soon.
    async fn run_search<T: Send + 'static>(
        &self,
        large: bool,
        work: impl FnOnce(&Redaction, &Budget) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        if self.is_empty() || !large {
            return Ok(work(self, &Budget::default()));
        }
        let permit = SEARCHES.acquire().await.map_err(lost)?;
        let (redaction, cancelled) = (self.clone(), Arc::<AtomicBool>::default());
        let _cancel = CancelOnDrop(cancelled.clone());
        let search = spawn_blocking(move || {
            // A search whose caller has given up keeps its permit until it ends.
            let _permit = permit;
            work(&redaction, &Budget::new(cancelled))
        });
        search.await.map_err(lost)
    }

    /// Returns the value with keys redacted, or `None` if it contains no key.
    fn redacted_json(&self, json: &Json, budget: &Budget) -> Option<Json> {
        match json {
            Json::Null | Json::Bool(_) => None,
            Json::Number(number) => {
                self.redacted(number.to_string().as_bytes(), budget).map(|_| Json::from(REPLACEMENT))
            }
            Json::String(text) => self.redacted(text.as_bytes(), budget).map(|bytes| Json::from(readable(&bytes))),
            Json::Array(items) => {
                let mut changed: Vec<_> = items.iter().map(|item| self.redacted_json(item, budget)).collect();
                for index in self.in_parts(items, budget) {
                    changed[index] = Some(Json::from(REPLACEMENT));
                }
                let any = changed.iter().any(Option::is_some);
                let items = items.iter().zip(changed);
                any.then(|| Json::array(items.map(|(item, changed)| changed.unwrap_or_else(|| item.clone()))))
            }
            Json::Object(members) => {
                let member = |(name, value): (&Arc<str>, &Json)| {
                    let named = self.redacted(name.as_bytes(), budget).map(|bytes| Arc::from(readable(&bytes)));
                    (named, self.redacted_json(value, budget))
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

    fn search(&self, bytes: &[u8], budget: &Budget) -> Spans {
        let keys: Vec<Vec<u8>> = self.keys.iter().filter_map(Key::searchable).map(in_one_line).collect();
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).filter(|key| !key.is_empty()).collect();
        if keys.is_empty() {
            return Spans::new();
        }
        let search = Search::new(&keys, bytes.len(), budget);
        search.everywhere(bytes)
    }

    /// Returns the bytes with keys redacted, or `None` if they contain no key.
    fn redacted(&self, bytes: &[u8], budget: &Budget) -> Option<Vec<u8>> {
        let spans = self.search(bytes, budget);
        (!spans.is_empty()).then(|| replaced(bytes, &spans))
    }
}

/// Returns the failure for a search that did not end.
fn lost(error: impl fmt::Display) -> Failure {
    Failure::retryable(code::PROTOCOL, format!("the search of the answer for keys failed: {error}"))
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
