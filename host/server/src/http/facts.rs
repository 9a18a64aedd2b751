//! The remembered facts of runs.

use std::{collections::HashMap, sync::Arc};

use flowcell_contract::{RunId, Tenant};
use flowcell_runtime::ports::{Pin, RunRow};
use parking_lot::Mutex;

use flowcell_platform::{Host, StartError, facts::RunFacts};

/// The maximum number of runs whose facts the server remembers. If there are this many, one of them is forgotten before
/// one more is added.
pub(crate) const MAX_REMEMBERED_FACTS: usize = 1_024;
/// The maximum size in bytes of the JSON text of an input that the server remembers. A larger one is read again.
pub(crate) const MAX_REMEMBERED_INPUT_BYTES: usize = 1_024;

/// The tenant and the id, the time of the start, which tells a run from an earlier one of a removed tenant, and the
/// version of the flow that the run uses now.
type Key = (Tenant, RunId, u64, Pin);

/// The facts of the runs that clients asked for last. Clients ask for the state of a run repeatedly, and these facts
/// change only if the run moves to another version of its flow.
#[derive(Default)]
pub(crate) struct RememberedFacts(Mutex<HashMap<Key, Remembered>>);

#[derive(Clone)]
struct Remembered {
    facts: Arc<RunFacts>,
    /// True if the input was too large to be remembered.
    lacks_input: bool,
}

impl RememberedFacts {
    /// Returns the facts of a run of the host's tenant, which uses the pinned flow now. Reads the store unless they are
    /// remembered.
    pub(crate) fn read(&self, host: &Host, row: &RunRow, pin: Pin) -> Result<Arc<RunFacts>, StartError> {
        let key = (host.tenant().clone(), row.run_id.clone(), row.created, pin);
        let known = self.0.lock().get(&key).cloned();
        if let Some(Remembered { facts, lacks_input }) = known {
            return match lacks_input {
                true => Ok(Arc::new(host.charged(|| RunFacts::clone(&facts).with_input(host, &row.run_id))?)),
                false => Ok(facts),
            };
        }
        let facts = Arc::new(host.charged(|| RunFacts::of(host, &row.run_id))?);
        // Facts that could not be read may be readable the next time.
        if facts.packs_unknown.is_none() && facts.input_unknown.is_none() {
            let bytes = facts.input.as_ref().map_or(0, |input| input.to_string().len());
            let lacks_input = bytes > MAX_REMEMBERED_INPUT_BYTES;
            let facts = if lacks_input { Arc::new(facts.without_input()) } else { facts.clone() };
            let mut known = self.0.lock();
            let forgotten = (known.len() >= MAX_REMEMBERED_FACTS).then(|| known.keys().next().cloned());
            forgotten.flatten().iter().for_each(|key| _ = known.remove(key));
            known.insert(key, Remembered { facts, lacks_input });
        }
        Ok(facts)
    }
}
