//! Files in an object store, beside the database that has their rows.
//!
//! | module | content |
//! |---|---|
//! | `location` | the address of the objects: `s3://BUCKET/PREFIX` |
//! | `place` | the place of the large files of a store |
//! | `bucket` | the interface of an object store |
//! | `draft` | a file that is written in parts |
//! | `s3`, `connect` | a bucket of S3, and the connections to it |
//!
//! Every upload makes an object of a new name, `PREFIX/TENANT/NAME`, and the row of the content has that name. So the
//! hash of a content, which is known only at its end, is in the row, and no name is ever used for two uploads. A row
//! is committed after its object is complete, and an object is removed after its row is gone. A writer that stores a
//! content again while a sweep removes it uploads an object of its own. Even a removal that reaches the object store
//! late, because its process was stopped, removes only the object that nothing names any more.
//!
//! A crash between an upload and the commit leaves an object without a row. The sweep lists the objects of a tenant, and
//! removes those without rows. It spares the younger ones, by the time in the name: the clock of the database, for all
//! processes alike, and never that of the object store.

mod bucket;
#[cfg(feature = "object-blobs")]
mod connect;
mod draft;
mod location;
mod place;
#[cfg(feature = "object-blobs")]
mod s3;

use std::{
    collections::HashSet,
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use flowcell_contract::{Failure, Tenant, code, shell::shell_word};
use parking_lot::Mutex;

use crate::{
    limits::{MAX_ROW_FILE_BYTES, OBJECT_AWAY_MS},
    pieces::LargeFile,
    ports::StoreError,
    world::random,
};
pub use bucket::{Bucket, BucketError, BucketErrorKind, Upload};
pub(crate) use draft::{Draft, Finished};
pub use location::{Access, Location, LocationError};
pub use place::Chosen;
pub(crate) use place::{Place, check_place};

/// The media type of packs. They stay in the database like the values of runs, so that a run goes on while the object
/// store is away.
const PACK_MIME: &str = "application/wasm";

/// Returns whether a file of this media type and this size in bytes lies in the object store, if the store has one.
pub(crate) fn is_apart(mime: &str, size: u64) -> bool {
    size > MAX_ROW_FILE_BYTES as u64 && mime != PACK_MIME
}

/// The name of the object that names the store to which the others belong.
const MARK: &str = "flowcell-store";

/// The reason why a store cannot use its objects.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ObjectsError {
    /// The store has its files in an object store, which was not named.
    #[error("the files of the store are in {0}: open it with `--blobs {word}`", word = shell_word(&.0.to_string()))]
    Missing(Location),
    /// The store has its files in another place.
    #[error(
        "the files of the store are in {known}, not in {given}: open it with `--blobs {word}`",
        word = shell_word(&.known.to_string())
    )]
    Other {
        /// The place that the store remembers.
        known: Location,
        /// The place that was named.
        given: Location,
    },
    /// Another store has its files at this place.
    #[error("{0} has the files of another store: choose another prefix or another bucket")]
    Taken(Location),
    /// The place has no mark of this store, so it is not the one that the store has used before.
    #[error(
        "{0} has no files of this store: check the bucket and `AWS_ENDPOINT_URL`, or restore the object `{1}` if it was \
         removed"
    )]
    Unknown(Location, String),
    /// The object store cannot be used.
    #[error("cannot use {0}: {1}; {advice}", advice = .1.advice())]
    Unusable(Location, BucketError),
    /// The address of the objects cannot be used, or the environment lacks a setting or has one that cannot be used.
    #[error("{0}")]
    Access(String),
    /// The program was built without object stores.
    #[error("this build lacks the feature `object-blobs`: build it with `--features full`")]
    NoFeature,
}

impl ObjectsError {
    /// Returns whether the object store does not answer at present, so that the same work may succeed later.
    pub fn is_away(&self) -> bool {
        matches!(self, ObjectsError::Unusable(_, error) if error.kind == BucketErrorKind::Away)
    }
}

/// The objects of one store. Clones share the connections.
#[derive(Clone)]
pub struct Objects(Arc<Inner>);

struct Inner {
    location: Location,
    bucket: Box<dyn Bucket>,
    /// The time until which new files go into the database, because the object store is away.
    away_until: Mutex<Option<Instant>>,
    /// The name of the store, until it is known that the objects belong to it.
    unverified: Mutex<Option<String>>,
}

impl fmt::Debug for Objects {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Objects({})", self.0.location)
    }
}

impl Objects {
    /// Uses a bucket.
    pub fn new(location: Location, bucket: Box<dyn Bucket>) -> Objects {
        Objects(Arc::new(Inner { location, bucket, away_until: Mutex::default(), unverified: Mutex::default() }))
    }

    /// Connects to an object store when it is needed. Fails if the settings cannot be used.
    #[cfg(feature = "object-blobs")]
    pub fn connect(location: Location, access: &Access) -> Result<Objects, ObjectsError> {
        let bucket = s3::S3::new(&location, access)?;
        Ok(Objects::new(location, Box::new(bucket)))
    }

    /// Fails, because the program was built without object stores.
    #[cfg(not(feature = "object-blobs"))]
    pub fn connect(_: Location, _: &Access) -> Result<Objects, ObjectsError> {
        Err(ObjectsError::NoFeature)
    }

    /// Returns the address of the objects.
    pub fn location(&self) -> &Location {
        &self.0.location
    }

    /// Checks that the objects belong to the store of this name. A store that uses the place for the first time marks
    /// it. For a store that has used it before, an object store that is away is no error: its files cannot be read
    /// until it is back.
    pub(crate) fn claim(&self, store: &str, is_known: bool) -> Result<(), ObjectsError> {
        match self.verify(store, is_known) {
            Err(error) if is_known && error.is_away() => {
                tracing::warn!("the files of the store cannot be read for now: {error}");
                *self.0.unverified.lock() = Some(store.to_owned());
                Ok(())
            }
            verified => verified,
        }
    }

    /// Checks that the objects belong to the store of this name, and marks them at the first time.
    pub(crate) fn verify(&self, store: &str, is_known: bool) -> Result<(), ObjectsError> {
        let location = || self.0.location.clone();
        let mark = self.0.location.object(MARK);
        let found = self.mark(&mark, store, is_known).map_err(|error| ObjectsError::Unusable(location(), error))?;
        match found {
            Some(found) if found == store.as_bytes() => Ok(()),
            Some(_) => Err(ObjectsError::Taken(location())),
            None => Err(ObjectsError::Unknown(location(), mark)),
        }
    }

    /// Checks that the objects belong to the store, if the object store was away when the store was opened. Nothing is
    /// written or removed before that: another server may have a bucket of the same name.
    fn verify_late(&self) -> Result<(), BucketError> {
        let mut unverified = self.0.unverified.lock();
        if let Some(store) = &*unverified {
            self.verify(store, true).map_err(|error| match error {
                ObjectsError::Unusable(_, error) => error,
                error => BucketError::refused(error.to_string()),
            })?;
            *unverified = None;
        }
        Ok(())
    }

    /// Reads the mark, and makes it first if it may be missing. A server that ignores conditions may have replaced it, so
    /// it is read again.
    fn mark(&self, mark: &str, store: &str, is_known: bool) -> Result<Option<Vec<u8>>, BucketError> {
        let bucket = &self.0.bucket;
        let found = bucket.read(mark, 0..MAX_MARK_BYTES)?;
        if found.is_some() || is_known {
            return Ok(found);
        }
        bucket.create(mark, store.as_bytes().to_vec())?;
        bucket.read(mark, 0..MAX_MARK_BYTES)
    }

    /// Returns a name that no other object has. `now` is the time of the store's clock, in milliseconds since 1970.
    fn new_name(now: u64) -> Arc<str> {
        format!("{now:012x}-{:016x}{:016x}", random(), random()).into()
    }

    /// Uploads bytes that are in memory, and describes them. `now` is the time of the store's clock, in milliseconds since
    /// 1970. Fails at once for a while after the object store was away.
    pub(crate) fn put(&self, tenant: &Tenant, now: u64, bytes: &[u8]) -> Result<LargeFile, BucketError> {
        let name = Objects::new_name(now);
        self.put_named(tenant, &name, bytes)?;
        Ok(LargeFile::of(bytes, name))
    }

    fn put_named(&self, tenant: &Tenant, name: &str, bytes: &[u8]) -> Result<(), BucketError> {
        let mut away_until = self.0.away_until.lock();
        if away_until.is_some_and(|until| Instant::now() < until) {
            return Err(BucketError::away("it was away a short time ago"));
        }
        *away_until = None;
        drop(away_until);
        let put = self.verify_late();
        let put = put.and_then(|()| self.0.bucket.put(&self.0.location.of(tenant, name), bytes.to_vec()));
        put.inspect_err(|error| {
            *self.0.away_until.lock() = Some(Instant::now() + Duration::from_millis(OBJECT_AWAY_MS));
            let location = &self.0.location;
            tracing::warn!("{location} takes no files, so new ones go into the database for a while: {error}");
        })
    }

    /// Begins to upload a file in parts. `now` is the time of the store's clock, in milliseconds since 1970.
    pub(crate) fn begin(&self, tenant: &Tenant, now: u64) -> Draft {
        Draft::new(self.clone(), tenant.clone(), Objects::new_name(now))
    }

    fn begin_upload(&self, tenant: &Tenant, name: &str) -> Result<Box<dyn Upload>, BucketError> {
        self.verify_late()?;
        self.0.bucket.begin(&self.0.location.of(tenant, name))
    }

    /// Returns at most `length` bytes of a file from `offset` on, after a check of all pieces that have them. Returns
    /// `None` if the object is missing.
    pub(crate) fn read(
        &self,
        (tenant, hash): (&Tenant, &str),
        file: &LargeFile,
        offset: u64,
        length: usize,
    ) -> Result<Option<Vec<u8>>, Failure> {
        let Some(name) = &file.object else { return Ok(None) };
        let object = self.0.location.of(tenant, name);
        let damaged =
            || Unread::Failed(Failure::new(code::STORE_FAILED, format!("the file {hash} of the store is damaged")));
        let fetch = |range| match self.0.bucket.read(&object, range) {
            Ok(Some(bytes)) => Ok(bytes),
            Ok(None) => Err(Unread::Missing),
            Err(error) => {
                let message = format!("cannot read the file {hash} in {}: {error}", self.0.location);
                Err(Unread::Failed(match error.kind {
                    BucketErrorKind::Away => Failure::retryable(code::STORE_FAILED, message),
                    BucketErrorKind::Refused => Failure::new(code::STORE_FAILED, message),
                }))
            }
        };
        match file.read(offset, length, damaged, fetch) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(Unread::Missing) => Ok(None),
            Err(Unread::Failed(failure)) => Err(failure),
        }
    }

    /// Fails if the object store does not answer, or refuses this process.
    pub(crate) fn reach(&self) -> Result<(), StoreError> {
        let mark = self.0.location.object(MARK);
        self.0.bucket.read(&mark, 0..MAX_MARK_BYTES).map(drop).map_err(|error| self.unavailable("read", &error))
    }

    /// Removes objects whose rows are gone. An object that stays only takes room, until a later sweep removes it.
    pub(crate) fn remove(&self, tenant: &Tenant, names: &[String]) -> Result<(), StoreError> {
        let objects: Vec<String> = names.iter().map(|name| self.0.location.of(tenant, name)).collect();
        let removed = self.verify_late().and_then(|()| self.0.bucket.remove(&objects));
        removed.map_err(|error| self.unavailable("remove", &error))
    }

    /// Removes the objects of a tenant that no row names, except those that `spares` says and those whose names are
    /// younger than `spared` milliseconds at the time `now` of the store's clock. `named` returns the names in the rows. It is
    /// called after the list is read, so that it has the objects that were committed meanwhile.
    pub(crate) fn remove_nameless(
        &self,
        tenant: &Tenant,
        (now, spared): (u64, u64),
        spares: impl Fn(&str) -> bool,
        named: impl FnOnce() -> Result<HashSet<String>, StoreError>,
    ) -> Result<(), StoreError> {
        let mut found = self.list(tenant)?;
        found.retain(|name| !spares(name) && age(name, now) > spared);
        if found.is_empty() {
            return Ok(());
        }
        let named = named()?;
        found.retain(|name| !named.contains(name));
        self.remove(tenant, &found)
    }

    /// Uploads a file of another store. `read` returns the piece at an offset, nothing at the end. Fails if its hash is
    /// another one.
    pub(crate) fn take(
        &self,
        (tenant, hash): (&Tenant, &str),
        now: u64,
        read: &mut dyn FnMut(u64) -> Result<Vec<u8>, StoreError>,
    ) -> Result<LargeFile, StoreError> {
        let failed = |failure: Failure| StoreError(failure.message.to_string().into());
        let (mut draft, mut offset) = (self.begin(tenant, now), 0);
        loop {
            let piece = read(offset)?;
            if piece.is_empty() {
                break;
            }
            offset += piece.len() as u64;
            draft.write(&piece).map_err(failed)?;
        }
        match draft.finish(|_| Ok(false)).map_err(failed)? {
            Finished::Object { hash: found, row } if *found == *hash => Ok(row),
            Finished::Object { .. } => Err(StoreError(format!("the blob {hash} has another content").into())),
            _ => Err(StoreError::unavailable(format!("{} does not take the file {hash}", self.0.location))),
        }
    }

    /// Removes all objects of a tenant.
    pub(crate) fn remove_all(&self, tenant: &Tenant) -> Result<(), StoreError> {
        self.remove(tenant, &self.list(tenant)?)
    }

    fn list(&self, tenant: &Tenant) -> Result<Vec<String>, StoreError> {
        self.verify_late().map_err(|error| self.unavailable("list", &error))?;
        let mut names = Vec::new();
        let folder = self.0.location.folder_of(tenant);
        let listed = self.0.bucket.list(&folder, &mut |object| {
            names.extend(object.rsplit('/').next().map(str::to_owned));
        });
        listed.map_err(|error| self.unavailable("list", &error))?;
        Ok(names)
    }

    fn unavailable(&self, verb: &str, error: &BucketError) -> StoreError {
        StoreError::unavailable(format!("cannot {verb} the files in {}: {error}; {}", self.0.location, error.advice()))
    }
}

/// The maximum size of a mark in bytes.
const MAX_MARK_BYTES: u64 = 256;

/// The reason why a part of a file was not read.
enum Unread {
    Missing,
    Failed(Failure),
}

/// Returns the age of an object by its name, in milliseconds. A name that has no time is of no age: the store has not made
/// it, so it stays.
pub(crate) fn age(name: &str, now: u64) -> u64 {
    let made = name.split_once('-').and_then(|(time, _)| u64::from_str_radix(time, 16).ok());
    made.map_or(0, |made| now.saturating_sub(made))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_age_of_an_object_follows_from_its_name() {
        let name = Objects::new_name(1_000);
        assert_eq!((age(&name, 1_500), age(&name, 500), age("notes.txt", 1_500)), (500, 0, 0));
        assert_ne!(name, Objects::new_name(1_000));
    }
}
