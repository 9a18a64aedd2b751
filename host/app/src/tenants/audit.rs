//! The audit log: what was done in the name of a tenant, and by whom. Each entry holds the hash of the one before, so that
//! an entry that is changed, moved or taken away breaks the chain. Whether the end of a chain was taken away is known to
//! whoever has noted an earlier head.

use flowcell_contract::Tenant;
use flowcell_runtime::ports::Registry;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{PAGE, TenantError, Tenants, read, to_json};

const AUDIT: &str = "audit";
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
    /// By whom: `operator`, or the name of a token.
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

/// What was found when a log was verified.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Verified {
    /// How many entries there are.
    pub entries: u64,
    /// The hash of the last one, for whoever wants to know later whether it is still there.
    pub head: String,
    /// What is wrong, each in a sentence.
    pub damage: Vec<String>,
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

    fn digest(&self) -> String {
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

fn key(seq: u64) -> String {
    format!("{seq:016x}")
}

/// Appends an entry. It is on stable storage when this returns.
pub(super) fn append(registry: &dyn Registry, tenant: &Tenant, ts: u64, act: &Act) -> Result<(), TenantError> {
    for _ in 0..TRIES {
        let last = registry.last_registered(tenant, AUDIT)?;
        let last: Option<AuditEntry> = last.as_ref().map(read).transpose()?;
        let entry = AuditEntry::after(last.as_ref(), ts, act);
        let key = key(entry.seq);
        if registry.register(tenant, AUDIT, &key, Some(&to_json(&key, &entry)?), 0)? {
            return Ok(());
        }
    }
    Err(TenantError::Changed(format!("the audit log of {tenant}")))
}

impl Tenants {
    /// The entries of a tenant after one, at most `limit`.
    pub fn audit(&self, tenant: &str, after: u64, limit: usize) -> Result<Vec<AuditEntry>, TenantError> {
        let tenant = Tenant::from(tenant);
        let found = self.registry().registered_after(&tenant, AUDIT, &key(after), limit)?;
        found.iter().map(read).collect()
    }

    /// Looks through the whole log of a tenant. A head that was noted earlier must be in it.
    pub fn verify_audit(&self, tenant: &str, noted: Option<&str>) -> Result<Verified, TenantError> {
        let mut verified = Verified { entries: 0, head: String::new(), damage: Vec::new() };
        let (mut at, mut seen) = (0, noted.is_none());
        loop {
            let page = self.audit(tenant, at, PAGE)?;
            let Some(last) = page.last() else { break };
            for entry in &page {
                verified.look_at(entry, at + 1);
                seen |= noted == Some(&*entry.hash);
                at = entry.seq;
            }
            at = at.max(last.seq);
        }
        if let Some(noted) = noted.filter(|_| !seen) {
            verified.damage.push(format!("no entry has the hash {noted}: the end of the log was taken away"));
        }
        Ok(verified)
    }
}

impl Verified {
    fn look_at(&mut self, entry: &AuditEntry, expected: u64) {
        let mut wrong = |what: &str| self.damage.push(format!("entry {}: {what}", entry.seq));
        if entry.seq != expected {
            wrong(&format!("entries from {expected} on are missing before it"));
        }
        if entry.digest() != entry.hash {
            wrong("it was changed");
        }
        if entry.previous != self.head {
            wrong("it does not follow the entry before it");
        }
        self.entries += 1;
        self.head.clone_from(&entry.hash);
    }
}
