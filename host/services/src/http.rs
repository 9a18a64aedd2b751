//! The capability `http`: one request, one answer.
//!
//! Functions: `send` and `start-send`. `send` returns the reply. `start-send` returns the id of the call at once, and
//! the reply arrives as an event of the node's queue. `open-stream`, `read-stream` and `close-stream` read an answer in
//! chunks, see `streams.rs`. Arguments and reply:
//!
//! ```json
//! { "method": "POST", "url": "https://api.example.com/v1?q=1", "headers": [["accept", "application/json"]],
//!   "body": { "text": "…" }, "timeoutMs": 5000 }
//! { "status": 200, "headers": [["content-type", "application/json"]], "body": { "text": "…" } }
//! ```
//!
//! `body` is `null`, `{ "text": "…" }` or `{ "file": { "kind": "file", "fileId": … } }`; `headers`, `body` and
//! `timeoutMs` are optional. In a reply, names are in lower case, repeated headers stay repeated, and header values
//! that are not UTF-8 are read as Latin-1. The body is
//!
//! * `null` if it is empty,
//! * a text if its content type is textual (`text/*`, JSON, XML, JavaScript, forms), it is UTF-8 and not larger than 3
//!   MiB (3.5 MiB as JSON),
//! * otherwise a file.
//!
//! A body of more than 3 MiB goes into a file while it arrives, and a file of more than 1 MiB is read while it is sent. So
//! the memory of the host does not grow with them. Two kinds of bodies are exceptions, with a limit of 32 MiB: those that the
//! host decompresses, and those of requests with secrets or credentials and of their answers, which it searches or signs.
//!
//! The host requests gzip or no encoding, and no encoding for a stream. It decompresses a gzip body, and removes
//! `content-encoding` and `content-length`. It refuses a body with any other content or transfer encoding
//! (`http_protocol`). A node that sends its own `accept-encoding`, and no secrets, gets the body unchanged.
//!
//! **A status of 400 or more is an answer, not a failure, and so is a redirect:** the host follows none. A node that
//! follows a redirect makes a second call, which the host checks like the first.
//!
//! | subject | limit ([`Limits`]) |
//! |---|---|
//! | URL | 8 KiB |
//! | method | 20 capital letters and `-`; no `CONNECT` |
//! | headers of a request | 64, 32 KiB of names and values |
//! | body of a request | 32 MiB |
//! | headers of an answer | 100, 64 KiB |
//! | body of an answer, as received and decompressed | 32 MiB |
//! | a file as the body of a request, and a body of an answer that becomes a file | 32 MiB; the operator may grant up to 4 GiB |
//! | body as text in the reply | 3 MiB, and 3.5 MiB as JSON |
//! | a chunk of a stream; chunks and bytes of a stream | 64 KiB; 10,000 and 64 MiB |
//! | open streams of a tenant in a process | 64 |
//! | time without a byte of a stream; its whole time | 60 s, at most 10 min; 10 min, at most 24 h |
//! | connecting | 10 s |
//! | the whole call | 30 s unless `timeoutMs` says otherwise; at most 10 min (longer values are reduced to that) |
//!
//! A node cannot set `host`, `content-length`, `transfer-encoding`, `connection`, `keep-alive`, `upgrade`, `te`,
//! `trailer`, `expect`, `http2-settings` and `proxy-*`. The host sets these if the node does not: `accept`,
//! `accept-encoding`, `user-agent`, the `content-type` of a body, and `idempotency-key` on calls that change something.
//!
//! `GET`, `HEAD`, `OPTIONS` and `TRACE` change nothing, so such a call is idempotent. Any other call has the effect of
//! its node type, which defaults to at least once.
//!
//! The host puts the granted [`secrets`] of a node into headers, adds its [`credentials`], and redacts both in the answer. It
//! refuses such a request if it asks for a part of an answer (`whole.rs`).
//! If a server answers 401 to a token of OAuth 2 that is at least 30 s old, the host gets another one, and sends the request
//! once more.
//!
//! | code | when | retryable |
//! |---|---|---|
//! | `denied` | the URL is not granted, or an address is not public | no |
//! | `invalid_input` | the arguments are wrong, or a file does not exist | no |
//! | `http_connect` | the name is unknown, the peer refused, or it closed before the request | yes |
//! | `http_tls` | the peer could not prove its identity | no |
//! | `http_timeout` | connecting, or the whole call, took too long | yes |
//! | `http_body_too_large` | the body of the request or of the answer is too large | no |
//! | `http_protocol` | the connection broke after the request / the answer is not HTTP | yes / no |
//! | `stream_interrupted` | the connection broke while the body of the answer became a file | yes |
//! | `stream_interrupted` | the connection of a stream broke, or went away with its process or its attempt | yes; no after a request of effect `once` |
//! | `limit_exceeded` | a stream has too many chunks / the tenant has too many open streams | no / yes |
//! | `credential_refresh_failed` | the token endpoint of a credential refused / did not answer; nothing was sent | no / yes |
//! | `circuit_open` | the origin fails, and its circuit breaker is open; nothing was sent | yes |
//! | `rate_limited` | the call would wait too long under the operator's limits; nothing was sent | yes |
//! | `ambiguous` | a call of effect `once` failed after bytes may have been sent; `details.code` holds the original code | no |

mod large;
mod limits;
mod reply;
mod request;
mod streams;
mod whole;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use flowcell_contract::{
    Admission, Blobs, BuiltIn, Call, Caller, Capability, Effect, Failure, Json, Outgoing, PIECE_BYTES, Tenant, Value,
    code as codes,
};
use futures_util::future::BoxFuture;
use hyper::{
    StatusCode,
    header::{ACCEPT_ENCODING, CONTENT_TYPE, HeaderName, HeaderValue},
};
use tokio::time::{Instant, timeout_at};

pub use self::limits::Limits;
use self::{
    limits::BodyLimit,
    reply::AnswerReader,
    request::{Content, Request},
    streams::{Opening, Place, Reading, Streams, Times},
};
use crate::{
    client::{Client, Message, Parts, Progress, has_header},
    code,
    credentials::{self, Applied, Bound, apply_to},
    egress::{Destination, OriginGrants},
    files::AsyncBlobs,
    preview::cut,
    redaction::{Redaction, SearchBudget},
    secrets::{self, SecretGrant, SecretGrants, Secrets},
};

/// The name of the capability, in calls and in grants.
pub const INTERFACE: &str = BuiltIn::Http.name();

/// The function that reads the next chunk of a stream.
const READ_STREAM: &str = "read-stream";
/// The function that closes a stream.
const CLOSE_STREAM: &str = "close-stream";

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Maximum size in bytes of a URL in the summary of a request.
const MAX_SHOWN_URL_BYTES: usize = 200;
/// Maximum number of characters of a query in the preview of a request.
const MAX_SHOWN_QUERY_CHARS: usize = 2_000;
/// Maximum number of characters of a body in the preview of a request.
const MAX_SHOWN_BODY_CHARS: usize = 1_000;

/// The capability `http`. Clones share their connections.
#[derive(Clone)]
pub struct HttpCapability {
    client: Client,
    files: AsyncBlobs,
    secrets: Secrets,
    limits: Limits,
    streams: Streams,
}

impl HttpCapability {
    /// Creates the capability. It sends requests through `client`, and stores large and binary bodies in `blobs`.
    pub fn new(client: Client, blobs: Arc<dyn Blobs>) -> HttpCapability {
        let (files, secrets) = (AsyncBlobs::new(blobs), Secrets::default());
        HttpCapability { client, files, secrets, limits: Limits::default(), streams: Streams::default() }
    }

    /// Returns the same capability, which adds these secrets and credentials to requests of nodes that have grants for them.
    pub fn with_secrets(self, secrets: impl Into<Secrets>) -> HttpCapability {
        HttpCapability { secrets: secrets.into(), ..self }
    }

    /// Returns the same capability with other limits.
    pub fn with_limits(self, limits: Limits) -> HttpCapability {
        HttpCapability { limits, ..self }
    }

    fn destination(&self, request: &Request, caller: &Caller) -> Result<Destination, Failure> {
        let grants = match caller.grants.0.get(INTERFACE) {
            Some(grant) => {
                OriginGrants::parse(grant).map_err(|why| Failure::new(codes::DENIED, format!("grants.http: {why}")))?
            }
            None => OriginGrants::default(),
        };
        self.client.egress().admit(&request.url, &grants)
    }

    /// Returns the grants of the secrets that the host adds to a request. Fails if the destination is not safe for
    /// secrets, or if the request itself sets a header of a secret.
    fn secret_grants(&self, request: &Request, caller: &Caller, to: &Destination) -> Result<Vec<SecretGrant>, Failure> {
        let Some(grant) = caller.grants.0.get(secrets::GRANT) else { return Ok(Vec::new()) };
        let denied = |why: String| Failure::new(codes::DENIED, format!("grants.secrets: {why}"));
        let grants = SecretGrants::parse(grant).map_err(denied)?;
        let meant = self.secrets.for_destination(&caller.tenant, grants, to)?;
        if !meant.is_empty() && !self.client.egress().may_receive_secrets(to) {
            let why = "a secret may be sent only over `https`, or to a private address that the operator allows; ";
            return Err(denied(format!("{why}{} is neither", to.origin())));
        }
        match meant.iter().find(|grant| has_header(&request.headers, &grant.header)) {
            Some(SecretGrant { name, header, .. }) => {
                let message = format!("the host sets the header `{header}` from the secret `{name}`");
                Err(Failure::new(codes::INVALID_INPUT, message))
            }
            None => Ok(meant),
        }
    }

    /// Returns the credentials that the host adds to a request. Fails if the destination is not safe for credentials, or if
    /// the request itself sets a part that belongs to a credential.
    fn granted_credentials(
        &self,
        request: &Request,
        caller: &Caller,
        to: &Destination,
        secrets: &[SecretGrant],
    ) -> Result<Vec<Bound>, Failure> {
        let Some(grant) = caller.grants.0.get(credentials::GRANT) else { return Ok(Vec::new()) };
        let bound = self.secrets.credentials().for_destination(&caller.tenant, grant, to)?;
        if !bound.is_empty() && !self.client.egress().may_receive_secrets(to) {
            let why = "a credential may be sent only over `https`, or to a private address that the operator allows";
            return Err(Failure::new(codes::DENIED, format!("grants.credentials: {why}; {} is neither", to.origin())));
        }
        let reserved: Vec<_> = secrets.iter().map(|secret| secret.header.clone()).collect();
        credentials::check_free(&bound, &request.headers, to, &reserved)?;
        Ok(bound)
    }

    /// Sends the request and reads the reply, without a time limit. `progress` shows if bytes were sent. Secrets in
    /// the reply are redacted.
    async fn exchange(
        &self,
        outgoing: &Outgoing,
        request: Request,
        until: Instant,
        progress: &mut Progress,
    ) -> Result<Value, Failure> {
        let caller = &outgoing.caller;
        let to = self.destination(&request, caller)?;
        let mut keys = Vec::new();
        let place = request.stream.map(|_| self.streams.reserve(&caller.tenant, self.limits.streams)).transpose()?;
        let mut opened = request.stream.zip(place);
        let secrets = self.secret_grants(&request, caller, &to)?;
        let bound = self.granted_credentials(&request, caller, &to, &secrets)?;
        whole::check(&request, &secrets, &bound)?;
        for grant in secrets {
            let key = self.secrets.read(&caller.tenant, &grant.name).await?;
            keys.push((grant, key));
        }
        let mut request = request;
        for (SecretGrant { name, header, prefix, .. }, key) in &keys {
            let unsendable = || Failure::new(codes::DENIED, format!("the secret `{name}` does not fit into a header"));
            request.headers.insert(header.clone(), key.header(prefix).ok_or_else(unsendable)?);
            // The host could not search a body with an encoding that the node chose.
            request.headers.remove(ACCEPT_ENCODING);
        }
        if !bound.is_empty() {
            request.headers.remove(ACCEPT_ENCODING);
        }
        let mut keys: Vec<_> = keys.into_iter().map(|(_, key)| key).collect();
        let unpack = !request.headers.contains_key(ACCEPT_ENCODING);
        // A credential may be a part of the body, or sign it.
        let (message, parts) = self.message(outgoing, request, until, bound.is_empty()).await?;
        let credentials = self.secrets.credentials();
        let mut applied: Arc<[Applied]> = Arc::default();
        let budget = SearchBudget::for_call(&caller.tenant);
        loop {
            let is_repeated = !applied.is_empty();
            applied = credentials.open(&self.client, &caller.tenant, &bound, &applied).await?.into();
            let now = credentials.now();
            let signed = apply_to(&applied, message.clone(), to.clone(), now).await?;
            keys.extend(signed.keys);
            let redaction = Redaction::new(keys.iter().cloned(), budget.clone());
            let message = (signed.message, parts.clone());
            let is_renewable = !is_repeated && applied.iter().any(|applied| applied.is_renewable(now));
            let sent = Sent { outgoing, unpack, is_renewable, redaction: &redaction };
            let answered = self.send_and_read(sent, message, &signed.to, &mut opened, progress).await;
            // The server has refused a token and done nothing. It gets another token once.
            if is_renewable && *progress == Progress::Answered(StatusCode::UNAUTHORIZED) {
                *progress = Progress::Unsent;
                continue;
            }
            return match answered {
                Ok(reply) => Ok(reply),
                Err(failure) => Err(redaction.failure(failure).await),
            };
        }
    }

    /// Sends a message and reads the reply. If `opened` has the times and the place of a stream, the body becomes this
    /// stream and is not read, unless another token may be tried.
    async fn send_and_read(
        &self,
        sent: Sent<'_>,
        (message, parts): (Message, Option<Parts>),
        to: &Destination,
        opened: &mut Option<(Times, Place)>,
        progress: &mut Progress,
    ) -> Result<Value, Failure> {
        let Sent { outgoing, unpack, is_renewable, redaction } = sent;
        let (caller, limits) = (&outgoing.caller, &self.limits);
        let tenant = &caller.tenant;
        let has_body = message.method != hyper::Method::HEAD;
        let answer = self.client.send_with(tenant, to, message, parts, progress).await?;
        let reading = AnswerReader { limits, files: &self.files, tenant, has_body, unpack, redaction };
        let is_tried_again = is_renewable && answer.status == StatusCode::UNAUTHORIZED;
        let Some((times, place)) = opened.take_if(|_| !is_tried_again) else { return reading.reply(answer).await };
        let (mut members, body) = reading.open(answer).await?;
        let once = outgoing.effect == Effect::Once;
        let opening = Opening { caller, limits, times, once, redaction, attempt_end: &outgoing.attempt_end };
        members.push(("stream", Json::from(self.streams.open(body, place, &opening))));
        members.extend(once.then(|| ("once", Json::from(true))));
        Ok(Value::from(Json::object(members)))
    }

    /// Returns the message of a request, and the parts of its body if it `may_have_parts` and is a large file.
    async fn message(
        &self,
        outgoing: &Outgoing,
        request: Request,
        until: Instant,
        may_have_parts: bool,
    ) -> Result<(Message, Option<Parts>), Failure> {
        let Request { method, mut headers, content, stream, .. } = request;
        let (body, parts, mime) = self.body(&outgoing.caller.tenant, content, may_have_parts).await?;
        let mut unless_set = |name: HeaderName, value: HeaderValue| {
            headers.entry(name).or_insert(value);
        };
        unless_set(hyper::header::ACCEPT, HeaderValue::from_static("*/*"));
        // A stream is not unpacked, because a few bytes could become very many.
        unless_set(ACCEPT_ENCODING, HeaderValue::from_static(if stream.is_some() { "identity" } else { "gzip" }));
        unless_set(
            hyper::header::USER_AGENT,
            HeaderValue::from_static(concat!("flowcell/", env!("CARGO_PKG_VERSION"))),
        );
        if let Some(mime) = mime {
            unless_set(CONTENT_TYPE, mime);
        }
        if request::may_change(&method) {
            let key = HeaderValue::from_str(&outgoing.key);
            unless_set(
                IDEMPOTENCY_KEY,
                key.map_err(|_| Failure::new(codes::INVALID_INPUT, "the key of this call does not fit into a header"))?,
            );
        }
        let (reuse, run) = (outgoing.effect != Effect::Once, Some(outgoing.caller.run_id.clone()));
        Ok((Message { method, headers, body, reuse, run, until: Some(until) }, parts))
    }

    /// Returns a request's body, and its media type.
    async fn body(
        &self,
        tenant: &Tenant,
        content: Content,
        may_have_parts: bool,
    ) -> Result<(Bytes, Option<Parts>, Option<HeaderValue>), Failure> {
        let (bytes, mime) = match content {
            Content::None => return Ok((Bytes::new(), None, None)),
            Content::Text(text) => (
                Bytes::from_owner(Arc::<[u8]>::from(text)),
                Some(HeaderValue::from_static("text/plain; charset=utf-8")),
            ),
            Content::File(blob) => {
                let mime = HeaderValue::from_str(&blob.mime).ok();
                let size = self.files.size(tenant, &blob).await?;
                if size > self.limits.file_body {
                    return Err(BodyLimit::File(self.limits.file_body).exceeded());
                }
                if may_have_parts && size > PIECE_BYTES as u64 {
                    let parts = large::sent(&self.files, tenant, &blob, size);
                    return Ok((Bytes::new(), Some(parts), mime));
                }
                (self.files.get(tenant, blob).await?, mime)
            }
        };
        match bytes.len() > self.limits.request_body {
            true => Err(BodyLimit::InMemory(self.limits.request_body as u64).exceeded()),
            false => Ok((bytes, None, mime)),
        }
    }

    async fn perform_with_timeout(self, outgoing: Outgoing) -> Result<Value, Failure> {
        let request = Request::read(&outgoing.call, &self.limits)?;
        let (within, method) = (request.timeout, request.method.clone());
        let (until, mut progress) = (Instant::now() + within, Progress::Unsent);
        let exchange = self.exchange(&outgoing, request, until, &mut progress);
        let ended = timeout_at(until, exchange).await.unwrap_or_else(|_| Err(timeout_failure(within)));
        // The client gives up at the same moment.
        let is_late = |failure: &Failure| failure.code == code::TIMEOUT && Instant::now() >= until;
        let ended = ended.map_err(|failure| if is_late(&failure) { timeout_failure(within) } else { failure });
        ended.map_err(|failure| match (outgoing.effect, progress) {
            (Effect::Once, Progress::Sent | Progress::Answered(_)) => ambiguous(&method, failure, progress),
            _ => failure,
        })
    }
}

impl Capability for HttpCapability {
    fn admit(&self, call: &Call, caller: &Caller) -> Result<Admission, Failure> {
        if let Some(reading) = read_reading(call)? {
            return Ok(Admission::new(Effect::Idempotent, reading.about()));
        }
        let request = Request::read(call, &self.limits)?;
        let to = self.destination(&request, caller)?;
        let effect = caller.effect_of(request::may_change(&request.method));
        let secrets = self.secret_grants(&request, caller, &to)?;
        let bound = self.granted_credentials(&request, caller, &to, &secrets)?;
        whole::check(&request, &secrets, &bound)?;
        let about = summary(&request, &to, &secrets, &bound);
        Ok(Admission { preview: preview(&request, &to), ..Admission::new(effect, about) })
    }

    fn perform(&self, outgoing: Outgoing) -> BoxFuture<'static, Result<Value, Failure>> {
        let http = self.clone();
        Box::pin(async move {
            match read_reading(&outgoing.call)? {
                Some(reading) if &*outgoing.call.function == CLOSE_STREAM => {
                    http.streams.close(&outgoing.caller, &reading);
                    Ok(Value::null())
                }
                Some(reading) => http.streams.read(&outgoing.caller, &reading, &http.files).await,
                None => http.perform_with_timeout(outgoing).await,
            }
        })
    }
}

/// A message with the way in which its answer is read.
struct Sent<'a> {
    outgoing: &'a Outgoing,
    unpack: bool,
    /// True if another token may be tried after the status 401.
    is_renewable: bool,
    redaction: &'a Redaction,
}

/// Returns the arguments of a call that reads or closes a stream; `None` for a request.
fn read_reading(call: &Call) -> Result<Option<Reading>, Failure> {
    match &*call.function {
        READ_STREAM | CLOSE_STREAM => Reading::read(&call.args).map(Some),
        _ => Ok(None),
    }
}

/// Returns the summary of a request for people: its method, its URL and the names of its secrets and
/// credentials. It omits the query of
/// the URL, since queries may contain secrets.
fn summary(request: &Request, to: &Destination, secrets: &[SecretGrant], bound: &[Bound]) -> Json {
    let mut url = format!("{}{}", to.origin(), to.url().path());
    if url.len() > MAX_SHOWN_URL_BYTES {
        // A parsed URL is ASCII.
        url.truncate(MAX_SHOWN_URL_BYTES);
        url.push('…');
    }
    let mut about = vec![("method", Json::from(request.method.as_str())), ("url", Json::from(url))];
    if !secrets.is_empty() {
        about.push(("secrets", Json::array(secrets.iter().map(|grant| Json::from(grant.name.as_str())))));
    }
    if !bound.is_empty() {
        about.push(("credentials", Json::array(bound.iter().map(|bound| Json::from(&*bound.grant.credential)))));
    }
    Json::object(about)
}

/// Returns the preview of a request: its query and its body, or null without both. It omits headers, since headers
/// may contain secrets.
fn preview(request: &Request, to: &Destination) -> Json {
    let query = to.url().query().map(|query| ("query", Json::from(cut(query, MAX_SHOWN_QUERY_CHARS).as_ref())));
    let body = match &request.content {
        Content::None => None,
        Content::Text(text) => Some(Json::from(cut(text, MAX_SHOWN_BODY_CHARS).as_ref())),
        Content::File(file) => Some(Value::from(file.clone()).json().clone()),
    };
    match (&query, &body) {
        (None, None) => Json::Null,
        _ => Json::object(query.into_iter().chain(body.map(|body| ("body", body)))),
    }
}

fn timeout_failure(within: Duration) -> Failure {
    Failure::retryable(code::TIMEOUT, format!("the call took longer than {} ms", within.as_millis()))
}

/// Returns the failure of a call with unknown outcome that must not be repeated.
fn ambiguous(method: &hyper::Method, failure: Failure, progress: Progress) -> Failure {
    let mut details = vec![("code", Json::from(failure.code))];
    if let Progress::Answered(status) = progress {
        details.push(("status", Json::from(u64::from(status.as_u16()))));
    }
    let message = format!("the {method} request may have taken effect: {}", failure.message);
    Failure { details: Some(Json::object(details)), ..Failure::new(codes::AMBIGUOUS, message) }
}
