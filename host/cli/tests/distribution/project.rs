//! A folder in which a user installs packs, with its own store.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::Value;

use crate::{
    distribution::pack::{self, Version},
    kit,
};

/// A temporary folder in which a user installs packs.
pub(crate) struct Project {
    folder: tempfile::TempDir,
    environment: Vec<(String, String)>,
}

impl Project {
    pub(crate) fn new() -> Project {
        Project { folder: tempfile::tempdir().unwrap(), environment: Vec::new() }
    }

    /// Adds an environment variable.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Project {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a version of the pack `acme` into a file.
    pub(crate) fn pack(&self, file: &str, version: Version) -> PathBuf {
        self.write(file, &pack::acme(version))
    }

    pub(crate) fn write(&self, file: &str, content: &[u8]) -> PathBuf {
        let path = self.path().join(file);
        fs::write(&path, content).unwrap();
        path
    }

    /// Returns the only file in the store of packs.
    pub(crate) fn stored_pack(&self) -> PathBuf {
        let files = fs::read_dir(self.path().join("cache/packs")).unwrap().map(|entry| entry.unwrap().path());
        let files: Vec<_> = files.collect();
        assert_eq!(files.len(), 1, "{files:?}");
        files[0].clone()
    }

    /// Returns the names of the engine's cached files, such as compiled code.
    pub(crate) fn kept_by_engines(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path().join("cache")).unwrap().map(|entry| entry.unwrap());
        let kept = entries.filter(|entry| entry.path().is_file() && entry.file_name() != "key");
        kept.map(|entry| entry.file_name().into_string().unwrap()).collect()
    }

    pub(crate) fn lock(&self) -> String {
        fs::read_to_string(self.path().join("flowcell.lock")).unwrap_or_default()
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.command().args(arguments).output().unwrap()
    }

    /// Returns the program in this folder, without arguments.
    pub(crate) fn command(&self) -> Command {
        let mut command = kit::flowcell(self.path());
        command.env("FLOWCELL_CACHE", self.path().join("cache"));
        // Ignore the registry credentials of the user who runs the tests.
        command.env("DOCKER_CONFIG", self.path().join("docker"));
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Runs a command that has to succeed. Returns its standard output.
    #[track_caller]
    pub(crate) fn done(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}\n{}", kit::stderr(&output));
        kit::stdout(&output)
    }

    /// Runs a command that has to fail with these words. Returns its standard error.
    #[track_caller]
    pub(crate) fn run_refused(&self, arguments: &[&str], words: &[&str]) -> String {
        let output = self.run(arguments);
        let told = kit::stderr(&output);
        assert!(matches!(output.status.code(), Some(1 | 2)), "{arguments:?}: {:?}\n{told}", output.status);
        words.iter().for_each(|word| assert!(told.contains(word), "{arguments:?}: {word}\n{told}"));
        told
    }

    /// Runs a flow in which `acme.greet` of this version greets Ada. Returns its outputs.
    #[track_caller]
    pub(crate) fn greeting(&self, version: &str) -> Value {
        let flow = format!(
            "flow: {{ name: greeting }}\nnodes: [{{ id: greet, type: acme.greet@{version}, input: {{ name: Ada }} }}]\n"
        );
        self.write("greeting.yaml", flow.as_bytes());
        let said = self.done(&["run", "--quiet", "--store", "memory:", "greeting.yaml"]);
        serde_json::from_str(&said).unwrap()
    }
}
