//! Why a node did not work.

use std::{borrow::Cow, fmt};

use serde_json::Value;

use crate::wit::flowcell::node::types as wit;

/// What a node answers with if it does not work. Any [`std::error::Error`] becomes one with `?`; such a failure is not
/// retried, because whoever wrote `?` did not say that trying again may help.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// Stable, snake_case: `acme_quota`.
    pub code: Cow<'static, str>,
    /// For people.
    pub message: String,
    /// Whether trying again may help.
    pub retryable: bool,
    /// The earliest time at which it may help.
    pub retry_after_ms: Option<u32>,
    /// For programs.
    pub details: Option<Value>,
}

/// What a node answers with.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

impl Failure {
    /// A failure that trying again does not mend.
    pub fn new(code: impl Into<Cow<'static, str>>, message: impl fmt::Display) -> Failure {
        Failure {
            code: code.into(),
            message: message.to_string(),
            retryable: false,
            retry_after_ms: None,
            details: None,
        }
    }

    /// The input does not fit, code `invalid_input`.
    pub fn invalid_input(message: impl fmt::Display) -> Failure {
        Failure::new("invalid_input", message)
    }

    /// The same failure, which trying again may mend.
    #[must_use]
    pub fn retryable(self) -> Failure {
        Failure { retryable: true, ..self }
    }

    /// The same failure, which trying again may mend after some time.
    #[must_use]
    pub fn retry_after_ms(self, ms: u32) -> Failure {
        Failure { retryable: true, retry_after_ms: Some(ms), ..self }
    }

    /// The same failure with something for programs.
    #[must_use]
    pub fn details(self, details: Value) -> Failure {
        Failure { details: Some(details), ..self }
    }

    /// A capability's error, with all that it says.
    pub(crate) fn of_call(error: wit::Failure) -> Failure {
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
