//! Tests that `flowcell dev` runs a flow after each change.

use std::{
    fs,
    io::{BufRead, BufReader, Lines},
    path::Path,
    process::{Child, ChildStdout, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::Duration,
};

use serde_json::{Value, json};

use crate::{
    authors::language::{Language, done, flowcell, project},
    kit,
};

const FLOW: &str = "flow: { name: greeting, input: { name: Ada } }
nodes:
  - { id: greet, type: shop.greet, input: { name: '{{ flow.input.name }}' } }
";

/// Reads the outputs of the next run.
fn outputs(lines: &mut Lines<BufReader<ChildStdout>>) -> Value {
    let mut text = String::new();
    loop {
        let line = lines.next().expect("it runs on").unwrap();
        text.push_str(&line);
        if line == "}" {
            return serde_json::from_str(&text).unwrap();
        }
    }
}

#[test]
fn a_flow_runs_again_after_it_or_one_of_its_nodes_is_saved() {
    let (folder, project) = project("shop", Language::Rust);
    let flow = folder.path().join("greeting.yaml");
    fs::write(&flow, FLOW).unwrap();
    let mut command = flowcell(folder.path());
    command.args(["dev", "greeting.yaml", "--node", "shop", "--", "--quiet", "-i", "name=Bo"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(outputs(&mut lines), json!({ "greet": { "text": "Hello Bo" } }));
    fs::write(&flow, FLOW.replace("id: greet", "id: hello")).unwrap();
    assert_eq!(outputs(&mut lines), json!({ "hello": { "text": "Hello Bo" } }));
    let code = project.join("src/lib.rs");
    let spoken = fs::read_to_string(&code).unwrap().replace("Hello {}", "Hullo {}");
    fs::write(&code, "no Rust").unwrap();
    // The change does not build, so the command waits for the next one.
    fs::write(&code, spoken).unwrap();
    assert_eq!(outputs(&mut lines), json!({ "hello": { "text": "Hullo Bo" } }));
    child.kill().unwrap();
    child.wait().unwrap();
    let wrong = flowcell(folder.path()).args(["dev", "nowhere/flow.yaml"]).output().unwrap();
    assert_eq!(wrong.status.code(), Some(2));
    done(flowcell(folder.path()).args(["node", "inspect", "shop/dist/shop.wasm"]));
}

const FAILS: &str = "flow: { name: order, input: { sum: 7 } }
nodes:
  - { id: price, type: control.noop, input: { value: '{{ flow.input.sum + 1 }}' } }
  - { id: pay, type: control.fail, input: { message: 'no money for {{ price.value }}' } }
edges: [{ from: price, to: pay }]
";
const CASES: &str = "cases: [{ name: it has no money, expect: { status: failed } }]\n";

/// A `flowcell dev` that runs until the value is dropped, with the lines of its standard error.
struct Dev {
    child: Child,
    lines: Receiver<String>,
}

impl Dev {
    fn start(folder: &Path, flow: &str) -> Dev {
        let mut command = flowcell(folder);
        command.args(["dev", flow, "--", "--quiet"]).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (tell, lines) = channel();
        let read = BufReader::new(child.stderr.take().unwrap()).lines();
        thread::spawn(move || read.map_while(Result::ok).try_for_each(|line| tell.send(line)));
        Dev { child, lines }
    }

    /// Returns the lines up to one that contains `end`.
    fn read_to(&self, end: &str) -> String {
        let mut text = String::new();
        while !text.contains(end) {
            let line = self.lines.recv_timeout(Duration::from_secs(120));
            text += &line.unwrap_or_else(|_| panic!("{end:?} is missing:\n{text}"));
            text.push('\n');
        }
        text
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn only_inputs_begin_a_run_and_the_file_is_named_that_exists_afterwards() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("order.yaml"), FAILS).unwrap();
    let dev = Dev::start(folder, "order.yaml");
    dev.read_to("--run dev-1 --task 'pay'`");
    fs::write(folder.join("out.log"), "a log").unwrap();
    // As `sed -i` does.
    fs::write(folder.join("sedhqYYSp"), FAILS.replace("sum: 7", "sum: 8")).unwrap();
    fs::rename(folder.join("sedhqYYSp"), folder.join("order.yaml")).unwrap();
    let said = dev.read_to("--run dev-2 --task 'pay'`");
    assert_eq!(said.matches(" has changed").count(), 1, "{said}");
    assert!(said.contains("order.yaml has changed") && said.contains("no money for 9"), "{said}");
}

#[test]
fn a_failing_flow_shows_its_tasks_its_cases_and_the_input_that_failed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for place in ["east", "west"] {
        fs::create_dir(folder.join(place)).unwrap();
        fs::write(folder.join(place).join("order.yaml"), FAILS).unwrap();
    }
    fs::write(folder.join("east/order.test.yaml"), CASES).unwrap();
    let state = ".flowcell/dev/east/order.yaml";
    let hint = format!("`flowcell eval EXPRESSION --state '{state}' --run dev-1 --task 'pay'`");
    let price =
        || done(flowcell(folder).args(["eval", "price.value", "--state", state, "--run", "dev-1", "--task", "pay"]));
    let refused = || {
        let output = flowcell(folder).args(["dev", "east/../east/order.yaml"]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert_eq!(price(), "8\n", "the runs stay");
        kit::stderr(&output)
    };

    let east = Dev::start(folder, "east/order.yaml");
    let shown = east.read_to("1 case, 0 failed");
    for part in ["price", "pay", "\"message\": \"no money for 8\"", &hint, "it has no money  ok"] {
        assert!(shown.contains(part), "{part} is missing:\n{shown}");
    }
    assert_eq!(price(), "8\n");
    // A second command for the flow would remove the runs of the first one.
    let second = refused();
    assert!(second.contains("another `flowcell dev` uses the store"), "{second}");
    // A flow with the same name in another folder has its own runs.
    let west = Dev::start(folder, "west/order.yaml");
    west.read_to("--state '.flowcell/dev/west/order.yaml' --run dev-1 --task 'pay'`");
    assert_eq!(price(), "8\n");
    // A store that cannot be read is reported, and the cases run all the same.
    let database = folder.join(state).join("flowcell.db");
    fs::write(&database, "no database".repeat(1_000)).unwrap();
    // A reader leaves a copy of the pages there.
    _ = fs::remove_file(database.with_extension("db-wal"));
    fs::write(folder.join("east/order.yaml"), FAILS.replace("order,", "orders,")).unwrap();
    let broken = east.read_to("1 case, 0 failed");
    assert!(broken.matches("cannot use the store").count() >= 2, "the run and its report fail: {broken}");
    drop(east);

    // The runs of a command that has ended make room, unless another process drives them.
    let again = Dev::start(folder, "east/order.yaml");
    again.read_to(&hint);
    assert_eq!(price(), "8\n");
    drop(again);
    let _owner = kit::Owner::start(folder, &["drive", "--state", state], "driving the runs");
    let owned = refused();
    assert!(owned.contains("another process (process "), "{owned}");
}

#[test]
fn the_errors_of_a_flow_are_reported_once() {
    const CASES: &str = "cases: [{ name: it has no money, input: { sum: 1 }, expect: { status: failed } }]\n";
    let folder = tempfile::tempdir().unwrap();
    let (flow, cases) = (folder.path().join("order.yaml"), folder.path().join("order.test.yaml"));
    fs::write(&flow, FAILS.replace("{{ price.value }}", "{{ prize.value }}")).unwrap();
    fs::write(cases, CASES).unwrap();
    let dev = Dev::start(folder.path(), "order.yaml");
    let broken = dev.read_to("the test cases beside the flow did not run, because the flow has errors");
    assert_eq!(broken.matches("unknown name `prize`").count(), 1, "{broken}");
    assert!(!broken.contains("failed"), "{broken}");
    // The flow has no errors, but the run lacks its input. The cases have one.
    let schema = "inputSchema: { type: object, required: [sum], properties: { sum: { type: integer } } }";
    fs::write(&flow, FAILS.replace("input: { sum: 7 }", schema)).unwrap();
    let refused = dev.read_to("1 case, 0 failed");
    assert!(refused.contains("the input does not fit") && !refused.contains("did not run"), "{refused}");
}
