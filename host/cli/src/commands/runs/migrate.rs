//! `flowcell runs migrate`: moves a run that has not ended to another version of its flow.

use std::path::Path;

use clap::Args;
use flowcell::{FlowVersion, MigrationPlan, MoveError, MoveOptions, contract::NodeId, control::OwnerRequest, versions};

use super::{
    renames::{RenameArgs, names_of, suggestion},
    resume::{self, ResumeArgs, answer_and_resume},
    retry::made_calls,
};
use crate::{
    cli_error::{CliError, Exit},
    output::{put_json, put_line},
    owner::{Owner, ask_for_result, block_on},
    session::answers,
    terminal::{Terminal, counted},
};

/// Arguments of `flowcell runs migrate`.
#[derive(Args)]
pub(crate) struct MigrateArgs {
    #[command(flatten)]
    resume: ResumeArgs,
    /// The version of the flow: its number in the library, or `latest`
    #[arg(long, value_name = "VERSION")]
    to: FlowVersion,
    /// Let the answers of people also count for new and changed nodes after them
    #[arg(long)]
    keep_answers: bool,
    #[command(flatten)]
    rename: RenameArgs,
    /// Print what the run keeps, what goes on, what starts anew, and what keeps the run from moving; change nothing
    #[arg(long)]
    check: bool,
}

pub(super) fn execute(args: MigrateArgs, terminal: Terminal) -> Result<Exit, CliError> {
    match Owner::of(args.resume.of.store.place()?, &args.resume.packs)? {
        Owner::Here(host) => {
            let own = args.resume.of.host(host.clone())?;
            let _serving = own.serve()?;
            let options = MoveOptions { keep_answers: args.keep_answers, renames: args.rename.renames()? };
            let migration = versions::migration(&own, &args.resume.run, args.to, &options)?;
            if let Some(done) = decide(migration.plan(), &args)? {
                return Ok(done);
            }
            // A refused answer leaves the run in its version.
            let (graph, drops) = (Some(migration.other_graph()), migration.plan().drops_answers);
            answers::check_before_move(&own, &args.resume.run, &args.resume.pairs(), graph, drops)?;
            // As over HTTP, the entries come first: a process that dies leaves no move without one.
            args.resume.of.note(&own, "run.migrate", &args.resume.run)?;
            if args.keep_answers {
                args.resume.of.note(&own, "gate.keep", &args.resume.run)?;
            }
            let plan = block_on(migration.perform())?.map_err(MoveError::from)?;
            say(&plan, &args, terminal);
            answer_and_resume(host, args.resume, terminal)
        }
        Owner::Other(folder) => {
            args.resume.of.refuse_beside_owner(&format!("POST /v1/runs/{}/migrate", args.resume.run))?;
            let folder = folder.to_owned();
            let pairs = args.resume.pairs();
            if !args.check && !pairs.is_empty() {
                // The plan says which answers the move drops.
                let plan = ask(&folder, &args, true)?;
                if let Some(done) = decide(&plan, &args)? {
                    return Ok(done);
                }
                let reading = args.resume.packs.reading_host(&args.resume.of.store)?;
                answers::check_before_move(&reading, &args.resume.run, &pairs, None, plan.drops_answers)?;
            }
            let plan = ask(&folder, &args, args.check)?;
            if let Some(done) = decide(&plan, &args)? {
                return Ok(done);
            }
            say(&plan, &args, terminal);
            resume::execute(&args.resume, terminal)
        }
    }
}

/// Asks the owner of the store for the plan, and for the move unless it only checks.
fn ask(folder: &Path, args: &MigrateArgs, check: bool) -> Result<MigrationPlan, CliError> {
    let MigrateArgs { resume, to, keep_answers, rename, .. } = args;
    let (run, reach) = (resume.run.clone(), resume.packs.reach());
    let ask = OwnerRequest::Migrate { run, version: *to, keep_answers: *keep_answers, check, reach };
    let renames = rename.renames()?;
    let ask = match renames.is_empty() {
        true => ask,
        false => OwnerRequest::MigrateRenaming { renames, migrate: Box::new(ask) },
    };
    let plan = ask_for_result(folder, &ask, &resume.run)?;
    let unexpected = |error| CliError::internal("the owner of the store sent an unexpected reply").because(&error);
    serde_json::from_str(&plan.to_text()).map_err(unexpected)
}

/// Prints a plan if the caller wants only the plan, and returns the exit of the command. Fails if the plan has reasons
/// that keep the run from moving.
fn decide(plan: &MigrationPlan, args: &MigrateArgs) -> Result<Option<Exit>, CliError> {
    if args.check {
        match args.resume.json {
            true => put_json(plan)?,
            false => lines(plan).iter().try_for_each(|line| put_line(line))?,
        }
        return Ok(Some(if plan.refused.is_empty() { Exit::Good } else { Exit::Wrong }));
    }
    if plan.refused.is_empty() {
        return Ok(None);
    }
    let message = format!("the run `{}` cannot move to version `{}` of its flow", args.resume.run, args.to);
    let error = reasons(plan).into_iter().fold(CliError::wrong(message), CliError::note);
    Err(suggestion(&plan.similar).into_iter().fold(error, CliError::hint))
}

/// Prints a summary of the move, and a warning for each node that may repeat its calls.
fn say(plan: &MigrationPlan, args: &MigrateArgs, terminal: Terminal) {
    if args.resume.quiet {
        return;
    }
    let (kept, moved) = (counted(plan.kept.len(), "node"), plan.moved.len());
    let starts = plan.starts.len();
    let summary = format!(
        "moved to version {}: {kept} of the flow keep their outputs, {moved} go on, {starts} start anew",
        args.to
    );
    terminal.say(&terminal.paint().faint(&summary));
    notices(plan).into_iter().for_each(|notice| terminal.warn(notice));
    for start in plan.starts.iter().filter(|start| !start.made_calls.is_empty()) {
        terminal.warn(&format!("`{}` starts anew and {}", start.node.as_str(), made_calls(start)));
    }
}

/// Returns what the run does otherwise than a new run of the version.
fn notices(plan: &MigrationPlan) -> Vec<&'static str> {
    let found = [
        (plan.keeps_policy, "the run keeps the `totalTimeoutMs` of the flow, or the limits, with which it began"),
        (plan.drops_answers, "the answers that the run got at its start no longer count: its gates ask"),
    ];
    found.into_iter().filter(|(holds, _)| *holds).map(|(_, notice)| notice).collect()
}

fn reasons(plan: &MigrationPlan) -> Vec<String> {
    let of = |task: &Option<String>| task.as_ref().map(|task| format!("{task}: ")).unwrap_or_default();
    plan.refused.iter().map(|refused| format!("{}{}", of(&refused.task), refused.obstacle.text())).collect()
}

/// Returns a plan as lines for people.
fn lines(plan: &MigrationPlan) -> Vec<String> {
    let names = |nodes: &[NodeId]| nodes.iter().map(NodeId::as_str).collect::<Vec<_>>().join(", ");
    let number = |version: Option<u32>| version.map_or_else(|| "the file".to_owned(), |version| version.to_string());
    let mut lines = Vec::new();
    if plan.from_version.is_some() || plan.version.is_some() {
        lines.push(format!("version: {} to {}", number(plan.from_version), number(plan.version)));
    }
    let moved: Vec<_> = plan.moved.iter().map(|moved| format!("{} ({})", moved.node.as_str(), moved.state)).collect();
    let lists = [
        ("keep their outputs", names(&plan.kept)),
        ("go on", moved.join(", ")),
        ("have not begun", names(&plan.waiting)),
        ("are gone", names(&plan.gone)),
        ("have another name in the version", names_of(&plan.renamed)),
    ];
    for (what, nodes) in lists.into_iter().filter(|(_, nodes)| !nodes.is_empty()) {
        lines.push(format!("{what}: {nodes}"));
    }
    if !plan.starts.is_empty() {
        lines.push("start anew:".into());
    }
    for start in &plan.starts {
        let calls = if start.made_calls.is_empty() { String::new() } else { format!("; it {}", made_calls(start)) };
        lines.push(format!("  {}: {}{calls}", start.node.as_str(), start.reason.text()));
    }
    lines.extend(notices(plan).into_iter().map(str::to_owned));
    if !plan.refused.is_empty() {
        lines.push("the run cannot move:".into());
    }
    lines.extend(reasons(plan).into_iter().map(|reason| format!("  {reason}")));
    lines.extend(suggestion(&plan.similar));
    lines
}
