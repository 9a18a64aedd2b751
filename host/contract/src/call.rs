//! Calls: the only way in which a node can read or change something outside its sandbox. The end of a call is ambiguous
//! if the host cannot know whether the call had its effect, for example after a crash.

use std::{future::ready, sync::Arc};

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

use crate::{BlobRef, BlobWriter, Failure, Value, code, part};

/// The effect that a call may have outside its sandbox, from the weakest to the strongest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// No effect that anything depends on, such as logs and metrics.
    #[default]
    Inert,
    /// The call only reads.
    Read,
    /// The change becomes visible together with the task's outcome, or not at all.
    Transactional,
    /// The call leaves the host. Repeating it with the same idempotency key does no harm.
    Idempotent,
    /// The call leaves the host. The host may repeat it after an ambiguous end.
    AtLeastOnce,
    /// The call leaves the host. The host never repeats it after an ambiguous end: the task is blocked until a person
    /// decides.
    Once,
}

impl Effect {
    /// Returns true if a call with this effect leaves the host.
    pub fn is_external(self) -> bool {
        self >= Effect::Idempotent
    }
}

/// One call of a capability by an attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// The name of the capability, such as `log`, `state` or `http`.
    pub interface: Arc<str>,
    /// The function of the capability, such as `get` or `set-if`.
    pub function: Arc<str>,
    /// The arguments, as a JSON object.
    pub args: Value,
}

/// An event that [`Calls::next`] hands to an attempt.
#[derive(Clone, Debug, PartialEq)]
pub enum Arrival {
    /// A started call has ended.
    Ended {
        /// The number that `start` returned.
        id: u32,
        /// The reply, or the failure of the call.
        outcome: Result<Value, Failure>,
    },
    /// A message to an agent run.
    Message {
        /// The agent run that the message is for.
        agent_run: Arc<str>,
        /// The id of the message.
        id: Arc<str>,
        /// The content of the message.
        value: Value,
    },
    /// An agent run gets no more messages and must finish.
    Closing {
        /// The agent run that must finish.
        agent_run: Arc<str>,
    },
}

/// The calls that an attempt can make. The runtime checks the grant, records the call, and performs it.
///
/// | interface | function | args | reply |
/// |---|---|---|---|
/// | `log` | `log` | `{ level, message }` | `null` |
/// | `metrics` | `measure` | `{ name, value, tags }` | `null` |
/// | `state` | `get` | `{ key }` | `null` or `{ value, version }` |
/// | `state` | `set` | `{ key, value }` | the new version |
/// | `state` | `set-if` | `{ key, value, expected? }` | the new version, or `null` if the old one is not `expected` |
/// | `cache` | `get` | `{ key }` | `null` or `{ value }` |
/// | `cache` | `set` | `{ key, value, ttlMs? }` | `null` |
/// | `http` | `send`, `start-send` | `{ method, url, headers: [[name, value]], body?, timeoutMs? }` | `{ status, headers, body? }` |
/// | `http` | `open-stream` | as for `send`, and `{ idleMs?, totalMs? }` | `{ status, headers, stream, once? }` |
/// | `http` | `close-stream` | as for `read-stream` | `null` |
/// | `http` | `read-stream` | `{ stream, offset, once? }` | a chunk, see below; `{ offset, end: true }` at the end |
/// | `files` | `read` | `{ path, as: text }` or `{ path, as: file }` | `{ text }` or `{ file }` |
/// | `files` | `write` | `{ path, text }` or `{ path, file }` | `{ size }` |
/// | `files` | `list` | `{ path }` | `{ entries: [{ path, kind, size, modifiedMs }] }` |
/// | `files` | `stat` | `{ path }` | an entry, or `null` |
/// | `files` | `remove` | `{ path }` | `true` if the path existed |
/// | `model` | `generate`, `start-generate` | a request as in `model.wit` | a reply as in `model.wit` |
/// | `tools` | `find` | `{ patterns }` | `[{ name, tool, title?, description?, inputSchema }]` |
/// | `tools` | `call`, `start-call` | `{ tool, input, toolUseId?, agentRunId? }` | `{ output }` |
/// | `services` | `start-call` | `{ service, args: [value] }` | the service's result |
/// | `agent` | `open` | `{ about }` | the id of the agent run |
/// | `agent` | `tell` | `{ agentRunId, kind, data }` | `null` |
/// | `agent` | `close` | `{ agentRunId, result }` or `{ agentRunId, error }` | `null` |
///
/// A `body` is `{ text }` or `{ file }`, a file reference. A chunk is `{ offset, size, sha256 }` with one of `text`,
/// `hex` and `file`. An `open-stream` may also have the reply of `send`: its body is the whole stream.
pub trait Calls: Send + Sync {
    /// Makes one call and waits for its reply.
    fn call(&self, call: Call) -> BoxFuture<'_, Result<Value, Failure>>;

    /// Starts a call that leaves the host. Returns the number of the call, counted from 1 within the attempt, without
    /// waiting for its end. [`Calls::next`] reports the end.
    ///
    /// Fails with `denied` by default.
    fn start(&self, call: Call) -> BoxFuture<'_, Result<u32, Failure>> {
        let message = format!("this host has no capability `{}.{}`", call.interface, call.function);
        Box::pin(ready(Err(Failure::new(code::DENIED, message))))
    }

    /// Waits for the next arrival, but at most `timeout_ms` milliseconds. Returns `None` when this time is over. If no
    /// timeout is given, `None` means that no event can arrive any more.
    fn next(&self, _timeout_ms: Option<u32>) -> BoxFuture<'_, Option<Arrival>> {
        Box::pin(ready(None))
    }

    /// Returns the time of the latest event that the attempt has received, in milliseconds since 1970; `None` if it has
    /// received no event yet.
    fn now_ms(&self) -> Option<u64> {
        None
    }

    /// Stores bytes as a file, and returns the file reference. Fails with `denied` by default.
    fn keep(&self, _bytes: Arc<[u8]>, _mime: &str) -> Result<BlobRef, Failure> {
        Err(Failure::new(code::DENIED, "this host stores no files"))
    }

    /// Returns the bytes of a file reference. Fails with `file_not_found` by default.
    fn bytes(&self, file: &BlobRef) -> Result<Arc<[u8]>, Failure> {
        Err(Failure::new(code::FILE_NOT_FOUND, format!("the file `{}` does not exist", file.file_id)))
    }

    /// Returns at most `length` bytes of a file from `offset` on: none at and after the end.
    fn read_part(&self, file: &BlobRef, offset: u64, length: usize) -> Result<Vec<u8>, Failure> {
        self.bytes(file).map(|bytes| part(&bytes, offset, length).to_vec())
    }

    /// Begins a file that is stored in parts. Fails with `denied` by default.
    fn file_writer(&self) -> Result<Box<dyn BlobWriter>, Failure> {
        Err(Failure::new(code::DENIED, "this host stores no files"))
    }
}
