//! Failures of nodes.

use std::{borrow::Cow, fmt};

use serde_json::Value;

use crate::wit::flowcell::node::types as wit;

/// The failure of a node. `?` converts any [`std::error::Error`] into a failure that is not retried. Call
/// [`Failure::retryable`] if a retry may help.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// Stable code in snake_case, such as `acme_quota`.
    pub code: Cow<'static, str>,
    /// Message for people.
    pub message: String,
    /// True if a retry may help.
    pub retryable: bool,
    /// Milliseconds to wait before a retry. None: the node's retry policy decides.
    pub retry_after_ms: Option<u32>,
    /// Details for programs.
    pub details: Option<Value>,
}

/// The result of a node, with [`Failure`] as error.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

impl Failure {
    /// Creates a failure that is not retried.
    pub fn new(code: impl Into<Cow<'static, str>>, message: impl fmt::Display) -> Failure {
        Failure {
            code: code.into(),
            message: message.to_string(),
            retryable: false,
            retry_after_ms: None,
            details: None,
        }
    }

    /// Creates a failure with the code `invalid_input`.
    pub fn invalid_input(message: impl fmt::Display) -> Failure {
        Failure::new("invalid_input", message)
    }

    /// Marks the failure as one that a retry may fix.
    #[must_use]
    pub fn retryable(self) -> Failure {
        Failure { retryable: true, ..self }
    }

    /// Marks the failure as one that a retry after `ms` milliseconds may fix.
    #[must_use]
    pub fn retry_after_ms(self, ms: u32) -> Failure {
        Failure { retryable: true, retry_after_ms: Some(ms), ..self }
    }

    /// Adds details for programs.
    #[must_use]
    pub fn details(self, details: Value) -> Failure {
        Failure { details: Some(details), ..self }
    }

    /// Converts the error of a call to the host. Details that are not valid JSON are dropped.
    pub(crate) fn from_call(error: wit::Failure) -> Failure {
        Failure {
            code: error.code.into(),
            message: error.message,
            retryable: error.retryable,
            retry_after_ms: error.retry_after_ms,
            details: error.details.and_then(|text| serde_json::from_str(&text).ok()),
        }
    }

    pub(crate) fn into_wit(self) -> wit::Failure {
        wit::Failure {
            code: self.code.into_owned(),
            message: self.message,
            retryable: self.retryable,
            retry_after_ms: self.retry_after_ms,
            details: self.details.map(|details| details.to_string()),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.code, self.message)
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Failure {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            message = format!("{message}: {cause}");
            source = cause.source();
        }
        Failure::new("node_failed", message)
    }
}
