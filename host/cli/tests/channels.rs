//! Tests channels of the real program: the events that webhooks, programs and files receive, and the commands that
//! programs send. Errors of a channel never fail the run.

#![cfg(unix)]

mod receiver;
mod voice;

use std::{fs, path::Path};

use serde_json::{Value, json};

use crate::{
    channels::receiver::Receiver,
    kit::{flowcell, root, stderr},
};

fn flow(name: &str) -> String {
    root().join("flows").join(name).display().to_string()
}

fn lines(file: &Path) -> Vec<Value> {
    let text = fs::read_to_string(file).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}"))).collect()
}

/// Writes a script for a channel. Returns the argument that runs it.
fn script(folder: &Path, text: &str) -> String {
    let file = folder.join("channel.sh");
    fs::write(&file, format!("set -u\n{text}")).unwrap();
    format!("exec:sh '{}'", file.display())
}

fn numbers(events: &[Value]) -> Vec<u64> {
    events.iter().filter_map(|event| event["seq"].as_u64()).collect()
}

fn dense(numbers: &[u64]) -> bool {
    numbers.iter().zip(0..).all(|(number, expected)| *number == expected)
}

#[test]
fn a_program_receives_all_events_and_answers_questions() {
    let folder = tempfile::tempdir().unwrap();
    let channel = script(
        folder.path(),
        r#"
        echo 'I listen' >&2
        echo 'what is this'
        while IFS= read -r line; do
          printf '%s\n' "$line" >>told.jsonl
          case $line in
            *'"type":"task:paused"'*)
              echo '{"verb":"reply","id":1,"gate":"approve","answer":"maybe"}'
              echo '{"verb":"reply","id":2,"gate":"approve","answer":"publish"}' ;;
          esac
        done
        "#,
    );
    let output =
        flowcell(folder.path()).args(["run", &flow("graph/gate.yaml"), "--channel", &channel]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("sh I listen"), "what it says is passed on: {}", stderr(&output));
    let told = lines(&folder.path().join("told.jsonl"));
    let kinds: Vec<_> = told.iter().map(|line| line["type"].as_str().unwrap()).collect();
    assert_eq!(kinds[0], "channel:start");
    assert_eq!(kinds.last(), Some(&"channel:complete"));
    assert_eq!(told.last().unwrap()["status"], "succeeded");
    assert!(dense(&numbers(&told)) && kinds.contains(&"harness:start") && kinds.contains(&"harness:complete"));
    let answers: Vec<_> = told.iter().filter(|line| line["type"] == "channel:answer").collect();
    assert_eq!(answers.len(), 3, "{answers:?}");
    assert_eq!(answers[0]["error"]["code"], "bad_request");
    assert_eq!((&answers[1]["id"], &answers[1]["error"]["code"]), (&json!(1), &json!("answer_refused")));
    assert_eq!(*answers[2], json!({ "v": 1, "type": "channel:answer", "ok": true, "id": 2 }));
}

#[test]
fn a_program_can_send_every_command_for_agents() {
    let folder = tempfile::tempdir().unwrap();
    let channel = script(
        folder.path(),
        r#"
        turns=0
        while IFS= read -r line; do
          printf '%s\n' "$line" >>told.jsonl
          case $line in
            *'"type":"agent:tool:permission"'*) echo '{"verb":"reply","gate":"assistant#3","answer":"allow"}' ;;
            *'"type":"agent:message"'*'There are 3'*)
              run=${line#*'"agentRunId":"'} run=${run%%'"'*}
              echo '{"verb":"send","content":{"hello":1}}'
              echo '{"verb":"emit","name":"tick"}'
              echo '{"verb":"sendToRun","agentRunId":"'"$run"'","content":"and how many letters?","messageId":"m1"}'
              echo '{"verb":"sendTo","node":"nobody","content":"x"}' ;;
            *'"type":"agent:message"'*'There are 4'*) echo '{"verb":"closeRun","agentRunId":"assistant"}' ;;
          esac
        done
        "#,
    );
    let flow = flow("agents/assistant.yaml");
    let output = flowcell(folder.path()).args(["run", &flow, "--quiet", "--channel", &channel]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let outputs: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(outputs, json!({ "answer": "There are 4 letters.", "turns": 2 }));
    let told = lines(&folder.path().join("told.jsonl"));
    let wrong: Vec<_> = told.iter().filter(|line| line["ok"] == false).map(|line| &line["error"]["code"]).collect();
    assert_eq!(wrong, ["run_not_active"]);
    let live = told.iter().filter(|line| line["type"] == "agent:text" && line["seq"].is_null()).count();
    assert!(live > 0, "text is told while it is written");
    for kind in ["session:message", "agent:inbox", "agent:complete"] {
        assert!(told.iter().any(|line| line["type"] == kind), "{kind}");
    }
}

#[test]
fn the_death_of_a_program_does_not_stop_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let output = flowcell(folder.path())
        .args(["run", &flow("graph/triage.yaml"), "--channel", "exec:sh -c 'read -r line; exit 7'"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("the channel `sh` ended before the run (exit status: 7)"), "{}", stderr(&output));
    // The run stops waiting for the program's answers, and parks.
    let output = flowcell(folder.path())
        .args(["run", &flow("graph/gate.yaml"), "--channel", "exec:sh -c 'exit 0'"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    let output = flowcell(folder.path())
        .args(["run", &flow("graph/gate.yaml"), "--channel", "exec:no-such-program-here"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("cannot start the channel `no-such-program-here`"), "{}", stderr(&output));
}

#[test]
fn a_program_may_abort_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let channel = script(
        folder.path(),
        "while read -r line; do case $line in *task:paused*) echo '{\"verb\":\"abort\"}';; esac; done",
    );
    let output =
        flowcell(folder.path()).args(["run", &flow("graph/gate.yaml"), "--channel", &channel]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("was cancelled"), "{}", stderr(&output));
}

#[test]
fn a_webhook_gets_every_event_once_and_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(|_| "204 No Content");
    let output = flowcell(folder.path())
        .args(["run", &flow("agents/assistant.yaml"), "--quiet", "--channel", &receiver.channel()])
        .args(["--allow-private", "127.0.0.1", "--webhook-secret", "env:HOOK_SECRET"])
        .env("HOOK_SECRET", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3), "the agent waits for somebody: {}", stderr(&output));
    let posts = receiver.posts();
    let events: Vec<_> = posts.iter().flat_map(|post| post.body["events"].as_array().unwrap().clone()).collect();
    assert!(dense(&numbers(&events)), "{:?}", numbers(&events));
    assert_eq!(events.last().unwrap()["type"], "harness:parked");
    for post in &posts {
        assert!(post.head.contains("webhook-signature: v1,"), "{}", post.head);
        assert_eq!((&post.body["v"], &post.body["runId"]), (&json!(1), &events[0]["runId"]));
    }
    // A channel of the process that resumes the run receives the further events.
    let run = events[0]["runId"].as_str().unwrap();
    let output = flowcell(folder.path())
        .args(["runs", "resume", run, "--answer", "assistant#3=deny", "--quiet", "--channel", &receiver.channel()])
        .args(["--allow-private", "127.0.0.1"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    let later: Vec<_> = receiver.posts()[posts.len()..]
        .iter()
        .flat_map(|post| post.body["events"].as_array().unwrap().clone())
        .collect();
    assert_eq!(later[0]["type"], "harness:resumed");
    // The answer is recorded before the run is resumed. The channel receives the events after it.
    let seqs = numbers(&later);
    assert!(seqs.windows(2).all(|pair| pair[1] == pair[0] + 1), "{seqs:?}");
    assert!(seqs[0] > numbers(&events).len() as u64, "{seqs:?}");
}

#[test]
fn a_refusing_webhook_is_reported_and_does_not_affect_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(|_| "400 Bad Request");
    let output = flowcell(folder.path())
        .args(["run", &flow("graph/triage.yaml"), "--run-id", "a", "--channel", &receiver.channel()])
        .args(["--allow-private", "127.0.0.1"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let said = stderr(&output);
    assert!(said.contains("the host sends no more events to the webhook: http://127.0.0.1:"), "{said}");
    assert!(said.contains("it answered 400; `flowcell runs events a --from 0` prints the others"), "{said}");
    assert_eq!(receiver.posts().len(), 1);
}

#[test]
fn webhooks_to_private_addresses_need_permission() {
    let folder = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(|_| "204 No Content");
    let output = flowcell(folder.path())
        .args(["run", &flow("graph/triage.yaml"), "--channel", &receiver.channel()])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("--allow-private 127.0.0.1:"), "{}", stderr(&output));
    assert!(receiver.posts().is_empty() && output.stdout.is_empty(), "nothing ran");
}

#[test]
fn a_file_receives_live_deltas_and_recorded_events() {
    let folder = tempfile::tempdir().unwrap();
    let output = flowcell(folder.path())
        .args(["run", &flow("agents/research.yaml"), "--simulate", "model", "--quiet", "--channel", "jsonl:all.jsonl"])
        .args(["--events", "recorded.jsonl"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let (all, recorded) = (lines(&folder.path().join("all.jsonl")), lines(&folder.path().join("recorded.jsonl")));
    assert!(all.iter().any(|line| line["type"] == "agent:text") && recorded.iter().all(|line| line["seq"].is_u64()));
    let kept: Vec<_> = all.into_iter().filter(|line| line["seq"].is_u64()).collect();
    assert_eq!(kept, recorded);
}

#[test]
fn processes_that_drive_many_runs_send_the_events_of_each() {
    let folder = tempfile::tempdir().unwrap();
    for id in ["a", "b"] {
        let output =
            flowcell(folder.path()).args(["run", &flow("graph/hello.yaml"), "--detach", "--run-id", id]).output();
        assert!(output.unwrap().status.success());
    }
    let channel =
        script(folder.path(), "read -r first; printf '%s\\n' \"$first\" >>programs; while read -r line; do :; done");
    let output = flowcell(folder.path())
        .args(["drive", "--once", "--channel", "jsonl:all.jsonl", "--channel", &channel, "--channel", "terminal"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let all = lines(&folder.path().join("all.jsonl"));
    for id in ["a", "b"] {
        assert!(all.iter().any(|line| line["runId"] == id && line["type"] == "harness:complete"), "{id}");
        assert!(stderr(&output).contains("done in"), "the console tells of tasks: {}", stderr(&output));
    }
    assert_eq!(lines(&folder.path().join("programs")).len(), 2, "a program for each run");
}
