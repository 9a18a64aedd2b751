//! Bodies of messages: bytes in memory, or a content that is read while it is sent.

use std::{
    fmt, io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use flowcell_contract::Failure;
use futures_util::future::BoxFuture;
use hyper::body::{Body, Frame, SizeHint};

/// The body of a message.
pub(super) enum Content {
    /// Bytes in memory. No bytes mean no body.
    Bytes(Bytes),
    /// A content that is read in parts.
    Parts(Parts),
}

/// A content of known size that is read in parts.
#[derive(Clone)]
pub struct Parts {
    /// The size in bytes.
    pub(crate) size: u64,
    /// Returns the part at an offset, which is not empty before the end.
    pub(crate) read: Arc<dyn Fn(u64) -> BoxFuture<'static, Result<Bytes, Failure>> + Send + Sync>,
}

impl fmt::Debug for Parts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Parts").field("size", &self.size).finish_non_exhaustive()
    }
}

impl Content {
    /// Returns whether there is no body.
    pub(super) fn is_empty(&self) -> bool {
        match self {
            Content::Bytes(bytes) => bytes.is_empty(),
            Content::Parts(parts) => parts.size == 0,
        }
    }
}

/// A body that is being sent.
pub(super) struct Sending {
    content: Content,
    sent: u64,
    reading: Option<BoxFuture<'static, Result<Bytes, Failure>>>,
}

impl From<Content> for Sending {
    fn from(content: Content) -> Sending {
        Sending { content, sent: 0, reading: None }
    }
}

impl Sending {
    fn rest(&self) -> u64 {
        match &self.content {
            Content::Bytes(bytes) => bytes.len() as u64,
            Content::Parts(parts) => parts.size.saturating_sub(self.sent),
        }
    }
}

impl Body for Sending {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let this = self.get_mut();
        let rest = this.rest();
        if rest == 0 {
            return Poll::Ready(None);
        }
        let parts = match &mut this.content {
            Content::Bytes(bytes) => return Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Content::Parts(parts) => parts,
        };
        let reading = this.reading.get_or_insert_with(|| (parts.read)(this.sent));
        let read = ready!(reading.as_mut().poll(context));
        this.reading = None;
        Poll::Ready(Some(match read {
            Ok(bytes) if bytes.is_empty() || bytes.len() as u64 > rest => {
                Err(io::Error::other("the file that is sent has another size"))
            }
            Ok(bytes) => {
                this.sent += bytes.len() as u64;
                Ok(Frame::data(bytes))
            }
            Err(failure) => Err(io::Error::other(failure.message.to_string())),
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.rest() == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest())
    }
}
