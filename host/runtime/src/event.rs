//! The events that subscribers of a run see.

use flowcell_contract::{Json, RunId, Tenant};
use serde::ser::{Serialize, SerializeMap, Serializer};

/// The version of the JSON form of events, in the member `v`.
pub const EVENT_VERSION: u32 = 1;

/// One event of a run. As JSON it is flat: `{ "v", "seq", "ts", "tenant", "runId", "type", … }`.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// The number of the event in its run, from 0 without gaps.
    pub seq: u64,
    /// The time of the event in milliseconds since 1970.
    pub ts: u64,
    /// The tenant of the run.
    pub tenant: Tenant,
    /// The id of the run.
    pub run_id: RunId,
    /// The kind of the event: `task:start`, `harness:complete` … Later versions may add kinds: ignore unknown ones.
    pub kind: &'static str,
    /// The other members, as an object.
    pub data: Json,
}

impl Serialize for Event {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("v", &EVENT_VERSION)?;
        map.serialize_entry("seq", &self.seq)?;
        map.serialize_entry("ts", &self.ts)?;
        map.serialize_entry("tenant", &self.tenant)?;
        map.serialize_entry("runId", &self.run_id)?;
        map.serialize_entry("type", self.kind)?;
        for (key, value) in self.data.as_object().into_iter().flatten() {
            map.serialize_entry(&**key, value)?;
        }
        map.end()
    }
}

/// An event for watchers that the journal does not record. Its JSON is flat and has no `seq`.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveEvent {
    /// The time of the event in milliseconds since 1970.
    pub ts: u64,
    /// The tenant of the run.
    pub tenant: Tenant,
    /// The id of the run.
    pub run_id: RunId,
    /// The kind of the event: `agent:text`, `agent:thinking`, `agent:retry`, `agent:tool:progress`.
    pub kind: Box<str>,
    /// The other members, as an object.
    pub data: Json,
}

impl Serialize for LiveEvent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("v", &EVENT_VERSION)?;
        map.serialize_entry("ts", &self.ts)?;
        map.serialize_entry("tenant", &self.tenant)?;
        map.serialize_entry("runId", &self.run_id)?;
        map.serialize_entry("type", &self.kind)?;
        for (key, value) in self.data.as_object().into_iter().flatten() {
            map.serialize_entry(&**key, value)?;
        }
        map.end()
    }
}
