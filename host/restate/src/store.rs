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
        Record, RelabelError, Removable, Removed, Removing, RunRow, Runs, SearchPage, StoreError, Sweep, Swept, Unit,
    },
    shared::{Offer, SharedRuns, StoreProcess},
};
use futures_util::future::BoxFuture;
use tokio::sync::mpsc;

use crate::{
    RestateStore, mail,
    shared::Shared,
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
        let key = (tenant.clone(), self.shared.top(tenant, run));
        if let Some(tree) = self.shared.find(&key) {
            let state = tree.lock();
            if let Some(head) = state.heads.get(run) {
                return Ok(Some(head.clone()));
            }
        }
        Ok(self.shared.block_on(Shared::head(self.shared.clone(), key, run.clone()))?.head)
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
        self.shared.index.journal().left_below(tenant, run)
    }

    fn children_of(&self, tenant: &Tenant, run: &RunId) -> Result<Vec<RunId>, StoreError> {
        self.shared.index.journal().children_of(tenant, run)
    }

    fn repeats_of(&self, tenant: &Tenant, run: &RunId) -> Result<Vec<RunId>, StoreError> {
        self.shared.index.journal().repeats_of(tenant, run)
    }

    fn find(&self, tenant: &Tenant, run: &RunId) -> Result<Option<Record>, StoreError> {
        // Fails if the run was removed.
        let indexed = self.shared.index.journal().find(tenant, run)?;
        let Some(head) = self.head(tenant, run)? else { return Ok(None) };
        let record = wire::record(run, &head.record)?;
        // People change the labels of a run in the index, also while a process drives the run.
        let labels = indexed.map_or_else(|| record.labels.clone(), |indexed| indexed.labels);
        Ok(Some(Record { labels, ..record }))
    }

    fn read(&self, tenant: &Tenant, run: &RunId, from: u64, limit: usize) -> Result<Vec<Arc<Unit>>, StoreError> {
        let key = (tenant.clone(), self.shared.top(tenant, run));
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
                        let unit = wire::unit(&run, text)?;
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
    fn claim(&self, tenant: &Tenant, run: &RunId) -> Result<Option<Lease>, StoreError> {
        self.shared.claim(tenant, run)
    }
}

impl Inbox for RestateStore {
    fn is_shared(&self) -> bool {
        true
    }

    fn send(&self, tenant: &Tenant, run: &RunId, message: Message) -> BoxFuture<'static, Result<String, StoreError>> {
        let key = (tenant.clone(), self.shared.top(tenant, run));
        let (shared, run) = (self.shared.clone(), run.clone());
        let runtime = shared.runtime.clone();
        let sending = runtime.spawn(async move {
            let began = Instant::now();
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
    fn run(&self, tenant: &Tenant, run: &RunId) -> Result<Option<(RunRow, u64)>, StoreError> {
        let Some((row, next)) = self.shared.index.runs().run(tenant, run)? else { return Ok(None) };
        let head = self.head(tenant, run)?;
        Ok(Some((row, head.map_or(next, |head| head.next))))
    }

    fn children(&self, tenant: &Tenant, run: &RunId) -> Result<Vec<RunId>, StoreError> {
        self.shared.index.runs().children(tenant, run)
    }

    fn search(&self, tenant: &Tenant, filter: &Filter, reads: usize) -> Result<SearchPage, StoreError> {
        self.shared.index.runs().search(tenant, filter, reads)
    }

    fn count(&self, tenant: &Tenant, filter: &Filter, by: &Group, reads: usize) -> Result<Counts, StoreError> {
        self.shared.index.runs().count(tenant, filter, by, reads)
    }

    fn live(&self, tenant: &Tenant, most: u64) -> Result<u64, StoreError> {
        self.shared.index.runs().live(tenant, most)
    }

    fn parked(&self, tenant: &Tenant, most: u64) -> Result<ParkedRuns, StoreError> {
        self.shared.index.runs().parked(tenant, most)
    }

    fn ended(
        &self,
        tenant: &Tenant,
        since: u64,
        after: Option<&RunId>,
        limit: usize,
    ) -> Result<Vec<RunRow>, StoreError> {
        self.shared.index.runs().ended(tenant, since, after, limit)
    }

    fn changed(&self, tenant: &Tenant, wanted: &Changed) -> Result<Vec<RunRow>, StoreError> {
        self.shared.index.runs().changed(tenant, wanted)
    }

    fn removable(&self, tenant: &Tenant, wanted: &Removable) -> Result<Vec<RunId>, StoreError> {
        self.shared.index.runs().removable(tenant, wanted)
    }

    fn runnable(&self, tenant: &Tenant, now: u64, limit: usize) -> Result<Vec<RunId>, StoreError> {
        self.shared.index.runs().runnable(tenant, now, limit)
    }

    fn next_due(&self, tenant: &Tenant) -> Result<Option<u64>, StoreError> {
        self.shared.index.runs().next_due(tenant)
    }
}

impl SharedRuns for RestateStore {
    fn work(&self, tenant: &Tenant, _: u64, limit: usize) -> Result<Vec<Offer>, StoreError> {
        Ok(self.shared.take_offers(tenant, limit))
    }

    fn outage(&self) -> Option<StoreError> {
        None
    }

    fn commits(&self) -> u64 {
        self.shared.commits.load(Ordering::Relaxed)
    }

    fn processes(&self, _: usize) -> Result<Vec<StoreProcess>, StoreError> {
        Ok(Vec::new())
    }

    fn settle(&self) -> Result<(), StoreError> {
        self.shared.force();
        if !self.shared.pending.wait(RETIRE_PATIENCE) {
            return Err(StoreError::unavailable("the cluster has not taken all events in time"));
        }
        self.shared.index.settle()
    }

    fn relabel(
        &self,
        tenant: &Tenant,
        runs: &[RunId],
        change: &LabelChange,
    ) -> Result<Vec<Result<(), RelabelError>>, StoreError> {
        self.beside.relabel(tenant, runs, change)
    }

    fn keep(&self, tenant: &Tenant, hash: &Arc<str>, bytes: Arc<[u8]>, mime: &str) {
        self.beside.keep(tenant, hash, bytes, mime);
    }

    fn retire(&self) {
        // The entries that are left are those of runs that another process repeats.
        let _ = SharedRuns::settle(self);
        self.shared.retire();
    }

    fn serve(&self, world: &Arc<World>) -> Result<(), StoreError> {
        let (sender, trees) = mpsc::unbounded_channel();
        mail::serve(world, trees)?;
        self.shared.set_mail(sender);
        Ok(())
    }
}

impl Sweep for RestateStore {
    fn remove(&self, tenant: &Tenant, runs: &[RunId], removing: Removing) -> Result<Removed, StoreError> {
        self.shared.index.settle()?;
        let removed = self.beside.sweep().remove(tenant, runs, removing)?;
        for run in &removed.runs {
            let (shared, key) = (self.shared.clone(), (tenant.clone(), run.clone()));
            self.shared.block_on(async move { shared.remove(&key).await })?;
        }
        Ok(removed)
    }

    /// Removes no blob: the texts that name blobs are in the cluster, and the store beside it does not know them.
    fn sweep(&self, _: &Tenant) -> Result<Swept, StoreError> {
        Ok(Swept::default())
    }
}

impl Erase for RestateStore {
    fn rows_of(&self, _: &Tenant) -> Result<BTreeMap<String, u64>, StoreError> {
        Err(StoreError("a store on a Restate cluster cannot remove a tenant yet".into()))
    }
}
