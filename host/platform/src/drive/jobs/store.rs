//! The documents of jobs.
//!
//! A job that has not ended is a document of the kind [`LIVE`] of the operators' tenant, so that one query lists the
//! live jobs of all tenants. An ended job is a document of the kind [`ENDED`] there. The keys are the name of the
//! tenant, `/`, and the id of the job.
//!
//! A document of the kind [`KEY`] has the id of the job that an idempotency key creates. Its key ends with the digest
//! of the idempotency key. Processes on a shared store that get the same request at the same time thus write the same
//! document of a job, which only one of them creates.

use flowcell_contract::Tenant;
use flowcell_runtime::ports::Document;
use serde::{Deserialize, Serialize};

use super::record::StoredJob;
use crate::{
    Host,
    operate::{
        documents::{DocumentError, Documents, read},
        policy::OPERATORS,
    },
};

/// The kind of the documents of jobs that have not ended.
const LIVE: &str = "job";
/// The kind of the documents of ended jobs.
const ENDED: &str = "job-ended";
/// The kind of the documents of idempotency keys.
const KEY: &str = "job-key";
/// Number of documents that are read at a time.
const PAGE: usize = 100;
/// Maximum number of ended jobs of a tenant that are kept.
pub(super) const MAX_ENDED_JOBS: usize = 100;

/// The document of an idempotency key.
#[derive(Serialize, Deserialize)]
struct StoredKey {
    /// The id of the job.
    job: String,
}

/// The documents of jobs in a store.
pub(super) struct JobStore<'a> {
    host: &'a Host,
    operators: Tenant,
}

impl JobStore<'_> {
    pub(super) fn of(host: &Host) -> JobStore<'_> {
        JobStore { host, operators: Tenant::from(OPERATORS) }
    }

    fn documents(&self) -> Documents<'_> {
        Documents { store: self.host.documents(), tenant: &self.operators }
    }

    /// Returns a live job with the version of its document.
    pub(super) fn live(&self, tenant: &Tenant, id: &str) -> Result<Option<(StoredJob, u64)>, DocumentError> {
        self.documents().get(LIVE, &key(tenant, id))
    }

    /// Returns an ended job.
    pub(super) fn ended(&self, tenant: &Tenant, id: &str) -> Result<Option<StoredJob>, DocumentError> {
        Ok(self.documents().get(ENDED, &key(tenant, id))?.map(|(stored, _)| stored))
    }

    /// Stores the id of the job that an idempotency key creates, unless the key has one. Returns the id that it has.
    pub(super) fn claim_key(&self, tenant: &Tenant, digest: &str, id: &str) -> Result<String, DocumentError> {
        let (place, stored) = (key(tenant, digest), StoredKey { job: id.to_owned() });
        loop {
            if let Some((known, _)) = self.documents().get::<StoredKey>(KEY, &place)? {
                return Ok(known.job);
            }
            if self.documents().put(KEY, &place, Some(&stored), 0)? {
                return Ok(stored.job);
            }
        }
    }

    /// Removes the document of a live job that has ended before. Returns whether the job has ended before.
    ///
    /// A process may write the job of an idempotency key after another one has written, executed and ended it.
    pub(super) fn remove_repeated(&self, tenant: &Tenant, stored: &StoredJob) -> Result<bool, DocumentError> {
        let is_repeated = stored.key.is_some() && self.ended(tenant, &stored.job.id)?.is_some();
        if is_repeated {
            self.remove_live(tenant, &stored.job.id)?;
        }
        Ok(is_repeated)
    }

    fn remove_live(&self, tenant: &Tenant, id: &str) -> Result<(), DocumentError> {
        while let Some((_, version)) = self.live(tenant, id)? {
            if self.documents().put::<StoredJob>(LIVE, &key(tenant, id), None, version)? {
                break;
            }
        }
        Ok(())
    }

    /// Writes a live job if its document still has this version.
    pub(super) fn put(&self, tenant: &Tenant, stored: &StoredJob, version: u64) -> Result<bool, DocumentError> {
        self.documents().put(LIVE, &key(tenant, &stored.job.id), Some(stored), version)
    }

    /// Changes a live job. `change` returns false to leave the job as it is. Returns the job as it is afterwards, or
    /// `None` if no live job has the id.
    pub(super) fn update(
        &self,
        tenant: &Tenant,
        id: &str,
        mut change: impl FnMut(&mut StoredJob) -> bool,
    ) -> Result<Option<StoredJob>, DocumentError> {
        loop {
            let Some((mut stored, version)) = self.live(tenant, id)? else { return Ok(None) };
            if !change(&mut stored) || self.put(tenant, &stored, version)? {
                return Ok(Some(stored));
            }
        }
    }

    /// Moves a job to the ended ones, and removes the oldest of them above [`MAX_ENDED_JOBS`].
    pub(super) fn move_to_ended(&self, tenant: &Tenant, stored: &StoredJob) -> Result<(), DocumentError> {
        // False: another process has written the same document.
        self.documents().put(ENDED, &key(tenant, &stored.job.id), Some(stored), 0)?;
        self.remove_live(tenant, &stored.job.id)?;
        let mut ended = self.of_tenant(ENDED, tenant)?;
        // The id of a job with an idempotency key may be older than the job.
        ended.sort_by_key(|stored| stored.job.created);
        for old in ended.iter().rev().skip(MAX_ENDED_JOBS) {
            self.remove_ended(tenant, old)?;
        }
        Ok(())
    }

    /// Removes an ended job and its idempotency key. The key goes first. Otherwise a process that died between the two
    /// would leave a key that gives the id of the removed job to a new one, whose retries would count as done.
    fn remove_ended(&self, tenant: &Tenant, old: &StoredJob) -> Result<(), DocumentError> {
        let documents = self.documents();
        if let Some(place) = old.key.as_deref().map(|digest| key(tenant, digest))
            && let Some((known, version)) = documents.get::<StoredKey>(KEY, &place)?
            && known.job == old.job.id
        {
            documents.put::<StoredKey>(KEY, &place, None, version)?;
        }
        let place = key(tenant, &old.job.id);
        if let Some((_, version)) = documents.get::<StoredJob>(ENDED, &place)? {
            documents.put::<StoredJob>(ENDED, &place, None, version)?;
        }
        Ok(())
    }

    /// Lists the live jobs of all tenants. A damaged document is logged, and the others are returned.
    pub(super) fn all_live(&self) -> Result<Vec<(Tenant, StoredJob)>, DocumentError> {
        let found = self.list(LIVE, String::new(), |_| true)?.into_iter();
        let parsed = found.filter_map(|found| match read(&found) {
            Ok(stored) => Some((tenant_of(&found), stored)),
            Err(error) => {
                tracing::warn!("cannot execute a job: {error}");
                None
            }
        });
        Ok(parsed.collect())
    }

    /// Lists the jobs of a tenant: the live ones and then the ended ones, each by their ids.
    pub(super) fn all_of(&self, tenant: &Tenant) -> Result<Vec<StoredJob>, DocumentError> {
        let live = self.of_tenant(LIVE, tenant)?;
        let ended = self.of_tenant(ENDED, tenant)?;
        let is_ended = |stored: &StoredJob| ended.iter().any(|ended| ended.job.id == stored.job.id);
        let live: Vec<_> = live.into_iter().filter(|stored| !is_ended(stored)).collect();
        Ok(live.into_iter().chain(ended).collect())
    }

    fn of_tenant(&self, kind: &str, tenant: &Tenant) -> Result<Vec<StoredJob>, DocumentError> {
        let prefix = key(tenant, "");
        let found = self.list(kind, prefix.clone(), |key| key.starts_with(&prefix))?;
        found.iter().filter(|found| tenant_of(found) == *tenant).map(read).collect()
    }

    /// Removes all jobs of a tenant, and their idempotency keys.
    pub(super) fn remove_all(&self, tenant: &Tenant) -> Result<(), DocumentError> {
        let prefix = key(tenant, "");
        for kind in [KEY, LIVE, ENDED] {
            let found = self.list(kind, prefix.clone(), |key| key.starts_with(&prefix))?;
            for found in found.iter().filter(|found| tenant_of(found) == *tenant) {
                self.documents().put::<StoredJob>(kind, &found.key, None, found.version)?;
            }
        }
        Ok(())
    }

    /// Lists the documents of a kind with keys after `after`, as long as `fits` returns true.
    fn list(&self, kind: &str, mut after: String, fits: impl Fn(&str) -> bool) -> Result<Vec<Document>, DocumentError> {
        let mut all = Vec::new();
        loop {
            let page = self.host.documents().list(&self.operators, kind, &after, PAGE)?;
            let Some(last) = page.last() else { return Ok(all) };
            after.clone_from(&last.key);
            for found in page {
                if !fits(&found.key) {
                    return Ok(all);
                }
                all.push(found);
            }
        }
    }
}

fn key(tenant: &Tenant, id: &str) -> String {
    format!("{tenant}/{id}")
}

/// Returns the tenant of a document. An id and a digest have no `/`, and the name of an embedder's tenant may have one.
fn tenant_of(found: &Document) -> Tenant {
    Tenant::from(found.key.rsplit_once('/').map_or("", |(tenant, _)| tenant))
}
