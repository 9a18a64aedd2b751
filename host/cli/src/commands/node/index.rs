//! `flowcell node index`: lists packs in an index that people search, and publishes it.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use clap::{Args, Subcommand, ValueHint};
use flowcell::{
    packs::{CheckedIndex, Index, IndexedPack, InstallError, MAX_SERIAL, PackClient, PackKey, Source, Trust},
    vault::KeySource,
};

use super::{publish::missing_registry_error, registry::RegistryArgs};
use crate::{
    cli_error::{CliError, Exit},
    clock,
    output::put_line,
    owner::block_on,
    terminal::Terminal,
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
    /// Publish an index to a registry
    Push(IndexPushArgs),
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
    /// Sign the index with this key, `env:NAME` or `file:PATH`; the signature is in the same file
    #[arg(long, value_name = "KEY")]
    key: Option<KeySource>,
    /// The serial number, higher than that of each earlier index, since readers refuse an index with a lower one
    /// [default: the seconds since 1970, or one more than the index in FILE if that is higher]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..=MAX_SERIAL))]
    serial: Option<u64>,
    #[command(flatten)]
    registry: RegistryArgs,
}

/// Arguments of `flowcell node index push`.
#[derive(Args)]
struct IndexPushArgs {
    /// The file of the index, whose entries name references or https addresses
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// The destination: ghcr.io/acme/packs with a tag or `latest`, or a name in the default registry
    #[arg(value_name = "REFERENCE")]
    reference: String,
    #[command(flatten)]
    registry: RegistryArgs,
}

pub(super) fn execute(args: &IndexArgs, terminal: Terminal) -> Result<Exit, CliError> {
    match &args.command {
        IndexCommand::Build(args) => build(args, terminal),
        IndexCommand::Push(args) => push(args, terminal),
    }
}

fn push(args: &IndexPushArgs, terminal: Terminal) -> Result<Exit, CliError> {
    let Source::Registry(reference) = args.registry.source(&args.reference)? else {
        return Err(missing_registry_error(&args.reference, "ghcr.io/acme/packs"));
    };
    let bytes = fs::read(&args.file).map_err(|source| InstallError::Read { path: args.file.clone(), source })?;
    let client = args.registry.pack_client()?;
    let present = block_on(client.fetch_index(&reference.to_string(), &Trust::default()))?;
    let pushed = block_on(client.push_index(&reference, bytes.clone()))??;
    match present {
        Ok(present) => warn_of_refusal(&present, &bytes, terminal)?,
        Err(error) if error.is_nothing() => {}
        Err(error) => terminal.warn(&format!("the index that this one replaces was not compared: {error}")),
    }
    put_line(&pushed.to_string())?;
    Ok(Exit::Good)
}

/// Warns if people who have installed packs from the index before will not accept this one.
fn warn_of_refusal(before: &CheckedIndex, now: &[u8], terminal: Terminal) -> Result<(), CliError> {
    let now = CheckedIndex::read(before.place().clone(), now, &Trust::default())?;
    if let Some(warning) = now.refusal_after(before) {
        terminal.warn(&warning);
    }
    Ok(())
}

fn build(args: &IndexBuildArgs, terminal: Terminal) -> Result<Exit, CliError> {
    let key = args.key.as_ref().map(PackKey::read).transpose()?;
    let client = args.registry.pack_client()?;
    let mut packs = Vec::new();
    for pack in &args.packs {
        packs.push(entry(&client, &args.registry.source(pack)?, &args.out)?);
    }
    let now = clock::now_ms();
    let before = replaced(&args.out, terminal)?;
    let last = before.as_ref().and_then(CheckedIndex::issue).map_or(0, |issue| issue.serial);
    let serial = next_serial(args.serial, last, now / 1_000).map_err(CliError::wrong)?;
    let index = Index::new(packs, serial, now)?;
    index.write(&args.out, key.as_ref())?;
    if let Some(before) = before {
        warn_of_refusal(&before, index.to_text(key.as_ref()).as_bytes(), terminal)?;
    }
    put_line(&args.out.display().to_string())?;
    Ok(Exit::Good)
}

/// Returns the index that the build replaces, if there is one.
fn replaced(file: &Path, terminal: Terminal) -> Result<Option<CheckedIndex>, CliError> {
    let bytes = match fs::read(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        bytes => bytes.map_err(|source| InstallError::Read { path: file.to_owned(), source })?,
    };
    let read = CheckedIndex::read(Source::File(file.to_owned()), &bytes, &Trust::default());
    Ok(read.inspect_err(|error| terminal.warn(&format!("the index in {} is not read: {error}", file.display()))).ok())
}

/// Returns the serial number of an index that is built at a time in seconds since 1970.
fn next_serial(wanted: Option<u64>, last: u64, now_s: u64) -> Result<u64, String> {
    match wanted {
        Some(wanted) if wanted <= last => Err(format!(
            "`--serial {wanted}` is not higher than {last}, the number of the index that the build replaces"
        )),
        Some(wanted) => Ok(wanted),
        None if last < MAX_SERIAL => Ok(now_s.clamp(last + 1, MAX_SERIAL)),
        None => Err(format!("no serial number is higher than {last}, the number of the index that the build replaces")),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_rise_with_each_build() {
        for (wanted, last, now, serial) in [
            (None, 0, 1_769_860_800, Some(1_769_860_800)),
            (None, 1_769_860_800, 1_769_860_800, Some(1_769_860_801)),
            // A clock that is behind.
            (None, 1_769_860_800, 0, Some(1_769_860_801)),
            (None, 0, 0, Some(1)),
            (None, MAX_SERIAL - 1, 5, Some(MAX_SERIAL)),
            (None, MAX_SERIAL, 5, None),
            (Some(8), 7, 5, Some(8)),
            (Some(7), 7, 5, None),
            (Some(6), 7, 5, None),
        ] {
            assert_eq!(next_serial(wanted, last, now).ok(), serial, "{wanted:?} {last} {now}");
        }
    }
}
