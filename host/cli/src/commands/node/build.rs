//! `flowcell node build`: builds a pack from a project.

mod bundle;
mod cargo;
mod machine_paths;
mod requirements;
mod staged;
mod tool;

use std::{
    env, fs, io,
    path::{Component, Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use clap::{Args, ValueHint};
use flowcell::{Inspection, contract::Digest, embed, embed_readme, inspect, packs::write_atomically};

use self::{
    staged::{copy_sources, empty_environment},
    tool::Tool,
};
use super::project::{Builder, MANIFEST, Project, check_is_inside};
use crate::{
    cli_error::{CliError, Exit},
    duration,
    output::put_line,
    terminal::Terminal,
};

/// The target that packs in Rust are compiled for.
const RUST_TARGET: &str = "wasm32-wasip2";
/// The README of a project, which travels in the pack.
const README: &str = "README.md";
/// The module of a Python project that implements the pack.
const PYTHON_MODULE: &str = "nodes";
/// The file of a JavaScript project that implements the pack. `package.json` may name another.
const JS_MAIN: &str = "nodes.js";

const CARGO: Tool = Tool { program: "cargo", beside: &[], install: "install Rust through rustup" };
const QUICKJS: Tool = Tool {
    program: "componentize-qjs",
    beside: &["node_modules/.bin"],
    install: "npm install --save-dev componentize-qjs@0.4.5",
};
const CPYTHON: Tool = Tool {
    program: "componentize-py",
    beside: &[".venv/bin", ".venv/Scripts"],
    install: "python3 -m venv .venv && .venv/bin/pip install componentize-py==0.25.1",
};
const SHELL: Tool = Tool { program: "sh", beside: &[], install: "the system shell runs `build.sh`" };

/// Arguments of a build.
#[derive(Args)]
pub(super) struct BuildArgs {
    /// The folder of the project
    #[arg(value_name = "DIR", default_value = ".", value_hint = ValueHint::DirPath)]
    folder: PathBuf,
    /// The folder of the built pack [default: `dist` in the project]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    out: Option<PathBuf>,
    /// For JavaScript and Python: a folder that contains the project and all other modules that JavaScript imports, and
    /// `wit` if the project does not; its files may be published [default: the project]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    root: Option<PathBuf>,
    /// For Python: a folder of modules to import; may be repeated [default: `vendor` in the project]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    python_path: Vec<PathBuf>,
}

/// A pack that was built, and its file.
pub(super) struct Built {
    pub(super) project: Project,
    pub(super) file: PathBuf,
    pub(super) digest: Digest,
}

pub(super) fn execute(args: &BuildArgs, terminal: Terminal) -> Result<Exit, CliError> {
    let built = args.build(terminal)?;
    put_line(&built.file.display().to_string())?;
    Ok(Exit::Good)
}

impl BuildArgs {
    /// Returns the default options for a project whose folder contains all its dependencies.
    pub(super) fn of(project: &Path) -> BuildArgs {
        BuildArgs { folder: project.to_owned(), out: None, root: None, python_path: Vec::new() }
    }

    /// Returns the project's folder.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Builds the pack, checks that a host accepts it, and writes it to the folder of the built pack.
    pub(super) fn build(&self, terminal: Terminal) -> Result<Built, CliError> {
        let began = Instant::now();
        let project = Project::open(&self.folder)?;
        let component = match project.builder {
            Builder::Cargo => rust(&project)?,
            Builder::QuickJs => embedded(&project, self.javascript(&project)?)?,
            Builder::CPython => embedded(&project, self.python(&project, terminal)?)?,
            Builder::Script => embedded(&project, script(&project)?)?,
        };
        let component = with_readme(&project, component)?;
        if let Some(path) = machine_paths::find(&component, &self.own_folders(&project)) {
            terminal.warn(&format!(
                "the pack contains the path {path} of this machine, which others can read: build it without debug \
                 information, or let the compiler write another path in its place"
            ));
        }
        let Inspection { manifest, size, digest, .. } = inspect(&component)
            .map_err(|error| CliError::wrong("the build result is not a valid pack").because(&error))?;
        if serde_json::to_value(&manifest).ok() != serde_json::to_value(&project.manifest).ok() {
            return Err(CliError::wrong("the built pack contains another manifest than `node.yaml` of the project").hint(
                "name `node.yaml` in `pack!`. If other crates of this name use the same target folder, give each its own \
                 `CARGO_TARGET_DIR`",
            ));
        }
        let out = self.out.clone().unwrap_or_else(|| self.folder.join("dist"));
        let file = out.join(format!("{}.wasm", project.manifest.name));
        // A link there is replaced, and not followed.
        let written = fs::create_dir_all(&out).and_then(|()| write_atomically(&file, &component));
        written.map_err(|error| CliError::wrong(format!("cannot write {}", file.display())).because(&error))?;
        let (size, took) = (size.div_ceil(1024), duration::show(began.elapsed()));
        terminal.say(&terminal.paint().faint(&format!("built {} in {took}: {size} KiB", file.display())));
        Ok(Built { project, file, digest })
    }

    /// Returns the folders of the author that the build reads and writes.
    fn own_folders(&self, project: &Project) -> Vec<PathBuf> {
        let given = self.root.iter().chain(&self.python_path).filter_map(|folder| folder.canonicalize().ok());
        [project.folder.clone(), env::temp_dir()].into_iter().chain(env::home_dir()).chain(given).collect()
    }

    /// Returns the folder of `--root`, or the project, without links in its path.
    fn root(&self, project: &Project) -> Result<PathBuf, CliError> {
        let Some(root) = &self.root else { return Ok(project.folder.clone()) };
        root.canonicalize().map_err(|error| {
            CliError::wrong(format!("cannot find {}, the folder of `--root`", root.display())).because(&error)
        })
    }

    fn javascript(&self, project: &Project) -> Result<Vec<u8>, CliError> {
        let root = self.root(project)?;
        let wit = wit(project, &root)?;
        let component = temp_file()?;
        let package = package(project)?;
        let main = main_file(project, &package["main"], &root)?;
        let out = tempfile::tempdir()
            .map_err(|error| CliError::internal("cannot create a temporary folder").because(&error))?;
        let bundle = if bundle::is_wanted(&package) {
            let folder = out.path().canonicalize().unwrap_or_else(|_| out.path().to_owned());
            Some((bundle::bundle(project, &main, &root, &folder)?, folder))
        } else {
            None
        };
        let (module, root_of_modules) = match &bundle {
            Some((bundle, folder)) => (bundle.file.clone(), folder),
            None => (project.folder.join(&main), &root),
        };
        let mut command = QUICKJS.command(&project.folder)?;
        // This host does not support async functions of the component model, so build with `--sync`.
        command.args(["--sync", "--opt-size", "--wit"]).arg(wit).arg("--module-root").arg(root_of_modules);
        command.arg("--js").arg(&module).arg("--output").arg(component.path());
        QUICKJS.run_shown(command, |output| match &bundle {
            Some((bundle, _)) => bundle.placed(output),
            None => output.to_owned(),
        })?;
        read(component.path())
    }

    fn python(&self, project: &Project, terminal: Terminal) -> Result<Vec<u8>, CliError> {
        let wit = wit(project, &self.root(project)?)?;
        let component = temp_file()?;
        let vendored = [project.folder.join("vendor")];
        check_is_inside(&project.folder, &vendored[0])?;
        let more = if self.python_path.is_empty() { &vendored[..] } else { &self.python_path };
        let packages = requirements::vendor(project, terminal)?;
        let folders = [project.folder.as_path()].into_iter().chain(more.iter().chain(&packages).map(PathBuf::as_path));
        let copies = folders.map(copy_sources).collect::<Result<Vec<_>, _>>()?;
        let environment = empty_environment()?;
        // The first pass leaves byte code beside the sources. The second one needs no compiler, whose memory would be part
        // of the pack: with packages it is a fifth.
        for _ in 0..if packages.is_some() { 2 } else { 1 } {
            let mut command = CPYTHON.command(&project.folder)?;
            command.arg("--quiet").arg("--wit-path").arg(&wit).args(["componentize", PYTHON_MODULE, "--output"]);
            command.arg(component.path());
            copies.iter().for_each(|copy| _ = command.arg("--python-path").arg(copy.path()));
            command.env("VIRTUAL_ENV", environment.path());
            CPYTHON.run(command)?;
        }
        read(component.path())
    }
}

/// Returns the folder `wit` of the folder of `--root`, or else of the project.
fn wit(project: &Project, root: &Path) -> Result<PathBuf, CliError> {
    for folder in [root, project.folder.as_path()] {
        let wit = folder.join("wit");
        if wit.is_dir() {
            return check_is_inside(folder, &wit).map(|()| wit);
        }
    }
    Err(CliError::wrong("the folder `wit`, with the interfaces of the pack, is missing")
        .hint("`flowcell node new` creates it in a project; name another folder that contains it with `--root DIR`"))
}

/// Returns the path of the file with the code of a JavaScript project, relative to the project: `main` of `package.json`, or
/// [`JS_MAIN`]. Fails if it leads out of the project.
fn main_file(project: &Project, main: &serde_json::Value, root: &Path) -> Result<PathBuf, CliError> {
    let wrong = |why: &str| {
        CliError::wrong(format!("`main` in `package.json` is {main}, {why}"))
            .hint("name a file of the project, such as `nodes.js`")
    };
    let name = match main {
        serde_json::Value::Null => JS_MAIN,
        main => main.as_str().ok_or_else(|| wrong("which is no text"))?,
    };
    let mut path = PathBuf::new();
    for part in Path::new(name).components() {
        match part {
            Component::Normal(part) => path.push(part),
            Component::CurDir => {}
            _ => return Err(wrong("which leads out of the project")),
        }
    }
    if path.as_os_str().is_empty() {
        return Err(wrong("which names no file"));
    }
    // esbuild takes what stands before `=` as the name of its output.
    if name.contains('=') {
        return Err(wrong("and esbuild reads no file with `=` in its name"));
    }
    let file = project.folder.join(&path);
    let in_root = file.canonicalize().is_ok_and(|file| file.starts_with(root));
    if !in_root {
        check_is_inside(&project.folder, &file)?;
    }
    Ok(path)
}

/// Compiles a Rust crate to a component. Unlike projects in other languages, the crate embeds the manifest itself.
fn rust(project: &Project) -> Result<Vec<u8>, CliError> {
    let mut command = CARGO.command(&project.folder)?;
    command.args(["build", "--release", "--target", RUST_TARGET, "--message-format", "json-render-diagnostics"]);
    cargo::hide_home(&mut command);
    let said = CARGO.output_of(command, || {
        lacks_target(&project.folder).then(|| format!("the target is missing: run `rustup target add {RUST_TARGET}`"))
    })?;
    let manifest = project.folder.join(Builder::Cargo.build_file());
    let messages = said.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let made =
        messages.filter(|message| message["manifest_path"].as_str().is_some_and(|path| Path::new(path) == manifest));
    let files = made.filter_map(|message| message["filenames"].as_array().cloned()).flatten();
    let component = files.filter_map(|file| file.as_str().map(PathBuf::from));
    let mut component = component.filter(|file| file.extension().is_some_and(|extension| extension == "wasm"));
    let component = component.next().ok_or_else(|| {
        CliError::wrong("the crate does not produce a component")
            .hint("add `[lib] crate-type = [\"cdylib\"]` to Cargo.toml")
    })?;
    read(&component)
}

/// Returns whether the compiler of a project has no library for [`RUST_TARGET`]. If it does not say, assumes that it has.
fn lacks_target(project: &Path) -> bool {
    let program = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let mut command = Command::new(program);
    command.args(["--print", "target-libdir", "--target", RUST_TARGET]).current_dir(project);
    let Ok(output) = command.stdin(Stdio::null()).output() else { return false };
    let folder = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    output.status.success() && !folder.is_empty() && !Path::new(&folder).exists()
}

/// Runs the project's own script with the path of the component file as its argument.
fn script(project: &Project) -> Result<Vec<u8>, CliError> {
    let component = temp_file()?;
    let mark = Builder::Script.build_file();
    let mut command = SHELL.command(&project.folder)?;
    command.arg(mark).arg(component.path());
    SHELL.run(command)?;
    let written = read(component.path())?;
    if written.is_empty() {
        return Err(CliError::wrong(format!("`{mark}` wrote no component"))
            .hint("the script must write the component to the file that its argument \"$1\" names"));
    }
    Ok(written)
}

fn embedded(project: &Project, component: Vec<u8>) -> Result<Vec<u8>, CliError> {
    embed(component, &project.manifest_text)
        .map_err(|error| CliError::wrong(format!("cannot embed {MANIFEST} in the component")).because(&error))
}

/// Adds the project's README to the component, if there is one and the component has none.
fn with_readme(project: &Project, component: Vec<u8>) -> Result<Vec<u8>, CliError> {
    let file = project.folder.join(README);
    check_is_inside(&project.folder, &file)?;
    let text = match fs::read_to_string(&file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(component),
        read => read.map_err(|error| CliError::wrong(format!("cannot read {}", file.display())).because(&error))?,
    };
    embed_readme(component, &text)
        .map_err(|error| CliError::wrong(format!("cannot embed {README} in the component")).because(&error))
}

/// Reads the project's `package.json`.
fn package(project: &Project) -> Result<serde_json::Value, CliError> {
    let file = project.folder.join(Builder::QuickJs.build_file());
    let wrong = |error: &dyn std::error::Error| {
        CliError::wrong(format!("cannot read {}", file.display())).cause(&error.to_string())
    };
    let text = fs::read_to_string(&file).map_err(|error| wrong(&error))?;
    serde_json::from_str(&text).map_err(|error| wrong(&error))
}

fn temp_file() -> Result<tempfile::NamedTempFile, CliError> {
    tempfile::NamedTempFile::new()
        .map_err(|error| CliError::internal("cannot create a temporary file for the component").because(&error))
}

fn read(file: &Path) -> Result<Vec<u8>, CliError> {
    fs::read(file).map_err(|error| CliError::internal(format!("cannot read {}", file.display())).because(&error))
}

#[cfg(all(test, unix))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::os::unix::fs::symlink;

    use serde_json::json;

    use super::*;

    /// Creates a project in JavaScript in the folder `shop`.
    fn project(all: &Path) -> Project {
        let folder = all.join("shop");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(MANIFEST), "name: shop\nversion: 1.0.0\nnodes: []\n").unwrap();
        fs::write(folder.join("package.json"), "{}").unwrap();
        Project::open(&folder).unwrap()
    }

    #[test]
    fn the_main_file_is_one_of_the_project() {
        let all = tempfile::tempdir().unwrap();
        let project = project(all.path());
        fs::write(all.path().join("private.js"), "").unwrap();
        let main = |main: serde_json::Value| main_file(&project, &main, &project.folder);
        for (given, path) in [
            (json!(null), "nodes.js"),
            (json!("./lib/../nodes.ts"), ""),
            (json!("./lib/./nodes.ts"), "lib/nodes.ts"),
            (json!("--version"), "--version"),
            (json!("--outfile=x"), ""),
            (json!("../private.js"), ""),
            (json!("/etc/passwd"), ""),
            (json!("."), ""),
            (json!(""), ""),
            (json!(["nodes.js"]), ""),
        ] {
            let found = main(given.clone()).ok();
            assert_eq!(found.as_deref().unwrap_or(Path::new("")), Path::new(path), "{given}");
        }
        symlink("../private.js", project.folder.join("nodes.js")).unwrap();
        let refused = main(json!(null)).unwrap_err().plain();
        assert!(refused.contains("nodes.js is a link that leads out of"), "{refused}");
        let root = all.path().canonicalize().unwrap();
        assert!(main_file(&project, &json!(null), &root).is_ok(), "`--root` names the folder on purpose");
    }

    #[test]
    fn interfaces_are_those_of_the_root_or_of_the_project() {
        let all = tempfile::tempdir().unwrap();
        let project = project(all.path());
        let root = all.path().canonicalize().unwrap();
        assert!(wit(&project, &root).unwrap_err().plain().contains("`wit`"));
        fs::create_dir(project.folder.join("wit")).unwrap();
        assert_eq!(wit(&project, &root).unwrap(), project.folder.join("wit"));
        fs::create_dir(root.join("wit")).unwrap();
        assert_eq!(wit(&project, &root).unwrap(), root.join("wit"));
        fs::remove_dir(project.folder.join("wit")).unwrap();
        symlink("../wit", project.folder.join("wit")).unwrap();
        let refused = wit(&project, &project.folder).unwrap_err().plain();
        assert!(refused.contains("wit is a link that leads out of"), "{refused}");
    }
}
