//! `flowcell flows`: stores, lists and runs flows by their names: those of a folder, and those of a shared store.

pub(super) mod posted;

use std::{
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
};

use clap::{Args, Subcommand, ValueHint};
use flowcell::{FlowEntry, FlowError, FlowLibrary, FlowService, Json, LibraryError, RunId, contract::Tenant, script};

use super::run;
use crate::{
    arguments::{at_least_one, chosen_run_id},
    cli_error::{CliError, Exit},
    options::{BesideArgs, PackArgs, StoreLocation, TenantArgs, channels::ChannelArgs},
    output::{JsonLines, put_exactly, put_json, put_line},
    owner::{Owner, RunDriver, new_run_id, with_present_owner},
    session,
    session::{Plan, inputs},
    terminal::Terminal,
};

/// Commands for stored flows.
#[derive(Subcommand)]
pub(crate) enum FlowsCommand {
    /// Store a flow under the name in its text
    Create(Box<CreateArgs>),
    /// Post flows to a shared store, with the files and the flows beside them that they name
    Push(Box<posted::PushArgs>),
    /// List the stored flows
    List(ListArgs),
    /// Print a flow
    Show(ShowArgs),
    /// List the versions of a flow
    Versions(posted::VersionsArgs),
    /// Run a flow, log each step, and print the output
    Run(Box<RunFlowArgs>),
    /// Print the log of a flow's steps, oldest first
    Runs(LogArgs),
    /// Remove all versions of a flow
    #[command(visible_alias = "remove")]
    Delete(DeleteArgs),
}

/// The folder of stored flows.
#[derive(Args)]
pub(crate) struct Folder {
    /// The folder of the flows
    #[arg(long, value_name = "DIR", default_value = "flows", env = "FLOWCELL_FLOWS", value_hint = ValueHint::DirPath)]
    flows: PathBuf,
}

impl Folder {
    /// Returns the folder with the flows of a tenant.
    fn of(&self, tenant: &TenantArgs) -> PathBuf {
        FlowLibrary::of_tenant(&self.flows, &tenant.tenant()).folder().to_owned()
    }
}

/// Arguments of `flowcell flows create`.
#[derive(Args)]
pub(crate) struct CreateArgs {
    /// The file of the flow, in any dialect; `-` is standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
    #[command(flatten)]
    folder: Folder,
    #[command(flatten)]
    packs: PackArgs,
    #[command(flatten)]
    of: TenantArgs,
}

/// Arguments of `flowcell flows list`.
#[derive(Args)]
pub(crate) struct ListArgs {
    /// Print the list as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    folder: Folder,
    #[command(flatten)]
    of: TenantArgs,
}

/// Arguments of `flowcell flows show`.
#[derive(Args)]
pub(crate) struct ShowArgs {
    /// The name of the flow
    name: String,
    /// The version [default: the newest]
    #[arg(long, value_name = "N")]
    version: Option<u32>,
    #[command(flatten)]
    folder: Folder,
    #[command(flatten)]
    of: TenantArgs,
}

/// Arguments of `flowcell flows run`.
#[derive(Args)]
pub(crate) struct RunFlowArgs {
    /// The name of the flow
    name: String,
    /// An input: JSON if the value parses as JSON, otherwise text; may be repeated
    #[arg(short, long = "input", value_name = "KEY=VALUE", value_parser = inputs::pair)]
    input: Vec<(String, inputs::Member)>,
    /// The inputs as a JSON object; inputs given with `-i` take precedence
    #[arg(long, value_name = "JSON", env = "RUN_FLOW_INPUTS", value_parser = object)]
    inputs: Option<Json>,
    /// The id of the run; the same command with the same id continues the run, or prints its result again
    #[arg(long, value_name = "ID", value_parser = chosen_run_id)]
    run_id: Option<RunId>,
    /// Print the result as one JSON object, also if the run fails or parks
    #[arg(long)]
    json: bool,
    /// Do not show progress
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    folder: Folder,
    #[command(flatten)]
    channels: ChannelArgs,
    #[command(flatten)]
    packs: PackArgs,
    #[command(flatten)]
    of: TenantArgs,
}

/// Arguments of `flowcell flows runs`.
#[derive(Args)]
pub(crate) struct LogArgs {
    /// The name of the flow
    name: String,
    /// The maximum number of lines
    #[arg(long, value_name = "N", value_parser = at_least_one, default_value_t = 20)]
    limit: usize,
    #[command(flatten)]
    folder: Folder,
    #[command(flatten)]
    of: TenantArgs,
}

/// Arguments of `flowcell flows delete`.
#[derive(Args)]
pub(crate) struct DeleteArgs {
    /// The name of the flow
    name: String,
    #[command(flatten)]
    folder: Folder,
    #[command(flatten)]
    of: TenantArgs,
}

fn object(text: &str) -> Result<Json, String> {
    let json = Json::parse(text).map_err(|error| format!("it is not JSON: {error}"))?;
    if json.as_object().is_some() { Ok(json) } else { Err(format!("it must be an object, not {}", json.type_name())) }
}

/// Returns the arguments of the command line. If there are none and the environment variable `RUN_FLOW` names a flow,
/// returns those of `flowcell flows run -- NAME`.
pub(super) fn arguments() -> Vec<std::ffi::OsString> {
    let given: Vec<_> = std::env::args_os().collect();
    match (given.as_slice(), std::env::var_os("RUN_FLOW").filter(|name| !name.is_empty())) {
        ([program], Some(name)) => {
            [program.clone()].into_iter().chain(["flows", "run", "--"].map(Into::into)).chain([name]).collect()
        }
        _ => given,
    }
}

pub(super) fn execute(command: FlowsCommand, terminal: Terminal) -> Result<Exit, CliError> {
    match command {
        FlowsCommand::Create(args) => create(&args),
        FlowsCommand::Push(args) => posted::push(&args, terminal),
        FlowsCommand::List(args) => list(&library_of(&args.folder, &args.of)?, args.json, terminal),
        FlowsCommand::Show(args) => show(&args),
        FlowsCommand::Versions(args) => posted::versions(&args),
        FlowsCommand::Run(args) => run_flow(*args, terminal),
        FlowsCommand::Runs(args) => log(&args),
        FlowsCommand::Delete(args) => {
            library_of(&args.folder, &args.of)?.delete(&args.name)?;
            if let StoreLocation::Server(_) = args.of.store.place()? {
                posted::note(&args.of.reading_host(&PackArgs::default())?, "flow.delete", &args.name)?;
            }
            put_line(&args.name)?;
            Ok(Exit::Good)
        }
    }
}

/// Returns the flows of a tenant: those of the folder, and with a shared store the posted ones.
fn library_of(folder: &Folder, of: &TenantArgs) -> Result<FlowLibrary, CliError> {
    let is_shared = matches!(of.store.place()?, StoreLocation::Server(_));
    if !is_shared && of.tenant() == Tenant::local() {
        return Ok(FlowLibrary::open(&folder.flows));
    }
    Ok(FlowLibrary::of_host(&folder.flows, &of.reading_host(&PackArgs::default())?))
}

/// Lists the flows of a folder.
pub(super) fn list_folder(folder: &Folder, terminal: Terminal) -> Result<Exit, CliError> {
    list(&FlowLibrary::open(&folder.flows), false, terminal)
}

fn create(args: &CreateArgs) -> Result<Exit, CliError> {
    let text = read(&args.file)
        .map_err(|error| CliError::wrong(format!("cannot read {}", args.file.display())).because(&error))?;
    let (host, library) = match args.of.store.place()? {
        StoreLocation::Server(_) => {
            let host = args.of.host(args.packs.host_with(&args.of.store)?)?;
            let library = FlowLibrary::of_host(&args.folder.flows, &host);
            (host, library)
        }
        _ => {
            let host = args.packs.checking_host(&BesideArgs { state: args.of.store.state.clone() })?;
            (args.of.host(host)?, library_of(&args.folder, &args.of)?)
        }
    };
    let file = args.file.file_name().unwrap_or_default().to_string_lossy();
    let created = match file.strip_suffix(script::ENDING) {
        Some(name) => library.create_script(&host, name, &text)?,
        None => library.create(&host, &text)?,
    };
    if library.is_shared() {
        posted::note(&host, "flow.post", &format!("{} v{}", created.name, created.version))?;
    }
    put_line(&created.file.display().to_string())?;
    Ok(Exit::Good)
}

fn read(file: &Path) -> io::Result<String> {
    if file.as_os_str() != "-" {
        return fs::read_to_string(file);
    }
    let mut text = String::new();
    io::stdin().take(flowcell::library::MAX_FLOW_BYTES as u64 + 1).read_to_string(&mut text)?;
    Ok(text)
}

/// Prints the flows of a folder, one on each line.
fn list(library: &FlowLibrary, json: bool, terminal: Terminal) -> Result<Exit, CliError> {
    let entries = library.list()?;
    if json {
        put_json(&entries)?;
        return Ok(Exit::Good);
    }
    if entries.is_empty() {
        let shown = library.folder().display();
        terminal.say(&match library.is_shared() {
            false => format!("no flows in `{shown}`; store one with `flowcell flows create FILE`"),
            true => format!("no flows in `{shown}` and the store; post one with `flowcell flows push FILE`"),
        });
    }
    let width = entries.iter().map(|entry| entry.name.len()).max().unwrap_or_default();
    for FlowEntry { name, version, description, source, hidden_version } in &entries {
        let source = if library.is_shared() { format!("  {:6}", source.name()) } else { String::new() };
        let hides = hidden_version.map(|hidden| format!("  (hides version {hidden} of the store)")).unwrap_or_default();
        let line = format!("{name:width$}  v{version}{source}  {}{hides}", description.as_deref().unwrap_or_default());
        put_line(line.trim_end())?;
    }
    Ok(Exit::Good)
}

fn show(args: &ShowArgs) -> Result<Exit, CliError> {
    let flow = library_of(&args.folder, &args.of)?.get(&args.name, args.version)?;
    put_exactly(&flow.text)?;
    Ok(Exit::Good)
}

fn run_flow(args: RunFlowArgs, terminal: Terminal) -> Result<Exit, CliError> {
    let RunFlowArgs { name, input, inputs, run_id, json, quiet, folder, channels, packs, of } = args;
    let (tenant, store) = (of.other_name(), of.store.clone());
    let mut plan = Plan { run_id, json, quiet, channels, packs, store, tenant, ..Plan::default() };
    with_present_owner(|| run_flow_once(&name, (&input[..], inputs.as_ref()), &folder, &of, &mut plan, terminal))
}

/// Runs a flow of the library in this process, or in the one that owns the store.
fn run_flow_once(
    name: &str,
    (input, inputs): (&[(String, inputs::Member)], Option<&Json>),
    folder: &Folder,
    of: &TenantArgs,
    plan: &mut Plan,
    terminal: Terminal,
) -> Result<Exit, CliError> {
    let members = inputs.and_then(Json::as_object).into_iter().flatten();
    let members = members.map(|(key, value)| (key.to_string(), value.clone()));
    let host = match Owner::of(plan.store.place()?, &plan.packs)? {
        Owner::Here(host) => host,
        Owner::Other(store) => {
            of.refuse_beside_owner("POST /v1/runs")?;
            let (store, given) = (store.to_owned(), input.iter().cloned());
            plan.input = members.map(|(key, value)| (key, inputs::Member::Value(value))).chain(given).collect();
            let run = plan.run_id.get_or_insert_with(new_run_id).clone();
            return hand_over(&store, &folder.flows, (name, &run), plan, terminal);
        }
    };
    let driver = RunDriver::listen(&host, &plan.store, &plan.packs, terminal)?;
    let host = of.host(host)?;
    let members: Vec<_> = members.chain(inputs::kept_by(&host, input)?).collect();
    let input = inputs::collect(&members, None)?;
    let flows = FlowService::open(host.clone(), folder.of(of));
    let _serving = host.serve()?;
    let front = session::Session::open(plan, &host, name, terminal)?.driven_by(driver);
    let options = front.options(plan, Json::Null);
    let runner = flows.prepare(name, input, options)?;
    of.note(&host, "run.start", runner.run_id())?;
    session::print_warnings(plan, flows.library().load(&host, name, None)?.warnings(), terminal);
    session::finish(plan, front, host, runner, terminal)
}

/// Asks the process that owns the store to run a flow, and logs the steps after the run has ended or is parked.
fn hand_over(
    store: &Path,
    flows: &Path,
    (name, run): (&str, &RunId),
    plan: &Plan,
    terminal: Terminal,
) -> Result<Exit, CliError> {
    let file = FlowLibrary::open(flows).get(name, None)?.file;
    let exit = run::hand_over(store, plan, &file, terminal)?;
    let host = plan.packs.reading_host(&plan.store)?;
    FlowService::open(host, flows).log_run(name, run)?;
    Ok(exit)
}

fn log(args: &LogArgs) -> Result<Exit, CliError> {
    if args.of.other_name().is_some() {
        // Fails if the tenant does not exist.
        args.of.reading_host(&PackArgs::default())?;
    }
    let flows = FlowService::open(PackArgs::default().host()?, args.folder.of(&args.of));
    let mut lines = JsonLines::default();
    for line in flows.get_flow_runs(&args.name, args.limit)? {
        if lines.put(&line).is_break() {
            break;
        }
    }
    lines.end()?;
    Ok(Exit::Good)
}

impl From<LibraryError> for CliError {
    fn from(error: LibraryError) -> CliError {
        match error {
            LibraryError::Invalid(findings) => CliError::found(findings),
            LibraryError::Unknown(_) => {
                CliError::wrong(error.to_string()).hint("`flowcell flows list` lists the flows")
            }
            LibraryError::Store(_) => CliError::ending(Exit::Unreadable, format!("cannot use the store: {error}")),
            _ => CliError::wrong(error.to_string()),
        }
    }
}

impl From<FlowError> for CliError {
    fn from(error: FlowError) -> CliError {
        match error {
            FlowError::Library(error) => error.into(),
            FlowError::Start(error) => error.into(),
            FlowError::Log { .. } => CliError::internal(error.to_string()),
        }
    }
}
