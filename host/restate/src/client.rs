//! The HTTP client of Restate's ingress and admin interface.
//!
//! Every request of this crate may be sent twice: reads change nothing, messages and first units have ids, and a second
//! invocation that finds nothing to do ends at once. So the client repeats a request whose answer was lost.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use flowcell_runtime::ports::{StoreError, StoreErrorKind};
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde::{Serialize, de::DeserializeOwned};
use tokio::{net::TcpStream, time::timeout};

use crate::wire::parse;

/// The maximum duration of one request.
const REQUEST_PATIENCE: Duration = Duration::from_secs(10);
/// The maximum pause between two tries of a request.
const MAX_PAUSE: Duration = Duration::from_millis(500);
/// The number of idle connections that a client keeps.
const MAX_IDLE: usize = 64;

/// An error of one request.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RequestError {
    /// The server does not answer, or answers that it cannot at present.
    #[error("the Restate server {address} does not answer: {why}")]
    Unreachable { address: Arc<str>, why: String },
    /// The server refuses the request.
    #[error("the Restate server {address} refuses `{path}`: {status} {why}")]
    Refused { address: Arc<str>, path: String, status: StatusCode, why: String },
}

impl From<RequestError> for StoreError {
    fn from(error: RequestError) -> StoreError {
        let kind = match &error {
            RequestError::Unreachable { .. } => StoreErrorKind::Outage,
            RequestError::Refused { .. } => StoreErrorKind::Failed,
        };
        StoreError::new(kind, error.to_string())
    }
}

/// Returns true if the server may accept the same request later.
fn is_temporary(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT
    )
}

/// A client of one address.
pub(crate) struct Client {
    address: Arc<str>,
    idle: Mutex<Vec<SendRequest<Full<Bytes>>>>,
}

impl Client {
    pub(crate) fn new(address: &str) -> Client {
        Client { address: address.into(), idle: Mutex::default() }
    }

    /// Posts a JSON text. Tries again while the server does not answer, at most until `patience` is over.
    pub(crate) async fn post<I: Serialize, O: DeserializeOwned>(
        &self,
        path: &str,
        id: Option<&str>,
        input: &I,
        patience: Duration,
    ) -> Result<O, RequestError> {
        let body = serde_json::to_vec(input).map_err(|error| self.unreachable(error))?;
        let body = Bytes::from(body);
        let (began, mut pause) = (tokio::time::Instant::now(), Duration::from_millis(5));
        loop {
            let answered = match timeout(REQUEST_PATIENCE, self.try_post(path, id, body.clone())).await {
                Ok(answered) => answered,
                Err(_) => Err(self.unreachable("it did not answer in time")),
            };
            match answered {
                Ok((status, text)) if status.is_success() => {
                    let text = if text.is_empty() { "null" } else { std::str::from_utf8(&text).unwrap_or("") };
                    return parse(text).map_err(|error| self.unreachable(error));
                }
                Ok((status, text)) if !is_temporary(status) => {
                    let (address, path) = (self.address.clone(), path.to_owned());
                    let why = String::from_utf8_lossy(&text).into_owned();
                    return Err(RequestError::Refused { address, path, status, why });
                }
                failed => {
                    let error = match failed {
                        Ok((status, text)) => self.unreachable(format!("{status} {}", String::from_utf8_lossy(&text))),
                        Err(error) => error,
                    };
                    if began.elapsed() + pause > patience {
                        return Err(error);
                    }
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(MAX_PAUSE);
                }
            }
        }
    }

    async fn try_post(&self, path: &str, id: Option<&str>, body: Bytes) -> Result<(StatusCode, Bytes), RequestError> {
        let idle = self.idle.lock().pop();
        let mut sender = match idle {
            Some(sender) if !sender.is_closed() => sender,
            _ => self.connect().await?,
        };
        sender.ready().await.map_err(|error| self.unreachable(error))?;
        let mut request = Request::post(path).header(header::HOST, &*self.address);
        request = request.header(header::CONTENT_TYPE, "application/json");
        if let Some(id) = id {
            request = request.header("idempotency-key", id);
        }
        let request = request.body(Full::new(body)).map_err(|error| self.unreachable(error))?;
        let answer = sender.send_request(request).await.map_err(|error| self.unreachable(error))?;
        let status = answer.status();
        let text = answer.into_body().collect().await.map_err(|error| self.unreachable(error))?.to_bytes();
        let mut idle = self.idle.lock();
        if idle.len() < MAX_IDLE {
            idle.push(sender);
        }
        Ok((status, text))
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, RequestError> {
        let stream = TcpStream::connect(&*self.address).await.map_err(|error| self.unreachable(error))?;
        stream.set_nodelay(true).map_err(|error| self.unreachable(error))?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(|error| self.unreachable(error))?;
        // The connection ends with its error, which the next request on it also reports.
        tokio::spawn(async move { _ = connection.await });
        Ok(sender)
    }

    fn unreachable(&self, why: impl ToString) -> RequestError {
        RequestError::Unreachable { address: self.address.clone(), why: why.to_string() }
    }
}
