//! Bodies that do not pass the memory of the host as a whole: files that are sent, and answers that become files.

use std::sync::Arc;

use bytes::Bytes;
use flowcell_contract::{BlobRef, Failure, Json, PIECE_BYTES, Tenant};

use super::limits::BodyLimit;
use crate::{
    client::{Body, Parts},
    code,
    files::{AsyncBlobs, AsyncWriter},
};

/// Returns a stored file of this size as the body of a request. It is read while it is sent.
pub(super) fn sent(files: &AsyncBlobs, tenant: &Tenant, blob: &BlobRef, size: u64) -> Parts {
    let (files, tenant, blob) = (files.clone(), tenant.clone(), blob.clone());
    let read = move |offset: u64| -> futures_util::future::BoxFuture<'static, Result<Bytes, Failure>> {
        let (files, tenant, blob) = (files.clone(), tenant.clone(), blob.clone());
        Box::pin(async move { files.read_part(&tenant, &blob, offset, PIECE_BYTES).await })
    };
    Parts { size, read: Arc::new(read) }
}

/// The body of an answer while it arrives: in memory at first, and in a file from a certain size on.
pub(super) struct Arriving<'a> {
    pub(super) files: &'a AsyncBlobs,
    pub(super) tenant: &'a Tenant,
    /// The size in bytes from which on the body is a file.
    pub(super) in_memory: usize,
    /// Maximum size in bytes.
    pub(super) most: u64,
    /// The length that the server has announced.
    pub(super) announced: Option<u64>,
}

/// A body that has arrived.
pub(super) enum Arrived {
    InMemory(Vec<u8>),
    File(AsyncWriter),
}

impl Arriving<'_> {
    /// Reads a body to its end. If the connection breaks while the body becomes a file, fails with
    /// `stream_interrupted`, and nothing is stored.
    pub(super) async fn read(self, mut body: Body) -> Result<Arrived, Failure> {
        let (mut received, mut waiting, mut writer) = (0, Vec::new(), None);
        loop {
            let piece = match body.next().await {
                Ok(piece) => piece,
                Err(failure) if writer.is_some() => return Err(self.interrupted(received, &failure)),
                Err(failure) => return Err(failure),
            };
            let Some(piece) = piece else { break };
            received += piece.len() as u64;
            if received > self.most {
                return Err(BodyLimit::Answer(self.most).exceeded());
            }
            waiting.extend_from_slice(&piece);
            if writer.is_none() && waiting.len() > self.in_memory {
                writer = Some(self.files.writer(self.tenant).await?);
            }
            if let Some(writer) = &mut writer
                && waiting.len() >= PIECE_BYTES
            {
                writer.write(std::mem::take(&mut waiting).into()).await?;
            }
        }
        match writer {
            None => Ok(Arrived::InMemory(waiting)),
            Some(mut writer) => {
                writer.write(waiting.into()).await?;
                Ok(Arrived::File(writer))
            }
        }
    }

    fn interrupted(&self, received: u64, failure: &Failure) -> Failure {
        let message = format!("the connection broke after {received} bytes of the body: {}", failure.message);
        let announced = self.announced.map(|announced| ("announced", Json::from(announced)));
        let details = Json::object([("received", Json::from(received))].into_iter().chain(announced));
        Failure { details: Some(details), ..Failure::retryable(code::STREAM_INTERRUPTED, message) }
    }
}
