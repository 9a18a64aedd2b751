//! HTTP/1.1 over guarded connections.
//!
//! [`Client::send`] makes one exchange: a request and its answer. It needs a [`Destination`], which only the egress
//! guard ([`egress`](crate::egress)) creates. `send` returns once the head of the answer has arrived; the caller reads
//! the body piece by piece. The client follows no redirects, decodes nothing, and neither retries nor caches. It limits
//! only the time for connecting; the caller sets all other time limits.
//!
//! A connection is reused for the same tenant and the same origin, for one exchange at a time, and only on the tokio
//! runtime that opened it, because that one drives it. The egress guard validates an IP address when a connection to it
//! is opened. If the host's name later has other IP addresses, open connections stay.
//!
//! | subject | limit |
//! |---|---|
//! | head of an answer | 100 headers, 64 KiB |
//! | an idle connection | not reused after 4 s, and closed within 8 s |
//! | number of idle connections | 64 for one tenant, origin and runtime, 256 in all; then the one that was idle longest is closed |
//! | connecting | [`CONNECT_TIMEOUT`](crate::egress::CONNECT_TIMEOUT) |
//!
//! If the egress guard has circuit breakers ([`Outbound`](crate::egress::Outbound)), each exchange asks them first.
//!
//! Failures: those of the egress guard, `http_protocol`, `circuit_open` and `rate_limited`.

mod body;
mod connection;
mod pool;

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use flowcell_contract::{Failure, RunId, Tenant};
use hyper::{
    HeaderMap, Method, Request, StatusCode, Version,
    body::Incoming,
    header::{CONTENT_ENCODING, CONTENT_LENGTH, HOST, HeaderName, HeaderValue, RETRY_AFTER, TRANSFER_ENCODING},
};
use tokio::time::{Instant, timeout_at};

pub use self::body::Parts;
use self::{
    body::{Content, Sending},
    connection::{Connection, Exchange},
    pool::{Key, Pool},
};
use crate::{
    code,
    egress::{Destination, Egress, Outcome, Permit},
};

/// An HTTP client whose connections all pass the egress guard. Clones share their connections.
#[derive(Clone)]
pub struct Client {
    egress: Egress,
    pool: Arc<Pool>,
}

/// A message to send.
#[derive(Clone, Debug)]
pub struct Message {
    /// The HTTP method.
    pub method: Method,
    /// The headers, without those for the transfer: `host`, `content-length` and similar ones.
    pub headers: HeaderMap,
    /// The body; empty means no body.
    pub body: Bytes,
    /// True if the message may go over a reused connection. The peer may be about to close such a connection, and the
    /// client then cannot tell if the peer has read the message.
    pub reuse: bool,
    /// The run that sends the message. Requests that wait for one origin take turns by runs.
    pub run: Option<RunId>,
    /// The time at which the caller gives up. If the head of the answer has not arrived by then, `send` fails with
    /// `http_timeout`, and the circuit breaker counts a failure.
    pub until: Option<Instant>,
}

/// The progress of an exchange. The caller owns it, and can read it after dropping the future of the exchange.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Progress {
    /// Certainly no byte was sent.
    #[default]
    Unsent,
    /// Bytes may have been sent.
    Sent,
    /// An answer with this status came back.
    Answered(StatusCode),
}

/// The head of an answer, and its unread body.
pub struct Answer {
    /// The status: 200 to 999.
    pub status: StatusCode,
    /// The headers, unchanged.
    pub headers: HeaderMap,
    /// The body, to be read piece by piece.
    pub body: Body,
}

/// The body of an answer. Reading it to its end makes the connection reusable. Dropping it earlier closes the
/// connection.
pub struct Body {
    incoming: Incoming,
    lease: Option<(Key, Connection)>,
    pool: Arc<Pool>,
    permit: Option<Permit>,
}

impl Client {
    /// Creates a client whose connections pass this egress guard.
    pub fn new(egress: Egress) -> Client {
        Client { egress, pool: Arc::default() }
    }

    /// Returns the egress guard of the client.
    pub fn egress(&self) -> &Egress {
        &self.egress
    }

    /// Sends a message and waits for the head of its answer. After a failure, `progress` says if bytes may have been
    /// sent.
    pub async fn send(
        &self,
        tenant: &Tenant,
        to: &Destination,
        message: Message,
        progress: &mut Progress,
    ) -> Result<Answer, Failure> {
        self.send_with(tenant, to, message, None, progress).await
    }

    /// Sends a message like [`Client::send`]. With `parts`, they are the body in place of the body of the message.
    pub async fn send_with(
        &self,
        tenant: &Tenant,
        to: &Destination,
        message: Message,
        parts: Option<Parts>,
        progress: &mut Progress,
    ) -> Result<Answer, Failure> {
        *progress = Progress::Unsent;
        let (came, until) = (Instant::now(), message.until);
        let mut permit = self.egress.begin(tenant, to, message.run.as_ref()).await?;
        // A server whose request waited for its turn most of the time has not failed if it does not answer in the rest.
        let has_waited = until.is_some_and(|until| came.elapsed() > until.saturating_duration_since(Instant::now()));
        let exchange = self.exchange(tenant, to, message, parts, progress);
        let mut sent = match until {
            Some(until) => timeout_at(until, exchange).await.unwrap_or_else(|_| Err(unanswered(to))),
            None => exchange.await,
        };
        if let Some(permit) = &mut permit {
            let outcome = match outcome(&sent) {
                Outcome::Failed if has_waited => Outcome::Unknown,
                outcome => outcome,
            };
            permit.report(outcome, sent.as_ref().ok().and_then(asked_pause));
        }
        if let Ok(answer) = &mut sent {
            answer.body.permit = permit;
        }
        sent
    }

    async fn exchange(
        &self,
        tenant: &Tenant,
        to: &Destination,
        message: Message,
        parts: Option<Parts>,
        progress: &mut Progress,
    ) -> Result<Answer, Failure> {
        let key = Key::of(tenant, to.origin());
        let mut used = message.reuse;
        let mut request = request(to, message, parts)?;
        loop {
            let idle = if used { self.pool.take(&key).await } else { None };
            used = idle.is_some();
            let mut connection = match idle {
                Some(connection) => connection,
                None => Connection::open(self.egress.connect(tenant, to).await?).await?,
            };
            *progress = Progress::Sent;
            match connection.exchange(request).await {
                Exchange::Answered(head, incoming) => {
                    *progress = Progress::Answered(head.status);
                    let body = Body { incoming, lease: Some((key, connection)), pool: self.pool.clone(), permit: None };
                    return checked_answer(head.status, head.headers, body);
                }
                // The peer closed the connection before any byte was written, so the message uses another one.
                Exchange::Unsent(returned) if used => {
                    *progress = Progress::Unsent;
                    request = *returned;
                }
                Exchange::Unsent(_) => {
                    *progress = Progress::Unsent;
                    return Err(closed_at_once(to));
                }
                Exchange::Failed(failure) => return Err(failure),
            }
        }
    }
}

fn request(to: &Destination, message: Message, parts: Option<Parts>) -> Result<Request<Sending>, Failure> {
    let url = to.url();
    let target = match url.query() {
        Some(query) => format!("{}?{query}", url.path()),
        None => url.path().to_owned(),
    };
    let unusable = |_| Failure::new(flowcell_contract::code::INVALID_INPUT, "cannot send a request to this URL");
    let host = HeaderValue::try_from(to.origin().authority()).map_err(|error| unusable(error.into()))?;
    // Some servers wait for a body if the method usually has one.
    let body = parts.map_or(Content::Bytes(message.body), Content::Parts);
    let says_empty = body.is_empty() && matches!(message.method, Method::POST | Method::PUT | Method::PATCH);
    let builder = Request::builder().method(message.method).uri(target).version(Version::HTTP_11);
    let mut request = builder.body(Sending::from(body)).map_err(unusable)?;
    *request.headers_mut() = message.headers;
    if says_empty {
        request.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
    }
    request.headers_mut().insert(HOST, host);
    Ok(request)
}

fn checked_answer(status: StatusCode, headers: HeaderMap, body: Body) -> Result<Answer, Failure> {
    if status == StatusCode::SWITCHING_PROTOCOLS {
        return Err(Failure::new(code::PROTOCOL, "the server switched to another protocol without a request for it"));
    }
    Ok(Answer { status, headers, body })
}

/// Returns how the circuit breaker sees the end of an exchange.
fn outcome(sent: &Result<Answer, Failure>) -> Outcome {
    match sent {
        Ok(answer) if matches!(answer.status.as_u16(), 502..=504) => Outcome::Failed,
        Ok(_) => Outcome::Answered,
        Err(failure) => match (failure.code.as_str(), failure.retryable) {
            (code::CONNECT | code::TIMEOUT, _) | (code::PROTOCOL, true) => Outcome::Failed,
            _ => Outcome::Unknown,
        },
    }
}

/// Returns the time for which an answer asks all clients to wait: the `retry-after` of the status 429.
fn asked_pause(answer: &Answer) -> Option<Duration> {
    if answer.status != StatusCode::TOO_MANY_REQUESTS {
        return None;
    }
    let text = answer.headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    match text.parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => httpdate::parse_http_date(text).ok()?.duration_since(SystemTime::now()).ok(),
    }
}

fn unanswered(to: &Destination) -> Failure {
    Failure::retryable(code::TIMEOUT, format!("{} did not answer in time", to.origin()))
}

fn closed_at_once(to: &Destination) -> Failure {
    Failure::retryable(code::CONNECT, format!("{} closed the connection immediately", to.origin()))
}

impl Body {
    /// Returns the next piece, or `None` at the end. It has no time limit.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        let Body { incoming, lease, .. } = self;
        let mut next = async || match lease {
            Some((_, connection)) => std::future::poll_fn(|context| connection.poll_frame(incoming, context)).await,
            None => None,
        };
        while let Some(frame) = next().await {
            // Trailers are skipped.
            if let Ok(data) = frame.map_err(|error| connection::protocol_failure(&error))?.into_data() {
                return Ok(Some(data));
            }
        }
        if let Some((key, connection)) = self.lease.take() {
            self.pool.put(key, connection);
        }
        self.permit = None;
        Ok(None)
    }

    /// Frees the place of the request under the operator's limits before the body has ended, because the body is a stream
    /// of events that may never end.
    pub(crate) fn release_place(&mut self) {
        self.permit = None;
    }
}

/// Returns the names of the encodings of an answer's body from its headers, such as `gzip` or `gzip, br`. Leaves out
/// the content encoding `identity` and the transfer encoding `chunked`. Returns an empty text if the body is not
/// encoded.
pub(crate) fn encodings(headers: &HeaderMap) -> String {
    let named = |name, plain: &'static str| {
        let lines = headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
        let lines: Vec<String> = lines.collect();
        let each = lines.iter().flat_map(|line| line.split(',')).map(|one| one.trim().to_ascii_lowercase());
        each.filter(|one| !one.is_empty() && one != plain).collect::<Vec<_>>()
    };
    [named(CONTENT_ENCODING, "identity"), named(TRANSFER_ENCODING, "chunked")].concat().join(", ")
}

/// Headers about the transfer, which only the host sets. [`is_transfer_header`] also covers `proxy-*`.
const TRANSFER_HEADERS: [&str; 10] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Returns true if a header is about the transfer, so that only the host may set it.
pub(crate) fn is_transfer_header(name: &HeaderName) -> bool {
    let name = folded_name(name);
    TRANSFER_HEADERS.contains(&name.as_str()) || name.starts_with("proxy-")
}

/// Returns true if a message has a header that some servers take for this one.
pub(crate) fn has_header(headers: &HeaderMap, name: &HeaderName) -> bool {
    let name = folded_name(name);
    headers.keys().any(|own| folded_name(own) == name)
}

/// Returns the name of a header with `-` for each `_`. Servers of CGI and WSGI take both for the same letter.
pub(crate) fn folded_name(name: &HeaderName) -> String {
    name.as_str().replace('_', "-")
}
