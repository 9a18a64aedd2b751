//! Reads and verifies audit logs.

use flowcell_contract::Tenant;
use serde::Serialize;

use super::{PAGE, TOKEN, TenantError, Tenants, token::Token};
use crate::operate::{
    audit::{AUDIT, find_last},
    documents::Documents,
};

pub use crate::operate::audit::{Act, AuditEntry, Outcome};

/// Number of the last entries of a log that a search reads.
pub const MAX_SEARCHED_ENTRIES: u64 = 2_000;

/// The result of verifying a log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Verified {
    /// The number of entries.
    pub entries: u64,
    /// The hash of the last entry, for a later comparison.
    pub head: String,
    /// The damage found, one sentence each.
    pub damage: Vec<String>,
}

/// Performs [`Tenants::verify_audit`].
pub(super) fn verify(tenants: &Tenants, tenant: &str, noted: Option<&str>) -> Result<Verified, TenantError> {
    let mut verified = Verified { entries: 0, head: String::new(), damage: Vec::new() };
    let (mut at, mut seen) = (0, noted.is_none());
    loop {
        let page = tenants.audit(tenant, at, PAGE)?;
        let Some(last) = page.last() else { break };
        for entry in &page {
            verified.check_entry(entry, at + 1);
            seen |= noted == Some(&*entry.hash);
            at = entry.seq;
        }
        at = at.max(last.seq);
    }
    if let Some(noted) = noted.filter(|_| !seen) {
        verified.damage.push(format!("no entry has the hash {noted}: the end of the log is missing"));
    }
    Ok(verified)
}

/// Finds the latest of the last [`MAX_SEARCHED_ENTRIES`] entries of a tenant's log that `matches` accepts. Returns it with
/// the name of the token that is its actor, or an empty name if the actor is no token with a name.
pub fn find_last_entry(
    tenants: &Tenants,
    tenant: &str,
    matches: impl Fn(&AuditEntry) -> bool,
) -> Result<Option<(AuditEntry, String)>, TenantError> {
    let log = Tenant::from(tenant);
    let Some(entry) = find_last(tenants.document_store(), &log, MAX_SEARCHED_ENTRIES, matches)? else {
        return Ok(None);
    };
    let token: Option<(Token, u64)> = tenants.get(TOKEN, &entry.actor)?;
    let token = token.map(|(token, _)| token).filter(|token| token.tenant == tenant);
    Ok(Some((entry, token.map(|token| token.name).unwrap_or_default())))
}

/// Returns the number of the last entry of a tenant's log, or 0.
pub fn last_entry(tenants: &Tenants, tenant: &str) -> Result<u64, TenantError> {
    let log = Tenant::from(tenant);
    Ok(Documents { store: tenants.document_store(), tenant: &log }
        .last::<AuditEntry>(AUDIT)?
        .map_or(0, |last| last.seq))
}

/// Returns the entries of a tenant's log after a sequence number, at most `limit`, with the damage that they show: one
/// sentence each. Checks that they follow the entry before them, too.
pub fn checked_page(
    tenants: &Tenants,
    tenant: &str,
    after: u64,
    limit: usize,
) -> Result<(Vec<AuditEntry>, Vec<String>), TenantError> {
    let before = tenants.audit(tenant, after.saturating_sub(1), usize::from(after > 0))?;
    let entries = tenants.audit(tenant, after, limit)?;
    let head = before.first().filter(|entry| entry.seq == after).map(|entry| entry.hash.clone());
    let mut verified = Verified { entries: 0, head: head.unwrap_or_default(), damage: Vec::new() };
    let mut expected = after + 1;
    for entry in &entries {
        verified.check_entry(entry, expected);
        expected = entry.seq + 1;
    }
    Ok((entries, verified.damage))
}

impl Verified {
    fn check_entry(&mut self, entry: &AuditEntry, expected: u64) {
        let mut wrong = |what: &str| self.damage.push(format!("entry {}: {what}", entry.seq));
        if entry.seq != expected {
            wrong(&format!("the entries from {expected} before it are missing"));
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
