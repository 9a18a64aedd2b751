//! The commands of the command line, one module for each.

mod account;
mod api;
mod case_file;
mod changes;
mod chat;
mod completions;
mod console;
mod credential;
mod dev;
mod drive;
mod eval;
mod explain;
mod files;
mod flow;
mod flows;
mod fmt;
mod forms;
mod functions;
mod graph;
mod groups;
mod help;
mod import;
mod init;
mod inspect;
mod jobs;
mod login;
mod lsp;
mod man_pages;
mod mcp;
mod node;
mod nodes;
mod packs;
mod reach;
mod reload;
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

use clap::{FromArgMatches, Parser, Subcommand};

use crate::{
    cli_error::{CliError, Exit},
    log::LogFormat,
    options::program,
    output::put_line,
    terminal::Terminal,
};

/// Runs flows. Each node is a sandboxed WebAssembly component.
#[derive(Parser)]
#[command(name = "flowcell", version, arg_required_else_help = true, args_conflicts_with_subcommands = true)]
#[command(disable_help_subcommand = true)]
#[command(after_help = "Agentic flows: `flowcell -F NAME -p PROMPT`; see `flowcell help agents`\n\
                        Manual: `flowcell help topics`\n\
                        Exit codes: 0 succeeded, 1 the run failed, 2 the flow or the command line is wrong, 3 the run \
                        is parked, 130 interrupted")]
#[command(mut_args(flow::hide_in_brief_help))]
pub(crate) struct Arguments {
    /// List the flows in the folder `flows`, like `flowcell flows list`
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
    /// Create a folder with an example flow, its test, a README and notes for coding agents
    Init(init::InitArgs),
    /// Run a flow and print its outputs
    Run(run::RunArgs),
    /// Run a flow and its test cases again after each change of its file or of a pack
    Dev(dev::DevArgs),
    /// Run the test cases of flows, in virtual time
    Test(test::TestArgs),
    /// Store flows in a folder and run them by name
    #[command(subcommand)]
    Flows(flows::FlowsCommand),
    /// Show and control runs in the store
    #[command(subcommand)]
    Runs(runs::RunsCommand),
    /// Show and change triggers, which start flows at a time, by a post, or after a run
    #[command(subcommand)]
    Trigger(trigger::TriggerCommand),
    /// Maintain stores: upgrade, check, copy, back up
    #[command(subcommand)]
    Store(store::StoreCommand),
    /// Create, list and change the tenants of a server
    #[command(subcommand)]
    Tenant(tenant::TenantCommand),
    /// Create, list and revoke access tokens
    #[command(subcommand)]
    Token(tenant::TokenCommand),
    /// List, disable and delete the accounts of people who have signed in by OpenID Connect
    #[command(subcommand)]
    Account(account::AccountCommand),
    /// Manage encrypted secrets, which flows can send but not read
    #[command(subcommand)]
    Secret(secret::SecretCommand),
    /// Manage credentials, which the host adds to requests, and connect them
    #[command(subcommand)]
    Credential(credential::CredentialCommand),
    /// Create, list and revoke links by which people without a login start a flow
    #[command(subcommand)]
    Forms(forms::FormsCommand),
    /// Store files that flows take as input
    #[command(subcommand)]
    Files(files::FilesCommand),
    /// Show and verify the audit log of a tenant
    #[command(subcommand)]
    Audit(tenant::AuditCommand),
    /// Show and steer jobs, which act on all runs of a filter
    #[command(subcommand)]
    Jobs(jobs::JobsCommand),
    /// Answer an open gate of a run; `flowcell drive` or `flowcell runs resume` then continues the run
    Answer(runs::AnswerArgs),
    /// Send a named event to a waiting run
    Emit(runs::EmitArgs),
    /// Send a message to a run
    Send(runs::SendArgs),
    /// Chat with the agents of a run and answer their questions
    Chat(chat::ChatArgs),
    /// Serve flows and runs over HTTP, and drive every run that is ready
    Serve(serve::ServeArgs),
    /// Print a link that opens the console of a running server in a browser, and logs it in
    Console(console::ConsoleArgs),
    /// Log in at a server elsewhere, with a browser or a token
    Login(login::LoginArgs),
    /// Revoke the login at a server, and remove it from this machine
    Logout(login::LogoutArgs),
    /// Show the account, the tenant and the scopes of the login at a server
    Whoami(login::WhoamiArgs),
    /// Send a request to a server with the stored login, and print its answer
    Api(api::ApiArgs),
    /// Serve flows as MCP tools on standard input and output
    Mcp(mcp::McpArgs),
    /// Drive every run that is ready: interrupted, answered, or with a timer that is due
    Drive(drive::DriveArgs),
    /// Let the process that owns the store read packs, flows and triggers again
    Reload(reload::ReloadArgs),
    /// Check flows without running anything
    Validate(validate::ValidateArgs),
    /// Rewrite the edges of flows in their short or their long form
    Fmt(fmt::FmtArgs),
    /// Serve an editor that writes flows, on standard input and output
    Lsp(lsp::LspArgs),
    /// Import a workflow of another engine: a flow, its tests and a report
    Import(import::ImportArgs),
    /// Show the declarations of a script without running it
    Inspect(inspect::InspectArgs),
    /// Draw a flow
    Graph(graph::GraphArgs),
    /// Explain when the nodes of a flow run, what they read and reach, and what they may cost
    Explain(explain::ExplainArgs),
    /// Print the value of an expression, with an input or with the values of a run
    Eval(eval::EvalArgs),
    /// List the node types, or describe one
    Nodes(nodes::NodesArgs),
    /// List the filters, tests and functions of expressions, or describe one
    Functions(functions::FunctionsArgs),
    /// Print the JSON Schema of flow files, for editors
    Schema(schema::SchemaArgs),
    /// Push packs to a shared store, list and remove them
    #[command(subcommand)]
    Packs(packs::PacksCommand),
    /// Create, build, test, run, publish and install packs of node types
    Node(node::NodeArgs),
    /// Compile a pack for the flowcell process that started this one
    #[command(hide = true)]
    Compile,
    /// Kill the programs that the parent process has started, when the parent ends
    #[command(hide = true)]
    WatchPrograms,
    /// Print the completion script of a shell
    Completions(completions::CompletionsArgs),
    /// Write a man page for each command into a folder
    #[command(hide = true)]
    ManPages(man_pages::ManPagesArgs),
    /// Print the help of a command or a page of the manual; `flowcell help topics` lists the pages
    Help(help::HelpArgs),
}

/// An error in the arguments.
pub(crate) enum ArgumentsError {
    /// An unknown or wrong argument, or a request for help.
    Usage(clap::Error),
    /// An error in the file of settings.
    Config(CliError),
    /// No arguments, in a folder without flows. The text shows the user the first steps.
    Nothing(String),
}

/// Parses the command line, together with the environment and the file of settings.
pub(crate) fn parse() -> Result<Arguments, ArgumentsError> {
    let mut given = flows::arguments();
    if given.len() <= 1
        && let Some(steps) = init::first_steps()
    {
        return Err(ArgumentsError::Nothing(steps));
    }
    let mut matches = groups::command().try_get_matches_from(&given).map_err(ArgumentsError::Usage)?;
    if let Some(("serve", serving)) = matches.subcommand() {
        let config = serve::config::Config::of(serving).map_err(ArgumentsError::Config)?;
        if let Some(text) = config.settings_to_print() {
            put_line(&text).map_err(ArgumentsError::Config)?;
        }
        // Insert the settings of the file right after the name of the command, before the user's arguments.
        drop(given.splice(2..2, config.arguments));
        matches = groups::command().try_get_matches_from(&given).map_err(ArgumentsError::Usage)?;
    }
    Arguments::from_arg_matches(&matches).map_err(ArgumentsError::Usage)
}

impl Arguments {
    /// Returns the log format, if the command writes a log.
    pub(crate) fn log_format(&self) -> Option<LogFormat> {
        match &self.command {
            Some(Command::Serve(args)) => args.log_format(),
            Some(Command::Drive(args)) => args.log_format(),
            _ => None,
        }
    }

    /// Returns true if the command drives runs that other processes have started: `serve` and `drive`.
    pub(crate) fn drives_others(&self) -> bool {
        matches!(self.command, Some(Command::Serve(_) | Command::Drive(_)))
    }
}

/// Executes the command.
pub(crate) fn execute(arguments: Arguments, terminal: &Terminal) -> Result<Exit, CliError> {
    let Some(command) = arguments.command else {
        if arguments.list_flows {
            return flows::list_folder(&arguments.folder, *terminal);
        }
        return match arguments.flow.flow().map(str::to_owned) {
            Some(name) => flow::execute(&name, arguments.flow, *terminal),
            None => Err(CliError::wrong("the command line has no command").hint("`flowcell help` lists them")),
        };
    };
    match command {
        Command::Init(args) => init::execute(&args, *terminal),
        Command::Run(args) => run::execute(args, *terminal),
        Command::Dev(args) => dev::execute(&args, *terminal),
        Command::Test(args) => test::execute(&args, *terminal),
        Command::Flows(command) => flows::execute(command, *terminal),
        Command::Runs(command) => runs::execute(command, *terminal),
        Command::Jobs(command) => jobs::execute(command, *terminal),
        Command::Trigger(command) => trigger::execute(&command, *terminal),
        Command::Store(command) => store::execute(&command, *terminal),
        Command::Tenant(command) => tenant::tenant(&command, *terminal),
        Command::Token(command) => tenant::token(&command),
        Command::Account(command) => account::execute(&command),
        Command::Secret(command) => secret::execute(command, *terminal),
        Command::Credential(command) => credential::execute(command, *terminal),
        Command::Forms(command) => forms::execute(command),
        Command::Files(command) => files::execute(command),
        Command::Audit(command) => tenant::audit(&command),
        Command::Answer(args) => runs::answer(&args, *terminal),
        Command::Emit(args) => runs::emit(&args, *terminal),
        Command::Send(args) => runs::send(&args, *terminal),
        Command::Chat(args) => chat::execute(args, *terminal),
        Command::Serve(args) => serve::execute(&args, *terminal),
        Command::Console(args) => console::execute(&args, *terminal),
        Command::Login(args) => login::login(&args, *terminal),
        Command::Logout(args) => login::logout(&args, *terminal),
        Command::Whoami(args) => login::whoami(&args, *terminal),
        Command::Api(args) => api::execute(&args, *terminal),
        Command::Mcp(args) => mcp::execute(&args, *terminal),
        Command::Drive(args) => drive::execute(&args, *terminal),
        Command::Reload(args) => reload::execute(&args),
        Command::Validate(args) => validate::execute(&args, *terminal),
        Command::Fmt(args) => fmt::execute(&args),
        Command::Lsp(args) => lsp::execute(&args),
        Command::Import(args) => import::execute(&args, *terminal),
        Command::Inspect(args) => inspect::execute(&args),
        Command::Graph(args) => graph::execute(&args),
        Command::Explain(args) => explain::execute(&args),
        Command::Eval(args) => eval::execute(&args, *terminal),
        Command::Nodes(args) => nodes::execute(&args),
        Command::Functions(args) => functions::execute(&args),
        Command::Schema(args) => schema::execute(&args),
        Command::Packs(command) => packs::execute(command, *terminal),
        Command::Node(args) => node::execute(args, *terminal),
        Command::Compile => program::compile(),
        Command::WatchPrograms => Ok(program::watch_programs()),
        Command::Completions(args) => completions::execute(&args),
        Command::ManPages(args) => man_pages::execute(&args),
        Command::Help(args) => help::execute(&args),
    }
}
