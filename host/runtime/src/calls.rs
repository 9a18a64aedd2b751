//! The one gate between an attempt and the world: state, cache, logs and metrics are answered here.

use std::sync::{Arc, Mutex, PoisonError};

use flowcell_contract::{Call, Calls, Failure, Json, Tenant, Value, code};
use futures_util::future::BoxFuture;
use tokio::sync::mpsc;

use crate::{
    fact::{Note, TaskKey, Write},
    hub::Command,
    limits::MAX_KEY_BYTES,
    ports::{CacheStore, StateStore, Timers},
};

/// What the calls of a run's attempts share.
pub(crate) struct CallSite {
    pub(crate) tenant: Tenant,
    pub(crate) flow: Arc<str>,
    pub(crate) state: Arc<dyn StateStore>,
    pub(crate) cache: Arc<dyn CacheStore>,
    pub(crate) timers: Arc<dyn Timers>,
    pub(crate) commands: mpsc::Sender<Command>,
}

/// The calls of one attempt. State writes stay here until the attempt's outcome is recorded.
pub(crate) struct AttemptCalls {
    site: Arc<CallSite>,
    task: TaskKey,
    writes: Mutex<Vec<Write>>,
}

impl AttemptCalls {
    /// The calls of an attempt that has made these writes before it paused.
    pub(crate) fn new(site: Arc<CallSite>, task: TaskKey, writes: Vec<Write>) -> AttemptCalls {
        AttemptCalls { site, task, writes: Mutex::new(writes) }
    }

    /// Takes the writes that the attempt has buffered.
    pub(crate) fn take_writes(&self) -> Vec<Write> {
        std::mem::take(&mut *self.writes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    async fn answer(&self, call: Call) -> Result<Value, Failure> {
        let args = call.args.json();
        match (&*call.interface, &*call.function) {
            ("log", "log") => {
                self.note(Note::Log { level: text(args, "level")?, message: text(args, "message")? }).await
            }
            ("metrics", "measure") => {
                let value = args.get("value").cloned().unwrap_or_default();
                let tags = args.get("tags").cloned().unwrap_or_default();
                self.note(Note::Metric { name: text(args, "name")?, value, tags }).await
            }
            ("state", "get") => self.state_get(&key(args)?),
            ("state", "set") => self.state_set(args, None),
            ("state", "set-if") => {
                let expected = args.get("expected").and_then(Json::as_u64).unwrap_or(0);
                self.state_set(args, Some(expected))
            }
            ("cache", "get") => {
                let found = self.site.cache.get(&self.site.tenant, &key(args)?, self.site.timers.now());
                let entry = |value: Value| Json::object([("value", value.json().clone())]);
                Ok(Value::from(found.map(entry).unwrap_or_default()))
            }
            ("cache", "set") => {
                let now = self.site.timers.now();
                let expires = args.get("ttlMs").and_then(Json::as_u64).map(|ttl| now.saturating_add(ttl));
                self.site.cache.set(&self.site.tenant, &key(args)?, value(args), expires);
                Ok(Value::null())
            }
            (interface, function) => {
                let message = format!("this host has no capability `{interface}.{function}`");
                Err(Failure::new(code::DENIED, message))
            }
        }
    }

    async fn note(&self, note: Note) -> Result<Value, Failure> {
        // A run that is over does not listen any more, and its attempts are about to be dropped.
        let _ = self.site.commands.send(Command::Note { task: self.task, note }).await;
        Ok(Value::null())
    }

    /// The value and version that this attempt sees: its own writes first.
    fn seen(&self, key: &str) -> Result<Option<(Value, u64)>, Failure> {
        let stored = self.site.state.get(&self.site.tenant, &self.site.flow, key);
        let stored = stored?;
        let writes = self.writes.lock().unwrap_or_else(PoisonError::into_inner);
        let own = writes.iter().filter(|write| write.key == key);
        Ok(own.fold(stored, |seen, write| Some((write.value.clone(), seen.map_or(0, |(_, version)| version) + 1))))
    }

    fn state_get(&self, key: &str) -> Result<Value, Failure> {
        let entry = self
            .seen(key)?
            .map(|(value, version)| Json::object([("value", value.json().clone()), ("version", Json::from(version))]));
        Ok(Value::from(entry.unwrap_or_default()))
    }

    fn state_set(&self, args: &Json, expected: Option<u64>) -> Result<Value, Failure> {
        let key = key(args)?;
        let version = self.seen(&key)?.map_or(0, |(_, version)| version);
        if expected.is_some_and(|expected| expected != version) {
            return Ok(Value::null());
        }
        let write = Write { key, value: value(args), expected };
        self.writes.lock().unwrap_or_else(PoisonError::into_inner).push(write);
        Ok(Value::from(Json::from(version + 1)))
    }
}

impl Calls for AttemptCalls {
    fn call(&self, call: Call) -> BoxFuture<'_, Result<Value, Failure>> {
        Box::pin(self.answer(call))
    }
}

fn text(args: &Json, name: &str) -> Result<String, Failure> {
    let found = args.get(name).and_then(Json::as_str).map(str::to_owned);
    found.ok_or_else(|| Failure::new(code::INVALID_INPUT, format!("the call has no text `{name}`")))
}

fn value(args: &Json) -> Value {
    Value::from(args.get("value").cloned().unwrap_or_default())
}

fn key(args: &Json) -> Result<String, Failure> {
    let key = text(args, "key")?;
    if key.is_empty() || key.len() > MAX_KEY_BYTES {
        let message = format!("a key must have 1 to {MAX_KEY_BYTES} bytes, this one has {}", key.len());
        return Err(Failure::new(code::INVALID_INPUT, message));
    }
    Ok(key)
}
