//! Runs flows once, with the input of the command line, in place of their cases.

use std::{collections::BTreeMap, sync::Arc};

use flowcell::{
    Channel, Event, Fixtures, Host, Json, RunOptions, RunStatus,
    cases::trial::{RUN_ID, waiting_sentences},
    script, shape,
};

use super::{TestArgs, cases, run, timeout_message};
use crate::{
    cli_error::{CliError, Exit},
    output::put_json,
    session::inputs,
    terminal::{Terminal, inert},
};

/// Returns true if the flows have to run once in place of their cases: with an input, with `--json`, or if all flows
/// are scripts without a file of cases.
pub(super) fn runs_once(args: &TestArgs) -> bool {
    let has_no_cases =
        |flow: &std::path::PathBuf| script::is_script(&flow.to_string_lossy()) && !cases::cases_path(flow).exists();
    args.json || !args.input.is_empty() || args.flows.iter().all(has_no_cases)
}

/// Runs each flow once, and prints its outputs, or the reason why it did not succeed.
pub(super) fn execute(host: &Host, args: &TestArgs, terminal: Terminal) -> Result<Exit, CliError> {
    let mut exit = Exit::Good;
    for path in &args.flows {
        let flow = host.load_flow(path)?;
        let input = inputs::collect(&inputs::kept_by(host, &args.input)?, None)?;
        let channels: Vec<Arc<dyn Channel>> = vec![Arc::new(Console(terminal))];
        let options =
            RunOptions { run_id: Some(RUN_ID.into()), input, channels, without_events: true, ..RunOptions::default() };
        let runner = host.test_runner(&flow, Arc::new(Fixtures::default()), options)?;
        let result = run(runner)?.ok_or_else(|| CliError::ending(Exit::Failed, timeout_message()))?;
        let good = result.status == RunStatus::Succeeded;
        if args.json {
            put_json(&shape::outcome(flow.graph(), &result))?;
        } else if good {
            put_json(&result.outputs)?;
        } else {
            let why = match (&result.error, waiting_sentences(&result, &BTreeMap::new())) {
                (Some(error), _) => error.failure.to_string(),
                (None, waits) if waits.is_empty() => "it does not succeed".to_owned(),
                (None, waits) => waits.join("; "),
            };
            terminal.say(&format!("{}  {}", inert(&path.display().to_string()), inert(&why)));
        }
        exit = if good { exit } else { Exit::Failed };
    }
    Ok(exit)
}

/// Prints the log lines of the flow.
struct Console(Terminal);

impl Channel for Console {
    fn on_event(&self, event: &Event) {
        if event.kind == "log" {
            let message = event.data.get("message").and_then(Json::as_str).unwrap_or_default();
            self.0.say(&inert(message));
        }
    }
}
