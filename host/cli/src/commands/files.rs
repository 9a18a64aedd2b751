//! `flowcell files`: puts files for flows into the store, and reads them.

use std::{
    fs,
    io::{self, Write},
    path::PathBuf,
};

use clap::{Args, Subcommand, ValueHint};
use flowcell::{Json, files::operation::FileOperation, tenants::operation::Operation};

use crate::{
    cli_error::{CliError, Exit},
    content::Content,
    options::TenantArgs,
    output::put_json,
    owner::{self, FileAbout, operate},
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
            let content = Content::open(&path)?;
            let name = name.or_else(|| Some(path.file_name()?.to_str()?.to_owned()));
            let name = name.ok_or_else(|| {
                CliError::wrong("the name of the file is not valid UTF-8").hint("name it with `--name`")
            })?;
            let about = FileAbout { name, mime, metadata: metadata.unwrap_or_default() };
            put_json(&owner::put(&of.store, &of.tenant, about, content)?)?;
        }
        FilesCommand::Get(GetArgs { id, out, of }) => {
            let name = out.as_deref().map_or_else(|| "standard output".to_owned(), |path| path.display().to_string());
            let unwritable = |error: io::Error| CliError::wrong(format!("cannot write {name}")).because(&error);
            // The file is created only if there is something to write to it.
            let mut to: Option<Box<dyn Write>> = None;
            let open = || -> io::Result<Box<dyn Write>> {
                Ok(match &out {
                    Some(path) => Box::new(fs::File::create(path)?),
                    None => Box::new(io::stdout().lock()),
                })
            };
            owner::get(&of.store, &of.tenant, &id, |part| {
                let to = match &mut to {
                    Some(to) => to,
                    none => none.insert(open().map_err(unwritable)?),
                };
                to.write_all(part).map_err(unwritable)
            })?;
            match &mut to {
                Some(to) => to.flush().map_err(unwritable)?,
                None => drop(open().map_err(unwritable)?),
            }
        }
        FilesCommand::List(of) => put_json(&operate_on(&of, FileOperation::List)?)?,
        FilesCommand::Rm(RemoveArgs { id, of }) => put_json(&operate_on(&of, FileOperation::Remove { id })?)?,
    }
    Ok(Exit::Good)
}
