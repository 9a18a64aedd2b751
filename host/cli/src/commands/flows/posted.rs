//! Flows in a shared store: `flowcell flows push` and `flowcell flows versions`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use flowcell::{FlowLibrary, Host, audit::Outcome, posted::PostedVersion, shape::time, tenants::Tenants};
use serde_json::json;

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
    let mut all = Vec::new();
    for file in &args.files {
        let folder = file.parent().map(PathBuf::from).unwrap_or_default();
        for flow in FlowLibrary::open(folder).with_posted_of(&host).push(&host, file)? {
            note(&host, "flow.post", &format!("{} v{}", flow.name, flow.version))?;
            if !args.json {
                let digest = flow.posted.as_ref().map(shown_digest).unwrap_or_default();
                put_line(&format!("{}  v{}  {digest}", flow.name, flow.version))?;
            }
            all.push(json!({ "name": flow.name, "version": flow.version, "digest": flow.posted.map(|posted| posted.digest) }));
        }
    }
    if args.json {
        put_json(&all)?;
    }
    terminal.say(&terminal.paint().faint("every process of the store uses these versions within 2 s"));
    Ok(Exit::Good)
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
