//! `flowcell runs resume`: resumes a run.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use clap::Args;
use flowcell::{
    Closed, FlowRunner, Host, HubError, Json, OpenError, RetryError, RunId, RunOptions, StartError,
    control::{AskError, OperatorCommandError, OwnerRequest, command_as_operator},
};

use crate::{
    arguments::{run_id, shell_word},
    cli_error::{CliError, Exit},
    options::{PackArgs, TenantArgs, channels::ChannelArgs},
    owner::{Owner, REPEAT_LATER, RunDriver, block_on, refused, with_present_owner},
    session::{
        self, Plan, answers,
        answers::NamedAnswer,
        follow::{self, HandOver},
    },
    terminal::Terminal,
};

/// Maximum time to wait for the end of another process's claim: a lease of a shared store, and a margin.
const CLAIM_PATIENCE: Duration = Duration::from_secs(20);
/// Interval between two tries to claim a run.
const CLAIM_POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Arguments of `flowcell runs resume`.
#[derive(Args, Clone)]
pub(crate) struct ResumeArgs {
    /// The id of the run
    #[arg(value_name = "RUN", value_parser = run_id)]
    pub(super) run: RunId,
    /// Answer a gate, or a call of an agent (assistant#3=allow); may be repeated. assistant#3@DIGEST=allow answers only
    /// the question with this digest
    #[arg(long = "answer", value_name = "GATE=VALUE", value_parser = answers::named)]
    pub(super) answers: Vec<NamedAnswer>,
    /// Print the result as one JSON object, also if the run fails or parks
    #[arg(long)]
    pub(super) json: bool,
    /// Do not show progress
    #[arg(short, long)]
    pub(super) quiet: bool,
    #[command(flatten)]
    channels: ChannelArgs,
    #[command(flatten)]
    pub(super) of: TenantArgs,
    #[command(flatten)]
    pub(super) packs: PackArgs,
}

pub(super) fn execute(args: &ResumeArgs, terminal: Terminal) -> Result<Exit, CliError> {
    with_present_owner(|| match Owner::of(args.of.store.place()?, &args.packs)? {
        Owner::Here(host) => answer_and_resume(host, args.clone(), terminal),
        Owner::Other(folder) => {
            args.of.refuse_beside_owner(&format!("POST /v1/runs/{}/resume", args.run))?;
            hand_over(folder, args.clone(), terminal)
        }
    })
}

/// Hands the run over to the owner of the store, with the given answers.
fn hand_over(folder: &Path, args: ResumeArgs, terminal: Terminal) -> Result<Exit, CliError> {
    let (run, reach) = (args.run.clone(), args.packs.reach());
    // Check all answers before the first one is sent.
    let reading = args.packs.reading_host(&args.of.store)?;
    let given = args.pairs();
    answers::check_in(&reading, &run, &given)?;
    let recorded = answers::RecordedAnswers::read(&reading, &run, &given)?;
    recorded.check_open(&run, &given)?;
    recorded.check(&run, &given)?;
    let flow = reading.graph_of_run(&run)?.name.to_string();
    let reply = |answer: &NamedAnswer| OwnerRequest::Command { run: run.clone(), command: answer.command() };
    let before = args.answers.iter().map(reply).collect();
    let handed = HandOver { before, ask: OwnerRequest::Resume { run, reach }, flow, prints: None };
    let args = ResumeArgs { answers: Vec::new(), ..args };
    follow::hand_over(folder, &args.plan(), handed, terminal)
}

/// Answers the open questions, and resumes the run in this process.
pub(super) fn answer_and_resume(host: Host, args: ResumeArgs, terminal: Terminal) -> Result<Exit, CliError> {
    let run = args.run.clone();
    answers::check_in(&args.of.host(host.clone())?, &run, &args.pairs())?;
    let later = answer_open(&host, &args, terminal)?;
    let args = ResumeArgs { answers: later, ..args };
    resume_here(host, args, "run.resume", terminal, |host, options| {
        Ok(host.resume(&run, RunOptions { by_hand: true, ..options })?)
    })
}

/// Sends the given answers to the open questions. Returns the answers whose questions are not asked yet.
fn answer_open(host: &Host, args: &ResumeArgs, terminal: Terminal) -> Result<Vec<NamedAnswer>, CliError> {
    let mut later = Vec::new();
    for answer in &args.answers {
        let NamedAnswer { gate, value, digest } = answer;
        match block_on(command_as_operator(host, &args.of.tenant, &args.run, answer.command()))? {
            Ok(()) if args.quiet => {}
            Ok(()) => terminal.say(&terminal.paint().faint(&format!("answered `{gate}`"))),
            Err(OperatorCommandError::Ask(AskError::Refused(
                HubError::GateClosed | HubError::NotOpen(Closed::NoNode | Closed::NoCall | Closed::NotAsked),
            ))) if digest.is_none() => later.push(answer.clone()),
            Err(OperatorCommandError::Ask(AskError::Refused(HubError::AnswerRefused(why)))) => {
                return Err(CliError::wrong(format!("`{gate}` refused the answer `{value}`: {why}")));
            }
            Err(OperatorCommandError::Ask(AskError::Refused(HubError::RunEnded))) => {
                return Err(answers::run_ended_error(&args.run, gate));
            }
            Err(OperatorCommandError::Ask(AskError::Start(error))) => return Err(error.into()),
            Err(error) => return Err(refused(error.code(), &error.to_string(), &args.run)),
        }
    }
    Ok(later)
}

impl ResumeArgs {
    /// Returns the answers as pairs of gate and value, without digests.
    pub(super) fn pairs(&self) -> Vec<(String, String)> {
        self.answers.iter().map(NamedAnswer::pair).collect()
    }

    /// Converts the arguments to the options that all commands that run a flow share.
    pub(super) fn plan(self) -> Plan {
        let answers = self.pairs();
        let ResumeArgs { run, json, quiet, channels, of, packs, .. } = self;
        let (tenant, store) = (of.other_name(), of.store);
        Plan { run_id: Some(run), answers, json, quiet, channels, packs, store, tenant, ..Plan::default() }
    }
}

/// Prepares a run. If another process has claimed a run of a shared store, reports this, and waits for the end of the
/// claim, at most [`CLAIM_PATIENCE`]. The claim of a process that has died ends with its lease. `is_repeated`: another run
/// is prepared, which repeats this one.
fn wait_for_claim(
    host: &Host,
    (run, is_repeated): (&RunId, bool),
    terminal: Terminal,
    prepare: impl Fn() -> Result<FlowRunner, RetryError>,
) -> Result<FlowRunner, CliError> {
    let (began, mut told) = (Instant::now(), false);
    loop {
        let driven = match prepare() {
            Err(RetryError::Start(StartError::Open(OpenError::Driven(driven)))) if host.shared().is_some() => driven,
            prepared => return Ok(prepared?),
        };
        if began.elapsed() >= CLAIM_PATIENCE {
            let hint = match *run == driven && is_repeated {
                true => format!("that process lives; {REPEAT_LATER}"),
                false => format!(
                    "that process lives, and goes on with the run; `flowcell runs show {}` shows it",
                    shell_word(driven.as_str())
                ),
            };
            return Err(CliError::from(StartError::from(OpenError::Driven(driven))).hint(hint));
        }
        if !std::mem::replace(&mut told, true) {
            terminal.say(&format!(
                "another process has claimed the run `{driven}`; waiting for at most {} s, in case that process has died",
                CLAIM_PATIENCE.as_secs()
            ));
        }
        std::thread::sleep(CLAIM_POLL_INTERVAL);
    }
}

/// Prepares the run with `prepare`, drives it in this process, and shows its progress as `flowcell run` does. The
/// command `flowcell runs retry` uses this function, too. `host` is that of the tenant `local`. The audit log of another
/// tenant gets an entry with this action.
pub(super) fn resume_here(
    host: Host,
    args: ResumeArgs,
    action: &str,
    terminal: Terminal,
    prepare: impl Fn(&Host, RunOptions) -> Result<FlowRunner, RetryError>,
) -> Result<Exit, CliError> {
    let driver = RunDriver::listen(&host, &args.of.store, &args.packs, terminal)?;
    let host = args.of.host(host)?;
    let _serving = host.serve()?;
    let (name, of) = (args.run.clone(), args.of.clone());
    let args = args.plan();
    let flow = host.graph_of_run(&name)?.name.clone();
    let session = session::Session::open(&args, &host, &flow, terminal)?.driven_by(driver);
    let runner = wait_for_claim(&host, (&name, action == "run.retry"), terminal, || {
        prepare(&host, session.options(&args, Json::Null))
    })?;
    of.note(&host, action, &name)?;
    answers::check(&args.answers, runner.graph())?;
    if let Some((gate, _)) = args.answers.iter().find(|(gate, _)| !runner.may_ask(gate)) {
        return Err(CliError::wrong(format!("the question at `{gate}` is closed: it was answered or timed out")).hint(
            format!(
                "`flowcell runs show {}{}` shows the status of the run and its open questions",
                shell_word(name.as_str()),
                of.selection()
            ),
        ));
    }
    session::print_warnings(&args, &host.warnings_of(&name), terminal);
    if let Some(simulate) = host.simulated_of(&name).filter(|_| !args.quiet) {
        terminal
            .say(&format!("the run started with `--simulate {simulate}` and keeps these simulations until its end"));
    }
    session::report::print_open_questions(&args, &host, &name, terminal)?;
    session::finish(&args, session, host, runner, terminal)
}
