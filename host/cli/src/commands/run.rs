//! `flowcell run`: runs a flow and shows its progress on the terminal.

mod dry_run;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{Args, ValueHint};
use flowcell::{
    CheckedInput, Host, Json, LoadedFlow, PolicyOverride, RunId, RunOptions, StartError, control::OwnerRequest,
};

use crate::{
    arguments::{chosen_run_id, label},
    cli_error::{CliError, Exit},
    duration,
    options::{PackArgs, StoreArgs, StoreLocation, channels::ChannelArgs},
    output::{put_json, put_line},
    owner::{self, FileAbout, Owner, RunDriver, with_present_owner},
    session::{Plan, Session, answers, finish, follow, inputs, print_warnings},
    terminal::Terminal,
};

/// Arguments of `flowcell run`.
#[derive(Args)]
pub(crate) struct RunArgs {
    /// The file of the flow
    #[arg(value_hint = ValueHint::FilePath)]
    flow: PathBuf,
    /// A member of the input: JSON if the value parses as JSON, a file for `@PATH`, otherwise text; may be repeated
    #[arg(short, long = "input", value_name = "KEY=VALUE", value_parser = inputs::pair)]
    input: Vec<(String, inputs::Member)>,
    /// Read the input, a JSON object, from this file; `-` is standard input; members given with `-i` take precedence
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    input_file: Option<PathBuf>,
    /// Write the events as JSON lines to this file; `-` is standard output, which then omits the outputs
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    events: Option<PathBuf>,
    /// Write the files in the outputs to this folder
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, conflicts_with_all = ["detach", "dry_run"])]
    out: Option<PathBuf>,
    /// Print the result as one JSON object, also if the run fails or parks
    #[arg(long)]
    json: bool,
    /// Do not show progress or warnings about the flow
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    channels: ChannelArgs,
    #[command(flatten)]
    packs: PackArgs,
    #[command(flatten)]
    store: StoreArgs,
    /// The id of the run; the same command with the same id continues the run, or prints its result again
    #[arg(long, value_name = "ID", value_parser = chosen_run_id)]
    run_id: Option<RunId>,
    /// Exit once the run is accepted; `flowcell drive` drives it
    #[arg(long, conflicts_with_all = ["events", "channels", "dry_run"])]
    detach: bool,
    /// Add a label to the run, such as team=billing, by which `flowcell runs list -l` finds it; may be repeated
    #[arg(short, long = "label", value_name = "NAME=VALUE", value_parser = label)]
    labels: Vec<(String, String)>,
    /// Answer a gate, or a call of an agent (assistant#3=allow), before it asks; may be repeated
    #[arg(long = "answer", value_name = "GATE=VALUE", value_parser = answers::pair)]
    answers: Vec<(String, String)>,
    /// End the run after this time, such as 500ms, 30s, 2m or 1h30m
    #[arg(long, value_name = "DUR", value_parser = duration::parse)]
    total_timeout: Option<Duration>,
    /// Chat with the agents of the run: standard output shows their messages instead of the outputs, and they receive
    /// the lines that you type; /help shows the commands
    #[arg(long, conflicts_with_all = ["json", "detach", "answers", "dry_run"])]
    chat: bool,
    /// Check the flow and its input, and print the nodes that would run and what they may reach, without running them
    #[arg(long)]
    dry_run: bool,
}

impl RunArgs {
    fn plan(self) -> Plan {
        let RunArgs { flow, input, input_file, events, out, json, quiet, channels, packs, store, .. } = self;
        let RunArgs { run_id, answers, labels, total_timeout, chat, .. } = self;
        let again = false;
        Plan {
            flow,
            input,
            input_file,
            events,
            out,
            json,
            quiet,
            channels,
            packs,
            store,
            tenant: None,
            run_id,
            answers,
            labels,
            total_timeout,
            chat,
            again,
        }
    }
}

pub(super) fn execute(args: RunArgs, terminal: Terminal) -> Result<Exit, CliError> {
    let (is_detached, is_dry) = (args.detach, args.dry_run);
    let mut plan = args.plan();
    if plan.json && plan.events_to_stdout() {
        return Err(CliError::wrong("`--json` and `--events -` both write to standard output")
            .hint("write the events to a file with `--events FILE`"));
    }
    let reads_stdin = plan.input_file.as_deref().is_some_and(|path| path.as_os_str() == "-");
    if plan.chat && reads_stdin {
        return Err(CliError::wrong("`--chat` and `--input-file -` both read standard input")
            .hint("read the input from a file with `--input-file FILE`"));
    }
    if is_dry {
        let host = plan.packs.dry_host(&plan.store)?;
        let flow = load(&host, &plan, terminal)?;
        check_input(&host, &flow, &plan)?;
        dry_run::print(&flow, plan.json)?;
        return Ok(Exit::Good);
    }
    let mut execute = || if is_detached { detach(&mut plan, terminal) } else { run(&mut plan, terminal) };
    match reads_stdin {
        // It can be read once.
        true => execute(),
        false => with_present_owner(execute),
    }
}

/// Runs a flow in this process, or in the one that owns the store.
fn run(plan: &mut Plan, terminal: Terminal) -> Result<Exit, CliError> {
    let folder = match Owner::of(plan.store.place()?, &plan.packs)? {
        Owner::Here(host) => return run_here(host, plan, terminal),
        Owner::Other(folder) => folder.to_owned(),
    };
    plan.run_id.get_or_insert_with(owner::new_run_id);
    hand_over(&folder, plan, &plan.flow, terminal)
}

/// Checks the input and the answers of a run.
fn check_input<'a>(host: &Host, flow: &'a LoadedFlow, plan: &Plan) -> Result<CheckedInput<'a>, CliError> {
    let input = inputs::collect(&inputs::kept_by(host, &plan.input)?, plan.input_file.as_deref())?;
    let input = flow.check_input(input).map_err(|error| owner::input_mismatch(&error))?;
    answers::check(&plan.answers, flow.graph())?;
    Ok(input)
}

/// Runs a flow in this process, which owns the store.
fn run_here(host: Host, plan: &Plan, terminal: Terminal) -> Result<Exit, CliError> {
    let flow = load(&host, plan, terminal)?;
    let input = check_input(&host, &flow, plan)?;
    let driver = RunDriver::listen(&host, &plan.store, &plan.packs, terminal)?;
    let _serving = host.serve()?;
    let session = Session::open(plan, &host, flow.name(), terminal)?.driven_by(driver);
    for (key, meant) in inputs::misspelt(&plan.input, flow.graph()) {
        session.screen.warn(&format!("the flow's input has no member `{key}`; did you mean `{meant}`?"));
    }
    let runner = host.runner_of(input, session.options(plan, Json::Null))?;
    finish(plan, session, host, runner, terminal)
}

/// Stores a run that another process, such as `flowcell drive`, then drives. If another process owns the store, that
/// process starts the run.
fn detach(plan: &mut Plan, terminal: Terminal) -> Result<Exit, CliError> {
    let place = plan.store.place()?;
    if matches!(place, StoreLocation::Memory) {
        return Err(CliError::wrong("a detached run needs a store that outlives this process")
            .hint("remove `--store memory:` or `--detach`"));
    }
    let input = |members: &[(String, Json)]| inputs::collect(members, plan.input_file.as_deref());
    let total_timeout_ms = plan.total_timeout.map(|duration| duration.as_millis() as u64);
    let (run_id, driver) = match Owner::of(place, &plan.packs)? {
        Owner::Here(host) => {
            let flow = load(&host, plan, terminal)?;
            let input = input(&inputs::kept_by(&host, &plan.input)?)?;
            answers::check(&plan.answers, flow.graph())?;
            let policy = PolicyOverride { total_timeout_ms, ..PolicyOverride::default() };
            let answers = plan.early_answers();
            let (run_id, labels) = (plan.run_id.clone(), plan.run_labels());
            let options = RunOptions { run_id, input, policy, answers, labels, ..RunOptions::default() };
            let runner = host.runner(&flow, options)?;
            let run_id = runner.run_id().clone();
            owner::block_on(runner.accept())?.map_err(StartError::from)?;
            (run_id, "`flowcell drive` drives it")
        }
        Owner::Other(folder) => {
            let folder = folder.to_owned();
            plan.run_id.get_or_insert_with(owner::new_run_id);
            let run_id = owner::ask_owner(&folder, &start_request(plan, &plan.flow, false)?)?;
            (run_id, "the process that owns the store drives it")
        }
    };
    if plan.json {
        put_json(&serde_json::json!({ "runId": run_id, "status": "running" }))?;
    } else {
        put_line(run_id.as_str())?;
    }
    if !plan.quiet {
        terminal.say(&terminal.paint().faint(&format!("accepted; {driver}")));
    }
    Ok(Exit::Good)
}

/// Builds the request that asks the store's owner to start a flow.
fn start_request(plan: &Plan, flow: &Path, follow: bool) -> Result<OwnerRequest, CliError> {
    let flow = std::path::absolute(flow);
    let put = |name: &str, content| {
        let about = FileAbout { name: name.to_owned(), mime: None, metadata: Json::Null };
        owner::put(&plan.store, "local", about, content)
    };
    let members = inputs::resolved(&plan.input, put)?;
    Ok(OwnerRequest::Start {
        flow: flow.map_err(|error| CliError::wrong("the path of the flow cannot be resolved").because(&error))?,
        input: inputs::collect(&members, plan.input_file.as_deref())?,
        run: plan.run_id.clone(),
        total_timeout_ms: plan.total_timeout.map(|duration| duration.as_millis() as u64),
        answers: plan.early_answers().into_iter().collect(),
        labels: plan.run_labels(),
        reach: plan.packs.reach(),
        follow,
    })
}

/// Asks the process that owns the store to run a flow, and follows the run until it ends or is parked.
pub(super) fn hand_over(folder: &Path, plan: &Plan, flow: &Path, terminal: Terminal) -> Result<Exit, CliError> {
    let host = plan.packs.host()?;
    // The owner of the store checks the parts that only it can check, such as secrets of the store.
    if let Some(flow) = host.check_flow(flow)?.flow {
        answers::check(&plan.answers, flow.graph())?;
    }
    let name = flow.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let run = follow::HandOver { before: Vec::new(), ask: start_request(plan, flow, true)?, flow: name, prints: None };
    follow::hand_over(folder, plan, run, terminal)
}

fn load(host: &Host, plan: &Plan, terminal: Terminal) -> Result<LoadedFlow, CliError> {
    let checked = host.check_flow(&plan.flow)?;
    match checked.flow {
        Some(flow) => {
            print_warnings(plan, &checked.diagnostics, terminal);
            Ok(flow)
        }
        None => Err(CliError::found(checked.diagnostics)),
    }
}
