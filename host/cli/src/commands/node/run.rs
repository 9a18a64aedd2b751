//! `flowcell node run`: runs one node alone.

use std::{collections::BTreeMap, path::PathBuf};

use clap::{Args, ValueHint};
use flowcell::{Host, Json};
use serde_json::Value;

use super::alone::{self, SingleNodeFlow};
use crate::{
    cli_error::{CliError, Exit},
    commands::nodes,
    options::{PackArgs, StoreArgs, StoreLocation},
    owner::Owner,
    session,
    session::{Plan, Session, inputs, report},
    terminal::Terminal,
};

/// The hint for a grant of a secret or a credential that a store in memory does not have.
const IN_MEMORY: &str = "`node run` uses a store in memory unless an option names another one: `--state DIR` or `--store URL` \
                         selects the store that has the secret or the credential";

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
    /// Run the node in the store in this folder, with its secrets and credentials [default: a store in memory]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    state: Option<PathBuf>,
    /// Run the node in another store: `mysql://…` and `postgres://…` name a database server that processes share
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    #[command(flatten)]
    packs: PackArgs,
}

/// Returns the store of the run: a store in memory unless an option names another one.
fn store_of(state: Option<PathBuf>, store: Option<String>) -> StoreArgs {
    match (state, store) {
        (None, None) => StoreArgs::none(),
        (state, store) => StoreArgs { state: state.unwrap_or_else(|| StoreArgs::default().state), store },
    }
}

/// Returns the host of the run. Fails if another process owns the store.
fn host_of(plan: &Plan) -> Result<Host, CliError> {
    let place = plan.store.place()?;
    place.require_store()?;
    match Owner::of(place, &plan.packs)? {
        Owner::Here(host) => Ok(host),
        Owner::Other(folder) => {
            let message = format!("another process uses the store {}", folder.display());
            Err(CliError::wrong(message).hint("end it first, or run a flow with the node by `flowcell run`"))
        }
    }
}

pub(super) fn execute(args: NodeRunArgs, terminal: Terminal) -> Result<Exit, CliError> {
    let NodeRunArgs {
        node_type,
        input,
        input_file,
        config,
        grant,
        answer,
        timeout_ms,
        json,
        quiet,
        state,
        store,
        packs,
    } = args;
    let grants: BTreeMap<String, Value> = grant.into_iter().map(|(name, grant)| (name, grant.to_serde())).collect();
    let answers = answer.into_iter().map(|answer| (alone::NODE_ID.to_owned(), answer)).collect();
    let plan = Plan { answers, json, quiet, packs, store: store_of(state, store), ..Plan::default() };
    let host = host_of(&plan)?;
    nodes::find(&host.catalog(), &node_type)?;
    let source = SingleNodeFlow { node_type: &node_type, grants: &grants, has_body: false, timeout_ms };
    let source = source.source("".as_ref());
    let flow = host.load_source(source).map_err(|error| {
        // A store in memory has no secrets and no credentials, and one that is set in another store does not help.
        let names_stored = ["secrets", "credentials"].iter().any(|name| grants.contains_key(*name));
        let is_in_memory = matches!(plan.store.place(), Ok(StoreLocation::Memory));
        match CliError::from(error) {
            error if names_stored && is_in_memory => error.hint(IN_MEMORY),
            error => error,
        }
    })?;
    let input = inputs::collect(&inputs::kept_by(&host, &input)?, input_file.as_deref())?;
    let config = inputs::collect(&config, None)?;
    let _serving = host.serve()?;
    let mut session = Session::open(&plan, &host, flow.name(), terminal)?;
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
