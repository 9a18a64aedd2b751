//! The tokio task that writes to the server. It commits all due items together.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    Shared,
    commit::{Commit, Rows, record_new_rows},
    connection::{Connection, SqlError},
    erase, heartbeat,
    outage::{Blocked, Outages},
    queue::{Item, Turn},
    remove, search, sweep, work,
};
use crate::ports::{Entry, StoreError};

/// The number of runs whose rows the writer remembers.
const MAX_REMEMBERED_RUNS: usize = 10_000;
/// The first pause and the longest pause between two tries of a statement or commit.
const RETRY_PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(500));

pub(super) struct Writer {
    shared: Arc<Shared>,
    connection: Option<Connection>,
    rows: Rows,
}

impl Writer {
    pub(super) fn new(shared: Arc<Shared>) -> Writer {
        Writer { shared, connection: None, rows: Rows::new() }
    }

    /// Writes until the queue is closed, or until a commit has failed and is not repeated.
    pub(super) async fn run(mut self) {
        while self.shared.queue.ready().await {
            let mut items = VecDeque::from(self.shared.queue.take(Vec::new()));
            while !items.is_empty() {
                let turn = items.iter().position(|item| matches!(item, Item::Turn(_)));
                let stretch = items.drain(..turn.unwrap_or(items.len())).collect();
                if !self.commit(stretch, &mut items).await {
                    return;
                }
                if let Some(Item::Turn(turn)) = items.pop_front() {
                    self.turn(turn).await;
                }
            }
        }
    }

    /// Writes all items, or none, and reports the result. Returns `false` if the commit has failed and is not repeated.
    ///
    /// A commit is repeated unless the server refuses its values. The repetition ends in two cases. If an outage lasts
    /// longer than [`patience`](super::options::Options::patience), this process gives up its runs, and the commit
    /// becomes empty. A store that is being closed gives up once it has not renewed its lease for that time. Other
    /// work may wait behind the commit, in `later` and in the queue: after that time its callers get an error. An outage
    /// is waited for, and not tried: each commit that waits for a replica would keep a session of the server busy.
    async fn commit(&mut self, items: Vec<Item>, later: &mut VecDeque<Item>) -> bool {
        if items.is_empty() {
            return true;
        }
        if self.rows.len() > MAX_REMEMBERED_RUNS {
            self.rows.clear();
        }
        let (mut in_doubt, mut pause) = (false, RETRY_PAUSES.0);
        let began = Instant::now();
        loop {
            let tried = match self.outages().error(Blocked::Writes, Duration::ZERO) {
                Some(outage) => Err(outage),
                None => self.try_commit(&items, in_doubt).await,
            };
            match tried {
                Ok(written) => {
                    self.shared.queue.count_commit();
                    record_new_rows(&self.shared, &self.rows, &items);
                    self.report_written(&items, &written);
                    return true;
                }
                Err(SqlError::Again) => self.rows.clear(),
                Err(error) if error.is_fatal() => return self.fail(&error),
                Err(error) => {
                    // Closing the store does not wait for an unreachable server.
                    if self.shared.queue.is_closed()
                        && self.shared.claims.since_renewal() > self.shared.options.patience
                    {
                        return self.fail(&error);
                    }
                    tracing::debug!("repeating a commit: {error}");
                    let is_late = began.elapsed() > self.shared.options.patience;
                    if (is_late || !error.is_transient()) && !matches!(error, SqlError::Outage(_)) {
                        self.outages().begin(Blocked::Writes, &error);
                    }
                    if began.elapsed() > self.shared.options.outage_patience() {
                        // The drivers go on from the durable state, when the server can be used and their runs are
                        // claimed again.
                        self.shared.claims.lose_all();
                    }
                    if is_late {
                        let error = StoreError::from(self.outages().explain(Blocked::Writes, error.clone()));
                        later.retain(|item| !item.refuse(&error));
                        self.shared.queue.retain(|item| !item.refuse(&error));
                    }
                    in_doubt |= matches!(error, SqlError::Lost(_));
                    self.rows.clear();
                    self.outages().pause(pause).await;
                    pause = (pause * 2).min(RETRY_PAUSES.1);
                }
            }
        }
    }

    fn fail(&self, error: &SqlError) -> bool {
        self.shared.queue.abandon();
        (self.shared.options.on_failure)(&StoreError::from(error.clone()));
        false
    }

    fn outages(&self) -> &Outages {
        self.shared.connections.outages()
    }

    async fn connection(&mut self) -> Result<Connection, SqlError> {
        let kept = self.connection.take().filter(|kept| self.shared.connections.is_current(kept));
        match kept {
            Some(connection) => Ok(connection),
            None => self.shared.connections.acquire(self.shared.options.patience).await,
        }
    }

    async fn try_commit(&mut self, items: &[Item], in_doubt: bool) -> Result<Vec<bool>, SqlError> {
        let mut connection = self.connection().await?;
        let written = self.transact(&mut connection, items, in_doubt).await;
        if written.is_err() {
            connection.roll_back().await;
        }
        self.connection = connection.is_open().then_some(connection);
        written
    }

    async fn transact(
        &mut self,
        connection: &mut Connection,
        items: &[Item],
        in_doubt: bool,
    ) -> Result<Vec<bool>, SqlError> {
        connection.begin().await?;
        let mut commit = Commit { shared: &self.shared, connection, rows: &mut self.rows, in_doubt, witness: None };
        let written = commit.write(items).await?;
        let witness = commit.witness.take();
        // A commit that is perhaps done already is not made again for the number.
        let age = if in_doubt { None } else { self.shared.epoch.increment_if_due(connection).await? };
        connection.commit().await?;
        if let Some(age) = age {
            self.shared.epoch.increment_durable(age);
        }
        if let Some(witness) = witness {
            self.shared.epoch.record_witness(witness);
        }
        Ok(written)
    }

    /// Reports that the items are durable or refused, and drops their copies in memory.
    fn report_written(&self, items: &[Item], written: &[bool]) {
        let mut visible = self.shared.visible();
        let mut fates = written.iter();
        for item in items {
            match item {
                Item::Blob { tenant, hash, .. } => _ = visible.blobs.remove(&(tenant.clone(), hash.clone())),
                Item::Object { tenant, hash, .. } => _ = visible.objects.remove(&(tenant.clone(), hash.clone())),
                Item::Cache { tenant, key, value, expires } => {
                    let key = (tenant.clone(), key.clone());
                    if visible.cache.get(&key).is_some_and(|latest| *latest == (value.clone(), *expires)) {
                        visible.cache.remove(&key);
                    }
                }
                Item::Entry(entry) => visible.settle(entry, fates.next().copied().unwrap_or(false)),
                Item::Release(lease) => self.shared.claims.record_release(lease),
                Item::Index(_) | Item::Turn(_) => {}
            }
        }
        drop(visible);
        let entries = items.iter().filter_map(|item| if let Item::Entry(entry) = item { Some(entry) } else { None });
        for (entry, written) in entries.zip(written) {
            match written {
                true => entry.durable.advance(entry.unit.next_seq()),
                false => refuse(entry),
            }
        }
    }

    /// Does work between two commits. Repeats it while the server is unreachable.
    async fn turn(&mut self, turn: Turn) {
        let shared = self.shared.clone();
        // The caller may have disconnected.
        match turn {
            Turn::Claim(run, answer) => {
                let claimed = self.retry(async |connection| work::claim(&shared, connection, &run).await).await;
                _ = answer.send(claimed);
            }
            Turn::Work { tenant, now, limit, answer } => {
                let found =
                    self.retry(async |connection| work::take(&shared, connection, &tenant, now, limit).await).await;
                _ = answer.send(found);
            }
            Turn::Remove { tenant, runs, removing, answer } => {
                let remove = async |connection: &mut Connection| {
                    remove::remove(&shared, connection, &tenant, &runs, removing).await
                };
                _ = answer.send(self.retry(remove).await);
            }
            Turn::Sweep(tenant, answer) => {
                let swept = self.retry(async |connection| sweep::sweep(&shared, connection, &tenant).await).await;
                _ = answer.send(swept);
            }
            Turn::Erase(tenant, answer) => {
                let erased = self.retry(async |connection| erase::erase(&shared, connection, &tenant).await).await;
                _ = answer.send(erased);
            }
            Turn::Relabel { tenant, runs, change, answer } => {
                let relabel =
                    async |connection: &mut Connection| search::relabel(connection, &tenant, &runs, &change).await;
                _ = answer.send(self.retry(relabel).await);
            }
            Turn::Settle(answer) => _ = answer.send(Ok(())),
        }
        self.rows.clear();
    }

    /// Ends the leases of a transaction of claims that has failed. If it was committed nevertheless, the release gives the
    /// runs back, so that they are claimed again.
    fn settle_claims(&self, committed: bool) {
        let leases = self.shared.claims.take_unconfirmed();
        let ended = leases.into_iter().filter(|lease| !committed && self.shared.claims.end_lease(lease));
        ended.for_each(|lease| self.shared.queue.push(Item::Release(lease)));
    }

    /// Does work in a transaction of its own. Repeats the work while its error may be temporary, for at most
    /// `Options::patience`, and not in an outage that is already longer.
    async fn retry<T>(&mut self, work: impl AsyncFn(&mut Connection) -> Result<T, SqlError>) -> Result<T, StoreError> {
        let mut pause = RETRY_PAUSES.0;
        let began = Instant::now();
        loop {
            let connection = match self.outages().error(Blocked::Writes, Duration::ZERO) {
                Some(outage) => Err(outage),
                None => self.connection().await,
            };
            let done = match connection {
                Err(error) => Err(error),
                Ok(mut connection) => {
                    let done = match heartbeat::ensure_lease(&self.shared, &mut connection).await {
                        Ok(()) => in_transaction(&mut connection, &work).await,
                        Err(error) => Err(error),
                    };
                    self.connection = connection.is_open().then_some(connection);
                    self.settle_claims(done.is_ok());
                    done
                }
            };
            match done {
                Ok(done) => return Ok(done),
                Err(error)
                    if !error.is_transient()
                        || began.elapsed() > self.shared.options.patience
                        || self.outages().error(Blocked::Writes, self.shared.options.patience).is_some() =>
                {
                    return Err(self.outages().explain(Blocked::Writes, error).into());
                }
                Err(_) => self.outages().pause(pause).await,
            }
            pause = (pause * 2).min(RETRY_PAUSES.1);
        }
    }
}

async fn in_transaction<T>(
    connection: &mut Connection,
    work: &impl AsyncFn(&mut Connection) -> Result<T, SqlError>,
) -> Result<T, SqlError> {
    let done = async {
        connection.begin().await?;
        let done = work(connection).await?;
        connection.commit().await?;
        Ok(done)
    }
    .await;
    if done.is_err() {
        connection.roll_back().await;
    }
    done
}

fn refuse(entry: &Entry) {
    entry.durable.refuse();
}

/// Pins a snapshot of the present data on a connection that all later reads use.
pub(super) async fn pin_snapshot(shared: &Shared) -> Result<(), SqlError> {
    let pin = async || {
        let mut connection = shared.connections.acquire(shared.options.patience).await?;
        connection.pin().await?;
        Ok::<_, SqlError>(tokio::sync::Mutex::new(connection))
    };
    shared.snapshot.get_or_try_init(pin).await.map(drop)
}

/// Reads from the server. Repeats the work until the patience of the store ends. A pinned snapshot ends with its
/// connection, so its reads are not repeated.
pub(super) async fn read<T>(
    shared: &Shared,
    work: impl AsyncFn(&mut Connection) -> Result<T, SqlError>,
) -> Result<T, SqlError> {
    match shared.snapshot.get() {
        Some(pinned) => work(&mut *pinned.lock().await).await,
        None => repeat(shared, Blocked::Everything, work).await,
    }
}

/// Does work that writes by itself, beside the commits. Repeats the work until the patience of the store ends.
pub(super) async fn write<T>(
    shared: &Shared,
    work: impl AsyncFn(&mut Connection) -> Result<T, SqlError>,
) -> Result<T, SqlError> {
    repeat(shared, Blocked::Writes, work).await
}

async fn repeat<T>(
    shared: &Shared,
    operation: Blocked,
    work: impl AsyncFn(&mut Connection) -> Result<T, SqlError>,
) -> Result<T, SqlError> {
    let (began, mut pause) = (Instant::now(), RETRY_PAUSES.0);
    loop {
        let outages = shared.connections.outages();
        let done = match outages.wait(operation, shared.options.patience).await {
            Err(error) => Err(error),
            Ok(()) => match shared.connections.acquire(shared.options.patience).await {
                Err(error) => Err(error),
                Ok(mut connection) => work(&mut connection).await,
            },
        };
        match done {
            Err(error)
                if error.is_transient()
                    && began.elapsed() < shared.options.patience
                    && outages.error(operation, shared.options.patience).is_none() =>
            {
                outages.pause(pause).await;
                pause = (pause * 2).min(RETRY_PAUSES.1);
            }
            done => return done.map_err(|error| outages.explain(operation, error)),
        }
    }
}
