//! `flowcell test`: runs the cases of a flow in virtual time, or runs the flow once with an input of the command line.

mod cases;
mod once;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{Args, ValueHint};
use flowcell::{
    FlowRunner, Host, LoadedFlow, RunResult,
    cases::{
        format::Case,
        trial::{CaseEnd, Trial},
    },
};

pub(super) use self::cases::cases_path;
use super::verdicts::{Verdict, Verdicts};
use crate::{
    cli_error::{CliError, Exit},
    options::{BesideArgs, PackArgs},
    owner,
    session::inputs,
    terminal::Terminal,
};

/// Maximum real time of a case. A case that takes longer fails.
pub(super) const MAX_CASE_TIME: Duration = Duration::from_secs(60);

/// Arguments of `flowcell test`.
#[derive(Args)]
pub(crate) struct TestArgs {
    /// The flows; the cases of `triage.yaml` are in `triage.test.yaml`; a script without cases runs once
    #[arg(required = true, value_hint = ValueHint::FilePath)]
    flows: Vec<PathBuf>,
    /// Run the flow with this input instead of its cases, and print the result; `KEY=VALUE` as for `run`; may be
    /// repeated
    #[arg(short, long = "input", value_name = "KEY=VALUE", value_parser = inputs::pair, conflicts_with_all = ["only", "junit"])]
    input: Vec<(String, inputs::Member)>,
    /// Run the flow instead of its cases, and print one JSON object: `{ status, outputs, error? }`
    #[arg(long, conflicts_with_all = ["only", "junit"])]
    json: bool,
    /// Run only the cases whose name contains this text
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Write the results as JUnit XML to this file, too
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    junit: Option<PathBuf>,
    #[command(flatten)]
    packs: PackArgs,
    #[command(flatten)]
    beside: BesideArgs,
}

pub(super) fn execute(args: &TestArgs, terminal: Terminal) -> Result<Exit, CliError> {
    let host = args.packs.checking_host(&args.beside)?;
    if once::runs_once(args) {
        return once::execute(&host, args, terminal);
    }
    let mut verdicts = Verdicts::default();
    let mut unread: Option<CliError> = None;
    for path in &args.flows {
        let wanted = |case: &Case| args.only.as_ref().is_none_or(|only| case.name.contains(only.as_str()));
        match read(&host, path) {
            Ok((flow, cases)) => {
                for case in cases.into_iter().filter(wanted) {
                    verdicts.add(perform(&host, &flow, path, &case)?, terminal);
                }
            }
            // Continue with the cases of the other flows.
            Err(problem) => {
                if let Some(before) = unread.replace(problem) {
                    before.print(terminal);
                }
            }
        }
    }
    match unread {
        Some(problem) if verdicts.is_empty() => Err(problem),
        Some(problem) => verdicts.conclude(args.junit.as_deref(), terminal).and(Err(problem)),
        None => verdicts.conclude(args.junit.as_deref(), terminal),
    }
}

/// Reads a flow and its cases.
fn read(host: &Host, path: &Path) -> Result<(LoadedFlow, Vec<Case>), CliError> {
    Ok((host.load_flow(path)?, cases::read(path)?))
}

/// Drives a run to its end. Returns `None` if it has not ended after [`MAX_CASE_TIME`].
fn run(runner: FlowRunner) -> Result<Option<RunResult>, CliError> {
    runner.start_session();
    owner::block_on(async { tokio::time::timeout(MAX_CASE_TIME, runner.run()).await.ok() })
}

fn timeout_message() -> String {
    format!("it does not end within {} s", MAX_CASE_TIME.as_secs())
}

fn perform(host: &Host, flow: &LoadedFlow, path: &Path, case: &Case) -> Result<Verdict, CliError> {
    let began = std::time::Instant::now();
    let mut trial = Trial::new(host, flow, case, None)?;
    let end = match trial.take_runner() {
        Some(runner) => Some(match run(runner)? {
            Some(result) => CaseEnd::Ended(Box::new(result)),
            None => CaseEnd::Late(timeout_message()),
        }),
        None => None,
    };
    let wrong = trial.differences(case, flow, end.as_ref(), None);
    Ok(Verdict { of: path.display().to_string(), case: case.name.clone(), took: began.elapsed(), wrong })
}
