//! The interfaces `log`, `metrics`, `state` and `cache` of `flowcell:host`: each function makes one call through the
//! runtime.

use flowcell_contract::{BuiltIn, Failure, Json, Value, code};

use super::{Sandbox, denial::Denier};
use crate::{
    bindings::{
        cache, calls,
        log::{self, Level},
        metrics, state,
        types::Failure as GuestFailure,
    },
    failure,
};

pub(super) type Answer<T> = wasmtime::Result<Result<T, GuestFailure>>;

impl calls::Host for Sandbox {}

impl log::Host for Sandbox {
    async fn log(&mut self, level: Level, message: String) -> wasmtime::Result<()> {
        self.meter.count_call()?;
        self.forward_output(false).await;
        let level = match level {
            Level::Trace => "trace",
            Level::Debug => "debug",
            Level::Info => "info",
            Level::Warn => "warn",
            Level::Error => "error",
        };
        self.log(level, message).await;
        Ok(())
    }
}

impl log::Host for Denier<'_> {
    async fn log(&mut self, _: Level, _: String) -> wasmtime::Result<()> {
        self.stop(BuiltIn::Log)
    }
}

impl metrics::Host for Sandbox {
    async fn measure(&mut self, name: String, value: f64, tags: Vec<(String, String)>) -> wasmtime::Result<()> {
        let Ok(Json::Number(value)) = Json::parse(&value.to_string()) else {
            return self.meter.count_call();
        };
        let tags = Json::object(tags.into_iter().map(|(key, value)| (key, Json::from(value))));
        let args = Json::object([("name", Json::from(name)), ("value", Json::Number(value)), ("tags", tags)]);
        if let Err(failure) = self.call(BuiltIn::Metrics, "measure", args).await? {
            tracing::debug!("cannot record a measurement: {failure}");
        }
        Ok(())
    }
}

impl metrics::Host for Denier<'_> {
    async fn measure(&mut self, _: String, _: f64, _: Vec<(String, String)>) -> wasmtime::Result<()> {
        self.stop(BuiltIn::Metrics)
    }
}

impl state::Host for Sandbox {
    async fn get(&mut self, key: String) -> Answer<Option<state::Entry>> {
        let args = Json::object([("key", Json::from(key))]);
        let reply = self.call(BuiltIn::State, "get", args).await?;
        Ok(reply.and_then(|reply| entry(&reply)).map_err(failure::to_guest))
    }

    async fn set(&mut self, key: String, value: String) -> Answer<u64> {
        let args = match parsed(value) {
            Ok(value) => Json::object([("key", Json::from(key)), ("value", value)]),
            Err(failure) => return Ok(Err(failure::to_guest(failure))),
        };
        let reply = self.call(BuiltIn::State, "set", args).await?;
        let version =
            reply.and_then(|reply| reply.json().as_u64().ok_or_else(|| unexpected_reply("state.set", &reply)));
        Ok(version.map_err(failure::to_guest))
    }

    async fn set_if(&mut self, key: String, value: String, expected: Option<u64>) -> Answer<Option<u64>> {
        let mut members = match parsed(value) {
            Ok(value) => vec![("key", Json::from(key)), ("value", value)],
            Err(failure) => return Ok(Err(failure::to_guest(failure))),
        };
        members.extend(expected.map(|version| ("expected", Json::from(version))));
        let reply = self.call(BuiltIn::State, "set-if", Json::object(members)).await?;
        let version = reply.and_then(|reply| match reply.json() {
            Json::Null => Ok(None),
            version => version.as_u64().map(Some).ok_or_else(|| unexpected_reply("state.set-if", &reply)),
        });
        Ok(version.map_err(failure::to_guest))
    }
}

impl state::Host for Denier<'_> {
    async fn get(&mut self, _: String) -> Answer<Option<state::Entry>> {
        self.answer(BuiltIn::State)
    }

    async fn set(&mut self, _: String, _: String) -> Answer<u64> {
        self.answer(BuiltIn::State)
    }

    async fn set_if(&mut self, _: String, _: String, _: Option<u64>) -> Answer<Option<u64>> {
        self.answer(BuiltIn::State)
    }
}

impl cache::Host for Sandbox {
    async fn get(&mut self, key: String) -> Answer<Option<String>> {
        let args = Json::object([("key", Json::from(key))]);
        let reply = self.call(BuiltIn::Cache, "get", args).await?;
        let value = reply.and_then(|reply| match reply.json() {
            Json::Null => Ok(None),
            found => found
                .get("value")
                .map(|value| Some(value.to_text()))
                .ok_or_else(|| unexpected_reply("cache.get", &reply)),
        });
        Ok(value.map_err(failure::to_guest))
    }

    async fn set(&mut self, key: String, value: String, ttl_ms: Option<u64>) -> Answer<()> {
        let mut members = match parsed(value) {
            Ok(value) => vec![("key", Json::from(key)), ("value", value)],
            Err(failure) => return Ok(Err(failure::to_guest(failure))),
        };
        members.extend(ttl_ms.map(|ttl| ("ttlMs", Json::from(ttl))));
        let reply = self.call(BuiltIn::Cache, "set", Json::object(members)).await?;
        Ok(reply.map(|_| ()).map_err(failure::to_guest))
    }
}

impl cache::Host for Denier<'_> {
    async fn get(&mut self, _: String) -> Answer<Option<String>> {
        self.answer(BuiltIn::Cache)
    }

    async fn set(&mut self, _: String, _: String, _: Option<u64>) -> Answer<()> {
        self.answer(BuiltIn::Cache)
    }
}

fn entry(reply: &Value) -> Result<Option<state::Entry>, Failure> {
    let json = reply.json();
    if json.is_null() {
        return Ok(None);
    }
    let value = json.get("value").map(Json::to_text);
    let version = json.get("version").and_then(Json::as_u64);
    match (value, version) {
        (Some(value), Some(version)) => Ok(Some(state::Entry { value, version })),
        _ => Err(unexpected_reply("state.get", reply)),
    }
}

/// Parses a JSON text of the guest. Fails with `invalid_input` if it is not JSON.
pub(super) fn parsed(text: String) -> Result<Json, Failure> {
    Json::parse(&text).map_err(|error| Failure::new(code::INVALID_INPUT, format!("the value is not JSON: {error}")))
}

fn unexpected_reply(function: &str, reply: &Value) -> Failure {
    Failure::retryable(code::LOST_WORKER, format!("`{function}` has the unexpected reply {}", reply.json().type_name()))
}
