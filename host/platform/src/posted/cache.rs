//! The posted flows that a process knows. It looks for changes of other processes once in each [`LOOK_INTERVAL`], by
//! reading one document: the number of changes, with the tenants of the last ones.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use flowcell_contract::Tenant;
use flowcell_runtime::ports::{DocumentStore, MaybeStoreError, StoreError};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{HEAD, Head, MAX_WRITE_TRIES, PostedText};
use crate::operate::{documents::Documents, policy::OPERATORS};

/// The interval between two looks for changes of other processes.
pub const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// The interval after which a process reads all flows again. A process that died between a change and its report has
/// reported nothing; its caller got no answer either.
const FORGET_INTERVAL: Duration = Duration::from_secs(60);
/// The document kind and key of [`Changes`].
const CHANGES: &str = "flow-changes";
/// Maximum number of changes whose tenants are recorded. A process that has missed more reads all flows again.
const MAX_RECORDED_CHANGES: usize = 64;
/// Maximum number of bytes of remembered texts. If one more text would exceed them, all are forgotten first.
const MAX_TEXT_BYTES: u64 = 64 * 1024 * 1024;

type Flows = Arc<BTreeMap<String, Arc<Head>>>;

/// The last changes of posted flows. The version of the document is the number of all changes.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Changes {
    /// The hashes of the tenants, the newest last.
    tenants: Vec<String>,
}

/// The posted flows of all tenants that a process knows.
pub(crate) struct PostedCache {
    documents: Arc<dyn DocumentStore>,
    known: Mutex<Known>,
    /// Held during a look, so that one thread looks at a time.
    looking: Mutex<()>,
}

/// The flows of a tenant at the last read.
struct KnownFlows {
    flows: Flows,
    /// True if they may have changed since.
    is_stale: bool,
}

#[derive(Default)]
struct Known {
    flows: HashMap<Tenant, KnownFlows>,
    /// True from a failed read until the store has answered a look.
    is_broken: bool,
    texts: HashMap<(Tenant, String), Arc<PostedText>>,
    text_bytes: u64,
    /// The number of changes at the last look. `None` before the first look.
    seen: Option<u64>,
    looked: Option<Instant>,
    forgot: Option<Instant>,
    /// Grows whenever flows become stale. A list of flows that was begun earlier is not remembered.
    generation: u64,
    /// The tenants whose flows have changed since [`PostedCache::take_changed`] was called.
    changed: ChangedFlows,
}

/// The tenants whose posted flows have changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangedFlows {
    all: bool,
    tenants: BTreeSet<String>,
}

impl ChangedFlows {
    /// Returns whether the flows of a tenant may have changed.
    pub fn contains(&self, tenant: &Tenant) -> bool {
        self.all || self.tenants.contains(&hash(tenant))
    }

    /// Returns whether no flows have changed.
    pub fn is_empty(&self) -> bool {
        !self.all && self.tenants.is_empty()
    }
}

impl PostedCache {
    pub(crate) fn new(documents: Arc<dyn DocumentStore>) -> PostedCache {
        PostedCache { documents, known: Mutex::default(), looking: Mutex::default() }
    }

    pub(super) fn documents(&self) -> &dyn DocumentStore {
        &*self.documents
    }

    /// Looks for changes of other processes now, and returns the tenants whose flows have changed since the last call,
    /// also by this process.
    pub(crate) fn take_changed(&self) -> Result<ChangedFlows, StoreError> {
        let turn = self.looking.lock();
        self.look()?;
        drop(turn);
        Ok(std::mem::take(&mut self.known.lock().changed))
    }

    /// Returns the existing flows of a tenant. While the store does not answer, returns the flows that it last had.
    pub(super) fn flows(&self, tenant: &Tenant) -> Result<Flows, StoreError> {
        self.look_if_due();
        let (generation, before) = {
            let known = self.known.lock();
            let before = known.flows.get(tenant);
            if let Some(before) = before.filter(|before| !before.is_stale || known.is_broken) {
                return Ok(before.flows.clone());
            }
            (known.generation, before.map(|before| before.flows.clone()))
        };
        let documents = Documents { store: &*self.documents, tenant };
        let all: Vec<(String, Head)> = match documents.all(HEAD) {
            Ok(all) => all,
            Err(error) => {
                self.known.lock().is_broken = true;
                let before = before.ok_or(error)?;
                tracing::warn!(%tenant, "cannot read the posted flows; the known ones stay in use");
                return Ok(before);
            }
        };
        let all = all.into_iter().filter(|(_, head)| head.newest().is_some());
        let flows: Flows = Arc::new(all.map(|(name, head)| (name, Arc::new(head))).collect());
        let mut known = self.known.lock();
        if known.generation == generation {
            known.flows.insert(tenant.clone(), KnownFlows { flows: flows.clone(), is_stale: false });
        }
        Ok(flows)
    }

    /// Returns a text that was read before.
    pub(super) fn text(&self, tenant: &Tenant, key: &str) -> Option<Arc<PostedText>> {
        self.known.lock().texts.get(&(tenant.clone(), key.to_owned())).cloned()
    }

    /// Remembers a text. A text never changes, since its key has its digest.
    pub(super) fn remember_text(&self, tenant: &Tenant, key: String, text: &Arc<PostedText>) {
        let mut known = self.known.lock();
        if known.text_bytes + text.bytes() > MAX_TEXT_BYTES {
            known.texts.clear();
            known.text_bytes = 0;
        }
        if known.texts.insert((tenant.clone(), key), text.clone()).is_none() {
            known.text_bytes += text.bytes();
        }
    }

    /// Reports a change of a tenant's flows to all processes, this one included.
    pub(super) fn report(&self, tenant: &Tenant) -> Result<(), StoreError> {
        self.known.lock().forget(&hash(tenant));
        let operators = &Tenant::from(OPERATORS);
        for _ in 0..MAX_WRITE_TRIES {
            let (mut changes, seen) = self.read_changes()?;
            changes.tenants.push(hash(tenant));
            let surplus = changes.tenants.len().saturating_sub(MAX_RECORDED_CHANGES);
            changes.tenants.drain(..surplus);
            let operators = Documents { store: &*self.documents, tenant: operators };
            if operators.put(CHANGES, CHANGES, Some(&changes), seen)? {
                return Ok(());
            }
        }
        Err(StoreError::conflict("too many processes change flows at the same time; try again"))
    }

    /// Looks for changes if the last look is [`LOOK_INTERVAL`] old and no other thread looks.
    fn look_if_due(&self) {
        let due = |known: &Known| known.looked.is_none_or(|looked| looked.elapsed() >= LOOK_INTERVAL);
        if !due(&self.known.lock()) {
            return;
        }
        let Some(_turn) = self.looking.try_lock() else { return };
        if let Err(error) = self.look() {
            error.warn("cannot look for changes of posted flows; the known ones stay in use");
        }
    }

    /// Looks for changes. The caller holds the lock `looking`.
    fn look(&self) -> Result<(), StoreError> {
        let found = self.read_changes();
        let mut known = self.known.lock();
        known.looked = Some(Instant::now());
        known.is_broken = found.is_err();
        let (changes, number) = found?;
        let new = known.seen.map(|seen| number.checked_sub(seen));
        let is_old = known.forgot.is_none_or(|forgot| forgot.elapsed() >= FORGET_INTERVAL);
        match new {
            Some(Some(0)) if !is_old => {}
            Some(Some(new)) if !is_old && new <= changes.tenants.len() as u64 => {
                let from = changes.tenants.len() - new as usize;
                changes.tenants[from..].iter().for_each(|tenant| known.forget(tenant));
            }
            _ => known.forget_all(),
        }
        known.seen = Some(number);
        Ok(())
    }

    fn read_changes(&self) -> Result<(Changes, u64), StoreError> {
        let operators = &Tenant::from(OPERATORS);
        Ok(Documents { store: &*self.documents, tenant: operators }.get(CHANGES, CHANGES)?.unwrap_or_default())
    }
}

impl Known {
    fn forget(&mut self, tenant: &str) {
        self.generation += 1;
        let changed = self.flows.iter_mut().filter(|(known, _)| hash(known) == tenant);
        changed.for_each(|(_, flows)| flows.is_stale = true);
        self.changed.tenants.insert(tenant.to_owned());
    }

    fn forget_all(&mut self) {
        self.generation += 1;
        self.flows.values_mut().for_each(|flows| flows.is_stale = true);
        self.forgot = Some(Instant::now());
        self.changed.all = true;
    }
}

/// Returns the hash of a tenant's name, so that the document names no tenant.
fn hash(tenant: &Tenant) -> String {
    hex::encode(&Sha256::digest(tenant.as_str())[..16])
}
