//! Answers that a node reads in chunks.
//!
//! `open-stream` sends a request and returns the head of the answer, and the id of a stream. Each `read-stream` waits for
//! the next bytes and returns them as one chunk. The host reads from the connection only while a node waits for a chunk, so
//! a node that is slow slows the server down. A stream is in the memory of one process: after a crash, its id means
//! nothing, and the next read fails with `stream_interrupted`.
//!
//! ```json
//! { "offset": 0, "size": 5, "sha256": "…", "text": "hello" }
//! { "offset": 5, "end": true }
//! ```
//!
//! A chunk of at most 16 KiB is `text`, or `hex` if it is not UTF-8. A larger one is a `file`.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
    time::Duration,
};

use bytes::Bytes;
use flowcell_contract::{
    AttemptEnd, BINARY, Caller, EndRegistration, Failure, Json, RunId, Tenant, Value, code as codes,
};
use futures_util::FutureExt;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio::{
    sync::Mutex as AsyncMutex,
    task::AbortHandle,
    time::{Instant, sleep_until, timeout_at},
};

use super::{Limits, limits::BodyLimit};
use crate::{
    client::Body,
    code,
    files::AsyncBlobs,
    redaction::{Redaction, SearchBudget, StreamRedactor, Unit},
};

/// Maximum bytes of a chunk that is recorded as text, and not as a file.
const MAX_INLINE_BYTES: usize = 16 << 10;
/// Maximum bytes that are searched for secrets at a time.
const SEARCHED_BYTES: usize = 16 << 10;
/// Maximum bytes of the id of a stream.
const MAX_ID_BYTES: usize = 64;
/// Random bytes of an id.
const ID_BYTES: usize = 16;

/// The open streams of a process. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Streams(Arc<Mutex<Table>>);

#[derive(Default)]
struct Table {
    streams: HashMap<Arc<str>, Arc<Stream>>,
    /// The number of open streams of each tenant.
    open: HashMap<Tenant, usize>,
}

/// One of the streams that a tenant may have open.
pub(super) struct Place {
    table: Weak<Mutex<Table>>,
    tenant: Tenant,
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(table) = self.table.upgrade() else { return };
        let mut table = table.lock();
        if let Some(open) = table.open.get_mut(&self.tenant) {
            *open -= 1;
            if *open == 0 {
                table.open.remove(&self.tenant);
            }
        }
    }
}

/// How long a stream may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// The longest time without a byte while the node waits for a chunk.
    pub(super) idle: Duration,
    /// The longest time from the head of the answer to its end.
    pub(super) total: Duration,
}

/// The arguments of `read-stream` and `close-stream`.
pub(super) struct Reading {
    pub(super) stream: Arc<str>,
    /// The number of bytes that the node has received.
    pub(super) offset: u64,
    /// True if the request of the stream must not be repeated.
    pub(super) once: bool,
}

/// The properties of a stream that is opened.
pub(super) struct Opening<'a> {
    pub(super) caller: &'a Caller,
    pub(super) limits: &'a Limits,
    pub(super) times: Times,
    pub(super) once: bool,
    pub(super) redaction: &'a Redaction,
    pub(super) attempt_end: &'a AttemptEnd,
}

struct Stream {
    tenant: Tenant,
    run: RunId,
    state: AsyncMutex<State>,
}

enum State {
    Open(Box<Reader>),
    /// The connection is closed, for this reason. The registration keeps the stream until its attempt ends.
    Over {
        failure: Failure,
        _registration: EndRegistration,
    },
}

/// The unread part of an answer.
struct Reader {
    body: Body,
    times: Times,
    deadline: Instant,
    limits: Limits,
    once: bool,
    secrets: Option<SecretFilter>,
    /// Bytes that have arrived and were not read: at most a chunk, and one piece of the connection.
    ready: Vec<u8>,
    /// The number of bytes that the node has received.
    offset: u64,
    /// The number of bytes that have arrived.
    received: u64,
    chunks: u32,
    has_ended: bool,
    /// The reason that nothing follows the bytes that are ready.
    failed: Option<Failure>,
    /// Keeps the action that removes the stream when its attempt ends.
    registration: EndRegistration,
    /// Closes the connection at the deadline.
    timer: Option<AbortHandle>,
    _place: Place,
}

impl Drop for Reader {
    fn drop(&mut self) {
        if let Some(timer) = &self.timer {
            timer.abort();
        }
    }
}

impl Reading {
    /// Parses the arguments of a call. Fails with `invalid_input`.
    pub(super) fn read(args: &Value) -> Result<Reading, Failure> {
        let wrong = || {
            let message = "the arguments must be { \"stream\": text, \"offset\": number, \"once\": true or missing }";
            Failure::new(codes::INVALID_INPUT, message)
        };
        let args = args.json();
        let members = args.as_object().ok_or_else(wrong)?;
        if members.keys().any(|key| !["stream", "offset", "once"].contains(&key.as_ref())) {
            return Err(wrong());
        }
        let Some(Json::String(stream)) = args.get("stream") else { return Err(wrong()) };
        if stream.len() > MAX_ID_BYTES {
            return Err(wrong());
        }
        let offset = args.get("offset").and_then(Json::as_u64).ok_or_else(wrong)?;
        let once = args.get("once").is_some_and(|once| *once == Json::Bool(true));
        Ok(Reading { stream: stream.clone(), offset, once })
    }

    /// Returns a description for people.
    pub(super) fn about(&self) -> Json {
        Json::object([("stream", Json::from(self.stream.clone())), ("offset", Json::from(self.offset))])
    }

    /// Returns the failure of a read whose connection is gone.
    fn interrupted(&self, why: &str) -> Failure {
        interrupted(self.offset, self.once, why)
    }
}

fn interrupted(received: u64, once: bool, why: &str) -> Failure {
    let advice = if once { "; its request may have taken effect, and is not sent again" } else { "" };
    let message = format!("the stream was interrupted after {received} bytes: {why}{advice}");
    let details = Json::object([("received", Json::from(received))]);
    let failure = Failure { details: Some(details), ..Failure::new(code::STREAM_INTERRUPTED, message) };
    Failure { retryable: !once, ..failure }
}

impl Streams {
    /// Takes the place of one more stream of a tenant. Fails with `limit_exceeded`.
    pub(super) fn reserve(&self, tenant: &Tenant, most: usize) -> Result<Place, Failure> {
        let mut table = self.0.lock();
        let open = table.open.entry(tenant.clone()).or_default();
        if *open >= most {
            let message = format!("the tenant has {most} open streams, and a process may have no more of them");
            return Err(Failure::retryable(codes::LIMIT_EXCEEDED, message));
        }
        *open += 1;
        Ok(Place { table: Arc::downgrade(&self.0), tenant: tenant.clone() })
    }

    /// Keeps the body of an answer as a stream, and returns its id.
    pub(super) fn open(&self, body: Body, place: Place, opening: &Opening<'_>) -> Arc<str> {
        let id: Arc<str> = hex::encode(rand::random::<[u8; ID_BYTES]>()).into();
        let deadline = Instant::now() + opening.times.total;
        let table = Arc::downgrade(&self.0);
        let own = id.clone();
        let registration = opening.attempt_end.on_end(move || {
            if let Some(table) = table.upgrade() {
                let removed = table.lock().streams.remove(&own);
                drop(removed);
            }
        });
        let reader = Reader {
            body,
            times: opening.times,
            deadline,
            limits: opening.limits.clone(),
            once: opening.once,
            secrets: (!opening.redaction.is_empty()).then(|| {
                SecretFilter::new(opening.redaction.with_budget(SearchBudget::for_stream(&opening.caller.tenant)))
            }),
            ready: Vec::new(),
            offset: 0,
            received: 0,
            chunks: 0,
            has_ended: false,
            failed: None,
            registration,
            timer: None,
            _place: place,
        };
        let stream = Arc::new(Stream {
            tenant: opening.caller.tenant.clone(),
            run: opening.caller.run_id.clone(),
            state: AsyncMutex::new(State::Open(Box::new(reader))),
        });
        let timer = tokio::spawn(close_at(Arc::downgrade(&stream), deadline));
        if let Ok(mut state) = stream.state.try_lock()
            && let State::Open(reader) = &mut *state
        {
            reader.timer = Some(timer.abort_handle());
        }
        self.0.lock().streams.insert(id.clone(), stream);
        id
    }

    /// Waits for the next chunk of a stream, and returns the reply of `read-stream`. After the end and after a failure the
    /// connection is closed.
    pub(super) async fn read(&self, caller: &Caller, reading: &Reading, files: &AsyncBlobs) -> Result<Value, Failure> {
        let Some(stream) = self.find(caller, reading) else {
            return Err(reading.interrupted("its connection ended with the attempt or the process that had opened it"));
        };
        let mut state = stream.state.lock().await;
        let chunk = match &mut *state {
            State::Over { failure, .. } => Err(failure.clone()),
            State::Open(reader) if reader.offset != reading.offset => {
                Err(reading.interrupted("a chunk was read and did not reach the node"))
            }
            State::Open(reader) => reader.next().await,
        };
        let chunk = match chunk {
            Ok(Some(chunk)) => chunk,
            Ok(None) => {
                self.remove(reading);
                let end = [("offset", Json::from(reading.offset)), ("end", Json::from(true))];
                return Ok(Value::from(Json::object(end)));
            }
            Err(failure) => {
                self.remove(reading);
                return Err(failure);
            }
        };
        recorded(chunk, reading.offset, &caller.tenant, files).await
    }

    /// Closes a stream. Does nothing if it is closed.
    pub(super) fn close(&self, caller: &Caller, reading: &Reading) {
        if self.find(caller, reading).is_some() {
            self.remove(reading);
        }
    }

    /// Returns a stream of the caller's run.
    fn find(&self, caller: &Caller, reading: &Reading) -> Option<Arc<Stream>> {
        let stream = self.0.lock().streams.get(&reading.stream)?.clone();
        (stream.tenant == caller.tenant && stream.run == caller.run_id).then_some(stream)
    }

    fn remove(&self, reading: &Reading) {
        // The stream is dropped when the table is free again, because its place locks the table.
        let removed = self.0.lock().streams.remove(&reading.stream);
        drop(removed);
    }
}

/// Closes the connection of a stream at its deadline, unless a read is in progress: a read keeps to the deadline itself.
async fn close_at(stream: Weak<Stream>, deadline: Instant) {
    sleep_until(deadline).await;
    let Some(stream) = stream.upgrade() else { return };
    let Ok(mut state) = stream.state.try_lock() else { return };
    if let State::Open(reader) = &mut *state {
        // This task must not end itself.
        reader.timer = None;
        let (failure, _registration) = (reader.late(), std::mem::take(&mut reader.registration));
        *state = State::Over { failure, _registration };
    }
}

/// Returns a chunk in the form that the journal keeps.
async fn recorded(chunk: Vec<u8>, offset: u64, tenant: &Tenant, files: &AsyncBlobs) -> Result<Value, Failure> {
    let size = chunk.len();
    let sha256 = hex::encode(Sha256::digest(&chunk));
    let content = if size > MAX_INLINE_BYTES {
        let file = files.put(tenant, chunk, BINARY.to_owned()).await?;
        ("file", Value::from(file).json().clone())
    } else {
        match String::from_utf8(chunk) {
            Ok(text) => ("text", Json::from(text)),
            Err(error) => ("hex", Json::from(hex::encode(error.into_bytes()))),
        }
    };
    let range = [("offset", Json::from(offset)), ("size", Json::from(size as u64)), ("sha256", Json::from(sha256))];
    Ok(Value::from(Json::object(range.into_iter().chain([content]))))
}

impl Reader {
    /// Returns the next chunk, or `None` at the end. Waits for its first byte only.
    async fn next(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        loop {
            self.search().await?;
            if !self.ready.is_empty() {
                break;
            }
            if let Some(failure) = self.failed.take() {
                return Err(failure);
            }
            if self.has_ended {
                return Ok(None);
            }
            // Bytes may arrive that are held back, because a text with secrets is released in lines.
            let until = self.deadline.min(Instant::now() + self.times.idle);
            let arrived = timeout_at(until, self.body.next()).await;
            let arrived = arrived.map_err(|_| self.late())?;
            self.accept(arrived)?;
        }
        while self.ready.len() < self.limits.stream_chunk && !self.has_ended && self.failed.is_none() {
            let Some(arrived) = self.body.next().now_or_never() else { break };
            // The bytes that have arrived before reach the node first.
            self.failed = self.accept(arrived).err();
            if self.failed.is_none() {
                self.failed = self.search().await.err();
            }
        }
        self.chunks += 1;
        if self.chunks > self.limits.stream_chunks {
            let message = format!("a stream has at most {} chunks", self.limits.stream_chunks);
            return Err(Failure::new(codes::LIMIT_EXCEEDED, message));
        }
        let rest = self.ready.split_off(self.ready.len().min(self.limits.stream_chunk));
        let chunk = std::mem::replace(&mut self.ready, rest);
        self.offset += chunk.len() as u64;
        Ok(Some(chunk))
    }

    /// Searches what has arrived for secrets, and adds what may be shown to the bytes that are ready. If the caller drops the
    /// future, the next call continues.
    async fn search(&mut self) -> Result<(), Failure> {
        let Some(filter) = &mut self.secrets else { return Ok(()) };
        let searched = timeout_at(self.deadline, filter.release(&mut self.ready)).await;
        searched.unwrap_or_else(|_| Err(self.late()))
    }

    /// Takes in what has arrived: bytes, the end, or that the connection broke.
    fn accept(&mut self, arrived: Result<Option<Bytes>, Failure>) -> Result<(), Failure> {
        match arrived {
            Ok(Some(piece)) => {
                self.received += piece.len() as u64;
                if self.received > self.limits.stream_bytes {
                    return Err(BodyLimit::Stream(self.limits.stream_bytes).exceeded());
                }
                match &mut self.secrets {
                    None => self.ready.extend_from_slice(&piece),
                    Some(filter) => filter.arrived.extend_from_slice(&piece),
                }
            }
            Ok(None) => {
                self.has_ended = true;
                if let Some(filter) = &mut self.secrets {
                    filter.has_ended = true;
                }
            }
            Err(failure) => return Err(interrupted(self.received, self.once, &failure.message)),
        }
        Ok(())
    }

    /// Returns the failure of a stream whose time is up.
    fn late(&self) -> Failure {
        let message = match Instant::now() >= self.deadline {
            true => format!("the stream took longer than {} ms", self.times.total.as_millis()),
            false => format!("the server sent nothing for {} ms", self.times.idle.as_millis()),
        };
        let details = Json::object([("received", Json::from(self.received))]);
        let failure = Failure { details: Some(details), ..Failure::new(code::TIMEOUT, message) };
        Failure { retryable: !self.once, ..failure }
    }
}

/// Redacts secrets in a text that arrives in pieces, which may end inside a character.
struct SecretFilter {
    redactor: StreamRedactor,
    /// The bytes that have arrived and were not searched. Their last character may not be complete.
    arrived: Vec<u8>,
    /// True if nothing follows the bytes that have arrived.
    has_ended: bool,
}

impl SecretFilter {
    fn new(redaction: Redaction) -> SecretFilter {
        let redactor = StreamRedactor::new(redaction, Unit::Line);
        SecretFilter { redactor, arrived: Vec::new(), has_ended: false }
    }

    /// Searches what has arrived, and appends what may be shown to `ready`. Bytes that are not UTF-8 are refused, because only
    /// text can be searched in pieces.
    async fn release(&mut self, ready: &mut Vec<u8>) -> Result<(), Failure> {
        // Units whose search did not end, because the caller dropped the future.
        ready.extend_from_slice(self.redactor.add("").await.as_bytes());
        while !self.arrived.is_empty() {
            let slice = &self.arrived[..self.arrived.len().min(SEARCHED_BYTES)];
            let whole = match std::str::from_utf8(slice) {
                Ok(text) => text.len(),
                Err(error) if error.error_len().is_none() => error.valid_up_to(),
                Err(_) => return Err(not_text()),
            };
            if whole == 0 {
                break;
            }
            // The redactor keeps the text from here on.
            let text: Vec<u8> = self.arrived.drain(..whole).collect();
            let text = String::from_utf8(text).map_err(|_| not_text())?;
            ready.extend_from_slice(self.redactor.add(&text).await.as_bytes());
        }
        if self.has_ended {
            if !self.arrived.is_empty() {
                return Err(not_text());
            }
            ready.extend_from_slice(self.redactor.end().await.as_bytes());
            self.has_ended = false;
        }
        Ok(())
    }
}

fn not_text() -> Failure {
    let message = "the stream is not text in UTF-8, so the host cannot search it for the secrets of its request; request \
                   such an answer as a whole";
    Failure::new(code::PROTOCOL, message)
}
