//! `flowcell runs retry`: repeats a run as a new run.

use std::path::Path;

use clap::Args;
use flowcell::{
    FlowVersion, Host, PlannedNode, Repeat, RetryPlan, RunId, RunOptions, contract::NodeId, control::OwnerRequest,
    versions,
};

use super::{
    renames::{RenameArgs, names_of, suggestion},
    resume::{ResumeArgs, resume_here},
};
use crate::{
    arguments::{chosen_run_id, shell_word},
    cli_error::{CliError, Exit},
    output::{put_json, put_line},
    owner::{Owner, ask_for_result, new_run_id, with_present_owner},
    session::{
        answers,
        follow::{self, HandOver},
    },
    terminal::{Terminal, counted},
};

/// Arguments of `flowcell runs retry`.
#[derive(Args)]
pub(crate) struct RetryArgs {
    #[command(flatten)]
    resume: ResumeArgs,
    /// Run only this node of the flow and the nodes after it; other nodes keep their outputs, but a gate or an agent
    /// that the repeated nodes depend on asks again
    #[arg(long, value_name = "NODE")]
    from: Option<String>,
    /// Keep the answers of people instead of asking them again
    #[arg(long, requires = "from")]
    keep_answers: bool,
    /// Use another version of the flow: its number in the library, or `latest`; a node keeps its output if it
    /// succeeded, is unchanged and comes after no node that runs
    #[arg(long, value_name = "VERSION")]
    flow_version: Option<FlowVersion>,
    #[command(flatten)]
    rename: RenameArgs,
    /// Print which nodes keep their outputs and which run, with the reasons, and begin nothing
    #[arg(long, requires = "flow_version")]
    check: bool,
    /// The id of the new run
    #[arg(long, value_name = "ID", value_parser = chosen_run_id)]
    run_id: Option<RunId>,
}

pub(super) fn execute(mut args: RetryArgs, terminal: Terminal) -> Result<Exit, CliError> {
    if let Some(answer) = args.resume.answers.iter().find(|answer| answer.digest.is_some()) {
        let why = format!("the questions of the new run have other digests than the one for `{}`", answer.gate);
        return Err(CliError::wrong(why)
            .hint(format!("write `--answer {}`", shell_word(&format!("{}={}", answer.gate, answer.value)))));
    }
    if args.flow_version.is_none() && !args.rename.is_empty() {
        let why = "`--rename` needs `--flow-version`: nodes have other names only in another version of the flow";
        return Err(CliError::wrong(why).hint("add `--flow-version latest`"));
    }
    with_present_owner(|| execute_once(&mut args, terminal))
}

/// Repeats the run in this process, or in the one that owns the store.
fn execute_once(args: &mut RetryArgs, terminal: Terminal) -> Result<Exit, CliError> {
    let (run, version) = (args.resume.run.clone(), args.flow_version);
    let (from, renames) = (args.from.as_deref().map(NodeId::from), args.rename.renames()?);
    let repeat = Repeat { from, keep_answers: args.keep_answers, renames };
    match Owner::of(args.resume.of.store.place()?, &args.resume.packs)? {
        Owner::Here(host) => {
            let own = args.resume.of.host(host.clone())?;
            let plan = version.map(|version| versions::plan_retry(&own, &run, version, &repeat)).transpose()?;
            if let Some(done) = show(plan.as_ref(), args, terminal)? {
                return Ok(done);
            }
            let run_id = args.run_id.clone();
            let prepare = |host: &Host, options| {
                versions::retry(host, &run, version, repeat.clone(), RunOptions { run_id: run_id.clone(), ..options })
            };
            resume_here(host, args.resume.clone(), "run.retry", terminal, prepare)
        }
        Owner::Other(folder) => {
            args.resume.of.refuse_beside_owner(&format!("POST /v1/runs/{run}/retry"))?;
            let folder = folder.to_owned();
            let plan = version.map(|version| plan_of_owner(&folder, args, version)).transpose()?;
            if let Some(done) = show(plan.as_ref(), args, terminal)? {
                return Ok(done);
            }
            args.run_id.get_or_insert_with(new_run_id);
            let ask = match version {
                Some(version) => in_version(args, version, false)?,
                None => request(args),
            };
            let flow = args.resume.packs.reading_host(&args.resume.of.store)?.graph_of_run(&run)?.name.to_string();
            let handed = HandOver { before: Vec::new(), ask, flow, prints: None };
            follow::hand_over(&folder, &args.resume.clone().plan(), handed, terminal)
        }
    }
}

fn request(args: &RetryArgs) -> OwnerRequest {
    let answers = args.resume.answers.iter();
    OwnerRequest::Retry {
        run: args.resume.run.clone(),
        from: args.from.clone(),
        keep_answers: args.keep_answers,
        new: args.run_id.clone(),
        answers: answers.map(|given| (given.gate.clone(), answers::answer(&given.value))).collect(),
        reach: args.resume.packs.reach(),
    }
}

/// Returns the request for a retry in another version of the flow, or for its plan.
fn in_version(args: &RetryArgs, version: FlowVersion, check: bool) -> Result<OwnerRequest, CliError> {
    let ask = OwnerRequest::RetryInVersion { version, check, retry: Box::new(request(args)) };
    let renames = args.rename.renames()?;
    Ok(match renames.is_empty() {
        true => ask,
        false => OwnerRequest::RetryRenaming { renames, retry: Box::new(ask) },
    })
}

/// Asks the owner of the store for the plan of a retry.
fn plan_of_owner(folder: &Path, args: &RetryArgs, version: FlowVersion) -> Result<RetryPlan, CliError> {
    let ask = in_version(args, version, true)?;
    let plan = ask_for_result(folder, &ask, &args.resume.run)?;
    let unexpected = |error| CliError::internal("the owner of the store sent an unexpected reply").because(&error);
    serde_json::from_str(&plan.to_text()).map_err(unexpected)
}

/// Prints a plan if the caller wants only the plan, and returns the exit of the command. Otherwise prints a summary,
/// and a warning for each node that may repeat its calls.
fn show(plan: Option<&RetryPlan>, args: &RetryArgs, terminal: Terminal) -> Result<Option<Exit>, CliError> {
    let Some(plan) = plan else { return Ok(None) };
    if args.check {
        match args.resume.json {
            true => put_json(plan)?,
            false => lines(plan).iter().try_for_each(|line| put_line(line))?,
        }
        return Ok(Some(Exit::Good));
    }
    if !args.resume.quiet {
        let kept = counted(plan.kept.len(), "node");
        terminal
            .say(&terminal.paint().faint(&format!("{kept} of the flow keep their outputs, {} run", plan.runs.len())));
        for planned in plan.runs.iter().filter(|planned| !planned.made_calls.is_empty()) {
            terminal.warn(&format!("`{}` runs again and {}", planned.node.as_str(), made_calls(planned)));
        }
    }
    Ok(None)
}

/// Returns a plan as lines for people.
fn lines(plan: &RetryPlan) -> Vec<String> {
    let names = |nodes: &[NodeId]| nodes.iter().map(NodeId::as_str).collect::<Vec<_>>().join(", ");
    let mut lines: Vec<String> = plan.version.map(|version| format!("version: {version}")).into_iter().collect();
    let lists = [
        ("keep their outputs", names(&plan.kept)),
        ("were skipped", names(&plan.skipped)),
        ("are gone", names(&plan.gone)),
        ("have another name in the version", names_of(&plan.renamed)),
    ];
    for (what, nodes) in lists.into_iter().filter(|(_, nodes)| !nodes.is_empty()) {
        lines.push(format!("{what}: {nodes}"));
    }
    if !plan.runs.is_empty() {
        lines.push("run:".into());
    }
    for planned in &plan.runs {
        let calls = if planned.made_calls.is_empty() { String::new() } else { format!("; it {}", made_calls(planned)) };
        lines.push(format!("  {}: {}{calls}", planned.node.as_str(), planned.reason.text()));
    }
    lines.extend(suggestion(&plan.similar));
    lines
}

/// Says which calls a node that runs may repeat.
pub(super) fn made_calls(planned: &PlannedNode) -> String {
    let calls = planned.made_calls.iter().map(|(name, times)| format!("{name} ({times} x)"));
    format!("has already called {}", calls.collect::<Vec<_>>().join(", "))
}
