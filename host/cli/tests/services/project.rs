//! A folder with a flow of one node that calls services.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    guests,
    kit::{self, stderr},
    services::fake::Fake,
};

pub(crate) struct Project(TempDir);

impl Project {
    /// Creates a flow whose node makes these calls with these granted services. `settings` are the operator's services.
    pub(crate) fn new(calls: &Value, granted: &[&str], settings: &Value) -> Project {
        let project = Project(tempfile::tempdir().unwrap());
        let flow = json!({
            "flow": { "name": "ask", "input": { "photo": null }, "outputs": {
                "answers": "{{ ask.answers }}", "first": "{{ ask.answers[0].result }}" } },
            "nodes": [{ "id": "ask", "type": "courier.ask", "input": { "calls": calls }, "grants": { "services": granted } }],
            "edges": [],
        });
        project.write("ask.json", flow.to_string());
        project.write("services.yaml", settings.to_string());
        project
    }

    /// Returns the settings of a service that uses the fake endpoint.
    pub(crate) fn images(fake: &Fake) -> Value {
        let base = format!("http://{}/v1", fake.address);
        json!({ "img": { "images": { "baseUrl": base, "model": "fake", "keyEnv": "IMAGES_KEY", "maxRetries": 0,
            "allowPrivate": [fake.address.to_string()] } } })
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.0.path().join(name), content).unwrap();
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn command(&self, more: &[&str]) -> Command {
        let mut command = kit::flowcell(self.0.path());
        command.args(["run", "ask.json", "--run-id", "a", "--quiet", "--services", "services.yaml", "--packs"]);
        command.arg(guests::build("courier", "")).args(more).env("IMAGES_KEY", "test-key");
        command
    }

    pub(crate) fn run(&self, more: &[&str]) -> Output {
        self.command(more).output().unwrap()
    }

    /// Runs the flow, which has to succeed. Returns its outputs.
    pub(crate) fn outputs(&self, more: &[&str]) -> Value {
        let output = self.run(more);
        assert!(output.status.success(), "{}", stderr(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Returns the run's events about services.
    pub(crate) fn events(&self) -> Vec<Value> {
        let events = kit::events(self.0.path(), "a").into_iter();
        events.filter(|event| event["type"].as_str().unwrap().starts_with("service:")).collect()
    }
}
