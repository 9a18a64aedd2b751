//! `flowcell node run`: runs one node alone.

use std::{collections::BTreeMap, path::PathBuf};

use clap::{Args, ValueHint};
use flowcell::Json;
use serde_json::Value;

use super::alone::{self, SingleNodeFlow};
use crate::{
    cli_error::{CliError, Exit},
    commands::nodes,
    options::{PackArgs, StoreArgs},
    session,
    session::{Plan, Session, inputs, report},
    terminal::Terminal,
};

/// Arguments of `flowcell node run`.
#[derive(Args)]
pub(super) struct NodeRunArgs {
    /// The node type, such as `data.pick`, or with a version `acme.greet@1.2`
    #[arg(value_name = "TYPE")]
    node_type: String,
    /// A member of the input: JSON if the value parses as JSON, the content of a file for `@PATH`, otherwise text; may
    /// be repeated
    #[arg(short, long = "input", value_name = "KEY=VALUE", value_parser = inputs::pair)]
    input: Vec<(String, inputs::Member)>,
    /// Read the input, a JSON object, from this file; `-` is standard input; members given with `-i` take precedence
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    input_file: Option<PathBuf>,
    /// A member of the node's config; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = inputs::plain)]
    config: Vec<(String, Json)>,
    /// Grant the node a capability, as in a flow: http='["https://api.example.com"]'; may be repeated
    #[arg(long, value_name = "CAPABILITY=GRANT", value_parser = inputs::plain)]
    grant: Vec<(String, Json)>,
    /// The answer to the node's question
    #[arg(long, value_name = "VALUE")]
    answer: Option<String>,
    /// The running time of the attempt in milliseconds, 1 to 86400000 [default: 300000]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=86_400_000))]
    timeout_ms: Option<u64>,
    /// Print the result as one JSON object, also if the node fails
    #[arg(long)]
    json: bool,
    /// Do not show progress
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    packs: PackArgs,
}

pub(super) fn execute(args: NodeRunArgs, terminal: Terminal) -> Result<Exit, CliError> {
    let NodeRunArgs { node_type, input, input_file, config, grant, answer, timeout_ms, json, quiet, packs } = args;
    let grants: BTreeMap<String, Value> = grant.into_iter().map(|(name, grant)| (name, grant.to_serde())).collect();
    let answers = answer.into_iter().map(|answer| (alone::NODE_ID.to_owned(), answer)).collect();
    let plan = Plan { answers, json, quiet, packs, store: StoreArgs::none(), ..Plan::default() };
    let host = plan.packs.host()?;
    nodes::find(&host.catalog(), &node_type)?;
    let source = SingleNodeFlow { node_type: &node_type, grants: &grants, has_body: false, timeout_ms };
    let source = source.source("".as_ref());
    let flow = host.load_source(source)?;
    let input = inputs::collect(&inputs::kept_by(&host, &input)?, input_file.as_deref())?;
    let config = inputs::collect(&config, None)?;
    let session = Session::open(&plan, &host, flow.name(), terminal)?;
    let options = session.options(&plan, alone::input(input, config));
    let runner = host.runner(&flow, options)?;
    let graph = runner.graph().clone();
    let (mut result, interrupted) = session.until_end(&plan, runner)?;
    plan.warn_of_unused_answers(&host, &result.run_id, terminal)?;
    session::release_store(host);
    result.outputs = result.outputs.get("output").cloned().unwrap_or_default();
    let exit = report::print(&plan, &graph, &result, interrupted, terminal)?;
    session.close();
    Ok(exit)
}
