//! A file that is written in parts, and uploaded while it arrives.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use flowcell_contract::{Failure, Tenant, code};

use super::{BucketError, BucketErrorKind, Objects, Upload};
use crate::{
    limits::{MAX_ROW_FILE_BYTES, OBJECT_PART_BYTES, OBJECT_UPLOAD_MS},
    pieces::{LargeFile, Pieces},
};

/// A file that is being written. It keeps at most two parts in memory.
pub(crate) struct Draft {
    objects: Objects,
    tenant: Tenant,
    name: Arc<str>,
    began: Instant,
    pieces: Pieces,
    /// The bytes that are not uploaded yet.
    rest: Vec<u8>,
    upload: Option<Box<dyn Upload>>,
}

/// A finished content.
pub(crate) enum Finished {
    /// A content for the database: a small one, or one that the object store did not take.
    Small(Vec<u8>),
    /// A content that the store has already.
    Known { hash: Arc<str>, size: u64 },
    /// A content that is in the object store, and has no row yet.
    Object { hash: Arc<str>, row: LargeFile },
}

impl Draft {
    pub(super) fn new(objects: Objects, tenant: Tenant, name: Arc<str>) -> Draft {
        let (began, pieces) = (Instant::now(), Pieces::default());
        Draft { objects, tenant, name, began, pieces, rest: Vec::new(), upload: None }
    }

    pub(crate) fn tenant(&self) -> &Tenant {
        &self.tenant
    }

    pub(crate) fn objects(&self) -> &Objects {
        &self.objects
    }

    /// Returns the name that the object will have.
    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    pub(crate) fn size(&self) -> u64 {
        self.pieces.size()
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.pieces.add(bytes)?;
        let mut left = bytes;
        while !left.is_empty() {
            // A full part is uploaded when it is known that another one follows.
            if self.rest.len() == OBJECT_PART_BYTES {
                self.send_part()?;
            }
            let (now, later) = left.split_at(left.len().min(OBJECT_PART_BYTES - self.rest.len()));
            self.rest.extend_from_slice(now);
            left = later;
        }
        Ok(())
    }

    fn send_part(&mut self) -> Result<(), Failure> {
        let part = std::mem::take(&mut self.rest);
        let mut upload = match self.upload.take() {
            Some(upload) => upload,
            None => self.objects.begin_upload(&self.tenant, &self.name).map_err(|error| self.failure(&error))?,
        };
        upload.add(part).map_err(|error| self.failure(&error))?;
        self.upload = Some(upload);
        Ok(())
    }

    /// Completes the content. `is_known` returns whether the store has the content of a hash, and will not remove it
    /// soon.
    pub(crate) fn finish(
        mut self,
        is_known: impl FnOnce(&Arc<str>) -> Result<bool, Failure>,
    ) -> Result<Finished, Failure> {
        if self.size() <= MAX_ROW_FILE_BYTES as u64 {
            return Ok(Finished::Small(self.rest));
        }
        let (hash, row) = std::mem::take(&mut self.pieces).finish(Some(self.name.clone()));
        if is_known(&hash)? {
            if let Some(upload) = self.upload.take() {
                upload.discard();
            }
            return Ok(Finished::Known { hash, size: row.size });
        }
        let Some(mut upload) = self.upload.take() else {
            let rest = std::mem::take(&mut self.rest);
            return Ok(match self.objects.put_named(&self.tenant, &self.name, &rest) {
                Ok(()) => Finished::Object { hash, row },
                Err(_) => Finished::Small(rest),
            });
        };
        let last = std::mem::take(&mut self.rest);
        upload.add(last).and_then(|()| upload.complete()).map_err(|error| self.failure(&error))?;
        // An object of this age could be removed before its row is committed.
        if self.began.elapsed() > Duration::from_millis(OBJECT_UPLOAD_MS) {
            return Err(Failure::retryable(code::STORE_FAILED, "the upload of the file took too long"));
        }
        Ok(Finished::Object { hash, row })
    }

    fn failure(&self, error: &BucketError) -> Failure {
        let message = format!("cannot write a file to {}: {error}", self.objects.location());
        match error.kind {
            BucketErrorKind::Away => Failure::retryable(code::STORE_FAILED, message),
            BucketErrorKind::Refused => Failure::new(code::STORE_FAILED, message),
        }
    }
}
