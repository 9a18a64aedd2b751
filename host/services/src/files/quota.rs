//! Counts the bytes and the entries of each tenant's files, and refuses changes that would exceed the limits.

use std::{collections::HashMap, io, sync::Arc};

use cap_fs_ext::DirExt;
use cap_std::fs::Dir;
use flowcell_contract::{Failure, Tenant};
use parking_lot::Mutex;

use super::{Limits, failures::failed};
use crate::code;

/// Number of changes after which the host counts the files again. Its counts become wrong if other programs change
/// files.
const CHANGES_UNTIL_RECOUNT: u32 = 256;
/// Maximum depth of folders whose files are counted. The paths that nodes may use are never deeper.
pub(super) const MAX_DEPTH: u32 = 64;

/// The counts of all tenants. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Quotas(Arc<Mutex<HashMap<Tenant, Quota>>>);

/// The count of one tenant. Clones share it.
#[derive(Clone, Default)]
pub(super) struct Quota(Arc<Mutex<Count>>);

#[derive(Default)]
struct Count {
    used: Option<Used>,
    changes: u32,
}

/// The bytes, and the number of files and folders, of a tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Used {
    pub(super) bytes: u64,
    pub(super) entries: u64,
}

impl Quotas {
    pub(super) fn for_tenant(&self, tenant: &Tenant) -> Quota {
        self.0.lock().entry(tenant.clone()).or_default().clone()
    }
}

impl Quota {
    /// Adds `more`, the usage of a change, to the count, or fails with `quota_exceeded`. `top` is the tenant's folder.
    /// Before it fails, it counts the files again, so that an outdated count alone never causes the failure.
    pub(super) fn take(&self, top: &Dir, more: Used, limits: &Limits) -> Result<(), Failure> {
        let mut known = self.0.lock();
        let old = known.used.filter(|used| known.changes < CHANGES_UNTIL_RECOUNT && fits(*used, more, limits));
        let used = match old {
            Some(used) => used,
            None => {
                known.changes = 0;
                count(top, MAX_DEPTH).map_err(|error| failed("the tenant's folder", &error))?
            }
        };
        known.used = Some(used);
        if !fits(used, more, limits) {
            return Err(quota_failure(used, limits));
        }
        known.used = Some(Used { bytes: used.bytes + more.bytes, entries: used.entries + more.entries });
        known.changes += 1;
        Ok(())
    }

    /// Subtracts `less` from the count: what a change has freed, or what [`Quota::take`] added for a change that then
    /// failed.
    pub(super) fn give_back(&self, less: Used) {
        if let Some(used) = &mut self.0.lock().used {
            used.bytes = used.bytes.saturating_sub(less.bytes);
            used.entries = used.entries.saturating_sub(less.entries);
        }
    }
}

fn fits(used: Used, more: Used, limits: &Limits) -> bool {
    used.bytes.saturating_add(more.bytes) <= limits.total && used.entries.saturating_add(more.entries) <= limits.entries
}

fn quota_failure(used: Used, limits: &Limits) -> Failure {
    let message = format!(
        "the tenant's files would exceed {} bytes or {} files and folders; they have {} bytes in {} entries; remove \
         some",
        limits.total, limits.entries, used.bytes, used.entries
    );
    Failure::new(code::QUOTA_EXCEEDED, message)
}

/// Counts the entries of a folder at all depths. Links are neither counted nor followed.
pub(super) fn count(dir: &Dir, depth: u32) -> io::Result<Used> {
    let mut used = Used::default();
    for entry in dir.entries()? {
        let entry = entry?;
        let Ok(metadata) = entry.metadata() else { continue };
        used.entries += 1;
        used.bytes += if metadata.is_file() { metadata.len() } else { 0 };
        if metadata.is_dir() && depth > 0 {
            // Another program removed the folder in the meantime.
            let Ok(below) = dir.open_dir_nofollow(entry.file_name()) else { continue };
            let below = count(&below, depth - 1)?;
            used.bytes += below.bytes;
            used.entries += below.entries;
        }
    }
    Ok(used)
}
