//! A project with its own flows and models, and an empty home folder.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use serde_json::Value;

/// A flow that branches by its prompt, and may postpone a step to the next run.
pub(crate) const MATRIX: &str = r#"
name: Matrix
flow:
  args: { type: object, required: [prompt], properties: { prompt: { type: string }, note: { type: string } } }
  steps:
    - id: first
      prompt: "First: ${args.prompt}"
      output: { schema: { type: object, required: [route], properties: { route: { type: string } } } }
      rules:
        - { if: "${args.route} == go", then: second }
        - { if: "${args.route} == later", then: third, postpone: true }
    - { id: second, session: { fork: true }, prompt: Second }
    - { id: third, agent: helper, session: { fork: true }, prompt: "Third: ${args.route}" }
"#;

const HELPER: &str = "---\ndescription: Helps\n---\nYou help.\n";

/// The default script of the model.
pub(crate) const SCRIPT: &str = r"
      - { match: 'Second', text: second is done }
      - { match: 'Third', text: third is done }
      - { match: 'First: go', json: { route: go } }
      - { match: 'First: later', json: { route: later } }
      - { match: 'First: end', json: { route: end } }
";

pub(crate) struct Project(tempfile::TempDir);

impl Project {
    /// Creates a project with the flow `matrix`.
    pub(crate) fn new() -> Project {
        let project = Project(tempfile::tempdir().unwrap());
        project.write(".flowcell/flows/matrix.yaml", MATRIX);
        project.write(".flowcell/agents/helper.md", HELPER);
        fs::create_dir_all(project.path().join("home")).unwrap();
        project.set_script(SCRIPT);
        project
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Replaces the script of the model.
    pub(crate) fn set_script(&self, script: &str) {
        let head = "default: scripted\nprofiles:\n  scripted:\n    dialect: simulated\n    model: one\n    script:\n";
        self.write("providers.yaml", &format!("{head}{script}"));
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flowcell"));
        command.current_dir(self.path()).env("HOME", self.path().join("home"));
        command.env("FLOWCELL_CACHE", Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache"));
        command.env("FLOWCELL_PROVIDERS", self.path().join("providers.yaml"));
        command.env_remove("FLOWCELL_STORE").env_remove("FLOWCELL_STATE").env_remove("XDG_CONFIG_HOME");
        command.args(arguments).stdin(Stdio::null());
        command
    }

    pub(crate) fn done(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs the flow `matrix` with the session prefix `p` and a prompt. Returns the exit code and the printed JSON.
    pub(crate) fn run(&self, prompt: &str, more: &[&str]) -> (i32, Value) {
        let arguments = [&["-F", "matrix", "-s", "p", "-q", "-p", prompt], more].concat();
        let output = self.done(&arguments);
        let printed = serde_json::from_slice(&output.stdout);
        (output.status.code().unwrap(), printed.unwrap_or_else(|_| panic!("{}", stderr(&output))))
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.path().join(".flowcell/flowcell.db")
    }

    /// Runs a query on the database. Returns the texts of its first column.
    pub(crate) fn query(&self, sql: &str) -> Vec<String> {
        let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
        let database = rusqlite::Connection::open_with_flags(self.database(), flags).unwrap();
        let mut select = database.prepare(sql).unwrap();
        let rows = select.query_map([], |row| row.get(0)).unwrap();
        rows.map(Result::unwrap).collect()
    }

    /// Returns the roles of the messages in a step's session.
    pub(crate) fn message_roles(&self, step: &str) -> Vec<String> {
        let sql = format!("SELECT value FROM state WHERE key = 'session/matrix/{step}/p'");
        let values = self.query(&sql);
        let Some(value) = values.first() else { return Vec::new() };
        let messages: Vec<Value> = serde_json::from_str(value).unwrap();
        messages.iter().map(|message| message["role"].as_str().unwrap().to_owned()).collect()
    }

    /// Returns `step status` of all states, in the order of the step ids.
    pub(crate) fn states(&self) -> Vec<String> {
        self.query("SELECT step_id || ' ' || status FROM flow_states ORDER BY step_id")
    }

    /// Returns the events of a run.
    pub(crate) fn events(&self, run: &str) -> Vec<Value> {
        let output = self.done(&["runs", "events", run]);
        assert!(output.status.success(), "{}", stderr(&output));
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns the step ids in one list of the printed JSON.
pub(crate) fn steps(printed: &Value, list: &str) -> Vec<String> {
    let lines = printed[list].as_array().unwrap_or_else(|| panic!("{list} in {printed}"));
    lines.iter().map(|line| line["step_id"].as_str().unwrap().to_owned()).collect()
}
