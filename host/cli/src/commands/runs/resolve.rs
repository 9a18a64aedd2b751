//! `flowcell runs resolve`: decides a blocked task.

use clap::Args;
use flowcell::{Json, Resolution, RunCommand, RunId, contract::Value};

use super::record;
use crate::{
    arguments::run_id,
    cli_error::{CliError, Exit},
    options::TenantArgs,
    terminal::Terminal,
};

/// Arguments of `flowcell runs resolve`.
#[derive(Args)]
pub(crate) struct ResolveArgs {
    /// The id of the run
    #[arg(value_name = "RUN", value_parser = run_id)]
    run: RunId,
    /// The address of the task: `pay`, `process[3].pay`, or `review/pay` in a flow that the node `review` called
    task: String,
    #[command(flatten)]
    decision: Decision,
    #[command(flatten)]
    of: TenantArgs,
}

/// The decision.
#[derive(Args)]
#[group(required = true, multiple = false)]
struct Decision {
    /// The call did not happen: make it again; a task that was not deterministic, or an undo that has failed, begins a
    /// new attempt
    #[arg(long)]
    repeat: bool,
    /// The call happened, and this JSON is its reply: `{ "status": 200, "body": { "text": "…" } }` for a request, `{
    /// "output": … }` for a tool
    #[arg(long, value_name = "JSON")]
    reply: Option<String>,
    /// The task is done, and this JSON is its output
    #[arg(long, value_name = "JSON")]
    output: Option<String>,
    /// The task fails, for this reason; if it is an undo, the task that it undoes stays as it is
    #[arg(long, value_name = "WHY")]
    fail: Option<String>,
}

impl Decision {
    fn resolution(&self) -> Result<Resolution, CliError> {
        let value = |text: &String| {
            let json = Json::parse(text);
            json.map(Value::from).map_err(|error| CliError::wrong(format!("`{text}` is not JSON: {error}")))
        };
        Ok(match (&self.reply, &self.output, &self.fail) {
            (Some(reply), ..) => Resolution::Reply(value(reply)?),
            (_, Some(output), _) => Resolution::Output(value(output)?),
            (.., Some(why)) => Resolution::Fail(why.as_str().into()),
            _ => Resolution::Repeat,
        })
    }
}

pub(super) fn execute(args: ResolveArgs, terminal: Terminal) -> Result<Exit, CliError> {
    let resolution = args.decision.resolution()?;
    record(&args.of, args.run, RunCommand::Resolve { task: args.task, resolution }, terminal)
}
