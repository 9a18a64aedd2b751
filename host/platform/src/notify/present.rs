//! The targets in force, and their replacement by those of a file that was read again.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use parking_lot::RwLock;
use tokio::sync::{mpsc, oneshot};

use super::{
    config::NotifyFile,
    link::{self, AnswerLink, LinkError},
    target::Opened,
};
use crate::{
    Host,
    operate::{identity::Identify, settings_file::SettingsFile},
};

/// The file in force. Clones share it.
#[derive(Clone, Default)]
pub(super) struct Present(Arc<RwLock<Arc<Opened>>>);

impl Present {
    pub(super) fn new(opened: Opened) -> Present {
        Present(Arc::new(RwLock::new(Arc::new(opened))))
    }

    /// Returns the file in force.
    pub(super) fn get(&self) -> Arc<Opened> {
        self.0.read().clone()
    }

    /// Replaces the file. Returns the earlier one.
    pub(super) fn replace(&self, opened: Opened) -> Arc<Opened> {
        std::mem::replace(&mut *self.0.write(), Arc::new(opened))
    }
}

/// A file that takes the place of the one in force.
pub(super) struct Change {
    pub(super) opened: Opened,
    /// Hears when it is in force.
    pub(super) done: oneshot::Sender<()>,
}

/// The notifications of a process, for its server: opens links, and reads the file again.
#[derive(Clone)]
pub struct Notifications {
    pub(super) host: Host,
    pub(super) identity: Arc<dyn Identify>,
    pub(super) present: Present,
    pub(super) changes: mpsc::Sender<Change>,
    /// The file that a reload reads. `None`: the process has no file.
    pub(super) path: Option<PathBuf>,
}

impl Notifications {
    /// Returns the notifications with a file that [`Notifications::reload`] reads.
    pub fn with_file(self, path: &Path) -> Notifications {
        Notifications { path: Some(path.to_owned()), ..self }
    }

    /// Returns whether there is a file to read again.
    pub fn has_file(&self) -> bool {
        self.path.is_some()
    }

    /// Reads the file and its secrets again, and returns the number of its targets once they are in force. If they cannot be
    /// read, the earlier ones stay in force. The error is a sentence.
    pub async fn reload(&self) -> Result<usize, String> {
        let kept = "the earlier targets of notifications stay in force";
        let Some(path) = self.path.clone() else { return Err("notifications have no file to read again".to_owned()) };
        let shown = path.display().to_string();
        let file = tokio::task::spawn_blocking(move || NotifyFile::read(&path)).await;
        let file = file.map_err(|error| error.to_string())?.map_err(|error| format!("{error}; {kept}"))?;
        let opened = Opened::new(&self.host, &file).await.map_err(|why| format!("{shown}: {why}; {kept}"))?;
        let count = opened.targets.len();
        let (done, heard) = oneshot::channel();
        let stopped = || "notifications have stopped; restart the process".to_owned();
        self.changes.send(Change { opened, done }).await.map_err(|_| stopped())?;
        heard.await.map_err(|_| stopped())?;
        Ok(count)
    }

    /// Returns the question that a code may answer. Reads the store.
    pub fn open_link(&self, code: &str) -> Result<AnswerLink, LinkError> {
        link::open(&self.host, &self.present.get(), code, || self.identity.tenants())
    }

    /// Returns whether the target of a link still hears of the gates of a flow of its tenant.
    pub fn hears(&self, link: &AnswerLink, flow: &str) -> bool {
        link::hears(&self.present.get(), link, flow)
    }
}
