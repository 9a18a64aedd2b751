//! What the command line can do: one room a command.

mod completions;
mod graph;
mod node;
mod nodes;
mod run;
mod runs;
mod schema;
mod test;
mod validate;

use std::{
    env, fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use flowcell::{AddressRange, Host, HostBuilder, Providers, Reader};

use crate::{
    problem::{Exit, Problem},
    terminal::Terminal,
};

/// Runs flows whose every node is a sandboxed WebAssembly component.
#[derive(Parser)]
#[command(name = "flowcell", version, arg_required_else_help = true)]
#[command(after_help = "Exit codes: 0 done, 1 the run failed, 2 the flow or the call is wrong, 3 the run waits for \
                        somebody, 130 interrupted")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a flow and print its outputs
    Run(run::RunArgs),
    /// Run the cases beside flows, in virtual time
    Test(test::TestArgs),
    /// See and steer runs that the store keeps
    #[command(subcommand)]
    Runs(runs::RunsCommand),
    /// Answer a gate of a run that waits; `flowcell drive` or `flowcell runs resume` then goes on with it
    Answer(runs::AnswerArgs),
    /// Send a named event to a run that waits for it
    Emit(runs::EmitArgs),
    /// Say something to a run
    Send(runs::SendArgs),
    /// Go on with every run that can move: interrupted ones, answered ones, those with a timer that is due
    Drive(runs::DriveArgs),
    /// Check flows without running anything
    Validate(validate::ValidateArgs),
    /// Draw a flow
    Graph(graph::GraphArgs),
    /// List the node types that flows can use, or describe one
    Nodes(nodes::NodesArgs),
    /// Print the JSON Schema of flow files, for editors
    Schema,
    /// Work on packs of node types
    Node(node::NodeArgs),
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
    /// Let nodes reach this private address if their flow grants it, such as 127.0.0.1:8080 or 10.0.0.0/8; may be repeated
    #[arg(long, value_name = "ADDRESS", env = "FLOWCELL_ALLOW_PRIVATE", value_delimiter = ',')]
    allow_private: Vec<AddressRange>,
    /// Which models nodes may reach: a YAML file; by default `providers.yaml` in `flowcell` of the user's folder for settings
    #[arg(long, value_name = "FILE", env = "FLOWCELL_PROVIDERS", value_hint = ValueHint::FilePath)]
    providers: Option<PathBuf>,
    /// Let no call of these capabilities leave, but answer it with a stand-in: http, model, or all
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    simulate: Vec<Simulated>,
}

/// What can be simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Simulated {
    /// Requests are answered with 200 and a JSON text that tells them.
    Http,
    /// Turns are answered by a model that knows nothing, always the same.
    Model,
    /// Everything that leaves the host.
    All,
}

impl PackArgs {
    fn host(&self) -> Result<Host, Problem> {
        Ok(self.builder()?.build()?)
    }

    fn host_with(&self, store: &StoreArgs) -> Result<Host, Problem> {
        let builder = match store.folder()? {
            Some(folder) => self.builder()?.state_dir(folder),
            None => self.builder()?,
        };
        Ok(builder.build()?)
    }

    /// A host that only reads a store, beside its owner if there is one.
    fn reading_host(&self, store: &StoreArgs) -> Result<Host, Problem> {
        Ok(self.builder()?.reads(Arc::new(store.reader()?)).build()?)
    }

    fn builder(&self) -> Result<HostBuilder, Problem> {
        let mut builder = Host::builder().instances(INSTANCES).allow_private(self.allow_private.iter().cloned());
        let simulates = |one| self.simulate.iter().any(|simulated| [one, Simulated::All].contains(simulated));
        if simulates(Simulated::Http) {
            builder = builder.simulates_http();
        }
        if simulates(Simulated::Model) {
            builder = builder.simulates_model();
        }
        if let Some(providers) = providers(self.providers.as_deref())? {
            builder = builder.providers(providers);
        }
        Ok(self.packs.iter().fold(builder, |builder, path| builder.packs(path)))
    }
}

/// The models that the operator has set up; none: those that are built in.
fn providers(file: Option<&Path>) -> Result<Option<Providers>, Problem> {
    let own = || {
        let folder = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let settings = folder("XDG_CONFIG_HOME").or_else(|| Some(folder("HOME")?.join(".config")))?;
        Some(settings.join("flowcell/providers.yaml")).filter(|file| file.is_file())
    };
    let Some(file) = file.map(Path::to_owned).or_else(own) else { return Ok(None) };
    let shown = file.display().to_string();
    let text = fs::read_to_string(&file).map_err(|error| Problem::wrong(format!("cannot read {shown}: {error}")))?;
    let folder = file.parent().unwrap_or(Path::new("."));
    let providers = Providers::parse(&text, folder);
    Ok(Some(providers.map_err(|failure| Problem::wrong(format!("{shown}: {}", failure.message)))?))
}

/// Where runs are kept.
#[derive(Args, Default)]
pub(crate) struct StoreArgs {
    /// Keep runs, state and events in this folder
    #[arg(long, value_name = "DIR", default_value = ".flowcell", env = "FLOWCELL_STATE", value_hint = ValueHint::DirPath)]
    state: PathBuf,
    /// Keep them elsewhere: `memory:` forgets them with the process
    #[arg(long, value_name = "URL", env = "FLOWCELL_STORE")]
    store: Option<String>,
}

impl StoreArgs {
    /// The store's folder; none: memory.
    fn folder(&self) -> Result<Option<&Path>, Problem> {
        match self.store.as_deref() {
            None | Some("") => Ok(Some(&self.state)),
            Some("memory:") => Ok(None),
            Some(other) => Err(Problem::wrong(format!("`{other}` is no store"))
                .hint("`--store memory:` keeps nothing, `--state DIR` keeps runs in a folder")),
        }
    }

    /// The store as a reader sees it, beside its owner if there is one.
    fn reader(&self) -> Result<Reader, Problem> {
        match self.folder()? {
            Some(folder) => Ok(Reader::open(folder).map_err(flowcell::Error::Store)?),
            None => Err(Problem::wrong("a store in memory has nothing to see").hint("leave `--store memory:` away")),
        }
    }
}

/// Does what the arguments say.
pub(crate) fn execute(arguments: Arguments, terminal: &Terminal) -> Result<Exit, Problem> {
    match arguments.command {
        Command::Run(args) => run::execute(args, *terminal),
        Command::Test(args) => test::execute(&args, *terminal),
        Command::Runs(command) => runs::execute(command, *terminal),
        Command::Answer(args) => runs::answer(&args, *terminal),
        Command::Emit(args) => runs::emit(&args, *terminal),
        Command::Send(args) => runs::send(&args, *terminal),
        Command::Drive(args) => runs::drive(&args, *terminal),
        Command::Validate(args) => validate::execute(&args, *terminal),
        Command::Graph(args) => graph::execute(&args),
        Command::Nodes(args) => nodes::execute(&args),
        Command::Schema => schema::execute(),
        Command::Node(args) => node::execute(&args),
        Command::Completions(args) => completions::execute(&args),
    }
}
