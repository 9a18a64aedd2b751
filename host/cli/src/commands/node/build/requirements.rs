//! Vendors the packages of a Python project's `requirements.txt`, with pip. The lock has their versions and hashes. While
//! the vendored packages are those of the lock, a build needs neither pip nor a network.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::Deserialize;

use super::{temp_file, tool::Tool};
use crate::{cli_error::CliError, commands::node::project::Project, terminal::Terminal};

const FILE: &str = "requirements.txt";
const LOCK: &str = "requirements.lock";
/// The folder of the vendored packages.
const FOLDER: &str = "python_modules";
/// The file in [`FOLDER`] that has the text of the lock whose packages are there.
const STAMP: &str = ".lock";

const PIP: Tool = Tool { program: "pip", beside: &[".venv/bin", ".venv/Scripts"], install: "python3 -m venv .venv" };

/// Tags of packages that run in a pack: without native code.
const PURE_TAGS: [&str; 6] = ["--implementation", "py", "--abi", "none", "--platform", "any"];
/// The same, and tags of a usual machine, for packages whose native code can be left out.
const ALL_TAGS: [&str; 14] = [
    "--implementation",
    "cp",
    "--abi",
    "cp314",
    "--abi",
    "none",
    "--platform",
    "manylinux2014_x86_64",
    "--platform",
    "manylinux_2_28_x86_64",
    "--platform",
    "manylinux_2_34_x86_64",
    "--platform",
    "any",
];
/// Options of each call: the Python of componentize-py 0.25, and wheels only, since the build of a source runs its code.
const OPTIONS: [&str; 6] =
    ["--quiet", "--no-input", "--disable-pip-version-check", "--only-binary=:all:", "--python-version", "3.14"];

/// Packages that work without their native code, which makes them faster only. Their names are normalized.
const PURE_WITHOUT_NATIVE: [&str; 2] = ["markupsafe", "pyyaml"];
/// Endings of files with native code.
const NATIVE_ENDINGS: [&str; 4] = ["so", "pyd", "dylib", "dll"];

/// The report of `pip install --report`, as far as it is used.
#[derive(Deserialize)]
struct Report {
    install: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    metadata: Metadata,
    download_info: Download,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
    version: String,
}

#[derive(Deserialize)]
struct Download {
    url: String,
    #[serde(default)]
    archive_info: Archive,
}

#[derive(Default, Deserialize)]
struct Archive {
    #[serde(default)]
    hashes: Hashes,
}

#[derive(Default, Deserialize)]
struct Hashes {
    sha256: Option<String>,
}

impl Package {
    fn is_pure(&self) -> bool {
        self.download_info.url.ends_with("-none-any.whl")
    }

    fn shown(&self) -> String {
        format!("{} {}", self.metadata.name, self.metadata.version)
    }

    /// Returns true if the package works without its native code.
    fn is_pure_without_native(&self) -> bool {
        let normalized = self.metadata.name.to_lowercase().replace(['_', '.'], "-");
        PURE_WITHOUT_NATIVE.contains(&normalized.as_str())
    }

    /// Returns the line of the lock.
    fn line(&self) -> Result<String, CliError> {
        let Metadata { name, version } = &self.metadata;
        let hash = self.download_info.archive_info.hashes.sha256.as_ref();
        let hash = hash.filter(|_| self.download_info.url.ends_with(".whl")).ok_or_else(|| {
            CliError::wrong(format!("{FILE} names `{name}` by an address that is not a wheel"))
                .hint("name packages of an index with their versions, such as `jinja2==3.1.6`")
        })?;
        Ok(format!("{name}=={version} --hash=sha256:{hash}\n"))
    }
}

/// Vendors the packages that the project asks for. Returns their folder, or `None` if the project asks for none.
pub(super) fn vendor(project: &Project, terminal: Terminal) -> Result<Option<PathBuf>, CliError> {
    let file = project.folder.join(FILE);
    let asked = match fs::read_to_string(&file) {
        Ok(asked) => asked,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(CliError::wrong(format!("cannot read {}", file.display())).because(&error)),
    };
    if let Some(line) = asked.lines().find(|line| line.trim_start().starts_with('-')) {
        return Err(CliError::wrong(format!("{FILE} has the option `{}`", line.trim()))
            .hint("write packages only, and set options in the configuration of pip"));
    }
    let head = format!(
        "# Made by `flowcell node build` from a {FILE} with the digest {}.\n",
        flowcell::packs::digest(asked.as_bytes())
    );
    let known = fs::read_to_string(project.folder.join(LOCK)).ok().filter(|lock| lock.starts_with(&head));
    let lock = match known {
        Some(lock) => lock,
        None => {
            let packages = resolve(project, &file)?;
            let lines = packages.iter().map(Package::line).collect::<Result<String, _>>()?;
            let lock = head + &lines;
            write(&project.folder.join(LOCK), &lock)?;
            let shown = packages.iter().map(Package::shown).collect::<Vec<_>>().join(", ");
            terminal.say(&terminal.paint().faint(&format!("locked {shown} in {LOCK}")));
            lock
        }
    };
    let folder = project.folder.join(FOLDER);
    if fs::read_to_string(folder.join(STAMP)).is_ok_and(|stamp| stamp == lock) {
        return Ok(Some(folder));
    }
    let removed = install(project, &folder, &lock)?;
    if !removed.is_empty() {
        let shown = removed.join(", ");
        terminal.say(&terminal.paint().faint(&format!("left out native code, which a pack cannot run: {shown}")));
    }
    Ok(Some(folder))
}

/// Returns the packages that pip chooses, with all that they need.
fn resolve(project: &Project, file: &Path) -> Result<Vec<Package>, CliError> {
    let asked = ["--requirement".to_owned(), file.display().to_string()];
    if let Ok(packages) = report(project, &PURE_TAGS, &asked) {
        return Ok(packages);
    }
    let packages = report(project, &ALL_TAGS, &asked)?;
    let mut chosen = Vec::new();
    let mut native = Vec::new();
    for package in packages {
        if package.is_pure() || package.is_pure_without_native() {
            chosen.push(package);
            continue;
        }
        let Metadata { name, version } = &package.metadata;
        match report(project, &PURE_TAGS, &["--no-deps".to_owned(), format!("{name}=={version}")]) {
            Ok(pure) => chosen.extend(pure),
            Err(_) => native.push(package.shown()),
        }
    }
    if native.is_empty() {
        return Ok(chosen);
    }
    let native = native.join(", ");
    Err(CliError::wrong(format!("{FILE} needs packages with native code, which a pack cannot run: {native}")).hint(
        "use packages in pure Python; if such a package also works without its native code, put it into `vendor` \
         without it",
    ))
}

/// Returns what pip would install, without installing it.
fn report(project: &Project, tags: &[&str], asked: &[String]) -> Result<Vec<Package>, CliError> {
    let file = temp_file()?;
    let target =
        tempfile::tempdir().map_err(|error| CliError::internal("cannot create a temporary folder").because(&error))?;
    let mut command = PIP.command(&project.folder)?;
    command.args(["install", "--dry-run", "--ignore-installed"]).args(OPTIONS).args(tags).args(asked);
    command.arg("--target").arg(target.path()).arg("--report").arg(file.path());
    PIP.run(command)?;
    let text = fs::read_to_string(file.path());
    let text = text.map_err(|error| CliError::internal("cannot read the report of pip").because(&error))?;
    let report: Report = serde_json::from_str(&text)
        .map_err(|error| CliError::internal("cannot read the report of pip").because(&error).hint("update pip"))?;
    Ok(report.install)
}

/// Installs the packages of the lock into the folder, all or none. Returns the files with native code, which it leaves out.
fn install(project: &Project, folder: &Path, lock: &str) -> Result<Vec<String>, CliError> {
    let failed = |error: &io::Error| CliError::wrong(format!("cannot write {}", folder.display())).because(error);
    let new = tempfile::Builder::new().prefix(".python_modules").tempdir_in(&project.folder);
    let new = new.map_err(|error| failed(&error))?;
    let mut command = PIP.command(&project.folder)?;
    command.args(["install", "--no-deps", "--no-compile", "--require-hashes"]).args(OPTIONS).args(ALL_TAGS);
    command.arg("--target").arg(new.path()).arg("--requirement").arg(project.folder.join(LOCK));
    PIP.run(command)?;
    let mut removed = Vec::new();
    remove_native(new.path(), &mut removed).map_err(|error| failed(&error))?;
    removed.sort();
    // Programs of packages do not run in a pack.
    _ = fs::remove_dir_all(new.path().join("bin"));
    write(&new.path().join(STAMP), lock)?;
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(|error| failed(&error))?;
    }
    fs::rename(new.keep(), folder).map_err(|error| failed(&error))?;
    Ok(removed)
}

fn remove_native(folder: &Path, removed: &mut Vec<String>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            remove_native(&path, removed)?;
        } else if path.extension().is_some_and(|ending| NATIVE_ENDINGS.iter().any(|native| ending == *native)) {
            fs::remove_file(&path)?;
            removed.extend(path.file_name().map(|name| name.to_string_lossy().into_owned()));
        }
    }
    Ok(())
}

fn write(file: &Path, text: &str) -> Result<(), CliError> {
    fs::write(file, text).map_err(|error| CliError::wrong(format!("cannot write {}", file.display())).because(&error))
}
