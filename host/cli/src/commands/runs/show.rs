//! `flowcell runs show`: prints a run as a tree, or the inputs of one of its tasks.

use std::ops::ControlFlow;

use clap::Args;
use flowcell::{
    Filter, RunId, RunRow, Runs,
    tree::{Tree, Twig, is_zero},
    waiting,
};
use serde::Serialize;

use super::{each_event, input, tree};
use crate::{
    arguments::run_id,
    cli_error::{CliError, Exit},
    options::{PackArgs, TenantArgs},
    output::{put, put_json, put_line},
    owner::unreadable,
    terminal::{Terminal, inert},
};

/// Arguments of `flowcell runs show`.
#[derive(Args)]
pub(crate) struct ShowArgs {
    /// The id of the run
    #[arg(value_name = "RUN", value_parser = run_id)]
    run: RunId,
    /// Show the inputs of this task, such as `pay`, `process[3].pay`, or `review/pay` in a flow that the task `review`
    /// called
    #[arg(value_name = "NODE")]
    task: Option<String>,
    /// Print JSON: the run as in `runs list --json`, with its `tasks`; for a task its complete inputs, up to 16 MiB
    #[arg(long)]
    json: bool,
    /// The first attempt to show, counted from 0
    #[arg(long, value_name = "N", default_value_t = 0, requires = "task")]
    from: u64,
    #[command(flatten)]
    of: TenantArgs,
    #[command(flatten)]
    packs: PackArgs,
}

/// A run and its tasks, as JSON.
#[derive(Serialize)]
struct Shown {
    #[serde(flatten)]
    run: RunRow,
    tasks: Vec<Twig>,
    /// The number of tasks left out because the document would exceed 16 MiB.
    #[serde(rename = "tasksLeftOut", skip_serializing_if = "is_zero")]
    left_out: u64,
    /// The open gates of the run and of its child runs, as `GET /v1/runs/{id}/gates` lists them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    waiting: Vec<serde_json::Value>,
}

pub(super) fn execute(args: &ShowArgs, terminal: Terminal) -> Result<Exit, CliError> {
    let host = args.of.reading_host(&args.packs)?;
    if let Some(task) = &args.task {
        let reader = args.of.store.reader()?;
        let inputs = input::read(&host, &*reader, (&args.run, task), args.from)?;
        input::require_attempt(&host, &*reader, (&args.run, task), args.from, &inputs)?;
        match args.json {
            true => put_json(&inputs)?,
            false => put(&input::render(&inputs, (&args.run, task), terminal.paint_of_output()))?,
        }
        return Ok(Exit::Good);
    }
    if args.json {
        let tree = Tree::of(&host, &args.run)?;
        let (left_out, tasks) = (tree.left_out(), tree.tasks());
        let found = args.of.store.reader()?.run(&args.of.tenant(), &args.run).map_err(|error| unreadable(&error))?;
        let (run, _) = found.ok_or_else(|| CliError::wrong(format!("the run `{}` was removed", args.run)))?;
        let waiting = waiting::list(&host, &args.run)?;
        put_json(&Shown { run, tasks, left_out, waiting })?;
        return Ok(Exit::Good);
    }
    let mut tree = tree::Tree::default();
    each_event(&host, &args.run, 0, |event| {
        tree.add(&event);
        ControlFlow::Continue(())
    })?;
    let reader = args.of.store.reader()?;
    let row = reader.run(&args.of.tenant(), &args.run).map_err(|error| unreadable(&error))?.map(|(row, _)| row);
    row.iter().for_each(|row| tree.set_status(&row.status));
    put(&tree.render(terminal.paint_of_output()))?;
    let facts = row.map(|row| facts(&row, &*reader, &args.of)).transpose()?.unwrap_or_default();
    if !facts.is_empty() {
        put_line(&terminal.paint_of_output().faint(&facts.join(", ")))?;
    }
    // The tree already shows the run's own questions.
    for open in waiting::list(&host, &args.run)? {
        let text = |name: &str| open[name].as_str().unwrap_or_default();
        if text("kind") == "gate" && text("address").contains('/') {
            put_line(&format!("asks `{}`: {}", inert(text("address")), inert(text("prompt"))))?;
        }
    }
    Ok(Exit::Good)
}

/// The maximum number of repeating runs that one run shows.
const MAX_SHOWN_REPEATS: usize = 5;

/// Returns what the store knows of a run besides its events: the version of its flow, its trigger, its labels, and the
/// runs that it repeats or that repeat it.
fn facts(row: &RunRow, reader: &dyn Runs, of: &TenantArgs) -> Result<Vec<String>, CliError> {
    let repeats = Filter { retry_of: Some(row.run_id.clone()), limit: MAX_SHOWN_REPEATS, ..Filter::default() };
    let repeats = reader.runs(&of.tenant(), &repeats).map_err(|error| unreadable(&error))?;
    let mut facts = Vec::new();
    facts.extend(row.version.map(|version| format!("version {version} of the flow")));
    facts.extend(row.trigger.as_deref().map(|trigger| format!("started by the trigger {}", inert(trigger))));
    facts.extend(row.labels.iter().map(|(name, value)| format!("{name}={}", inert(value))));
    facts.extend(row.retry_of.as_ref().map(|run| format!("repeats {run}")));
    facts.extend(repeats.iter().map(|row| format!("repeated by {}", row.run_id)));
    Ok(facts)
}
