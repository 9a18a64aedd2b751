//! The forms of commands, each read into the one enum.

use flowcell_contract::Json;

use crate::{
    command::{RunCommand, Stored},
    fact::Resolution,
    question::QuestionRef,
};

/// Returns each command with its form at the control socket, that of front ends, and that in the inbox of a shared
/// store.
fn table() -> Vec<(RunCommand, &'static str, Option<&'static str>, &'static str)> {
    let answer = || Json::object([("content", Json::from("yes"))]);
    let text = || Json::from("x").into();
    vec![
        (
            RunCommand::Send { content: text() },
            r#"{"verb":"send","content":"x"}"#,
            Some(r#"{"verb":"send","content":"x"}"#),
            r#"{"Send":"x"}"#,
        ),
        (
            RunCommand::reply("g", answer(), QuestionRef { attempt: Some(2), digest: Some("d".into()) }),
            r#"{"verb":"reply","gate":"g","answer":{"content":"yes"},"question":{"attempt":2,"digest":"d"}}"#,
            Some(r#"{"verb":"reply","gate":"g","answer":"yes","attempt":2,"digest":"d"}"#),
            r#"{"Reply":{"gate":"g","answer":{"content":"yes"},"question":{"attempt":2,"digest":"d"}}}"#,
        ),
        (
            RunCommand::Emit { name: "e".into(), payload: text() },
            r#"{"verb":"emit","name":"e","payload":"x"}"#,
            Some(r#"{"verb":"emit","name":"e","payload":"x"}"#),
            r#"{"Emit":{"name":"e","payload":"x"}}"#,
        ),
        (
            RunCommand::Resolve { task: "a".into(), resolution: Resolution::Repeat },
            r#"{"verb":"resolve","task":"a","resolution":"repeat"}"#,
            None,
            r#"{"Resolve":{"task":"a","resolution":"repeat"}}"#,
        ),
        (
            RunCommand::Write { to: "a".into(), message: None, value: text() },
            r#"{"verb":"write","to":"a","id":null,"content":"x"}"#,
            Some(r#"{"verb":"sendTo","node":"a","content":"x"}"#),
            r#"{"Write":{"to":"a","message":null,"value":"x"}}"#,
        ),
        (
            RunCommand::Write { to: "agent-1".into(), message: Some("m".into()), value: text() },
            r#"{"verb":"write","to":"agent-1","id":"m","content":"x"}"#,
            Some(r#"{"verb":"sendToRun","agentRunId":"agent-1","content":"x","messageId":"m"}"#),
            r#"{"Write":{"to":"agent-1","message":"m","value":"x"}}"#,
        ),
        (
            RunCommand::CloseAgent { to: "agent-1".into() },
            r#"{"verb":"closeAgent","to":"agent-1"}"#,
            Some(r#"{"verb":"closeRun","agentRunId":"agent-1"}"#),
            r#"{"CloseAgent":{"to":"agent-1"}}"#,
        ),
        (RunCommand::Cancel, r#"{"verb":"cancel"}"#, Some(r#"{"verb":"abort"}"#), r#""Cancel""#),
    ]
}

#[test]
fn every_form_is_read_into_one_enum() {
    for (command, control, front_end, stored) in table() {
        for form in [Some(control), front_end].into_iter().flatten() {
            assert_eq!(serde_json::from_str::<RunCommand>(form).unwrap(), command, "{form}");
        }
        assert_eq!(serde_json::from_str::<Stored>(stored).unwrap().0, command, "{stored}");
    }
}

#[test]
fn the_forms_that_other_processes_read_are_written_as_before() {
    for (command, control, _, stored) in table() {
        assert_eq!(serde_json::to_string(&command).unwrap(), control);
        assert_eq!(serde_json::to_string(&Stored(command)).unwrap(), stored);
    }
}
