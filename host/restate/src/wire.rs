//! The JSON texts that Restate stores and carries: commits, heads of runs, and messages.
//!
//! Units and records are raw JSON texts here. A handler that runs again must set the same bytes as before, and it must
//! not depend on how this version of Flowcell writes a fact.

use std::sync::Arc;

use flowcell_contract::RunId;
use flowcell_runtime::{
    RunStatus,
    ports::{Record, StoreError, StoredStatus},
    sql::StatusNote,
};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{DeserializeOwned, Error as _},
};
use serde_json::value::RawValue;

/// The name of the object with the journal of a tree.
pub(crate) const RUN: &str = "FlowcellRun";
/// The name of the object with the state of a flow.
pub(crate) const STATE: &str = "FlowcellState";
/// The name of the object with the inbox of a tree.
pub(crate) const INBOX: &str = "FlowcellInbox";
/// The name of the object with the name of the store.
pub(crate) const STORE: &str = "FlowcellStore";

/// The key of the one object of this kind.
pub(crate) const THE_STORE: &str = "store";

/// The form of the steps of a handler, and of the texts that it writes. The cluster compares them with those of an earlier
/// try of the invocation, byte by byte.
///
/// A change of the steps, of a text below, or of a page or a head needs the next number. The handler keeps the form before
/// for invocations that began with it, which is recorded in their input or in their first commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Form(u32);

impl Form {
    /// The form of texts that name none.
    pub(crate) const FIRST: Form = Form(1);
    /// The form of this version.
    pub(crate) const PRESENT: Form = Form(1);

    fn is_first(&self) -> bool {
        *self == Form::FIRST
    }
}

impl Default for Form {
    fn default() -> Form {
        Form::FIRST
    }
}

/// A text with a later form fails the try. The cluster tries again, until a process of that version takes the invocation.
impl<'de> Deserialize<'de> for Form {
    fn deserialize<D: Deserializer<'de>>(text: D) -> Result<Form, D::Error> {
        let number = u32::deserialize(text)?;
        if number > Form::PRESENT.0 {
            let known = Form::PRESENT.0;
            let why = format!(
                "a newer version of Flowcell began this invocation, with the form {number}; this version knows the form {known}"
            );
            return Err(D::Error::custom(why));
        }
        Ok(Form(number))
    }
}

/// The input of the handler that drives a run tree.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Drive {
    #[serde(default, skip_serializing_if = "Form::is_first")]
    pub(crate) form: Form,
    /// The first units of a new run. The handler keeps them if the object has no run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) first: Vec<StoredUnit>,
    /// The claim that waits for this invocation. Only its process continues it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) claim: Option<String>,
    /// True if the inbox of the run has messages.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) mail: bool,
}

/// A unit of one run of the tree.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct StoredUnit {
    pub(crate) run: RunId,
    pub(crate) first: u64,
    pub(crate) next: u64,
    pub(crate) unit: Box<RawValue>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) record: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<Status>,
    /// The part of the status that lists show, if the unit changes the status or the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<StatusNote>,
    /// The state writes on which the unit depends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) writes: Option<Writes>,
    /// The number of the message that the unit records as delivered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) delivered: Option<u64>,
}

/// The state writes of a unit.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Writes {
    pub(crate) flow: Arc<str>,
    pub(crate) writes: Vec<StateWrite>,
}

/// One write of a flow's state.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct StateWrite {
    pub(crate) key: String,
    pub(crate) value: Box<RawValue>,
    /// The version that the write makes.
    pub(crate) version: u64,
}

/// The result of one `ctx.run`: facts that become durable together, and the next step of the handler.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Commit {
    #[serde(default, skip_serializing_if = "Form::is_first")]
    pub(crate) form: Form,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) units: Vec<StoredUnit>,
    /// The outcomes of messages that no unit of the commit records, by their numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) outcomes: Vec<(u64, String)>,
    /// True if the handler offers a new awakeable to the inbox.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) listen: bool,
    /// True if the handler writes all units that are only in the invocation's journal to the object's state.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) publish: bool,
    #[serde(default)]
    pub(crate) then: Then,
}

/// The next step of a handler after a commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Then {
    /// It waits for the next facts.
    #[default]
    Continue,
    /// The run rests: the handler ends, and a timer or a message begins the next invocation.
    Rest,
    /// A fresh invocation goes on, because the journal of this one is long.
    HandOver,
}

/// The stored status of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Status {
    Active,
    Parked { due: Option<u64>, needs_attention: bool },
    Succeeded,
    Failed,
    Cancelled,
}

impl Status {
    /// Returns true if a process should drive the run at this time.
    pub(crate) fn is_ready(&self, now: u64) -> bool {
        match self {
            Status::Active => true,
            Status::Parked { due, .. } => due.is_some_and(|due| due <= now),
            _ => false,
        }
    }

    /// Returns true if the run has ended.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self, Status::Succeeded | Status::Failed | Status::Cancelled)
    }

    /// Returns the time of the run's next timer.
    pub(crate) fn due(&self) -> Option<u64> {
        match self {
            Status::Parked { due, .. } => *due,
            _ => None,
        }
    }
}

impl From<StoredStatus> for Status {
    fn from(status: StoredStatus) -> Status {
        match status {
            StoredStatus::Active => Status::Active,
            StoredStatus::Parked { due, needs_attention } => Status::Parked { due, needs_attention },
            StoredStatus::Ended(RunStatus::Succeeded) => Status::Succeeded,
            StoredStatus::Ended(RunStatus::Failed) => Status::Failed,
            StoredStatus::Ended(_) => Status::Cancelled,
        }
    }
}

impl From<&Status> for StoredStatus {
    fn from(status: &Status) -> StoredStatus {
        match status {
            Status::Active => StoredStatus::Active,
            Status::Parked { due, needs_attention } => {
                StoredStatus::Parked { due: *due, needs_attention: *needs_attention }
            }
            Status::Succeeded => StoredStatus::Ended(RunStatus::Succeeded),
            Status::Failed => StoredStatus::Ended(RunStatus::Failed),
            Status::Cancelled => StoredStatus::Ended(RunStatus::Cancelled),
        }
    }
}

/// The head of one run: everything about it except its units.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Head {
    /// The number of the next fact.
    pub(crate) next: u64,
    pub(crate) record: Box<RawValue>,
    /// The number of the fact after the last change of the record.
    pub(crate) record_seq: u64,
    pub(crate) status: Status,
    /// The part of the status that lists show.
    pub(crate) note: StatusNote,
    /// The number of the fact after the last change that lists show.
    pub(crate) listed: u64,
    /// The time of the start, in milliseconds since 1970.
    pub(crate) created: u64,
    /// The numbers of the first facts of the pages of units, in order.
    pub(crate) pages: Vec<u64>,
    /// The number of the last message that the tree has applied or refused. Only the head of the top run has it.
    #[serde(default)]
    pub(crate) heard: u64,
}

/// A request for a part of a run's journal.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ReadUnits {
    pub(crate) run: RunId,
    /// The fact in the first unit.
    pub(crate) from: u64,
    /// The number of pages at most.
    pub(crate) pages: usize,
}

/// A part of a run's journal.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct PageOfUnits {
    /// The units, in order, from the page with the requested fact on.
    pub(crate) units: Vec<Box<RawValue>>,
    /// True if there are no more pages.
    pub(crate) is_last: bool,
}

/// The answer to a request for a head.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Found {
    pub(crate) head: Option<Head>,
    /// True while an invocation drives the tree.
    pub(crate) driven: bool,
}

/// A message to a run of a tree.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Post {
    /// The id that the sender has chosen.
    pub(crate) id: String,
    pub(crate) run: RunId,
    /// The command, as JSON text.
    pub(crate) request: String,
}

/// A message in the inbox of a tree.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Mail {
    pub(crate) number: u64,
    pub(crate) post: Post,
}

/// Parses a JSON text of any depth.
pub(crate) fn parse<T: DeserializeOwned>(text: &str) -> Result<T, serde_json::Error> {
    let mut text = serde_json::Deserializer::from_str(text);
    text.disable_recursion_limit();
    T::deserialize(&mut text)
}

/// Parses the record of a run.
pub(crate) fn record(run: &RunId, text: &RawValue) -> Result<Record, StoreError> {
    parse(text.get()).map_err(|error| StoreError::damaged(format!("the record of run `{run}` is damaged: {error}")))
}

/// Writes a value as raw JSON text.
pub(crate) fn raw<T: Serialize>(value: &T) -> Result<Box<RawValue>, StoreError> {
    serde_json::value::to_raw_value(value).map_err(|error| StoreError(error.to_string().into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorded::Recorded;

    fn text<T: Serialize>(value: &T) -> String {
        serde_json::to_string(value).unwrap()
    }

    /// A process of a later version goes on with invocations of this one, so it must write these texts for them.
    #[test]
    fn texts_of_the_first_form_stay_the_same() {
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        let unit = StoredUnit {
            run: "r".into(),
            first: 0,
            next: 2,
            unit: raw("{\"u\":1}"),
            record: Some(raw("{\"flow\":\"f\"}")),
            status: Some(Status::Parked { due: Some(7), needs_attention: false }),
            note: Some(StatusNote { ts: 5, ..StatusNote::default() }),
            writes: Some(Writes {
                flow: "f".into(),
                writes: vec![StateWrite { key: "k".into(), value: raw("1"), version: 3 }],
            }),
            delivered: Some(4),
        };
        let (mut recorded, mail) = (
            Recorded::default(),
            Mail { number: 4, post: Post { id: "m".into(), run: "r".into(), request: "{}".into() } },
        );
        recorded.add(std::slice::from_ref(&unit));
        let commit = Commit {
            units: vec![unit.clone()],
            outcomes: vec![(4, "ok".into())],
            listen: true,
            publish: true,
            then: Then::HandOver,
            ..Commit::default()
        };
        let drive = Drive { first: vec![unit], claim: Some("c".into()), mail: true, ..Drive::default() };
        let present = [text(&recorded.heads.values().collect::<Vec<_>>()), text(&commit), text(&drive), text(&mail)];
        assert_eq!(present.join("\n"), include_str!("wire/form-1.txt").trim_end());
    }
}
