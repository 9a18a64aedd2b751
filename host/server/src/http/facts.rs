//! The remembered facts of runs.

use std::{collections::HashMap, sync::Arc};

use flowcell_contract::{RunId, Tenant};
use flowcell_runtime::ports::RunRow;
use parking_lot::Mutex;

use flowcell_platform::{Host, StartError, facts::RunFacts};

/// The maximum number of runs whose facts the server remembers. If there are this many, all of them are forgotten
/// before one more is added.
pub(crate) const MAX_REMEMBERED_FACTS: usize = 1_024;

/// The tenant, the id and the time of the start, which tells a run from an earlier one of a removed tenant.
type Key = (Tenant, RunId, u64);

/// The facts of the runs that clients asked for last. Clients ask for the state of a run repeatedly, and these facts do
/// not change.
#[derive(Default)]
pub(crate) struct RememberedFacts(Mutex<HashMap<Key, Arc<RunFacts>>>);

impl RememberedFacts {
    /// Returns the facts of a run of the host's tenant. Reads the store unless they are remembered.
    pub(crate) fn read(&self, host: &Host, row: &RunRow) -> Result<Arc<RunFacts>, StartError> {
        let key = (host.tenant().clone(), row.run_id.clone(), row.created);
        if let Some(facts) = self.0.lock().get(&key) {
            return Ok(facts.clone());
        }
        let facts = Arc::new(host.charged(|| RunFacts::of(host, &row.run_id))?);
        // Facts that could not be read may be readable the next time.
        if facts.packs_unknown.is_none() {
            let mut known = self.0.lock();
            if known.len() >= MAX_REMEMBERED_FACTS {
                known.clear();
            }
            known.insert(key, facts.clone());
        }
        Ok(facts)
    }
}
