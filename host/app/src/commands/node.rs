//! `flowcell node`: make, build, test, run and see packs of node types.
//!
//! | room | what it is |
//! |---|---|
//! | `scaffold` | new projects |
//! | `project` | where a project is, and in which language it is written |
//! | `build` | from a project to a pack |
//! | `test` | the cases of a project |
//! | `alone` | the flow of one node |
//! | `run` | one node alone |
//! | `inspect` | what a pack says of itself |

mod alone;
mod build;
mod inspect;
mod project;
mod run;
mod scaffold;
mod test;

use std::path::Path;

use clap::{Args, Subcommand};

use crate::{
    problem::{Exit, Problem},
    terminal::Terminal,
};

/// Arguments of `flowcell node`.
#[derive(Args)]
pub(crate) struct NodeArgs {
    #[command(subcommand)]
    command: NodeCommand,
}

#[derive(Subcommand)]
enum NodeCommand {
    /// Begin a project that makes a pack: code, manifest, cases, and a file for continuous integration
    New(scaffold::NewArgs),
    /// Build the pack of a project
    Build(build::BuildArgs),
    /// Build the pack of a project, and run its cases and the examples of its manifest, in virtual time
    Test(Box<test::NodeTestArgs>),
    /// Run one node alone and print its output
    Run(Box<run::NodeRunArgs>),
    /// Show what a pack offers and asks for, without running it
    Inspect(inspect::InspectArgs),
}

pub(super) fn execute(args: NodeArgs, terminal: Terminal) -> Result<Exit, Problem> {
    match args.command {
        NodeCommand::New(args) => scaffold::execute(&args, terminal),
        NodeCommand::Build(args) => build::execute(&args, terminal),
        NodeCommand::Test(args) => test::execute(&args, terminal),
        NodeCommand::Run(args) => run::execute(*args, terminal),
        NodeCommand::Inspect(args) => inspect::execute(&args),
    }
}

/// Builds the pack of a project into the folder `dist` in it.
pub(super) fn build(project: &Path, terminal: Terminal) -> Result<(), Problem> {
    build::BuildArgs::of(project).build(terminal).map(drop)
}
