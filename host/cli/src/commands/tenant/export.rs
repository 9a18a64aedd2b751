//! `flowcell tenant export`: writes the data of a tenant into a new folder.

use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use clap::{Args, ValueHint};
use flowcell::{
    Filter, FlowLibrary, Host, RunRow, Runs,
    contract::{Tenant, host_files::TENANTS_FOLDER},
    files::CopyFileError,
    posted::PostedVersion,
    tenants::{Tenants, accounts},
    vault::VaultError,
};
use serde::Serialize;
use serde_json::{Value, json};

use super::{OneTenant, new_private_file};
use crate::{
    cli_error::{CliError, Exit},
    options::PackArgs,
    output::put_json,
};

/// The version of the folder's format: the member `v` of the manifest.
const EXPORT_VERSION: u32 = 1;
/// Number of rows that are read at a time.
const PAGE: usize = 500;
/// The data of a tenant that an export does not have.
const NOT_EXPORTED: [&str; 10] = [
    "jobs",
    "the values of secrets and of credentials, and tokens",
    "links to forms",
    "messages of notifications that wait, and the consents of the last 10 minutes",
    "values of state, sessions and step states",
    "cached values, and messages that no run has received",
    "marks and settings of triggers that are not in the files of flows",
    "the usage of earlier days",
    "files that nodes wrote into the folder of `--files`",
    "links in the folder of flows",
];

/// Arguments of `flowcell tenant export`.
#[derive(Args)]
#[command(after_help = "\
The folder gets
  runs.jsonl     a line for each run that no other run called, with its `file`
  runs/          these runs, as `runs export` prints them
  flows/         the flows of the folder with their versions
  posted.jsonl   a line for each version of a flow that was posted to a shared store, with its `exportedAs`
  posted/        these versions, each with its `text` and the `files` beside it
  files.jsonl    a line for each stored file
  files/         the contents of the stored files, by their ids
  audit.jsonl    the audit log
  policy.json, tokens.json, accounts.json
  secrets.json, credentials.json   their names and settings, without values
  manifest.json  amounts, and what is not exported; it is written last, so a folder without it is incomplete")]
pub(crate) struct ExportTenant {
    #[command(flatten)]
    tenant: OneTenant,
    /// The new folder; it may exist if it is empty
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    to: PathBuf,
    /// The folder of the flows of the tenant `local`; the flows of other tenants are in `.tenants` below it
    #[arg(long, value_name = "DIR", default_value = "flows", env = "FLOWCELL_FLOWS", value_hint = ValueHint::DirPath)]
    flows: PathBuf,
    #[command(flatten)]
    packs: PackArgs,
}

/// Exports a tenant, also while other processes use the store. A store in a folder is read at one moment.
pub(super) fn execute(args: &ExportTenant) -> Result<Exit, CliError> {
    let (host, runs) = args.packs.snapshot_host(&args.tenant.store)?;
    let tenant = Tenant::from(args.tenant.name.as_str());
    let wrong = |error: flowcell::tenants::TenantError| CliError::wrong(error.to_string());
    let tenants = Tenants::of(&host);
    // Fails if the tenant does not exist.
    let policy = tenants.policy(&args.tenant.name).map_err(wrong)?;
    let host = host.for_tenant(tenant.clone());
    let out = Folder::create(&args.to)?;
    let library = FlowLibrary::of_tenant(&args.flows, &tenant);
    out.require_outside(library.folder())?;
    let exported_runs = export_runs(&host, &*runs, &out)?;
    let flows = out.copy_folder(library.folder(), "flows")?;
    let posted = export_posted(&library.with_posted_of(&host), &out)?;
    let files = export_files(&host, &out)?;
    let audit = export_audit(&tenants, &args.tenant.name, &out)?;
    out.write_json("policy.json", &policy)?;
    let tokens = tenants.tokens(Some(&args.tenant.name)).map_err(wrong)?;
    out.write_json("tokens.json", &tokens)?;
    let accounts = accounts::list(&tenants, Some(&args.tenant.name)).map_err(wrong)?;
    out.write_json("accounts.json", &accounts)?;
    let locked = |error: VaultError| CliError::wrong(error.to_string());
    let secrets = host.vault().list(&tenant).map_err(locked)?;
    out.write_json("secrets.json", &secrets)?;
    let credentials = host.vault().list_credentials(&tenant).map_err(locked)?;
    out.write_json("credentials.json", &credentials)?;
    let manifest = json!({
        "v": EXPORT_VERSION,
        "tenant": args.tenant.name,
        "exported": host.now(),
        "runs": exported_runs,
        "flowFiles": flows,
        "postedVersions": posted,
        "files": files,
        "auditEntries": audit,
        "tokens": tokens.len(),
        "accounts": accounts.len(),
        "secrets": secrets.len(),
        "credentials": credentials.len(),
        "notExported": NOT_EXPORTED,
    });
    out.write_json("manifest.json", &manifest)?;
    put_json(&manifest)?;
    Ok(Exit::Good)
}

fn export_runs(host: &Host, runs: &dyn Runs, out: &Folder) -> Result<usize, CliError> {
    let mut index = out.file("runs.jsonl")?;
    let below = out.folder("runs")?;
    let (mut count, mut filter) = (0, Filter { limit: PAGE, ..Filter::default() });
    loop {
        let unreadable = |error| CliError::ending(Exit::Unreadable, format!("cannot read the store: {error}"));
        let page = runs.runs(host.tenant(), &filter).map_err(unreadable)?;
        let Some(last) = page.last() else { break };
        filter.after = Some(last.run_id.clone());
        for row in page {
            count += 1;
            // The id of a run need not be the name of a file.
            let name = numbered(count);
            let mut file = below.file(&name)?;
            host.export(runs, &row.run_id, &mut file)?;
            file.flush().map_err(|error| below.unwritable(&name, &error))?;
            out.write_line(&mut index, "runs.jsonl", &RunLine { file: format!("runs/{name}"), row })?;
        }
    }
    index.flush().map_err(|error| out.unwritable("runs.jsonl", &error))?;
    Ok(count)
}

/// Returns the name of a numbered file.
fn numbered(count: usize) -> String {
    format!("{count:08}.json")
}

/// A line of the list of runs.
#[derive(Serialize)]
struct RunLine {
    file: String,
    #[serde(flatten)]
    row: RunRow,
}

/// A line of the list of posted versions.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PostedLine<'a> {
    /// The file of the export. The record of the version has the name of the flow's own file.
    exported_as: String,
    name: &'a str,
    #[serde(flatten)]
    version: &'a PostedVersion,
}

/// Exports the versions of the flows in a shared store. The paths of the files beside a flow are the tenant's, and need not
/// fit the file system, so each version is one file.
fn export_posted(library: &FlowLibrary, out: &Folder) -> Result<usize, CliError> {
    let mut index = out.file("posted.jsonl")?;
    let below = out.folder("posted")?;
    let mut count = 0;
    library.each_posted(|flow| {
        count += 1;
        let name = numbered(count);
        below.write_json(&name, flow)?;
        let line = PostedLine { exported_as: format!("posted/{name}"), name: flow.name, version: flow.version };
        out.write_line(&mut index, "posted.jsonl", &line)
    })?;
    index.flush().map_err(|error| out.unwritable("posted.jsonl", &error))?;
    Ok(count)
}

fn export_files(host: &Host, out: &Folder) -> Result<usize, CliError> {
    let wrong = |error: flowcell::files::FileError| CliError::wrong(error.to_string());
    let mut index = out.file("files.jsonl")?;
    let below = out.folder("files")?;
    let rows = host.files().list().map_err(wrong)?;
    for row in &rows {
        let mut file = below.file(&row.file_id)?;
        host.copy_file(&row.value(), &mut file).map_err(|error| match error {
            CopyFileError::File(error) => wrong(error),
            CopyFileError::Write(error) => below.unwritable(&row.file_id, &error),
        })?;
        out.write_line(&mut index, "files.jsonl", row)?;
    }
    index.flush().map_err(|error| out.unwritable("files.jsonl", &error))?;
    Ok(rows.len())
}

fn export_audit(tenants: &Tenants, name: &str, out: &Folder) -> Result<usize, CliError> {
    let mut log = out.file("audit.jsonl")?;
    let (mut count, mut after) = (0, 0);
    loop {
        let page = tenants.audit(name, after, PAGE).map_err(|error| CliError::wrong(error.to_string()))?;
        let Some(last) = page.last() else { break };
        after = last.seq;
        count += page.len();
        page.iter().try_for_each(|entry| out.write_line(&mut log, "audit.jsonl", entry))?;
    }
    log.flush().map_err(|error| out.unwritable("audit.jsonl", &error))?;
    Ok(count)
}

/// A folder of the export. Only its owner may use it and its files.
struct Folder(PathBuf);

impl Folder {
    /// Creates the folder of an export. Fails if it exists and is not empty.
    fn create(path: &Path) -> Result<Folder, CliError> {
        if fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some()) {
            let why = format!("the folder {} is not empty", path.display());
            return Err(CliError::wrong(why).hint("choose a new folder"));
        }
        make_folder(path).map_err(|error| unwritable(path, &error))?;
        Ok(Folder(path.to_owned()))
    }

    /// Fails if the folder lies in the folder `other`, because a copy of `other` would then contain itself.
    fn require_outside(&self, other: &Path) -> Result<(), CliError> {
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        if !real(&self.0).starts_with(real(other)) {
            return Ok(());
        }
        let why = format!("the folder {} is in the folder of flows {}", self.0.display(), other.display());
        Err(CliError::wrong(why).hint("choose a folder outside of it"))
    }

    fn folder(&self, name: &str) -> Result<Folder, CliError> {
        let path = self.0.join(name);
        make_folder(&path).map_err(|error| unwritable(&path, &error))?;
        Ok(Folder(path))
    }

    fn file(&self, name: &str) -> Result<BufWriter<File>, CliError> {
        new_private_file(&self.0.join(name)).map(BufWriter::new).map_err(|error| self.unwritable(name, &error))
    }

    fn write_json(&self, name: &str, value: &impl Serialize) -> Result<(), CliError> {
        let mut file = self.file(name)?;
        self.write_line(&mut file, name, value)?;
        file.flush().map_err(|error| self.unwritable(name, &error))
    }

    fn write_line(&self, out: &mut dyn Write, name: &str, value: &impl Serialize) -> Result<(), CliError> {
        let text = serde_json::to_value(value).map(|value: Value| value.to_string());
        let text = text.map_err(|error| CliError::internal(format!("cannot write {name}: {error}")))?;
        writeln!(out, "{text}").map_err(|error| self.unwritable(name, &error))
    }

    /// Copies the files of a folder, without following links. Returns their number; 0 if there is no such folder.
    fn copy_folder(&self, from: &Path, name: &str) -> Result<usize, CliError> {
        let to = self.folder(name)?;
        let unreadable = |error: io::Error| CliError::wrong(format!("cannot read {}", from.display())).because(&error);
        let entries = match fs::read_dir(from) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            entries => entries.map_err(unreadable)?,
        };
        let mut count = 0;
        for entry in entries {
            let entry = entry.map_err(unreadable)?;
            let (kind, name) = (entry.file_type().map_err(unreadable)?, entry.file_name());
            let name = name.to_string_lossy();
            // The flows of other tenants are below those of `local`.
            if name == TENANTS_FOLDER {
                continue;
            }
            if kind.is_dir() {
                count += to.copy_folder(&entry.path(), &name)?;
            } else if kind.is_file() {
                let mut source = File::open(entry.path()).map_err(unreadable)?;
                let mut file = to.file(&name)?;
                let copied = io::copy(&mut source, &mut file).and_then(|_| file.flush());
                copied.map_err(|error| to.unwritable(&name, &error))?;
                count += 1;
            }
        }
        Ok(count)
    }

    fn unwritable(&self, name: &str, error: &io::Error) -> CliError {
        unwritable(&self.0.join(name), error)
    }
}

fn unwritable(path: &Path, error: &io::Error) -> CliError {
    CliError::wrong(format!("cannot write {}", path.display())).because(error)
}

fn make_folder(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}
