//! Items that wait for the writer.

use std::sync::{Arc, mpsc::Sender};

use flowcell_contract::{RunId, Tenant};

use crate::{
    pieces::LargeFile,
    ports::{Entry, LabelChange, RelabelError, Removed, Removing, Swept},
    rows::flush::{FlushQueue, Queued},
};

pub(super) type Queue = FlushQueue<Item>;

/// The rows that a sweep has removed.
#[derive(Default)]
pub(super) struct SweptRows {
    pub(super) swept: Swept,
    /// The hashes of the contents that are in files beside the database.
    pub(super) files: Vec<String>,
    /// The names of the objects that had contents.
    pub(super) objects: Vec<String>,
}

/// An item for the writer.
#[expect(clippy::large_enum_variant, reason = "nearly all are entries, and a box would cost each an allocation")]
pub(super) enum Item {
    Entry(Entry),
    /// Removes the runs that may be removed. Sends the result once the removal is durable.
    Remove {
        tenant: Tenant,
        runs: Box<[RunId]>,
        removing: Removing,
        answer: Sender<Removed>,
    },
    Blob {
        tenant: Tenant,
        hash: Arc<str>,
        bytes: Arc<[u8]>,
        mime: Box<str>,
    },
    /// The row of a large file.
    Large {
        tenant: Tenant,
        hash: Arc<str>,
        file: LargeFile,
        mime: Box<str>,
    },
    /// Removes the blobs that nothing refers to. Sends the result once the removal is durable.
    Sweep {
        tenant: Tenant,
        answer: Sender<SweptRows>,
    },
    /// Removes some rows of a tenant. Sends their number once the removal is durable.
    Erase {
        tenant: Tenant,
        answer: Sender<u64>,
    },
    /// Changes the labels of runs. Sends the result of each run once the change is durable.
    Relabel {
        tenant: Tenant,
        runs: Box<[RunId]>,
        change: LabelChange,
        answer: Sender<Vec<Result<(), RelabelError>>>,
    },
    /// Sends a message once all items before it are durable.
    Settle(Sender<()>),
}

impl Queued for Item {
    fn facts(&self) -> usize {
        if let Item::Entry(entry) = self { entry.unit.facts.len() } else { 0 }
    }

    /// Returns whether the writer must write the item at once, because a caller waits for it. For entries it is false:
    /// a driver that waits for an entry requests the write itself, and may do it on its own thread.
    fn is_awaited(&self) -> bool {
        matches!(
            self,
            Item::Remove { .. } | Item::Sweep { .. } | Item::Erase { .. } | Item::Relabel { .. } | Item::Settle(_)
        )
    }
}
