//! The languages of packs, and what builds them.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;

use crate::kit;

/// A language that packs are written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Language {
    Rust,
    Js,
    Python,
    C,
    Go,
}

impl Language {
    pub(crate) const ALL: [Language; 5] = [Language::Rust, Language::Js, Language::Python, Language::C, Language::Go];
    /// Those that have an SDK.
    pub(crate) const WITH_SDK: [Language; 3] = [Language::Rust, Language::Js, Language::Python];

    /// As `--lang` has it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Language::Rust => "rust",
            Language::Js => "js",
            Language::Python => "python",
            Language::C => "c",
            Language::Go => "go",
        }
    }

    /// The file with the code of a project's node types.
    pub(crate) fn code(self) -> &'static str {
        match self {
            Language::Rust => "src/lib.rs",
            Language::Js => "nodes.js",
            Language::Python => "nodes.py",
            Language::C => "nodes.c",
            Language::Go => "exports/export_flowcell_node_node/nodes.go",
        }
    }

    /// Whether its toolchain is there. If it is not, whoever asks is skipped.
    pub(crate) fn is_there(self, test: &str) -> bool {
        let tools: &[&str] = match self {
            Language::Rust => return true,
            Language::Js => &["componentize-qjs"],
            Language::Python => &["componentize-py"],
            Language::C => &["wit-bindgen", "python-zig"],
            Language::Go => &["wit-bindgen", "go"],
        };
        let paths = env::var_os("PATH").unwrap_or_default();
        let missing = tools.iter().find(|tool| !env::split_paths(&paths).any(|folder| folder.join(tool).is_file()));
        if let Some(tool) = missing {
            assert!(env::var_os("FLOWCELL_TEST_TOOLCHAINS").is_none(), "{test} needs `{tool}`");
            eprintln!("skipped: {test} in {}: `{tool}` is missing", self.name());
        }
        missing.is_none()
    }
}

/// The program, as whoever writes nodes has it. Crates are compiled into one folder of the tests' own: the outer cargo may hold the
/// lock of the usual one.
pub(crate) fn flowcell(folder: &Path) -> Command {
    let mut command = kit::flowcell(folder);
    command.env("CARGO_TARGET_DIR", Path::new(env!("CARGO_TARGET_TMPDIR")).join("authors"));
    command.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
    command
}

/// What the program says to programs, if it does what it was asked to.
#[track_caller]
pub(crate) fn done(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}\n{}", kit::told(&output));
    kit::said(&output)
}

/// A project that is begun in an empty folder, and the folder.
pub(crate) fn project(name: &str, language: Language) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    done(flowcell(folder.path()).args(["node", "new", name, "--lang", language.name()]));
    let project = folder.path().join(name);
    (folder, project)
}

/// Copies a folder with all that is in it.
pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}
