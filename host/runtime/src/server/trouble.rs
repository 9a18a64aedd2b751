//! What went wrong with a statement, and what that means for whoever made it.

use super::dialect::Dialect;
use crate::ports::StoreError;

/// Why a statement was not done.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The connection is gone: nobody knows whether the statement was done.
    Lost(String),
    /// It was not done, and may be at another time.
    Passing(String),
    /// It was not done, and will not be.
    Lasting(String),
    /// It was not done, because something was taken for true that is not any more.
    Again,
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Trouble::Lost(why) | Trouble::Passing(why) | Trouble::Lasting(why) => formatter.write_str(why),
            Trouble::Again => formatter.write_str("somebody else has written meanwhile"),
        }
    }
}

impl From<Trouble> for StoreError {
    fn from(trouble: Trouble) -> StoreError {
        StoreError(trouble.to_string().into())
    }
}

impl Trouble {
    pub(super) fn of(dialect: Dialect, error: sqlx::Error) -> Trouble {
        match &error {
            sqlx::Error::Database(told) => {
                // MySQL tells its own number beside the class.
                let number = told.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>().map(|told| told.number());
                let code = number.map(|number| number.to_string()).or(told.code().map(Into::into)).unwrap_or_default();
                // The server ends the session: what it was doing may be done.
                let ended = matches!(&*code, "1053" | "1927" | "3032" | "4031") || code.starts_with("57P");
                match (ended, dialect.is_passing(&code)) {
                    (true, _) => Trouble::Lost(error.to_string()),
                    (false, true) => Trouble::Passing(error.to_string()),
                    (false, false) => Trouble::Lasting(format!("{error} ({code})")),
                }
            }
            sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::Protocol(_) | sqlx::Error::WorkerCrashed => {
                Trouble::Lost(error.to_string())
            }
            sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed => Trouble::Passing(error.to_string()),
            _ => Trouble::Lasting(error.to_string()),
        }
    }

    /// A row with the same key is there.
    pub(super) fn is_double(&self) -> bool {
        matches!(self, Trouble::Lasting(why) if why.ends_with("(1062)") || why.ends_with("(23505)"))
    }
}
