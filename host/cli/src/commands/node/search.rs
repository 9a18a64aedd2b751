//! `flowcell node search`: looks for packs in an index.

use std::{collections::BTreeSet, fmt::Write as _};

use clap::Args;
use flowcell::packs::{CheckedIndex, IndexedPack, InstallError, Trust};
use serde_json::{Value, json};

use super::{accept::AcceptArgs, registry::RegistryArgs};
use crate::{
    arguments::shell_word,
    cli_error::{CliError, Exit},
    options::locked::LockArgs,
    output::{put, put_json},
    owner::block_on,
    terminal::{Terminal, inert},
};

/// Maximum number of packs that one search prints.
const MAX_SHOWN: usize = 20;

/// Arguments of `flowcell node search`.
#[derive(Args)]
pub(super) struct SearchArgs {
    /// Words that all have to occur in a pack's name, description, node types, categories or keywords
    #[arg(value_name = "WORD")]
    words: Vec<String>,
    /// The index: a file, an address, or a reference (ghcr.io/acme/packs)
    #[arg(long, value_name = "FILE|URL|REFERENCE")]
    index: String,
    #[command(flatten)]
    accept: AcceptArgs,
    /// Print the packs as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    registry: RegistryArgs,
    #[command(flatten)]
    lock: LockArgs,
}

/// A pack in its highest version, with all of its versions.
struct Found<'a> {
    pack: &'a IndexedPack,
    versions: Vec<String>,
    /// The signer, or why the pack would be refused.
    signer: String,
}

pub(super) fn execute(args: &SearchArgs, terminal: Terminal) -> Result<Exit, CliError> {
    let (client, trust) = (args.registry.pack_client()?, args.lock.trust()?);
    let index = block_on(client.fetch_index(&args.index, &trust))??;
    args.accept.check(&index, &args.lock.lock()?, terminal)?;
    let found = search(&index, &args.words, &trust);
    if args.json {
        put_json(&as_json(&found))?
    } else {
        put(&as_text(&found, &index, &args.index))?
    }
    Ok(Exit::Good)
}

/// Returns the packs whose highest version has all words.
fn search<'a>(index: &'a CheckedIndex, words: &[String], trust: &Trust) -> Vec<Found<'a>> {
    let mut found: Vec<Found<'_>> = Vec::new();
    // The packs are sorted by name and version.
    for packs in index.packs().chunk_by(|one, other| one.pack.name == other.pack.name) {
        let Some(pack) = packs.last().filter(|pack| pack.matches(words)) else { continue };
        let versions = packs.iter().map(|pack| pack.pack.version.to_string()).collect();
        found.push(Found { pack, versions, signer: signer(pack, trust) });
    }
    found
}

fn signer(pack: &IndexedPack, trust: &Trust) -> String {
    match trust.admit(&pack.pack, &pack.digest(), pack.signature.as_ref()) {
        Ok(Some(signer)) => format!("signed by {signer}"),
        Ok(None) => "not signed".to_owned(),
        Err(InstallError::Untrusted { why, .. }) => format!("not trusted: {why}"),
        Err(error) => format!("not trusted: {error}"),
    }
}

/// Returns the capabilities of all types that a function selects, each once.
fn names<'a>(pack: &'a IndexedPack, of: impl Fn(&'a flowcell::packs::IndexedType) -> &'a BTreeSet<String>) -> String {
    let names: BTreeSet<_> = pack.types.iter().flat_map(of).map(String::as_str).collect();
    names.into_iter().collect::<Vec<_>>().join(", ")
}

fn reach(pack: &IndexedPack) -> String {
    let (asks, may) = (names(pack, |node| &node.asks_for), names(pack, |node| &node.may_use));
    match (asks.is_empty(), may.is_empty()) {
        (true, true) => "asks for nothing outside of its sandbox".to_owned(),
        (false, true) => format!("asks for {asks}"),
        (true, false) => format!("may use {may}"),
        (false, false) => format!("asks for {asks}; may use {may}"),
    }
}

fn as_json(found: &[Found<'_>]) -> Value {
    let one = |Found { pack, versions, signer }: &Found<'_>| {
        let mut object = json!(pack);
        object["versions"] = json!(versions);
        object["signer"] = json!(signer);
        object
    };
    found.iter().map(one).collect()
}

fn as_text(found: &[Found<'_>], index: &CheckedIndex, place: &str) -> String {
    let mut by = index.signer.as_ref().map_or_else(|| "not signed".to_owned(), |by| format!("signed by {by}"));
    if let Some(issue) = index.issue() {
        // Writing to a string does not fail.
        let _ = write!(by, ", number {} of {}", issue.serial, issue.date);
    }
    if found.is_empty() {
        let (all, by) = (index.packs().len(), inert(&by));
        return format!("no pack in the index has all of these words; the index has {all} versions and is {by}\n");
    }
    let mut text = format!("{} of {} versions in the index, {}\n", found.len(), index.packs().len(), inert(&by));
    for Found { pack, versions, signer } in found.iter().take(MAX_SHOWN) {
        let _ = writeln!(text, "\n{} {}, {}", pack.pack.name, pack.pack.version, inert(signer));
        let _ = writeln!(text, "  {}", inert(&reach(pack)));
        for (title, told) in [("", &pack.description), ("deprecated: ", &pack.about.deprecated)] {
            if let Some(told) = told {
                let _ = writeln!(text, "  {title}{}", inert(told));
            }
        }
        let types: Vec<_> = pack.types.iter().map(|node| node.name.as_str()).collect();
        let _ = writeln!(text, "  types     {}", inert(&types.join(", ")));
        let _ = writeln!(text, "  size      {} bytes, versions {}", pack.size, versions.join(", "));
        let _ = writeln!(text, "  install   flowcell node install {} --index {}", pack.pack, inert(&shell_word(place)));
    }
    if found.len() > MAX_SHOWN {
        let _ = writeln!(text, "\nand {} more: add a word, or print all with `--json`", found.len() - MAX_SHOWN);
    }
    text
}
