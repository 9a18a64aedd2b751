//! Calls that leave the host, as the journal holds them, and the answers that an attempt has seen between them.

use std::sync::Arc;

use flowcell_contract::{Effect, Failure, Json, Value};
use serde::{Deserialize, Serialize};

/// A call as it is recorded before it leaves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallRecord {
    /// Its number within the attempt, from 1.
    pub ordinal: u32,
    /// The capability.
    pub interface: Arc<str>,
    /// Its function.
    pub function: Arc<str>,
    /// The digest of interface, function and arguments.
    pub digest: CallDigest,
    /// The effect that it may have outside.
    pub effect: Effect,
    /// The idempotency key.
    pub key: Arc<str>,
    /// The part that people see.
    pub about: Json,
    /// The arguments with long texts cut, for readers of the inputs of tasks.
    #[serde(default, skip_serializing_if = "Json::is_null")]
    pub preview: Json,
    /// The agent run that makes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Box<ForAgent>>,
    /// The question that a person answers before it leaves.
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
    /// The id that the model gave to its tool call, if it is one.
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

/// An observation of an attempt that would differ at another time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Observed {
    /// The reply to a call that stays in the host.
    Answered(CallDigest, Result<Value, Box<Failure>>),
    /// The end of this call.
    Delivered(u32),
    /// Nothing had arrived by this time.
    TimedOut(u64),
    /// This message.
    Message(Arc<str>),
    /// This agent run gets no more messages.
    Closing(Arc<str>),
}
