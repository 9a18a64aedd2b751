//! `flowcell schema`: prints the JSON schema of flow files, for editors.

use clap::{Args, ValueEnum};

use crate::{
    cli_error::{CliError, Exit},
    output::{put, put_json},
};

/// Arguments of `flowcell schema`.
#[derive(Args)]
pub(crate) struct SchemaArgs {
    /// The dialect of the flow files
    #[arg(long, value_enum, default_value_t)]
    dialect: Dialect,
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
}

pub(super) fn execute(args: &SchemaArgs) -> Result<Exit, CliError> {
    put_json(&match args.dialect {
        Dialect::Graph => flowcell::schema(),
        Dialect::Agentic => flowcell::agentic_schema(),
        Dialect::Steps => return put(flowcell::steps_schema()).map(|()| Exit::Good),
    })?;
    Ok(Exit::Good)
}
