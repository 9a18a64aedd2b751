//! Calls that leave the host, in the form of the journal, and the observations of an attempt between them.

use std::sync::Arc;

use flowcell_contract::{Effect, Failure, Json, Value};
use serde::{Deserialize, Serialize};

/// The record of a call, written before the call leaves the host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallRecord {
    /// The number of the call in its attempt, from 1.
    pub ordinal: u32,
    /// The capability of the call.
    pub interface: Arc<str>,
    /// The function of the capability.
    pub function: Arc<str>,
    /// The digest of interface, function and arguments.
    pub digest: CallDigest,
    /// The effect that the call may have outside the host.
    pub effect: Effect,
    /// The idempotency key of the call.
    pub key: Arc<str>,
    /// The description of the call for people.
    pub about: Json,
    /// The arguments, with long texts shortened, for readers of the inputs of tasks.
    #[serde(default, skip_serializing_if = "Json::is_null")]
    pub preview: Json,
    /// The agent run that makes the call, if one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Box<ForAgent>>,
    /// The question that a person answers before the call leaves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ask: Option<Box<Asked>>,
    /// The observations of the attempt since its last recorded call.
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    pub before: Box<[Observed]>,
}

/// The agent run that makes a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ForAgent {
    /// The id of the agent run.
    pub agent_run: Arc<str>,
    /// The id that the model gave to its tool call. `None`: the call is not a tool call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_use: Option<Arc<str>>,
}

/// The question that a person answers before a call leaves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Asked {
    /// The text of the question.
    pub prompt: String,
    /// The time, in milliseconds since 1970, at which the call counts as denied.
    pub expires: u64,
    /// The whole arguments, if the question shows only a part of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Value>,
}

/// The first 128 bits of the SHA-256 of a call's interface, function and arguments, in hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CallDigest(pub Box<str>);

/// An observation of an attempt. It is recorded because it could be a different one when the attempt is repeated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Observed {
    /// The reply to a call that stays in the host.
    Answered(CallDigest, Result<Value, Box<Failure>>),
    /// The end of the call with this number.
    Delivered(u32),
    /// Nothing that the attempt waited for had arrived by this time (milliseconds since 1970).
    TimedOut(u64),
    /// The attempt took the message with this id.
    Message(Arc<str>),
    /// This agent run receives no more messages.
    Closing(Arc<str>),
}
