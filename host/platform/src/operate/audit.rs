//! The audit log: what was done in the name of a tenant, and by whom. Each entry holds the hash of the one before, so that
//! an entry that is changed, moved or taken away breaks the chain. Whether the end of a chain was taken away is known to
//! whoever has noted an earlier head.

use flowcell_contract::Tenant;
use flowcell_runtime::ports::DocumentStore;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::operate::documents::{DocumentError, Documents};

pub(crate) const AUDIT: &str = "audit";
/// How often an entry is tried again while others append to the same chain.
const TRIES: usize = 100;
/// Characters that are kept of a name that somebody else has chosen.
const MAX_TEXT: usize = 256;

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// It was done.
    Done,
    /// It was refused.
    Refused,
}

/// Something that was done, or tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Act {
    /// By whom: `operator`, `host`, or the name of a token.
    pub actor: String,
    /// What, such as `token.create`.
    pub action: String,
    /// To what.
    pub subject: String,
    /// What came of it.
    pub outcome: Outcome,
}

/// An entry of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditEntry {
    /// Counts the entries of the tenant, from 1.
    pub seq: u64,
    /// When, in milliseconds since 1970.
    pub ts: u64,
    /// By whom.
    pub actor: String,
    /// What.
    pub action: String,
    /// To what.
    pub subject: String,
    /// What came of it.
    pub outcome: Outcome,
    /// The hash of the entry before; of the first it is empty.
    pub previous: String,
    /// SHA-256 over all of the above, in hexadecimal.
    pub hash: String,
}

impl AuditEntry {
    fn after(last: Option<&AuditEntry>, ts: u64, act: &Act) -> AuditEntry {
        let cut = |text: &str| text.chars().take(MAX_TEXT).collect::<String>();
        let mut entry = AuditEntry {
            seq: last.map_or(1, |last| last.seq + 1),
            ts,
            actor: cut(&act.actor),
            action: cut(&act.action),
            subject: cut(&act.subject),
            outcome: act.outcome,
            previous: last.map_or_else(String::new, |last| last.hash.clone()),
            hash: String::new(),
        };
        entry.hash = entry.digest();
        entry
    }

    /// What its hash is, if nothing was changed.
    pub(crate) fn digest(&self) -> String {
        let mut hasher = Sha256::new();
        let outcome = match self.outcome {
            Outcome::Done => "done",
            Outcome::Refused => "refused",
        };
        hasher.update(self.seq.to_le_bytes());
        hasher.update(self.ts.to_le_bytes());
        for part in [&self.previous, &self.actor, &self.action, &self.subject, outcome] {
            hasher.update((part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        hex::encode(hasher.finalize())
    }
}

/// The key of an entry.
pub(crate) fn key(seq: u64) -> String {
    format!("{seq:016x}")
}

/// Appends an entry. It is on stable storage when this returns.
pub(crate) fn append(documents: &dyn DocumentStore, tenant: &Tenant, ts: u64, act: &Act) -> Result<(), DocumentError> {
    let log = Documents { store: documents, tenant };
    for _ in 0..TRIES {
        let entry = AuditEntry::after(log.last(AUDIT)?.as_ref(), ts, act);
        if log.put(AUDIT, &key(entry.seq), Some(&entry), 0)? {
            return Ok(());
        }
    }
    Err(DocumentError::Changed(format!("the audit log of {tenant}")))
}
