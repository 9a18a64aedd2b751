//! What the command line can do: one room a command.

mod completions;
mod graph;
mod node;
mod nodes;
mod run;
mod schema;
mod validate;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueHint};
use flowcell::Host;

use crate::{
    problem::{Exit, Problem},
    terminal::Terminal,
};

/// Runs flows whose every node is a sandboxed WebAssembly component.
#[derive(Parser)]
#[command(name = "flowcell", version, arg_required_else_help = true)]
#[command(after_help = "Exit codes: 0 done, 1 the run failed, 2 the flow or the call is wrong, 3 the run waits for \
                        somebody, 130 interrupted")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a flow and print its outputs
    Run(run::RunArgs),
    /// Check flows without running anything
    Validate(validate::ValidateArgs),
    /// Draw a flow
    Graph(graph::GraphArgs),
    /// List the node types that flows can use, or describe one
    Nodes(nodes::NodesArgs),
    /// Print the JSON Schema of flow files, for editors
    Schema,
    /// Work on packs of node types
    Node(node::NodeArgs),
    /// Print completions for a shell
    Completions(completions::CompletionsArgs),
}

/// One process runs one flow, and starting fast matters more to it than room for a thousand attempts at a time. Flows
/// run 16 unless they say otherwise.
const INSTANCES: u32 = 64;

/// Where node types come from, beside the built-in catalog.
#[derive(Args)]
pub(crate) struct PackArgs {
    /// Also use the packs (*.wasm) in this folder; may be repeated
    #[arg(long, value_name = "DIR", value_hint = ValueHint::AnyPath)]
    packs: Vec<PathBuf>,
}

impl PackArgs {
    fn host(&self) -> Result<Host, Problem> {
        let builder = Host::builder().instances(INSTANCES);
        let builder = self.packs.iter().fold(builder, |builder, path| builder.packs(path));
        Ok(builder.build()?)
    }
}

/// Does what the arguments say.
pub(crate) fn execute(arguments: Arguments, terminal: &Terminal) -> Result<Exit, Problem> {
    match arguments.command {
        Command::Run(args) => run::execute(args, *terminal),
        Command::Validate(args) => validate::execute(&args, *terminal),
        Command::Graph(args) => graph::execute(&args),
        Command::Nodes(args) => nodes::execute(&args),
        Command::Schema => schema::execute(),
        Command::Node(args) => node::execute(&args),
        Command::Completions(args) => completions::execute(&args),
    }
}
