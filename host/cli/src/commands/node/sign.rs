//! `flowcell node keygen` and `sign`: signs packs.

use std::{fs, path::PathBuf};

use clap::{Args, ValueHint};
use flowcell::{
    packs::{Arrival, InstallError, PackId, PackKey, Source, signature_file, write_atomically},
    vault::KeySource,
};

use crate::{
    cli_error::{CliError, Exit},
    output::put_line,
};

/// Arguments of `flowcell node keygen`.
#[derive(Args)]
pub(super) struct KeygenArgs {
    /// The file of the new key; only its owner may read it
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
}

/// Arguments of `flowcell node sign`.
#[derive(Args)]
pub(super) struct SignArgs {
    /// The file of the pack; the command writes the signature to FILE.wasm.sig
    #[arg(value_name = "FILE.wasm", value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// The key: `env:NAME` or `file:PATH`
    #[arg(long, value_name = "KEY")]
    key: KeySource,
}

pub(super) fn keygen(args: &KeygenArgs) -> Result<Exit, CliError> {
    let key = PackKey::make(&args.file)?;
    put_line(&key.public().to_string())?;
    Ok(Exit::Good)
}

pub(super) fn sign(args: &SignArgs) -> Result<Exit, CliError> {
    let key = PackKey::read(&args.key)?;
    let bytes = fs::read(&args.file).map_err(|source| InstallError::Read { path: args.file.clone(), source })?;
    let arrival = Arrival { source: Source::File(args.file.clone()), bytes, signature: None };
    let inspection = arrival.inspect()?;
    let signature = key.sign(&PackId::of(&inspection.manifest), &inspection.digest);
    let path = signature_file(&args.file);
    let written = write_atomically(&path, format!("{signature}\n").as_bytes());
    written.map_err(|source| InstallError::Write { path: path.clone(), source })?;
    put_line(&path.display().to_string())?;
    Ok(Exit::Good)
}
