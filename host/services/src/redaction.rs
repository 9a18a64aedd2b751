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
//! `[key]` replaces the encoded key, or the whole compressed stream. The searches of a call, or of a stream over its life,
//! share one [`SearchBudget`] of steps and of unpacked bytes, and the search of each text has a limit in proportion to its
//! length. A text whose search would take longer, or would unpack more, is withheld: [`WITHHELD`] replaces it.
//!
//! The peer chooses how long a search takes. So a search on the thread of its caller takes few steps and unpacks nothing. If
//! it needs more, it starts again on a thread for blocking work, with one of the permits that tenants share. It ends when
//! its caller gives up.

mod budget;
mod escapes;
mod lists;
mod permits;
mod search;
mod stream_redactor;
#[cfg(test)]
mod tests;

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use flowcell_contract::{Failure, Json};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use tokio::task::{spawn_blocking, yield_now};

pub(crate) use self::{
    budget::SearchBudget,
    stream_redactor::{StreamRedactor, Unit},
};
use self::{
    budget::Work,
    search::{Search, Spans, is_line_end},
};
use crate::secret::Key;

/// The replacement of a key.
const REPLACEMENT: &str = "[key]";

/// The replacement of a text that takes too long to search.
pub(crate) const WITHHELD: &str = "[withheld: it takes too long to search this text for secrets]";

/// The header that says that headers are missing, because it takes too long to search their names.
const WITHHELD_HEADER: HeaderName = HeaderName::from_static("flowcell-withheld");

/// Maximum bytes that are searched, signed or extended on the thread of their caller.
pub(crate) const MAX_INLINE_BYTES: usize = 16 * 1024;

/// Bytes that each value of a JSON text adds to its size.
const BYTES_PER_VALUE: usize = 16;

/// Ends a search when its caller no longer waits for it.
struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The keys that a peer received, and that must not appear in the peer's answers. Clones share the budget.
#[derive(Clone, Debug, Default)]
pub(crate) struct Redaction {
    keys: Arc<[Key]>,
    budget: SearchBudget,
}

impl Redaction {
    /// Creates the redaction of these keys, whose searches count against `budget`.
    pub(crate) fn new(keys: impl IntoIterator<Item = Key>, budget: SearchBudget) -> Redaction {
        Redaction { keys: keys.into_iter().collect(), budget }
    }

    /// Returns the redaction of the same keys for another call or stream.
    pub(crate) fn with_budget(&self, budget: SearchBudget) -> Redaction {
        Redaction { keys: self.keys.clone(), budget }
    }

    /// Returns true if there is no key to redact.
    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Returns true if a text of this call or stream was withheld.
    pub(crate) fn has_withheld(&self) -> bool {
        self.budget.has_withheld()
    }

    /// Returns a text with keys redacted.
    pub(crate) async fn text(&self, text: &str) -> String {
        let text = text.to_owned();
        let is_small = text.len() <= MAX_INLINE_BYTES;
        let work = |redaction: &Redaction, text: &String, work: &Work<'_>| redaction.redacted_text(text, work);
        self.redact(text, is_small, work).await.unwrap_or_else(|| WITHHELD.to_owned())
    }

    /// Returns a text with keys redacted, without a wait. Withholds it if its search takes more than a few steps. This is for
    /// texts that people only read, and whose order counts.
    pub(crate) fn text_now(&self, text: &str) -> String {
        if self.is_empty() {
            return text.to_owned();
        }
        let work = Some(text).filter(|text| text.len() <= MAX_INLINE_BYTES).and_then(|_| Work::inline(&self.budget));
        let searched = work.and_then(|work| {
            let changed = self.redacted_text(text, &work);
            (!work.is_interrupted()).then(|| changed.unwrap_or_else(|| text.to_owned()))
        });
        searched.unwrap_or_else(|| {
            self.budget.note_withheld();
            WITHHELD.to_owned()
        })
    }

    /// Returns bytes with keys redacted.
    pub(crate) async fn bytes(&self, bytes: Vec<u8>) -> Vec<u8> {
        let is_small = bytes.len() <= MAX_INLINE_BYTES;
        let work = |redaction: &Redaction, bytes: &Vec<u8>, work: &Work<'_>| redaction.redacted(bytes, work);
        self.redact(bytes, is_small, work).await.unwrap_or_else(|| WITHHELD.into())
    }

    /// Returns bytes with keys redacted. Bytes that are JSON stay JSON: their values are searched after parsing, and
    /// the result is searched once more as text.
    pub(crate) async fn document(&self, bytes: Vec<u8>) -> Vec<u8> {
        let is_small = bytes.len() <= MAX_INLINE_BYTES;
        let work = |redaction: &Redaction, bytes: &Vec<u8>, work: &Work<'_>| {
            let json = std::str::from_utf8(bytes).ok().and_then(|text| Json::parse(text).ok());
            match json.and_then(|json| redaction.redacted_json(&json, work)) {
                Some(changed) => {
                    let changed = changed.to_text().into_bytes();
                    Some(redaction.redacted(&changed, work).unwrap_or(changed))
                }
                None => redaction.redacted(bytes, work),
            }
        };
        self.redact(bytes, is_small, work).await.unwrap_or_else(|| WITHHELD.into())
    }

    /// Returns a value with keys redacted in its texts, its numbers and the names of its members.
    pub(crate) async fn json(&self, json: Json) -> Json {
        let is_small = size(&json, MAX_INLINE_BYTES).is_some();
        let work = |redaction: &Redaction, json: &Json, work: &Work<'_>| redaction.redacted_json(json, work);
        self.redact(json, is_small, work).await.unwrap_or_else(|| Json::from(WITHHELD))
    }

    /// Returns a failure with keys redacted in its message and its details.
    pub(crate) async fn failure(&self, failure: Failure) -> Failure {
        let left = MAX_INLINE_BYTES.checked_sub(failure.message.len());
        let is_small = left.is_some_and(|left| failure.details.as_ref().is_none_or(|json| size(json, left).is_some()));
        let withheld = Failure { message: WITHHELD.to_owned(), details: None, ..failure.clone() };
        let work = |redaction: &Redaction, failure: &Failure, work: &Work<'_>| {
            let message = redaction.redacted_text(&failure.message, work);
            let details = failure.details.as_ref().and_then(|details| redaction.redacted_json(details, work));
            (message.is_some() || details.is_some()).then(|| Failure {
                message: message.unwrap_or_else(|| failure.message.clone()),
                details: details.or_else(|| failure.details.clone()),
                ..failure.clone()
            })
        };
        self.redact(failure, is_small, work).await.unwrap_or(withheld)
    }

    /// Redacts keys in the values of headers. Removes headers whose name contains a key. Removes those whose names take too
    /// long to search, and adds a header that says so.
    pub(crate) async fn headers(&self, headers: &mut HeaderMap) {
        let all = std::mem::take(headers);
        let bytes: usize = all.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
        let work = |redaction: &Redaction, headers: &HeaderMap, work: &Work<'_>| {
            let mut changed = HeaderMap::new();
            for name in headers.keys() {
                match redaction.redacted(name.as_str().as_bytes(), work) {
                    Some(told) if told == WITHHELD.as_bytes() => {
                        changed.insert(WITHHELD_HEADER, HeaderValue::from_static(WITHHELD));
                    }
                    Some(_) => {}
                    None => headers.get_all(name).iter().for_each(|value| {
                        changed.append(name.clone(), redaction.redacted_header(value, work));
                    }),
                }
            }
            Some(changed)
        };
        let withheld = || HeaderMap::from_iter([(WITHHELD_HEADER, HeaderValue::from_static(WITHHELD))]);
        *headers = self.redact(all, bytes <= MAX_INLINE_BYTES, work).await.unwrap_or_else(withheld);
    }

    /// Returns the changed input, or the input if `work` returns `None`. Returns `None` if the search has failed.
    async fn redact<I: Send + 'static>(
        &self,
        input: I,
        is_small: bool,
        work: fn(&Redaction, &I, &Work<'_>) -> Option<I>,
    ) -> Option<I> {
        if self.is_empty() {
            return Some(input);
        }
        let (input, changed) = self.search_with(input, is_small, work).await?;
        Some(changed.unwrap_or(input))
    }

    /// Runs the search `work`, and returns its input and its result. A small input is searched on this thread, in few steps.
    /// If it needs more, and for others, the search waits for a permit and runs on a thread for blocking work. If the caller
    /// gives up, it ends soon. Returns `None` if the search has failed.
    async fn search_with<I: Send + 'static, T: Send + 'static>(
        &self,
        input: I,
        is_small: bool,
        work: fn(&Redaction, &I, &Work<'_>) -> T,
    ) -> Option<(I, T)> {
        if let Some(result) = self.search_inline(&input, is_small, work) {
            if self.budget.must_yield() {
                yield_now().await;
            }
            return Some((input, result));
        }
        let permit = self.budget.permit().await;
        let (redaction, cancelled) = (self.clone(), Arc::<AtomicBool>::default());
        let _cancel = CancelOnDrop(cancelled.clone());
        let search = spawn_blocking(move || {
            // A search whose caller has given up keeps its permit until it ends.
            let _permit = permit;
            let result = work(&redaction, &input, &Work::on_thread(&redaction.budget, &cancelled));
            (input, result)
        });
        let searched = search.await.ok();
        if searched.is_none() {
            self.budget.note_withheld();
        }
        searched
    }

    /// Runs a search on this thread. Returns `None` if it is not small, or needs more than a few steps.
    fn search_inline<I, T>(&self, input: &I, is_small: bool, work: fn(&Redaction, &I, &Work<'_>) -> T) -> Option<T> {
        let inline = Work::inline(&self.budget).filter(|_| is_small)?;
        let result = work(self, input, &inline);
        (!inline.is_interrupted()).then_some(result)
    }

    /// Returns the value with keys redacted, or `None` if it contains no key.
    fn redacted_json(&self, json: &Json, work: &Work<'_>) -> Option<Json> {
        if work.is_interrupted() {
            return None;
        }
        match json {
            Json::Null | Json::Bool(_) => None,
            Json::Number(number) => {
                let told = self.redacted(number.to_string().as_bytes(), work)?;
                Some(Json::from(if told == WITHHELD.as_bytes() { WITHHELD } else { REPLACEMENT }))
            }
            Json::String(text) => self.redacted_text(text, work).map(Json::from),
            Json::Array(items) => {
                let mut changed: Vec<_> = items.iter().map(|item| self.redacted_json(item, work)).collect();
                let (parts, replacement) = self.in_parts(items, work);
                for index in parts {
                    changed[index] = Some(Json::from(replacement));
                }
                let any = changed.iter().any(Option::is_some);
                let items = items.iter().zip(changed);
                any.then(|| Json::array(items.map(|(item, changed)| changed.unwrap_or_else(|| item.clone()))))
            }
            Json::Object(members) => {
                let member = |(name, value): (&Arc<str>, &Json)| {
                    let named = self.redacted_text(name, work).map(Arc::from);
                    (named, self.redacted_json(value, work))
                };
                let changed: Vec<(Option<Arc<str>>, _)> = members.iter().map(member).collect();
                let any = changed.iter().any(|(name, value)| name.is_some() || value.is_some());
                let members = members.iter().zip(changed).map(|((name, value), (named, changed))| {
                    (named.unwrap_or_else(|| name.clone()), changed.unwrap_or_else(|| value.clone()))
                });
                any.then(|| Json::object(members))
            }
        }
    }

    fn redacted_text(&self, text: &str, work: &Work<'_>) -> Option<String> {
        self.redacted(text.as_bytes(), work).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    fn redacted_header(&self, value: &HeaderValue, work: &Work<'_>) -> HeaderValue {
        let Some(redacted) = self.redacted(value.as_bytes(), work) else { return value.clone() };
        HeaderValue::from_bytes(&redacted).unwrap_or_else(|_| HeaderValue::from_static(REPLACEMENT))
    }

    /// Returns the bytes with keys redacted, or `None` if they contain no key. [`WITHHELD`] replaces bytes that take too
    /// long to search.
    fn redacted(&self, bytes: &[u8], work: &Work<'_>) -> Option<Vec<u8>> {
        match self.search(bytes, work) {
            Some(spans) => (!spans.is_empty()).then(|| replaced(bytes, &spans)),
            None => {
                work.note_withheld();
                Some(WITHHELD.into())
            }
        }
    }

    /// Returns the places of keys, or `None` if the search did not end.
    fn search(&self, bytes: &[u8], work: &Work<'_>) -> Option<Spans> {
        let keys: Vec<Vec<u8>> = self.keys.iter().filter_map(Key::searchable).map(in_one_line).collect();
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).filter(|key| !key.is_empty()).collect();
        if keys.is_empty() || bytes.is_empty() {
            return Some(Spans::new());
        }
        Search::new(&keys, bytes.len(), work).everywhere(bytes)
    }
}

/// Returns the approximate size of a value in bytes, or `None` if it is more than `most`.
fn size(json: &Json, most: usize) -> Option<usize> {
    let left = most.checked_sub(BYTES_PER_VALUE)?;
    let add = |sum: usize, json: &Json| Some(sum + size(json, left.checked_sub(sum)?)?);
    let inner = match json {
        Json::Null | Json::Bool(_) | Json::Number(_) => 0,
        Json::String(text) => text.len(),
        Json::Array(items) => items.iter().try_fold(0, add)?,
        Json::Object(members) => members.iter().try_fold(0, |sum, (name, value)| add(sum + name.len(), value))?,
    };
    (inner <= left).then_some(inner + BYTES_PER_VALUE)
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
