//! Large contents, whose bytes are not in a row of a database: their pieces, and the digest of each piece.

use std::{ops::Range, sync::Arc};

use flowcell_contract::{Failure, MAX_FILE_BYTES, PIECE_BYTES, code};
use sha2::{Digest, Sha256};

/// The size of a SHA-256 in bytes.
const DIGEST_BYTES: usize = 32;
/// The size of a piece in bytes.
pub(crate) const PIECE: u64 = PIECE_BYTES as u64;

/// A large content as its row describes it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LargeFile {
    /// The size in bytes.
    pub(crate) size: u64,
    /// The SHA-256 of each piece, one after the other.
    pub(crate) digests: Arc<[u8]>,
    /// The name of the object that has the bytes. `None`: a file beside the database has them.
    pub(crate) object: Option<Arc<str>>,
}

impl LargeFile {
    /// Describes bytes that are in memory. They become an object of this name.
    #[cfg_attr(
        not(feature = "object-blobs"),
        allow(dead_code, reason = "a build without object stores has no objects")
    )]
    pub(crate) fn of(bytes: &[u8], object: Arc<str>) -> LargeFile {
        let digests: Vec<u8> = bytes.chunks(PIECE_BYTES).flat_map(Sha256::digest).collect();
        LargeFile { size: bytes.len() as u64, digests: digests.into(), object: Some(object) }
    }

    /// Returns at most `length` bytes from `offset` on. `fetch` returns the bytes of a range that begins and ends with
    /// a piece. Fails if they are not the bytes that were written.
    pub(crate) fn read<E>(
        &self,
        offset: u64,
        length: usize,
        damaged: impl Fn() -> E,
        fetch: impl FnOnce(Range<u64>) -> Result<Vec<u8>, E>,
    ) -> Result<Vec<u8>, E> {
        let end = offset.saturating_add(length as u64).min(self.size);
        if offset >= end {
            return Ok(Vec::new());
        }
        let first = offset / PIECE;
        let range = first * PIECE..(end.div_ceil(PIECE) * PIECE).min(self.size);
        let begin = range.start;
        let mut bytes = fetch(range.clone())?;
        if bytes.len() as u64 != range.end - range.start {
            return Err(damaged());
        }
        for (number, piece) in (first..).zip(bytes.chunks(PIECE_BYTES)) {
            let at = usize::try_from(number).unwrap_or(usize::MAX).saturating_mul(DIGEST_BYTES);
            let digest = self.digests.get(at..at.saturating_add(DIGEST_BYTES)).ok_or_else(&damaged)?;
            if Sha256::digest(piece)[..] != *digest {
                return Err(damaged());
            }
        }
        bytes.truncate((end - begin) as usize);
        bytes.drain(..(offset - begin) as usize);
        Ok(bytes)
    }
}

/// The digests of a content that arrives in parts.
#[derive(Default)]
pub(crate) struct Pieces {
    size: u64,
    content: Sha256,
    piece: Sha256,
    digests: Vec<u8>,
}

impl Pieces {
    /// Adds the next bytes. Fails beyond [`MAX_FILE_BYTES`].
    pub(crate) fn add(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        if bytes.len() as u64 > MAX_FILE_BYTES - self.size {
            let message = format!("a file has at most {MAX_FILE_BYTES} bytes");
            return Err(Failure::new(code::FILE_TOO_LARGE, message));
        }
        self.content.update(bytes);
        let mut rest = bytes;
        while !rest.is_empty() {
            let left = (PIECE - self.size % PIECE) as usize;
            let (now, later) = rest.split_at(rest.len().min(left));
            self.piece.update(now);
            self.size += now.len() as u64;
            if self.size.is_multiple_of(PIECE) {
                self.digests.extend_from_slice(&self.piece.finalize_reset());
            }
            rest = later;
        }
        Ok(())
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Returns the hash of the content, and its description.
    pub(crate) fn finish(mut self, object: Option<Arc<str>>) -> (Arc<str>, LargeFile) {
        if !self.size.is_multiple_of(PIECE) {
            self.digests.extend_from_slice(&self.piece.finalize_reset());
        }
        let hash = hex::encode(self.content.finalize_reset()).into();
        (hash, LargeFile { size: self.size, digests: self.digests.into(), object })
    }
}
