//! `flowcell explain`: says what a flow does.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use flowcell::{explain::explain, similar};

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
    let graph = flow.graph();
    let Some(explanation) = explain(graph, args.node.as_deref()) else {
        let node = args.node.as_deref().unwrap_or_default();
        let problem = CliError::wrong(format!("the flow has no node `{node}`"));
        return Err(match similar(node, graph.nodes.iter().map(|node| node.id.as_str())) {
            Some(meant) => problem.hint(format!("did you mean `{meant}`?")),
            None => problem.hint("`flowcell graph FLOW --format text` lists the nodes"),
        });
    };
    match args.json {
        true => put_json(&explanation)?,
        false => put(&explanation.to_string())?,
    }
    Ok(Exit::Good)
}
