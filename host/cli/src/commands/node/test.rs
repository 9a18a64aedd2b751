//! `flowcell node test`: runs the cases of a project and the examples of its manifest in virtual time.

pub(super) mod cases;
mod fakes;
mod observer;
pub(super) mod trial;

use std::path::PathBuf;

use clap::{Args, ValueHint};
use flowcell::{Host, HostBuilder, Manifest, Simulate};
use tempfile::TempDir;

use self::cases::Case;
use super::build::{BuildArgs, Built};
use crate::{
    cli_error::{CliError, Exit},
    commands::{
        changes::{Changes, Next},
        verdicts::Verdicts,
    },
    options::PackArgs,
    terminal::{Terminal, inert},
};

/// The folder of cases in a project.
pub(super) const CASES_FOLDER: &str = "cases";

/// Arguments of `flowcell node test`.
#[derive(Args)]
pub(super) struct NodeTestArgs {
    #[command(flatten)]
    build: BuildArgs,
    /// Run only the cases whose name contains this text
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Write the results as JUnit XML to this file, too
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    junit: Option<PathBuf>,
    /// Test again after each change in the project
    #[arg(long)]
    watch: bool,
    #[command(flatten)]
    packs: PackArgs,
}

pub(super) fn execute(args: &NodeTestArgs, terminal: Terminal) -> Result<Exit, CliError> {
    if !args.watch {
        return test(args, terminal);
    }
    // Watch before reading any file, so that no change is missed.
    let outputs: Vec<_> = args.junit.as_deref().into_iter().collect();
    let changes = Changes::watch([args.build.folder()], None, &outputs)?;
    loop {
        test(args, terminal).map(drop).unwrap_or_else(|problem| problem.print(terminal));
        if let Next::Changed(path) = changes.wait(None)? {
            terminal.say(&terminal.paint().faint(&format!("{} has changed", inert(&path.display().to_string()))));
        }
    }
}

/// Builds the pack and runs its cases.
fn test(args: &NodeTestArgs, terminal: Terminal) -> Result<Exit, CliError> {
    let Built { project, file, digest } = args.build.build(terminal)?;
    let TestHost { host, .. } = &TestHost::build(args.packs.builder().packs(file))?;
    // Compile now: compiling may take longer than the time limit of a case.
    host.prepare(&digest).map_err(|error| CliError::wrong("the pack cannot be compiled").because(&error))?;
    let folder = args.build.folder().join(CASES_FOLDER);
    let written = cases::read(&folder)?;
    let examples = examples(&project.manifest, &written);
    let all = written.iter().chain(&examples);
    let mut verdicts = Verdicts::default();
    for case in all.filter(|case| args.only.as_ref().is_none_or(|only| case.name.contains(only.as_str()))) {
        let case = match &case.example {
            Some(title) => case.completed(&project.manifest.nodes, title)?,
            None => case.clone(),
        };
        verdicts.add(trial::perform(host, &folder, &case)?, terminal);
    }
    verdicts.conclude(args.junit.as_deref(), terminal)
}

/// A host for runs of cases. No call leaves it, but it still rejects calls that it could not make. So it has a folder for
/// files, and a simulated model.
pub(super) struct TestHost {
    pub(super) host: Host,
    /// The folder of the host's files.
    _files: TempDir,
}

impl TestHost {
    pub(super) fn build(builder: HostBuilder) -> Result<TestHost, CliError> {
        let files = tempfile::tempdir().map_err(|error| {
            CliError::internal("cannot create a temporary folder for the files of the cases").because(&error)
        })?;
        let host = builder.files(files.path()).simulate(Simulate::of(["model"])).build()?;
        Ok(TestHost { host, _files: files })
    }
}

/// Returns a case for each example of the manifest that no written case refers to.
pub(super) fn examples(manifest: &Manifest, cases: &[Case]) -> Vec<Case> {
    let told = |node: &str, title: &str| {
        cases.iter().any(|case| *case.node_type == *node && case.example.as_deref() == Some(title))
    };
    let examples = manifest.nodes.iter().flat_map(|node| node.examples.iter().map(move |example| (node, example)));
    let left = examples.filter(|(node, example)| !told(&node.name, &example.title));
    left.map(|(node, example)| Case::of_example(&node.name, &example.title)).collect()
}
