//! One connection, and one exchange over it at a time.

use std::{error::Error as _, io};

use bytes::Bytes;
use flowcell_contract::Failure;
use http_body_util::Full;
use hyper::{
    Request,
    body::Incoming,
    client::conn::http1::{self, SendRequest},
    http::response,
};
use hyper_util::rt::TokioIo;
use tokio::task::AbortHandle;

use crate::{code, egress};

/// Headers of an answer, at most.
const MAX_HEADERS: usize = 100;
/// Bytes of the head of an answer, at most.
const MAX_HEAD: usize = 64 * 1024;

/// A connection on which HTTP is spoken. It is closed when it is dropped.
pub(super) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    driver: AbortHandle,
}

/// How an exchange ended.
pub(super) enum Exchange {
    /// With the head of an answer.
    Answered(response::Parts, Incoming),
    /// Before anything was written.
    Unsent(Box<Request<Full<Bytes>>>),
    /// After something may have been written.
    Failed(Failure),
}

impl Connection {
    pub(super) async fn open(wire: egress::Connection) -> Result<Connection, Failure> {
        let mut builder = http1::Builder::new();
        builder.max_headers(MAX_HEADERS).max_buf_size(MAX_HEAD);
        let (sender, driver) = builder.handshake(TokioIo::new(wire)).await.map_err(|error| broken(&error))?;
        // How it ends is told to whoever waits for an answer.
        let driver = tokio::spawn(async move { drop(driver.await) }).abort_handle();
        Ok(Connection { sender, driver })
    }

    /// Whether it can be used, as soon as that is known.
    pub(super) async fn is_usable(&mut self) -> bool {
        self.sender.ready().await.is_ok()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    pub(super) async fn exchange(&mut self, request: Request<Full<Bytes>>) -> Exchange {
        match self.sender.try_send_request(request).await {
            Ok(answer) => {
                let (head, body) = answer.into_parts();
                Exchange::Answered(head, body)
            }
            Err(mut error) => match error.take_message() {
                Some(request) => Exchange::Unsent(Box::new(request)),
                None => Exchange::Failed(broken(error.error())),
            },
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// An exchange that broke. A peer that does not speak HTTP will not do so the next time either.
pub(super) fn broken(error: &hyper::Error) -> Failure {
    if error.is_parse() {
        let message = format!(
            "the answer is not HTTP/1.1, or its head is larger than {MAX_HEADERS} headers and {MAX_HEAD} bytes: {error}"
        );
        return Failure::new(code::PROTOCOL, message);
    }
    let source = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    if let Some(source) = source.filter(|source| is_nonsense(source)) {
        return Failure::new(code::PROTOCOL, format!("the body of the answer is not HTTP/1.1: {source}"));
    }
    Failure::retryable(code::PROTOCOL, format!("the connection broke before the answer was complete: {error}"))
}

/// Whether something came that means nothing, instead of nothing.
fn is_nonsense(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData)
}
