//! Vendors the packages of a Python project's `requirements.txt`, with pip. The lock has their versions and hashes. While
//! the vendored packages are those of the lock, a build needs neither pip nor a network.

mod parse;

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process::Command,
};

use serde::Deserialize;

use self::parse::LineError;
use super::tool::Tool;
use crate::{
    cli_error::CliError,
    commands::node::project::{Project, check_is_inside},
    terminal::Terminal,
};

const FILE: &str = "requirements.txt";
const LOCK: &str = "requirements.lock";
/// The folder of the vendored packages.
const FOLDER: &str = "python_modules";
/// The file in [`FOLDER`] that has the text of the lock whose packages are there.
const STAMP: &str = ".lock";

const PIP: Tool = Tool { program: "pip", beside: &[".venv/bin", ".venv/Scripts"], install: "python3 -m venv .venv" };

/// The variables that pip gets: those of the system, of proxies and certificates, and those with which authors choose their
/// index. Others, such as `PIP_NO_BINARY`, could change what a build runs.
const VARIABLES: [&str; 43] = [
    "PATH",
    "HOME",
    "USERPROFILE",
    "APPDATA",
    "LOCALAPPDATA",
    "SYSTEMROOT",
    "PATHEXT",
    "TEMP",
    "TMP",
    "TMPDIR",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_DIRS",
    "XDG_CONFIG_HOME",
    "PYENV_ROOT",
    "PYENV_VERSION",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "NETRC",
    "PIP_CACHE_DIR",
    "PIP_CERT",
    "PIP_CLIENT_CERT",
    "PIP_CONFIG_FILE",
    "PIP_DEFAULT_TIMEOUT",
    "PIP_EXTRA_INDEX_URL",
    "PIP_FIND_LINKS",
    "PIP_INDEX_URL",
    "PIP_KEYRING_PROVIDER",
    "PIP_NO_CACHE_DIR",
    "PIP_NO_INDEX",
    "PIP_PROXY",
    "PIP_RETRIES",
    "PIP_TIMEOUT",
    "PIP_TRUSTED_HOST",
];

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
    check_is_inside(&project.folder, &file)?;
    let asked = match fs::read_to_string(&file) {
        Ok(asked) => asked,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(CliError::wrong(format!("cannot read {}", file.display())).because(&error)),
    };
    let requirements = parse::requirements(&asked).map_err(|error| {
        refused(FILE, error).hint(
            "write packages of an index only, such as `jinja2==3.1.6`; set options in the configuration of pip, and put \
             other packages into `vendor`",
        )
    })?;
    let head = format!(
        "# Made by `flowcell node build` from a {FILE} with the digest {}.\n",
        flowcell::packs::digest(asked.as_bytes())
    );
    check_is_inside(&project.folder, &project.folder.join(LOCK))?;
    let known = fs::read_to_string(project.folder.join(LOCK)).ok();
    let known = match known.as_deref().and_then(|lock| lock.strip_prefix(head.as_str())) {
        Some(lines) => {
            let lines = parse::locked(lines).map_err(|error| {
                refused(LOCK, error).hint(format!("remove {LOCK}, and the next build makes it again from {FILE}"))
            })?;
            Some(lines.to_owned())
        }
        None => None,
    };
    let lines = match known {
        Some(lines) => lines,
        None => {
            let packages = resolve(project, &requirements)?;
            let lines = packages.iter().map(Package::line).collect::<Result<String, _>>()?;
            write(&project.folder.join(LOCK), &format!("{head}{lines}"))?;
            let shown = packages.iter().map(Package::shown).collect::<Vec<_>>().join(", ");
            terminal.say(&terminal.paint().faint(&format!("locked {shown} in {LOCK}")));
            lines
        }
    };
    let lock = head + &lines;
    let folder = project.folder.join(FOLDER);
    if fs::read_to_string(folder.join(STAMP)).is_ok_and(|stamp| stamp == lock) {
        return Ok(Some(folder));
    }
    let removed = install(project, &folder, &lines, &lock)?;
    if !removed.is_empty() {
        let shown = removed.join(", ");
        terminal.say(&terminal.paint().faint(&format!("left out native code, which a pack cannot run: {shown}")));
    }
    Ok(Some(folder))
}

fn refused(file: &str, LineError { line, why }: LineError) -> CliError {
    CliError::wrong(format!("line {line} of {file} {why}"))
}

/// Returns the packages that pip chooses, with all that they need.
fn resolve(project: &Project, requirements: &str) -> Result<Vec<Package>, CliError> {
    if let Ok(packages) = report(project, &PURE_TAGS, &[], requirements) {
        return Ok(packages);
    }
    let packages = report(project, &ALL_TAGS, &[], requirements)?;
    let mut chosen = Vec::new();
    let mut native = Vec::new();
    for package in packages {
        if package.is_pure() || package.is_pure_without_native() {
            chosen.push(package);
            continue;
        }
        let Metadata { name, version } = &package.metadata;
        match report(project, &PURE_TAGS, &["--no-deps"], &format!("{name}=={version}\n")) {
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
fn report(project: &Project, tags: &[&str], options: &[&str], requirements: &str) -> Result<Vec<Package>, CliError> {
    let work = temp_folder()?;
    let file = work.path().join("report.json");
    let mut command = pip(project, work.path(), requirements)?;
    command.args(["--dry-run", "--ignore-installed"]).args(tags).args(options);
    command.arg("--target").arg(work.path().join("target")).arg("--report").arg(&file);
    PIP.run(command)?;
    let text = fs::read_to_string(&file);
    let text = text.map_err(|error| CliError::internal("cannot read the report of pip").because(&error))?;
    let report: Report = serde_json::from_str(&text)
        .map_err(|error| CliError::internal("cannot read the report of pip").because(&error).hint("update pip"))?;
    let wrong = report.install.iter().map(|package| &package.metadata);
    let wrong = wrong.filter(|package| !parse::is_name(&package.name) || !parse::is_version(&package.version));
    match wrong.map(|package| format!("{:?} {:?}", package.name, package.version)).next() {
        None => Ok(report.install),
        Some(wrong) => {
            Err(CliError::wrong(format!("the index of pip has a package with a wrong name or version: {wrong}"))
                .hint("choose another version of the package, or put it into `vendor`"))
        }
    }
}

/// Returns a command that installs requirements. It runs in `work`, an empty folder, so that no name is also the name of a
/// file. pip gets neither the project's files nor other variables than [`VARIABLES`], which could name options.
fn pip(project: &Project, work: &Path, requirements: &str) -> Result<Command, CliError> {
    let file = work.join(FILE);
    write(&file, requirements)?;
    let mut command = PIP.command(&project.folder)?;
    command.env_clear().envs(VARIABLES.iter().filter_map(|name| Some((name, env::var_os(name)?)))).current_dir(work);
    command.arg("install").args(OPTIONS).arg("--requirement").arg(file);
    Ok(command)
}

fn temp_folder() -> Result<tempfile::TempDir, CliError> {
    tempfile::tempdir().map_err(|error| CliError::internal("cannot create a temporary folder").because(&error))
}

/// Installs the packages of the lock into the folder, all or none. Returns the files with native code, which it leaves out.
fn install(project: &Project, folder: &Path, lines: &str, lock: &str) -> Result<Vec<String>, CliError> {
    let failed = |error: &io::Error| CliError::wrong(format!("cannot write {}", folder.display())).because(error);
    let new = tempfile::Builder::new().prefix(".python_modules").tempdir_in(&project.folder);
    let new = new.map_err(|error| failed(&error))?;
    let work = temp_folder()?;
    let mut command = pip(project, work.path(), lines)?;
    command.args(["--no-deps", "--no-compile", "--require-hashes"]).args(ALL_TAGS).arg("--target").arg(new.path());
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
