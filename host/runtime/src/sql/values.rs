//! The parameters of statements, and the values in the rows of results.

use std::sync::Arc;

use serde::Serialize;
use sha2::{Digest, Sha256};
use sqlx::{
    MySql, Postgres, Row as _,
    mysql::{MySqlArguments, MySqlRow},
    postgres::{PgArguments, PgRow},
    query::Query,
};

use super::sql_error::SqlError;

/// A parameter of a statement.
#[derive(Clone, Debug)]
pub(super) enum Arg {
    Int(Option<i64>),
    Word(&'static str),
    Bytes(Option<Arc<[u8]>>),
}

impl From<i64> for Arg {
    fn from(number: i64) -> Arg {
        Arg::Int(Some(number))
    }
}

impl From<u64> for Arg {
    fn from(number: u64) -> Arg {
        Arg::Int(Some(number as i64))
    }
}

impl From<Option<u64>> for Arg {
    fn from(number: Option<u64>) -> Arg {
        Arg::Int(number.map(|number| number as i64))
    }
}

impl From<&str> for Arg {
    fn from(text: &str) -> Arg {
        Arg::Bytes(Some(text.as_bytes().into()))
    }
}

impl From<String> for Arg {
    fn from(text: String) -> Arg {
        Arg::Bytes(Some(text.into_bytes().into()))
    }
}

impl From<Option<String>> for Arg {
    fn from(text: Option<String>) -> Arg {
        Arg::Bytes(text.map(|text| text.into_bytes().into()))
    }
}

impl From<Arc<[u8]>> for Arg {
    fn from(bytes: Arc<[u8]>) -> Arg {
        Arg::Bytes(Some(bytes))
    }
}

impl From<[u8; 32]> for Arg {
    fn from(hash: [u8; 32]) -> Arg {
        Arg::Bytes(Some(Arc::from(hash.as_slice())))
    }
}

/// Returns the hash of a run's id, by which the row of the run is found.
pub(super) fn hash(run: &str) -> [u8; 32] {
    Sha256::digest(run.as_bytes()).into()
}

/// Converts a value to JSON text.
pub(super) fn text(value: &impl Serialize) -> Result<String, SqlError> {
    serde_json::to_string(value).map_err(unwritable)
}

pub(super) fn unwritable(error: serde_json::Error) -> SqlError {
    SqlError::Values(error.to_string())
}

/// Creates the list of the [`Arg`]s of a statement.
macro_rules! args {
    ($($value:expr),* $(,)?) => { vec![$($crate::sql::values::Arg::from($value)),*] };
}
pub(super) use args;

/// Returns placeholders for `count` values: `?, ?, …`.
pub(super) fn placeholders(count: usize) -> String {
    vec!["?"; count].join(", ")
}

/// Returns the approximate size of a row, in bytes.
pub(super) fn size(row: &[Arg]) -> usize {
    row.iter().map(|arg| if let Arg::Bytes(Some(bytes)) = arg { bytes.len() } else { 8 }).sum()
}

type MyQuery<'q> = Query<'q, MySql, MySqlArguments>;
type PgQuery<'q> = Query<'q, Postgres, PgArguments>;

pub(super) fn bind_my(query: MyQuery<'_>, args: Vec<Arg>) -> MyQuery<'_> {
    args.into_iter().fold(query, |query, arg| match arg {
        Arg::Int(number) => query.bind(number),
        Arg::Word(word) => query.bind(word),
        Arg::Bytes(bytes) => query.bind(bytes.map(|bytes| bytes.to_vec())),
    })
}

pub(super) fn bind_pg(query: PgQuery<'_>, args: Vec<Arg>) -> PgQuery<'_> {
    args.into_iter().fold(query, |query, arg| match arg {
        Arg::Int(number) => query.bind(number),
        Arg::Word(word) => query.bind(word),
        Arg::Bytes(bytes) => query.bind(bytes.map(|bytes| bytes.to_vec())),
    })
}

/// A row of a result.
pub(super) enum Row {
    My(MySqlRow),
    Pg(PgRow),
}

impl Row {
    fn get<'r, T>(&'r self, column: usize) -> Result<T, SqlError>
    where
        T: sqlx::Decode<'r, MySql> + sqlx::Decode<'r, Postgres>,
    {
        let unreadable = |error: sqlx::Error| SqlError::Permanent(error.to_string());
        match self {
            Row::My(row) => row.try_get_unchecked(column).map_err(unreadable),
            Row::Pg(row) => row.try_get_unchecked(column).map_err(unreadable),
        }
    }

    pub(super) fn int(&self, column: usize) -> Result<i64, SqlError> {
        Ok(self.get::<Option<i64>>(column)?.unwrap_or(0))
    }

    pub(super) fn number(&self, column: usize) -> Result<u64, SqlError> {
        Ok(self.int(column)? as u64)
    }

    pub(super) fn maybe_number(&self, column: usize) -> Result<Option<u64>, SqlError> {
        Ok(self.get::<Option<i64>>(column)?.map(|number| number as u64))
    }

    pub(super) fn text(&self, column: usize) -> Result<String, SqlError> {
        self.get(column)
    }

    pub(super) fn maybe_text(&self, column: usize) -> Result<Option<String>, SqlError> {
        self.get(column)
    }

    pub(super) fn bytes(&self, column: usize) -> Result<Vec<u8>, SqlError> {
        self.get(column)
    }
}
