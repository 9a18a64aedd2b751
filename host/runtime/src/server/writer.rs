//! The one task that writes: it commits as soon as it is idle, all that is queued.

use std::{sync::Arc, time::Duration};

use super::{
    Shared,
    batch::{Batch, Rows, learn},
    heartbeat,
    link::{Link, Trouble},
    queue::{Item, Turn},
    sweep, work,
};
use crate::ports::{Entry, StoreError};

/// Runs whose rows the writer remembers.
const REMEMBERED: usize = 10_000;
/// The first and the longest pause before something is tried again.
const PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(500));

pub(super) struct Writer {
    shared: Arc<Shared>,
    link: Option<Link>,
    rows: Rows,
}

impl Writer {
    pub(super) fn new(shared: Arc<Shared>) -> Writer {
        Writer { shared, link: None, rows: Rows::new() }
    }

    /// Writes until the queue is closed, or a commit fails for good.
    pub(super) async fn run(mut self) {
        while let Some(items) = self.shared.queue.take().await {
            let mut stretch = Vec::new();
            for item in items {
                let Item::Turn(turn) = item else {
                    stretch.push(item);
                    continue;
                };
                if !self.commit(std::mem::take(&mut stretch)).await {
                    return;
                }
                self.turn(turn).await;
            }
            if !self.commit(stretch).await {
                return;
            }
        }
    }

    /// Writes all, or nothing, and tells it. False: nothing is written any more.
    async fn commit(&mut self, items: Vec<Item>) -> bool {
        if items.is_empty() {
            return true;
        }
        if self.rows.len() > REMEMBERED {
            self.rows.clear();
        }
        let (mut in_doubt, mut pause) = (false, PAUSES.0);
        loop {
            match self.try_commit(&items, in_doubt).await {
                Ok(written) => {
                    self.shared.queue.committed();
                    learn(&self.shared, &self.rows, &items);
                    self.tell(&items, &written);
                    return true;
                }
                Err(Trouble::Again) => self.rows.clear(),
                Err(trouble @ (Trouble::Lost(_) | Trouble::Passing(_))) => {
                    // Whoever closes the store does not wait for a server that is gone.
                    if self.shared.queue.is_closed() && self.shared.claims.age() > self.shared.options.patience {
                        return self.fail(&trouble);
                    }
                    tracing::warn!("the store is tried again: {trouble}");
                    in_doubt |= matches!(trouble, Trouble::Lost(_));
                    self.rows.clear();
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(PAUSES.1);
                }
                Err(trouble @ Trouble::Lasting(_)) => return self.fail(&trouble),
            }
        }
    }

    fn fail(&self, trouble: &Trouble) -> bool {
        self.shared.queue.abandon();
        (self.shared.options.on_failure)(&StoreError(trouble.to_string().into()));
        false
    }

    async fn link(&mut self) -> Result<Link, Trouble> {
        match self.link.take() {
            Some(link) => Ok(link),
            None => self.shared.links.link(self.shared.options.patience).await,
        }
    }

    async fn try_commit(&mut self, items: &[Item], in_doubt: bool) -> Result<Vec<bool>, Trouble> {
        let mut link = self.link().await?;
        let written = self.transact(&mut link, items, in_doubt).await;
        if written.is_err() {
            link.roll_back().await;
        }
        self.link = link.is_open().then_some(link);
        written
    }

    async fn transact(&mut self, link: &mut Link, items: &[Item], in_doubt: bool) -> Result<Vec<bool>, Trouble> {
        link.begin().await?;
        let mut batch = Batch { shared: &self.shared, link, rows: &mut self.rows, in_doubt };
        let written = batch.write(items).await?;
        link.commit().await?;
        Ok(written)
    }

    /// What is durable needs no other place any more, and whoever waits for it goes on.
    fn tell(&self, items: &[Item], written: &[bool]) {
        let mut visible = self.shared.visible();
        let mut fates = written.iter();
        for item in items {
            match item {
                Item::Blob { tenant, hash, .. } => _ = visible.blobs.remove(&(tenant.clone(), hash.clone())),
                Item::Cache { tenant, key, value, expires } => {
                    let key = (tenant.clone(), key.clone());
                    if visible.cache.get(&key).is_some_and(|latest| *latest == (value.clone(), *expires)) {
                        visible.cache.remove(&key);
                    }
                }
                Item::Entry(entry) => visible.settle(entry, fates.next().copied().unwrap_or(false)),
                Item::Release(grant) => self.shared.claims.released(grant),
                Item::Forget { .. } | Item::Turn(_) => {}
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

    /// Does what has its turn between two commits. What is asked for is asked for again while the server is away.
    async fn turn(&mut self, turn: Turn) {
        let shared = self.shared.clone();
        // Whoever asked may have gone.
        match turn {
            Turn::Claim(run, told) => {
                let claimed = self.retry(async |link| work::claim(&shared, link, &run).await).await;
                _ = told.send(claimed);
            }
            Turn::Work { tenant, now, limit, told } => {
                let found = self.retry(async |link| work::take(&shared, link, &tenant, now, limit).await).await;
                _ = told.send(found);
            }
            Turn::Sweep(tenant, told) => {
                let swept = self.retry(async |link| sweep::sweep(&shared, link, &tenant).await).await;
                _ = told.send(swept);
            }
            Turn::Settle(told) => _ = told.send(Ok(())),
        }
        self.rows.clear();
    }

    /// Does something in a transaction of its own, for as long as the server may take.
    async fn retry<T>(&mut self, work: impl AsyncFn(&mut Link) -> Result<T, Trouble>) -> Result<T, StoreError> {
        let mut pause = PAUSES.0;
        let began = std::time::Instant::now();
        loop {
            let done = match self.link().await {
                Err(trouble) => Err(trouble),
                Ok(mut link) => {
                    let done = match heartbeat::ensure(&self.shared, &mut link).await {
                        Ok(()) => in_transaction(&mut link, &work).await,
                        Err(trouble) => Err(trouble),
                    };
                    self.link = link.is_open().then_some(link);
                    done
                }
            };
            match done {
                Ok(done) => return Ok(done),
                Err(trouble)
                    if matches!(trouble, Trouble::Lasting(_)) || began.elapsed() > self.shared.options.patience =>
                {
                    return Err(trouble.into());
                }
                Err(_) => tokio::time::sleep(pause).await,
            }
            pause = (pause * 2).min(PAUSES.1);
        }
    }
}

async fn in_transaction<T>(
    link: &mut Link,
    work: &impl AsyncFn(&mut Link) -> Result<T, Trouble>,
) -> Result<T, Trouble> {
    let done = async {
        link.begin().await?;
        let done = work(link).await?;
        link.commit().await?;
        Ok(done)
    }
    .await;
    if done.is_err() {
        link.roll_back().await;
    }
    done
}

fn refuse(entry: &Entry) {
    entry.durable.refuse();
}

/// Reads something, for as long as the server may take.
pub(super) async fn read<T>(
    shared: &Shared,
    work: impl AsyncFn(&mut Link) -> Result<T, Trouble>,
) -> Result<T, Trouble> {
    let (began, mut pause) = (std::time::Instant::now(), PAUSES.0);
    loop {
        let done = match shared.links.link(shared.options.patience).await {
            Err(trouble) => Err(trouble),
            Ok(mut link) => work(&mut link).await,
        };
        match done {
            Err(Trouble::Lost(_) | Trouble::Passing(_) | Trouble::Again)
                if began.elapsed() < shared.options.patience =>
            {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSES.1);
            }
            done => return done,
        }
    }
}
