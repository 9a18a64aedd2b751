//! `flowcell run`: one run of a flow, watched from a terminal.

mod plan;

use std::path::Path;

use flowcell::{Host, Json, LoadedFlow, OpenStoreError, PolicyOverride, RunOptions, StartError, control::Ask};

use crate::{
    options::Place,
    output::{put_json, put_line},
    owner,
    problem::{Exit, Problem},
    session::{RunArgs, Session, answers, finish, follow, inputs, say_warnings},
    terminal::Terminal,
};

pub(super) fn execute(args: RunArgs, terminal: Terminal) -> Result<Exit, Problem> {
    if args.json && args.events_to_stdout() {
        return Err(Problem::wrong("with `--json`, standard output holds the one object, and so no events")
            .hint("write the events to a file: `--events FILE`"));
    }
    if args.chat && args.input_file.as_deref().is_some_and(|path| path.as_os_str() == "-") {
        return Err(Problem::wrong("with `--chat`, standard input is what you say, and so not the input")
            .hint("read the input from a file: `--input-file FILE`"));
    }
    if args.detach {
        return detach(&args, terminal);
    }
    let host = match (args.dry_run, args.store.place()?) {
        (true, _) => args.packs.dry_host(&args.store)?,
        (false, place) => match (args.packs.host_at(place), place) {
            (Err(flowcell::Error::Store(OpenStoreError::Owned { .. })), Place::Folder(folder)) => {
                return hand_over(folder, &args, &args.flow, terminal);
            }
            (host, _) => host?,
        },
    };
    let flow = load(&host, &args, terminal)?;
    let input = inputs::collect(&inputs::kept_by(&host, &args.input)?, args.input_file.as_deref())?;
    flow.check_input(&input).map_err(|error| owner::unfit(&error))?;
    answers::check(&args.answers, flow.graph())?;
    if args.dry_run {
        plan::print(&flow, args.json)?;
        return Ok(Exit::Good);
    }
    let guests = owner::listen_beside(&host, &args.store, &args.packs, terminal)?;
    let _serving = host.serve()?;
    let session = Session::open(&args, &host, flow.name(), terminal)?.with_guests(guests);
    if !args.quiet {
        for (key, meant) in inputs::misspelt(&args.input, flow.graph()) {
            session.screen.warn(&format!("the flow's input has no `{key}`; did you mean `{meant}`?"));
        }
    }
    let runner = host.runner(&flow, session.options(&args, input))?;
    finish(&args, session, host, runner, terminal)
}

/// Has a run taken in, by the process that owns the store if there is one, and leaves it to whoever drives runs.
fn detach(args: &RunArgs, terminal: Terminal) -> Result<Exit, Problem> {
    let place = args.store.place()?;
    if matches!(place, Place::Memory) {
        return Err(Problem::wrong("a store in memory forgets the run with this process")
            .hint("with `--detach`, leave `--store memory:` away"));
    }
    let input = |members: &[(String, Json)]| inputs::collect(members, args.input_file.as_deref());
    let total_timeout_ms = args.total_timeout.map(|duration| duration.as_millis() as u64);
    let (run_id, driver) = match (args.packs.host_at(place), place) {
        (Ok(host), _) => {
            let flow = load(&host, args, terminal)?;
            let input = input(&inputs::kept_by(&host, &args.input)?)?;
            answers::check(&args.answers, flow.graph())?;
            let policy = PolicyOverride { total_timeout_ms, ..PolicyOverride::default() };
            let answers = args.early_answers();
            let options =
                RunOptions { session_id: args.run_id.clone(), input, policy, answers, ..RunOptions::default() };
            let runner = host.runner(&flow, options)?;
            let run_id = runner.run_id().clone();
            owner::block_on(runner.accept())?.map_err(StartError::from)?;
            (run_id, "`flowcell drive` runs it")
        }
        (Err(flowcell::Error::Store(OpenStoreError::Owned { .. })), Place::Folder(folder)) => {
            let run_id = owner::ask_owner(folder, &start(args, &args.flow, false)?)?;
            (run_id, "the process that owns the store runs it")
        }
        (Err(error), _) => return Err(error.into()),
    };
    if args.json {
        put_json(&serde_json::json!({ "runId": run_id, "status": "running" }))?;
    } else {
        put_line(run_id.as_str())?;
    }
    if !args.quiet {
        terminal.say(&terminal.paint().faint(&format!("accepted; {driver}")));
    }
    Ok(Exit::Good)
}

/// What is asked of the owner of the store to start a flow.
fn start(args: &RunArgs, flow: &Path, follow: bool) -> Result<Ask, Problem> {
    let flow = std::path::absolute(flow);
    let put = |name: &str, bytes| owner::put(&args.store, name, bytes);
    let members = inputs::resolved(&args.input, put)?;
    Ok(Ask::Start {
        flow: flow.map_err(|error| Problem::wrong("the flow has no path").because(&error))?,
        input: inputs::collect(&members, args.input_file.as_deref())?,
        run: args.run_id.clone(),
        total_timeout_ms: args.total_timeout.map(|duration| duration.as_millis() as u64),
        answers: args.early_answers().into_iter().collect(),
        reach: args.packs.reach(),
        follow,
    })
}

/// Hands a flow over to the process that owns the store, and follows its run.
pub(super) fn hand_over(folder: &Path, args: &RunArgs, flow: &Path, terminal: Terminal) -> Result<Exit, Problem> {
    let host = args.packs.host()?;
    // What only the owner can check, such as secrets of the store, it checks.
    if let Some(flow) = host.check_flow(flow)?.flow {
        answers::check(&args.answers, flow.graph())?;
    }
    let name = flow.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let run = follow::HandOver { before: Vec::new(), ask: start(args, flow, true)?, flow: name, prints: None };
    follow::hand_over(folder, args, run, terminal)
}

fn load(host: &Host, args: &RunArgs, terminal: Terminal) -> Result<LoadedFlow, Problem> {
    let checked = host.check_flow(&args.flow)?;
    match checked.flow {
        Some(flow) => {
            say_warnings(args, &checked.diagnostics, terminal);
            Ok(flow)
        }
        None => Err(Problem::found(checked.diagnostics)),
    }
}
