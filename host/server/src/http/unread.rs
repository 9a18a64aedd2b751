//! The bodies of requests that the server answers before it has read them.
//!
//! A proxy passes a whole body on. If the server answers early and closes the connection, the proxy cannot
//! send the rest, and its client gets an error of the proxy in place of the server's. So the server reads and drops the rest
//! of a body that a trusted proxy sends, before it answers.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::body::{Body, Bytes};
use http_body_util::BodyExt;
use hyper::body::{Frame, SizeHint};
use parking_lot::Mutex;

/// Maximum number of bytes of the rest of a body that are read and dropped.
pub(crate) const MAX_UNREAD_BYTES: usize = 64 * 1024 * 1024;

/// The body of a request, while its handler may read it.
struct SharedBody<B>(Arc<Mutex<B>>);

/// The body of a request, after its handler.
pub(crate) struct Unread<B>(Arc<Mutex<B>>);

/// Divides a body between the handler, which reads it, and the connection, which reads the rest.
pub(crate) fn share<B>(body: B) -> (Body, Unread<B>)
where
    B: hyper::body::Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<axum::BoxError>,
{
    let body = Arc::new(Mutex::new(body));
    (Body::new(SharedBody(body.clone())), Unread(body))
}

impl<B: hyper::body::Body + Unpin> hyper::body::Body for SharedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        hyper::body::Body::poll_frame(Pin::new(&mut *self.0.lock()), context)
    }

    fn is_end_stream(&self) -> bool {
        self.0.lock().is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.lock().size_hint()
    }
}

impl<B: hyper::body::Body<Data = Bytes> + Unpin> Unread<B> {
    /// Reads and drops the rest of the body, at most [`MAX_UNREAD_BYTES`] and for at most this time. Reads nothing if the
    /// answer still needs the body.
    pub(crate) async fn read(self, time: Duration) {
        let Some(body) = Arc::into_inner(self.0) else { return };
        let (mut body, mut left) = (body.into_inner(), MAX_UNREAD_BYTES);
        let rest = async {
            while let Some(Ok(frame)) = body.frame().await {
                match left.checked_sub(frame.data_ref().map_or(0, Bytes::len)) {
                    Some(fewer) => left = fewer,
                    None => return,
                }
            }
        };
        // A body that does not come in time is cut off, as without a proxy.
        let _ = tokio::time::timeout(time, rest).await;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::{
        convert::Infallible,
        sync::atomic::{AtomicUsize, Ordering},
    };

    use futures_util::{StreamExt, stream};
    use http_body_util::StreamBody;

    use super::*;

    const MIB: usize = 1 << 20;

    /// Returns a body of so many pieces of 1 MiB, and the number of those that were read.
    fn body(
        pieces: usize,
    ) -> (impl hyper::body::Body<Data = Bytes, Error = Infallible> + Send + Unpin, Arc<AtomicUsize>) {
        let read = Arc::new(AtomicUsize::new(0));
        let counted = read.clone();
        let pieces = stream::iter(0..pieces).map(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
            Ok(Frame::data(Bytes::from_static(&[0; MIB])))
        });
        (StreamBody::new(pieces), read)
    }

    #[tokio::test]
    async fn the_rest_of_a_body_is_read_up_to_a_limit() {
        for (pieces, expected) in [(3, 3), (1_000, MAX_UNREAD_BYTES / MIB + 1)] {
            let (body, read) = body(pieces);
            let (mut handled, unread) = share(body);
            assert!(handled.frame().await.unwrap().unwrap().is_data());
            drop(handled);
            unread.read(Duration::from_secs(60)).await;
            // The handler has read the first piece.
            assert_eq!(read.load(Ordering::Relaxed).min(expected), expected.min(pieces), "{pieces}");
            assert!(read.load(Ordering::Relaxed) <= expected + 1, "{pieces}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_come_or_is_still_needed_holds_nothing_up() {
        let (handled, unread) = share(StreamBody::new(stream::pending::<Result<Frame<Bytes>, Infallible>>()));
        drop(handled);
        unread.read(Duration::from_secs(30)).await;
        let (body, read) = body(3);
        let (handled, unread) = share(body);
        unread.read(Duration::from_secs(30)).await;
        assert_eq!(read.load(Ordering::Relaxed), 0);
        drop(handled);
    }
}
