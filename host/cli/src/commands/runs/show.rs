//! `flowcell runs show`: prints a run as a tree, or the inputs of one of its tasks.

use std::ops::ControlFlow;

use clap::Args;
use flowcell::{
    Filter, Host, RunId, RunRow, Runs,
    facts::RunFacts,
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
    /// The packs of the run and its input, as `GET /v1/runs/{id}` shows them.
    #[serde(flatten)]
    facts: RunFacts,
    /// The run that has called this one.
    #[serde(rename = "calledBy", skip_serializing_if = "Option::is_none")]
    called_by: Option<RunId>,
    /// The runs that repeat this one, the latest 5.
    #[serde(rename = "retriedBy", skip_serializing_if = "Vec::is_empty")]
    retried_by: Vec<RunId>,
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
        let facts = RunFacts::of(&host, &args.run)?;
        let (called_by, retried_by) = lineage(&host, &*args.of.store.reader()?, &args.run)?;
        put_json(&Shown { run, facts, called_by, retried_by, tasks, left_out, waiting })?;
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
    let facts = row.map(|row| facts(&host, &row, &*reader)).transpose()?.unwrap_or_default();
    if !facts.is_empty() {
        put_line(&terminal.paint_of_output().faint(&facts.join(", ")))?;
    }
    for line in start_facts(&RunFacts::of(&host, &args.run)?) {
        put_line(&terminal.paint_of_output().faint(&line))?;
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
/// The number of characters of an input that the text shows.
const SHOWN_INPUT_CHARS: usize = 200;

/// Returns the run that has called a run, and the runs that repeat it.
fn lineage(host: &Host, reader: &dyn Runs, run: &RunId) -> Result<(Option<RunId>, Vec<RunId>), CliError> {
    let record = host.record(run).map_err(|error| unreadable(&error))?;
    let repeats = Filter { retry_of: Some(run.clone()), limit: MAX_SHOWN_REPEATS, ..Filter::default() };
    let repeats = reader.runs(host.tenant(), &repeats).map_err(|error| unreadable(&error))?;
    Ok((record.and_then(|record| record.parent), repeats.into_iter().map(|row| row.run_id).collect()))
}

/// Returns what the store knows of a run besides its events: the version of its flow, its trigger, its labels, the run
/// that has called it, the runs that it repeats or that repeat it, and the first item that it waits for.
fn facts(host: &Host, row: &RunRow, reader: &dyn Runs) -> Result<Vec<String>, CliError> {
    let (called_by, retried_by) = lineage(host, reader, &row.run_id)?;
    let mut facts = Vec::new();
    facts.extend(row.version.map(|version| format!("version {version} of the flow")));
    facts.extend(row.trigger.as_deref().map(|trigger| format!("started by the trigger {}", inert(trigger))));
    facts.extend(row.labels.iter().map(|(name, value)| format!("{name}={}", inert(value))));
    facts.extend(called_by.map(|run| format!("called by {run}")));
    facts.extend(row.retry_of.as_ref().map(|run| format!("repeats {run}")));
    facts.extend(retried_by.iter().map(|run| format!("repeated by {run}")));
    facts.extend(row.waits_for.as_ref().map(|waits| format!("waits for {}", inert(&waits.to_string()))));
    Ok(facts)
}

/// Returns the lines about the input of a run and its packs.
fn start_facts(facts: &RunFacts) -> Vec<String> {
    let (text, bytes) = match (&facts.input, &facts.input_cut) {
        (Some(input), _) => (input.to_string(), None),
        (None, Some(cut)) => (cut.start.clone(), Some(cut.bytes)),
        (None, None) => (String::new(), None),
    };
    let bytes = bytes.or((text.chars().nth(SHOWN_INPUT_CHARS).is_some()).then_some(text.len()));
    let start: String = text.chars().take(SHOWN_INPUT_CHARS).collect();
    let rest = bytes.map(|bytes| format!("… ({bytes} bytes)")).unwrap_or_default();
    let mut lines = Vec::new();
    lines.extend(facts.input_unknown.as_deref().map(|why| format!("input: unknown: {}", inert(why))));
    lines.extend((!text.is_empty() && text != "{}").then(|| format!("input: {}{rest}", inert(&start))));
    let packs = facts.packs.iter().map(|pack| {
        let digest: String = pack.digest.chars().take(12).collect();
        format!("{} {} ({digest})", inert(&pack.name), inert(pack.version.as_deref().unwrap_or("-")))
    });
    let packs = packs.collect::<Vec<_>>().join(", ");
    lines.extend((!packs.is_empty()).then(|| format!("packs: {packs}")));
    lines.extend(facts.packs_unknown.as_deref().map(|why| format!("packs: unknown: {}", inert(why))));
    lines
}
