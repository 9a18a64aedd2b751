//! `flowcell validate`: reports all errors that are found without running a flow.

use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};
use flowcell::{
    CheckedFlow, Host,
    explain::policy_json,
    from_defaults,
    graph::{Graph, Node},
    shape,
};
use serde_json::json;

use crate::{
    cli_error::{CliError, Exit},
    commands::reach::{grants_text, policy_text},
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
            let mut report = json!({ "file": shown, "valid": checked.flow.is_some(), "diagnostics": found });
            let with_defaults = checked.flow.iter().flat_map(|flow| &flow.graph().nodes).filter_map(|node| {
                let (defaults, policy) = (from_defaults(node)?, policy_json(&node.policy));
                Some(json!({ "id": node.id, "grants": node.grants, "policy": policy, "defaults": defaults }))
            });
            let with_defaults: Vec<_> = with_defaults.collect();
            if !with_defaults.is_empty() {
                report["nodes"] = json!(with_defaults);
            }
            let asking = checked.flow.iter().flat_map(|flow| asking(flow.graph()));
            let limits: Vec<_> = asking.map(|node| json!({ "id": node.id, "limits": node.node_type.limits })).collect();
            if !limits.is_empty() {
                report["limits"] = json!(limits);
            }
            Ok(report)
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
            put(&format!(
                "{shown}: valid ({nodes}, {edges}, {found})\n{}{}",
                defaults_text(flow.graph()),
                asked_limits(flow.graph())
            ))
        }
        None => put(&format!("{shown}: invalid ({found})\n")),
    }
}

/// Returns the nodes whose types ask for limits of their own.
fn asking(graph: &Graph) -> impl Iterator<Item = &Node> {
    graph.nodes.iter().filter(|node| !node.node_type.limits.is_empty())
}

/// Returns a line for each node whose type asks for limits of its own. The operator grants them.
fn asked_limits(graph: &Graph) -> String {
    let line = |node: &Node| format!("  {}: gets {}\n", node.id.as_str(), node.node_type.limits.summary());
    asking(graph).map(line).collect()
}

/// Returns a line for each node of a flow with `flow.defaults`: the grants and the policy that result for it.
fn defaults_text(graph: &Graph) -> String {
    let nodes = graph.nodes.iter().filter(|node| from_defaults(node).is_some());
    let line = |node: &Node| {
        let policy = policy_text(node).map(|policy| format!("; policy: {policy}")).unwrap_or_default();
        format!("  {}: reaches {}{policy}\n", node.id.as_str(), grants_text(node))
    };
    nodes.map(line).collect()
}
