//! The jobs for the thread that uses the server.

use std::sync::{Arc, mpsc};

use futures_util::{FutureExt, future::LocalBoxFuture};
use tokio::sync::{mpsc as jobs, oneshot};

use super::{
    Shared,
    connection::{Answer, Connection, SqlError},
    outage::Blocked,
    queue::{Item, Turn},
    writer,
};
use crate::{blocking::blocking, ports::StoreError};

pub(super) type Job = Box<dyn FnOnce(Arc<Shared>) -> LocalBoxFuture<'static, ()> + Send>;

/// The sender of jobs to the store's thread.
#[derive(Clone)]
pub(super) struct Worker {
    jobs: jobs::UnboundedSender<Job>,
    shared: Arc<Shared>,
}

impl Worker {
    pub(super) fn new(jobs: jobs::UnboundedSender<Job>, shared: Arc<Shared>) -> Worker {
        Worker { jobs, shared }
    }

    /// Ends the queue of jobs.
    pub(super) fn close(&mut self) {
        (self.jobs, _) = jobs::unbounded_channel();
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Starts work on the store's thread, and returns a receiver of the result.
    pub(super) fn begin<T: Send + 'static>(
        &self,
        work: impl AsyncFnOnce(&Arc<Shared>) -> Result<T, SqlError> + Send + 'static,
    ) -> oneshot::Receiver<Result<T, SqlError>> {
        let (answer, answered) = oneshot::channel();
        let job: Job = Box::new(move |shared| {
            // The caller may have disconnected.
            async move { _ = answer.send(work(&shared).await) }.boxed_local()
        });
        // If the thread has ended, the receiver fails.
        let _ = self.jobs.send(job);
        answered
    }

    /// Reads on the store's thread, and waits for the result.
    pub(super) fn read<T: Send + 'static>(
        &self,
        work: impl AsyncFn(&mut Connection) -> Result<T, SqlError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.wait(move |shared| async move { writer::read(&shared, work).await }.boxed_local())
    }

    /// Writes on the store's thread, beside the commits, and waits for the result.
    pub(super) fn write<T: Send + 'static>(
        &self,
        work: impl AsyncFn(&mut Connection) -> Result<T, SqlError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.wait(move |shared| async move { writer::write(&shared, work).await }.boxed_local())
    }

    /// Does work on the store's thread, and waits for the result.
    fn wait<T: Send + 'static>(
        &self,
        work: impl FnOnce(Arc<Shared>) -> LocalBoxFuture<'static, Result<T, SqlError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (answer, answered) = mpsc::channel();
        let job: Job = Box::new(move |shared| async move { _ = answer.send(work(shared).await) }.boxed_local());
        let _ = self.jobs.send(job);
        Ok(blocking(|| answered.recv()).map_err(|_| StoreError::unavailable("the store is closed"))??)
    }

    /// Makes all later reads use one snapshot of the present data.
    pub(super) fn pin_snapshot(&self) -> Result<(), StoreError> {
        self.wait(|shared| async move { writer::pin_snapshot(&shared).await }.boxed_local())
    }

    /// Like [`Worker::read`], for data that may be damaged. Damage is an error.
    pub(super) fn read_checked<T: Send + 'static>(
        &self,
        work: impl AsyncFn(&mut Connection) -> Answer<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.read(work)?
    }

    /// Does work between two commits, and waits for the result. Fails at once during an outage that is longer than the
    /// patience of the store.
    pub(super) fn turn<T>(
        &self,
        turn: impl FnOnce(mpsc::Sender<Result<T, StoreError>>) -> Turn,
    ) -> Result<T, StoreError> {
        if let Some(error) = self.shared.connections.outages().error(Blocked::Writes, self.shared.options.patience) {
            return Err(error.into());
        }
        let (answer, answered) = mpsc::channel();
        self.shared.queue.push(Item::Turn(turn(answer)));
        blocking(|| answered.recv()).map_err(|_| StoreError::unavailable("the store accepts no more writes"))?
    }
}
