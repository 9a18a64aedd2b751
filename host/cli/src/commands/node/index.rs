//! `flowcell node index build`: lists packs in an index that people search.

use std::{
    fs,
    path::{Path, PathBuf},
};

use clap::{Args, Subcommand, ValueHint};
use flowcell::{
    contract::Digest,
    packs::{Index, IndexedPack, InstallError, PackClient, PackKey, Source, signature_file},
    vault::KeySource,
};

use super::registry::RegistryArgs;
use crate::{
    cli_error::{CliError, Exit},
    output::put_line,
    owner::block_on,
};

/// Arguments of `flowcell node index`.
#[derive(Args)]
pub(super) struct IndexArgs {
    #[command(subcommand)]
    command: IndexCommand,
}

#[derive(Subcommand)]
enum IndexCommand {
    /// Write an index of packs: what each may reach, its digest, size, signer and source
    Build(IndexBuildArgs),
}

/// Arguments of `flowcell node index build`.
#[derive(Args)]
struct IndexBuildArgs {
    /// The packs: files below the folder of the index, https addresses, or references (ghcr.io/acme/greet@1.2.0)
    #[arg(value_name = "PACK", required = true)]
    packs: Vec<String>,
    /// Write the index to this file
    #[arg(long, value_name = "FILE", default_value = "index.json", value_hint = ValueHint::FilePath)]
    out: PathBuf,
    /// Sign the index with this key, `env:NAME` or `file:PATH`; the signature is in FILE.sig
    #[arg(long, value_name = "KEY")]
    key: Option<KeySource>,
    #[command(flatten)]
    registry: RegistryArgs,
}

pub(super) fn execute(args: &IndexArgs) -> Result<Exit, CliError> {
    let IndexCommand::Build(args) = &args.command;
    let key = args.key.as_ref().map(PackKey::read).transpose()?;
    let client = args.registry.pack_client()?;
    let mut packs = Vec::new();
    for pack in &args.packs {
        packs.push(entry(&client, &args.registry.source(pack)?, &args.out)?);
    }
    let text = Index::new(packs)?.to_text();
    write(&args.out, &text)?;
    let signature = signature_file(&args.out);
    match key {
        Some(key) => write(&signature, &format!("{}\n", key.sign_index(&digest(&text))))?,
        // A signature of earlier bytes would make the index unusable.
        None if signature.exists() => {
            fs::remove_file(&signature).map_err(|source| InstallError::Write { path: signature, source })?;
        }
        None => {}
    }
    put_line(&args.out.display().to_string())?;
    Ok(Exit::Good)
}

fn digest(text: &str) -> Digest {
    flowcell::packs::digest(text.as_bytes())
}

/// Fetches a pack and returns its entry.
fn entry(client: &PackClient, source: &Source, out: &Path) -> Result<IndexedPack, CliError> {
    let arrival = block_on(client.fetch(source))??;
    let inspection = arrival.inspect()?;
    let place = match &arrival.source {
        Source::File(file) => below(file, out)?,
        other => other.to_string(),
    };
    Ok(IndexedPack::new(&inspection, place, arrival.signature))
}

/// Returns the path of a pack from the folder of the index.
fn below(file: &Path, out: &Path) -> Result<String, CliError> {
    let cannot = |path: &Path, error: std::io::Error| {
        CliError::wrong(format!("cannot find the folder of {}", path.display())).because(&error)
    };
    let folder = out.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = folder.canonicalize().map_err(|error| cannot(out, error))?;
    let whole = file.canonicalize().map_err(|error| cannot(file, error))?;
    let path = whole.strip_prefix(&folder).ok().and_then(Path::to_str);
    path.map(|path| format!("./{path}")).ok_or_else(|| {
        CliError::wrong(format!("{} is not below the folder of the index, {}", file.display(), folder.display()))
            .hint("put the packs beside the index, or name references of a registry")
    })
}

fn write(path: &Path, text: &str) -> Result<(), InstallError> {
    fs::write(path, text).map_err(|source| InstallError::Write { path: path.to_owned(), source })
}
