//! HTTP/1.1 over guarded connections.
//!
//! [`Client::send`] takes a [`Destination`], which only the egress guard makes, and answers as soon as the head of the
//! answer is there; its body is read piece by piece. Nothing is followed, decoded, repeated or kept: that is up to
//! whoever asks. Time limits are theirs as well, except for connecting.
//!
//! A connection is used again for the same tenant and the same origin, and never by two at once. It was validated when
//! it was made and leads to where it led then, so that a name that changes its addresses meanwhile changes nothing.
//!
//! | what | limit |
//! |---|---|
//! | head of an answer | 100 headers, 64 KiB |
//! | unused connections | 4 s, 8 for one tenant and origin, 64 in all |
//! | connecting | [`CONNECT_TIMEOUT`](crate::egress::CONNECT_TIMEOUT) |
//!
//! Failures: those of the guard, and `http_protocol`.

mod connection;
mod pool;

use std::sync::Arc;

use bytes::Bytes;
use flowcell_contract::{Failure, Tenant};
use http_body_util::{BodyExt, Full};
use hyper::{
    HeaderMap, Method, Request, StatusCode, Version,
    body::Incoming,
    header::{CONTENT_ENCODING, CONTENT_LENGTH, HOST, HeaderName, HeaderValue, TRANSFER_ENCODING},
};

use self::{
    connection::{Connection, Exchange},
    pool::{Key, Pool},
};
use crate::{
    code,
    egress::{Destination, Egress},
};

/// An HTTP client whose every connection passed the guard. Clones share their connections.
#[derive(Clone)]
pub struct Client {
    egress: Egress,
    pool: Arc<Pool>,
}

/// What is to be sent.
#[derive(Clone, Debug)]
pub struct Message {
    /// The method.
    pub method: Method,
    /// The headers, without those that say how it is sent: `host`, `content-length` and the like.
    pub headers: HeaderMap,
    /// The body; empty is none.
    pub body: Bytes,
    /// Whether it may go over a connection that was used before. The peer may be about to close such a connection, and
    /// then nobody knows whether it has read the message.
    pub reuse: bool,
}

/// How far an exchange has come. It outlives an exchange that was abandoned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Progress {
    /// Certainly nothing was sent.
    #[default]
    Unsent,
    /// Something may have been sent.
    Sent,
    /// An answer with this status came back.
    Answered(StatusCode),
}

/// The head of an answer, and a body that is read piece by piece.
pub struct Answer {
    /// The status: 200 to 999.
    pub status: StatusCode,
    /// The headers, as they came.
    pub headers: HeaderMap,
    /// The body.
    pub body: Body,
}

/// The body of an answer. Its connection is used again once it was read to its end, and closed if it is dropped before.
pub struct Body {
    incoming: Incoming,
    lease: Option<(Key, Connection)>,
    pool: Arc<Pool>,
}

impl Client {
    /// A client behind this guard.
    pub fn new(egress: Egress) -> Client {
        Client { egress, pool: Arc::default() }
    }

    /// The guard.
    pub fn egress(&self) -> &Egress {
        &self.egress
    }

    /// Sends a message and waits for the head of its answer. After a failure, `progress` tells whether something may
    /// have been sent.
    pub async fn send(
        &self,
        tenant: &Tenant,
        to: &Destination,
        message: Message,
        progress: &mut Progress,
    ) -> Result<Answer, Failure> {
        *progress = Progress::Unsent;
        let key = Key { tenant: tenant.clone(), origin: to.origin().clone() };
        let mut used = message.reuse;
        let mut request = request(to, message)?;
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
                    let body = Body { incoming, lease: Some((key, connection)), pool: self.pool.clone() };
                    return answer(head.status, head.headers, body);
                }
                // It was closed before anything was written, so the message goes over another one.
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

fn request(to: &Destination, message: Message) -> Result<Request<Full<Bytes>>, Failure> {
    let url = to.url();
    let target = match url.query() {
        Some(query) => format!("{}?{query}", url.path()),
        None => url.path().to_owned(),
    };
    let unusable = |_| Failure::new(flowcell_contract::code::INVALID_INPUT, "this URL cannot be sent");
    let host = HeaderValue::try_from(to.origin().authority()).map_err(|error| unusable(error.into()))?;
    // Some servers wait for a body where the method usually has one.
    let says_empty = message.body.is_empty() && matches!(message.method, Method::POST | Method::PUT | Method::PATCH);
    let builder = Request::builder().method(message.method).uri(target).version(Version::HTTP_11);
    let mut request = builder.body(Full::new(message.body)).map_err(unusable)?;
    *request.headers_mut() = message.headers;
    if says_empty {
        request.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
    }
    request.headers_mut().insert(HOST, host);
    Ok(request)
}

fn answer(status: StatusCode, headers: HeaderMap, body: Body) -> Result<Answer, Failure> {
    if status == StatusCode::SWITCHING_PROTOCOLS {
        return Err(Failure::new(code::PROTOCOL, "the server switched to another protocol, unasked"));
    }
    Ok(Answer { status, headers, body })
}

fn closed_at_once(to: &Destination) -> Failure {
    Failure::retryable(code::CONNECT, format!("{} closed the connection at once", to.origin()))
}

impl Body {
    /// Returns the next piece, or none at the end. It waits as long as the server does.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        while let Some(frame) = self.incoming.frame().await {
            // Trailers are skipped.
            if let Ok(data) = frame.map_err(|error| connection::broken(&error))?.into_data() {
                return Ok(Some(data));
            }
        }
        if let Some((key, connection)) = self.lease.take() {
            self.pool.put(key, connection);
        }
        Ok(None)
    }
}

/// Returns the encodings of an answer's body but `identity`, as its headers name them: `gzip`, or `gzip, br`.
pub(crate) fn encodings(headers: &HeaderMap) -> String {
    let named = |name, plain: &'static str| {
        let lines = headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
        let lines: Vec<String> = lines.collect();
        let each = lines.iter().flat_map(|line| line.split(',')).map(|one| one.trim().to_ascii_lowercase());
        each.filter(|one| !one.is_empty() && one != plain).collect::<Vec<_>>()
    };
    [named(CONTENT_ENCODING, "identity"), named(TRANSFER_ENCODING, "chunked")].concat().join(", ")
}

/// These say how a message is sent, which is the host's to decide. `proxy-*` is refused beside them.
const FORBIDDEN: [&str; 10] = [
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

/// Whether a header says how a message is sent, which is the host's to decide.
pub(crate) fn is_of_the_host(name: &HeaderName) -> bool {
    FORBIDDEN.contains(&name.as_str()) || name.as_str().starts_with("proxy-")
}
