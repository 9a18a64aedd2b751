//! `flowcell node`: creates, builds, tests, runs, inspects, publishes and installs packs of node types.
//!
//! | module | content |
//! |---|---|
//! | `scaffold` | creates projects |
//! | `project` | the folder, the language and the manifest of a project |
//! | `build` | builds a pack from a project |
//! | `test` | runs the cases of a project |
//! | `alone` | the flow of one node |
//! | `run` | runs one node alone |
//! | `subject` | a node type with the values that a command tries it with |
//! | `bench` | measures a node type |
//! | `profile` | shows where a node type computes |
//! | `fuzz` | looks for mistakes of a node type with generated inputs |
//! | `conformance` | checks the rules for all packs |
//! | `docs` | describes a node type in Markdown |
//! | `accept` | accepts an older index on purpose |
//! | `index` | lists packs in an index |
//! | `search` | looks for packs in an index |
//! | `inspect` | describes a pack |
//! | `install` | installs packs |
//! | `publish` | transfers packs to and from registries |
//! | `registry` | selects the registry |
//! | `sign` | signs packs |

mod accept;
mod alone;
mod bench;
mod build;
mod conformance;
mod docs;
mod fuzz;
mod index;
mod inspect;
mod install;
mod profile;
mod project;
mod publish;
mod registry;
mod run;
mod scaffold;
mod search;
mod sign;
mod subject;
mod test;

use std::path::Path;

use clap::{Args, Subcommand};

use crate::{
    cli_error::{CliError, Exit},
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
    /// Create the project of a pack: code, manifest, test cases, and a workflow for continuous integration
    New(scaffold::NewArgs),
    /// Build the pack of a project
    Build(build::BuildArgs),
    /// Build a pack, and run its test cases and the examples of its manifest, in virtual time
    Test(Box<test::NodeTestArgs>),
    /// Run one node outside of a flow and print its output
    Run(Box<run::NodeRunArgs>),
    /// Measure the calls of a node type: time, memory and size, compared with `control.noop`
    Bench(Box<bench::BenchArgs>),
    /// Show in which functions a node type computes
    Profile(Box<profile::ProfileArgs>),
    /// Run a node type with generated inputs, and look for traps, timeouts and outputs that do not fit its schema
    Fuzz(Box<fuzz::FuzzArgs>),
    /// Check the rules for all packs: examples, determinism, replay after a crash, cancels, errors, wrong inputs
    Conformance(Box<conformance::ConformanceArgs>),
    /// Describe a node type in Markdown, for people and for pages
    Docs(Box<docs::DocsArgs>),
    /// Show the node types of a pack and the capabilities that they need, without running it
    Inspect(inspect::InspectArgs),
    /// Install a pack: check it, print its capabilities, and pin it in flowcell.lock, without running it
    Install(install::InstallArgs),
    /// Remove a pack from flowcell.lock
    Uninstall(install::UninstallArgs),
    /// List packs in an index that people search
    Index(index::IndexArgs),
    /// Look for packs in an index, and show what each may reach
    Search(search::SearchArgs),
    /// Publish a pack to a registry
    Push(publish::PushArgs),
    /// Download a pack from a registry
    Pull(publish::PullArgs),
    /// Create a signing key for packs, and print its public key
    Keygen(sign::KeygenArgs),
    /// Sign a pack
    Sign(sign::SignArgs),
}

pub(super) fn execute(args: NodeArgs, terminal: Terminal) -> Result<Exit, CliError> {
    match args.command {
        NodeCommand::New(args) => scaffold::execute(&args, terminal),
        NodeCommand::Build(args) => build::execute(&args, terminal),
        NodeCommand::Test(args) => test::execute(&args, terminal),
        NodeCommand::Run(args) => run::execute(*args, terminal),
        NodeCommand::Bench(args) => bench::execute(&args),
        NodeCommand::Profile(args) => profile::execute(&args, terminal),
        NodeCommand::Fuzz(args) => fuzz::execute(&args),
        NodeCommand::Conformance(args) => conformance::execute(&args),
        NodeCommand::Docs(args) => docs::execute(&args),
        NodeCommand::Inspect(args) => inspect::execute(&args),
        NodeCommand::Install(args) => install::install(&args, terminal),
        NodeCommand::Uninstall(args) => install::uninstall(&args, terminal),
        NodeCommand::Index(args) => index::execute(&args, terminal),
        NodeCommand::Search(args) => search::execute(&args, terminal),
        NodeCommand::Push(args) => publish::push(&args),
        NodeCommand::Pull(args) => publish::pull(&args),
        NodeCommand::Keygen(args) => sign::keygen(&args),
        NodeCommand::Sign(args) => sign::sign(&args),
    }
}

/// Builds the pack of a project into its folder `dist`.
pub(super) fn build(project: &Path, terminal: Terminal) -> Result<(), CliError> {
    build::BuildArgs::of(project).build(terminal).map(drop)
}
