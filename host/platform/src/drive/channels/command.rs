//! Commands of front ends, one JSON object per line, such as `{ "verb": "reply", "gate": "approve", "answer": "yes" }`.
//! The member `verb` has the name of the command.

use flowcell_contract::{JSON_VALUES, Json};
use flowcell_runtime::{Hub, HubError, RunCommand};
use serde_json::{Value, json};

/// Maximum size in bytes of a command's line: the largest message to a run, and some room for the other members.
pub(super) const MAX_COMMAND_BYTES: usize = 1024 * 1024 + 4096;

/// The names of the commands, each with the required and the optional members. A command may also have an `id`, which
/// the answer repeats.
const COMMANDS: [(&str, &[&str], &[&str]); 7] = [
    ("send", &["content"], &[]),
    ("sendTo", &["node", "content"], &["messageId"]),
    ("sendToRun", &["agentRunId", "content"], &["messageId"]),
    ("reply", &["gate", "answer"], &["attempt", "digest"]),
    ("emit", &["name"], &["payload"]),
    ("closeRun", &["agentRunId"], &[]),
    ("abort", &[], &[]),
];

/// An error of a command.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The line is not a valid command.
    #[error("{0}")]
    Unreadable(String),
    /// The run refused the command.
    #[error(transparent)]
    Refused(#[from] HubError),
}

impl CommandError {
    /// Returns a stable error code.
    pub fn code(&self) -> &'static str {
        match self {
            CommandError::Unreadable(_) => "bad_request",
            CommandError::Refused(error) => error.code(),
        }
    }
}

/// Executes the command in a line. Returns the line with the answer: `{ "type": "channel:answer", "id"?, "ok": true }`.
/// If the command fails, `ok` is false, and `error` has a code and a sentence.
pub(super) async fn execute(line: &[u8], hub: &Hub) -> Value {
    let (id, command) = parse(line);
    let outcome = match command {
        Ok(command) => hub.request(command).await.map_err(CommandError::from),
        Err(error) => Err(error),
    };
    let refused = outcome.as_ref().err();
    build_answer(id, refused.map(|error| (error.code(), error.to_string())))
}

/// Returns the answer to a line that is too long.
pub(super) fn too_long_answer() -> Value {
    build_answer(None, Some((HubError::TooLarge.code(), HubError::TooLarge.to_string())))
}

/// Builds the answer to a command. An error has a code and a sentence.
pub fn build_answer(id: Option<Value>, error: Option<(&str, String)>) -> Value {
    let mut answer = json!({ "v": 1, "type": "channel:answer", "ok": error.is_none() });
    if let Some(id) = id {
        answer["id"] = id;
    }
    if let Some((code, message)) = error {
        answer["error"] = json!({ "code": code, "message": message });
    }
    answer
}

/// Parses a line as a command. Also returns the `id` of the line, if it has one.
pub fn parse(line: &[u8]) -> (Option<Value>, Result<RunCommand, CommandError>) {
    let unreadable = |why: &dyn std::fmt::Display| {
        let form = "write a command as a JSON object on one line, such as \
                    {\"verb\":\"reply\",\"gate\":\"approve\",\"answer\":\"yes\"}";
        CommandError::Unreadable(format!("{form}: {why}"))
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
    let command = check_members(&value).and_then(|()| serde_json::from_value(value).map_err(|error| error.to_string()));
    (id, command.map_err(|why| unreadable(&why)))
}

/// Checks that a line names a known command, and has all required and no unknown members.
fn check_members(line: &Value) -> Result<(), String> {
    let verb = line.get("verb").and_then(Value::as_str).ok_or("missing field `verb`")?;
    let (_, required, optional) = COMMANDS.iter().find(|(known, ..)| *known == verb).ok_or_else(|| {
        let known: Vec<_> = COMMANDS.iter().map(|(known, ..)| format!("`{known}`")).collect();
        format!("unknown variant `{verb}`, expected one of {}", known.join(", "))
    })?;
    let given = || line.as_object().into_iter().flat_map(|members| members.keys().map(String::as_str));
    let is_known = |key: &str| key == "verb" || required.contains(&key) || optional.contains(&key);
    if let Some(unknown) = given().find(|key| !is_known(key)) {
        return Err(format!("unknown field `{unknown}`"));
    }
    match required.iter().find(|key| line.get(**key).is_none()) {
        Some(missing) => Err(format!("missing field `{missing}`")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use flowcell_runtime::QuestionRef;

    use super::*;

    #[test]
    fn every_command_is_parsed() {
        let content = || Json::from("x");
        let write = |to: &str, message: Option<&str>| RunCommand::Write {
            to: to.into(),
            message: message.map(Into::into),
            value: content().into(),
        };
        let reply = |question| RunCommand::reply("g", content(), question);
        let table = [
            (json!({ "verb": "send", "content": "x" }), RunCommand::Send { content: content().into() }),
            (json!({ "verb": "sendTo", "node": "a", "content": "x" }), write("a", None)),
            (
                json!({ "verb": "sendToRun", "agentRunId": "agent-1", "content": "x", "messageId": "m" }),
                write("agent-1", Some("m")),
            ),
            (json!({ "verb": "reply", "gate": "g", "answer": "x" }), reply(QuestionRef::default())),
            (
                json!({ "verb": "reply", "gate": "g", "answer": "x", "attempt": 2, "digest": "d" }),
                reply(QuestionRef { attempt: Some(2), digest: Some("d".into()) }),
            ),
            (json!({ "verb": "emit", "name": "e" }), RunCommand::Emit { name: "e".into(), payload: Json::Null.into() }),
            (json!({ "verb": "closeRun", "agentRunId": "agent-1" }), RunCommand::CloseAgent { to: "agent-1".into() }),
            (json!({ "verb": "abort" }), RunCommand::Cancel),
        ];
        for (mut line, command) in table {
            line["id"] = json!(7);
            let (id, read) = parse(line.to_string().as_bytes());
            assert_eq!((id, read.unwrap()), (Some(json!(7)), command), "{line}");
        }
    }

    #[test]
    fn invalid_commands_are_refused_with_the_reason() {
        let table = [
            ("hello", "expected"),
            ("[]", "verb"),
            (r#"{"verb":"shout"}"#, "unknown variant `shout`, expected one of `send`, `sendTo`"),
            (r#"{"verb":"send"}"#, "missing field `content`"),
            (r#"{"verb":"sendTo","to":"a","content":"x"}"#, "unknown field `to`"),
            (r#"{"verb":"sendTo","content":"x"}"#, "missing field `node`"),
            (r#"{"verb":"abort","why":"x"}"#, "unknown field `why`"),
            (r#"{"verb":"resolve","task":"a","resolution":"repeat"}"#, "unknown variant `resolve`"),
        ];
        for (line, sentence) in table {
            let error = parse(line.as_bytes()).1.unwrap_err();
            assert!(error.code() == "bad_request" && error.to_string().contains(sentence), "{line}: {error}");
        }
    }
}
