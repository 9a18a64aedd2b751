//! Tests conversations with runs, with lines from a pipe: in the process that drives the run, and in another one
//! through its control socket.

#![cfg(unix)]

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, Output, Stdio},
};

use crate::kit::{self, Running, root, stderr, stdout};

fn flow(name: &str) -> String {
    root().join("flows").join(name).display().to_string()
}

fn flowcell(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = kit::flowcell(folder);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs a command with these lines on standard input.
fn run_with_lines(mut command: Command, lines: &str) -> Output {
    let mut child = Running::from(command.spawn().unwrap());
    // Writing fails if the command has already ended.
    let _ = child.stdin.take().unwrap().write_all(lines.as_bytes());
    child.wait_with_output().unwrap()
}

const BOTH: &str = "assistant: There are 3 parcels.\nassistant: There are 4 letters.\n";
const ALL: &str = "allow\nand how many letters?\n/close\n";

#[test]
fn a_conversation_begins_with_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let output = run_with_lines(flowcell(folder.path(), &["run", &flow("agents/assistant.yaml"), "--chat"]), ALL);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(stdout(&output), BOTH);
    for line in ["assistant#3 asks: ", "assistant calls data.set", "assistant listens", "assistant is done (closed)"] {
        assert!(stderr(&output).contains(line), "{line}: {}", stderr(&output));
    }
}

#[test]
fn a_conversation_continues_where_the_person_left_it() {
    let folder = tempfile::tempdir().unwrap();
    let run = ["run", &flow("agents/assistant.yaml"), "--run-id", "a", "--chat"];
    // The input ends while the agent listens, so the run is parked.
    let output = run_with_lines(flowcell(folder.path(), &run), "1\n");
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(3), "assistant: There are 3 parcels.\n"));
    // The person leaves in the middle.
    let output = run_with_lines(flowcell(folder.path(), &["chat", "a"]), "/who\n/quit\n");
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(3), "assistant: There are 3 parcels.\n"));
    assert!(stderr(&output).contains("open: assistant (listens)"), "{}", stderr(&output));
    let output = run_with_lines(
        flowcell(folder.path(), &["chat", "a"]),
        "/to nobody\n/shout\nand how many letters?\n/close assistant\n",
    );
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(stdout(&output), BOTH);
    for line in ["the agent `nobody` is not open; open: assistant (listens)", "unknown command `/shout`"] {
        assert!(stderr(&output).contains(line), "{line}: {}", stderr(&output));
    }
    let output = run_with_lines(flowcell(folder.path(), &["chat", "b"]), "");
    assert!(
        output.status.code() == Some(2) && stderr(&output).contains("the store has no run `b`"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_question_is_asked_again_after_an_invalid_answer() {
    let folder = tempfile::tempdir().unwrap();
    let output = run_with_lines(flowcell(folder.path(), &["run", &flow("graph/gate.yaml"), "--chat"]), "perhaps\n2\n");
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("`approve` does not take `perhaps`; it takes publish|discard"),
        "{}",
        stderr(&output)
    );
    let output = run_with_lines(flowcell(folder.path(), &["run", &flow("graph/gate.yaml"), "--chat"]), "/abort\n");
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
}

/// Starts a process that drives the run `a` without any input. Returns once its agent has asked.
fn owner(folder: &Path) -> Running {
    let run = ["run", &flow("agents/assistant.yaml"), "--run-id", "a", "--chat"];
    let mut owner = Running::from(flowcell(folder, &run).spawn().unwrap());
    let mut lines = BufReader::new(owner.stderr.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("asks:")));
    // Read the later output, so that the process does not block.
    std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
    owner
}

#[test]
fn a_conversation_reaches_a_run_of_another_process() {
    let folder = tempfile::tempdir().unwrap();
    let owner = owner(folder.path());
    let left = run_with_lines(flowcell(folder.path(), &["chat", "a"]), "/quit\n");
    assert!(left.status.success() && stderr(&left).contains("left; the run continues"), "{}", stderr(&left));
    let output = run_with_lines(flowcell(folder.path(), &["chat", "a"]), ALL);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(stdout(&output), BOTH);
    let owner = owner.wait_with_output().unwrap();
    assert!(owner.status.success());
    assert_eq!(stdout(&owner), BOTH, "both hear what the agent says");
    let unknown = run_with_lines(flowcell(folder.path(), &["chat", "b"]), "");
    assert_eq!(unknown.status.code(), Some(2), "{}", stderr(&unknown));
}

#[test]
fn a_conversation_reaches_a_detached_run_through_its_driver() {
    let folder = tempfile::tempdir().unwrap();
    let accepted =
        flowcell(folder.path(), &["run", &flow("agents/assistant.yaml"), "--run-id", "a", "--detach"]).output();
    assert!(accepted.unwrap().status.success());
    let mut drive = Running::from(flowcell(folder.path(), &["drive"]).spawn().unwrap());
    let first = BufReader::new(drive.stderr.take().unwrap()).lines().next().unwrap().unwrap();
    assert!(first.contains("driving the runs"), "{first}");
    let output = run_with_lines(flowcell(folder.path(), &["chat", "a"]), ALL);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(stdout(&output), BOTH);
}
