//! Calls that stay in the host: state, cache, logs and metrics.

use flowcell_contract::{BuiltIn, Call, Failure, Json, Value, code};

use super::AttemptCalls;
use crate::{
    decide::Input,
    fact::{CallDigest, Note, Observed, Write},
    limits::MAX_KEY_BYTES,
};

/// Records a log line or a metric. What an attempt has noted before a recorded step is in the journal already, because the
/// journal keeps the order of both. So a repeated attempt does not note it a second time.
pub(super) async fn note(calls: &AttemptCalls, call: &Call) -> Result<Value, Failure> {
    let args = call.args.json();
    let note = match BuiltIn::named(&call.interface) {
        Some(BuiltIn::Log) => Note::Log { level: text(args, "level")?, message: text(args, "message")? },
        _ => {
            let member = |name: &str| args.get(name).cloned().unwrap_or_default();
            Note::Metric { name: text(args, "name")?, value: member("value"), tags: member("tags") }
        }
    };
    if calls.progress.lock().is_repeating() {
        return Ok(Value::null());
    }
    calls.send_input(Input::Note { task: calls.attempting.task, note }).await;
    Ok(Value::null())
}

/// Answers a call of state or cache. Later calls that leave the host may depend on the answer. If the node type
/// may make such calls, the answer is therefore recorded, and a repeated attempt gets the same answer.
pub(super) async fn answer(calls: &AttemptCalls, call: &Call) -> Result<Value, Failure> {
    if !may_leave(calls) {
        return perform(calls, call);
    }
    let digest = CallDigest::of(&call.interface, &call.function, call.args.json());
    let recorded = calls.progress.lock().next_recorded();
    match recorded {
        None => {
            let reply = perform(calls, call);
            let observed = Observed::Answered(digest, reply.clone().map_err(Box::new));
            calls.progress.lock().since.push(observed);
            reply
        }
        Some(Ok(Observed::Answered(before, reply))) if before == digest => {
            write_again(calls, call, &reply);
            reply.map_err(|failure| *failure)
        }
        Some(Ok(Observed::Answered(..))) => calls.report_divergence("it read other state than before").await,
        Some(Ok(_)) => calls.report_divergence("it read state where it waited before").await,
        Some(Err(expected)) => calls.report_divergence(&format!("it read state where it {expected} before")).await,
    }
}

/// Returns true if the node type requests a capability that leaves the host.
fn may_leave(calls: &AttemptCalls) -> bool {
    let asked = &calls.site.graph.node(calls.attempting.task.node).node_type.capabilities;
    asked.iter().any(|request| calls.site.capabilities.contains_key(&request.name))
}

fn perform(calls: &AttemptCalls, call: &Call) -> Result<Value, Failure> {
    let args = call.args.json();
    match (BuiltIn::named(&call.interface), &*call.function) {
        (Some(BuiltIn::State), "get") => state_get(calls, &key(args)?),
        (Some(BuiltIn::State), "set") => state_set(calls, args, None),
        (Some(BuiltIn::State), "set-if") => state_set(calls, args, Some(expected_version(args))),
        (Some(BuiltIn::Cache), "get") => {
            let found = calls.site.cache.get(&calls.site.tenant, &key(args)?, calls.site.timers.now());
            let entry = |value: Value| Json::object([("value", value.json().clone())]);
            Ok(Value::from(found.map(entry).unwrap_or_default()))
        }
        (Some(BuiltIn::Cache), "set") => {
            let now = calls.site.timers.now();
            let expires = args.get("ttlMs").and_then(Json::as_u64).map(|ttl| now.saturating_add(ttl));
            calls.site.cache.set(&calls.site.tenant, &key(args)?, value(args), expires);
            Ok(Value::null())
        }
        _ => Err(super::unknown(call)),
    }
}

/// Returns the value and the version of a key as this attempt sees them: the stored value, replaced by the attempt's
/// own buffered writes. Each of these writes adds 1 to the version. `None`: the key is absent.
fn seen(calls: &AttemptCalls, key: &str) -> Result<Option<(Value, u64)>, Failure> {
    let stored = calls.site.state.get(&calls.site.tenant, &calls.site.graph.name, key)?;
    let progress = calls.progress.lock();
    let own = progress.writes.iter().filter(|write| write.key == key);
    Ok(own.fold(stored, |seen, write| Some((write.value.clone(), seen.map_or(0, |(_, version)| version) + 1))))
}

fn state_get(calls: &AttemptCalls, key: &str) -> Result<Value, Failure> {
    let entry = seen(calls, key)?
        .map(|(value, version)| Json::object([("value", value.json().clone()), ("version", Json::from(version))]));
    Ok(Value::from(entry.unwrap_or_default()))
}

fn state_set(calls: &AttemptCalls, args: &Json, expected: Option<u64>) -> Result<Value, Failure> {
    let key = key(args)?;
    let version = seen(calls, &key)?.map_or(0, |(_, version)| version);
    if expected.is_some_and(|expected| expected != version) {
        return Ok(Value::null());
    }
    calls.progress.lock().writes.push(Write { key, value: value(args), expected });
    Ok(Value::from(Json::from(version + 1)))
}

/// Buffers the state write of a repeated call again, if the call succeeded when the attempt first ran. `reply` is the
/// recorded reply.
fn write_again(calls: &AttemptCalls, call: &Call, reply: &Result<Value, Box<Failure>>) {
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
        calls.progress.lock().writes.push(Write { key: key.clone(), value: value(args), expected });
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
