//! What a front end may ask of a run, one JSON object a line.

use flowcell_contract::{JSON_VALUES, Json};
use flowcell_runtime::{Hub, HubError, QuestionRef, Request};
use serde::Deserialize;
use serde_json::{Value, json};

/// Bytes of a line with a verb: what may be sent to a run, with room for what stands around it.
pub(super) const MAX_VERB: usize = 1024 * 1024 + 4096;

/// A verb of the hub's, such as `{ "verb": "reply", "gate": "approve", "answer": "yes" }`. A member `id` may stand beside, and
/// is repeated in the answer.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "verb", rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum Verb {
    /// Says something to the run.
    Send {
        /// What.
        content: Json,
    },
    /// Writes to the latest open agent run of a node.
    SendTo {
        /// The address of the node.
        node: String,
        /// What.
        content: Json,
        /// What the message is recognised by if it is sent twice.
        message_id: Option<String>,
    },
    /// Writes to an agent run.
    SendToRun {
        /// Its id.
        agent_run_id: String,
        /// What.
        content: Json,
        /// What the message is recognised by if it is sent twice.
        message_id: Option<String>,
    },
    /// Answers a question, or whether a tool may be called.
    Reply {
        /// The address of the gate.
        gate: String,
        /// A text, or `{ "content", "choice"? }`.
        answer: Json,
        /// The attempt that asked, as the question names it.
        attempt: Option<u32>,
        /// The digest of the question, as the question names it.
        digest: Option<Box<str>>,
    },
    /// Sends a named event.
    Emit {
        /// Its name.
        name: String,
        /// What it brings.
        #[serde(default)]
        payload: Json,
    },
    /// Asks an agent run to finish.
    CloseRun {
        /// Its id, or the address of its node.
        agent_run_id: String,
    },
    /// Cancels the run.
    Abort {},
}

/// Why nothing came of a line.
#[derive(Debug, thiserror::Error)]
pub enum VerbError {
    /// It is no verb.
    #[error("{0}")]
    Unreadable(String),
    /// The run refused.
    #[error(transparent)]
    Refused(#[from] HubError),
}

impl VerbError {
    /// A stable code.
    pub fn code(&self) -> &'static str {
        match self {
            VerbError::Unreadable(_) => "bad_request",
            VerbError::Refused(error) => error.code(),
        }
    }
}

impl Verb {
    /// What it asks of a run.
    pub fn request(self) -> Request {
        match self {
            Verb::Send { content } => Request::Send(content.into()),
            Verb::SendTo { node: to, content, message_id: message }
            | Verb::SendToRun { agent_run_id: to, content, message_id: message } => {
                Request::Write { to, message, value: content.into() }
            }
            Verb::Reply { gate, answer, attempt, digest } => {
                Request::Reply { gate, answer: whole(answer), question: QuestionRef { attempt, digest } }
            }
            Verb::Emit { name, payload } => Request::Emit { name, payload: payload.into() },
            Verb::CloseRun { agent_run_id: to } => Request::CloseAgent { to },
            Verb::Abort {} => Request::Cancel,
        }
    }
}

/// A text is the whole of an answer.
pub fn whole(answer: Json) -> Json {
    if answer.as_str().is_some() { Json::object([("content", answer)]) } else { answer }
}

/// Does what a line says. Answers what is to be told about that: `{ "type": "channel:answer", "id"?, "ok": true }`, or with
/// `ok` false and an `error`.
pub(super) async fn obey(line: &[u8], hub: &Hub) -> Value {
    let (id, verb) = read(line);
    let outcome = match verb {
        Ok(verb) => hub.request(verb.request()).await.map_err(VerbError::from),
        Err(error) => Err(error),
    };
    let refused = outcome.as_ref().err();
    answer(id, refused.map(|error| (error.code(), error.to_string())))
}

/// The answer to a line that is longer than it may be.
pub(super) fn too_long() -> Value {
    answer(None, Some((HubError::TooLarge.code(), HubError::TooLarge.to_string())))
}

/// The answer to a verb, by the code and the sentence of what refused it.
pub fn answer(id: Option<Value>, error: Option<(&str, String)>) -> Value {
    let mut answer = json!({ "v": 1, "type": "channel:answer", "ok": error.is_none() });
    if let Some(id) = id {
        answer["id"] = id;
    }
    if let Some((code, message)) = error {
        answer["error"] = json!({ "code": code, "message": message });
    }
    answer
}

/// Reads a verb, and the id that stands beside it.
pub fn read(line: &[u8]) -> (Option<Value>, Result<Verb, VerbError>) {
    let unreadable = |why: &dyn std::fmt::Display| {
        let form = "a verb is one JSON object on one line, such as {\"verb\":\"reply\",\"gate\":\"approve\",\"answer\":\"yes\"}";
        VerbError::Unreadable(format!("{form}: {why}"))
    };
    if Json::has_too_many_values(line) {
        return (None, Err(unreadable(&format!("it has more than {JSON_VALUES} values"))));
    }
    let text = String::from_utf8_lossy(line);
    let read = serde_json::from_slice(line).and_then(|value| Json::check_numbers(&text).map(|()| value));
    let mut value: Value = match read {
        Ok(value) => value,
        Err(error) => return (None, Err(unreadable(&error))),
    };
    let id = value.as_object_mut().and_then(|members| members.remove("id"));
    (id, serde_json::from_value(value).map_err(|error| unreadable(&error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verb_has_one_form() {
        let content = || Json::from("x");
        let (node, name, gate) = ("a".to_owned(), "e".to_owned(), "g".to_owned());
        let agent_run_id = "agent-1".to_owned();
        let table = [
            (json!({ "verb": "send", "content": "x" }), Verb::Send { content: content() }),
            (
                json!({ "verb": "sendTo", "node": "a", "content": "x" }),
                Verb::SendTo { node, content: content(), message_id: None },
            ),
            (
                json!({ "verb": "sendToRun", "agentRunId": "agent-1", "content": "x", "messageId": "m" }),
                Verb::SendToRun {
                    agent_run_id: agent_run_id.clone(),
                    content: content(),
                    message_id: Some("m".into()),
                },
            ),
            (
                json!({ "verb": "reply", "gate": "g", "answer": "x" }),
                Verb::Reply { gate: gate.clone(), answer: content(), attempt: None, digest: None },
            ),
            (
                json!({ "verb": "reply", "gate": "g", "answer": "x", "attempt": 2, "digest": "d" }),
                Verb::Reply { gate, answer: content(), attempt: Some(2), digest: Some("d".into()) },
            ),
            (json!({ "verb": "emit", "name": "e" }), Verb::Emit { name, payload: Json::Null }),
            (json!({ "verb": "closeRun", "agentRunId": "agent-1" }), Verb::CloseRun { agent_run_id }),
            (json!({ "verb": "abort" }), Verb::Abort {}),
        ];
        for (mut line, verb) in table {
            line["id"] = json!(7);
            let (id, read) = read(line.to_string().as_bytes());
            assert_eq!((id, read.unwrap()), (Some(json!(7)), verb), "{line}");
        }
        assert_eq!(whole(Json::from("yes")).to_text(), r#"{"content":"yes"}"#);
    }

    #[test]
    fn what_is_no_verb_says_why() {
        let table = [
            ("hello", "expected"),
            ("[]", "verb"),
            (r#"{"verb":"shout"}"#, "unknown variant `shout`"),
            (r#"{"verb":"send"}"#, "missing field `content`"),
            (r#"{"verb":"abort","why":"x"}"#, "unknown field `why`"),
        ];
        for (line, sentence) in table {
            let error = read(line.as_bytes()).1.unwrap_err();
            assert!(error.code() == "bad_request" && error.to_string().contains(sentence), "{line}: {error}");
        }
    }
}
