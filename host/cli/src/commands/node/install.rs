//! `flowcell node install` and `uninstall`: manages installed packs, pinned in a lock file.

use std::{collections::BTreeSet, fmt::Write as _};

use clap::Args;
use flowcell::{
    Manifest,
    packs::{Arrival, Candidate, CheckedIndex, InstallError, Installer, PackClient, PackStore, PackVersions, Source},
};

use super::{accept::AcceptArgs, inspect, registry::RegistryArgs};
use crate::{
    cli_error::{CliError, Exit},
    options::locked::LockArgs,
    output::put,
    owner::block_on,
    terminal::{Terminal, inert},
};

/// Arguments of `flowcell node install`.
#[derive(Args)]
pub(super) struct InstallArgs {
    /// The pack: a file (./acme.wasm), a URL, a reference (ghcr.io/acme/greet@1.2.0), or a name in the default registry
    /// (greet@1.2.0) [default: all packs in the lock file]
    #[arg(value_name = "PACK")]
    pack: Option<String>,
    /// Take the pack from this index, a file, an address or a reference (ghcr.io/acme/packs), and compare it with its
    /// entry there; PACK is then a name (greet) with or without a version (greet@1.2.0)
    #[arg(long, value_name = "FILE|URL|REFERENCE", requires = "pack")]
    index: Option<String>,
    #[command(flatten)]
    accept: AcceptArgs,
    /// Install the pack even if it needs more capabilities than the installed version
    #[arg(long)]
    approve: bool,
    #[command(flatten)]
    registry: RegistryArgs,
    #[command(flatten)]
    lock: LockArgs,
}

/// Arguments of `flowcell node uninstall`.
#[derive(Args)]
pub(super) struct UninstallArgs {
    /// The pack: all versions (greet), or one (greet@1.2.0)
    #[arg(value_name = "NAME[@VERSION]")]
    pack: PackVersions,
    #[command(flatten)]
    lock: LockArgs,
}

pub(super) fn install(args: &InstallArgs, terminal: Terminal) -> Result<Exit, CliError> {
    let (mut lock, trust, store) = (args.lock.lock()?, args.lock.trust()?, PackStore::of_the_user()?);
    let mut installer = Installer { lock: &mut lock, store: &store, trust: &trust };
    match &args.pack {
        Some(pack) => install_one(args, &mut installer, pack, terminal),
        None => install_all(args, &installer, terminal),
    }
}

pub(super) fn uninstall(args: &UninstallArgs, terminal: Terminal) -> Result<Exit, CliError> {
    let mut lock = args.lock.lock()?;
    let removed = lock.remove(&args.pack);
    if removed.is_empty() {
        let installed: Vec<_> = lock.packs().map(|(id, _)| id.to_string()).collect();
        let problem = CliError::wrong(format!("`{}` is not installed", args.pack));
        return Err(if installed.is_empty() {
            problem
        } else {
            problem.hint(format!("the installed packs are {}", installed.join(", ")))
        });
    }
    lock.write()?;
    removed.iter().for_each(|id| terminal.say(&format!("uninstalled {id}")));
    Ok(Exit::Good)
}

/// Downloads one pack, prints its capabilities, installs it, and pins it in the lock file.
fn install_one(
    args: &InstallArgs,
    installer: &mut Installer<'_>,
    pack: &str,
    terminal: Terminal,
) -> Result<Exit, CliError> {
    let (arrival, index) = match &args.index {
        Some(place) => {
            let client = args.registry.pack_client()?;
            let index = block_on(client.fetch_index(place, installer.trust))??;
            args.accept.check(&index, installer.lock, terminal)?;
            (fetch_indexed(&client, &index, pack)?, Some(index))
        }
        None => {
            let source = args.registry.source(pack)?;
            if args.registry.offline()
                && let Some(id) = installer.installed_from(&source)?
            {
                terminal.say(&format!("{id} is already installed"));
                return Ok(Exit::Good);
            }
            (block_on(args.registry.pack_client()?.fetch(&source))??, None)
        }
    };
    let candidate = installer.examine(arrival)?;
    put(&describe(&candidate))?;
    let id = candidate.id.clone();
    installer.install(candidate, args.approve)?;
    if let Some(index) = index {
        index.record(installer.lock);
    }
    installer.lock.write()?;
    terminal.say(&format!("installed {id}, pinned in {}", installer.lock.file().display()));
    Ok(Exit::Good)
}

/// Fetches a pack that an index lists. Fails if it is another one than its entry in the index describes.
fn fetch_indexed(client: &PackClient, index: &CheckedIndex, pack: &str) -> Result<Arrival, CliError> {
    let wanted: PackVersions = pack.parse().map_err(|why: String| CliError::wrong(why))?;
    let (entry, source) = index.find(&wanted)?;
    Ok(entry.admit(block_on(client.fetch(&source))??)?)
}

/// Downloads every pack that the lock file names and that is not in the user's pack store yet.
fn install_all(args: &InstallArgs, installer: &Installer<'_>, terminal: Terminal) -> Result<Exit, CliError> {
    let client = args.registry.pack_client()?;
    let mut brought = 0;
    for (id, locked) in installer.lock.packs() {
        installer.trust.admit(id, &locked.digest, locked.signature.as_ref())?;
        if installer.has(id)? {
            continue;
        }
        let source = Source::of_lock(&locked.source, installer.lock.file()).map_err(InstallError::Source)?;
        let arrival = block_on(client.fetch(&source))??;
        installer.restore(id, arrival)?;
        terminal.say(&format!("downloaded {id} from {source}"));
        brought += 1;
    }
    let all = installer.lock.packs().count();
    terminal.say(&format!(
        "{} pins {all}: {brought} downloaded, {} already present",
        installer.lock.file().display(),
        all - brought
    ));
    Ok(Exit::Good)
}

/// Returns a line with the capabilities, the credentials and the limits that the node types of a pack ask for.
fn asks(manifest: &Manifest) -> String {
    let requests = || manifest.nodes.iter().flat_map(|node| &node.capabilities);
    let needed: BTreeSet<_> = requests().filter(|request| !request.optional).map(|request| &*request.name).collect();
    let optional: BTreeSet<_> =
        requests().map(|request| &*request.name).filter(|name| !needed.contains(name)).collect();
    let credentials = manifest.nodes.iter().flat_map(|node| &node.credentials).map(|request| request.summary());
    let credentials: BTreeSet<_> = credentials.collect();
    let secret = match credentials.is_empty() {
        true => String::new(),
        false => format!("; sends credentials: {}", credentials.into_iter().collect::<Vec<_>>().join("; ")),
    };
    let names = |names: &BTreeSet<&str>| names.iter().copied().collect::<Vec<_>>().join(", ");
    let asks = match (needed.is_empty(), optional.is_empty()) {
        (true, true) => "asks for nothing outside of its sandbox".to_owned(),
        (false, true) => format!("asks for {}", names(&needed)),
        (true, false) => format!("may use {}", names(&optional)),
        (false, false) => format!("asks for {}; may use {}", names(&needed), names(&optional)),
    };
    let limits = manifest.nodes.iter().filter(|node| !node.limits.is_empty());
    let limits: Vec<_> = limits.map(|node| format!("{} {}", node.name, node.limits.summary())).collect();
    let limits = if limits.is_empty() { String::new() } else { format!("; limits: {}", limits.join("; ")) };
    asks + &secret + &limits
}

/// Describes a pack for people: first its signer and its requests, then the rest, and its differences from the
/// installed version.
fn describe(candidate: &Candidate) -> String {
    let inspection = &candidate.inspection;
    let signed = candidate.signer.as_ref().map_or_else(|| "not signed".to_owned(), |by| format!("signed by {by}"));
    let manifest = &inspection.manifest;
    let name = inert(&manifest.name);
    let mut text = format!("{name} {}, {}\n{}\n", manifest.version, inert(&signed), inert(&asks(manifest)));
    // Writing to a string does not fail.
    let _ = writeln!(text, "\n{}", inspect::details(inspection).trim());
    let imports = inspection.imports.len();
    let _ = writeln!(text, "imports     {imports} interfaces; `flowcell node inspect FILE` lists them");
    text.push_str(&inspect::node_types(inspection));
    if let Some((other, difference)) = &candidate.beside {
        let _ = writeln!(text, "\ncompared with the installed {other}:");
        let difference = difference.to_string();
        text.push_str(if difference.is_empty() { "  needs the same capabilities\n" } else { &difference });
    }
    text
}
