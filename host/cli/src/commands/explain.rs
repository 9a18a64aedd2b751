//! `flowcell explain`: says what a flow does.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use crate::{
    cli_error::{CliError, Exit},
    options::{BesideArgs, PackArgs},
    output::{put, put_json},
};

/// Arguments of `flowcell explain`.
#[derive(Args)]
pub(crate) struct ExplainArgs {
    /// The file of the flow
    #[arg(value_hint = ValueHint::FilePath)]
    flow: PathBuf,
    /// Explain only this node
    node: Option<String>,
    /// Print the explanation as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    packs: PackArgs,
    #[command(flatten)]
    beside: BesideArgs,
}

pub(super) fn execute(args: &ExplainArgs) -> Result<Exit, CliError> {
    let flow = args.packs.checking_host(&args.beside)?.load_flow(&args.flow)?;
    let explanation = flow.explain(args.node.as_deref()).map_err(|error| {
        CliError::wrong(error.to_string()).hint(match error.similar {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => "`flowcell graph FLOW --format text` lists the nodes".to_owned(),
        })
    })?;
    match args.json {
        true => put_json(&explanation)?,
        false => put(&explanation.to_string())?,
    }
    Ok(Exit::Good)
}
