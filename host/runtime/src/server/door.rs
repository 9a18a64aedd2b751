//! The way into the thread that talks to the server.

use std::sync::{Arc, mpsc};

use futures_util::{FutureExt, future::LocalBoxFuture};
use tokio::sync::{mpsc as jobs, oneshot};

use super::{
    Shared,
    link::{Link, Trouble},
    queue::{Item, Turn},
    reader, writer,
};
use crate::ports::StoreError;

pub(super) type Job = Box<dyn FnOnce(Arc<Shared>) -> LocalBoxFuture<'static, ()> + Send>;

/// The way into the store's thread.
#[derive(Clone)]
pub(super) struct Door {
    jobs: jobs::UnboundedSender<Job>,
    shared: Arc<Shared>,
}

impl Door {
    pub(super) fn new(jobs: jobs::UnboundedSender<Job>, shared: Arc<Shared>) -> Door {
        Door { jobs, shared }
    }

    /// Nothing goes in any more.
    pub(super) fn close(&mut self) {
        (self.jobs, _) = jobs::unbounded_channel();
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Has something done on the store's thread.
    pub(super) fn begin<T: Send + 'static>(
        &self,
        work: impl AsyncFnOnce(&Arc<Shared>) -> Result<T, Trouble> + Send + 'static,
    ) -> oneshot::Receiver<Result<T, Trouble>> {
        let (told, answer) = oneshot::channel();
        let job: Job = Box::new(move |shared| {
            // Whoever asked may have gone.
            async move { _ = told.send(work(&shared).await) }.boxed_local()
        });
        // Without a thread nobody answers, and the answer says so.
        let _ = self.jobs.send(job);
        answer
    }

    /// Reads something on the store's thread, and waits for it.
    pub(super) fn read<T: Send + 'static>(
        &self,
        work: impl AsyncFn(&mut Link) -> Result<T, Trouble> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (told, answer) = mpsc::channel();
        let job: Job =
            Box::new(move |shared| async move { _ = told.send(writer::read(&shared, work).await) }.boxed_local());
        let _ = self.jobs.send(job);
        Ok(answer.recv().map_err(|_| StoreError("the store is closed".into()))??)
    }

    /// The same, of what may turn out to be damaged.
    pub(super) fn look<T: Send + 'static>(
        &self,
        work: impl AsyncFn(&mut Link) -> reader::Answer<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.read(work)?
    }

    /// Waits for its turn between two commits.
    pub(super) fn turn<T>(
        &self,
        turn: impl FnOnce(mpsc::Sender<Result<T, StoreError>>) -> Turn,
    ) -> Result<T, StoreError> {
        let (told, answer) = mpsc::channel();
        self.shared.queue.push(Item::Turn(turn(told)));
        answer.recv().map_err(|_| StoreError("the store is not written any more".into()))?
    }
}
