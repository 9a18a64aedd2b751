//! The inputs of attempts, remembered until their digests stand on the records of the attempts' ends.

use flowcell_contract::{Attempt, Failure, Value};
use futures_util::future::BoxFuture;

use super::Driver;
use crate::fact::{Fact, Received, TaskKey};

/// What an attempt was given.
pub(super) enum Remembered {
    /// Its input and its config, shared with the attempt.
    Parts(Value, Value),
    /// What is to be recorded.
    Known(Option<Received>),
}

impl Remembered {
    fn record(self) -> Option<Received> {
        match self {
            Remembered::Parts(input, config) => Received::digest_of(&input, &config),
            Remembered::Known(received) => received,
        }
    }
}

/// Computes a digest where that holds nobody up.
fn off_thread(input: Value, config: Value) -> BoxFuture<'static, Option<Received>> {
    Box::pin(async move {
        let digest = tokio::task::spawn_blocking(move || Received::digest_of(&input, &config));
        digest.await.ok().flatten()
    })
}

impl Driver {
    /// Remembers what an attempt is given. An attempt that cannot be rendered is given nothing that has a digest. A digest
    /// that takes long is returned as work for a thread that may block.
    pub(super) fn remember(
        &mut self,
        task: TaskKey,
        attempt: &Result<Attempt, Failure>,
        is_kept: bool,
    ) -> Option<BoxFuture<'static, Option<Received>>> {
        let long = attempt.as_ref().ok().filter(|attempt| Received::takes_long(&attempt.input, &attempt.config));
        let long = long.filter(|_| !is_kept).map(|attempt| off_thread(attempt.input.clone(), attempt.config.clone()));
        let remembered = match attempt {
            Ok(_) if is_kept => Remembered::Known(Some(Received::Nothing)),
            Ok(attempt) => Remembered::Parts(attempt.input.clone(), attempt.config.clone()),
            Err(_) => Remembered::Known(None),
        };
        self.received.insert(task, remembered);
        long
    }

    /// Keeps only the digest of an attempt whose instance is dropped.
    pub(super) fn condense(&mut self, task: TaskKey) {
        if let Some(remembered) = self.received.remove(&task) {
            self.received.insert(task, Remembered::Known(remembered.record()));
        }
    }

    /// Writes onto facts that end or pause an attempt what the attempt was given.
    pub(super) fn stamp(&mut self, facts: &mut [Fact]) {
        for fact in facts {
            if let Some((task, received)) = fact.end_of_attempt()
                && let Some(remembered) = self.received.remove(&task)
            {
                *received = remembered.record();
            }
        }
    }
}
