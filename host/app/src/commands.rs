//! What the command line can do: one room a command.

mod channels;
mod chat;
mod compile;
mod completions;
mod dev;
mod drive;
mod files;
mod flow;
mod flows;
mod given;
mod graph;
mod inspect;
mod locked;
mod mcp;
mod node;
mod nodes;
mod run;
mod runs;
mod schema;
mod secret;
mod serve;
mod store;
mod tenant;
mod test;
mod trigger;
mod validate;
mod verdicts;
mod watch;

use std::{
    env,
    path::{Path, PathBuf},
    sync::Arc,
};

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueHint};
use flowcell::{
    AddressRange, Host, HostBuilder, OpenStoreError, Options, Reader, Runs, ServerStore, Simulate, vault::KeySource,
};

use self::{locked::LockArgs, watch::WatchArgs};
use crate::{
    log::LogFormat,
    output::put_line,
    problem::{Exit, Problem},
    terminal::Terminal,
};

/// Runs flows whose every node is a sandboxed WebAssembly component.
#[derive(Parser)]
#[command(name = "flowcell", version, arg_required_else_help = true, args_conflicts_with_subcommands = true)]
#[command(after_help = "Exit codes: 0 done, 1 the run failed, 2 the flow or the call is wrong, 3 the run waits for \
                        somebody, 130 interrupted")]
#[command(mut_args(flow::briefly))]
pub(crate) struct Arguments {
    /// List the flows of the folder `flows`, as `flowcell flows list` does
    #[arg(long, conflicts_with = "flow")]
    list_flows: bool,
    #[command(flatten)]
    folder: flows::Folder,
    #[command(flatten)]
    flow: flow::FlowArgs,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Run a flow and print its outputs
    Run(run::RunArgs),
    /// Run a flow, and again whenever it changes or a pack that it uses
    Dev(dev::DevArgs),
    /// Run the cases beside flows, in virtual time
    Test(test::TestArgs),
    /// Keep flows in a folder, and run them by their names
    #[command(subcommand)]
    Flows(flows::FlowsCommand),
    /// See and steer runs that the store keeps
    #[command(subcommand)]
    Runs(runs::RunsCommand),
    /// See and change what starts flows by itself: times, posts, ends of runs
    #[command(subcommand)]
    Trigger(trigger::TriggerCommand),
    /// Look after whole stores: upgrade, check, copy, back up
    #[command(subcommand)]
    Store(store::StoreCommand),
    /// Make and see the tenants of a server
    #[command(subcommand)]
    Tenant(tenant::TenantCommand),
    /// Make, see and revoke the tokens that let somebody in
    #[command(subcommand)]
    Token(tenant::TokenCommand),
    /// Keep secrets, encrypted, that flows may have sent and never see
    #[command(subcommand)]
    Secret(secret::SecretCommand),
    /// Keep files that flows are handed
    #[command(subcommand)]
    Files(files::FilesCommand),
    /// See what was done in the name of a tenant, and whether the log is whole
    #[command(subcommand)]
    Audit(tenant::AuditCommand),
    /// Answer a gate of a run that waits; `flowcell drive` or `flowcell runs resume` then goes on with it
    Answer(runs::AnswerArgs),
    /// Send a named event to a run that waits for it
    Emit(runs::EmitArgs),
    /// Say something to a run
    Send(runs::SendArgs),
    /// Talk with the agents of a run: read what they say, answer what they ask
    Chat(chat::ChatArgs),
    /// Serve flows and runs over HTTP, and go on with every run that can move
    Serve(serve::ServeArgs),
    /// Offer flows as tools to the program that started this one, over MCP on standard input and output
    Mcp(mcp::McpArgs),
    /// Go on with every run that can move: interrupted ones, answered ones, those with a timer that is due
    Drive(drive::DriveArgs),
    /// Check flows without running anything
    Validate(validate::ValidateArgs),
    /// Show what a script says of itself, without running it
    Inspect(inspect::InspectArgs),
    /// Draw a flow
    Graph(graph::GraphArgs),
    /// List the node types that flows can use, or describe one
    Nodes(nodes::NodesArgs),
    /// Print the JSON Schema of flow files, for editors
    Schema(schema::SchemaArgs),
    /// Make, build, test, run and publish packs of node types, and install those of others
    Node(node::NodeArgs),
    /// Compile a pack for another process of this program
    #[command(hide = true)]
    Compile,
    /// Print completions for a shell
    Completions(completions::CompletionsArgs),
}

/// One process runs one flow, and starting fast matters more to it than room for a thousand attempts at a time. Flows
/// run 16 unless they say otherwise.
const INSTANCES: u32 = 64;

/// Where node types come from, beside the built-in catalog.
#[derive(Args, Default)]
pub(crate) struct PackArgs {
    /// Also use the packs (*.wasm) in this folder; may be repeated
    #[arg(long, value_name = "DIR", value_hint = ValueHint::AnyPath)]
    packs: Vec<PathBuf>,
    #[command(flatten)]
    lock: LockArgs,
    /// Let nodes reach this private address if their flow grants it, such as 127.0.0.1:8080 or 10.0.0.0/8; may be repeated
    #[arg(long, value_name = "ADDRESS", env = "FLOWCELL_ALLOW_PRIVATE", value_delimiter = ',')]
    allow_private: Vec<AddressRange>,
    /// Let nodes read and write files in this folder if their flow grants it
    #[arg(long, value_name = "DIR", env = "FLOWCELL_FILES", value_hint = ValueHint::DirPath)]
    files: Option<PathBuf>,
    /// Which models nodes may reach: a YAML file; by default `providers.yaml` in `flowcell` of the user's folder for settings
    #[arg(long, value_name = "FILE", env = "FLOWCELL_PROVIDERS", value_hint = ValueHint::FilePath)]
    providers: Option<PathBuf>,
    /// Which MCP servers agents may have tools of: a YAML file; by default `mcp.yaml` beside `providers.yaml`
    #[arg(long, value_name = "FILE", env = "FLOWCELL_MCP", value_hint = ValueHint::FilePath)]
    mcp: Option<PathBuf>,
    /// Where secrets are that nodes may have sent: a YAML file; by default `secrets.yaml` beside `providers.yaml`
    #[arg(long, value_name = "FILE", env = "FLOWCELL_SECRETS", value_hint = ValueHint::FilePath)]
    secrets: Option<PathBuf>,
    #[command(flatten)]
    keys: KeyArgs,
    /// Which services flows may have: a YAML file; by default `services.yaml` beside `providers.yaml`
    #[arg(long, value_name = "FILE", env = "FLOWCELL_SERVICES", value_hint = ValueHint::FilePath)]
    services: Option<PathBuf>,
    /// Let no call of these leave, but answer it with a stand-in: http, model, tools, services, all, or services by their
    /// names, such as img,agent
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    simulate: Vec<String>,
}

/// Where the key of the secrets is that a store keeps.
#[derive(Args, Clone, Default)]
pub(crate) struct KeyArgs {
    /// The key that encrypts the secrets of the store: `env:NAME` or `file:PATH`; of several, separated by commas, the first
    /// encrypts. A store in a folder makes its own
    #[arg(long, value_name = "KEY", env = "FLOWCELL_SECRET_KEY", value_delimiter = ',')]
    secret_key: Vec<KeySource>,
}

/// The store beside which flows are checked.
#[derive(Args, Default)]
pub(crate) struct BesideArgs {
    /// The folder of the store whose secrets flows may name
    #[arg(long, value_name = "DIR", default_value = ".flowcell", env = "FLOWCELL_STATE", value_hint = ValueHint::DirPath)]
    state: PathBuf,
}

impl PackArgs {
    fn host(&self) -> Result<Host, Problem> {
        Ok(self.builder().build()?)
    }

    /// A host that checks flows, which may name the secrets of a store. It is read beside its owner, and need not be there.
    fn checking_host(&self, beside: &BesideArgs) -> Result<Host, Problem> {
        self.host_beside(&beside.state)
    }

    /// A host that runs nothing, for a flow that would be run with a store.
    fn dry_host(&self, store: &StoreArgs) -> Result<Host, Problem> {
        match store.place()? {
            Place::Folder(folder) => self.host_beside(folder),
            place => Ok(self.host_at(place)?),
        }
    }

    fn host_beside(&self, folder: &Path) -> Result<Host, Problem> {
        match Reader::open(folder) {
            Ok(reader) => Ok(self.builder().reads(Arc::new(reader)).build()?),
            Err(OpenStoreError::Missing(_)) => self.host(),
            Err(error) => Err(flowcell::Error::Store(error).into()),
        }
    }

    fn host_with(&self, store: &StoreArgs) -> Result<Host, Problem> {
        Ok(self.host_at(store.place()?)?)
    }

    /// A host of which somebody is told what happens.
    fn watched_host(&self, store: &StoreArgs, watch: &WatchArgs) -> Result<Host, Problem> {
        Ok(store.place()?.hold(watch.told(self.builder())).build()?)
    }

    fn host_at(&self, place: Place<'_>) -> Result<Host, flowcell::Error> {
        place.hold(self.builder()).build()
    }

    /// A host that only reads a store, beside its owner if there is one.
    fn reading_host(&self, store: &StoreArgs) -> Result<Host, Problem> {
        match store.place()? {
            Place::Server(url) => Ok(self.builder().server(url).build()?),
            _ => Ok(self.builder().reads(Arc::new(store.beside()?)).build()?),
        }
    }

    fn builder(&self) -> HostBuilder {
        let mut builder = Host::builder().instances(INSTANCES).allow_private(self.allow_private.iter().cloned());
        builder = builder.simulate(Simulate::of(&self.simulate));
        if let Some(compiler) = compile::compiler() {
            builder = builder.compiler(compiler);
        }
        if let Some(folder) = &self.files {
            builder = builder.files(folder);
        }
        if let Some(file) = self.providers.clone().or_else(|| own_setting("providers.yaml")) {
            builder = builder.providers_file(file);
        }
        if let Some(file) = self.mcp.clone().or_else(|| own_setting("mcp.yaml")) {
            builder = builder.mcp_file(file);
        }
        if let Some(file) = self.secrets.clone().or_else(|| own_setting("secrets.yaml")) {
            builder = builder.secrets_file(file);
        }
        if let Some(file) = self.services.clone().or_else(|| own_setting("services.yaml")) {
            builder = builder.services_file(file);
        }
        let builder = self.lock.add_to(builder.secret_keys(self.keys.secret_key.iter().cloned()));
        self.packs.iter().fold(builder, |builder, path| builder.packs(path))
    }
}

/// A file of the user's settings, if there is one.
fn own_setting(file: &str) -> Option<PathBuf> {
    let folder = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let settings = folder("XDG_CONFIG_HOME").or_else(|| Some(folder("HOME")?.join(".config")))?;
    Some(settings.join("flowcell").join(file)).filter(|file| file.is_file())
}

/// Where runs are kept.
#[derive(Args, Clone, Default)]
pub(crate) struct StoreArgs {
    /// Keep runs, state and events in this folder
    #[arg(long, value_name = "DIR", default_value = ".flowcell", env = "FLOWCELL_STATE", value_hint = ValueHint::DirPath)]
    state: PathBuf,
    /// Keep them elsewhere: `memory:` forgets them with the process; `mysql://…` and `postgres://…` name a server that
    /// processes share
    #[arg(long, value_name = "URL", env = "FLOWCELL_STORE")]
    store: Option<String>,
}

/// Where a store is.
#[derive(Clone, Copy)]
pub(crate) enum Place<'a> {
    /// Gone with the process.
    Memory,
    /// In a folder, with one owner.
    Folder(&'a Path),
    /// On a server, by its URL.
    Server(&'a str),
}

impl<'a> Place<'a> {
    /// A host with its store there.
    fn hold(self, builder: HostBuilder) -> HostBuilder {
        match self {
            Place::Folder(folder) => builder.state_dir(folder),
            Place::Server(url) => builder.server(url),
            Place::Memory => builder,
        }
    }

    /// What an argument names: `memory:`, the URL of a server, or a folder.
    pub(crate) fn named(text: &'a str) -> Place<'a> {
        let server = ["mysql://", "mariadb://", "postgres://", "postgresql://"];
        match text {
            "memory:" => Place::Memory,
            _ if server.iter().any(|scheme| text.starts_with(scheme)) => Place::Server(text),
            _ => Place::Folder(Path::new(text)),
        }
    }
}

impl StoreArgs {
    /// The store of somebody who keeps nothing.
    fn none() -> StoreArgs {
        StoreArgs { store: Some("memory:".into()), ..StoreArgs::default() }
    }

    /// Where the store is.
    fn place(&self) -> Result<Place<'_>, Problem> {
        match self.store.as_deref() {
            None | Some("") => Ok(Place::Folder(&self.state)),
            Some(named) => match Place::named(named) {
                Place::Folder(_) => Err(Problem::wrong(format!("`{named}` is no store")).hint(
                    "`--store memory:` keeps nothing, `--store mysql://…` and `postgres://…` keep runs on a server, \
                     `--state DIR` keeps them in a folder",
                )),
                place => Ok(place),
            },
        }
    }

    /// The store in a folder as a reader sees it, beside its owner if there is one.
    fn beside(&self) -> Result<Reader, Problem> {
        match self.place()? {
            Place::Folder(folder) => Ok(Reader::open(folder).map_err(flowcell::Error::Store)?),
            _ => Err(Problem::wrong("a store in memory has nothing to see").hint("leave `--store memory:` away")),
        }
    }

    /// What the store tells of its runs.
    fn reader(&self) -> Result<Box<dyn Runs>, Problem> {
        match self.place()? {
            Place::Server(url) => {
                let store = ServerStore::open(url, Options::default()).map_err(flowcell::Error::Server)?;
                Ok(Box::new(store))
            }
            _ => Ok(Box::new(self.beside()?)),
        }
    }
}

/// Why the arguments are not understood.
pub(crate) enum Misunderstood {
    /// They are no arguments of the program, or ask for help.
    Usage(clap::Error),
    /// The file of settings is wrong.
    Config(Problem),
}

/// What the command line says, with what the environment and the file of settings add.
pub(crate) fn parse() -> Result<Arguments, Misunderstood> {
    let mut given = flows::arguments();
    let mut matches = Arguments::command().try_get_matches_from(&given).map_err(Misunderstood::Usage)?;
    if let Some(("serve", serving)) = matches.subcommand() {
        let config = serve::config::Config::of(serving).map_err(Misunderstood::Config)?;
        if let Some(text) = config.checked() {
            put_line(&text).map_err(Misunderstood::Config)?;
        }
        // Right after the name of the command, which no other argument may precede.
        drop(given.splice(2..2, config.arguments));
        matches = Arguments::command().try_get_matches_from(&given).map_err(Misunderstood::Usage)?;
    }
    Arguments::from_arg_matches(&matches).map_err(Misunderstood::Usage)
}

impl Arguments {
    /// How the log is written, if the command has one.
    pub(crate) fn log_format(&self) -> Option<LogFormat> {
        match &self.command {
            Some(Command::Serve(args)) => args.log_format(),
            Some(Command::Drive(args)) => args.log_format(),
            _ => None,
        }
    }
}

/// Does what the arguments say.
pub(crate) fn execute(arguments: Arguments, terminal: &Terminal) -> Result<Exit, Problem> {
    let Some(command) = arguments.command else {
        if arguments.list_flows {
            return flows::list(&arguments.folder, false);
        }
        return match arguments.flow.flow().map(str::to_owned) {
            Some(name) => flow::execute(&name, arguments.flow, *terminal),
            None => Err(Problem::wrong("there is no command").hint("`flowcell help` lists them")),
        };
    };
    match command {
        Command::Run(args) => run::execute(args, *terminal),
        Command::Dev(args) => dev::execute(&args, *terminal),
        Command::Test(args) => test::execute(&args, *terminal),
        Command::Flows(command) => flows::execute(command, *terminal),
        Command::Runs(command) => runs::execute(command, *terminal),
        Command::Trigger(command) => trigger::execute(&command),
        Command::Store(command) => store::execute(&command, *terminal),
        Command::Tenant(command) => tenant::tenant(&command),
        Command::Token(command) => tenant::token(&command),
        Command::Secret(command) => secret::execute(command, *terminal),
        Command::Files(command) => files::execute(command),
        Command::Audit(command) => tenant::audit(&command),
        Command::Answer(args) => runs::answer(&args, *terminal),
        Command::Emit(args) => runs::emit(&args, *terminal),
        Command::Send(args) => runs::send(&args, *terminal),
        Command::Chat(args) => chat::execute(args, *terminal),
        Command::Serve(args) => serve::execute(&args, *terminal),
        Command::Mcp(args) => mcp::execute(&args, *terminal),
        Command::Drive(args) => drive::execute(&args, *terminal),
        Command::Validate(args) => validate::execute(&args, *terminal),
        Command::Inspect(args) => inspect::execute(&args),
        Command::Graph(args) => graph::execute(&args),
        Command::Nodes(args) => nodes::execute(&args),
        Command::Schema(args) => schema::execute(&args),
        Command::Node(args) => node::execute(args, *terminal),
        Command::Compile => compile::execute(),
        Command::Completions(args) => completions::execute(&args),
    }
}
