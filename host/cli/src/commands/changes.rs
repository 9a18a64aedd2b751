//! Waits until a person has changed a file.

mod inputs;

use std::{
    path::{Path, PathBuf},
    process::Child,
    sync::{
        Arc, RwLock,
        mpsc::{Receiver, RecvTimeoutError, sync_channel},
    },
    time::Duration,
};

use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher, event::ModifyKind};

use self::inputs::Inputs;
use crate::cli_error::CliError;

/// The time without changes after which a change counts.
const QUIET_TIME: Duration = Duration::from_millis(100);
/// The capacity of the queue of file events.
const EVENT_QUEUE_CAPACITY: usize = 1_024;
/// Maximum number of changed paths that are kept until no event comes.
const MAX_CHANGED: usize = 64;

/// The end of a wait.
pub(super) enum Next {
    /// A person has changed the file at this path.
    Changed(PathBuf),
    /// The run has ended.
    Ended,
}

/// Watches folders with everything in them.
pub(super) struct Changes {
    /// The changed inputs.
    seen: Receiver<PathBuf>,
    inputs: Arc<RwLock<Inputs>>,
    _watcher: RecommendedWatcher,
}

impl Changes {
    /// Watches the folders. `flow` is an input, too, and `outputs` are files that this command writes there.
    pub(super) fn watch<'a>(
        folders: impl IntoIterator<Item = &'a Path>,
        flow: Option<&Path>,
        outputs: &[&Path],
    ) -> Result<Changes, CliError> {
        let mut watched = Vec::new();
        for folder in folders {
            watched.push(folder.canonicalize().map_err(|error| unwatched(folder, &error))?);
        }
        let (tell, seen) = sync_channel(EVENT_QUEUE_CAPACITY);
        let inputs = Arc::new(RwLock::new(Inputs::new(watched.clone(), flow, outputs)));
        // The queue has changes of inputs only, and not the reads of a build, which are many. If it is full, they count
        // already.
        let own = inputs.clone();
        let mut watcher = notify::recommended_watcher(move |event| {
            for path in changed_paths(event) {
                if own.read().is_ok_and(|inputs| inputs.has(&path)) {
                    _ = tell.try_send(path);
                }
            }
        })
        .map_err(|error| CliError::internal("cannot watch files").because(&error))?;
        for folder in &watched {
            watcher.watch(folder, RecursiveMode::Recursive).map_err(|error| unwatched(folder, &error))?;
        }
        Ok(Changes { seen, inputs, _watcher: watcher })
    }

    /// Waits for a change, and then until no event has come for [`QUIET_TIME`]. While a run goes on, also waits for its end.
    pub(super) fn wait(&self, mut running: Option<&mut Child>) -> Result<Next, CliError> {
        let gone = || CliError::internal("the watch on the files has ended");
        loop {
            let first = match &mut running {
                Some(child) => match self.seen.recv_timeout(QUIET_TIME) {
                    Err(RecvTimeoutError::Timeout) if has_ended(child)? => return Ok(Next::Ended),
                    Err(RecvTimeoutError::Timeout) => continue,
                    changed => changed.map_err(|_| gone())?,
                },
                None => self.seen.recv().map_err(|_| gone())?,
            };
            let mut changed = vec![first];
            while let Ok(path) = self.seen.recv_timeout(QUIET_TIME) {
                if changed.len() < MAX_CHANGED && !changed.contains(&path) {
                    changed.push(path);
                }
            }
            let mut inputs = self.inputs.write().map_err(|_| gone())?;
            inputs.read_names();
            if let Some(path) = inputs.one_of(&changed) {
                return Ok(Next::Changed(path.clone()));
            }
        }
    }
}

fn unwatched(folder: &Path, error: &dyn std::error::Error) -> CliError {
    CliError::wrong(format!("cannot watch the folder {}", folder.display())).cause(&error.to_string())
}

/// Returns the paths whose content has changed, or none for any other event.
fn changed_paths(event: notify::Result<Event>) -> Vec<PathBuf> {
    let Ok(event) = event else { return Vec::new() };
    let content = match event.kind {
        EventKind::Create(_) | EventKind::Remove(_) => true,
        EventKind::Modify(kind) => !matches!(kind, ModifyKind::Metadata(_)),
        _ => false,
    };
    if content { event.paths } else { Vec::new() }
}

fn has_ended(child: &mut Child) -> Result<bool, CliError> {
    let ended = child.try_wait();
    ended.map(|ended| ended.is_some()).map_err(|error| CliError::internal("cannot run the flow").because(&error))
}
