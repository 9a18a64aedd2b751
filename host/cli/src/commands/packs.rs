//! `flowcell packs`: the packs of a shared store, which all of its processes use.

use std::path::Path;

use clap::{Args, Subcommand};
use flowcell::{
    host::pack_changes::{HostPack, PackSource, SkippedPack},
    packs::{Installer, PackClient, PackStore, PackVersions, Source, pushed::PushError},
};
use serde_json::json;

use super::flows::posted::note;
use crate::{
    cli_error::{CliError, Exit},
    options::{PackArgs, StoreArgs, StoreLocation, locked::LockArgs},
    output::{put_json, put_line},
    owner::block_on,
    terminal::Terminal,
};

/// Commands for the packs of a shared store.
#[derive(Subcommand)]
pub(crate) enum PacksCommand {
    /// Push packs to a shared store, for all of its processes
    Push(PushArgs),
    /// List the packs that a process with these options uses, and those of the shared store that it skips
    List(Box<ListArgs>),
    /// Remove a pack from a shared store; runs that have begun keep it
    Remove(RemoveArgs),
}

/// Arguments of `flowcell packs push`.
#[derive(Args)]
pub(crate) struct PushArgs {
    /// The packs: files (./acme.wasm), or packs of the lock file (acme, acme@1.2.0)
    #[arg(value_name = "PACK", required = true)]
    packs: Vec<String>,
    /// Print the packs as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    lock: LockArgs,
    #[command(flatten)]
    store: StoreArgs,
}

/// Arguments of `flowcell packs list`.
#[derive(Args)]
pub(crate) struct ListArgs {
    /// Print the packs as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    packs: PackArgs,
}

/// Arguments of `flowcell packs remove`.
#[derive(Args)]
pub(crate) struct RemoveArgs {
    /// The pack: all versions (acme), or one (acme@1.2.0)
    #[arg(value_name = "NAME[@VERSION]")]
    pack: PackVersions,
    #[command(flatten)]
    store: StoreArgs,
}

pub(super) fn execute(command: PacksCommand, terminal: Terminal) -> Result<Exit, CliError> {
    match command {
        PacksCommand::Push(args) => push(&args, terminal),
        PacksCommand::List(args) => list(&args),
        PacksCommand::Remove(args) => remove(&args, terminal),
    }
}

fn push(args: &PushArgs, terminal: Terminal) -> Result<Exit, CliError> {
    require_shared(&args.store)?;
    let (mut lock, trust, store) = (args.lock.lock()?, args.lock.trust()?, PackStore::of_the_user()?);
    let installer = Installer { lock: &mut lock, store: &store, trust: &trust };
    let client = PackClient::new(None, None, true)?;
    let mut arrivals = Vec::new();
    for pack in &args.packs {
        let path = Path::new(pack);
        if path.is_file() || pack.contains('/') || pack.ends_with(".wasm") {
            arrivals.push(block_on(client.fetch(&Source::File(path.to_owned())))??);
        } else {
            let packs: PackVersions = pack.parse().map_err(|why: String| CliError::wrong(why))?;
            arrivals.extend(installer.installed(&packs)?);
        }
    }
    let host = PackArgs::default().host_with(&args.store)?;
    let mut all = Vec::new();
    for arrival in arrivals {
        let (id, pushed) = host.push_pack(arrival, &trust)?;
        note(&host, "pack.push", &format!("{id} {}", pushed.digest()))?;
        if !args.json {
            put_line(&format!("{id}  {}  {} bytes", pushed.digest(), pushed.bytes))?;
        }
        all.push(json!({ "pack": id, "digest": pushed.digest().to_string(), "bytes": pushed.bytes }));
    }
    if args.json {
        put_json(&all)?;
    }
    terminal.say(&terminal.paint().faint(
        "every process of the store uses these packs within 2 s, unless it has packs of the same name in its lock or a \
         folder, or does not trust the signer",
    ));
    Ok(Exit::Good)
}

fn list(args: &ListArgs) -> Result<Exit, CliError> {
    let host = args.packs.host_with(&args.store)?;
    let (packs, skipped) = (host.packs(), host.skipped_packs());
    if args.json {
        put_json(&json!({ "packs": packs, "skipped": skipped }))?;
        return Ok(Exit::Good);
    }
    for pack in &packs {
        put_line(&shown(pack))?;
    }
    for SkippedPack { pack, digest, reason } in &skipped {
        put_line(&format!("{pack}  {digest}  not used: {reason}"))?;
    }
    Ok(Exit::Good)
}

fn remove(args: &RemoveArgs, terminal: Terminal) -> Result<Exit, CliError> {
    require_shared(&args.store)?;
    let host = PackArgs::default().host_with(&args.store)?;
    let removed = host.remove_packs(&args.pack)?;
    if removed.is_empty() {
        let problem = CliError::wrong(format!("the shared store does not have `{}`", args.pack));
        return Err(problem.hint("`flowcell packs list` lists its packs"));
    }
    for id in &removed {
        note(&host, "pack.remove", &id.to_string())?;
        terminal.say(&format!("removed {id}"));
    }
    Ok(Exit::Good)
}

/// Fails unless the arguments name a shared store.
fn require_shared(store: &StoreArgs) -> Result<(), CliError> {
    match store.place()? {
        StoreLocation::Server(_) => Ok(()),
        _ => Err(CliError::wrong("packs are pushed to a shared store, and none is named").hint(
            "name it with `--store postgres://…` or `mysql://…`; for a store in a folder use `flowcell node install` and \
             `flowcell reload`",
        )),
    }
}

/// Returns the line of a pack: its name, version, digest and place, and its signer if its signature was checked.
pub(super) fn shown(pack: &HostPack) -> String {
    let place = match pack.source {
        PackSource::Folder => "folder",
        PackSource::Lock => "lock",
        PackSource::Store => "store",
    };
    let signer = pack.signer.as_ref().map(|signer| format!("  signed by {signer}")).unwrap_or_default();
    format!("{}  {}  {place}{signer}", pack.pack, pack.digest)
}

impl From<PushError> for CliError {
    fn from(error: PushError) -> CliError {
        match error {
            PushError::Pack(error) => error.into(),
            PushError::Store(error) => CliError::ending(Exit::Unreadable, format!("cannot change the packs: {error}")),
            error => CliError::wrong(error.to_string()),
        }
    }
}
