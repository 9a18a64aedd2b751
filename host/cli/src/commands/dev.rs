//! `flowcell dev`: runs a flow again after each change of the flow or of its packs.

use std::{
    env,
    path::{Path, PathBuf},
    process::{Child, Command},
    sync::mpsc::{Receiver, sync_channel},
    time::Duration,
};

use clap::{Args, ValueHint};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher, event::ModifyKind};

use super::node;
use crate::{
    cli_error::{CliError, Exit},
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
    let mut running: Option<Child> = None;
    loop {
        match args.begin(terminal) {
            Ok(child) => running = Some(child),
            Err(problem) => problem.print(terminal),
        }
        let changed = changes.wait_for_change()?;
        if let Some(mut child) = running.take() {
            // Either the run has ended already, or the change made it obsolete.
            let _ = child.kill();
            let _ = child.wait();
        }
        terminal.say(&terminal.paint().faint(&format!("{} has changed", inert(&changed.display().to_string()))));
    }
}

impl DevArgs {
    /// Builds the projects, then starts the run as a child process. The next change kills that process.
    fn begin(&self, terminal: Terminal) -> Result<Child, CliError> {
        for project in &self.node {
            node::build(project, terminal)?;
        }
        let unable = |error: std::io::Error| CliError::internal("cannot run the flow").because(&error);
        let mut command = Command::new(env::current_exe().map_err(unable)?);
        command.args(["run", "--store", "memory:"]).arg(&self.flow).args(&self.run);
        for packs in self.packs.iter().cloned().chain(self.node.iter().map(|project| project.join("dist"))) {
            command.arg("--packs").arg(packs);
        }
        command.spawn().map_err(unable)
    }
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

    /// Waits for a change, and then until no event has come for [`QUIET_TIME`]. Returns the first path that changed.
    fn wait_for_change(&self) -> Result<PathBuf, CliError> {
        let gone = || CliError::internal("the watch on the files has ended");
        let changed = loop {
            let event = self.seen.recv().map_err(|_| gone())?;
            if let Some(path) = self.changed_path(event) {
                break path;
            }
        };
        while self.seen.recv_timeout(QUIET_TIME).is_ok() {}
        Ok(changed)
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
