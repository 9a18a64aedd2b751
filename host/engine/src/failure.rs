//! Converts failures between the host's form and the guest's form.

use std::fmt;

use flowcell_contract::{Failure, Json, code};

use crate::{
    bindings::types::Failure as GuestFailure,
    text::{cut, printable, single_line},
};

/// The maximum length of the code in a guest's failure, in bytes.
const MAX_CODE_BYTES: usize = 64;
/// The maximum length of the message in a guest's failure, in bytes.
const MAX_MESSAGE_BYTES: usize = 4096;

/// Converts a failure to the guest's form.
pub(crate) fn to_guest(failure: Failure) -> GuestFailure {
    GuestFailure {
        code: failure.code,
        message: failure.message,
        retryable: failure.retryable,
        retry_after_ms: failure.retry_after_ms.map(|ms| u32::try_from(ms).unwrap_or(u32::MAX)),
        details: failure.details.map(|details| details.to_text()),
    }
}

/// Converts a guest's failure to the host's form. Cuts long texts and replaces harmful characters.
pub(crate) fn from_guest(failure: GuestFailure) -> Failure {
    Failure {
        code: cut(single_line(&failure.code), MAX_CODE_BYTES),
        message: printable(cut(failure.message, MAX_MESSAGE_BYTES)),
        retryable: failure.retryable,
        retry_after_ms: failure.retry_after_ms.map(u64::from),
        // Details that are not JSON are kept as a text.
        details: failure.details.map(|text| Json::parse(&text).unwrap_or_else(|_| Json::from(text))),
    }
}

/// The error with which a host function stops the guest.
#[derive(Debug)]
pub(crate) struct Stop(pub(crate) Failure);

impl fmt::Display for Stop {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl std::error::Error for Stop {}

impl Stop {
    pub(crate) fn limit_exceeded(message: impl Into<String>) -> wasmtime::Error {
        Stop::from_code(code::LIMIT_EXCEEDED, message)
    }

    pub(crate) fn from_code(code: &str, message: impl Into<String>) -> wasmtime::Error {
        wasmtime::Error::new(Stop(Failure::new(code, message)))
    }
}
