//! The store: the ports of the runtime on a Restate cluster.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use flowcell_contract::{RunId, Tenant};
use flowcell_runtime::{
    World,
    limits::{INBOX_PATIENCE_MS, MAX_READ_BYTES},
    ports::{
        Changed, Counts, Entry, Erase, Filter, Group, Inbox, Journal, LabelChange, Lease, Leases, Message, ParkedRuns,
        Record, RelabelError, Removable, Removed, Removing, RunRow, Runs, SearchPage, Session, Sessions, StepState,
        StoreError, StoreErrorKind, Sweep, Swept, Unit,
    },
    shared::{Offer, Relay, SharedRuns, StoreProcess},
    sql::SharedStore,
};
use futures_util::future::BoxFuture;

use crate::{
    RestateStore,
    shared::Shared,
    units,
    wire::{self, Head, Post, ReadUnits},
};

/// The number of pages of one request for units.
const PAGES: usize = 8;
/// The time that the end of this process waits for its last commits.
const RETIRE_PATIENCE: Duration = Duration::from_secs(10);
/// The longest pause between two looks at the outcome of a message.
const MAX_OUTCOME_PAUSE: Duration = Duration::from_millis(50);

impl RestateStore {
    fn head(&self, tenant: &Tenant, run: &RunId) -> Result<Option<Head>, StoreError> {
        let key = self.shared.tree_key(tenant, run)?;
        if let Some(tree) = self.shared.find(&key) {
            let state = tree.lock();
            if let Some(head) = state.heads.get(run) {
                return Ok(Some(head.clone()));
            }
            // Another process that accepts the run meanwhile wins: the first units of this one are refused.
            if state.is_new && state.heads.is_empty() {
                return Ok(None);
            }
        }
        Ok(self.shared.block_on(Shared::head(self.shared.clone(), key, run.clone()))?.head)
    }

    /// Returns the tables when they have all rows that this process has written.
    fn settled_tables(&self) -> Result<&SharedStore, StoreError> {
        self.tables.settle()?;
        Ok(&self.tables)
    }
}

impl Journal for RestateStore {
    fn append(&self, entry: Entry) {
        self.shared.push(entry);
    }

    fn force(&self) {
        self.shared.force();
    }

    fn left_below(&self, tenant: &Tenant, run: &RunId) -> Result<Vec<RunId>, StoreError> {
        self.settled_tables()?.left_below(tenant, run)
    }

    fn children_of(&self, tenant: &Tenant, run: &RunId) -> Result<Vec<RunId>, StoreError> {
        self.settled_tables()?.children_of(tenant, run)
    }

    fn repeats_of(&self, tenant: &Tenant, run: &RunId) -> Result<Vec<RunId>, StoreError> {
        self.settled_tables()?.repeats_of(tenant, run)
    }

    fn find(&self, tenant: &Tenant, run: &RunId) -> Result<Option<Record>, StoreError> {
        // Fails if the run was removed.
        let indexed = self.tables.find(tenant, run)?;
        let Some(head) = self.head(tenant, run)? else { return Ok(None) };
        let record = wire::record(run, &head.record)?;
        // People change the labels of a run in the tables, also while a process drives the run.
        let labels = indexed.map_or_else(|| record.labels.clone(), |indexed| indexed.labels);
        Ok(Some(Record { labels, ..record }))
    }

    fn read(&self, tenant: &Tenant, run: &RunId, from: u64, limit: usize) -> Result<Vec<Arc<Unit>>, StoreError> {
        let key = self.shared.tree_key(tenant, run)?;
        let tree = self.shared.find(&key);
        let tail = || tree.as_ref().map(|tree| tree.tail(run)).unwrap_or_default();
        let mut units = tail();
        if units.first().is_none_or(|first| first.first_seq > from) {
            let (shared, run, later) = (self.shared.clone(), run.clone(), units);
            let before = self.shared.block_on(async move {
                let (mut units, mut bytes, mut next): (Vec<Arc<Unit>>, usize, u64) = (Vec::new(), 0, from);
                loop {
                    let page = shared.units(&key, &ReadUnits { run: run.clone(), from: next, pages: PAGES }).await?;
                    for text in &page.units {
                        let unit = units::parse(&shared.blobs, &key.0, &run, text)?;
                        if unit.next_seq() > next {
                            next = unit.next_seq();
                            bytes += text.get().len();
                            units.push(unit);
                        }
                    }
                    if page.is_last || units.len() >= limit || bytes >= MAX_READ_BYTES {
                        return Ok((units, page.is_last));
                    }
                }
            })?;
            let (mut before, is_last) = before;
            if is_last {
                let next = before.last().map_or(from, |last| last.next_seq());
                // Units that became durable since, or that the state does not show yet.
                before.extend(later.into_iter().filter(|unit| unit.first_seq >= next));
            }
            units = before;
        }
        let mut bytes = 0_u64;
        let wanted = units.into_iter().filter(|unit| unit.next_seq() > from);
        let wanted = wanted.take(limit).take_while(|unit| {
            let is_wanted = bytes < MAX_READ_BYTES as u64;
            bytes = bytes.saturating_add(unit.size());
            is_wanted
        });
        Ok(wanted.collect())
    }
}

impl Leases for RestateStore {
    /// A process to which the cluster sends no invocations drives no runs that exist. Its commands go to their inboxes.
    fn claim(&self, tenant: &Tenant, run: &RunId) -> Result<Option<Lease>, StoreError> {
        self.shared.claim(tenant, run, self.is_listening())
    }

    fn claim_new(&self, tenant: &Tenant, run: &RunId) -> Result<Option<Lease>, StoreError> {
        Ok(self.shared.claim_new(tenant, run))
    }
}

impl Inbox for RestateStore {
    fn is_shared(&self) -> bool {
        true
    }

    fn send(&self, tenant: &Tenant, run: &RunId, message: Message) -> BoxFuture<'static, Result<String, StoreError>> {
        let key = self.shared.tree_key(tenant, run);
        let (shared, run) = (self.shared.clone(), run.clone());
        let runtime = shared.runtime.clone();
        let sending = runtime.spawn(async move {
            let (key, began) = (key?, Instant::now());
            let post = Post { id: message.id, run, request: message.request };
            let number: u64 = shared.call_inbox(&key, "post", &post).await?;
            let mut pause = Duration::from_millis(2);
            loop {
                if let Some(outcome) = shared.call_inbox::<_, Option<String>>(&key, "outcome", &number).await? {
                    return Ok(outcome);
                }
                if began.elapsed() > Duration::from_millis(INBOX_PATIENCE_MS) {
                    let why = "the message is stored, but no process has read it yet";
                    return Err(StoreError::unavailable(why));
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(MAX_OUTCOME_PAUSE);
            }
        });
        Box::pin(async move { sending.await.map_err(|_| StoreError::unavailable("the store is closed"))? })
    }
}

impl Runs for RestateStore {
    /// The row is that of the cluster, with the labels of the tables.
    fn run(&self, tenant: &Tenant, run: &RunId) -> Result<Option<(RunRow, u64)>, StoreError> {
        let listed = self.tables.run(tenant, run)?;
        let Some(head) = self.head(tenant, run)? else { return Ok(None) };
        let mut row = head.indexed(tenant, run)?.row();
        if let Some((listed, _)) = listed {
            row.labels = listed.labels;
        }
        Ok(Some((row, head.next)))
    }

    fn children(&self, tenant: &Tenant, run: &RunId) -> Result<Vec<RunId>, StoreError> {
        self.settled_tables()?.children(tenant, run)
    }

    fn search(&self, tenant: &Tenant, filter: &Filter, reads: usize) -> Result<SearchPage, StoreError> {
        self.settled_tables()?.search(tenant, filter, reads)
    }

    fn count(&self, tenant: &Tenant, filter: &Filter, by: &Group, reads: usize) -> Result<Counts, StoreError> {
        self.settled_tables()?.count(tenant, filter, by, reads)
    }

    fn live(&self, tenant: &Tenant, most: u64) -> Result<u64, StoreError> {
        self.tables.live(tenant, most)
    }

    fn parked(&self, tenant: &Tenant, most: u64) -> Result<ParkedRuns, StoreError> {
        self.tables.parked(tenant, most)
    }

    fn ended(
        &self,
        tenant: &Tenant,
        since: u64,
        after: Option<&RunId>,
        limit: usize,
    ) -> Result<Vec<RunRow>, StoreError> {
        self.settled_tables()?.ended(tenant, since, after, limit)
    }

    fn changed(&self, tenant: &Tenant, wanted: &Changed) -> Result<Vec<RunRow>, StoreError> {
        self.settled_tables()?.changed(tenant, wanted)
    }

    fn removable(&self, tenant: &Tenant, wanted: &Removable) -> Result<Vec<RunId>, StoreError> {
        self.settled_tables()?.removable(tenant, wanted)
    }

    fn runnable(&self, tenant: &Tenant, now: u64, limit: usize) -> Result<Vec<RunId>, StoreError> {
        self.tables.runnable(tenant, now, limit)
    }

    /// The cluster has the timers, and offers a run when one is due.
    fn next_due(&self, _: &Tenant) -> Result<Option<u64>, StoreError> {
        Ok(None)
    }
}

impl SharedRuns for RestateStore {
    fn work(&self, tenant: &Tenant, _: u64, limit: usize) -> Result<Vec<Offer>, StoreError> {
        Ok(self.shared.take_offers(tenant, limit))
    }

    fn outage(&self) -> Option<StoreError> {
        let away = self.shared.ingress.away().map(|error| StoreError::new(StoreErrorKind::Outage, error));
        away.or_else(|| self.tables.outage())
    }

    fn commits(&self) -> u64 {
        self.shared.commits.load(Ordering::Relaxed)
    }

    /// Returns the processes that use the tables. The cluster does not tell which of them drives a run.
    fn processes(&self, limit: usize) -> Result<Vec<StoreProcess>, StoreError> {
        self.tables.processes(limit)
    }

    fn settle(&self) -> Result<(), StoreError> {
        self.shared.force();
        if !self.shared.pending.wait(RETIRE_PATIENCE) {
            return Err(StoreError::unavailable("the cluster has not taken all events in time"));
        }
        self.tables.settle()
    }

    fn relabel(
        &self,
        tenant: &Tenant,
        runs: &[RunId],
        change: &LabelChange,
    ) -> Result<Vec<Result<(), RelabelError>>, StoreError> {
        self.settled_tables()?.relabel(tenant, runs, change)
    }

    fn keep(&self, tenant: &Tenant, hash: &Arc<str>, bytes: Arc<[u8]>, mime: &str) {
        self.tables.keep(tenant, hash, bytes, mime);
        self.shared.blobs.count();
    }

    fn retire(&self) {
        // The entries that are left are those of runs that another process repeats.
        let _ = SharedRuns::settle(self);
        self.shared.retire();
        self.tables.retire();
    }

    fn relay(&self) -> Option<Arc<dyn Relay>> {
        self.tables.relay()
    }

    /// The first call opens the endpoint, to which the cluster sends invocations.
    fn serve(&self, world: &Arc<World>) -> Result<(), StoreError> {
        self.listen().map_err(|error| StoreError(error.to_string().into()))?;
        self.shared.add_world(world);
        Ok(())
    }
}

impl Sweep for RestateStore {
    fn remove(&self, tenant: &Tenant, runs: &[RunId], removing: Removing) -> Result<Removed, StoreError> {
        let removed = self.settled_tables()?.remove(tenant, runs, removing)?;
        for run in &removed.runs {
            let (shared, key) = (self.shared.clone(), (tenant.clone(), run.clone()));
            self.shared.block_on(async move { shared.remove(&key).await })?;
        }
        Ok(removed)
    }

    /// Removes no blob: the facts that name blobs are in the cluster, and the database does not know them.
    fn sweep(&self, _: &Tenant) -> Result<Swept, StoreError> {
        let left = "a store on a Restate cluster removes no files, also those that nothing refers to";
        Ok(Swept { files_left: Some(left.to_owned()), ..Swept::default() })
    }
}

/// The error of an operation that a store on a cluster does not have.
fn refused(operation: &str) -> StoreError {
    StoreError(format!("a store on a Restate cluster does not {operation}; see `flowcell help cluster`").into())
}

impl Erase for RestateStore {
    fn rows_of(&self, _: &Tenant) -> Result<BTreeMap<String, u64>, StoreError> {
        Err(refused("remove tenants"))
    }

    fn driven_elsewhere(&self, _: &Tenant) -> Result<u64, StoreError> {
        Err(refused("remove tenants"))
    }

    fn erase_some(&self, _: &Tenant) -> Result<u64, StoreError> {
        Err(refused("remove tenants"))
    }

    fn purge(&self) -> Result<bool, StoreError> {
        Err(refused("remove tenants"))
    }

    fn next_tenant(&self, after: &Tenant) -> Result<Option<Tenant>, StoreError> {
        self.tables.next_tenant(after)
    }
}

/// Agentic flows keep their steps in sessions, which must agree with the facts. So they are refused.
impl Sessions for RestateStore {
    fn session(&self, _: &Tenant, _: &str) -> Result<Option<Session>, StoreError> {
        Err(refused("keep the sessions of agentic flows"))
    }

    fn sessions(&self, _: &Tenant, _: &str) -> Result<Vec<Session>, StoreError> {
        Err(refused("keep the sessions of agentic flows"))
    }

    fn states(&self, _: &Tenant, _: &str) -> Result<Vec<StepState>, StoreError> {
        Err(refused("keep the sessions of agentic flows"))
    }
}
