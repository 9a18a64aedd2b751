//! `flowcell schema`: prints the JSON schema of flow files, and the types of scripts, for editors.

mod declarations;

use clap::{Args, ValueEnum};
use flowcell_assist::catalog_schema::with_catalog;

pub(super) use self::declarations::{FILE, declarations};
use crate::{
    cli_error::{CliError, Exit},
    options::PackArgs,
    output::{put, put_json},
};

/// Arguments of `flowcell schema`.
#[derive(Args)]
pub(crate) struct SchemaArgs {
    /// The dialect of the flow files
    #[arg(long, value_enum, default_value_t)]
    dialect: Dialect,
    /// Add the node types with their inputs and configs (graph)
    #[arg(long)]
    types: bool,
    #[command(flatten)]
    packs: PackArgs,
}

/// A dialect of flow files.
#[derive(Clone, Copy, Default, ValueEnum)]
enum Dialect {
    /// Nodes and edges
    #[default]
    Graph,
    /// Steps that agents do
    Agentic,
    /// Tools called one after the other
    Steps,
    /// Scripts; prints types for JavaScript and TypeScript
    Script,
}

pub(super) fn execute(args: &SchemaArgs) -> Result<Exit, CliError> {
    if args.types && !matches!(args.dialect, Dialect::Graph) {
        let hint = "remove `--types`, or write `--dialect graph`";
        return Err(CliError::wrong("only flows of nodes and edges name node types in their schema").hint(hint));
    }
    if !args.types && !args.packs.packs.is_empty() {
        let hint = match args.dialect {
            Dialect::Graph => "add `--types`, or remove `--packs`",
            Dialect::Agentic | Dialect::Steps | Dialect::Script => "remove `--packs`",
        };
        return Err(CliError::wrong("without `--types`, the schema names no node types of packs").hint(hint));
    }
    put_json(&match args.dialect {
        Dialect::Graph if args.types => with_catalog(flowcell::schema(), &args.packs.host()?.catalog()),
        Dialect::Graph => flowcell::schema(),
        Dialect::Agentic => flowcell::agentic_schema(),
        Dialect::Steps => return put(flowcell::steps_schema()).map(|()| Exit::Good),
        Dialect::Script => return put(&declarations()).map(|()| Exit::Good),
    })?;
    Ok(Exit::Good)
}
