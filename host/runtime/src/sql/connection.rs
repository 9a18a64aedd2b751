//! Connections to a server.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use sqlx::{
    AssertSqlSafe, Executor, MySql, Postgres,
    mysql::MySqlPoolOptions,
    pool::PoolConnection,
    postgres::{PgListener, PgPoolOptions},
};

use super::{
    dialect::Dialect,
    hosts::{Hosts, require_my_primary, require_pg_primary},
    outage::{Blocked, Outages},
    values::{bind_my, bind_pg, size},
};
pub(super) use super::{
    sql_error::SqlError,
    values::{Arg, Row, args, placeholders},
};
use crate::{
    limits::{MAX_STATEMENT_BYTES, SERVER_CONNECTIONS, SERVER_TEST_CONNECTIONS, SERVER_TEST_MS},
    ports::StoreError,
};

/// The result of a read. The outer error: the statement failed. The inner error: the stored value is damaged.
pub(super) type Answer<T> = Result<Result<T, StoreError>, SqlError>;

/// Connections to one server: the primary of the hosts of a URL.
#[derive(Clone)]
pub(super) struct Connections {
    pool: Pool,
    /// The connections for tests of the server, which do not wait for the callers that use `pool`.
    test_pool: Pool,
    hosts: Hosts,
    outages: Arc<Outages>,
    primary: Arc<Primary>,
}

/// The host to which the pool connects.
struct Primary {
    index: AtomicUsize,
    /// The time since which this host is the primary. Older connections are to another host.
    since: Mutex<Instant>,
}

impl Primary {
    /// Returns whether a connection of this age is to the present primary.
    fn has_connection_of(&self, age: Duration) -> bool {
        age <= self.since.lock().elapsed()
    }
}

#[derive(Clone)]
enum Pool {
    My(sqlx::Pool<MySql>),
    Pg(sqlx::Pool<Postgres>),
}

/// Creates a pool of at most `size` connections to the primary. Connections open when they are needed.
fn open_pool(hosts: &Hosts, primary: &Arc<Primary>, size: u32, patience: Duration) -> Pool {
    let current = primary.clone();
    match hosts {
        Hosts::My(hosts) => {
            let pool = MySqlPoolOptions::new().max_connections(size).acquire_timeout(patience);
            let pool = pool.test_before_acquire(false).before_acquire(move |_, connection| {
                let is_current = current.has_connection_of(connection.age);
                Box::pin(async move { Ok(is_current) })
            });
            let pool = pool.after_connect(|connection, _| {
                Box::pin(async move {
                    require_my_primary(connection).await?;
                    let version: String = sqlx::query_scalar("SELECT version()").fetch_one(&mut *connection).await?;
                    for statement in Dialect::MySql.session(version.contains("MariaDB")) {
                        (&mut *connection).execute(*statement).await?;
                    }
                    Ok(())
                })
            });
            Pool::My(pool.connect_lazy_with(hosts[0].clone()))
        }
        Hosts::Pg(hosts) => {
            let pool = PgPoolOptions::new().max_connections(size).acquire_timeout(patience);
            let pool = pool.test_before_acquire(false).before_acquire(move |_, connection| {
                let is_current = current.has_connection_of(connection.age);
                Box::pin(async move { Ok(is_current) })
            });
            let pool = pool.after_connect(|connection, _| {
                Box::pin(async move {
                    require_pg_primary(connection).await?;
                    for statement in Dialect::Postgres.session(false) {
                        (&mut *connection).execute(*statement).await?;
                    }
                    Ok(())
                })
            });
            Pool::Pg(pool.connect_lazy_with(hosts[0].clone()))
        }
    }
}

impl Connections {
    /// Creates the pools of connections to a URL. Connections open when they are needed. Opening one fails after
    /// `patience`. A connection to a replica is refused.
    pub(super) fn new(url: &str, patience: Duration) -> Result<Connections, SqlError> {
        let hosts = Hosts::parse(url)?;
        let primary = Arc::new(Primary { index: AtomicUsize::new(0), since: Mutex::new(Instant::now()) });
        let open = |size| open_pool(&hosts, &primary, size, patience);
        let (pool, test_pool) = (open(SERVER_CONNECTIONS), open(SERVER_TEST_CONNECTIONS));
        Ok(Connections { pool, test_pool, hosts, outages: Arc::default(), primary })
    }

    pub(super) fn dialect(&self) -> Dialect {
        self.hosts.dialect()
    }

    /// Returns the addresses of the hosts, without user and password.
    pub(super) fn addresses(&self) -> String {
        self.hosts.addresses()
    }

    /// Returns whether another host may become the primary.
    pub(super) fn may_fail_over(&self) -> bool {
        self.hosts.len() > 1
    }

    pub(super) fn outages(&self) -> &Arc<Outages> {
        &self.outages
    }

    /// Finds the primary with a connection of its own, and lets the pool connect to it. Tests whether it accepts
    /// writes.
    pub(super) async fn test(&self) -> Result<(), (Blocked, SqlError)> {
        self.find_primary(true).await
    }

    /// Finds the primary before the tables exist.
    pub(super) async fn find(&self) -> Result<(), SqlError> {
        self.find_primary(false).await.map_err(|(_, error)| error)
    }

    async fn find_primary(&self, writes: bool) -> Result<(), (Blocked, SqlError)> {
        let current = self.primary.index.load(Ordering::Acquire);
        let index = self.hosts.find_primary(current, writes, Duration::from_millis(SERVER_TEST_MS)).await?;
        if self.primary.index.swap(index, Ordering::AcqRel) == index {
            return Ok(());
        }
        for pool in [&self.pool, &self.test_pool] {
            match (pool, &self.hosts) {
                (Pool::My(pool), Hosts::My(hosts)) => pool.set_connect_options(hosts[index].clone()),
                (Pool::Pg(pool), Hosts::Pg(hosts)) => pool.set_connect_options(hosts[index].clone()),
                _ => {}
            }
        }
        *self.primary.since.lock() = Instant::now();
        tracing::warn!("the store uses the database server {} from now on", self.hosts.address(index));
        Ok(())
    }

    /// Takes a connection from the pool without testing it. A dead one fails at its first statement. During an outage,
    /// waits for its end until the outage has lasted for `patience`.
    pub(super) async fn acquire(&self, patience: Duration) -> Result<Connection, SqlError> {
        self.outages.wait(Blocked::Everything, patience).await?;
        self.acquire_from(&self.pool, patience).await
    }

    /// Takes a connection for a test of the server, even during an outage, and while callers use all others.
    pub(super) async fn acquire_for_test(&self, patience: Duration) -> Result<Connection, SqlError> {
        self.acquire_from(&self.test_pool, patience).await
    }

    /// Takes a connection that no caller uses at present, without testing it.
    pub(super) fn take_idle(&self, patience: Duration) -> Option<Connection> {
        let pooled = match &self.pool {
            Pool::My(pool) => pool.try_acquire().map(PooledConnection::My),
            Pool::Pg(pool) => pool.try_acquire().map(PooledConnection::Pg),
        };
        pooled.map(|pooled| self.connection(pooled, patience))
    }

    async fn acquire_from(&self, pool: &Pool, patience: Duration) -> Result<Connection, SqlError> {
        let acquiring = async {
            match pool {
                Pool::My(pool) => pool.acquire().await.map(PooledConnection::My),
                Pool::Pg(pool) => pool.acquire().await.map(PooledConnection::Pg),
            }
        };
        let pooled = self.outages.watch(acquiring).await;
        let pooled = pooled.map_err(|error| SqlError::from_sqlx(self.dialect(), error)).inspect_err(|error| {
            self.outages.suspect(error);
        })?;
        Ok(self.connection(pooled, patience))
    }

    fn connection(&self, pooled: PooledConnection, patience: Duration) -> Connection {
        Connection {
            pooled: Some(pooled),
            dialect: self.dialect(),
            patience,
            pinned: false,
            in_transaction: false,
            in_statement: false,
            acquired: Instant::now(),
            outages: self.outages.clone(),
        }
    }

    /// Returns whether a connection that a caller keeps is to the present primary.
    pub(super) fn is_current(&self, connection: &Connection) -> bool {
        self.has_primary_for(connection.acquired.elapsed())
    }

    /// Returns whether the present primary was already the primary at this time before now.
    pub(super) fn has_primary_for(&self, age: Duration) -> bool {
        self.primary.has_connection_of(age)
    }

    /// Listens to a channel of PostgreSQL. Returns `None` for other servers.
    pub(super) async fn listen(&self, channel: &str) -> Option<PgListener> {
        let Pool::Pg(pool) = &self.pool else { return None };
        let mut listener = PgListener::connect_with(pool).await.ok()?;
        listener.listen(channel).await.ok()?;
        Some(listener)
    }

    /// Opens a connection to the present primary that can listen to channels of PostgreSQL, and that no other caller
    /// waits for.
    pub(super) async fn open_listener(&self, patience: Duration) -> Result<PgListener, sqlx::Error> {
        let pool = open_pool(&self.hosts, &self.primary, 1, patience);
        let (Pool::Pg(pool), Hosts::Pg(hosts)) = (pool, &self.hosts) else {
            return Err(sqlx::Error::Protocol("the server has no notifications".into()));
        };
        pool.set_connect_options(hosts[self.primary.index.load(Ordering::Acquire)].clone());
        PgListener::connect_with(&pool).await
    }

    pub(super) async fn close(&self) {
        for pool in [&self.test_pool, &self.pool] {
            match pool {
                Pool::My(pool) => pool.close().await,
                Pool::Pg(pool) => pool.close().await,
            }
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
    /// True from the begin of a transaction that writes until its end.
    in_transaction: bool,
    /// True from the begin of a statement until its end.
    in_statement: bool,
    acquired: Instant,
    outages: Arc<Outages>,
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
        self.in_transaction = true;
        self.run_unprepared("BEGIN").await
    }

    /// Commits the transaction. If the connection is lost meanwhile, it is unknown whether the commit happened.
    pub(super) async fn commit(&mut self) -> Result<(), SqlError> {
        self.run_unprepared("COMMIT").await?;
        self.in_transaction = false;
        Ok(())
    }

    /// Rolls the transaction back. If the connection is lost, the server does so itself.
    pub(super) async fn roll_back(&mut self) {
        if self.pooled.is_some() {
            let done = self.run_unprepared("ROLLBACK").await;
            self.in_transaction &= done.is_err();
        }
    }

    async fn attempt<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut PooledConnection) -> Result<T, sqlx::Error>,
    ) -> Result<T, SqlError> {
        let (dialect, patience) = (self.dialect, self.patience);
        let Some(pooled) = &mut self.pooled else { return Err(SqlError::Lost("the connection is closed".into())) };
        self.in_statement = true;
        let answered = self.outages.watch(tokio::time::timeout(patience, work(pooled))).await;
        self.in_statement = false;
        let outcome = match answered {
            Ok(outcome) => outcome.map_err(|error| SqlError::from_sqlx(dialect, error)),
            Err(_) => Err(SqlError::Lost(format!("the server did not answer within {patience:?}"))),
        };
        if let Err(error) = &outcome {
            self.outages.note(error);
        }
        if matches!(outcome, Err(SqlError::Lost(_) | SqlError::Unavailable(_))) {
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

impl Drop for Connection {
    /// Closes the connection if the caller gave up within a transaction or a statement, so that no later caller writes in
    /// the transaction or waits for the statement.
    fn drop(&mut self) {
        if self.in_transaction || self.in_statement {
            self.discard();
        }
    }
}

/// The maximum number of rows of one insertion.
const MAX_INSERTED_ROWS: usize = 64;
