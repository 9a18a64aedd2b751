//! Tests runs that one process hands to the store's owner and follows.

#![cfg(unix)]

mod driven;
mod ended;
mod renamed;

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, ChildStderr, Output, Stdio},
};

use serde_json::{Value, json};

use crate::kit::{self, flowcell, output_of, stderr};

const ASKS: &str = "
flow: { name: asks, outputs: { said: '{{ ask.response.choice }}' } }
nodes: [{ id: ask, type: control.gate, input: { prompt: 'Well?', choices: ['yes', 'no'] } }]
edges: []
";
/// A flow that waits for an event, or for an hour, which is longer than any test.
const WAITS: &str = "
flow: { name: waits, outputs: { said: '{{ wait.event.payload }}' } }
nodes: [{ id: wait, type: control.wait, input: { ms: 3600000, until: go } }]
edges: []
";
/// A flow that asks a question, and at the same time waits for an event or for an hour.
const BOTH: &str = "
flow: { name: both, outputs: { said: '{{ ask.response.choice }}' } }
nodes:
  - { id: ask, type: control.gate, input: { prompt: 'Well?', choices: ['yes', 'no'] } }
  - { id: wait, type: control.wait, input: { ms: 3600000, until: go } }
edges: []
";
/// A flow that calls another flow, which asks a question.
const CALLS: &str = "
flow: { name: calls, outputs: { said: '{{ first.outputs.said }}' } }
nodes: [{ id: first, type: control.subflow, input: { name: asks } }]
edges: []
";
/// A flow that asks a question in each pass of a body.
const PASSES: &str = "
flow: { name: passes, outputs: { said: '{{ each.items[0] }}' } }
nodes:
  - { id: each, type: control.foreach, input: { list: [1] }, body: [ask], bodyOutput: '{{ ask.response.choice }}' }
  - { id: ask, type: control.gate, input: { prompt: 'Well?', choices: ['yes', 'no'] } }
edges: []
";
/// A flow that asks two questions, one after the other.
const TWO: &str = "
flow: { name: two, outputs: { said: '{{ second.response.choice }}' } }
nodes:
  - { id: first, type: control.gate, input: { prompt: 'Well?', choices: ['yes', 'no'] } }
  - { id: second, type: control.gate, input: { prompt: 'Sure?', choices: ['yes', 'no'] } }
edges: [{ from: first, to: second }]
";
/// A flow that asks a question, and then makes a request.
const PAYS: &str = "
flow: { name: pays, outputs: { paid: '{{ pay.body.simulated }}' } }
nodes:
  - { id: ask, type: control.gate, input: { prompt: 'Pay?', choices: ['yes', 'no'] } }
  - { id: pay, type: http.request, input: { method: POST, url: 'https://pay.invalid/' }, grants: { http: ['https://pay.invalid'] } }
edges: [{ from: ask, to: pay }]
";
const HELLO: &str = "
flow: { name: hello, input: { who: world }, outputs: { said: '{{ say.text }}' } }
nodes: [{ id: say, type: data.template, input: { template: 'Hello {{ flow.input.who }}' } }]
edges: []
";

fn project_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("flows")).unwrap();
    let flows = [
        ("asks", ASKS),
        ("waits", WAITS),
        ("hello", HELLO),
        ("both", BOTH),
        ("calls", CALLS),
        ("passes", PASSES),
        ("two", TWO),
        ("pays", PAYS),
    ];
    for (name, text) in flows {
        fs::write(folder.path().join(format!("{name}.yaml")), text).unwrap();
        fs::write(folder.path().join(format!("flows/{name}.yaml")), text).unwrap();
    }
    folder
}

/// A process that owns the store, or that hands a run to its owner.
struct Other(Child, BufReader<ChildStderr>);

impl Other {
    /// Starts the process, and waits until it has printed `says`.
    fn start(folder: &Path, arguments: &[&str], says: &str) -> Other {
        let mut command = flowcell(folder);
        let mut child = command.args(arguments).stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap());
        let mut other = Other(child, lines);
        other.hear(says);
        other
    }

    fn hear(&mut self, says: &str) {
        let mut heard = String::new();
        while !heard.contains(says) {
            assert_ne!(self.1.read_line(&mut heard).unwrap(), 0, "it never said {says:?}: {heard}");
        }
    }

    fn end(mut self) -> Output {
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut self.1, &mut rest).unwrap();
        let mut said = Vec::new();
        std::io::Read::read_to_end(&mut self.0.stdout.take().unwrap(), &mut said).unwrap();
        Output { status: self.0.wait().unwrap(), stdout: said, stderr: rest.into_bytes() }
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the commands that own a store, each with a part of its first output.
fn owners() -> [(&'static [&'static str], &'static str); 4] {
    [
        (&["drive"], "driving the runs"),
        (&["serve", "--listen", "127.0.0.1:0"], "listening on"),
        (&["run", "waits.yaml", "--run-id", "own"], "own"),
        (&["flows", "run", "waits", "--run-id", "own"], "own"),
    ]
}

#[track_caller]
fn outputs(output: &Output) -> Value {
    assert!(output.status.success(), "{}", stderr(output));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_run_beside_an_owner_is_handed_over_and_followed() {
    for (owner, says) in owners() {
        let folder = project_folder();
        let folder = folder.path();
        let _owner = Other::start(folder, owner, says);
        let run = output_of(folder, &["run", "hello.yaml", "-i", "who=Ada", "--run-id", "h"]);
        assert_eq!(outputs(&run), json!({ "said": "Hello Ada" }), "{owner:?}");
        assert!(
            stderr(&run).contains("the process that owns the store drives the run")
                && stderr(&run).contains("succeeded in"),
            "{}",
            stderr(&run)
        );
        // The same command again prints the result.
        let again = output_of(folder, &["run", "hello.yaml", "-i", "who=Ada", "--run-id", "h", "--quiet"]);
        assert_eq!(outputs(&again), json!({ "said": "Hello Ada" }), "{owner:?}");
        let events = output_of(folder, &["run", "hello.yaml", "--quiet", "--events", "-"]);
        assert!(String::from_utf8_lossy(&events.stdout).contains("\"harness:complete\""), "{}", stderr(&events));
        let flows = output_of(folder, &["flows", "run", "hello", "-i", "who=Bob", "--quiet"]);
        assert_eq!(outputs(&flows), json!({ "said": "Hello Bob" }), "{owner:?}");
        let log = output_of(folder, &["flows", "runs", "hello"]);
        assert!(String::from_utf8_lossy(&log.stdout).contains("\"say\""), "{}", stderr(&log));
        let wrong = output_of(folder, &["run", "nothing.yaml"]);
        assert_eq!(wrong.status.code(), Some(2), "{}", stderr(&wrong));
    }
}

#[test]
fn a_run_that_asks_is_resumed_and_repeated_beside_an_owner() {
    for (owner, says) in owners() {
        let folder = project_folder();
        let folder = folder.path();
        let _owner = Other::start(folder, owner, says);
        let answered = output_of(folder, &["run", "asks.yaml", "--answer", "ask=no", "--quiet"]);
        assert_eq!(outputs(&answered), json!({ "said": "no" }), "{owner:?}");
        let parked = output_of(folder, &["run", "asks.yaml", "--run-id", "p"]);
        assert_eq!(parked.status.code(), Some(3), "{owner:?}: {}", stderr(&parked));
        assert!(stderr(&parked).contains("runs resume p --answer 'ask=<yes|no>'"), "{}", stderr(&parked));
        let refused = output_of(folder, &["runs", "resume", "p", "--answer", "nobody=yes"]);
        assert_eq!(refused.status.code(), Some(2), "{owner:?}: {}", stderr(&refused));
        let resumed = output_of(folder, &["runs", "resume", "p", "--answer", "ask=yes", "--quiet"]);
        assert_eq!(outputs(&resumed), json!({ "said": "yes" }), "{owner:?}");
        let again = output_of(folder, &["runs", "resume", "p", "--quiet"]);
        assert_eq!(outputs(&again), json!({ "said": "yes" }), "{owner:?}");
        let repeated = output_of(folder, &["runs", "retry", "p", "--answer", "ask=no", "--quiet"]);
        assert_eq!(outputs(&repeated), json!({ "said": "no" }), "{owner:?}");
    }
}

/// Every answer is used, is refused with a reason, or is reported at the end, with or without an owner.
#[test]
fn only_unused_answers_are_reported() {
    // The arguments, the exit code, an expected output, and a forbidden one.
    type Case = (&'static [&'static str], i32, &'static str, &'static str);
    let cases: [Case; 31] = [
        (&["run", "calls.yaml", "--run-id", "a", "--answer", "first/ask=yes"], 0, "succeeded", "warning"),
        (&["run", "passes.yaml", "--answer", "ask=yes"], 0, "succeeded", "warning"),
        (&["run", "passes.yaml", "--answer", "each[0].ask=yes"], 0, "succeeded", "warning"),
        (&["run", "passes.yaml", "--answer", "each[7].ask=yes"], 3, "it will take the answer `yes`", "not used"),
        (&["run", "passes.yaml", "--answer", "wrong[0].ask=yes"], 2, "write `each[N].ask`", "each[0]"),
        (&["run", "asks.yaml", "--answer", "each[0].ask=yes"], 2, "write `ask`", "asks:"),
        (&["run", "calls.yaml", "--run-id", "c"], 3, "`first/ask` asks: Well?", "warning"),
        (&["runs", "resume", "c"], 3, "runs resume c --answer 'first/ask=<yes|no>'", "warning"),
        (&["runs", "resume", "c", "--answer", "ask=yes"], 2, "open questions: `first/ask`", "succeeded"),
        (&["answer", "c", "first", "yes"], 2, "open questions: `first/ask`", "succeeded"),
        (&["answer", "c", "first/ASKS", "yes"], 2, "did you mean `first/ask`?", "runs show"),
        (&["answer", "c", "first/asks", "--show"], 2, "did you mean `first/ask`?", "runs show"),
        (&["runs", "resume", "c", "--answer", "first/asks=yes"], 2, "did you mean `first/ask`?", "the gates are"),
        (&["runs", "resume", "c", "--answer", "first/ask=perhaps"], 2, "perhaps", "succeeded"),
        (&["runs", "resume", "c", "--answer", "first/ask=no"], 0, "first done", "warning"),
        (&["run", "asks.yaml", "--run-id", "r", "--answer", "ask=yes"], 0, "ask done", "warning"),
        (&["run", "asks.yaml", "--run-id", "r", "--answer", "ask=yes"], 0, "succeeded", "warning"),
        (&["run", "asks.yaml", "--run-id", "r", "--answer", "ask=no"], 2, "already has the answer `yes`", "succeeded"),
        (
            &["runs", "resume", "r", "--answer", "ask=yes"],
            2,
            "the run has ended, so `ask` takes no answer",
            "succeeded",
        ),
        (&["runs", "resume", "r"], 0, "asks r", "r r"),
        (&["run", "asks.yaml", "--run-id", "p"], 3, "`ask` asks: Well?", "warning"),
        (&["run", "asks.yaml", "--run-id", "p", "--answer", "ask=no"], 0, "ask done", "warning"),
        (
            &["run", "calls.yaml", "--run-id", "c", "--answer", "first/ask=yes"],
            2,
            "already has the answer `no`",
            "succeeded",
        ),
        (&["run", "asks.yaml", "--answer", "ask=yes", "--answer", "ask=no"], 2, "has two answers", "asks:"),
        (&["run", "two.yaml", "--run-id", "k", "--answer", "second=no"], 3, "it will take the answer `no`", "not used"),
        (&["runs", "resume", "k", "--answer", "second=yes"], 2, "started with the answer `no`", "not used"),
        (&["runs", "resume", "k", "--answer", "first=maybe"], 2, "refused the answer `maybe`", "second done"),
        (&["run", "two.yaml", "--run-id", "k", "--answer", "first=maybe"], 2, "refused the answer", "second done"),
        (&["runs", "resume", "k", "--answer", "first=yes"], 0, "second done", "warning"),
        (
            &["runs", "retry", "k", "--run-id", "l", "--from", "second", "--answer", "second=yes"],
            3,
            "first",
            "succeeded",
        ),
        (&["runs", "retry", "k", "--run-id", "l"], 2, "the run `l` exists, and does not repeat this", "succeeded"),
    ];
    for (owner, says) in [(None, ""), (Some(&["drive"][..]), "driving the runs")] {
        let folder = project_folder();
        let folder = folder.path();
        let _owner = owner.map(|owner| Other::start(folder, owner, says));
        for (arguments, code, says, never) in cases {
            let output = output_of(folder, arguments);
            let heard = stderr(&output);
            assert_eq!(output.status.code(), Some(code), "{owner:?} {arguments:?}: {heard}");
            assert!(heard.contains(says) && !heard.contains(never), "{owner:?} {arguments:?}: {heard}");
        }
    }
}

#[test]
fn a_run_is_shown_with_the_questions_of_called_flows() {
    let folder = project_folder();
    let parked = output_of(folder.path(), &["run", "calls.yaml", "--run-id", "c", "--quiet"]);
    assert_eq!(parked.status.code(), Some(3), "{}", stderr(&parked));
    let shown = output_of(folder.path(), &["runs", "show", "c"]);
    let shown = String::from_utf8_lossy(&shown.stdout);
    assert!(shown.contains("asks `first/ask`: Well?"), "{shown}");
}

/// A run that was started with `--simulate` makes no real calls after it is resumed.
#[test]
fn a_resumed_run_with_simulated_calls_makes_no_real_ones() {
    let folder = project_folder();
    let folder = folder.path();
    let paid = json!({ "paid": true });
    let parked = output_of(folder, &["run", "pays.yaml", "--run-id", "p", "--simulate", "http"]);
    assert_eq!(parked.status.code(), Some(3), "{}", stderr(&parked));
    let resumed = output_of(folder, &["runs", "resume", "p", "--answer", "ask=yes"]);
    assert_eq!(outputs(&resumed), paid);
    assert!(stderr(&resumed).contains("started with `--simulate http`"), "{}", stderr(&resumed));
    assert_eq!(outputs(&output_of(folder, &["runs", "retry", "p", "--answer", "ask=yes", "--quiet"])), paid);
    let detached = ["run", "pays.yaml", "--run-id", "d", "--simulate", "http", "--detach", "--answer", "ask=yes"];
    assert!(output_of(folder, &detached).status.success());
    assert!(output_of(folder, &["drive", "--once"]).status.success());
    assert_eq!(outputs(&output_of(folder, &["runs", "resume", "d", "--quiet"])), paid);
    let parked = output_of(folder, &["run", "pays.yaml", "--run-id", "s", "--simulate", "http", "--quiet"]);
    assert_eq!(parked.status.code(), Some(3), "{}", stderr(&parked));
    let _owner = Other::start(folder, &["serve", "--listen", "127.0.0.1:0"], "listening on");
    assert_eq!(outputs(&output_of(folder, &["runs", "resume", "s", "--answer", "ask=yes", "--quiet"])), paid);
    // A run without `--simulate` makes them.
    let real = output_of(folder, &["run", "pays.yaml", "--answer", "ask=yes", "--quiet"]);
    assert_eq!(real.status.code(), Some(1), "{}", stderr(&real));
}

/// Without a terminal, a run that also waits for a timer prints its question, and accepts the answer from another
/// process.
#[test]
fn a_resumed_run_without_a_terminal_prints_how_to_answer() {
    for (owner, says) in [(None, ""), (Some(&["drive"][..]), "driving the runs")] {
        let folder = project_folder();
        let folder = folder.path();
        let detached = output_of(folder, &["run", "both.yaml", "--run-id", "b", "--detach", "--quiet"]);
        assert!(detached.status.success(), "{}", stderr(&detached));
        let first = Other::start(folder, &["drive"], "driving the runs");
        let mut listed = std::iter::repeat_with(|| output_of(folder, &["runs", "show", "b"])).take(500);
        assert!(listed.any(|output| String::from_utf8_lossy(&output.stdout).contains("Well?")), "it never asks");
        drop(first);
        let _owner = owner.map(|owner| Other::start(folder, owner, says));
        let resumed = Other::start(folder, &["runs", "resume", "b"], "flowcell answer b ask VALUE");
        let answered = output_of(folder, &["answer", "b", "ask", "yes"]);
        assert!(answered.status.success(), "{}", stderr(&answered));
        // The event ends the run, and the process with it, perhaps before the process can reply.
        output_of(folder, &["emit", "b", "go"]);
        assert_eq!(outputs(&resumed.end()), json!({ "said": "yes" }));
    }
}

#[test]
fn options_that_the_owner_lacks_are_refused_by_name() {
    let folder = project_folder();
    let folder = folder.path();
    let data = folder.join("data");
    fs::create_dir(&data).unwrap();
    fs::write(folder.join("secrets.yaml"), "{}").unwrap();
    let _owner = Other::start(folder, &["drive", "--allow-private", "127.0.0.1:1"], "driving the runs");
    let cases: [&[&str]; 5] = [
        &["--allow-private", "127.0.0.1:2"],
        &["--files", "data"],
        &["--providers", "providers.yaml"],
        &["--secrets", "secrets.yaml"],
        &["--simulate", "http"],
    ];
    fs::copy(kit::root().join("flows/agents/providers.yaml"), folder.join("providers.yaml")).unwrap();
    let begin: [&[&str]; 4] =
        [&["run", "hello.yaml"], &["flows", "run", "hello"], &["runs", "resume", "r"], &["runs", "retry", "r"]];
    let known = output_of(folder, &["run", "hello.yaml", "--run-id", "r", "--allow-private", "127.0.0.1:1", "--quiet"]);
    assert_eq!(outputs(&known), json!({ "said": "Hello world" }));
    for option in cases {
        for begin in begin {
            let output = output_of(folder, &[begin, option].concat());
            assert_eq!(output.status.code(), Some(2), "{begin:?} {option:?}: {}", stderr(&output));
            assert!(stderr(&output).contains(&format!("without `{}", option[0])), "{begin:?}: {}", stderr(&output));
        }
    }
}

/// A flow whose second node fails, because no server has the port of its request.
const ORDER: &str = "
flow: { name: order, outputs: { paid: '{{ pay }}' } }
nodes:
  - { id: sum, type: control.noop, input: { value: 7 } }
  - { id: pay, type: http.request, input: { url: 'http://127.0.0.1:1/', method: POST, json: { n: '{{ sum.value }}' } },
      grants: { http: ['http://127.0.0.1:1'] } }
edges: [{ from: sum, to: pay }]
";
/// The same flow with another second node.
const REPAIRED: &str = "
flow: { name: order, outputs: { paid: '{{ pay }}' } }
nodes:
  - { id: pay, type: control.noop, input: { value: '{{ sum.value }}' } }
  - { id: sum, type: control.noop, input: { value: 7 } }
edges: [{ from: sum, to: pay }]
";

/// Returns a folder in which the run `r` of [`ORDER`] has failed, and the process that owns its store, if there is one.
fn failed_order(owner: Option<&[&str]>, says: &str) -> (tempfile::TempDir, Option<Other>) {
    let folder = project_folder();
    fs::write(folder.path().join("order.yaml"), ORDER).unwrap();
    let failed = output_of(folder.path(), &["run", "order.yaml", "--run-id", "r", "--allow-private", "127.0.0.1"]);
    assert_eq!(failed.status.code(), Some(1), "{}", stderr(&failed));
    let owner = owner.map(|owner| Other::start(folder.path(), owner, says));
    (folder, owner)
}

#[test]
fn a_failed_run_is_repeated_with_its_file_as_it_is_now() {
    for (owner, says) in [(None, ""), (Some(&["drive"][..]), "driving the runs")] {
        let (folder, _owner) = failed_order(owner, says);
        let (folder, file) = (folder.path(), folder.path().join("order.yaml"));
        let retry = |more: &[&str]| output_of(folder, &[&["runs", "retry", "r"], more].concat());
        fs::write(&file, "flow: { name: order }\nnodes: [{ id: pay, type: control.nothing }]\n").unwrap();
        for (more, says) in [
            (&["--flow-version", "latest"][..], "control.nothing"),
            (&["--flow-version", "2"], "write `latest` for its file as it is now"),
            (&["--flow-version", "newest"], "write a number or `latest`"),
            (&["--check"], "--flow-version"),
        ] {
            let refused = retry(more);
            assert_eq!(refused.status.code(), Some(2), "{owner:?} {more:?}: {}", stderr(&refused));
            assert!(stderr(&refused).contains(says), "{owner:?} {more:?}: {}", stderr(&refused));
        }
        fs::write(&file, REPAIRED.replace("name: order", "name: other")).unwrap();
        let refused = retry(&["--flow-version", "latest"]);
        assert!(stderr(&refused).contains("one of the flow `order`"), "{owner:?}: {}", stderr(&refused));
        fs::write(&file, REPAIRED).unwrap();
        let plan = retry(&["--flow-version", "latest", "--check"]);
        let expected = "keep their outputs: sum\nrun:\n  pay: the type or its pack changed; it has already called http.send (1 x)\n";
        assert_eq!(kit::stdout(&plan), expected, "{owner:?}: {}", stderr(&plan));
        let plan = retry(&["--flow-version", "latest", "--check", "--json"]);
        let plan: Value = serde_json::from_slice(&plan.stdout).unwrap();
        let pay = json!([{ "node": "pay", "reason": "changed", "part": "type", "madeCalls": { "http.send": 1 } }]);
        assert_eq!((&plan["kept"], &plan["runs"]), (&json!(["sum"]), &pay), "{owner:?}");
        let again = retry(&["--flow-version", "latest", "--run-id", "again"]);
        let heard = stderr(&again);
        assert!(again.status.success(), "{owner:?}: {heard}");
        assert!(heard.contains("`pay` runs again and has already called http.send (1 x)"), "{owner:?}: {heard}");
        let events = output_of(folder, &["runs", "events", "again"]);
        let events = String::from_utf8(events.stdout).unwrap();
        let started: Vec<_> = events.lines().filter(|line| line.contains("\"task:start\"")).collect();
        assert_eq!(started.len(), 2, "{owner:?}: {events}");
        let shown = output_of(folder, &["runs", "show", "again", "sum", "--json"]);
        assert!(String::from_utf8_lossy(&shown.stdout).contains("not_run"), "{owner:?}: {}", kit::stdout(&shown));
    }
}

/// A flow that asks a question before it gives a value.
fn asks_then(value: u32, sum: u32) -> String {
    format!(
        "
flow: {{ name: order, outputs: {{ paid: '{{{{ pay.value }}}}' }} }}
nodes:
  - {{ id: sum, type: control.noop, input: {{ value: {sum} }} }}
  - {{ id: ask, type: control.gate, input: {{ prompt: 'Well?', choices: ['yes', 'no'] }} }}
  - {{ id: pay, type: control.noop, input: {{ value: {value} }} }}
edges: [{{ from: sum, to: ask }}, {{ from: ask, to: pay }}]
"
    )
}

#[test]
fn a_parked_run_moves_to_its_file_as_it_is_now() {
    for (owner, says) in [(None, ""), (Some(&["drive"][..]), "driving the runs")] {
        let folder = project_folder();
        let folder = folder.path();
        let file = folder.join("order.yaml");
        fs::write(&file, asks_then(1, 7)).unwrap();
        let parked = output_of(folder, &["run", "order.yaml", "--run-id", "r", "--quiet"]);
        assert_eq!(parked.status.code(), Some(3), "{}", stderr(&parked));
        let _owner = owner.map(|owner| Other::start(folder, owner, says));
        let migrate = |more: &[&str]| output_of(folder, &[&["runs", "migrate", "r"], more].concat());
        fs::write(&file, asks_then(2, 8)).unwrap();
        for (more, says) in [
            (&["--to", "latest"][..], "sum: it succeeded and would have to run again: the input changed"),
            (&["--to", "2"], "write `latest` for its file as it is now"),
            (&["--to", "newest"], "write a number or `latest`"),
            (&["--check"], "--to"),
        ] {
            let refused = migrate(more);
            assert_eq!(refused.status.code(), Some(2), "{owner:?} {more:?}: {}", stderr(&refused));
            assert!(stderr(&refused).contains(says), "{owner:?} {more:?}: {}", stderr(&refused));
        }
        let plan = migrate(&["--to", "latest", "--check"]);
        assert_eq!(plan.status.code(), Some(2), "{owner:?}: {}", stderr(&plan));
        assert!(kit::stdout(&plan).contains("the run cannot move:\n  sum: it succeeded"), "{}", kit::stdout(&plan));
        fs::write(&file, asks_then(2, 7)).unwrap();
        let plan = migrate(&["--to", "latest", "--check"]);
        let expected = "keep their outputs: sum\ngo on: ask (waiting)\nstart anew:\n  pay: the input changed\n";
        assert_eq!(kit::stdout(&plan), expected, "{owner:?}: {}", stderr(&plan));
        let plan = migrate(&["--to", "latest", "--check", "--json"]);
        let plan: Value = serde_json::from_slice(&plan.stdout).unwrap();
        assert_eq!((&plan["moved"][0]["node"], &plan["refused"]), (&json!("ask"), &json!([])), "{owner:?}");
        // A refused answer or option leaves the run in its version.
        let second = match owner {
            None => ("--answer=none=yes", "none"),
            Some(_) => ("--allow-private=10.0.0.1:1", "other options"),
        };
        for (more, says) in [("--answer=ask=maybe", "refused the answer `maybe`"), second] {
            let refused = migrate(&["--to", "latest", more]);
            assert!(!refused.status.success() && stderr(&refused).contains(says), "{more}: {}", stderr(&refused));
        }
        let ended = migrate(&["--to", "latest", "--answer", "ask=yes"]);
        assert_eq!(outputs(&ended), json!({ "paid": 2 }), "{owner:?}");
        let events = String::from_utf8(output_of(folder, &["runs", "events", "r"]).stdout).unwrap();
        let count = |kind: &str| events.lines().filter(|line| line.contains(kind)).count();
        assert_eq!((count("\"task:start\""), count("\"harness:migrated\"")), (3, 1), "{owner:?}: {events}");
        let shown = output_of(folder, &["runs", "show", "r", "sum", "--json"]);
        assert!(kit::stdout(&shown).contains("\"matches\""), "{owner:?}: {}", kit::stdout(&shown));
        let exported = output_of(folder, &["runs", "export", "r"]);
        let exported: Value = serde_json::from_slice(&exported.stdout).unwrap();
        assert_eq!(exported["inputs"].as_array().unwrap().len(), 4, "{owner:?}: a gate has two parts");
        let refused = migrate(&["--to", "latest"]);
        assert!(stderr(&refused).contains("the run has ended"), "{owner:?}: {}", stderr(&refused));
    }
}
