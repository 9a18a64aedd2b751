//! What Restate has recorded of a run tree, as far as an invocation's handler knows: heads, and units that the object's state
//! does not have yet.
//!
//! Only values that Restate has recorded change it, so a handler that runs again makes the same changes of the state.

use std::collections::{BTreeMap, HashMap};

use flowcell_contract::RunId;
use restate_sdk::prelude::*;

use crate::wire::{Head, Status, StoredUnit};

/// The maximum bytes of a page of units, unless one unit is larger.
const MAX_PAGE_BYTES: usize = 128 << 10;

/// Returns the key of the state with the head of a run.
pub(crate) fn head_key(run: &RunId) -> String {
    format!("h/{run}")
}

/// Returns the key of the state with a page of units of a run. `first` is the number of the first fact.
pub(crate) fn page_key(run: &RunId, first: u64) -> String {
    format!("u/{run}/{first:020}")
}

/// The state of a run tree, as far as an invocation has touched it.
pub(crate) struct Recorded {
    pub(crate) heads: BTreeMap<RunId, Head>,
    /// The units of this invocation, in order.
    pub(crate) units: Vec<StoredUnit>,
    /// The number of leading units that the state has.
    published: usize,
    /// False if the invocation has changed what lists show.
    pub(crate) is_listed: bool,
}

impl Default for Recorded {
    fn default() -> Recorded {
        Recorded { heads: BTreeMap::new(), units: Vec::new(), published: 0, is_listed: true }
    }
}

impl Recorded {
    /// Reads the heads of runs that the invocation has not touched before.
    pub(crate) async fn read_heads(
        &mut self,
        ctx: &ObjectContext<'_>,
        units: &[StoredUnit],
    ) -> Result<(), TerminalError> {
        for unit in units {
            if !self.heads.contains_key(&unit.run)
                && let Some(Json(head)) = ctx.get::<Json<Head>>(&head_key(&unit.run)).await?
            {
                self.heads.insert(unit.run.clone(), head);
            }
        }
        Ok(())
    }

    /// Returns the number of leading units that each follow the last fact of their run, or begin it. The
    /// heads of their runs are read before. The others never become facts: the unit before one of them is lost.
    pub(crate) fn count_fitting(&self, units: &[StoredUnit]) -> usize {
        let mut nexts: HashMap<&RunId, u64> = HashMap::new();
        for (count, unit) in units.iter().enumerate() {
            let known = nexts.insert(&unit.run, unit.next).or_else(|| self.heads.get(&unit.run).map(|head| head.next));
            if !known.map_or(unit.first == 0 && unit.record.is_some(), |next| next == unit.first) {
                return count;
            }
        }
        units.len()
    }

    /// Adds the facts of units that fit.
    pub(crate) fn add(&mut self, units: &[StoredUnit]) {
        units.iter().for_each(|unit| self.add_unit(unit));
    }

    fn add_unit(&mut self, unit: &StoredUnit) {
        match (self.heads.get_mut(&unit.run), &unit.record) {
            (Some(head), _) if unit.first != head.next => return,
            (Some(head), record) => {
                head.next = unit.next;
                if let Some(record) = record {
                    (head.record, head.record_seq, head.listed) = (record.clone(), unit.next, unit.next);
                }
                if let Some(status) = &unit.status {
                    (head.status, head.listed) = (status.clone(), unit.next);
                    head.note = unit.note.clone().unwrap_or_default();
                }
            }
            (None, Some(record)) if unit.first == 0 => {
                let note = unit.note.clone().unwrap_or_default();
                let head = Head {
                    next: unit.next,
                    record: record.clone(),
                    record_seq: unit.next,
                    status: unit.status.clone().unwrap_or(Status::Active),
                    created: note.ts,
                    note,
                    listed: unit.next,
                    pages: Vec::new(),
                    heard: 0,
                };
                self.heads.insert(unit.run.clone(), head);
            }
            // A unit that follows nothing is never committed.
            (None, _) => return,
        }
        self.is_listed &= unit.status.is_none() && unit.record.is_none();
        self.units.push(unit.clone());
    }

    /// Records the number of the last message that the tree has heard.
    pub(crate) fn hear(&mut self, top: &RunId, outcomes: &[(u64, String)]) {
        if let Some(head) = self.heads.get_mut(top) {
            head.heard = outcomes.iter().map(|(number, _)| *number).fold(head.heard, u64::max);
        }
    }

    /// Returns true if the state lacks units.
    pub(crate) fn has_unpublished(&self) -> bool {
        self.published < self.units.len()
    }

    /// Writes the units that the state lacks to the state, with the heads of their runs.
    pub(crate) fn publish(&mut self, ctx: &ObjectContext<'_>) {
        let mut by_run: BTreeMap<&RunId, Vec<&StoredUnit>> = BTreeMap::new();
        for unit in &self.units[self.published..] {
            by_run.entry(&unit.run).or_default().push(unit);
        }
        for (run, units) in by_run {
            let Some(head) = self.heads.get_mut(run) else { continue };
            let mut page = String::new();
            let mut first = 0;
            for unit in units {
                let text = unit.unit.get();
                if !page.is_empty() && page.len() + text.len() > MAX_PAGE_BYTES {
                    page.push(']');
                    ctx.set(&page_key(run, first), std::mem::take(&mut page).into_bytes());
                }
                if page.is_empty() {
                    first = unit.first;
                    head.pages.push(first);
                    page.push('[');
                } else {
                    page.push(',');
                }
                page.push_str(text);
            }
            page.push(']');
            ctx.set(&page_key(run, first), page.into_bytes());
            ctx.set(&head_key(run), Json(head.clone()));
        }
        self.published = self.units.len();
    }

    /// Forgets the first units, which the state has.
    pub(crate) fn forget(&mut self, count: usize) {
        let count = count.min(self.published);
        self.units.drain(..count);
        self.published -= count;
    }

    /// Returns the number of units that the state has.
    pub(crate) fn published(&self) -> usize {
        self.published
    }
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::*;

    fn unit(run: &str, first: u64, next: u64) -> StoredUnit {
        let text = || RawValue::from_string("null".to_owned()).unwrap();
        StoredUnit {
            run: run.into(),
            first,
            next,
            unit: text(),
            record: (first == 0).then(text),
            status: None,
            note: None,
            writes: None,
            delivered: None,
        }
    }

    #[test]
    fn a_unit_after_a_lost_one_does_not_fit() {
        let mut recorded = Recorded::default();
        recorded.add(&[unit("a", 0, 2)]);
        for (units, fitting) in [
            (vec![unit("a", 2, 3), unit("a", 3, 5)], 2),
            (vec![unit("a", 2, 3), unit("b", 0, 1), unit("a", 4, 5), unit("b", 1, 2)], 2),
            (vec![unit("a", 3, 4)], 0),
            (vec![unit("a", 0, 2)], 0),
            (vec![unit("b", 1, 2)], 0),
        ] {
            assert_eq!(recorded.count_fitting(&units), fitting, "{units:?}");
        }
    }
}
