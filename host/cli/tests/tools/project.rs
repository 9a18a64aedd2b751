//! A folder with a flow of one agent, whose model follows a script.

use std::{
    fs,
    process::{Command, Output},
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::kit::{self, stderr};

pub(crate) struct Project(TempDir);

/// A reply of the model that calls tools.
pub(crate) fn calling(calls: &[(&str, Value)]) -> Value {
    let calls = calls.iter().map(|(tool, input)| json!({ "name": tool, "input": input }));
    json!({ "match": "", "toolCalls": calls.collect::<Vec<_>>() })
}

/// A reply of the model that is this text and calls no tools, so that the agent ends.
pub(crate) fn saying(text: &str) -> Value {
    json!({ "match": "", "text": text })
}

impl Project {
    /// Creates a flow of one agent with this input, this config and these granted tools. The agent's result is the
    /// flow's.
    pub(crate) fn new(input: &Value, config: &Value, granted: &[&str], replies: &[Value]) -> Project {
        let folder = tempfile::tempdir().unwrap();
        let models = json!({ "default": "scripted", "profiles": { "scripted": {
            "dialect": "simulated", "model": "one", "script": replies } } });
        let flow = json!({
            "flow": { "name": "errand", "outputs": { "result": "{{ agent.result }}", "stop": "{{ agent.stopReason }}" } },
            "nodes": [{ "id": "agent", "type": "agent.run", "input": input, "config": config,
                "grants": { "model": ["*"], "tools": granted } }],
            "edges": [],
        });
        let project = Project(folder);
        for (name, json) in [("models.yaml", models), ("errand.json", flow)] {
            project.write(name, &json.to_string());
        }
        project
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.0.path().join(name), text).unwrap();
    }

    /// Returns the text of a file, if it exists.
    pub(crate) fn read(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.0.path().join(name)).ok()
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = kit::flowcell(self.0.path());
        command.args(arguments).env("FLOWCELL_PROVIDERS", "models.yaml");
        command
    }

    pub(crate) fn done(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs the flow as the run `a`, or resumes it.
    pub(crate) fn run(&self, more: &[&str]) -> Output {
        self.done(&[&["run", "errand.json", "--run-id", "a", "--quiet"], more].concat())
    }

    /// Runs the flow, which has to succeed. Returns its outputs.
    pub(crate) fn outputs(&self, more: &[&str]) -> Value {
        let output = self.run(more);
        assert!(output.status.success(), "{}", stderr(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Returns the events of this kind.
    pub(crate) fn events(&self, kind: &str) -> Vec<Value> {
        let events = kit::events(self.0.path(), "a").into_iter();
        events.filter(|event| event["type"] == kind).collect()
    }
}
