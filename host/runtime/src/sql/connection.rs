//! Connections to a server.

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
    sql_error::SqlError,
    values::{Arg, Row, args, placeholders},
};
use crate::{
    limits::{MAX_STATEMENT_BYTES, SERVER_CONNECTIONS},
    ports::StoreError,
};

/// The result of a read. The outer error: the statement failed. The inner error: the stored value is damaged.
pub(super) type Answer<T> = Result<Result<T, StoreError>, SqlError>;

/// Connections to one server.
#[derive(Clone)]
pub(super) enum Connections {
    My(sqlx::Pool<MySql>),
    Pg(sqlx::Pool<Postgres>),
}

impl Connections {
    /// Creates a pool of connections to a URL. Connections open when they are needed. Opening one fails after
    /// `patience`.
    pub(super) fn new(url: &str, patience: Duration) -> Result<Connections, SqlError> {
        let wrong = |error: sqlx::Error| SqlError::Permanent(error.to_string());
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
            return Ok(Connections::My(pool.connect_lazy_with(options)));
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
        Ok(Connections::Pg(pool.connect_lazy_with(options.application_name("flowcell"))))
    }

    pub(super) fn dialect(&self) -> Dialect {
        match self {
            Connections::My(_) => Dialect::MySql,
            Connections::Pg(_) => Dialect::Postgres,
        }
    }

    /// Takes a connection from the pool without testing it. A dead one fails at its first statement.
    pub(super) async fn acquire(&self, patience: Duration) -> Result<Connection, SqlError> {
        let dialect = self.dialect();
        let pooled = match self {
            Connections::My(pool) => {
                PooledConnection::My(pool.acquire().await.map_err(|error| SqlError::from_sqlx(dialect, error))?)
            }
            Connections::Pg(pool) => {
                PooledConnection::Pg(pool.acquire().await.map_err(|error| SqlError::from_sqlx(dialect, error))?)
            }
        };
        Ok(Connection { pooled: Some(pooled), dialect, patience, pinned: false })
    }

    /// Listens to a channel of PostgreSQL. Returns `None` for other servers.
    pub(super) async fn listen(&self, channel: &str) -> Option<PgListener> {
        let Connections::Pg(pool) = self else { return None };
        let mut listener = PgListener::connect_with(pool).await.ok()?;
        listener.listen(channel).await.ok()?;
        Some(listener)
    }

    pub(super) async fn close(&self) {
        match self {
            Connections::My(pool) => pool.close().await,
            Connections::Pg(pool) => pool.close().await,
        }
    }
}

enum PooledConnection {
    My(PoolConnection<MySql>),
    Pg(PoolConnection<Postgres>),
}

/// One connection. It is closed after an error that leaves it in an unknown state.
pub(super) struct Connection {
    pooled: Option<PooledConnection>,
    dialect: Dialect,
    patience: Duration,
    /// True if a read transaction is open until the connection is closed.
    pinned: bool,
}

impl Connection {
    pub(super) fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Sets the maximum time of a statement, and returns the time so far.
    pub(super) fn replace_patience(&mut self, patience: Duration) -> Duration {
        std::mem::replace(&mut self.patience, patience)
    }

    /// Returns whether the connection can be used again.
    pub(super) fn is_open(&self) -> bool {
        self.pooled.is_some()
    }

    /// Executes a statement. Returns the number of affected rows.
    pub(super) async fn run(&mut self, statement: &str, args: Vec<Arg>) -> Result<u64, SqlError> {
        let sql = AssertSqlSafe(self.dialect.sql(statement));
        self.attempt(async |pooled| match pooled {
            PooledConnection::My(pooled) => {
                Ok(bind_my(sqlx::query(sql), args).execute(&mut **pooled).await?.rows_affected())
            }
            PooledConnection::Pg(pooled) => {
                Ok(bind_pg(sqlx::query(sql), args).execute(&mut **pooled).await?.rows_affected())
            }
        })
        .await
    }

    /// Reads all rows of a statement.
    pub(super) async fn rows(&mut self, statement: &str, args: Vec<Arg>) -> Result<Vec<Row>, SqlError> {
        let sql = AssertSqlSafe(self.dialect.sql(statement));
        self.attempt(async |pooled| match pooled {
            PooledConnection::My(pooled) => {
                let rows = bind_my(sqlx::query(sql), args).fetch_all(&mut **pooled).await?;
                Ok(rows.into_iter().map(Row::My).collect())
            }
            PooledConnection::Pg(pooled) => {
                let rows = bind_pg(sqlx::query(sql), args).fetch_all(&mut **pooled).await?;
                Ok(rows.into_iter().map(Row::Pg).collect())
            }
        })
        .await
    }

    /// Reads the first row of a statement, if there is one.
    pub(super) async fn row(&mut self, statement: &str, args: Vec<Arg>) -> Result<Option<Row>, SqlError> {
        Ok(self.rows(statement, args).await?.into_iter().next())
    }

    /// Executes a statement that cannot be prepared.
    pub(super) async fn run_unprepared(&mut self, statement: &str) -> Result<(), SqlError> {
        let sql = AssertSqlSafe(self.dialect.sql(statement));
        self.attempt(async |pooled| match pooled {
            PooledConnection::My(pooled) => (&mut **pooled).execute(sqlx::raw_sql(sql)).await.map(drop),
            PooledConnection::Pg(pooled) => (&mut **pooled).execute(sqlx::raw_sql(sql)).await.map(drop),
        })
        .await
    }

    /// Inserts rows, several with each statement. `after` is the end of each statement, such as
    /// [`Dialect::or_leave`].
    pub(super) async fn insert(&mut self, into: &str, mut rows: Vec<Vec<Arg>>, after: &str) -> Result<(), SqlError> {
        while !rows.is_empty() {
            // The number of different statements stays small, so that they remain prepared.
            let mut count = 1;
            let mut bytes = size(&rows[0]);
            while count * 2 <= rows.len().min(MAX_INSERTED_ROWS) {
                bytes += rows[count..count * 2].iter().map(|row| size(row)).sum::<usize>();
                if bytes > MAX_STATEMENT_BYTES {
                    break;
                }
                count *= 2;
            }
            let rest = rows.split_off(count);
            let row = format!("({})", placeholders(rows[0].len()));
            let values = vec![row; count].join(", ");
            let sql = format!("INSERT INTO {into} VALUES {values}{after}");
            self.run(&sql, std::mem::replace(&mut rows, rest).into_iter().flatten().collect()).await?;
        }
        Ok(())
    }

    /// Begins a transaction that only reads. All its reads show the data of one moment, even if other connections write
    /// meanwhile.
    pub(super) async fn snapshot(&mut self) -> Result<(), SqlError> {
        match self.dialect {
            Dialect::Postgres => self.run_unprepared("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await,
            Dialect::MySql => {
                self.run_unprepared("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ").await?;
                self.run_unprepared("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY").await
            }
        }
    }

    /// Begins such a transaction that stays open until the connection is closed, however long it is idle.
    pub(super) async fn pin(&mut self) -> Result<(), SqlError> {
        self.run_unprepared(self.dialect.keep_idle()).await?;
        self.snapshot().await?;
        // PostgreSQL takes its snapshot with the first query.
        self.row("SELECT 1", args![]).await?;
        self.pinned = true;
        Ok(())
    }

    /// Returns whether the connection shows a pinned snapshot.
    pub(super) fn is_pinned(&self) -> bool {
        self.pinned
    }

    /// Reads the server's clock, in milliseconds since 1970.
    pub(super) async fn now(&mut self) -> Result<i64, SqlError> {
        self.row("SELECT {now}", args![]).await?.map_or(Ok(0), |row| row.int(0))
    }

    pub(super) async fn begin(&mut self) -> Result<(), SqlError> {
        self.run_unprepared("BEGIN").await
    }

    /// Commits the transaction. If the connection is lost meanwhile, it is unknown whether the commit happened.
    pub(super) async fn commit(&mut self) -> Result<(), SqlError> {
        self.run_unprepared("COMMIT").await
    }

    /// Rolls the transaction back. If the connection is lost, the server does so itself.
    pub(super) async fn roll_back(&mut self) {
        if self.pooled.is_some() {
            let _ = self.run_unprepared("ROLLBACK").await;
        }
    }

    async fn attempt<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut PooledConnection) -> Result<T, sqlx::Error>,
    ) -> Result<T, SqlError> {
        let (dialect, patience) = (self.dialect, self.patience);
        let Some(pooled) = &mut self.pooled else { return Err(SqlError::Lost("the connection is closed".into())) };
        let outcome = match tokio::time::timeout(patience, work(pooled)).await {
            Ok(outcome) => outcome.map_err(|error| SqlError::from_sqlx(dialect, error)),
            Err(_) => Err(SqlError::Lost(format!("the server did not answer within {patience:?}"))),
        };
        if matches!(outcome, Err(SqlError::Lost(_))) {
            self.discard();
        }
        outcome
    }

    /// Closes the connection instead of reusing it.
    pub(super) fn discard(&mut self) {
        match self.pooled.take() {
            Some(PooledConnection::My(pooled)) => drop(pooled.detach()),
            Some(PooledConnection::Pg(pooled)) => drop(pooled.detach()),
            None => {}
        }
    }
}

/// The maximum number of rows of one insertion.
const MAX_INSERTED_ROWS: usize = 64;
