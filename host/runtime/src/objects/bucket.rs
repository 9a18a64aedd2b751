//! The interface of an object store, as far as a store of files needs it. All calls block their thread.

use std::{fmt, ops::Range};

/// The kind of an error of an object store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BucketErrorKind {
    /// The object store does not answer at present. The same request may succeed later.
    Away,
    /// The object store refuses the request: the bucket is missing, or the credentials are wrong.
    Refused,
}

/// An error of an object store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketError {
    /// The kind of the error.
    pub kind: BucketErrorKind,
    /// What happened. It has no credentials.
    pub message: String,
}

impl BucketError {
    /// Creates an error for an object store that does not answer.
    pub fn away(message: impl Into<String>) -> BucketError {
        BucketError { kind: BucketErrorKind::Away, message: message.into() }
    }

    /// Creates an error for a request that the object store refuses.
    pub fn refused(message: impl Into<String>) -> BucketError {
        BucketError { kind: BucketErrorKind::Refused, message: message.into() }
    }

    /// Returns the advice for the operator.
    pub(super) fn advice(&self) -> &'static str {
        match self.kind {
            BucketErrorKind::Away => "check `AWS_ENDPOINT_URL`, or try again later",
            BucketErrorKind::Refused => {
                "check the name of the bucket, `AWS_REGION`, and the key in `AWS_ACCESS_KEY_ID` and its rights"
            }
        }
    }
}

impl fmt::Display for BucketError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for BucketError {}

/// Objects with names. What a method has done is durable when it returns, and every later call sees it.
pub trait Bucket: Send + Sync {
    /// Writes an object.
    fn put(&self, name: &str, bytes: Vec<u8>) -> Result<(), BucketError>;

    /// Writes an object unless there is one of this name. An existing one is no error.
    fn create(&self, name: &str, bytes: Vec<u8>) -> Result<(), BucketError>;

    /// Begins to write an object in parts. It becomes visible when it is complete.
    fn begin(&self, name: &str) -> Result<Box<dyn Upload>, BucketError>;

    /// Reads a range of an object, up to its end. Returns `None` if there is no such object.
    fn read(&self, name: &str, range: Range<u64>) -> Result<Option<Vec<u8>>, BucketError>;

    /// Removes objects. A missing one is no error.
    fn remove(&self, names: &[String]) -> Result<(), BucketError>;

    /// Calls `visit` with the name of each object whose name begins with `folder` and a slash.
    fn list(&self, folder: &str, visit: &mut dyn FnMut(&str)) -> Result<(), BucketError>;
}

/// An object that is written in parts. Dropping it discards the parts.
pub trait Upload: Send + Sync {
    /// Adds a part. All parts but the last have the same size.
    fn add(&mut self, part: Vec<u8>) -> Result<(), BucketError>;

    /// Completes the object.
    fn complete(self: Box<Self>) -> Result<(), BucketError>;

    /// Discards the parts, and waits until they are gone, because the process may end soon.
    fn discard(self: Box<Self>);
}
