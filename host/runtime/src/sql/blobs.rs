//! Blobs, and the large values that rows refer to.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use flowcell_contract::{BlobRef, BlobWriter, Failure, MAX_WHOLE_BYTES, Tenant, code, part, too_large_for_memory};

use super::{
    Shared, SharedStore,
    connection::{Arg, Connection, SqlError, args, placeholders},
    queue::Item,
    upload,
};
use crate::{
    limits::OBJECT_UPLOAD_MS,
    objects::age,
    pieces::LargeFile,
    ports::{Blobs, blob_ref, hashes},
    rows::cut::fill,
};

/// The media type of values that are cut out of rows.
pub(super) const MIME: &str = "application/json";

/// The blobs of one commit, each once.
#[derive(Default)]
pub(super) struct CommitBlobs {
    seen: HashMap<(Tenant, Arc<str>), bool>,
    tenants: BTreeMap<String, Vec<Blob>>,
}

/// A blob of a commit.
struct Blob {
    hash: Arc<str>,
    mime: Box<str>,
    content: Content,
}

/// The content of a blob.
enum Content {
    /// A value that was cut out of a row. It is always in the database, so that runs can be read without any other file.
    Value(Arc<[u8]>),
    /// A file in the database.
    File(Arc<[u8]>),
    /// A file in an object store.
    Object(LargeFile),
}

impl CommitBlobs {
    /// Collects the blobs among the items of a commit.
    pub(super) fn of(items: &[Item]) -> CommitBlobs {
        let mut all = CommitBlobs::default();
        for item in items {
            match item {
                Item::Blob { tenant, hash, bytes, mime } => {
                    all.put(tenant, Blob::new(hash, mime, Content::File(bytes.clone())));
                }
                Item::Object { tenant, hash, file, mime } => {
                    all.put(tenant, Blob::new(hash, mime, Content::Object(file.clone())));
                }
                _ => {}
            }
        }
        all
    }

    /// Adds the values that were cut out of a row.
    pub(super) fn add(&mut self, tenant: &Tenant, cut: Vec<(Arc<str>, String)>) {
        for (hash, text) in cut {
            self.put(tenant, Blob::new(&hash, MIME, Content::Value(text.into_bytes().into())));
        }
    }

    /// Adds a blob. A value takes the place of a file with the same content.
    fn put(&mut self, tenant: &Tenant, blob: Blob) {
        let key = (tenant.clone(), blob.hash.clone());
        let is_value = matches!(blob.content, Content::Value(_));
        let of_tenant = self.tenants.entry(tenant.as_str().to_owned()).or_default();
        match self.seen.insert(key.clone(), is_value) {
            None => of_tenant.push(blob),
            Some(false) if is_value => {
                of_tenant.retain(|other| other.hash != blob.hash);
                of_tenant.push(blob);
            }
            Some(was_value) => _ = self.seen.insert(key, was_value),
        }
    }

    /// Writes the blobs that the tenants do not have. Renews the age of the blobs that they have, so that no sweep
    /// removes these before a row refers to them.
    pub(super) async fn write(self, shared: &Shared, connection: &mut Connection) -> Result<(), SqlError> {
        for (tenant, mut blobs) in self.tenants {
            blobs.sort_by(|a, b| a.hash.cmp(&b.hash));
            for some in blobs.chunks(MAX_LOOKUP_BLOBS) {
                write_some(shared, connection, &tenant, some).await?;
            }
        }
        Ok(())
    }

    /// Writes all blobs, and renews the age of those that exist.
    pub(super) async fn insert(self, connection: &mut Connection) -> Result<(), SqlError> {
        for (tenant, blobs) in self.tenants {
            for some in blobs.chunks(MAX_LOOKUP_BLOBS) {
                insert(connection, &tenant, &some.iter().collect::<Vec<_>>()).await?;
            }
        }
        Ok(())
    }
}

impl Blob {
    fn new(hash: &Arc<str>, mime: &str, content: Content) -> Blob {
        Blob { hash: hash.clone(), mime: mime.into(), content }
    }

    /// Returns the row of the blob.
    fn row(&self, tenant: &str, now: i64) -> Result<Vec<Arg>, SqlError> {
        let (bytes, size, object) = match &self.content {
            Content::Value(bytes) | Content::File(bytes) => (bytes, bytes.len() as u64, None),
            Content::Object(file) => (&file.digests, file.size, file.object.as_deref()),
        };
        // A sweep removes an object that is older and has no row. This row could come after it.
        if object.is_some_and(|name| age(name, now as u64) > OBJECT_UPLOAD_MS) {
            return Err(SqlError::Permanent(format!("the upload of the file {} is too old", self.hash)));
        }
        Ok(args![tenant, &*self.hash, &*self.mime, size, bytes.clone(), object.map(str::to_owned), now])
    }
}

/// The columns of a row of [`Blob::row`].
pub(super) const COLUMNS: &str = "flowcell_blobs (tenant, hash, mime, size, bytes, object, put_at)";
/// The maximum number of blobs of one lookup.
const MAX_LOOKUP_BLOBS: usize = 64;

async fn write_some(
    shared: &Shared,
    connection: &mut Connection,
    tenant: &str,
    blobs: &[Blob],
) -> Result<(), SqlError> {
    let places = placeholders(blobs.len());
    let sql = format!(
        "SELECT hash, object FROM flowcell_blobs WHERE tenant = ? AND hash IN ({places}) ORDER BY hash FOR UPDATE"
    );
    let wanted = || args![tenant].into_iter().chain(blobs.iter().map(|blob| Arg::from(&*blob.hash)));
    let found = connection.rows(&sql, wanted().collect()).await?;
    let known: HashMap<String, bool> =
        found.iter().map(|row| Ok((row.text(0)?, row.maybe_text(1)?.is_some()))).collect::<Result<_, SqlError>>()?;
    if !known.is_empty() {
        // Only an old row is updated, so that frequent use costs few writes.
        let age = (shared.options.spared.as_millis() / 24) as u64;
        let sql = format!(
            "UPDATE flowcell_blobs SET put_at = {{now}} WHERE tenant = ? AND hash IN ({places}) AND put_at <= {{now}} - ?"
        );
        connection.run(&sql, wanted().chain(args![age]).collect()).await?;
    }
    for blob in blobs.iter().filter(|blob| known.get(&*blob.hash) == Some(&true)) {
        replace_object(connection, tenant, blob).await?;
    }
    let missing: Vec<_> = blobs.iter().filter(|blob| !known.contains_key(&*blob.hash)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    insert(connection, tenant, &missing).await
}

/// Inserts blobs, and renews the age of those that another process has inserted.
async fn insert(connection: &mut Connection, tenant: &str, blobs: &[&Blob]) -> Result<(), SqlError> {
    let now = connection.now().await?;
    let rows = blobs.iter().map(|blob| blob.row(tenant, now)).collect::<Result<_, _>>()?;
    let after = connection.dialect().or_update("tenant, hash", &["put_at"]);
    connection.insert(COLUMNS, rows, &after).await?;
    let values: Vec<&Blob> = blobs.iter().copied().filter(|blob| matches!(blob.content, Content::Value(_))).collect();
    let hashes = values.iter().map(|blob| &*blob.hash);
    let objects = objects_among(connection, tenant, hashes).await?;
    for blob in values.iter().filter(|blob| objects.contains(&*blob.hash)) {
        replace_object(connection, tenant, blob).await?;
    }
    Ok(())
}

/// Returns the hashes whose contents are in an object store. The rows stay locked.
pub(super) async fn objects_among<'a>(
    connection: &mut Connection,
    tenant: &str,
    hashes: impl ExactSizeIterator<Item = &'a str>,
) -> Result<HashSet<String>, SqlError> {
    if hashes.len() == 0 {
        return Ok(HashSet::new());
    }
    let sql = format!(
        "SELECT hash FROM flowcell_blobs WHERE tenant = ? AND hash IN ({}) AND object IS NOT NULL FOR UPDATE",
        placeholders(hashes.len())
    );
    let found = connection.rows(&sql, args![tenant].into_iter().chain(hashes.map(Arg::from)).collect()).await?;
    found.iter().map(|row| row.text(0)).collect()
}

/// Puts a value into the row of an object with the same content. The sweep removes the object.
async fn replace_object(connection: &mut Connection, tenant: &str, blob: &Blob) -> Result<(), SqlError> {
    let Content::Value(bytes) = &blob.content else { return Ok(()) };
    put_bytes(connection, tenant, &blob.hash, bytes.clone()).await
}

/// Puts bytes into the row of an object with the same content.
pub(super) async fn put_bytes(
    connection: &mut Connection,
    tenant: &str,
    hash: &str,
    bytes: Arc<[u8]>,
) -> Result<(), SqlError> {
    let sql = "UPDATE flowcell_blobs SET bytes = ?, object = NULL WHERE tenant = ? AND hash = ?";
    connection.run(sql, args![bytes, tenant, hash]).await.map(drop)
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

/// A content in the database, as its row describes it.
enum Found {
    Bytes(Vec<u8>),
    Object(LargeFile),
}

/// Reads a part of the bytes of a row, or finds the object that has them. `part` is a number of bytes to leave out, and
/// the number of bytes after them.
async fn find(
    connection: &mut Connection,
    (tenant, hash): (&str, &str),
    part: Option<(u64, u64)>,
) -> Result<Option<Found>, SqlError> {
    let (start, length) = part.unwrap_or((0, i32::MAX as u64));
    let sql = "SELECT CASE WHEN object IS NULL THEN substr(bytes, CAST(? AS {integer}), CAST(? AS {integer}))
            ELSE bytes END, object, size FROM flowcell_blobs WHERE tenant = ? AND hash = ?";
    // The bytes of a row are fewer than the largest integer of every server.
    let from = start.saturating_add(1).min(i32::MAX as u64);
    let Some(row) = connection.row(sql, args![from, length, tenant, hash]).await? else { return Ok(None) };
    let bytes = row.bytes(0)?;
    Ok(Some(match row.maybe_text(1)? {
        Some(name) => {
            Found::Object(LargeFile { size: row.number(2)?, digests: bytes.into(), object: Some(name.into()) })
        }
        None => Found::Bytes(bytes),
    }))
}

/// Reads a content that is durable. `read` reads a part of an object, `None` if it is missing. The row of an object
/// that is missing is read again, because a sweep or a value of a run may have replaced it meanwhile.
fn durable(
    store: &SharedStore,
    (tenant, hash): (&Tenant, &Arc<str>),
    part: Option<(u64, u64)>,
    read: impl Fn(&LargeFile) -> Result<Option<Vec<u8>>, Failure>,
) -> Result<Option<Vec<u8>>, Failure> {
    let mut missing: Option<Arc<str>> = None;
    loop {
        let key = (tenant.clone(), hash.clone());
        let found =
            store.worker.read(async move |connection| find(connection, (key.0.as_str(), &key.1), part).await)?;
        let file = match found {
            None => return Ok(None),
            Some(Found::Bytes(bytes)) => return Ok(Some(bytes)),
            Some(Found::Object(file)) => file,
        };
        if missing.is_some() && missing == file.object {
            let message = format!("the file {hash} is missing in the object store");
            return Err(Failure::new(code::STORE_FAILED, message));
        }
        if let Some(bytes) = read(&file)? {
            return Ok(Some(bytes));
        }
        missing = file.object;
    }
}

fn read_object(
    store: &SharedStore,
    (tenant, hash): (&Tenant, &str),
    file: &LargeFile,
    offset: u64,
    length: usize,
) -> Result<Option<Vec<u8>>, Failure> {
    store.shared.place.objects()?.read((tenant, hash), file, offset, length)
}

fn read_whole(
    store: &SharedStore,
    (tenant, hash): (&Tenant, &str),
    file: &LargeFile,
) -> Result<Option<Vec<u8>>, Failure> {
    match usize::try_from(file.size) {
        Ok(size) if size <= MAX_WHOLE_BYTES => read_object(store, (tenant, hash), file, 0, size),
        _ => Err(too_large_for_memory(file.size)),
    }
}

fn seen(store: &SharedStore, key: &(Tenant, Arc<str>)) -> Option<Seen> {
    let visible = store.shared.visible();
    let bytes = visible.blobs.get(key).cloned().map(Seen::Bytes);
    bytes.or_else(|| visible.objects.get(key).cloned().map(Seen::Object))
}

/// A content that is not durable yet.
enum Seen {
    Bytes(Arc<[u8]>),
    Object(LargeFile),
}

fn present(bytes: Option<Vec<u8>>, hash: &str) -> Result<Option<Vec<u8>>, Failure> {
    let missing = || {
        let message = format!("the file {hash} is missing in the object store");
        Failure::new(code::STORE_FAILED, message)
    };
    bytes.ok_or_else(missing).map(Some)
}

impl Blobs for SharedStore {
    fn put(&self, tenant: &Tenant, bytes: Arc<[u8]>, mime: &str) -> BlobRef {
        let blob = blob_ref(&bytes, mime);
        if !upload::put(self, tenant, &blob, &bytes) {
            upload::keep(self, tenant, &blob.file_id, bytes, mime);
        }
        blob
    }

    fn get(&self, tenant: &Tenant, blob: &BlobRef) -> Result<Option<Arc<[u8]>>, Failure> {
        let key = (tenant.clone(), blob.file_id.clone());
        let of = (tenant, &*blob.file_id);
        let bytes = match seen(self, &key) {
            Some(Seen::Bytes(bytes)) => return Ok(Some(bytes)),
            Some(Seen::Object(file)) => present(read_whole(self, of, &file)?, of.1)?,
            None => durable(self, (tenant, &blob.file_id), None, |file| read_whole(self, of, file))?,
        };
        Ok(bytes.map(Arc::from))
    }

    fn size(&self, tenant: &Tenant, blob: &BlobRef) -> Result<Option<u64>, Failure> {
        let key = (tenant.clone(), blob.file_id.clone());
        match seen(self, &key) {
            Some(Seen::Bytes(bytes)) => return Ok(Some(bytes.len() as u64)),
            Some(Seen::Object(file)) => return Ok(Some(file.size)),
            None => {}
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
        let length = length.min(MAX_WHOLE_BYTES);
        let of = (tenant, &*blob.file_id);
        match seen(self, &(tenant.clone(), blob.file_id.clone())) {
            Some(Seen::Bytes(bytes)) => Ok(Some(part(&bytes, offset, length).to_vec())),
            Some(Seen::Object(file)) => present(read_object(self, of, &file, offset, length)?, of.1),
            None => durable(self, (tenant, &blob.file_id), Some((offset, length as u64)), |file| {
                read_object(self, of, file, offset, length)
            }),
        }
    }

    fn writer(self: Arc<Self>, tenant: &Tenant) -> Result<Box<dyn BlobWriter>, Failure> {
        upload::writer(self, tenant)
    }
}
