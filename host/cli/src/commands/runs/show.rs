//! `flowcell runs show`: prints a run as a tree, or the inputs of one of its tasks.

use std::{collections::BTreeMap, ops::ControlFlow};

use clap::Args;
use flowcell::{
    Filter, Host, MaybeStoreError, RunEnd, RunId, RunRow, Runs, StartError,
    contract::NodeId,
    facts::RunFacts,
    tree::{Tree, Twig, is_zero},
    waiting,
};
use serde::Serialize;

use super::{input, tree};
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
    /// Show the whole reply of the call with this number, which is cut if it has more than 4 KiB
    #[arg(long, value_name = "N", requires = "task")]
    call: Option<u32>,
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
    /// The names of nodes in the version that the run uses, by the ids that the run keeps, where they differ.
    #[serde(rename = "nodeNames", skip_serializing_if = "BTreeMap::is_empty")]
    node_names: BTreeMap<NodeId, NodeId>,
    tasks: Vec<Twig>,
    /// The reason why the tasks after those in `tasks` are unknown, such as damage of the store.
    #[serde(rename = "tasksUnknown", skip_serializing_if = "Option::is_none")]
    tasks_unknown: Option<String>,
    /// The outputs of an ended run whose tasks are unknown, and the reason why they are unknown, too.
    #[serde(flatten)]
    end: End,
    /// The number of tasks left out because the document would exceed 16 MiB.
    #[serde(rename = "tasksLeftOut", skip_serializing_if = "is_zero")]
    left_out: u64,
    /// The open gates of the run and of its child runs, as `GET /v1/runs/{id}/gates` lists them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    waiting: Vec<serde_json::Value>,
    /// The reason why the open gates are unknown.
    #[serde(rename = "waitingUnknown", skip_serializing_if = "Option::is_none")]
    waiting_unknown: Option<String>,
}

/// The outputs of an ended run.
#[derive(Default, Serialize)]
struct End {
    #[serde(skip_serializing_if = "Option::is_none")]
    outputs: Option<serde_json::Value>,
    #[serde(rename = "outputsUnknown", skip_serializing_if = "Option::is_none")]
    unknown: Option<String>,
}

impl End {
    /// Reads the outputs of a run whose journal ends before the event with the number `next`.
    fn read(host: &Host, run: &RunId, next: u64) -> Result<End, CliError> {
        let (end, unknown) = known(host.end_of(run, next))?;
        let outputs = end.map(|end| match end {
            RunEnd::Succeeded { outputs } | RunEnd::Failed { outputs, .. } | RunEnd::Cancelled { outputs } => {
                outputs.to_serde()
            }
        });
        Ok(End { outputs, unknown })
    }
}

pub(super) fn execute(args: &ShowArgs, terminal: Terminal) -> Result<Exit, CliError> {
    let host = args.of.reading_host(&args.packs)?;
    if let Some(task) = &args.task {
        let reader = args.of.store.reader()?;
        let inputs = input::read(&host, &*reader, (&args.run, task), (args.from, args.call))?;
        input::require_attempt(&host, &*reader, (&args.run, task), args.from, &inputs)?;
        match args.json {
            true => put_json(&inputs)?,
            false => put(&input::render(&inputs, (&args.run, task), &args.of.selection(), terminal.paint_of_output()))?,
        }
        return Ok(Exit::Good);
    }
    match args.json {
        true => show_json(&host, args),
        false => show_text(&host, args, terminal),
    }
}

/// Prints a run as JSON. If a part of it is unknown, prints the other parts, and the reason.
fn show_json(host: &Host, args: &ShowArgs) -> Result<Exit, CliError> {
    let (tree, tasks_unknown) = Tree::of_known(host, &args.run)?;
    let (left_out, tasks) = (tree.left_out(), tree.tasks());
    let reader = args.of.store.reader()?;
    let found = reader.run(&args.of.tenant(), &args.run).map_err(|error| unreadable(&error))?;
    let (run, next) = found.ok_or_else(|| CliError::wrong(format!("the run `{}` was removed", args.run)))?;
    let is_cut = tasks_unknown.is_some();
    let end = is_cut.then(|| End::read(host, &args.run, next)).transpose()?.unwrap_or_default();
    let (waiting, waiting_unknown) = known(waiting::list(host, &args.run))?;
    let facts = RunFacts::of(host, &args.run)?;
    let Lineage { called_by, retried_by, node_names } = lineage(host, &*reader, &args.run)?;
    put_json(&Shown {
        run,
        facts,
        called_by,
        retried_by,
        node_names,
        tasks,
        tasks_unknown,
        end,
        left_out,
        waiting,
        waiting_unknown,
    })?;
    Ok(Exit::Good)
}

/// Prints a run for people. If a part of it is unknown, the first line says so, and the other parts follow.
fn show_text(host: &Host, args: &ShowArgs, terminal: Terminal) -> Result<Exit, CliError> {
    let paint = terminal.paint_of_output();
    let mut tree = tree::Tree::default();
    let read = host.each_event(&args.run, 0, |event| {
        tree.add(&event);
        ControlFlow::Continue(())
    });
    let ((), tasks_unknown) = known(read)?;
    let (open, waiting_unknown) = known(waiting::list(host, &args.run))?;
    let reader = args.of.store.reader()?;
    let found = reader.run(&args.of.tenant(), &args.run).map_err(|error| unreadable(&error))?;
    let mut end = End::default();
    match (&found, &tasks_unknown) {
        (Some((row, next)), Some(_)) => {
            tree.set_cut(row);
            end = End::read(host, &args.run, *next)?;
        }
        (Some((row, _)), None) => tree.set_status(&row.status),
        _ => {}
    }
    if let Some(why) = tasks_unknown.as_ref().or(waiting_unknown.as_ref()) {
        put_line(&paint.error(&incomplete_line(why)))?;
    }
    put(&tree.render(paint))?;
    let facts = found.map(|(row, _)| facts(host, &row, &*reader)).transpose()?.unwrap_or_default();
    if !facts.is_empty() {
        put_line(&paint.faint(&facts.join(", ")))?;
    }
    for line in start_facts(&RunFacts::of(host, &args.run)?).into_iter().chain(end_facts(&end)) {
        put_line(&paint.faint(&line))?;
    }
    // The tree already shows the run's own questions.
    for open in open {
        let text = |name: &str| open[name].as_str().unwrap_or_default();
        if text("kind") == "gate" && text("address").contains('/') {
            put_line(&format!("asks `{}`: {}", inert(text("address")), inert(text("prompt"))))?;
        }
    }
    Ok(Exit::Good)
}

/// Returns the read part of a run, or an empty one and the reason why it is unknown.
pub(super) fn known<T: Default>(read: Result<T, StartError>) -> Result<(T, Option<String>), CliError> {
    match read {
        Ok(known) => Ok((known, None)),
        Err(error) => Ok((T::default(), Some(error.unknown_part().ok_or(error)?))),
    }
}

/// Returns the line that says which part of a run is unknown, and what to do.
fn incomplete_line(why: &str) -> String {
    format!(
        "incomplete: {}; the other parts follow. `flowcell store check` shows all damage of the store, and `flowcell help \
         store` how to restore a backup",
        inert(why)
    )
}

/// The maximum number of repeating runs that one run shows.
const MAX_SHOWN_REPEATS: usize = 5;
/// The number of characters of an input, or of outputs, that the text shows.
const SHOWN_CHARS: usize = 200;

/// The facts about a run from its record and from other runs.
struct Lineage {
    /// The run that has called it.
    called_by: Option<RunId>,
    /// The runs that repeat it.
    retried_by: Vec<RunId>,
    /// The names of nodes in the version that it uses, by their ids, where they differ.
    node_names: BTreeMap<NodeId, NodeId>,
}

fn lineage(host: &Host, reader: &dyn Runs, run: &RunId) -> Result<Lineage, CliError> {
    // A damaged record is among the damage that is shown already.
    let record = host.record(run).or_else(|error| error.damage().map(|_| None).ok_or(error));
    let record = record.map_err(|error| unreadable(&error))?;
    let repeats = Filter { retry_of: Some(run.clone()), limit: MAX_SHOWN_REPEATS, ..Filter::default() };
    let repeats = reader.runs(host.tenant(), &repeats).map_err(|error| unreadable(&error))?;
    let node_names = record.as_ref().map(|record| record.node_names()).unwrap_or_default();
    let called_by = record.and_then(|record| record.parent);
    Ok(Lineage { called_by, retried_by: repeats.into_iter().map(|row| row.run_id).collect(), node_names })
}

/// Returns the facts about a run in the store besides its events: the version of its flow with the names of nodes in it, its
/// trigger, its labels, the run that has called it, the runs that it repeats or that repeat it, and the first item that
/// it waits for.
fn facts(host: &Host, row: &RunRow, reader: &dyn Runs) -> Result<Vec<String>, CliError> {
    let Lineage { called_by, retried_by, node_names } = lineage(host, reader, &row.run_id)?;
    let mut facts = Vec::new();
    facts.extend(row.version.map(|version| format!("version {version} of the flow")));
    facts.extend(node_names.iter().map(|(id, name)| format!("`{id}` is named `{name}` in the flow")));
    facts.extend(row.trigger.as_deref().map(|trigger| format!("started by the trigger {}", inert(trigger))));
    facts.extend(row.labels.iter().map(|(name, value)| format!("{name}={}", inert(value))));
    facts.extend(called_by.map(|run| format!("called by {run}")));
    facts.extend(row.retry_of.as_ref().map(|run| format!("repeats {run}")));
    facts.extend(retried_by.iter().map(|run| format!("repeated by {run}")));
    facts.extend(row.waits_for.as_ref().map(|waits| format!("waits for {}", inert(&waits.to_string()))));
    Ok(facts)
}

/// Returns the line about the outputs of a run.
fn end_facts(end: &End) -> Option<String> {
    let outputs = end.outputs.as_ref().map(|outputs| format!("outputs: {}", beginning(&outputs.to_string(), None)));
    outputs.or_else(|| end.unknown.as_deref().map(|why| format!("outputs: unknown: {}", inert(why))))
}

/// Returns the beginning of a JSON text, and its size if it is cut. `bytes`: the size of a text that is cut already.
fn beginning(text: &str, bytes: Option<usize>) -> String {
    let bytes = bytes.or((text.chars().nth(SHOWN_CHARS).is_some()).then_some(text.len()));
    let start: String = text.chars().take(SHOWN_CHARS).collect();
    let rest = bytes.map(|bytes| format!("… ({bytes} bytes)")).unwrap_or_default();
    format!("{}{rest}", inert(&start))
}

/// Returns the lines about the input of a run and its packs.
fn start_facts(facts: &RunFacts) -> Vec<String> {
    let (text, bytes) = match (&facts.input, &facts.input_cut) {
        (Some(input), _) => (input.to_string(), None),
        (None, Some(cut)) => (cut.start.clone(), Some(cut.bytes)),
        (None, None) => (String::new(), None),
    };
    let mut lines = Vec::new();
    lines.extend(facts.input_unknown.as_deref().map(|why| format!("input: unknown: {}", inert(why))));
    lines.extend((!text.is_empty() && text != "{}").then(|| format!("input: {}", beginning(&text, bytes))));
    let packs = facts.packs.iter().map(|pack| {
        let digest: String = pack.digest.chars().take(12).collect();
        format!("{} {} ({digest})", inert(&pack.name), inert(pack.version.as_deref().unwrap_or("-")))
    });
    let packs = packs.collect::<Vec<_>>().join(", ");
    lines.extend((!packs.is_empty()).then(|| format!("packs: {packs}")));
    lines.extend(facts.packs_unknown.as_deref().map(|why| format!("packs: unknown: {}", inert(why))));
    lines
}
