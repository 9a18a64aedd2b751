//! Flows in a shared store: `flowcell flows push` and `flowcell flows versions`.

use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};
use flowcell::{
    FlowLibrary, Host, PushError, StoredFlow, audit::Outcome, posted::PostedVersion, shape::time, tenants::Tenants,
};
use serde_json::{Value, json};

use super::{Folder, library_of};
use crate::{
    cli_error::{CliError, Exit},
    options::{PackArgs, StoreLocation, TenantArgs},
    output::{put_json, put_line},
    terminal::Terminal,
};

/// The number of characters of a digest in a list.
const SHOWN_DIGEST_CHARS: usize = 12;

/// Arguments of `flowcell flows push`.
#[derive(Args)]
pub(crate) struct PushArgs {
    /// The files of the flows, in any dialect
    #[arg(value_name = "FILE", required = true, value_hint = ValueHint::FilePath)]
    files: Vec<PathBuf>,
    /// Print the posted versions as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    of: TenantArgs,
    #[command(flatten)]
    packs: PackArgs,
}

/// Arguments of `flowcell flows versions`.
#[derive(Args)]
pub(crate) struct VersionsArgs {
    /// The name of the flow
    name: String,
    /// Print the versions as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    folder: Folder,
    #[command(flatten)]
    of: TenantArgs,
}

/// Posts flows to a shared store.
pub(super) fn push(args: &PushArgs, terminal: Terminal) -> Result<Exit, CliError> {
    if !matches!(args.of.store.place()?, StoreLocation::Server(_)) {
        return Err(CliError::wrong("flows are posted to a shared store, and none is named").hint(
            "name it with `--store postgres://…` or `mysql://…`; for a store in a folder, copy the file to the folder \
             of flows, or use `flowcell flows create FILE`",
        ));
    }
    let host = args.of.host(args.packs.host_with(&args.of.store)?)?;
    let mut pushed = Pushed { json: args.json, flows: Vec::new(), entries: Vec::new() };
    for (index, file) in args.files.iter().enumerate() {
        let Err((error, mut left)) = pushed.push(&host, file) else { continue };
        left.extend(args.files[index + 1..].iter().map(|file| file.display().to_string()));
        return Err(pushed.stop(error, &left)?);
    }
    pushed.put_entries()?;
    terminal.say(&terminal.paint().faint("every process of the store uses these versions within 2 s"));
    Ok(Exit::Good)
}

/// The flows that a command has pushed.
struct Pushed {
    json: bool,
    /// The flows with their versions, for people.
    flows: Vec<String>,
    /// The objects of the output with `--json`.
    entries: Vec<Value>,
}

impl Pushed {
    /// Pushes the flow in a file, and prints it with the flows that it calls. Returns an error with the names of the flows
    /// that were not pushed, or of the file if it was refused itself.
    fn push(&mut self, host: &Host, file: &Path) -> Result<(), (CliError, Vec<String>)> {
        let folder = file.parent().map(PathBuf::from).unwrap_or_default();
        let mut posted = Vec::new();
        let library = FlowLibrary::open(folder).with_posted_of(host);
        let ended = library.push(host, file, |flow| posted.push(flow));
        // Each posted flow gets its entry, also if another one gets none or the output is closed.
        let mut unnoted: Option<(CliError, Vec<String>)> = None;
        for StoredFlow { name, version, .. } in &posted {
            let named = format!("{name} v{version}");
            if let Err(error) = note(host, "flow.post", &named) {
                unnoted.get_or_insert_with(|| (error, Vec::new())).1.push(named);
            }
        }
        let unnoted =
            unnoted.map(|(error, flows)| (error, format!("pushed without an audit entry: {}", flows.join(", "))));
        let printed = self.add(posted);
        if let Err(PushError { error, mut not_pushed }) = ended {
            if not_pushed.is_empty() {
                not_pushed.push(file.display().to_string());
            }
            let error = CliError::from(error);
            return Err(match unnoted {
                Some((first, flows)) => (error.note(format!("{flows}: {}", first.plain())), not_pushed),
                None => (error, not_pushed),
            });
        }
        match unnoted {
            Some((error, flows)) => Err((error.note(flows), Vec::new())),
            None => printed.map_err(|error| (error, Vec::new())),
        }
    }

    /// Adds flows that were posted to the output, and prints them.
    fn add(&mut self, posted: Vec<StoredFlow>) -> Result<(), CliError> {
        let mut lines = Vec::new();
        for StoredFlow { name, version, posted, .. } in posted {
            self.flows.push(format!("{name} v{version}"));
            lines.push(format!("{name}  v{version}  {}", posted.as_ref().map(shown_digest).unwrap_or_default()));
            let digest = posted.map(|posted| posted.digest);
            self.entries.push(json!({ "name": name, "version": version, "digest": digest }));
        }
        if self.json { Ok(()) } else { lines.iter().try_for_each(|line| put_line(line)) }
    }

    /// Prints the output of a command that could not push `left`. Returns its error, which names the flows that were pushed.
    fn stop(mut self, error: CliError, left: &[String]) -> Result<CliError, CliError> {
        self.entries.extend(left.iter().map(|name| json!({ "notPushed": name })));
        self.put_entries()?;
        let flows = if self.flows.is_empty() { "nothing".to_owned() } else { self.flows.join(", ") };
        let error = error
            .note(format!("pushed: {flows}"))
            .hint("then repeat the command: a flow that has not changed gets no second version");
        Ok(if left.is_empty() { error } else { error.note(format!("not pushed: {}", left.join(", "))) })
    }

    fn put_entries(&self) -> Result<(), CliError> {
        if self.json { put_json(&self.entries) } else { Ok(()) }
    }
}

/// Writes a change of a posted flow to the audit log of the host's tenant.
pub(in crate::commands) fn note(host: &Host, action: &str, subject: &str) -> Result<(), CliError> {
    let noted = Tenants::of(host).note(host.tenant().as_str(), action, subject, Outcome::Done);
    noted.map_err(|error| CliError::internal(error.to_string()))
}

/// Lists the versions of a flow.
pub(super) fn versions(args: &VersionsArgs) -> Result<Exit, CliError> {
    let library = library_of(&args.folder, &args.of)?;
    let (versions, history) = (library.versions(&args.name)?, library.history(&args.name)?);
    if args.json {
        put_json(&json!({ "name": args.name, "versions": versions, "history": history }))?;
        return Ok(Exit::Good);
    }
    for version in versions {
        let posted = history.iter().find(|posted| posted.version == version);
        let about = posted.map(|posted| format!("  {}  {}  {}", time(posted.created), shown_digest(posted), posted.by));
        put_line(&format!("v{version}{}", about.unwrap_or_default()))?;
    }
    Ok(Exit::Good)
}

fn shown_digest(posted: &PostedVersion) -> &str {
    posted.digest.get(..SHOWN_DIGEST_CHARS).unwrap_or(&posted.digest)
}
