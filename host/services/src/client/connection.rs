//! One HTTP connection, with one exchange at a time.

use std::{
    error::Error as _,
    future::{Future, poll_fn},
    io,
    pin::{Pin, pin},
    task::{Context, Poll},
};

use bytes::Bytes;
use flowcell_contract::Failure;
use hyper::{
    Request,
    body::{Body as _, Frame, Incoming},
    client::conn::http1::{self, SendRequest},
    http::response,
};
use hyper_util::rt::TokioIo;

use super::body::Sending;
use crate::{code, egress};

/// Maximum number of headers of an answer.
const MAX_HEADERS: usize = 100;
/// Maximum size in bytes of an answer's head: its status line and headers.
const MAX_HEAD_BYTES: usize = 64 * 1024;

/// An HTTP connection. Dropping it closes it. Its bytes move only while one of its asynchronous functions is polled: a tokio
/// task of its own would have to be woken twice for each exchange.
pub(super) struct Connection {
    sender: SendRequest<Sending>,
    /// `None`: the connection has ended.
    driver: Option<Driver>,
}

/// Sends and receives the bytes of a connection.
type Driver = http1::Connection<TokioIo<egress::Connection>, Sending>;

/// The outcome of an exchange.
pub(super) enum Exchange {
    /// The head of an answer arrived.
    Answered(response::Parts, Incoming),
    /// The exchange failed before any byte was written. The value is the request, which can be sent again.
    Unsent(Box<Request<Sending>>),
    /// The exchange failed after bytes may have been written.
    Failed(Failure),
}

impl Connection {
    pub(super) async fn open(wire: egress::Connection) -> Result<Connection, Failure> {
        let mut builder = http1::Builder::new();
        builder.max_headers(MAX_HEADERS).max_buf_size(MAX_HEAD_BYTES);
        let (sender, driver) = builder.handshake(TokioIo::new(wire)).await.map_err(|error| protocol_failure(&error))?;
        Ok(Connection { sender, driver: Some(driver) })
    }

    /// Waits until the connection is ready for a request or closed. Returns true if it is ready.
    pub(super) async fn is_usable(&mut self) -> bool {
        poll_fn(|context| {
            drive(&mut self.driver, context);
            self.sender.poll_ready(context)
        })
        .await
        .is_ok()
    }

    /// Returns whether the connection is known to be closed. While nothing polls it, it does not notice that its peer closes.
    pub(super) fn is_closed(&self) -> bool {
        self.driver.is_none() || self.sender.is_closed()
    }

    pub(super) async fn exchange(&mut self, request: Request<Sending>) -> Exchange {
        let Connection { sender, driver } = self;
        let mut sent = pin!(sender.try_send_request(request));
        let answered = poll_fn(|context| {
            drive(driver, context);
            sent.as_mut().poll(context)
        });
        match answered.await {
            Ok(answer) => {
                let (head, body) = answer.into_parts();
                Exchange::Answered(head, body)
            }
            Err(mut error) => match error.take_message() {
                Some(request) => Exchange::Unsent(Box::new(request)),
                None => Exchange::Failed(protocol_failure(error.error())),
            },
        }
    }

    /// Returns the next frame of the body of an answer on this connection.
    pub(super) fn poll_frame(
        &mut self,
        body: &mut Incoming,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        drive(&mut self.driver, context);
        Pin::new(body).poll_frame(context)
    }
}

/// Sends and receives what is ready. An error of the driver is not used here: who waits for the answer or its body
/// receives it too.
fn drive(driver: &mut Option<Driver>, context: &mut Context<'_>) {
    if let Some(running) = driver
        && Pin::new(running).poll(context).is_ready()
    {
        *driver = None;
    }
}

/// Converts an error of an exchange to the failure `http_protocol`. It is retryable if the connection broke, and not
/// retryable if the peer sent something other than HTTP.
pub(super) fn protocol_failure(error: &hyper::Error) -> Failure {
    if error.is_parse() {
        let message = format!(
            "the answer is not HTTP/1.1, or its head exceeds {MAX_HEADERS} headers or {MAX_HEAD_BYTES} bytes: {error}"
        );
        return Failure::new(code::PROTOCOL, message);
    }
    let source = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    if let Some(source) = source.filter(|source| is_nonsense(source)) {
        return Failure::new(code::PROTOCOL, format!("the body of the answer is not HTTP/1.1: {source}"));
    }
    Failure::retryable(code::PROTOCOL, format!("the connection broke before the answer was complete: {error}"))
}

/// Returns true if the peer sent invalid data.
fn is_nonsense(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData)
}
