//! The sweep: the removal of runs, and of blobs that nothing refers to.

use flowcell_contract::{RunId, Tenant};
use serde::{Deserialize, Serialize};

use super::StoreError;

/// The result of a sweep.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Swept {
    /// The number of blobs that the sweep removed.
    pub blobs: u64,
    /// The number of bytes that the sweep removed.
    pub bytes: u64,
    /// The number of bytes by which the store's file has become smaller. 0 for other stores.
    #[serde(default)]
    pub file_bytes: u64,
    /// The files that may stay although nothing refers to them, with the reason, as a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files_left: Option<String>,
}

impl Swept {
    /// Adds the result of the removal of objects. The rows are gone, so its failure is no failure of the sweep.
    pub(crate) fn with_objects(self, removed: Result<(), StoreError>) -> Swept {
        let Err(error) = removed else { return self };
        let left =
            format!("files that nothing refers to stay in the object store until a later `flowcell runs gc`: {error}");
        tracing::warn!("{left}");
        Swept { files_left: Some(left), ..self }
    }
}

/// The reason why a store keeps a run in spite of a request to remove it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Undeletable {
    /// The run does not exist, or was removed.
    #[error("the run `{0}` does not exist")]
    Unknown(RunId),
    /// The run has not ended.
    #[error("the run `{run}` has not ended; its status is `{status}`")]
    NotEnded {
        /// The run.
        run: RunId,
        /// Its status: `running`, `parked` or `needs_attention`.
        status: String,
    },
    /// The run has ended, and a run below it is about to end.
    #[error("a run that the run `{0}` has called is about to end; try again in a moment")]
    EndsBelow(RunId),
    /// Another run has called the run. It is removed together with that one.
    #[error("the run `{run}` was called by the run `{parent}`; delete that one")]
    Called {
        /// The run.
        run: RunId,
        /// The run that has called it.
        parent: RunId,
    },
    /// Another process still holds the run.
    #[error("another process still holds the run `{0}`; try again in a moment")]
    Driven(RunId),
    /// A run that has not ended repeats the run, and still needs its outputs.
    #[error("the run `{run}` is still needed, because the run `{by}` repeats it and has not ended")]
    Repeated {
        /// The run.
        run: RunId,
        /// The run that repeats it.
        by: RunId,
    },
}

impl Undeletable {
    /// Returns a stable error code.
    pub fn code(&self) -> &'static str {
        match self {
            Undeletable::Unknown(_) => "run_not_found",
            Undeletable::NotEnded { .. } | Undeletable::EndsBelow(_) => "run_not_ended",
            Undeletable::Called { .. } => "called_run",
            Undeletable::Driven(_) => "run_driven",
            Undeletable::Repeated { .. } => "run_repeated",
        }
    }

    /// Returns the run that stays.
    pub fn run(&self) -> &RunId {
        match self {
            Undeletable::Unknown(run) | Undeletable::EndsBelow(run) | Undeletable::Driven(run) => run,
            Undeletable::NotEnded { run, .. } | Undeletable::Called { run, .. } | Undeletable::Repeated { run, .. } => {
                run
            }
        }
    }

    /// Returns the reason by the stored status of a run that has not ended.
    pub(crate) fn not_ended(run: &RunId, standing: &str, needs_attention: bool) -> Undeletable {
        let status = match standing {
            "active" => "running",
            _ if needs_attention => "needs_attention",
            other => other,
        };
        Undeletable::NotEnded { run: run.clone(), status: status.to_owned() }
    }
}

/// The runs that a store removes if it has to keep others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removing {
    /// The store removes each run that may be removed.
    Each,
    /// The store removes all of the runs or none.
    AllOrNone,
}

/// The result of a removal of runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// The removed runs.
    pub runs: Vec<RunId>,
    /// The runs that stay, each with the reason. With [`Removing::AllOrNone`], the runs that may be removed are missing
    /// here, although they stay, too.
    pub kept: Vec<Undeletable>,
}

/// Removes data that a store no longer needs.
pub trait Sweep: Send + Sync {
    /// Removes ended top runs, with the runs below them. No other run can have their ids afterwards. The store decides in
    /// the transaction of the removal which runs it keeps, and a run that repeats a removed run cannot begin after it.
    /// Returns when the removal is on stable storage.
    fn remove(&self, tenant: &Tenant, runs: &[RunId], removing: Removing) -> Result<Removed, StoreError>;

    /// Removes the blobs that no stored text refers to, except those that were put a short time ago. Waits until the
    /// sweep has ended.
    fn sweep(&self, tenant: &Tenant) -> Result<Swept, StoreError>;
}

/// The length of a hash in hexadecimal digits.
const HASH: usize = 64;

/// Returns the SHA-256 hashes in a text: all words of [`HASH`] hexadecimal digits.
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
