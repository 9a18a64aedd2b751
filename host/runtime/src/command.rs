//! Commands to a run, and the reasons to refuse them.
//!
//! One enum serves every interface. The control socket uses the names of its variants and fields. Front ends, the
//! HTTP interface and MCP tools use the aliases. [`Stored`] is the form in the inbox of a shared store.

use flowcell_contract::{Json, Value};
use serde::{Deserialize, Deserializer, Serialize};

use crate::{
    fact::Resolution,
    limits::{MAX_INBOX_BYTES, MAX_KEPT_EVENT_BYTES, MAX_KEPT_EVENTS, MAX_MESSAGE_ID_BYTES, MAX_REQUEST_BYTES},
    question::{Closed, QuestionRef},
};

/// A command to a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum RunCommand {
    /// Sends a message to the run.
    Send {
        /// The content of the message, any JSON.
        content: Value,
    },
    /// Answers a question.
    #[serde(deserialize_with = "reply")]
    Reply {
        /// The address of the node that asks.
        gate: String,
        /// The answer: `{ "content", "choice"? }`.
        answer: Json,
        /// The question that the command answers. Default: the question that is open when the run receives the
        /// answer.
        question: QuestionRef,
    },
    /// Sends a named event.
    Emit {
        /// The name of the event.
        name: String,
        /// The value of the event.
        #[serde(default)]
        payload: Value,
    },
    /// Decides about a blocked task.
    Resolve {
        /// The address of the task.
        task: String,
        /// The decision about the blocked task.
        resolution: Resolution,
    },
    /// Writes to an agent run.
    #[serde(alias = "sendTo", alias = "sendToRun")]
    Write {
        /// The agent run's id, or the address of its task; for a child run, prefixed by the calling task, as
        /// `review/…`.
        #[serde(alias = "node", alias = "agentRunId")]
        to: String,
        /// The id by which the run recognises a message that arrives twice. `None`: the run assigns a new id.
        #[serde(default, rename = "id", alias = "messageId")]
        message: Option<String>,
        /// A text, or an object with a member `content`.
        #[serde(rename = "content")]
        value: Value,
    },
    /// Asks an agent run to finish.
    #[serde(alias = "closeRun")]
    CloseAgent {
        /// The agent run's id, or the address of its task; for a child run, prefixed by the calling task, as
        /// `review/…`.
        #[serde(alias = "agentRunId")]
        to: String,
    },
    /// Cancels the run.
    #[serde(alias = "abort")]
    Cancel,
}

impl RunCommand {
    /// Returns the command that answers a question. A text becomes the `content` of the answer.
    pub fn reply(gate: impl Into<String>, answer: Json, question: QuestionRef) -> RunCommand {
        RunCommand::Reply { gate: gate.into(), answer: with_content(answer), question }
    }

    /// Returns the name by which the control socket calls the command.
    pub fn verb(&self) -> &'static str {
        match self {
            RunCommand::Send { .. } => "send",
            RunCommand::Reply { .. } => "reply",
            RunCommand::Emit { .. } => "emit",
            RunCommand::Resolve { .. } => "resolve",
            RunCommand::Write { .. } => "write",
            RunCommand::CloseAgent { .. } => "closeAgent",
            RunCommand::Cancel => "cancel",
        }
    }

    /// Returns true if the command exceeds a limit: that of its names and texts together, or that of a message id.
    pub(crate) fn is_too_large(&self) -> bool {
        if let RunCommand::Write { message: Some(id), .. } = self
            && id.len() > MAX_MESSAGE_ID_BYTES
        {
            return true;
        }
        let bytes = match self {
            RunCommand::Send { content } => content.text().len(),
            RunCommand::Emit { name, payload } => name.len() + payload.text().len(),
            RunCommand::Write { to, message, value } => {
                to.len() + message.as_ref().map_or(0, String::len) + value.text().len()
            }
            RunCommand::Reply { gate, answer, question: _ } => gate.len() + answer.to_text().len(),
            RunCommand::Resolve { task, resolution } => task.len() + resolution.bytes(),
            RunCommand::CloseAgent { to } => to.len(),
            RunCommand::Cancel => 0,
        };
        bytes > MAX_REQUEST_BYTES
    }

    /// Splits the address at its first `/`. Returns the address of the task that called a child, and the command to
    /// that child with the remaining address. `None`: the command is for this run.
    pub(crate) fn for_child(&self) -> Option<(String, RunCommand)> {
        let mut command = self.clone();
        let (RunCommand::Reply { gate: address, .. }
        | RunCommand::Resolve { task: address, .. }
        | RunCommand::Write { to: address, .. }
        | RunCommand::CloseAgent { to: address }) = &mut command
        else {
            return None;
        };
        let (task, inner) = address.split_once('/')?;
        let task = task.to_owned();
        *address = inner.to_owned();
        Some((task, command))
    }

    /// Returns the refusal of a command whose address leads to no child run.
    pub(crate) fn no_child_error(&self) -> HubError {
        match self {
            RunCommand::Resolve { .. } => HubError::NotBlocked,
            RunCommand::Write { .. } | RunCommand::CloseAgent { .. } => HubError::AgentNotActive,
            _ => HubError::NotOpen(Closed::NoNode),
        }
    }
}

/// Reads the members of a reply. The control socket names the question in `question`; the other interfaces put
/// `attempt` and `digest` beside the answer.
fn reply<'de, D: Deserializer<'de>>(from: D) -> Result<(String, Json, QuestionRef), D::Error> {
    #[derive(Deserialize)]
    struct Members {
        gate: String,
        answer: Json,
        #[serde(default)]
        question: QuestionRef,
        attempt: Option<u32>,
        digest: Option<Box<str>>,
    }
    let Members { gate, answer, question, attempt, digest } = Members::deserialize(from)?;
    let question = QuestionRef { attempt: question.attempt.or(attempt), digest: question.digest.or(digest) };
    Ok((gate, with_content(answer), question))
}

/// Converts a plain text to `{ "content": text }`. Returns any other answer unchanged.
fn with_content(answer: Json) -> Json {
    if answer.as_str().is_some() { Json::object([("content", answer)]) } else { answer }
}

/// A command in the inbox of a shared store.
#[derive(Serialize, Deserialize)]
pub(crate) struct Stored(#[serde(with = "StoredCommand")] pub(crate) RunCommand);

#[derive(Serialize, Deserialize)]
#[serde(remote = "RunCommand")]
enum StoredCommand {
    #[serde(serialize_with = "Serialize::serialize", deserialize_with = "Deserialize::deserialize")]
    Send {
        content: Value,
    },
    Reply {
        gate: String,
        answer: Json,
        #[serde(default)]
        question: QuestionRef,
    },
    Emit {
        name: String,
        payload: Value,
    },
    Resolve {
        task: String,
        resolution: Resolution,
    },
    Write {
        to: String,
        message: Option<String>,
        value: Value,
    },
    CloseAgent {
        to: String,
    },
    Cancel,
}

/// The reason why a command was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HubError {
    /// The caller has not yet allowed commands by `start_session`.
    SessionNotStarted,
    /// The run has ended.
    RunEnded,
    /// No such question is open, and the reason is unknown: a process of an older version has refused the command.
    GateClosed,
    /// No such question is open, for this reason.
    NotOpen(Closed),
    /// The question does not allow the answer. The gate stays open.
    AnswerRefused(String),
    /// No such task is blocked.
    NotBlocked,
    /// No such agent run is open, or it accepts no messages.
    AgentNotActive,
    /// The agent run's inbox is full.
    InboxFull,
    /// The content is too large.
    TooLarge,
    /// Too many named events are kept.
    TooManyEvents,
}

impl HubError {
    /// Returns the stable code of the refusal.
    pub fn code(&self) -> &'static str {
        match self {
            HubError::SessionNotStarted => "session_not_started",
            HubError::RunEnded => "run_not_active",
            HubError::GateClosed | HubError::NotOpen(_) => "gate_closed",
            HubError::AnswerRefused(_) => "answer_refused",
            HubError::NotBlocked => "not_blocked",
            HubError::AgentNotActive => "run_not_active",
            HubError::InboxFull => "inbox_full",
            HubError::TooLarge => "too_large",
            HubError::TooManyEvents => "too_many_events",
        }
    }
}

impl HubError {
    /// Reads the refusal of another process from its code and the text that this type displays.
    pub fn parse(code: &str, text: &str) -> HubError {
        let all = [
            HubError::SessionNotStarted,
            HubError::GateClosed,
            HubError::NotBlocked,
            HubError::InboxFull,
            HubError::TooLarge,
            HubError::TooManyEvents,
        ];
        match all.into_iter().find(|error| error.code() == code) {
            Some(error) => error,
            None if code == HubError::RunEnded.code() => HubError::RunEnded,
            None => HubError::AnswerRefused(text.strip_prefix(&format!("{code}: ")).unwrap_or(text).to_owned()),
        }
    }

    /// Returns the message without the code.
    pub fn message(&self) -> String {
        match self {
            HubError::SessionNotStarted => "the session is not started: call `start_session` first".into(),
            HubError::RunEnded => "the run has ended".into(),
            HubError::GateClosed => "no question is open at this address".into(),
            HubError::NotOpen(closed) => closed.message(),
            HubError::AnswerRefused(why) => why.clone(),
            HubError::NotBlocked => "no task at this address waits for a decision".into(),
            HubError::AgentNotActive => "no agent run with this id or node is open".into(),
            HubError::InboxFull => format!(
                "the inbox of the agent run is full: it has the maximum number of messages, or {MAX_INBOX_BYTES} \
                 bytes of JSON text for all agent runs of the task; send the message again later"
            ),
            HubError::TooLarge => format!(
                "a request may have at most {MAX_REQUEST_BYTES} bytes of JSON text, and the id of a message at most \
                 {MAX_MESSAGE_ID_BYTES} bytes"
            ),
            HubError::TooManyEvents => format!(
                "the run stores the maximum of events for later waits: {MAX_KEPT_EVENTS}, or {MAX_KEPT_EVENT_BYTES} \
                 bytes of JSON text; send the event again after a node has waited for some"
            ),
        }
    }
}

impl std::fmt::Display for HubError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}: {}", self.code(), self.message())
    }
}

impl std::error::Error for HubError {}

impl From<Closed> for HubError {
    fn from(closed: Closed) -> HubError {
        HubError::NotOpen(closed)
    }
}
