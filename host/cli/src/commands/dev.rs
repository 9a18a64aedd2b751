//! `flowcell dev`: runs a flow again after each change of the flow or of its packs. After each run it shows the tasks,
//! runs the test cases beside the flow, and shows the input of a task that failed.

mod store;

use std::{
    env,
    ffi::OsString,
    io,
    path::{Path, PathBuf},
    process::{Child, Command},
    sync::mpsc::{Receiver, RecvTimeoutError, sync_channel},
    time::Duration,
};

use clap::{Args, ValueHint};
use flowcell::{OpenStoreError, Reader, RunEnd, RunId, Runs};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher, event::ModifyKind};

use self::store::DevStore;
use super::{node, test::cases_path};
use crate::{
    cli_error::{CliError, Exit},
    options::{PackArgs, StoreArgs},
    owner::{local_tenant, unreadable},
    terminal::{Terminal, inert},
};

/// The time without changes after which the flow runs again.
const QUIET_TIME: Duration = Duration::from_millis(100);
/// The capacity of the queue of file events.
const EVENT_QUEUE_CAPACITY: usize = 1_024;
/// Folders that only tools and runs write to. Changes in them are ignored.
const IGNORED_FOLDERS: [&str; 6] = ["__pycache__", "dist", "node_modules", "target", ".flowcell", ".git"];

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
    let changes = Changes::watch(args)?;
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
    /// the run cannot be shown. Prints errors.
    fn finish(&self) {
        let print = |done: Result<(), CliError>| done.unwrap_or_else(|problem| problem.print(self.terminal));
        print(self.show_run());
        if cases_path(&self.args.flow).exists() {
            print(self.show(&["test", &self.args.flow.display().to_string()], false));
        }
    }

    fn show_run(&self) -> Result<(), CliError> {
        let reader = match Reader::open(self.state) {
            // A flow with errors has no run, and the child has reported them.
            Err(OpenStoreError::Missing(_)) => return Ok(()),
            reader => reader.map_err(flowcell::Error::Store)?,
        };
        let run = RunId::from(self.run.as_str());
        let Some((_, next)) = reader.run(&local_tenant(), &run).map_err(|error| unreadable(&error))? else {
            return Ok(());
        };
        self.show(&["runs", "show", &self.run], true)?;
        let store = StoreArgs { state: self.state.to_owned(), store: None };
        let end = PackArgs::default().reading_host(&store)?.end_of(&run, next)?;
        let Some(RunEnd::Failed { task: Some(task), .. }) = end else { return Ok(()) };
        self.show(&["runs", "show", &self.run, &task], true)?;
        let said = format!(
            "`flowcell eval EXPRESSION --state '{}' --run {} --task '{}'` evaluates with the values of the task",
            inert(&self.state.display().to_string()),
            self.run,
            inert(&task),
        );
        self.terminal.say(&self.terminal.paint().faint(&said));
        Ok(())
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

/// What ends a wait.
enum Next {
    /// A person has changed the file at this path.
    Changed(PathBuf),
    /// The run has ended.
    Ended,
}

/// Watches the folders of a flow and its packs.
struct Changes {
    seen: Receiver<notify::Result<Event>>,
    /// The watched folders, as canonical paths. The paths in events begin with these.
    folders: Vec<PathBuf>,
    _watcher: RecommendedWatcher,
}

impl Changes {
    fn watch(args: &DevArgs) -> Result<Changes, CliError> {
        let beside = args.flow.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let folders = [beside].into_iter().chain(args.node.iter().chain(&args.packs).map(PathBuf::as_path));
        let (tell, seen) = sync_channel(EVENT_QUEUE_CAPACITY);
        // A full queue drops the event. The changes in the queue already cause a new run.
        let mut watcher = notify::recommended_watcher(move |event| _ = tell.try_send(event))
            .map_err(|error| CliError::internal("cannot watch files").because(&error))?;
        let mut watched = Vec::new();
        for folder in folders {
            let shown = folder.display();
            let unable = |error: &dyn std::error::Error| {
                CliError::wrong(format!("cannot watch the folder {shown}")).cause(&error.to_string())
            };
            let folder = folder.canonicalize().map_err(|error| unable(&error))?;
            watcher.watch(&folder, RecursiveMode::Recursive).map_err(|error| unable(&error))?;
            watched.push(folder);
        }
        Ok(Changes { seen, folders: watched, _watcher: watcher })
    }

    /// Waits for a change, and then until no event has come for [`QUIET_TIME`]. While a run goes on, also waits for its end.
    fn wait(&self, mut running: Option<&mut Child>) -> Result<Next, CliError> {
        let gone = || CliError::internal("the watch on the files has ended");
        let changed = loop {
            let event = match &mut running {
                Some(child) => match self.seen.recv_timeout(QUIET_TIME) {
                    Err(RecvTimeoutError::Timeout) if child.try_wait().map_err(unable)?.is_some() => {
                        return Ok(Next::Ended);
                    }
                    Err(RecvTimeoutError::Timeout) => continue,
                    event => event.map_err(|_| gone())?,
                },
                None => self.seen.recv().map_err(|_| gone())?,
            };
            if let Some(path) = self.changed_path(event) {
                break path;
            }
        };
        while self.seen.recv_timeout(QUIET_TIME).is_ok() {}
        Ok(Next::Changed(changed))
    }

    /// Returns the path whose content a person has changed, or `None` for any other event.
    fn changed_path(&self, event: notify::Result<Event>) -> Option<PathBuf> {
        let event = event.ok()?;
        let content = match event.kind {
            EventKind::Create(_) | EventKind::Remove(_) => true,
            EventKind::Modify(kind) => !matches!(kind, ModifyKind::Metadata(_)),
            _ => false,
        };
        event.paths.into_iter().find(|path| content && !self.is_ignored(path))
    }

    /// Returns whether the path lies in a folder that tools or runs write to.
    fn is_ignored(&self, path: &Path) -> bool {
        let inside = self.folders.iter().filter_map(|folder| path.strip_prefix(folder).ok());
        // The name of a watched folder itself does not count: a folder of packs may be called `dist`.
        inside.min_by_key(|inside| inside.components().count()).is_some_and(|inside| {
            inside
                .components()
                .any(|part| part.as_os_str().to_str().is_some_and(|part| IGNORED_FOLDERS.contains(&part)))
        })
    }
}
