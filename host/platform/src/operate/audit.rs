//! The audit log: the actions on a tenant, with their actors. Each entry contains the hash of the entry before. So a
//! changed, moved or removed entry breaks the chain. If the last entries are removed, the chain stays valid. To detect
//! that, an operator notes the head, which is the hash of the last entry, and later checks that the log still has it.

use flowcell_contract::Tenant;
use flowcell_runtime::ports::DocumentStore;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::operate::documents::{DocumentError, Documents, read};

pub(crate) const AUDIT: &str = "audit";
/// The number of entries that a search reads at a time.
const SEARCH_PAGE: u64 = 200;
/// Maximum number of tries to append an entry while other writers append to the same chain.
const MAX_WRITE_TRIES: usize = 100;
/// Maximum number of characters of a caller's text in an entry.
const MAX_TEXT_CHARS: usize = 256;

/// The outcome of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// The action was done.
    Done,
    /// The action was refused.
    Refused,
}

/// An action that was done or tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Act {
    /// The actor: `operator`, `host`, or the id of a token.
    pub actor: String,
    /// The kind of action, such as `token.create`.
    pub action: String,
    /// The object of the action, such as a name.
    pub subject: String,
    /// The outcome of the action.
    pub outcome: Outcome,
}

/// An entry of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditEntry {
    /// The number of the entry in the tenant's log, from 1.
    pub seq: u64,
    /// The time of the action, in milliseconds since 1970.
    pub ts: u64,
    /// The actor: `operator`, `host`, or the id of a token.
    pub actor: String,
    /// The kind of action, such as `token.create`.
    pub action: String,
    /// The object of the action, such as a name.
    pub subject: String,
    /// The outcome of the action.
    pub outcome: Outcome,
    /// The hash of the entry before. Empty for the first entry.
    pub previous: String,
    /// SHA-256 over all of the above, in hexadecimal.
    pub hash: String,
}

impl AuditEntry {
    fn after(last: Option<&AuditEntry>, ts: u64, act: &Act) -> AuditEntry {
        let cut = |text: &str| text.chars().take(MAX_TEXT_CHARS).collect::<String>();
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

    /// Computes the hash of the entry's content.
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

/// Returns the document key of an entry.
pub(crate) fn key(seq: u64) -> String {
    format!("{seq:016x}")
}

/// Appends an entry, and returns once it is on stable storage.
pub(crate) fn append(documents: &dyn DocumentStore, tenant: &Tenant, ts: u64, act: &Act) -> Result<(), DocumentError> {
    let log = Documents { store: documents, tenant };
    for _ in 0..MAX_WRITE_TRIES {
        let entry = AuditEntry::after(log.last(AUDIT)?.as_ref(), ts, act);
        if log.put(AUDIT, &key(entry.seq), Some(&entry), 0)? {
            return Ok(());
        }
    }
    Err(DocumentError::Changed(format!("the audit log of {tenant}")))
}

/// Searches the last `most` entries of a log, the latest first, for one that `matches` accepts.
pub(crate) fn find_last(
    documents: &dyn DocumentStore,
    tenant: &Tenant,
    most: u64,
    matches: impl Fn(&AuditEntry) -> bool,
) -> Result<Option<AuditEntry>, DocumentError> {
    let log = Documents { store: documents, tenant };
    let mut end = log.last::<AuditEntry>(AUDIT)?.map_or(0, |last| last.seq);
    let least = end.saturating_sub(most);
    while end > least {
        let after = end.saturating_sub(SEARCH_PAGE).max(least);
        let page = documents.list(tenant, AUDIT, &key(after), (end - after) as usize)?;
        for found in page.iter().rev() {
            let entry = read(found)?;
            if matches(&entry) {
                return Ok(Some(entry));
            }
        }
        end = after;
    }
    Ok(None)
}
