//! What stores that keep rows have in common: how a unit's row is checked, what leaves it, and what lists tell of runs.
//!
//! | room | what it is |
//! |---|---|
//! | `cut` | large values: cut out of rows, kept once, and put back |
//! | [`whole`] | whole stores: looked through, and copied from one kind to another |

pub(crate) mod cut;
pub mod whole;

use std::fmt::Display;

use flowcell_contract::{RunId, Tenant};
use serde::{Deserialize, Serialize};

use crate::{
    ports::{Journal, Standing, StoreError, Unit},
    result::RunStatus,
};

/// One run in a list.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunRow {
    /// Which run.
    pub run_id: RunId,
    /// Of which flow.
    pub flow: String,
    /// `active`, `parked`, `needs_attention`, `succeeded`, `failed` or `cancelled`.
    pub status: String,
    /// When it began, in milliseconds since 1970.
    pub created: u64,
    /// When its status changed last.
    pub updated: u64,
    /// When its next timer is due, if it is parked and has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due: Option<u64>,
}

/// Which runs a list has.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Only those of this flow.
    pub flow: Option<String>,
    /// Only those with this status.
    pub status: Option<String>,
    /// Only those that a list has after this run.
    pub after: Option<RunId>,
    /// At most so many, the latest first.
    pub limit: usize,
}

/// What a sweep has removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Swept {
    /// How many blobs.
    pub blobs: u64,
    /// How many bytes they had.
    pub bytes: u64,
}

/// What a store tells of its runs, always of the durable prefix. It fails if the store cannot answer.
pub trait Runs: Journal {
    /// A run as lists have it, and the number that its next event gets.
    fn run(&self, tenant: &Tenant, run: &RunId) -> Result<Option<(RunRow, u64)>, StoreError>;

    /// The runs that a run has called, in the order in which they began.
    fn children(&self, tenant: &Tenant, run: &RunId) -> Result<Vec<RunId>, StoreError>;

    /// Runs that somebody outside has started, the latest first.
    fn runs(&self, tenant: &Tenant, filter: &Filter) -> Result<Vec<RunRow>, StoreError>;

    /// How many runs that somebody outside has started are not over. It counts no further than `most`.
    fn live(&self, tenant: &Tenant, most: u64) -> Result<u64, StoreError>;

    /// Runs that somebody outside has started and that are over, in the order in which they ended: at a time or later, and
    /// after a run that was told before. At most `limit`.
    fn ended(
        &self,
        tenant: &Tenant,
        since: u64,
        after: Option<&RunId>,
        limit: usize,
    ) -> Result<Vec<RunRow>, StoreError>;

    /// Runs that are over, and ended before a time or are not among the `keep` that ended last.
    fn removable(&self, tenant: &Tenant, before: Option<u64>, keep: Option<u64>) -> Result<Vec<RunId>, StoreError>;

    /// Runs that somebody should drive: active ones that nobody drives, and parked ones with a timer that is due at
    /// `now`. At most `limit`.
    fn runnable(&self, tenant: &Tenant, now: u64, limit: usize) -> Result<Vec<RunId>, StoreError>;

    /// When the next timer of a parked run is due.
    fn next_due(&self, tenant: &Tenant) -> Result<Option<u64>, StoreError>;
}

/// A place between two units of a journal.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Place {
    /// The number of the fact that comes next.
    pub(crate) next_seq: u64,
    /// The checksum of the unit before.
    pub(crate) checksum: u32,
}

impl Place {
    /// Checks that a journal of which nothing more is there ends here.
    pub(crate) fn check_end(self, end: Place, run: &RunId) -> Result<(), StoreError> {
        if self == end { Ok(()) } else { Err(self.lost(run)) }
    }

    /// Checks that a journal of which nothing more is there has had no fact of this number.
    pub(crate) fn check_reaches(self, least: u64, run: &RunId) -> Result<(), StoreError> {
        if self.next_seq >= least { Ok(()) } else { Err(self.lost(run)) }
    }

    fn lost(self, run: &RunId) -> StoreError {
        damaged(run, &format!("what it had from event {} on is missing", self.next_seq))
    }
}

/// The row of a unit, as it was written.
pub(crate) struct UnitRow {
    pub(crate) first_seq: u64,
    pub(crate) facts: u64,
    pub(crate) ts: u64,
    pub(crate) body: String,
    pub(crate) cuts: Option<String>,
    pub(crate) checksum: u32,
}

impl UnitRow {
    /// Checks that the row is whole and comes right after a place.
    pub(crate) fn check(&self, before: Place, run: &RunId) -> Result<(), StoreError> {
        let expected = checksum(before.checksum, self.first_seq, self.ts, &self.body, self.cuts.as_deref());
        if expected != self.checksum {
            return Err(damaged(run, &format!("the checksum at event {} is wrong", self.first_seq)));
        }
        if self.first_seq != before.next_seq {
            let (from, to) = (before.next_seq, self.first_seq);
            return Err(damaged(run, &format!("there is nothing between event {from} and {to}")));
        }
        Ok(())
    }

    /// The place after the unit.
    pub(crate) fn place_after(&self) -> Place {
        Place { next_seq: self.first_seq + self.facts, checksum: self.checksum }
    }

    /// The unit, and how many bytes it has, once what was cut out of its body is back.
    pub(crate) fn whole(self, body: Result<String, String>, run: &RunId) -> Result<(Unit, usize), StoreError> {
        let body = body.map_err(|why| damaged(run, &format!("at event {}: {why}", self.first_seq)))?;
        // A value may be nested as deep as JSON may be, and a fact holds it some levels further down.
        let mut reading = serde_json::Deserializer::from_str(&body);
        reading.disable_recursion_limit();
        let facts = Vec::deserialize(&mut reading).map_err(|error| damaged(run, &error))?;
        Ok((Unit { first_seq: self.first_seq, ts: self.ts, facts }, body.len()))
    }
}

/// Says that what is kept of a run is not what was written.
pub(crate) fn damaged(run: &RunId, why: &dyn Display) -> StoreError {
    StoreError(format!("the journal of run `{run}` is damaged: {why}").into())
}

/// Says that a run's id is used up.
pub(crate) fn removed(run: &RunId) -> StoreError {
    StoreError(format!("the run `{run}` was removed, and its id is not used again").into())
}

/// Covers a row and, through the checksum before, all rows before it.
pub(crate) fn checksum(before: u32, first_seq: u64, ts: u64, body: &str, cuts: Option<&str>) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(before);
    hasher.update(&first_seq.to_le_bytes());
    hasher.update(&ts.to_le_bytes());
    hasher.update(body.as_bytes());
    hasher.update(cuts.unwrap_or_default().as_bytes());
    hasher.finalize()
}

/// The columns of a standing: its name, when the next timer is due, whether somebody has to decide something.
pub(crate) fn describe(standing: Standing) -> (&'static str, Option<u64>, bool) {
    match standing {
        Standing::Parked { due, needs_attention } => ("parked", due, needs_attention),
        Standing::Ended(RunStatus::Succeeded) => ("succeeded", None, false),
        Standing::Ended(RunStatus::Failed) => ("failed", None, false),
        Standing::Ended(RunStatus::Cancelled) => ("cancelled", None, false),
        Standing::Active | Standing::Ended(_) => ("active", None, false),
    }
}

/// Characters of a hash in hexadecimal.
const HASH: usize = 64;

/// The hashes that a text names.
pub(crate) fn hashes(text: &[u8]) -> impl Iterator<Item = &str> {
    let words = text.split(|byte| !matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    words.filter(|word| word.len() == HASH).filter_map(|word| std::str::from_utf8(word).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_a_whole_word() {
        let hash = "0123456789abcdef".repeat(4);
        let text = format!("{{\"a\":\"{hash}\",\"b\":\"sha256:{hash}\",\"c\":\"{hash}0\",\"d\":\"é{}\"}}", &hash[1..]);
        assert_eq!(hashes(text.as_bytes()).collect::<Vec<_>>(), [hash.as_str(), hash.as_str()]);
    }
}
