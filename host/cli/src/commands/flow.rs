//! `flowcell --flow`: runs an agentic flow by its name, in a session that later runs continue.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{Arg, Args, ValueHint};
use flowcell::{
    Host, Json, Reader, RunStatus, StartError,
    agentic::{self, DiscoveredFile, FLOW_FOLDERS, Level},
    control::OwnerRequest,
    graph::Graph,
    sessions::{FlowSession, Opened, SessionError, Sessions, StepStatus},
};

use crate::{
    arguments::shell_word,
    cli_error::{CliError, Exit},
    duration,
    options::{PackArgs, StoreArgs, channels::ChannelArgs},
    output::put_json,
    owner::{self, Owner, RunDriver, with_present_owner},
    session,
    session::{Plan, follow::HandOver, inputs},
    terminal::{Terminal, finding},
};

/// Maximum number of flow names in a message.
const MAX_LISTED_NAMES: usize = 12;

/// The heading of the arguments of `flowcell --flow` in the help. The front page does not list arguments with this
/// heading.
pub(super) const HEADING: &str = "Agentic flows";

/// Arguments of `flowcell --flow`.
#[derive(Args)]
#[command(next_help_heading = HEADING)]
pub(crate) struct FlowArgs {
    /// Run the agentic flow of this name from the folders of the project and the user
    #[arg(short = 'F', long, value_name = "FLOW")]
    flow: Option<String>,
    /// The argument `prompt` of the flow
    #[arg(short, long, value_name = "TEXT", requires = "flow")]
    prompt: Option<String>,
    /// The prefix of the session ids; a run with the same prefix continues these sessions [default: that of the flow, or
    /// the time]
    #[arg(short, long, value_name = "PREFIX", requires = "flow")]
    session: Option<String>,
    /// Remove the sessions and states of this prefix before the run
    #[arg(short = 'D', long, requires = "flow")]
    delete: bool,
    /// Another argument: JSON if the value parses as JSON and the flow does not ask for text; may be repeated
    #[arg(short = 'A', long = "arg", value_name = "KEY=VALUE", value_parser = pair, requires = "flow")]
    args: Vec<(String, String)>,
    /// Read arguments, a JSON object, from this file; they take precedence over all others
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "flow")]
    args_file: Option<PathBuf>,
    /// Write the events as JSON lines to this file; `-` is standard output, which then omits the result
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "flow")]
    events: Option<PathBuf>,
    /// Do not show progress
    #[arg(short, long, requires = "flow")]
    quiet: bool,
    /// End the run after this time, such as 500ms, 30s, 2m or 1h30m
    #[arg(long, value_name = "DUR", value_parser = duration::parse, requires = "flow")]
    total_timeout: Option<Duration>,
    #[command(flatten)]
    channels: ChannelArgs,
    #[command(flatten)]
    packs: PackArgs,
    #[command(flatten)]
    store: StoreArgs,
}

/// Hides an argument in the brief help if the help of `flowcell run` explains it already.
pub(super) fn hide_in_brief_help(arg: Arg) -> Arg {
    const EXPLAINED_ELSEWHERE: [&str; 17] = [
        "events",
        "total_timeout",
        "channels",
        "webhook_secret",
        "packs",
        "lock",
        "trust",
        "allow_private",
        "providers",
        "mcp",
        "files",
        "secrets",
        "services",
        "secret_key",
        "simulate",
        "state",
        "store",
    ];
    let elsewhere = EXPLAINED_ELSEWHERE.contains(&arg.get_id().as_str());
    arg.hide_short_help(elsewhere)
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("write it as key=value, for example `-A priority=high`".into()),
    }
}

impl FlowArgs {
    /// Returns the name of the flow to run, if one is given.
    pub(super) fn flow(&self) -> Option<&str> {
        self.flow.as_deref()
    }
}

pub(super) fn execute(name: &str, mut args: FlowArgs, terminal: Terminal) -> Result<Exit, CliError> {
    let entry = find(name)?;
    let plan = Plan {
        flow: entry.path.clone().into(),
        events: args.events.take(),
        quiet: args.quiet,
        total_timeout: args.total_timeout,
        channels: std::mem::take(&mut args.channels),
        packs: std::mem::take(&mut args.packs),
        store: std::mem::take(&mut args.store),
        ..Plan::default()
    };
    with_present_owner(|| match Owner::of(plan.store.place()?, &plan.packs)? {
        Owner::Here(host) => run_here(&args, &plan, &entry, host, terminal),
        Owner::Other(folder) => run_through_owner(&args, &plan, &entry, folder, terminal),
    })
}

/// Runs the flow in this process, which owns the store.
fn run_here(
    args: &FlowArgs,
    plan: &Plan,
    entry: &DiscoveredFile,
    host: Host,
    terminal: Terminal,
) -> Result<Exit, CliError> {
    let (session, input) = load_session(args, &host, entry)?;
    if !args.quiet {
        session.warnings().iter().for_each(|found| terminal.say(&finding(found, terminal.paint())));
    }
    let driver = RunDriver::listen(&host, &plan.store, &plan.packs, terminal)?;
    let _serving = host.serve()?;
    let front = session::Session::open(plan, &host, session.flow().name(), terminal)?;
    let mut front = front.driven_by(driver);
    let options = front.options(plan, Json::Null);
    match owner::block_on(session.open(input, args.delete, options))?? {
        Opened::Busy => {
            front.close();
            report_run_in_progress(&session, host.sessions(), terminal)
        }
        Opened::Run(runner) => {
            let (result, interrupted) = front.until_end(plan, *runner)?;
            // If two processes start this run at the same time, the store accepts one of them. The other process gets
            // `Running`.
            if result.status == RunStatus::Running {
                return report_run_in_progress(&session, host.sessions(), terminal);
            }
            if !plan.events_to_stdout() {
                put_json(&session.envelope(host.sessions()).map_err(SessionError::from)?)?;
            }
            // The process ends here, so the session need not be dropped.
            std::mem::forget(session);
            host.wait_for_watchers(&result.run_id);
            session::release_store(host);
            let exit = session::report::explain(plan, &result, interrupted, terminal);
            front.close();
            Ok(exit)
        }
    }
}

/// Prints the states of the steps, and reports that no run was started, because another run with this session prefix is
/// in progress.
fn report_run_in_progress(session: &FlowSession, of: &dyn Sessions, terminal: Terminal) -> Result<Exit, CliError> {
    put_json(&session.envelope(of).map_err(SessionError::from)?)?;
    let problem =
        CliError::ending(Exit::Parked, "another run of this flow and prefix is in progress, so no run started");
    terminal.say(&problem.hint("wait until it ends, or choose another prefix with `-s`").render(terminal.paint()));
    Ok(Exit::Parked)
}

/// Handles the command if another process owns the store. If a run with this session prefix is in progress and `-D` is
/// not given, prints its steps. Otherwise asks the owner of the store to run the flow.
fn run_through_owner(
    args: &FlowArgs,
    plan: &Plan,
    entry: &DiscoveredFile,
    folder: &Path,
    terminal: Terminal,
) -> Result<Exit, CliError> {
    let host = plan.packs.host()?;
    let (session, input) = load_session(args, &host, entry)?;
    let reader = Reader::open(folder).map_err(flowcell::Error::Store)?;
    let states = reader.states(&owner::local_tenant(), session.root()).map_err(SessionError::from)?;
    if !args.delete && states.iter().any(|state| state.status == StepStatus::Running) {
        return report_run_in_progress(&session, &reader, terminal);
    }
    if !args.quiet {
        session.warnings().iter().for_each(|found| terminal.say(&finding(found, terminal.paint())));
    }
    let flow = std::path::absolute(&entry.path);
    let ask = OwnerRequest::Flow {
        flow: flow.map_err(|error| CliError::wrong("the path of the flow cannot be resolved").because(&error))?,
        prefix: session.prefix().to_owned(),
        args: input,
        delete: args.delete,
        total_timeout_ms: args.total_timeout.map(|duration| duration.as_millis() as u64),
        reach: plan.packs.reach(),
    };
    let name = session.flow().name().to_owned();
    let prints = move |of: &dyn Sessions| put_json(&session.envelope(of).map_err(SessionError::from)?);
    let handed = HandOver { before: Vec::new(), ask, flow: name, prints: Some(Box::new(prints)) };
    session::follow::hand_over(folder, plan, handed, terminal)
}

/// Loads the flow under the prefix of `-s`, or that which the flow names, or the time. Returns it and its arguments.
fn load_session(args: &FlowArgs, host: &Host, entry: &DiscoveredFile) -> Result<(FlowSession, Json), CliError> {
    let given = args.session.clone();
    let prefix = given.clone().unwrap_or_else(|| host.now().to_string());
    let session = host.flow_session(&entry.path, &prefix)?;
    let input = arguments(args, session.flow().graph())?;
    match given {
        Some(_) => Ok((session, input)),
        None => Ok((session.with_own_prefix(&input)?, input)),
    }
}

/// Merges the prompt, the arguments on the command line and the arguments in the file, in this order. A later argument
/// replaces an earlier one of the same name. Fails if no argument is named `prompt`.
fn arguments(args: &FlowArgs, graph: &Graph) -> Result<Json, CliError> {
    let properties = graph.input_schema.as_ref().and_then(|schema| schema.get("properties"));
    let wants_text = |key: &str| properties.and_then(|all| all.get(key)?.get("type")?.as_str()) == Some("string");
    let value = |key: &str, text: &str| match Json::parse(text) {
        Ok(value) if !wants_text(key) => value,
        _ => Json::from(text),
    };
    let prompt = args.prompt.iter().map(|prompt| ("prompt".to_owned(), Json::from(prompt.as_str())));
    let more = args.args.iter().map(|(key, text)| (key.clone(), value(key, text)));
    let mut all: Vec<(String, Json)> = prompt.chain(more).collect();
    if let Some(file) = &args.args_file {
        let members = inputs::collect(&[], Some(file))?;
        all.extend(members.as_object().into_iter().flatten().map(|(key, value)| (key.to_string(), value.clone())));
    }
    let all = Json::object(all);
    match all.get("prompt") {
        Some(_) => Ok(all),
        None => Err(CliError::wrong("the argument `prompt` is missing").hint("describe the task with `-p TEXT`")),
    }
}

/// Finds the flow of this name. The error names the searched folders, and a similar flow or the known flows.
fn find(name: &str) -> Result<DiscoveredFile, CliError> {
    let flows = agentic::flows();
    if let Some(entry) = flows.get(name) {
        return Ok(entry);
    }
    let known = flows.list();
    let names: Vec<&str> = known.entries.keys().map(String::as_str).collect();
    let mut problem = CliError::wrong(format!("unknown flow `{name}`"));
    let places = FLOW_FOLDERS.iter().map(|folder| match folder.level {
        Level::Project => folder.path.to_owned(),
        Level::Global => format!("~/{}", folder.path),
    });
    problem = problem.note(format!("looked in {}", places.collect::<Vec<_>>().join(", ")));
    problem = known
        .diagnostics
        .iter()
        .fold(problem, |problem, found| problem.note(format!("{}: {}", found.location.file, found.message)));
    if Path::new(name).is_file() {
        problem = problem.hint(format!("run a flow by its file with `flowcell run {}`", shell_word(name)));
    }
    if let Some((_, file)) = name.rsplit_once('/') {
        return Err(problem.hint(format!(
            "a flow's name is that of its file: write `-F {}`; folders are no namespaces",
            shell_word(file)
        )));
    }
    Err(match flowcell::similar(name, names.iter().copied()) {
        Some(meant) => problem.hint(format!("did you mean `{meant}`?")),
        None if names.is_empty() => problem.hint("create a flow in one of these folders, as `NAME.yaml` in kebab-case"),
        None => problem.hint(format!("the known flows are {}", list_names(&names))),
    })
}

fn list_names(names: &[&str]) -> String {
    let mut text = names[..names.len().min(MAX_LISTED_NAMES)].join(", ");
    if names.len() > MAX_LISTED_NAMES {
        // Writing to a string does not fail.
        let _ = write!(text, " and {} more", names.len() - MAX_LISTED_NAMES);
    }
    text
}

impl From<SessionError> for CliError {
    fn from(error: SessionError) -> CliError {
        match error {
            SessionError::Load(error) => error.into(),
            SessionError::Left(error) => CliError::from(error)
                .note("the last run with this prefix left steps to run")
                .hint("restore the step, or remove the sessions of the prefix with `-D`"),
            SessionError::Start(StartError::Input(unfit)) => {
                let problem = CliError::wrong("the arguments do not fit the flow's `args`");
                let problem = unfit.findings().iter().fold(problem, |problem, finding| problem.cause(finding));
                problem.hint("give arguments with `-p TEXT`, `-A key=value` or `--args-file FILE`")
            }
            SessionError::Start(error) => error.into(),
            SessionError::Store(error) => CliError::internal(format!("the store failed: {error}")),
            SessionError::Dialect(path) => {
                let hint = format!("run it with `flowcell run {}`", shell_word(&path.display().to_string()));
                CliError::wrong(SessionError::Dialect(path).to_string()).hint(hint)
            }
            SessionError::Taken { .. } => CliError::wrong(error.to_string()).hint("choose another prefix with `-s`"),
            SessionError::Driven(run) => {
                let hint = format!(
                    "wait until it ends, or cancel it with `flowcell runs cancel {}`",
                    shell_word(run.as_str())
                );
                CliError::wrong(SessionError::Driven(run).to_string()).hint(hint)
            }
            SessionError::Prefix(_) => CliError::wrong(error.to_string()),
            SessionError::PrefixArgument(_) => {
                CliError::wrong(error.to_string()).hint("give it with `-A key=value`, or choose a prefix with `-s`")
            }
        }
    }
}
