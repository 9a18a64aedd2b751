//! The permits of one request, and those for the bytes of request and response bodies in memory. Tenants share both.
//!
//! A body of at most [`MAX_UNCOUNTED_BYTES`] takes no permit, because the maximum number of requests bounds the memory
//! of all small bodies. A larger request body holds a permit from before it is read until the request is answered. A
//! larger response body holds one until it is sent.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use axum::{
    body::{Body, Bytes},
    http::Method,
    response::{IntoResponse, Response},
};
use flowcell_contract::Tenant;
use flowcell_engine::{FairSemaphore, Permit};
use hyper::body::{Body as _, Frame, SizeHint};
use parking_lot::Mutex;

use super::api_error::ApiError;

/// Maximum size in bytes of all request bodies in memory. A [`FairSemaphore`] divides it among tenants.
pub(crate) const MAX_REQUEST_BYTES: u64 = 256 << 20;
/// Maximum size in bytes of all posts to triggers in memory. A [`FairSemaphore`] divides it among client addresses.
pub(crate) const MAX_HOOK_BYTES: u64 = 64 << 20;
/// Maximum size in bytes of all responses in memory, without pages of lists. A [`FairSemaphore`] divides it among
/// tenants.
pub(crate) const MAX_RESPONSE_BYTES: u64 = 256 << 20;
/// Maximum size in bytes of a body that takes no permit.
pub(crate) const MAX_UNCOUNTED_BYTES: u64 = 64 << 10;
/// Maximum size in bytes of the pieces in which a response is passed to its connection.
const PIECE_BYTES: usize = 64 << 10;

/// The permits of one request. They are released when the last `Arc` is dropped: by the middleware once the request is
/// answered, or by work that continues after the caller has disconnected.
pub(crate) struct RequestPermit {
    /// The permit for the request itself. A post to a trigger has none.
    _request: Option<Permit>,
    bodies: FairSemaphore,
    /// The holder of the permits for bodies: the tenant. For a post to a trigger, it is the client address, converted
    /// to a tenant.
    holder: Tenant,
    body: Mutex<Option<Permit>>,
}

impl RequestPermit {
    pub(crate) fn new(request: Option<Permit>, bodies: FairSemaphore, holder: Tenant) -> Arc<RequestPermit> {
        Arc::new(RequestPermit { _request: request, bodies, holder, body: Mutex::default() })
    }

    /// Takes the permit for a request body of this size in bytes, and waits until the holder may have it. A body of at
    /// most [`MAX_UNCOUNTED_BYTES`] takes none.
    pub(crate) async fn take_body(&self, bytes: u64) {
        if bytes > MAX_UNCOUNTED_BYTES {
            let permit = self.bodies.take(&self.holder, bytes).await;
            *self.body.lock() = Some(permit);
        }
    }

    /// Reduces the permit for the request body to this size in bytes, which is the actual size of the body.
    pub(crate) fn shrink_body(&self, bytes: u64) {
        if let Some(permit) = self.body.lock().as_mut() {
            permit.shrink(bytes);
        }
    }

    /// Returns the response. If its body is larger than [`MAX_UNCOUNTED_BYTES`], the body holds a permit for its bytes
    /// and the permits of the request until it is sent. Streams, which have no known size, and responses with the mark
    /// [`Counted`] are returned unchanged.
    ///
    /// A large response to a read is replaced by 429 if the tenant gets no permit for it now. The response to a change
    /// waits for its permit, because the change is already made.
    pub(crate) async fn hold_until_sent(
        self: Arc<RequestPermit>,
        method: &Method,
        responses: &FairSemaphore,
        response: Response,
    ) -> Response {
        let is_counted = response.extensions().get::<Counted>().is_some();
        let bytes = response.body().size_hint().exact().filter(|bytes| !is_counted && *bytes > MAX_UNCOUNTED_BYTES);
        let Some(bytes) = bytes else { return response };
        let permit = match method.is_safe() {
            true => responses.try_take(&self.holder, bytes),
            false => Some(responses.take(&self.holder, bytes).await),
        };
        match permit {
            Some(permit) => response.map(|body| Body::new(Guarded::new(body, (permit, self)))),
            None => unread_responses().into_response(),
        }
    }
}

/// Returns 429 for a large response that gets no permit, because the tenant's clients have not read earlier responses.
pub(crate) fn unread_responses() -> ApiError {
    let why = "this tenant has too many bytes of responses that its clients have not read yet; read them first";
    ApiError::busy("too_many_requests", why)
}

/// Marks a response that already holds a permit for its bytes, so that [`RequestPermit::hold_until_sent`] takes none.
#[derive(Clone, Copy)]
pub(crate) struct Counted;

/// A response body that owns a value, such as a permit, until all but the last [`PIECE_BYTES`] of the body are sent.
///
/// The body is passed to the connection in pieces. A connection requests a piece only after it has sent the previous
/// one, and drops the body when it gets the last piece. A body of one piece would be dropped while all its bytes still
/// wait in the connection.
pub(crate) struct Guarded<T> {
    body: Body,
    /// The part of the current frame that is not passed to the connection yet.
    rest: Bytes,
    _guard: T,
}

impl<T> Guarded<T> {
    pub(crate) fn new(body: Body, guard: T) -> Guarded<T> {
        Guarded { body, rest: Bytes::new(), _guard: guard }
    }

    fn piece(&mut self) -> Frame<Bytes> {
        let length = self.rest.len().min(PIECE_BYTES);
        Frame::data(self.rest.split_to(length))
    }
}

impl<T: Unpin> hyper::body::Body for Guarded<T> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if !self.rest.is_empty() {
            return Poll::Ready(Some(Ok(self.piece())));
        }
        match std::task::ready!(Pin::new(&mut self.body).poll_frame(context)) {
            Some(Ok(frame)) => Poll::Ready(Some(Ok(match frame.into_data() {
                Ok(data) => {
                    self.rest = data;
                    self.piece()
                }
                Err(trailers) => trailers,
            }))),
            other => Poll::Ready(other),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (hint, rest) = (self.body.size_hint(), self.rest.len() as u64);
        let mut all = SizeHint::new();
        all.set_lower(hint.lower() + rest);
        if let Some(upper) = hint.upper() {
            all.set_upper(upper + rest);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use axum::http::StatusCode;
    use futures_util::FutureExt;
    use http_body_util::BodyExt;

    use super::*;

    const LARGE: usize = MAX_UNCOUNTED_BYTES as usize + 1;

    fn permit() -> Arc<RequestPermit> {
        RequestPermit::new(None, FairSemaphore::new(0), "a".into())
    }

    #[tokio::test]
    async fn large_responses_hold_a_permit_until_they_are_read() {
        // A single tenant may hold half of the bytes: two of these responses.
        let semaphore = FairSemaphore::new(5 * LARGE as u64);
        let respond = |method, bytes| {
            let (semaphore, permit) = (semaphore.clone(), permit());
            async move { permit.hold_until_sent(&method, &semaphore, vec![0; bytes].into_response()).await }
        };
        let first = respond(Method::GET, LARGE).await;
        let second = respond(Method::POST, LARGE).await;
        assert_eq!(semaphore.taken(), 2 * LARGE as u64);
        assert_eq!(respond(Method::GET, LARGE).await.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(respond(Method::GET, LARGE - 1).await.status(), StatusCode::OK, "small ones do not count");
        let mut change = Box::pin(respond(Method::POST, LARGE));
        assert!((&mut change).now_or_never().is_none(), "a change is answered later");
        let bytes = first.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(bytes.len(), LARGE);
        assert_eq!(change.await.status(), StatusCode::OK);
        drop(second);
        assert_eq!(semaphore.taken(), 0);
    }

    #[tokio::test]
    async fn a_response_is_sent_in_pieces_and_holds_its_permit_until_the_last() {
        let semaphore = FairSemaphore::new(10 * LARGE as u64);
        let response =
            permit().hold_until_sent(&Method::GET, &semaphore, vec![7; 2 * PIECE_BYTES + 1].into_response()).await;
        let mut body = response.into_body();
        let mut sizes = Vec::new();
        while let Some(frame) = body.frame().await {
            assert!(semaphore.taken() > 0);
            sizes.push(frame.unwrap().into_data().unwrap().len());
            assert_eq!(body.size_hint().exact(), Some((2 * PIECE_BYTES + 1 - sizes.iter().sum::<usize>()) as u64));
        }
        assert_eq!(sizes, [PIECE_BYTES, PIECE_BYTES, 1]);
        drop(body);
        assert_eq!(semaphore.taken(), 0);
    }
}
