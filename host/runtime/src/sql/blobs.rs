//! Blobs, and the large values that rows refer to.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use flowcell_contract::{BlobRef, Failure, MAX_WHOLE_BYTES, Tenant, part};

use super::{
    Shared, SharedStore,
    connection::{Arg, Connection, SqlError, args, placeholders},
    queue::Item,
};
use crate::{
    ports::{Blobs, blob_ref, hashes},
    rows::cut::fill,
};

/// The media type of values that are cut out of rows.
pub(super) const MIME: &str = "application/json";

/// The blobs of one commit, each once.
#[derive(Default)]
pub(super) struct CommitBlobs {
    seen: HashSet<(Tenant, Arc<str>)>,
    tenants: BTreeMap<String, Vec<Blob>>,
}

/// The hash, the bytes and the media type of a blob.
type Blob = (Arc<str>, Arc<[u8]>, Box<str>);

impl CommitBlobs {
    /// Collects the blobs among the items of a commit.
    pub(super) fn of(items: &[Item]) -> CommitBlobs {
        let mut all = CommitBlobs::default();
        for item in items {
            if let Item::Blob { tenant, hash, bytes, mime } = item {
                all.put(tenant, hash.clone(), bytes.clone(), mime);
            }
        }
        all
    }

    /// Adds the values that were cut out of a row.
    pub(super) fn add(&mut self, tenant: &Tenant, cut: Vec<(Arc<str>, String)>) {
        cut.into_iter().for_each(|(hash, text)| self.put(tenant, hash, text.into_bytes().into(), MIME));
    }

    fn put(&mut self, tenant: &Tenant, hash: Arc<str>, bytes: Arc<[u8]>, mime: &str) {
        if self.seen.insert((tenant.clone(), hash.clone())) {
            self.tenants.entry(tenant.as_str().to_owned()).or_default().push((hash, bytes, mime.into()));
        }
    }

    /// Writes the blobs that the tenants do not have. Renews the age of the blobs that they have, so that no sweep
    /// removes these before a row refers to them.
    pub(super) async fn write(self, shared: &Shared, connection: &mut Connection) -> Result<(), SqlError> {
        for (tenant, mut blobs) in self.tenants {
            blobs.sort_by(|a, b| a.0.cmp(&b.0));
            for some in blobs.chunks(MAX_LOOKUP_BLOBS) {
                write_some(shared, connection, &tenant, some).await?;
            }
        }
        Ok(())
    }

    /// Writes all blobs, and renews the age of those that exist.
    pub(super) async fn insert(self, connection: &mut Connection) -> Result<(), SqlError> {
        for (tenant, blobs) in self.tenants {
            insert(connection, &tenant, blobs.iter()).await?;
        }
        Ok(())
    }
}

/// The maximum number of blobs of one lookup.
const MAX_LOOKUP_BLOBS: usize = 64;

async fn write_some(
    shared: &Shared,
    connection: &mut Connection,
    tenant: &str,
    blobs: &[Blob],
) -> Result<(), SqlError> {
    let places = placeholders(blobs.len());
    let sql =
        format!("SELECT hash FROM flowcell_blobs WHERE tenant = ? AND hash IN ({places}) ORDER BY hash FOR UPDATE");
    let wanted = || args![tenant].into_iter().chain(blobs.iter().map(|(hash, ..)| Arg::from(&**hash)));
    let found = connection.rows(&sql, wanted().collect()).await?;
    let known: HashSet<String> = found.iter().map(|row| row.text(0)).collect::<Result<_, _>>()?;
    if !known.is_empty() {
        // Only an old row is updated, so that frequent use costs few writes.
        let age = (shared.options.spared.as_millis() / 24) as u64;
        let sql = format!(
            "UPDATE flowcell_blobs SET put_at = {{now}} WHERE tenant = ? AND hash IN ({places}) AND put_at <= {{now}} - ?"
        );
        connection.run(&sql, wanted().chain(args![age]).collect()).await?;
    }
    let missing: Vec<_> = blobs.iter().filter(|(hash, ..)| !known.contains(&**hash)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    insert(connection, tenant, missing.into_iter()).await
}

async fn insert(connection: &mut Connection, tenant: &str, blobs: impl Iterator<Item = &Blob>) -> Result<(), SqlError> {
    let now = connection.now().await?;
    let row = |(hash, bytes, mime): &Blob| args![tenant, &**hash, &**mime, bytes.len() as u64, bytes.clone(), now];
    let after = connection.dialect().or_update("tenant, hash", &["put_at"]);
    let into = "flowcell_blobs (tenant, hash, mime, size, bytes, put_at)";
    connection.insert(into, blobs.map(row).collect(), &after).await
}

/// Reads the values that were cut out of the rows of a tenant. It remembers the values that it has read.
pub(super) struct CutOut<'a> {
    tenant: &'a Tenant,
    known: HashMap<String, Arc<str>>,
}

impl<'a> CutOut<'a> {
    pub(super) fn new(tenant: &'a Tenant) -> CutOut<'a> {
        CutOut { tenant, known: HashMap::new() }
    }

    /// Puts the values back into a text, or returns why they are not available.
    pub(super) async fn put_back(
        &mut self,
        connection: &mut Connection,
        text: String,
        cuts: Option<&str>,
    ) -> Result<Result<String, String>, SqlError> {
        let Some(cuts) = cuts else { return Ok(Ok(text)) };
        for name in hashes(cuts.as_bytes()) {
            if self.known.contains_key(name) {
                continue;
            }
            let Some(bytes) = read(connection, self.tenant, name).await? else {
                return Ok(Err(format!("the blob {name} is missing")));
            };
            let text = String::from_utf8(bytes).ok().filter(|text| *blob_ref(text.as_bytes(), "").file_id == *name);
            let Some(text) = text else { return Ok(Err(format!("the blob {name} has another content"))) };
            self.known.insert(name.to_owned(), text.into());
        }
        let known = |hash: &str| self.known.get(hash).cloned().ok_or_else(|| format!("the blob {hash} is missing"));
        Ok(fill(&text, cuts, known))
    }
}

/// Reads the bytes of a blob.
async fn read(connection: &mut Connection, tenant: &Tenant, hash: &str) -> Result<Option<Vec<u8>>, SqlError> {
    let sql = "SELECT bytes FROM flowcell_blobs WHERE tenant = ? AND hash = ?";
    connection.row(sql, args![tenant.as_str(), hash]).await?.map(|row| row.bytes(0)).transpose()
}

/// Stores a blob. `hash` is the SHA-256 of the bytes, in hexadecimal.
pub(super) fn keep(store: &SharedStore, tenant: &Tenant, hash: &Arc<str>, bytes: Arc<[u8]>, mime: &str) {
    store.shared.visible().blobs.insert((tenant.clone(), hash.clone()), bytes.clone());
    let blob = Item::Blob { tenant: tenant.clone(), hash: hash.clone(), bytes, mime: mime.into() };
    store.shared.queue.push(blob);
}

impl Blobs for SharedStore {
    fn put(&self, tenant: &Tenant, bytes: Arc<[u8]>, mime: &str) -> BlobRef {
        let blob = blob_ref(&bytes, mime);
        keep(self, tenant, &blob.file_id, bytes, mime);
        blob
    }

    fn get(&self, tenant: &Tenant, blob: &BlobRef) -> Result<Option<Arc<[u8]>>, Failure> {
        let key = (tenant.clone(), blob.file_id.clone());
        if let Some(bytes) = self.shared.visible().blobs.get(&key) {
            return Ok(Some(bytes.clone()));
        }
        let found = self.worker.read(async move |connection| read(connection, &key.0, &key.1).await)?;
        Ok(found.map(Arc::from))
    }

    fn size(&self, tenant: &Tenant, blob: &BlobRef) -> Result<Option<u64>, Failure> {
        let key = (tenant.clone(), blob.file_id.clone());
        if let Some(bytes) = self.shared.visible().blobs.get(&key) {
            return Ok(Some(bytes.len() as u64));
        }
        let sql = "SELECT size FROM flowcell_blobs WHERE tenant = ? AND hash = ?";
        Ok(self.worker.read(async move |connection| {
            let found = connection.row(sql, args![key.0.as_str(), &*key.1]).await?;
            found.map(|row| row.number(0)).transpose()
        })?)
    }

    fn read_part(
        &self,
        tenant: &Tenant,
        blob: &BlobRef,
        offset: u64,
        length: usize,
    ) -> Result<Option<Vec<u8>>, Failure> {
        let key = (tenant.clone(), blob.file_id.clone());
        if let Some(bytes) = self.shared.visible().blobs.get(&key) {
            return Ok(Some(part(bytes, offset, length).to_vec()));
        }
        let sql = "SELECT substr(bytes, CAST(? AS {integer}), CAST(? AS {integer})) FROM flowcell_blobs
            WHERE tenant = ? AND hash = ?";
        // The bytes of a row are fewer than the largest integer of every server.
        let from = offset.saturating_add(1).min(i32::MAX as u64);
        let length = (length as u64).min(MAX_WHOLE_BYTES as u64);
        Ok(self.worker.read(async move |connection| {
            let found = connection.row(sql, args![from, length, key.0.as_str(), &*key.1]).await?;
            found.map(|row| row.bytes(0)).transpose()
        })?)
    }
}
