//! The state of flows in the cluster: one object for each tenant and flow.
//!
//! A commit with writes is a proposal. The handler asks the object of the flow to write, and the units of the commit
//! become facts only if the object accepts: all present versions are the expected ones. So writes and facts agree,
//! whatever crashes, and of two runs that write the same version one succeeds.
//!
//! In one process, a run that reads or writes a key waits until the earlier write of the key is decided. Only the thread
//! that has staged a write sees it before the write has its entry, which follows in the same turn of the driver.

use std::{
    collections::HashMap,
    sync::Arc,
    thread::ThreadId,
    time::{Duration, Instant},
};

use flowcell_contract::{Tenant, Value};
use flowcell_runtime::{
    fact::Write,
    ports::{StageError, Staged, StateStore, StoreError},
};
use parking_lot::{Condvar, Mutex};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{RestateStore, wire};

/// The time for which a run waits for an earlier write. A write without a decision for longer has no driver any more.
const DECISION_PATIENCE: Duration = Duration::from_secs(5);

/// A value with its version.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Versioned {
    pub(crate) value: Box<RawValue>,
    pub(crate) version: u64,
}

type StateKey = (Tenant, Arc<str>, String);

/// The writes that are not decided yet.
#[derive(Default)]
pub(crate) struct Undecided {
    writes: Mutex<HashMap<StateKey, PendingWrite>>,
    decided: Condvar,
}

/// A write that is not decided yet.
struct PendingWrite {
    value: Value,
    version: u64,
    /// The thread that has staged the write. `None`: the write has its entry.
    thread: Option<ThreadId>,
}

/// Keeps the keys of an entry undecided until this value is dropped.
pub(crate) struct Decision(Arc<Undecided>, Vec<StateKey>);

impl Undecided {
    /// Takes over the keys of an entry.
    pub(crate) fn of_entry(self: &Arc<Undecided>, tenant: &Tenant, staged: &Staged) -> Decision {
        let keys = staged.writes.iter().map(|(write, _)| (tenant.clone(), staged.flow.clone(), write.key.clone()));
        let keys: Vec<_> = keys.collect();
        let mut writes = self.writes.lock();
        for key in &keys {
            if let Some(write) = writes.get_mut(key) {
                write.thread = None;
            }
        }
        Decision(self.clone(), keys)
    }

    /// Waits until the last write of a key is decided. Returns the write if this thread has staged it.
    fn settled(&self, key: &StateKey) -> Option<(Value, u64)> {
        let mut writes = self.writes.lock();
        let (until, here) = (Instant::now() + DECISION_PATIENCE, std::thread::current().id());
        loop {
            let write = writes.get(key)?;
            if write.thread == Some(here) {
                return Some((write.value.clone(), write.version));
            }
            if self.decided.wait_until(&mut writes, until).timed_out() {
                writes.remove(key);
                return None;
            }
        }
    }

    fn add(&self, key: StateKey, value: Value, version: u64) {
        let write = PendingWrite { value, version, thread: Some(std::thread::current().id()) };
        self.writes.lock().insert(key, write);
    }
}

impl Drop for Decision {
    fn drop(&mut self) {
        let mut writes = self.0.writes.lock();
        for key in &self.1 {
            writes.remove(key);
        }
        self.0.decided.notify_all();
    }
}

/// Returns a value in the view of this thread, with its version.
fn visible(store: &RestateStore, key: &StateKey) -> Result<Option<(Value, u64)>, StoreError> {
    if let Some(staged) = store.shared.undecided.settled(key) {
        return Ok(Some(staged));
    }
    let (shared, wanted) = (store.shared.clone(), key.clone());
    let found = store.shared.block_on(async move { shared.state(&wanted.0, &wanted.1, &wanted.2).await })?;
    let Some(found) = found else { return Ok(None) };
    let damaged = |error| {
        let (_, flow, key) = key;
        StoreError::damaged(format!("the state `{key}` of the flow `{flow}` is damaged: {error}"))
    };
    Ok(Some((wire::parse(found.value.get()).map_err(damaged)?, found.version)))
}

impl StateStore for RestateStore {
    fn get(&self, tenant: &Tenant, flow: &str, key: &str) -> Result<Option<(Value, u64)>, StoreError> {
        visible(self, &(tenant.clone(), flow.into(), key.to_owned()))
    }

    fn stage(&self, tenant: &Tenant, flow: &Arc<str>, writes: Vec<Write>) -> Result<Staged, StageError> {
        let key = |key: &str| (tenant.clone(), flow.clone(), key.to_owned());
        let version = |name: &str| Ok(visible(self, &key(name))?.map_or(0, |(_, version)| version));
        let staged = Staged::assign_versions(flow, writes, version)?;
        for (write, version) in &staged.writes {
            self.shared.undecided.add(key(&write.key), write.value.clone(), *version);
        }
        Ok(staged)
    }
}
