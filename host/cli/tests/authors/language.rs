//! The languages of packs, and the tools that build them.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use tempfile::TempDir;

use crate::kit;

/// A language of packs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Language {
    Rust,
    Js,
    Ts,
    Python,
    C,
    Go,
    Zig,
}

impl Language {
    pub(crate) const ALL: [Language; 7] =
        [Language::Rust, Language::Js, Language::Ts, Language::Python, Language::C, Language::Go, Language::Zig];
    /// The languages with an SDK.
    pub(crate) const WITH_SDK: [Language; 3] = [Language::Rust, Language::Js, Language::Python];
    /// The languages without an SDK.
    pub(crate) const WITHOUT_SDK: [Language; 3] = [Language::C, Language::Go, Language::Zig];

    /// Returns the name for `--lang`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Language::Rust => "rust",
            Language::Js => "js",
            Language::Ts => "ts",
            Language::Python => "python",
            Language::C => "c",
            Language::Go => "go",
            Language::Zig => "zig",
        }
    }

    /// Returns the file with the code of a project's node types.
    pub(crate) fn code(self) -> &'static str {
        match self {
            Language::Rust => "src/lib.rs",
            Language::Js => "nodes.js",
            Language::Ts => "nodes.ts",
            Language::Python => "nodes.py",
            Language::C => "nodes.c",
            Language::Go => "exports/export_flowcell_node_node/nodes.go",
            Language::Zig => "nodes.zig",
        }
    }

    /// Returns whether the toolchain is installed. If not, the test is skipped.
    pub(crate) fn is_there(self, test: &str) -> bool {
        let tools: &[&str] = match self {
            Language::Rust => return true,
            Language::Js | Language::Ts => &["componentize-qjs", "npm"],
            Language::Python => &["componentize-py"],
            Language::C | Language::Zig => &["wit-bindgen", "python-zig"],
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

/// Names the folder in which cargo keeps what it compiles on the way to a pack.
pub(crate) const BUILD_FOLDER: &str = "CARGO_BUILD_BUILD_DIR";

/// Returns a command of the program as authors of nodes use it. The tests share the compiled crates.
pub(crate) fn flowcell(folder: &Path) -> Command {
    let mut command = kit::flowcell(folder);
    command.env(BUILD_FOLDER, Path::new(env!("CARGO_TARGET_TMPDIR")).join("authors")).env_remove("CARGO_TARGET_DIR");
    command.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
    command
}

/// Runs a command that has to succeed. Returns its standard output.
#[track_caller]
pub(crate) fn done(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}\n{}", kit::stderr(&output));
    kit::stdout(&output)
}

/// Creates a project in an empty folder. Returns the folder and the project.
pub(crate) fn project(name: &str, language: Language) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    done(flowcell(folder.path()).args(["node", "new", name, "--lang", language.name()]));
    let project = folder.path().join(name);
    match language {
        Language::Rust => name_library(&project, &folder),
        Language::Js | Language::Ts => install_packages(&project),
        Language::Python | Language::C | Language::Go | Language::Zig => {}
    }
    (folder, project)
}

/// Gives the library of a project a name that no other one has. Cargo writes a component to a file with this name, and the
/// tests share the folder.
fn name_library(project: &Path, folder: &TempDir) {
    let manifest = fs::read_to_string(project.join("Cargo.toml")).unwrap();
    let unique = folder.path().file_name().unwrap().to_string_lossy().replace('.', "_").to_lowercase();
    let named = manifest.replacen("[lib]\n", &format!("[lib]\nname = \"pack{unique}\"\n"), 1);
    assert_ne!(manifest, named);
    fs::write(project.join("Cargo.toml"), named).unwrap();
}

/// Gives a project in JavaScript the packages that a new one asks for. They are installed once for all tests.
fn install_packages(project: &Path) {
    static INSTALLED: OnceLock<TempDir> = OnceLock::new();
    let installed = INSTALLED.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        done(flowcell(folder.path()).args(["node", "new", "all", "--dir", ".", "--lang", "js"]));
        npm_install(folder.path());
        folder
    });
    link(&installed.path().join("node_modules"), &project.join("node_modules"));
}

/// Copies a folder with its content and its links. The files are hard links, because a build refuses packages that a link
/// brings into the project, and copies of the tools would be large.
fn link(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (kind, to) = (entry.file_type().unwrap(), to.join(entry.file_name()));
        if kind.is_dir() {
            link(&entry.path(), &to);
        } else if kind.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(entry.path()).unwrap(), to).unwrap();
        } else {
            fs::hard_link(entry.path(), to).unwrap();
        }
    }
}

/// Installs the packages of a project.
pub(crate) fn npm_install(project: &Path) {
    let mut command = Command::new("npm");
    command.args(["install", "--silent", "--no-audit", "--no-fund", "--prefer-offline"]).current_dir(project);
    done(&mut command);
}

/// Copies a folder with its content.
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
