//! Flows run once, with an input of the command line, in place of their cases.

use std::{collections::BTreeMap, sync::Arc};

use flowcell::{Channel, Event, Host, Json, RunOptions, RunStatus, Script, script, shape};

use super::{TestArgs, cases, endless, run, waits};
use crate::{
    output::put_json,
    problem::{Exit, Problem},
    session::inputs,
    terminal::{Terminal, inert},
};

/// Whether flows are to be run, and not cases: somebody says with what, or there is a script that has none.
pub(super) fn is_meant(args: &TestArgs) -> bool {
    let has_no_cases =
        |flow: &std::path::PathBuf| script::is_script(&flow.to_string_lossy()) && !cases::beside(flow).exists();
    args.json || !args.input.is_empty() || args.flows.iter().all(has_no_cases)
}

/// Runs each flow once, and prints what comes of it.
pub(super) fn execute(host: &Host, args: &TestArgs, terminal: Terminal) -> Result<Exit, Problem> {
    let mut exit = Exit::Good;
    for path in &args.flows {
        let flow = host.load_flow(path)?;
        let input = inputs::collect(&inputs::kept_by(host, &args.input)?, None)?;
        let channels: Vec<Arc<dyn Channel>> = vec![Arc::new(Console(terminal))];
        let options = RunOptions { input, channels, without_events: true, ..RunOptions::default() };
        let runner = host.rehearsal(&flow, Arc::new(Script::default()), options)?;
        let result = run(runner)?.ok_or_else(|| Problem::ending(Exit::Failed, endless()))?;
        let good = result.status == RunStatus::Succeeded;
        if args.json {
            put_json(&shape::outcome(flow.graph(), &result))?;
        } else if good {
            put_json(&result.outputs)?;
        } else {
            let why = match (&result.error, waits(&result, &BTreeMap::new())) {
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

/// Shows what the flow writes to its log.
struct Console(Terminal);

impl Channel for Console {
    fn on_event(&self, event: &Event) {
        if event.kind == "log" {
            let message = event.data.get("message").and_then(Json::as_str).unwrap_or_default();
            self.0.say(&inert(message));
        }
    }
}
