//! `flowcell dev`: runs a flow again after each change of the flow or of its packs. After each run it shows the tasks,
//! runs the test cases beside the flow, and shows the input of a task that failed.

mod store;

use std::{
    env,
    ffi::OsString,
    io,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use clap::{Args, ValueHint};
use flowcell::{OpenStoreError, Reader, RunEnd, RunId, Runs};

use self::store::DevStore;
use super::{
    changes::{Changes, Next},
    node,
    test::cases_path,
};
use crate::{
    arguments::{quote, shell_word},
    cli_error::{CliError, Exit},
    options::{PackArgs, StoreArgs},
    owner::{local_tenant, unreadable},
    terminal::{Terminal, inert},
};

/// Arguments of `flowcell dev`.
#[derive(Args)]
pub(crate) struct DevArgs {
    /// The file of the flow
    #[arg(value_hint = ValueHint::FilePath)]
    flow: PathBuf,
    /// Build the pack of this project after each change, and use it; may be repeated
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    node: Vec<PathBuf>,
    /// Use the packs (*.wasm) in this folder, too; may be repeated
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    packs: Vec<PathBuf>,
    /// After `--`: arguments of `flowcell run`, such as `-i key=value`
    #[arg(last = true, value_name = "ARGUMENT")]
    run: Vec<String>,
}

pub(super) fn execute(args: &DevArgs, terminal: Terminal) -> Result<Exit, CliError> {
    // Watch before reading any file, so that no change is missed.
    let beside = args.flow.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folders = [beside].into_iter().chain(args.node.iter().chain(&args.packs).map(PathBuf::as_path));
    let changes = Changes::watch(folders, Some(&args.flow), &[])?;
    let store = DevStore::empty(&args.flow)?;
    let mut number = 0;
    loop {
        number += 1;
        let pass = Pass { args, state: store.folder(), run: format!("dev-{number}"), terminal };
        let mut running = pass.begin().map_err(|problem| problem.print(terminal)).ok();
        let changed = loop {
            match changes.wait(running.as_mut())? {
                Next::Changed(path) => break path,
                Next::Ended => {
                    running = None;
                    pass.finish();
                }
            }
        };
        if let Some(mut child) = running.take() {
            // The change has made the run obsolete.
            let _ = child.kill();
            let _ = child.wait();
        }
        terminal.say(&terminal.paint().faint(&format!("{} has changed", inert(&changed.display().to_string()))));
    }
}

/// One run of the flow, and what follows it.
struct Pass<'a> {
    args: &'a DevArgs,
    /// The folder of the store.
    state: &'a Path,
    /// The id of the run.
    run: String,
    terminal: Terminal,
}

impl Pass<'_> {
    /// Builds the projects, then starts the run as a child process. The next change kills that process.
    fn begin(&self) -> Result<Child, CliError> {
        for project in &self.args.node {
            node::build(project, self.terminal)?;
        }
        let mut command = self.command("run")?;
        command.arg("--state").arg(self.state).args(["--run-id", &self.run]).arg(&self.args.flow).args(&self.args.run);
        command.args(self.packs());
        command.spawn().map_err(unable)
    }

    /// Shows the tasks of the run, and the input of the task that failed. Runs the test cases beside the flow, also if
    /// the run cannot be shown, but not if the flow has errors. Prints errors.
    fn finish(&self) {
        let print = |problem: CliError| problem.print(self.terminal);
        let has_run = self.show_run().unwrap_or_else(|problem| {
            print(problem);
            true
        });
        if cases_path(&self.args.flow).exists() {
            self.test(!has_run).unwrap_or_else(print);
        }
    }

    /// Runs the test cases beside the flow. The child that ran the flow has reported the errors of the flow, if it has
    /// some, so that the cases do not report them again.
    fn test(&self, may_have_errors: bool) -> Result<(), CliError> {
        let flow = self.args.flow.display().to_string();
        if may_have_errors {
            let mut check = self.command("validate")?;
            check.arg(&self.args.flow).args(self.packs()).stdout(Stdio::null()).stderr(Stdio::null());
            if !check.status().map_err(unable)?.success() {
                let said = "the test cases beside the flow did not run, because the flow has errors";
                self.terminal.say(&self.terminal.paint().faint(said));
                return Ok(());
            }
        }
        self.show(&["test", &flow], false)
    }

    /// Shows the run. Returns false if no run exists, because of an error that the child has reported.
    fn show_run(&self) -> Result<bool, CliError> {
        let reader = match Reader::open(self.state) {
            Err(OpenStoreError::Missing(_)) => return Ok(false),
            reader => reader.map_err(flowcell::Error::Store)?,
        };
        let run = RunId::from(self.run.as_str());
        let Some((_, next)) = reader.run(&local_tenant(), &run).map_err(|error| unreadable(&error))? else {
            return Ok(false);
        };
        self.show(&["runs", "show", &self.run], true)?;
        let store = StoreArgs { state: self.state.to_owned(), store: None };
        let end = PackArgs::default().reading_host(&store)?.end_of(&run, next)?;
        let Some(RunEnd::Failed { task: Some(task), .. }) = end else { return Ok(true) };
        self.show(&["runs", "show", &self.run, &task], true)?;
        let said = format!(
            "`flowcell eval EXPRESSION --state {} --run {} --task {}` evaluates with the values of the task",
            inert(&quote(&self.state.display().to_string())),
            shell_word(&self.run),
            inert(&quote(&task)),
        );
        self.terminal.say(&self.terminal.paint().faint(&said));
        Ok(true)
    }

    /// Runs another command to its end, with its output on standard error.
    fn show(&self, arguments: &[&str], of_store: bool) -> Result<(), CliError> {
        let mut command = self.command(arguments[0])?;
        command.args(&arguments[1..]).args(self.packs()).stdout(io::stderr());
        if of_store {
            command.arg("--state").arg(self.state);
        }
        command.status().map(|_| ()).map_err(unable)
    }

    /// Returns a command of this program that uses no other store.
    fn command(&self, name: &str) -> Result<Command, CliError> {
        let mut command = Command::new(env::current_exe().map_err(unable)?);
        command.arg(name).env_remove("FLOWCELL_STORE");
        Ok(command)
    }

    fn packs(&self) -> Vec<OsString> {
        let built = self.args.node.iter().map(|project| project.join("dist"));
        let folders = self.args.packs.iter().cloned().chain(built);
        folders.flat_map(|folder| ["--packs".into(), folder.into_os_string()]).collect()
    }
}

fn unable(error: io::Error) -> CliError {
    CliError::internal("cannot run the flow").because(&error)
}
