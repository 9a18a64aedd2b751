//! The files whose change begins a build.

use std::{
    ffi::OsStr,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Folders that only tools and runs write to.
const IGNORED_FOLDERS: [&str; 11] = [
    "__pycache__",
    "dist",
    "node_modules",
    "python_modules",
    "target",
    ".flowcell",
    ".git",
    ".venv",
    ".zig-cache",
    "zig-cache",
    "zig-out",
];
/// The extensions of sources, flows, cases, prompts, manifests, locks and packs.
const EXTENSIONS: [&str; 44] = [
    "bpmn", "c", "cc", "cjs", "cpp", "css", "cts", "cxx", "go", "graphql", "h", "hbs", "hpp", "html", "in", "j2",
    "jinja", "js", "json", "jsonc", "jsx", "liquid", "lock", "md", "mjs", "mod", "mts", "mustache", "proto", "py",
    "pyi", "rs", "s", "sh", "sql", "sum", "svg", "tmpl", "toml", "ts", "tsx", "wasm", "wit", "zig",
];
/// The extensions of flows, cases and manifests, whose names the project also searches for other inputs.
const DOCUMENTS: [&str; 3] = ["yaml", "yml", "zon"];
/// Other names of inputs.
const NAMES: [&str; 4] = ["requirements.txt", "Makefile", ".gitignore", ".npmrc"];
/// The files of a project that name other inputs.
const PROJECT_FILES: [&str; 7] =
    ["node.yaml", "Cargo.toml", "package.json", "pyproject.toml", "build.sh", "build.rs", "requirements.txt"];
/// Maximum bytes of a project file that is searched.
const MAX_PROJECT_FILE: u64 = 1 << 20;

/// Decides which files are inputs.
pub(super) struct Inputs {
    /// The watched folders, as canonical paths.
    folders: Vec<PathBuf>,
    /// Files that this command writes.
    outputs: Vec<PathBuf>,
    /// Device and inode of the files to which standard output and standard error go.
    streams: Vec<(u64, u64)>,
    /// The text of the project files and of the flow.
    named: String,
    flow: Option<PathBuf>,
}

impl Inputs {
    /// `outputs` are files that this command writes itself.
    pub(super) fn new(folders: Vec<PathBuf>, flow: Option<&Path>, outputs: &[&Path]) -> Inputs {
        let outputs = outputs.iter().filter_map(|path| std::path::absolute(path).ok());
        let outputs = outputs.map(|path| match (path.parent().map(Path::canonicalize), path.file_name()) {
            (Some(Ok(folder)), Some(name)) => folder.join(name),
            _ => path,
        });
        let (outputs, flow) = (outputs.collect(), flow.map(Path::to_owned));
        let mut inputs = Inputs { folders, outputs, streams: own_streams(), named: String::new(), flow };
        inputs.read_names();
        inputs
    }

    /// Reads the project files again, which may name other files now.
    pub(super) fn read_names(&mut self) {
        let files = self.folders.iter().flat_map(|folder| PROJECT_FILES.map(|name| folder.join(name)));
        let is_small = |file: &PathBuf| fs::metadata(file).is_ok_and(|about| about.len() <= MAX_PROJECT_FILE);
        let texts = files.chain(self.flow.clone()).filter(is_small).filter_map(|file| fs::read_to_string(file).ok());
        self.named = texts.collect::<Vec<_>>().join("\n");
    }

    /// Returns whether a change of the file at this path begins a build, unless git ignores the file.
    pub(super) fn has(&self, path: &Path) -> bool {
        let Some(name) = path.file_name().and_then(OsStr::to_str) else { return false };
        !is_of_an_editor(name)
            && !self.lies_in_an_ignored_folder(path)
            && self.is_named(path, name)
            && !self.outputs.iter().any(|output| output == path)
            && !identity(path).is_some_and(|identity| self.streams.contains(&identity))
    }

    /// Of the files that have changed, returns the one to name: the first that exists, or else the first. Leaves out those
    /// that git ignores. Returns `None` if no file is left.
    pub(super) fn one_of<'a>(&self, changed: &'a [PathBuf]) -> Option<&'a PathBuf> {
        let left: Vec<_> = changed.iter().filter(|path| !self.git_ignores(path)).collect();
        left.iter().find(|path| path.exists()).or(left.first()).copied()
    }

    fn is_named(&self, path: &Path, name: &str) -> bool {
        let extension = path.extension().and_then(OsStr::to_str).unwrap_or_default();
        EXTENSIONS.contains(&extension)
            || DOCUMENTS.contains(&extension)
            || NAMES.contains(&name)
            || self.flow.as_ref().and_then(|flow| flow.file_name()) == Some(OsStr::new(name))
            || has_word(&self.named, name)
    }

    fn lies_in_an_ignored_folder(&self, path: &Path) -> bool {
        let inside = self.folders.iter().filter_map(|folder| path.strip_prefix(folder).ok());
        // The name of a watched folder itself does not count: a folder of packs may be called `dist`.
        inside.min_by_key(|inside| inside.components().count()).is_some_and(|inside| {
            let folders = inside.parent().unwrap_or(Path::new(""));
            let is_ignored = |name: &OsStr| name.to_str().is_some_and(|name| IGNORED_FOLDERS.contains(&name));
            folders.components().any(|part| is_ignored(part.as_os_str())) || inside.file_name().is_some_and(is_ignored)
        })
    }

    /// Returns whether git ignores a file. Without git, or outside a repository, it ignores none.
    fn git_ignores(&self, path: &Path) -> bool {
        let Some(folder) = self.folders.iter().find(|folder| path.starts_with(folder)) else { return false };
        let mut command = Command::new("git");
        command.arg("-C").arg(folder).args(["check-ignore", "--quiet", "--"]).arg(path);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    }
}

/// Returns whether a text has a file name, and not only as a part of a longer one.
fn has_word(text: &str, name: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
    text.match_indices(name).any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + name.len()..]);
        !before.ends_with(is_part) && !after.starts_with(is_part)
    })
}

/// Returns device and inode of the files to which standard output and standard error of this process go.
#[cfg(unix)]
fn own_streams() -> Vec<(u64, u64)> {
    use std::{io, os::fd::AsFd};

    let streams = [io::stdout().as_fd().try_clone_to_owned(), io::stderr().as_fd().try_clone_to_owned()];
    let about = streams.into_iter().flatten().filter_map(|stream| File::from(stream).metadata().ok());
    about.filter(fs::Metadata::is_file).map(|about| identity_of(&about)).collect()
}

#[cfg(unix)]
fn identity_of(about: &fs::Metadata) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt;

    (about.dev(), about.ino())
}

#[cfg(unix)]
fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::metadata(path).ok().map(|about| identity_of(&about))
}

#[cfg(not(unix))]
fn own_streams() -> Vec<(u64, u64)> {
    Vec::new()
}

#[cfg(not(unix))]
fn identity(_: &Path) -> Option<(u64, u64)> {
    None
}

/// Returns whether editors give this name to backups, swap files, locks, and files that they rename afterwards.
fn is_of_an_editor(name: &str) -> bool {
    let ends = ["~", ".swp", ".swo", ".swx", ".tmp", ".bak", "___jb_tmp___", "___jb_old___"];
    // Vim creates the file 4913 to learn whether it may write to the folder.
    name == "4913"
        || name.starts_with(".#")
        || (name.starts_with('#') && name.ends_with('#'))
        || ends.iter().any(|end| name.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inputs(folder: &Path, outputs: &[&Path]) -> Inputs {
        Inputs::new(vec![folder.canonicalize().unwrap()], Some(Path::new("order.flow")), outputs)
    }

    #[test]
    fn files_of_editors_are_no_inputs() {
        for name in ["nodes.js~", ".nodes.js.swp", "4913", ".#nodes.js", "#nodes.js#", "a.tmp", "b.js___jb_tmp___"] {
            assert!(is_of_an_editor(name), "{name}");
        }
        for name in ["nodes.js", "#notes.md", "swp", "tmp.rs", "49131", ".gitignore"] {
            assert!(!is_of_an_editor(name), "{name}");
        }
    }

    #[test]
    fn only_inputs_of_a_build_count() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap();
        fs::write(path.join("node.yaml"), "name: shop # reads table.csv, and not old.txt.gz").unwrap();
        let results = path.join("results.json");
        let inputs = inputs(folder.path(), &[&results]);
        for name in
            ["nodes.js", "src/lib.rs", "cases/a.yaml", "Cargo.lock", "requirements.txt", "order.flow", "table.csv"]
        {
            assert!(inputs.has(&path.join(name)), "{name}");
        }
        for name in
            ["out.log", "sedhqYYSp", "other.csv", "old.txt", "a.js~", "dist/a.wasm", "target/x.rs", "results.json"]
        {
            assert!(!inputs.has(&path.join(name)), "{name}");
        }
    }

    #[test]
    fn the_file_that_exists_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap();
        fs::write(path.join("b.js"), "").unwrap();
        let changed = [path.join("a.js"), path.join("b.js")];
        assert_eq!(inputs(folder.path(), &[]).one_of(&changed), Some(&changed[1]));
        assert_eq!(inputs(folder.path(), &[]).one_of(&changed[..1]), Some(&changed[0]));
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_takes_the_output_is_no_input() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap().join("dev.md");
        fs::write(&path, "").unwrap();
        let mut inputs = inputs(folder.path(), &[]);
        assert!(inputs.has(&path));
        inputs.streams = identity(&path).into_iter().collect();
        assert!(!inputs.has(&path));
    }
}
