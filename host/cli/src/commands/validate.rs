//! `flowcell validate`: reports all errors that are found without running a flow.

use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};
use flowcell::{CheckedFlow, Host, shape};
use serde_json::json;

use crate::{
    cli_error::{CliError, Exit},
    options::{BesideArgs, PackArgs},
    output::{put, put_json},
    terminal::{Terminal, count, counted, finding},
};

/// Arguments of `flowcell validate`.
#[derive(Args)]
pub(crate) struct ValidateArgs {
    /// The files of the flows
    #[arg(required = true, value_name = "FLOW", value_hint = ValueHint::FilePath)]
    flows: Vec<PathBuf>,
    /// Print the diagnostics as a JSON array with an object for each file
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    packs: PackArgs,
    #[command(flatten)]
    beside: BesideArgs,
}

pub(super) fn execute(args: &ValidateArgs, terminal: Terminal) -> Result<Exit, CliError> {
    let host = args.packs.validating_host(&args.beside)?;
    let mut reports = Vec::new();
    let mut exit = Exit::Good;
    for path in &args.flows {
        let report = check(&host, path, args, terminal)?;
        if report.get("valid") != Some(&json!(true)) {
            exit = Exit::Wrong;
        }
        reports.push(report);
    }
    if args.json {
        put_json(&reports)?;
    }
    Ok(exit)
}

/// Checks one file, and prints the diagnostics unless `--json` is set. An unreadable file becomes a report, so that the
/// others are still checked.
fn check(host: &Host, path: &Path, args: &ValidateArgs, terminal: Terminal) -> Result<serde_json::Value, CliError> {
    let shown = path.display().to_string();
    match host.check_flow(path) {
        Ok(checked) => {
            if !args.json {
                print_report(&shown, &checked, terminal)?;
            }
            let found: Vec<_> = checked.diagnostics.iter().map(shape::finding).collect();
            Ok(json!({ "file": shown, "valid": checked.flow.is_some(), "diagnostics": found }))
        }
        Err(error) => {
            let problem = CliError::from(error);
            let message = problem.plain();
            if !args.json {
                problem.print(terminal);
            }
            Ok(json!({ "file": shown, "valid": false, "diagnostics": [], "error": message }))
        }
    }
}

fn print_report(shown: &str, checked: &CheckedFlow, terminal: Terminal) -> Result<(), CliError> {
    for found in &checked.diagnostics {
        terminal.say(&format!("{}\n", finding(found, terminal.paint())));
    }
    let found = count(&checked.diagnostics);
    match &checked.flow {
        Some(flow) => {
            let (nodes, edges) = (flow.graph().nodes.len(), flow.graph().edges.len());
            let (nodes, edges) = (counted(nodes, "node"), counted(edges, "edge"));
            put(&format!("{shown}: valid ({nodes}, {edges}, {found})\n"))
        }
        None => put(&format!("{shown}: invalid ({found})\n")),
    }
}
