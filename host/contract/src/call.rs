//! The one gate between a sandbox and the world.

use std::{future::ready, sync::Arc};

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

use crate::{BlobRef, Failure, Value, code};

/// What a call may do to the world.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// Nothing that anybody relies on: logs, metrics.
    #[default]
    Inert,
    /// Reads only.
    Read,
    /// Changes that become visible with the task's outcome, or not at all.
    Transactional,
    /// Leaves the host; repeating it with the same key does no harm.
    Idempotent,
    /// Leaves the host; may be repeated after an ambiguous end.
    AtLeastOnce,
    /// Leaves the host; never repeated after an ambiguous end.
    Once,
}

impl Effect {
    /// Whether such a call leaves the host.
    pub fn is_external(self) -> bool {
        self >= Effect::Idempotent
    }
}

/// One use of a capability by an attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// The capability: `log`, `state`, `http` …
    pub interface: Arc<str>,
    /// Its function: `get`, `set-if` …
    pub function: Arc<str>,
    /// The arguments, as an object.
    pub args: Value,
}

/// What `next` hands to an attempt.
#[derive(Clone, Debug, PartialEq)]
pub enum Arrival {
    /// A call that was started has ended.
    Ended {
        /// As `start` numbered it.
        id: u32,
        /// The reply.
        outcome: Result<Value, Failure>,
    },
    /// Somebody wrote to an agent run.
    Message {
        /// Which agent run.
        agent_run: Arc<str>,
        /// What the message is recognised by.
        id: Arc<str>,
        /// What it says.
        value: Value,
    },
    /// Nobody writes to this agent run any more; it is to finish.
    Closing {
        /// Which agent run.
        agent_run: Arc<str>,
    },
}

/// What an attempt can reach, owned by the runtime: it checks the grant, records, and hands the call to its handler.
///
/// | interface | function | args | reply |
/// |---|---|---|---|
/// | `log` | `log` | `{ level, message }` | `null` |
/// | `metrics` | `measure` | `{ name, value, tags }` | `null` |
/// | `state` | `get` | `{ key }` | `null` or `{ value, version }` |
/// | `state` | `set` | `{ key, value }` | the new version |
/// | `state` | `set-if` | `{ key, value, expected? }` | the new version, or `null` if it was another |
/// | `cache` | `get` | `{ key }` | `null` or `{ value }` |
/// | `cache` | `set` | `{ key, value, ttlMs? }` | `null` |
/// | `http` | `send`, `start-send` | `{ method, url, headers: [[name, value]], body?, timeoutMs? }` | `{ status, headers, body? }` |
/// | `files` | `read` | `{ path, as: text }` or `{ path, as: file }` | `{ text }` or `{ file }` |
/// | `files` | `write` | `{ path, text }` or `{ path, file }` | `{ size }` |
/// | `files` | `list` | `{ path }` | `{ entries: [{ path, kind, size, modifiedMs }] }` |
/// | `files` | `stat` | `{ path }` | an entry, or `null` |
/// | `files` | `remove` | `{ path }` | whether it was there |
/// | `model` | `generate`, `start-generate` | a request, as `model.wit` has it | a reply, as there |
/// | `tools` | `find` | `{ patterns }` | `[{ name, tool, title?, description?, inputSchema }]` |
/// | `tools` | `call`, `start-call` | `{ tool, input, toolUseId?, agentRunId? }` | `{ output }` |
/// | `services` | `start-call` | `{ service, args: [value] }` | what the service gives |
/// | `agent` | `open` | `{ about }` | the id of the agent run |
/// | `agent` | `tell` | `{ agentRunId, kind, data }` | `null` |
/// | `agent` | `close` | `{ agentRunId, result }` or `{ agentRunId, error }` | `null` |
///
/// A `body` is `{ text }` or `{ file }`, a file reference.
pub trait Calls: Send + Sync {
    /// Makes one call and waits for its reply.
    fn call(&self, call: Call) -> BoxFuture<'_, Result<Value, Failure>>;

    /// Starts a call that leaves the host and answers its number, from 1 within the attempt.
    fn start(&self, call: Call) -> BoxFuture<'_, Result<u32, Failure>> {
        let message = format!("this host has no capability `{}.{}`", call.interface, call.function);
        Box::pin(ready(Err(Failure::new(code::DENIED, message))))
    }

    /// Waits for the next thing that arrives. None: the time is up, or no time was given and nothing can arrive.
    fn next(&self, _timeout_ms: Option<u32>) -> BoxFuture<'_, Option<Arrival>> {
        Box::pin(ready(None))
    }

    /// The time that the attempt sees, if something was handed to it since it began.
    fn now_ms(&self) -> Option<u64> {
        None
    }

    /// Keeps bytes and answers the file reference.
    fn keep(&self, _bytes: Arc<[u8]>, _mime: &str) -> Result<BlobRef, Failure> {
        Err(Failure::new(code::DENIED, "this host keeps no files"))
    }

    /// The bytes that a file reference means.
    fn bytes(&self, file: &BlobRef) -> Result<Arc<[u8]>, Failure> {
        Err(Failure::new(code::FILE_NOT_FOUND, format!("there is no file `{}`", file.file_id)))
    }
}
