//! Items that wait for the writer.

use std::sync::{Arc, mpsc::Sender};

use flowcell_contract::{RunId, Tenant, Value};

use super::{
    claims::{Key, TreeLease},
    indexed::IndexedRun,
};
use crate::{
    pieces::LargeFile,
    ports::{Entry, LabelChange, RelabelError, Removed, Removing, StoreError, Swept},
    rows::flush::{FlushQueue, Queued},
};

pub(super) type Queue = FlushQueue<Item>;

/// The rows that a sweep has removed.
#[derive(Default)]
pub(super) struct SweptRows {
    pub(super) swept: Swept,
    /// The names of the objects that had contents.
    pub(super) objects: Vec<String>,
}

/// An item for the writer.
#[expect(clippy::large_enum_variant, reason = "nearly all are entries, and a box would cost each an allocation")]
pub(super) enum Item {
    Entry(Entry),
    Blob {
        tenant: Tenant,
        hash: Arc<str>,
        bytes: Arc<[u8]>,
        mime: Box<str>,
    },
    /// The row of a file in an object store.
    Object {
        tenant: Tenant,
        hash: Arc<str>,
        file: LargeFile,
        mime: Box<str>,
    },
    Cache {
        tenant: Tenant,
        key: String,
        value: Value,
        expires: Option<u64>,
    },
    /// The row of a run whose journal is in another store.
    Index(Box<IndexedRun>),
    /// Releases a tree that this process no longer drives.
    Release(TreeLease),
    Turn(Turn),
}

/// The results of a change of labels, in the order of the runs.
pub(super) type Relabelled = Vec<Result<(), RelabelError>>;

/// Work between two commits. All items before it must be written first.
pub(super) enum Turn {
    /// Claims a run.
    Claim(Key, Sender<Result<Option<TreeLease>, StoreError>>),
    /// Claims runs that no process drives.
    Work { tenant: Tenant, now: u64, limit: usize, answer: Sender<Result<Vec<(Key, TreeLease)>, StoreError>> },
    /// Removes the runs that may be removed, and reports the others.
    Remove { tenant: Tenant, runs: Box<[RunId]>, removing: Removing, answer: Sender<Result<Removed, StoreError>> },
    /// Removes the blobs that nothing refers to.
    Sweep(Tenant, Sender<Result<SweptRows, StoreError>>),
    /// Removes some rows of a tenant, and reports their number.
    Erase(Tenant, Sender<Result<u64, StoreError>>),
    /// Changes the labels of runs, and reports the result of each run.
    Relabel { tenant: Tenant, runs: Box<[RunId]>, change: LabelChange, answer: Sender<Result<Relabelled, StoreError>> },
    /// Reports that all items before it are written.
    Settle(Sender<Result<(), StoreError>>),
}

impl Item {
    /// Reports an error to the caller of a turn. Returns `false` for other items.
    pub(super) fn refuse(&self, error: &StoreError) -> bool {
        let Item::Turn(turn) = self else { return false };
        // The caller may have disconnected.
        match turn {
            Turn::Claim(_, answer) => _ = answer.send(Err(error.clone())),
            Turn::Work { answer, .. } => _ = answer.send(Err(error.clone())),
            Turn::Remove { answer, .. } => _ = answer.send(Err(error.clone())),
            Turn::Sweep(_, answer) => _ = answer.send(Err(error.clone())),
            Turn::Erase(_, answer) => _ = answer.send(Err(error.clone())),
            Turn::Relabel { answer, .. } => _ = answer.send(Err(error.clone())),
            Turn::Settle(answer) => _ = answer.send(Err(error.clone())),
        }
        true
    }
}

impl Queued for Item {
    fn facts(&self) -> usize {
        if let Item::Entry(entry) = self { entry.unit.facts.len() } else { 0 }
    }

    fn is_awaited(&self) -> bool {
        match self {
            Item::Entry(entry) => entry.force,
            item => matches!(item, Item::Turn(_)),
        }
    }
}
