//! `flowcell files`: puts files for flows into the store, and reads them.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use clap::{Args, Subcommand, ValueHint};
use flowcell::{Json, files::operation::FileOperation, tenants::operation::Operation};

use crate::{
    cli_error::{CliError, Exit},
    options::TenantArgs,
    output::put_json,
    owner::operate,
    session::inputs,
};

/// Commands for files.
#[derive(Subcommand)]
pub(crate) enum FilesCommand {
    /// Store a file, and print the file value that flows take as input
    Put(PutArgs),
    /// Write the content of a stored file to a file or to standard output
    Get(GetArgs),
    /// List the files
    List(TenantArgs),
    /// Remove a file; runs that use it keep it
    Rm(RemoveArgs),
}

/// Arguments of `flowcell files put`.
#[derive(Args)]
pub(crate) struct PutArgs {
    /// The path of the file; `-` is standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    path: PathBuf,
    /// The name of the stored file [default: the name of the file]
    #[arg(long, value_name = "TEXT", required_if_eq("path", "-"))]
    name: Option<String>,
    /// The media type [default: detected from the content or the name]
    #[arg(long, value_name = "TYPE")]
    mime: Option<String>,
    /// Metadata of the file, a JSON object
    #[arg(long, value_name = "JSON", value_parser = json)]
    metadata: Option<Json>,
    #[command(flatten)]
    of: TenantArgs,
}

fn json(text: &str) -> Result<Json, String> {
    Json::parse(text).map_err(|error| format!("it is not JSON: {error}"))
}

/// Arguments of `flowcell files get`.
#[derive(Args)]
pub(crate) struct GetArgs {
    /// The id of the file, as `flowcell files list` prints it
    id: String,
    /// Write to this file instead of standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    out: Option<PathBuf>,
    #[command(flatten)]
    of: TenantArgs,
}

/// Arguments of `flowcell files rm`.
#[derive(Args)]
pub(crate) struct RemoveArgs {
    /// The id of the file, as `flowcell files list` prints it
    id: String,
    #[command(flatten)]
    of: TenantArgs,
}

fn operate_on(of: &TenantArgs, deed: FileOperation) -> Result<Json, CliError> {
    operate(Operation::File { tenant: of.tenant.clone(), deed }, &of.store)
}

pub(super) fn execute(command: FilesCommand) -> Result<Exit, CliError> {
    match command {
        FilesCommand::Put(PutArgs { path, name, mime, metadata, of }) => {
            let content = STANDARD.encode(inputs::content(&path)?);
            let name = name.or_else(|| Some(path.file_name()?.to_str()?.to_owned()));
            let name = name.ok_or_else(|| {
                CliError::wrong("the name of the file is not valid UTF-8").hint("name it with `--name`")
            })?;
            let metadata = metadata.unwrap_or_default();
            put_json(&operate_on(&of, FileOperation::Put { name, mime, metadata, content })?)?;
        }
        FilesCommand::Get(GetArgs { id, out, of }) => {
            let told = operate_on(&of, FileOperation::Get { id })?;
            let content = told.get("content").and_then(Json::as_str).unwrap_or_default();
            let damaged = |_| CliError::internal("the process that owns the store sent an unexpected reply");
            write(out.as_deref(), &STANDARD.decode(content).map_err(damaged)?)?;
        }
        FilesCommand::List(of) => put_json(&operate_on(&of, FileOperation::List)?)?,
        FilesCommand::Rm(RemoveArgs { id, of }) => put_json(&operate_on(&of, FileOperation::Remove { id })?)?,
    }
    Ok(Exit::Good)
}

fn write(path: Option<&Path>, bytes: &[u8]) -> Result<(), CliError> {
    let written = match path {
        Some(path) => fs::write(path, bytes),
        None => io::stdout().lock().write_all(bytes),
    };
    let name = || path.map_or_else(|| "standard output".to_owned(), |path| path.display().to_string());
    written.map_err(|error| CliError::wrong(format!("cannot write {}", name())).because(&error))
}
