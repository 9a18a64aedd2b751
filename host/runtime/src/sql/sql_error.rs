//! Errors of statements, grouped by the possible reactions of the caller.

use sqlx::mysql::MySqlDatabaseError;

use super::dialect::Dialect;
use crate::ports::{StoreError, StoreErrorKind};

/// The numbers by which MySQL refuses a column and an index whose names exist.
const NAME_EXISTS: [u16; 2] = [1060, 1061];

/// The reason why a statement failed.
#[derive(Clone, Debug)]
pub(super) enum SqlError {
    /// The connection is lost. The statement may have been executed.
    Lost(String),
    /// The statement was not executed, and may succeed later.
    Transient(String),
    /// The statement was not executed, because the server has been away for longer than the caller waits.
    Outage(String),
    /// The statement was not executed. The server refuses it until its operator does something: its disk is full, or it
    /// is a replica.
    Unavailable(String),
    /// The statement was not executed, and cannot succeed until a person changes the database, its users or this
    /// program.
    Permanent(String),
    /// The statement was not executed, because the server refuses its values.
    Values(String),
    /// The statement was not executed, because a row with the same key exists.
    DuplicateRow(String),
    /// The statement was not executed, because a column or an index with the same name exists.
    DuplicateName(String),
    /// The result of the statement cannot be used, because remembered data is out of date: another process has written
    /// meanwhile. The work may succeed when it is repeated.
    Again,
}

impl std::fmt::Display for SqlError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SqlError::Lost(why)
            | SqlError::Transient(why)
            | SqlError::Outage(why)
            | SqlError::Unavailable(why)
            | SqlError::Permanent(why)
            | SqlError::Values(why)
            | SqlError::DuplicateRow(why)
            | SqlError::DuplicateName(why) => formatter.write_str(why),
            SqlError::Again => formatter.write_str("another process has written in the meantime"),
        }
    }
}

impl From<SqlError> for StoreError {
    fn from(error: SqlError) -> StoreError {
        let kind = match &error {
            SqlError::Outage(_) => StoreErrorKind::Outage,
            SqlError::Lost(_) | SqlError::Transient(_) | SqlError::Unavailable(_) => StoreErrorKind::Unavailable,
            SqlError::Again => StoreErrorKind::Conflict,
            SqlError::Permanent(_) | SqlError::Values(_) | SqlError::DuplicateRow(_) | SqlError::DuplicateName(_) => {
                StoreErrorKind::Failed
            }
        };
        StoreError::new(kind, error.to_string())
    }
}

impl SqlError {
    pub(super) fn from_sqlx(dialect: Dialect, error: sqlx::Error) -> SqlError {
        let text = error.to_string();
        match error {
            sqlx::Error::Database(refused) => {
                // MySQL has its own error number beside the class.
                let number = refused.try_downcast_ref::<MySqlDatabaseError>().map(MySqlDatabaseError::number);
                let code = number.map(|number| number.to_string()).or(refused.code().map(Into::into));
                let code = code.unwrap_or_default();
                if dialect.ends_session(&code) {
                    return SqlError::Lost(text);
                }
                if dialect.is_transient(&code) {
                    return SqlError::Transient(text);
                }
                let text = format!("{text} ({code})");
                if dialect.is_unavailable(&code) {
                    return SqlError::Unavailable(text);
                }
                // The class of the standard code: data exceptions, violated constraints, program limits.
                let is_of_values = refused
                    .code()
                    .is_some_and(|code| ["21", "22", "23", "54"].iter().any(|class| code.starts_with(class)));
                match number {
                    _ if refused.is_unique_violation() => SqlError::DuplicateRow(text),
                    Some(number) if NAME_EXISTS.contains(&number) => SqlError::DuplicateName(text),
                    _ if is_of_values => SqlError::Values(text),
                    _ => SqlError::Permanent(text),
                }
            }
            sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::Protocol(_) | sqlx::Error::WorkerCrashed => {
                SqlError::Lost(text)
            }
            sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed => SqlError::Transient(text),
            _ => SqlError::Permanent(text),
        }
    }

    /// Returns whether the same work may succeed later.
    pub(super) fn is_transient(&self) -> bool {
        matches!(
            self,
            SqlError::Lost(_)
                | SqlError::Transient(_)
                | SqlError::Outage(_)
                | SqlError::Unavailable(_)
                | SqlError::Again
        )
    }

    /// Returns whether a repeated commit would fail in the same way, because the server refuses its values.
    pub(super) fn is_fatal(&self) -> bool {
        matches!(self, SqlError::Values(_) | SqlError::DuplicateRow(_) | SqlError::DuplicateName(_))
    }
}
