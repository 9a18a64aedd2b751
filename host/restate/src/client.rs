//! The HTTP client of Restate's ingress and admin interface.
//!
//! Every request of this crate may be sent twice: reads change nothing, messages and first units have ids, and a second
//! invocation that finds nothing to do ends at once. So the client repeats a request whose answer was lost.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use flowcell_runtime::ports::{StoreError, StoreErrorKind};
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde::{Serialize, de::DeserializeOwned};
use tokio::{net::TcpStream, time::timeout};

use crate::wire::parse;

/// The maximum duration of one request, and that of one whose caller has less patience. An address that a network has
/// separated from the other nodes accepts connections and does not answer.
const REQUEST_PATIENCE: Duration = Duration::from_secs(10);
const SHORT_PATIENCE: Duration = Duration::from_secs(3);
/// The maximum duration of a connect.
const CONNECT_PATIENCE: Duration = Duration::from_secs(2);
/// The time for the answer of one address whether it is there.
const PROBE_PATIENCE: Duration = Duration::from_secs(3);
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
    /// The text of a request or of an answer is wrong, such as one of another version.
    #[error("the Restate server {address} and this process do not understand each other at `{path}`: {why}")]
    Unreadable { address: Arc<str>, path: String, why: String },
}

impl From<RequestError> for StoreError {
    fn from(error: RequestError) -> StoreError {
        let kind = match &error {
            RequestError::Unreachable { .. } => StoreErrorKind::Outage,
            RequestError::Refused { .. } | RequestError::Unreadable { .. } => StoreErrorKind::Failed,
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

/// Returns the text of an answer that the server cannot do its work at present.
fn answer_text(status: StatusCode, text: &[u8]) -> String {
    format!("{status} {}", String::from_utf8_lossy(text))
}

/// A client of a server with one or several addresses.
pub(crate) struct Client {
    addresses: Vec<Arc<str>>,
    /// The place of the address that answered last.
    present: AtomicUsize,
    /// Idle connections, each with the place of its address.
    idle: Mutex<Vec<(usize, SendRequest<Full<Bytes>>)>>,
    /// The last error, if no address answers.
    away: Mutex<Option<String>>,
}

impl Client {
    pub(crate) fn new(addresses: &[String]) -> Client {
        let addresses = addresses.iter().map(|address| Arc::from(address.as_str())).collect();
        Client { addresses, present: AtomicUsize::new(0), idle: Mutex::default(), away: Mutex::default() }
    }

    /// Returns the last error, if no address answers.
    pub(crate) fn away(&self) -> Option<String> {
        self.away.lock().clone()
    }

    /// Posts a JSON text. Tries again while the server does not answer, at least once at each address, and until `patience`
    /// is over.
    pub(crate) async fn post<I: Serialize, O: DeserializeOwned>(
        &self,
        path: &str,
        id: Option<&str>,
        input: &I,
        patience: Duration,
    ) -> Result<O, RequestError> {
        let body = serde_json::to_vec(input).map_err(|error| self.unreadable(0, path, &error))?;
        self.request(&Method::POST, path, id, body.into(), patience).await
    }

    /// Reads a JSON text. Tries again as [`Client::post`] does.
    pub(crate) async fn get<O: DeserializeOwned>(&self, path: &str, patience: Duration) -> Result<O, RequestError> {
        self.request(&Method::GET, path, None, Bytes::new(), patience).await
    }

    async fn request<O: DeserializeOwned>(
        &self,
        method: &Method,
        path: &str,
        id: Option<&str>,
        body: Bytes,
        patience: Duration,
    ) -> Result<O, RequestError> {
        let (began, mut pause) = (tokio::time::Instant::now(), Duration::from_millis(5));
        let each = patience.clamp(SHORT_PATIENCE, REQUEST_PATIENCE);
        let mut tries = 0;
        loop {
            tries += 1;
            let place = self.present.load(Ordering::Relaxed);
            let sending = self.try_send(place, method, path, id, body.clone());
            let answered = match timeout(each, sending).await {
                Ok(answered) => answered,
                Err(_) => Err(self.unreachable(place, "it did not answer in time")),
            };
            match answered {
                Ok((status, text)) if status.is_success() => {
                    self.set_away(None);
                    let text = if text.is_empty() { "null" } else { std::str::from_utf8(&text).unwrap_or("") };
                    return parse(text).map_err(|error| self.unreadable(place, path, &error));
                }
                Ok((status, text)) if !is_temporary(status) => {
                    let (address, path) = (self.addresses[place].clone(), path.to_owned());
                    let why = String::from_utf8_lossy(&text).into_owned();
                    return Err(RequestError::Refused { address, path, status, why });
                }
                failed => {
                    let error = match failed {
                        Ok((status, text)) => self.unreachable(place, answer_text(status, &text)),
                        Err(error) => error,
                    };
                    self.leave(place);
                    if tries >= self.addresses.len() && began.elapsed() + pause > patience {
                        return Err(error);
                    }
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(MAX_PAUSE);
                }
            }
        }
    }

    /// Asks the addresses, from the present one on, until one answers, and uses it from now on. Records the last error if
    /// none does.
    pub(crate) async fn probe(&self, path: &str) {
        let mut away = None;
        // The first connection may be one that was closed meanwhile.
        for _ in 0..=self.addresses.len() {
            let place = self.present.load(Ordering::Relaxed);
            let asking = self.try_send(place, &Method::GET, path, None, Bytes::new());
            let error = match timeout(PROBE_PATIENCE, asking).await {
                Ok(Ok((status, _))) if status.is_success() => return self.set_away(None),
                Ok(Ok((status, text))) => self.unreachable(place, answer_text(status, &text)),
                Ok(Err(error)) => error,
                Err(_) => self.unreachable(place, "it did not answer in time"),
            };
            away = Some(error.to_string());
            self.leave(place);
        }
        self.set_away(away);
    }

    /// Records whether no address answers, and writes each change to the log.
    fn set_away(&self, away: Option<String>) {
        let before = std::mem::replace(&mut *self.away.lock(), away.clone());
        match (before, away) {
            (None, Some(error)) => tracing::warn!("the Restate cluster is away: {error}"),
            (Some(_), None) => tracing::info!("the Restate cluster answers again"),
            _ => {}
        }
    }

    /// Uses the next address from now on, unless another request has chosen one.
    fn leave(&self, place: usize) {
        let next = (place + 1) % self.addresses.len();
        // Another request may have chosen another address meanwhile.
        _ = self.present.compare_exchange(place, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    async fn try_send(
        &self,
        place: usize,
        method: &Method,
        path: &str,
        id: Option<&str>,
        body: Bytes,
    ) -> Result<(StatusCode, Bytes), RequestError> {
        let failed = |error: hyper::Error| self.unreachable(place, error);
        let mut sender = match self.take_idle(place) {
            Some(sender) => sender,
            None => self.connect(place).await?,
        };
        sender.ready().await.map_err(failed)?;
        let mut request = Request::builder().method(method).uri(path).header(header::HOST, &*self.addresses[place]);
        // Answers to queries have several forms.
        request = request.header(header::ACCEPT, "application/json");
        if method == Method::POST {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        if let Some(id) = id {
            request = request.header("idempotency-key", id);
        }
        let request = request.body(Full::new(body)).map_err(|error| self.unreachable(place, error))?;
        let answer = sender.send_request(request).await.map_err(failed)?;
        let status = answer.status();
        let text = answer.into_body().collect().await.map_err(failed)?.to_bytes();
        let mut idle = self.idle.lock();
        if idle.len() < MAX_IDLE {
            idle.push((place, sender));
        }
        Ok((status, text))
    }

    fn take_idle(&self, place: usize) -> Option<SendRequest<Full<Bytes>>> {
        let mut idle = self.idle.lock();
        idle.retain(|(_, sender)| !sender.is_closed());
        let found = idle.iter().rposition(|(at, _)| *at == place)?;
        Some(idle.swap_remove(found).1)
    }

    async fn connect(&self, place: usize) -> Result<SendRequest<Full<Bytes>>, RequestError> {
        let failed = |error: std::io::Error| self.unreachable(place, error);
        let connecting = TcpStream::connect(&*self.addresses[place]);
        let connected = timeout(CONNECT_PATIENCE, connecting).await;
        let stream = connected.map_err(|_| self.unreachable(place, "no connection in time"))?.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let shaken = handshake(TokioIo::new(stream)).await;
        let (sender, connection) = shaken.map_err(|error| self.unreachable(place, error))?;
        // The connection ends with its error, which the next request on it also reports.
        tokio::spawn(async move { _ = connection.await });
        Ok(sender)
    }

    fn unreadable(&self, place: usize, path: &str, error: &serde_json::Error) -> RequestError {
        RequestError::Unreadable {
            address: self.addresses[place].clone(),
            path: path.to_owned(),
            why: error.to_string(),
        }
    }

    fn unreachable(&self, place: usize, why: impl ToString) -> RequestError {
        RequestError::Unreachable { address: self.addresses[place].clone(), why: why.to_string() }
    }
}
