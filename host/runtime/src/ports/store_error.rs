//! Errors of stores, by the possible reactions of the caller.

use std::{fmt, sync::Arc};

use flowcell_contract::{Failure, RunId, code};

/// The kind of an error of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreErrorKind {
    /// The server of a shared store has been away for longer than callers wait. The store itself writes its outages to
    /// the log.
    Outage,
    /// The store does not answer or accepts no writes at present. The same work may succeed later.
    Unavailable,
    /// Other callers have changed the same data meanwhile. The same work may succeed at once.
    Conflict,
    /// Stored data is damaged.
    Damaged,
    /// The store refuses the work, or it has failed otherwise.
    Failed,
}

/// The kind and the message of an error of a store. A text alone has the kind [`StoreErrorKind::Failed`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreErrorReason {
    kind: StoreErrorKind,
    message: Arc<str>,
}

impl From<&str> for StoreErrorReason {
    fn from(message: &str) -> StoreErrorReason {
        StoreErrorReason { kind: StoreErrorKind::Failed, message: message.into() }
    }
}

impl From<String> for StoreErrorReason {
    fn from(message: String) -> StoreErrorReason {
        StoreErrorReason { kind: StoreErrorKind::Failed, message: message.into() }
    }
}

impl fmt::Display for StoreErrorReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

/// An error of a store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct StoreError(pub StoreErrorReason);

impl StoreError {
    /// Creates an error of this kind.
    pub fn new(kind: StoreErrorKind, message: impl Into<Arc<str>>) -> StoreError {
        StoreError(StoreErrorReason { kind, message: message.into() })
    }

    /// Creates an error for work that was given up because other callers changed the same data each time.
    pub fn conflict(message: impl Into<Arc<str>>) -> StoreError {
        StoreError::new(StoreErrorKind::Conflict, message)
    }

    /// Creates an error for data that is damaged.
    pub fn damaged(message: impl Into<Arc<str>>) -> StoreError {
        StoreError::new(StoreErrorKind::Damaged, message)
    }

    /// Creates the error of a run that was removed.
    pub fn removed(run: &RunId) -> StoreError {
        StoreError(format!("the run `{run}` was removed, and its id cannot be used again").into())
    }

    /// Creates an error for a store that does not answer, such as one that was closed.
    pub fn unavailable(message: impl Into<Arc<str>>) -> StoreError {
        StoreError::new(StoreErrorKind::Unavailable, message)
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> StoreErrorKind {
        self.0.kind
    }

    /// Returns whether the error is that of an outage of a shared store.
    pub fn is_outage(&self) -> bool {
        self.kind() == StoreErrorKind::Outage
    }

    /// Returns the same error with another message.
    pub fn with_message(self, message: impl Into<Arc<str>>) -> StoreError {
        StoreError::new(self.kind(), message)
    }
}

/// An error that may come from a store.
pub trait MaybeStoreError: fmt::Display {
    /// Returns the error of the store, if that is the cause.
    fn store_error(&self) -> Option<&StoreError>;

    /// Returns whether the cause is an outage of a shared store. The store itself writes its outages to the log.
    fn is_from_outage(&self) -> bool {
        self.store_error().is_some_and(StoreError::is_outage)
    }

    /// Returns the message, if the cause is damaged data.
    fn damage(&self) -> Option<String> {
        let damaged = self.store_error().filter(|error| error.kind() == StoreErrorKind::Damaged);
        damaged.map(StoreError::to_string)
    }

    /// Converts the error to one of the store. If the store is not the cause, only the message is kept.
    fn to_store_error(&self) -> StoreError {
        self.store_error().cloned().unwrap_or_else(|| StoreError(self.to_string().into()))
    }

    /// Writes a warning to the log: what failed, and the error. An outage of a shared store has its own lines in the log,
    /// so it is left out.
    fn warn(&self, what: impl fmt::Display)
    where
        Self: Sized,
    {
        if !self.is_from_outage() {
            tracing::warn!("{what}: {self}");
        }
    }
}

impl MaybeStoreError for StoreError {
    fn store_error(&self) -> Option<&StoreError> {
        Some(self)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Failure {
        Failure::retryable(code::STORE_FAILED, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_keeps_its_kind_with_another_message() {
        let conflict = StoreError::conflict("try again").with_message("the trigger `t`: try again");
        assert_eq!(
            (conflict.kind(), conflict.to_string().as_str()),
            (StoreErrorKind::Conflict, "the trigger `t`: try again")
        );
        assert_eq!(StoreError("text".into()).kind(), StoreErrorKind::Failed);
    }
}
