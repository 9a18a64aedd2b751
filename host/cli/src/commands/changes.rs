//! Waits until a person has changed a file.

use std::{
    path::{Path, PathBuf},
    process::Child,
    sync::mpsc::{Receiver, RecvTimeoutError, sync_channel},
    time::Duration,
};

use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher, event::ModifyKind};

use crate::cli_error::CliError;

/// The time without changes after which a change counts.
const QUIET_TIME: Duration = Duration::from_millis(100);
/// The capacity of the queue of file events.
const EVENT_QUEUE_CAPACITY: usize = 1_024;
/// Folders that only tools and runs write to. Changes in them are ignored.
const IGNORED_FOLDERS: [&str; 7] =
    ["__pycache__", "dist", "node_modules", "python_modules", "target", ".flowcell", ".git"];

/// The end of a wait.
pub(super) enum Next {
    /// A person has changed the file at this path.
    Changed(PathBuf),
    /// The run has ended.
    Ended,
}

/// Watches folders with everything in them.
pub(super) struct Changes {
    /// The changed files.
    seen: Receiver<PathBuf>,
    _watcher: RecommendedWatcher,
}

impl Changes {
    pub(super) fn watch<'a>(folders: impl IntoIterator<Item = &'a Path>) -> Result<Changes, CliError> {
        let mut watched = Vec::new();
        for folder in folders {
            watched.push(folder.canonicalize().map_err(|error| unwatched(folder, &error))?);
        }
        let (tell, seen) = sync_channel(EVENT_QUEUE_CAPACITY);
        // The queue has changes only, and not the reads of a build, which are many. If it is full, they count already.
        let own = watched.clone();
        let mut watcher = notify::recommended_watcher(move |event| {
            if let Some(path) = changed_path(&own, event) {
                _ = tell.try_send(path);
            }
        })
        .map_err(|error| CliError::internal("cannot watch files").because(&error))?;
        for folder in &watched {
            watcher.watch(folder, RecursiveMode::Recursive).map_err(|error| unwatched(folder, &error))?;
        }
        Ok(Changes { seen, _watcher: watcher })
    }

    /// Waits for a change, and then until no event has come for [`QUIET_TIME`]. While a run goes on, also waits for its end.
    pub(super) fn wait(&self, mut running: Option<&mut Child>) -> Result<Next, CliError> {
        let gone = || CliError::internal("the watch on the files has ended");
        let changed = loop {
            match &mut running {
                Some(child) => match self.seen.recv_timeout(QUIET_TIME) {
                    Err(RecvTimeoutError::Timeout) if has_ended(child)? => return Ok(Next::Ended),
                    Err(RecvTimeoutError::Timeout) => {}
                    changed => break changed.map_err(|_| gone())?,
                },
                None => break self.seen.recv().map_err(|_| gone())?,
            }
        };
        while self.seen.recv_timeout(QUIET_TIME).is_ok() {}
        Ok(Next::Changed(changed))
    }
}

fn unwatched(folder: &Path, error: &dyn std::error::Error) -> CliError {
    CliError::wrong(format!("cannot watch the folder {}", folder.display())).cause(&error.to_string())
}

/// Returns the path whose content a person has changed, or `None` for any other event. `folders` are canonical paths, and
/// the paths in events begin with these.
fn changed_path(folders: &[PathBuf], event: notify::Result<Event>) -> Option<PathBuf> {
    let event = event.ok()?;
    let content = match event.kind {
        EventKind::Create(_) | EventKind::Remove(_) => true,
        EventKind::Modify(kind) => !matches!(kind, ModifyKind::Metadata(_)),
        _ => false,
    };
    event.paths.into_iter().find(|path| content && !is_ignored(folders, path))
}

/// Returns whether the path is a file that editors write for themselves, or lies in a folder that tools or runs write to.
fn is_ignored(folders: &[PathBuf], path: &Path) -> bool {
    if path.file_name().and_then(|name| name.to_str()).is_some_and(is_of_an_editor) {
        return true;
    }
    let inside = folders.iter().filter_map(|folder| path.strip_prefix(folder).ok());
    // The name of a watched folder itself does not count: a folder of packs may be called `dist`.
    inside.min_by_key(|inside| inside.components().count()).is_some_and(|inside| {
        inside.components().any(|part| part.as_os_str().to_str().is_some_and(|part| IGNORED_FOLDERS.contains(&part)))
    })
}

fn has_ended(child: &mut Child) -> Result<bool, CliError> {
    let ended = child.try_wait();
    ended.map(|ended| ended.is_some()).map_err(|error| CliError::internal("cannot run the flow").because(&error))
}

/// Returns whether editors give this name to backups, swap files, locks, and files that they rename afterwards.
fn is_of_an_editor(name: &str) -> bool {
    let ends = ["~", ".swp", ".swo", ".swx", ".tmp", ".bak", "___jb_tmp___", "___jb_old___"];
    // Vim creates the file 4913 to learn whether it may write to the folder.
    name == "4913"
        || name.starts_with(".#")
        || (name.starts_with('#') && name.ends_with('#'))
        || ends.iter().any(|end| name.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_editors_are_no_changes() {
        for name in ["nodes.js~", ".nodes.js.swp", "4913", ".#nodes.js", "#nodes.js#", "a.tmp", "b.js___jb_tmp___"] {
            assert!(is_of_an_editor(name), "{name}");
        }
        for name in ["nodes.js", "#notes.md", "swp", "tmp.rs", "49131", ".gitignore"] {
            assert!(!is_of_an_editor(name), "{name}");
        }
    }
}
