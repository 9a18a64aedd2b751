//! `flowcell node new`: creates a project that builds.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use clap::{Args, ValueEnum, ValueHint};
use flowcell::is_reserved;
use include_dir::{Dir, DirEntry, include_dir};

use crate::{
    arguments::shell_word,
    cli_error::{CliError, Exit},
    output::put_line,
    terminal::Terminal,
};

/// Files that all projects have.
static COMMON: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/carried/templates/common");
static RUST: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/carried/templates/rust");
static JS: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/carried/templates/js");
static TS: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/carried/templates/ts");
static PYTHON: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/carried/templates/python");
static C: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/carried/templates/c");
static GO: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/carried/templates/go");
static ZIG: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/carried/templates/zig");
/// The WIT interface and the SDKs. Each project gets copies, so that it builds in any folder.
static WIT: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/carried/wit");
static RUST_SDK: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/carried/rust");
static RUST_README: &str = include_str!("../../../carried/readme/rust.md");
static JS_SDK: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/carried/js");
static PYTHON_SDK: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/carried/python");
static PYTHON_README: &str = include_str!("../../../carried/readme/python.md");
static C_README: &str = include_str!("../../../carried/readme/c.md");
static GO_README: &str = include_str!("../../../carried/readme/go.md");
static ZIG_README: &str = include_str!("../../../carried/readme/zig.md");

/// The name in the templates that the pack's name replaces.
const TEMPLATE_NAME: &str = "acme";
/// Maximum number of characters of a pack's name.
const MAX_NAME_CHARS: usize = 32;

/// The language of a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Language {
    /// Compiled by cargo
    Rust,
    /// Interpreted by QuickJS, which the pack contains
    Js,
    /// Types are removed, then as JavaScript
    Ts,
    /// Interpreted by CPython, which the pack contains
    Python,
    /// Compiled by zig or another clang, without an SDK
    C,
    /// Compiled by Go, without an SDK
    Go,
    /// Compiled by zig, without an SDK
    Zig,
}

/// Arguments of `flowcell node new`.
#[derive(Args)]
pub(super) struct NewArgs {
    /// The name of the pack and the prefix of its node types: a letter, then a-z, 0-9 and `-`
    #[arg(value_parser = pack_name)]
    name: String,
    /// The language of the code
    #[arg(long, value_enum)]
    lang: Language,
    /// The folder of the project [default: the name of the pack]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    dir: Option<PathBuf>,
}

pub(super) fn execute(args: &NewArgs, terminal: Terminal) -> Result<Exit, CliError> {
    let folder = args.dir.clone().unwrap_or_else(|| PathBuf::from(&args.name));
    let shown = folder.display();
    if fs::read_dir(&folder).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(CliError::wrong(format!("{shown} is not empty"))
            .hint("choose another folder for the project with `--dir DIR`"));
    }
    let made = make(&folder, &args.name, args.lang);
    made.map_err(|error| CliError::wrong(format!("cannot write the project into {shown}")).because(&error))?;
    put_line(&shown.to_string())?;
    let shown = shell_word(&shown.to_string());
    let test = format!("`flowcell node test {shown}` builds the project and runs its cases");
    let hint = match args.lang {
        Language::Js | Language::Ts => format!("`npm install` in {shown} gets the tools; then {test}"),
        _ => test,
    };
    terminal.say(&terminal.paint().faint(&hint));
    Ok(Exit::Good)
}

/// Checks that a name is valid for cargo, npm, Python packages and flows alike.
fn pack_name(text: &str) -> Result<String, String> {
    let plain = text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    if !plain
        || !text.starts_with(|c: char| c.is_ascii_lowercase())
        || text.ends_with('-')
        || text.len() > MAX_NAME_CHARS
    {
        return Err(format!("use a letter, then letters a-z, digits and `-`, at most {MAX_NAME_CHARS} characters"));
    }
    if is_reserved(text) {
        return Err(format!("`{text}` is reserved for the built-in packs; choose another name"));
    }
    Ok(text.to_owned())
}

fn make(folder: &Path, name: &str, language: Language) -> io::Result<()> {
    let vendor = folder.join("vendor");
    let own = match language {
        Language::Rust => {
            copy(&RUST_SDK, &vendor.join("flowcell-sdk/src"))?;
            copy(&WIT, &vendor.join("flowcell-sdk/wit"))?;
            fs::write(vendor.join("flowcell-sdk/README.md"), RUST_README)?;
            &RUST
        }
        Language::Js | Language::Ts => {
            copy(&JS_SDK, &vendor.join("flowcell-sdk"))?;
            if language == Language::Ts { &TS } else { &JS }
        }
        Language::Python => {
            copy(&PYTHON_SDK, &vendor.join("flowcell_sdk"))?;
            fs::write(vendor.join("README.md"), PYTHON_README)?;
            &PYTHON
        }
        Language::C => with_readme(folder, C_README, &C)?,
        Language::Go => with_readme(folder, GO_README, &GO)?,
        Language::Zig => with_readme(folder, ZIG_README, &ZIG)?,
    };
    copy(&WIT, &folder.join("wit"))?;
    fill(&COMMON, folder, name)?;
    fill(own, folder, name)
}

/// Writes the README of a language without an SDK into a project. Returns the template.
fn with_readme<'a>(folder: &Path, readme: &str, template: &'a Dir<'a>) -> io::Result<&'a Dir<'a>> {
    fs::create_dir_all(folder)?;
    fs::write(folder.join("README.md"), readme)?;
    Ok(template)
}

/// Copies the files of an embedded folder unchanged.
fn copy(from: &Dir<'_>, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    from.extract(to)
}

/// Copies the files of a template. The pack's name replaces [`TEMPLATE_NAME`] in texts and in file names.
fn fill(from: &Dir<'_>, to: &Path, name: &str) -> io::Result<()> {
    for entry in from.entries() {
        match entry {
            DirEntry::Dir(dir) => fill(dir, to, name)?,
            DirEntry::File(file) => {
                let path = file.path().to_string_lossy().replace(TEMPLATE_NAME, name);
                let path = to.join(project_path(&path));
                fs::create_dir_all(path.parent().unwrap_or(to))?;
                fs::write(path, String::from_utf8_lossy(file.contents()).replace(TEMPLATE_NAME, name))?;
            }
        }
    }
    Ok(())
}

/// Returns the path in the project of a file of a template. As `.gitignore` and `Cargo.toml` the templates would take
/// effect in this repository, and cargo would leave their folders out of the package of this crate.
fn project_path(path: &str) -> &str {
    if path == "gitignore" { ".gitignore" } else { path.strip_suffix(".template").unwrap_or(path) }
}
