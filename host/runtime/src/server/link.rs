//! Connections to a server: statements out, rows in, and what an error means.

use std::time::Duration;

use sqlx::{
    AssertSqlSafe, Executor, MySql, Postgres,
    mysql::{MySqlConnectOptions, MySqlPoolOptions},
    pool::PoolConnection,
    postgres::{PgConnectOptions, PgListener, PgPoolOptions},
};

use super::{
    dialect::Dialect,
    values::{bind_my, bind_pg, size},
};
pub(super) use super::{
    trouble::Trouble,
    values::{Arg, Row, args, holes},
};
use crate::limits::{SERVER_CONNECTIONS, STATEMENT_BYTES};

/// Connections to one server.
#[derive(Clone)]
pub(super) enum Links {
    My(sqlx::Pool<MySql>),
    Pg(sqlx::Pool<Postgres>),
}

impl Links {
    /// Connections by a URL. None is opened before it is needed, and what takes longer than `patience` is given up.
    pub(super) fn new(url: &str, patience: Duration) -> Result<Links, Trouble> {
        let wrong = |error: sqlx::Error| Trouble::Lasting(error.to_string());
        if url.starts_with("mysql:") || url.starts_with("mariadb:") {
            let options: MySqlConnectOptions = url.parse().map_err(wrong)?;
            let pool = MySqlPoolOptions::new().max_connections(SERVER_CONNECTIONS).acquire_timeout(patience);
            let pool = pool.test_before_acquire(false).after_connect(|connection, _| {
                Box::pin(async move {
                    let version: String = sqlx::query_scalar("SELECT version()").fetch_one(&mut *connection).await?;
                    for statement in Dialect::MySql.session(version.contains("MariaDB")) {
                        (&mut *connection).execute(*statement).await?;
                    }
                    Ok(())
                })
            });
            return Ok(Links::My(pool.connect_lazy_with(options)));
        }
        let options: PgConnectOptions = url.parse().map_err(wrong)?;
        let pool = PgPoolOptions::new().max_connections(SERVER_CONNECTIONS).acquire_timeout(patience);
        let pool = pool.test_before_acquire(false).after_connect(|connection, _| {
            Box::pin(async move {
                for statement in Dialect::Postgres.session(false) {
                    (&mut *connection).execute(*statement).await?;
                }
                Ok(())
            })
        });
        Ok(Links::Pg(pool.connect_lazy_with(options.application_name("flowcell"))))
    }

    pub(super) fn dialect(&self) -> Dialect {
        match self {
            Links::My(_) => Dialect::MySql,
            Links::Pg(_) => Dialect::Postgres,
        }
    }

    /// A connection. Connections that have died are noticed at their first statement.
    pub(super) async fn link(&self, patience: Duration) -> Result<Link, Trouble> {
        let dialect = self.dialect();
        let wire = match self {
            Links::My(pool) => Wire::My(pool.acquire().await.map_err(|error| Trouble::of(dialect, error))?),
            Links::Pg(pool) => Wire::Pg(pool.acquire().await.map_err(|error| Trouble::of(dialect, error))?),
        };
        Ok(Link { wire: Some(wire), dialect, patience })
    }

    /// Messages that PostgreSQL sends on a channel; none: the server sends none.
    pub(super) async fn listen(&self, channel: &str) -> Option<PgListener> {
        let Links::Pg(pool) = self else { return None };
        let mut listener = PgListener::connect_with(pool).await.ok()?;
        listener.listen(channel).await.ok()?;
        Some(listener)
    }

    pub(super) async fn close(&self) {
        match self {
            Links::My(pool) => pool.close().await,
            Links::Pg(pool) => pool.close().await,
        }
    }
}

enum Wire {
    My(PoolConnection<MySql>),
    Pg(PoolConnection<Postgres>),
}

/// One connection. After an error that leaves it in an unknown state it is closed, not used again.
pub(super) struct Link {
    wire: Option<Wire>,
    dialect: Dialect,
    patience: Duration,
}

impl Link {
    pub(super) fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Whether it can be used again.
    pub(super) fn is_open(&self) -> bool {
        self.wire.is_some()
    }

    /// Does a statement. Answers how many rows it was about.
    pub(super) async fn run(&mut self, statement: &str, args: Vec<Arg>) -> Result<u64, Trouble> {
        let sql = AssertSqlSafe(self.dialect.sql(statement));
        self.attempt(async |wire| match wire {
            Wire::My(wire) => Ok(bind_my(sqlx::query(sql), args).execute(&mut **wire).await?.rows_affected()),
            Wire::Pg(wire) => Ok(bind_pg(sqlx::query(sql), args).execute(&mut **wire).await?.rows_affected()),
        })
        .await
    }

    /// Asks for rows.
    pub(super) async fn rows(&mut self, statement: &str, args: Vec<Arg>) -> Result<Vec<Row>, Trouble> {
        let sql = AssertSqlSafe(self.dialect.sql(statement));
        self.attempt(async |wire| match wire {
            Wire::My(wire) => {
                let rows = bind_my(sqlx::query(sql), args).fetch_all(&mut **wire).await?;
                Ok(rows.into_iter().map(Row::My).collect())
            }
            Wire::Pg(wire) => {
                let rows = bind_pg(sqlx::query(sql), args).fetch_all(&mut **wire).await?;
                Ok(rows.into_iter().map(Row::Pg).collect())
            }
        })
        .await
    }

    /// Asks for a row, if there is one.
    pub(super) async fn row(&mut self, statement: &str, args: Vec<Arg>) -> Result<Option<Row>, Trouble> {
        Ok(self.rows(statement, args).await?.into_iter().next())
    }

    /// Does a statement that cannot be prepared.
    pub(super) async fn plain(&mut self, statement: &str) -> Result<(), Trouble> {
        let sql = AssertSqlSafe(self.dialect.sql(statement));
        self.attempt(async |wire| match wire {
            Wire::My(wire) => (&mut **wire).execute(sqlx::raw_sql(sql)).await.map(drop),
            Wire::Pg(wire) => (&mut **wire).execute(sqlx::raw_sql(sql)).await.map(drop),
        })
        .await
    }

    /// Inserts rows, several with each statement.
    pub(super) async fn insert(&mut self, into: &str, mut rows: Vec<Vec<Arg>>, after: &str) -> Result<(), Trouble> {
        while !rows.is_empty() {
            // Few different statements, so that the server has them prepared.
            let mut count = 1;
            let mut bytes = size(&rows[0]);
            while count * 2 <= rows.len().min(ROWS) {
                bytes += rows[count..count * 2].iter().map(|row| size(row)).sum::<usize>();
                if bytes > STATEMENT_BYTES {
                    break;
                }
                count *= 2;
            }
            let rest = rows.split_off(count);
            let row = format!("({})", holes(rows[0].len()));
            let values = vec![row; count].join(", ");
            let sql = format!("INSERT INTO {into} VALUES {values}{after}");
            self.run(&sql, std::mem::replace(&mut rows, rest).into_iter().flatten().collect()).await?;
        }
        Ok(())
    }

    /// Begins to read what is there now, whatever is written meanwhile.
    pub(super) async fn snapshot(&mut self) -> Result<(), Trouble> {
        match self.dialect {
            Dialect::Postgres => self.plain("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await,
            Dialect::MySql => {
                self.plain("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ").await?;
                self.plain("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY").await
            }
        }
    }

    pub(super) async fn begin(&mut self) -> Result<(), Trouble> {
        self.plain("BEGIN").await
    }

    /// Makes durable what was done since the beginning. If the connection is lost meanwhile, nobody knows whether it is.
    pub(super) async fn commit(&mut self) -> Result<(), Trouble> {
        self.plain("COMMIT").await
    }

    /// Takes back what was done since the beginning; by itself, if the connection is gone.
    pub(super) async fn roll_back(&mut self) {
        if self.wire.is_some() {
            let _ = self.plain("ROLLBACK").await;
        }
    }

    async fn attempt<T>(&mut self, work: impl AsyncFnOnce(&mut Wire) -> Result<T, sqlx::Error>) -> Result<T, Trouble> {
        let (dialect, patience) = (self.dialect, self.patience);
        let Some(wire) = &mut self.wire else { return Err(Trouble::Lost("the connection is closed".into())) };
        let outcome = match tokio::time::timeout(patience, work(wire)).await {
            Ok(outcome) => outcome.map_err(|error| Trouble::of(dialect, error)),
            Err(_) => Err(Trouble::Lost(format!("the server did not answer within {patience:?}"))),
        };
        if matches!(outcome, Err(Trouble::Lost(_))) {
            self.discard();
        }
        outcome
    }

    /// Closes the connection, so that nobody uses it again.
    pub(super) fn discard(&mut self) {
        match self.wire.take() {
            Some(Wire::My(wire)) => drop(wire.detach()),
            Some(Wire::Pg(wire)) => drop(wire.detach()),
            None => {}
        }
    }
}

/// Rows of one statement.
const ROWS: usize = 64;
