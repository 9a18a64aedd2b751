//! Calls that stay in the host: state, cache, logs and metrics.

use flowcell_contract::{BuiltIn, Call, Failure, Json, Value, code};

use super::AttemptCalls;
use crate::{
    decide::Input,
    fact::{CallDigest, Note, Observed, Write},
    limits::MAX_KEY_BYTES,
};

impl AttemptCalls {
    pub(super) async fn note(&self, call: &Call) -> Result<Value, Failure> {
        let args = call.args.json();
        let note = match BuiltIn::named(&call.interface) {
            Some(BuiltIn::Log) => Note::Log { level: text(args, "level")?, message: text(args, "message")? },
            _ => {
                let member = |name: &str| args.get(name).cloned().unwrap_or_default();
                Note::Metric { name: text(args, "name")?, value: member("value"), tags: member("tags") }
            }
        };
        self.send_input(Input::Note { task: self.attempting.task, note }).await;
        Ok(Value::null())
    }

    /// Answers a call of state or cache. Later calls that leave the host may depend on the answer. If the node type
    /// may make such calls, the answer is therefore recorded, and a repeated attempt gets the same answer.
    pub(super) async fn answer_in_host(&self, call: &Call) -> Result<Value, Failure> {
        if !self.may_leave() {
            return self.perform(call);
        }
        let digest = CallDigest::of(&call.interface, &call.function, call.args.json());
        let recorded = self.progress.lock().next_recorded();
        match recorded {
            None => {
                let reply = self.perform(call);
                let observed = Observed::Answered(digest, reply.clone().map_err(Box::new));
                self.progress.lock().since.push(observed);
                reply
            }
            Some(Ok(Observed::Answered(before, reply))) if before == digest => {
                self.write_again(call, &reply);
                reply.map_err(|failure| *failure)
            }
            Some(Ok(Observed::Answered(..))) => self.diverged("it read other state than before").await,
            Some(Ok(_)) => self.diverged("it read state where it waited before").await,
            Some(Err(expected)) => self.diverged(&format!("it read state where it {expected} before")).await,
        }
    }

    /// Returns true if the node type requests a capability that leaves the host.
    fn may_leave(&self) -> bool {
        let asked = &self.site.graph.node(self.attempting.task.node).node_type.capabilities;
        asked.iter().any(|request| self.site.capabilities.contains_key(&request.name))
    }

    fn perform(&self, call: &Call) -> Result<Value, Failure> {
        let args = call.args.json();
        match (BuiltIn::named(&call.interface), &*call.function) {
            (Some(BuiltIn::State), "get") => self.state_get(&key(args)?),
            (Some(BuiltIn::State), "set") => self.state_set(args, None),
            (Some(BuiltIn::State), "set-if") => self.state_set(args, Some(expected_version(args))),
            (Some(BuiltIn::Cache), "get") => {
                let found = self.site.cache.get(&self.site.tenant, &key(args)?, self.site.timers.now());
                let entry = |value: Value| Json::object([("value", value.json().clone())]);
                Ok(Value::from(found.map(entry).unwrap_or_default()))
            }
            (Some(BuiltIn::Cache), "set") => {
                let now = self.site.timers.now();
                let expires = args.get("ttlMs").and_then(Json::as_u64).map(|ttl| now.saturating_add(ttl));
                self.site.cache.set(&self.site.tenant, &key(args)?, value(args), expires);
                Ok(Value::null())
            }
            _ => Err(super::unknown(call)),
        }
    }

    /// Returns the value and the version of a key as this attempt sees them: the stored ones, then the attempt's own
    /// buffered writes. Each of these writes adds 1 to the version.
    fn seen(&self, key: &str) -> Result<Option<(Value, u64)>, Failure> {
        let stored = self.site.state.get(&self.site.tenant, &self.site.graph.name, key)?;
        let progress = self.progress.lock();
        let own = progress.writes.iter().filter(|write| write.key == key);
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
        self.progress.lock().writes.push(Write { key, value: value(args), expected });
        Ok(Value::from(Json::from(version + 1)))
    }

    /// Buffers a write that the store accepted when the attempt first ran.
    fn write_again(&self, call: &Call, reply: &Result<Value, Box<Failure>>) {
        let args = call.args.json();
        let expected = match (BuiltIn::named(&call.interface), &*call.function) {
            (Some(BuiltIn::State), "set") => None,
            (Some(BuiltIn::State), "set-if") => Some(expected_version(args)),
            _ => return,
        };
        let accepted = reply.as_ref().is_ok_and(|version| !version.json().is_null());
        if let Ok(key) = key(args).as_ref()
            && accepted
        {
            self.progress.lock().writes.push(Write { key: key.clone(), value: value(args), expected });
        }
    }
}

fn expected_version(args: &Json) -> u64 {
    args.get("expected").and_then(Json::as_u64).unwrap_or(0)
}

pub(super) fn text(args: &Json, name: &str) -> Result<String, Failure> {
    let found = args.get(name).and_then(Json::as_str).map(str::to_owned);
    found.ok_or_else(|| Failure::new(code::INVALID_INPUT, format!("the call must have a text `{name}`")))
}

fn value(args: &Json) -> Value {
    Value::from(args.get("value").cloned().unwrap_or_default())
}

fn key(args: &Json) -> Result<String, Failure> {
    let key = text(args, "key")?;
    if key.is_empty() || key.len() > MAX_KEY_BYTES {
        let message = format!("a key must have 1 to {MAX_KEY_BYTES} bytes, not {}", key.len());
        return Err(Failure::new(code::INVALID_INPUT, message));
    }
    Ok(key)
}
