//! The transport of messages over streamable HTTP, through the egress guard.

use std::{collections::HashMap, sync::Arc, time::Duration};

use bytes::Bytes;
use flowcell_contract::{Failure, Tenant};
use futures_util::stream::BoxStream;
use hyper::{
    HeaderMap, Method, StatusCode,
    header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, HeaderName, HeaderValue, USER_AGENT},
};
use parking_lot::Mutex;
use rmcp::{
    model::{ClientJsonRpcMessage, ClientRequest, ErrorData, RequestId, ServerJsonRpcMessage},
    transport::streamable_http_client::{StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse},
};
use sse_stream::Sse;
use tokio::time::Instant;

use super::{
    MAX_ANSWER, events,
    failures::{CarriedFailure, from_exchange, from_status},
    read_message,
    servers::Address,
    watch::ConnectionState,
};
use crate::{
    client::{Answer, Body, Client, Message, Progress, encodings},
    code,
    egress::OriginGrants,
};

/// Maximum bytes of an error body that are read.
const MAX_ERROR: usize = 64 * 1024;
/// Minimum time between two `GET` requests that open a stream of events.
const STREAM_GAP: Duration = Duration::from_secs(1);
/// Maximum bytes of a session's id.
const MAX_SESSION_ID_BYTES: usize = 1024;

const SESSION_HEADER: HeaderName = HeaderName::from_static("mcp-session-id");
const LAST_EVENT_HEADER: HeaderName = HeaderName::from_static("last-event-id");
const EVENT_STREAM_TYPE: &str = "text/event-stream";
const JSON_TYPE: &str = "application/json";

type TransportError = StreamableHttpError<CarriedFailure>;
type Events = BoxStream<'static, Result<Sse, sse_stream::Error>>;

fn transport_error(failure: Failure) -> TransportError {
    StreamableHttpError::Client(CarriedFailure(failure))
}

/// Sends messages to one address.
#[derive(Clone)]
pub(super) struct HttpTransport(Arc<TransportParts>);

struct TransportParts {
    client: Client,
    url: String,
    origin: OriginGrants,
    headers: HeaderMap,
    state: Arc<ConnectionState>,
    /// The earliest time of the next `GET` request for a stream of events; `None` before the first such request.
    next_stream: Mutex<Option<Instant>>,
}

impl HttpTransport {
    /// Creates the transport, which sends `headers` with every message.
    pub(super) fn new(
        client: Client,
        address: &Address,
        headers: HeaderMap,
        state: Arc<ConnectionState>,
    ) -> HttpTransport {
        let (url, origin) = (address.url.clone(), address.origin.clone());
        HttpTransport(Arc::new(TransportParts { client, url, origin, headers, state, next_stream: Mutex::default() }))
    }

    /// Waits until [`STREAM_GAP`] has passed since the last request for a stream. So the host does not flood a server
    /// whose streams end at once.
    async fn wait_for_stream(&self) {
        let now = Instant::now();
        let due = {
            let mut next = self.0.next_stream.lock();
            let due = next.unwrap_or(now).max(now);
            *next = Some(due + STREAM_GAP);
            due
        };
        tokio::time::sleep_until(due).await;
    }

    async fn send(
        &self,
        method: Method,
        accept: &'static str,
        own: HeaderMap,
        body: Bytes,
    ) -> Result<Answer, TransportError> {
        let TransportParts { client, url, origin, headers, state, .. } = &*self.0;
        let to = client.egress().admit(url, origin).map_err(transport_error)?;
        let mut all = HeaderMap::new();
        all.insert(ACCEPT, HeaderValue::from_static(accept));
        // A compressed answer could be a decompression bomb.
        all.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        all.insert(USER_AGENT, HeaderValue::from_static(concat!("flowcell/", env!("CARGO_PKG_VERSION"))));
        if !body.is_empty() {
            all.insert(CONTENT_TYPE, HeaderValue::from_static(JSON_TYPE));
        }
        all.extend(own);
        all.extend(headers.clone());
        // The server may be about to close a reused connection. It would then be unknown if a call was made.
        let message = Message { method, headers: all, body, reuse: false, run: None, until: None };
        let sent = client.send(&Tenant::local(), &to, message, &mut Progress::default()).await;
        let answer = sent.map_err(|failure| transport_error(from_exchange(failure)))?;
        match answer.status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                let message = format!("the server refused the key ({})", answer.status.as_u16());
                let failure = Failure::new(code::MCP_AUTH, message);
                // The next connection reads the key again.
                state.end(failure.clone());
                Err(transport_error(failure))
            }
            _ => Ok(answer),
        }
    }

    /// Handles an answer with an error status. In two cases, returns an error of the protocol as the answer to
    /// `message`: if the body of the answer is such an error, or if the status is 4xx and `message` is a discovery
    /// request, which servers of older versions do not know. Otherwise fails with the failure for the status.
    async fn handle_refusal(
        &self,
        message: &ClientJsonRpcMessage,
        answer: Answer,
    ) -> Result<StreamableHttpPostResponse, TransportError> {
        let Answer { status, body, .. } = answer;
        let text = read_body(body, MAX_ERROR).await.unwrap_or_default();
        let said = serde_json::from_slice::<ServerJsonRpcMessage>(&text).ok();
        let error = match said {
            Some(ServerJsonRpcMessage::Error(error)) => Some(error.error),
            // Servers of older versions do not know the discovery request, and reject it in many ways.
            _ if is_discovery(message) && status.is_client_error() => Some(ErrorData::invalid_request("unknown", None)),
            _ => None,
        };
        match (error, request_id(message)) {
            (Some(error), Some(id)) => {
                Ok(StreamableHttpPostResponse::Json(ServerJsonRpcMessage::error(error, Some(id)), None))
            }
            _ => Err(transport_error(from_status(status))),
        }
    }

    /// Reads an answer with a successful status: one message as JSON, or a stream of events.
    async fn read_success(
        &self,
        message: &ClientJsonRpcMessage,
        answer: Answer,
    ) -> Result<StreamableHttpPostResponse, TransportError> {
        let Answer { headers, body, .. } = answer;
        check_unencoded(&headers)?;
        let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        let session = text(&SESSION_HEADER).filter(|session| session.len() <= MAX_SESSION_ID_BYTES).map(str::to_owned);
        let kind = text(&CONTENT_TYPE).unwrap_or_default().split(';').next().unwrap_or_default().trim();
        let id = request_id(message);
        if kind.eq_ignore_ascii_case(EVENT_STREAM_TYPE) {
            let events = events::read_stream(body, id, self.0.state.clone());
            return Ok(StreamableHttpPostResponse::Sse(events, session));
        }
        let Some(id) = id else { return Ok(StreamableHttpPostResponse::Accepted) };
        if !kind.eq_ignore_ascii_case(JSON_TYPE) {
            let message = "the answer is neither JSON nor a stream of events; check that this is the address of an \
                           MCP server";
            return Err(transport_error(Failure::new(code::MCP_PROTOCOL, message)));
        }
        let bytes = read_body(body, MAX_ANSWER).await.map_err(transport_error)?;
        let answer = read_message(&bytes, "the answer is not a message").map_err(transport_error)?;
        match events::answers(&answer, &id) {
            true => Ok(StreamableHttpPostResponse::Json(answer, session)),
            false => Err(transport_error(Failure::new(code::MCP_PROTOCOL, "the answer is for another request"))),
        }
    }
}

impl StreamableHttpClient for HttpTransport {
    type Error = CarriedFailure;

    async fn post_message(
        &self,
        _: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        _: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, TransportError> {
        let body = serde_json::to_vec(&message)?.into();
        let has_session = session.is_some();
        let own = with_session(headers, session)?;
        let answer = self.send(Method::POST, "application/json, text/event-stream", own, body).await;
        self.0.state.handle_sent(&message);
        let answer = answer?;
        match answer.status {
            StatusCode::ACCEPTED | StatusCode::NO_CONTENT => Ok(StreamableHttpPostResponse::Accepted),
            StatusCode::NOT_FOUND if has_session => Err(StreamableHttpError::SessionExpired),
            status if status.is_success() => self.read_success(&message, answer).await,
            _ => self.handle_refusal(&message, answer).await,
        }
    }

    async fn delete_session(
        &self,
        _: Arc<str>,
        session: Arc<str>,
        _: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), TransportError> {
        let own = with_session(headers, Some(session))?;
        self.send(Method::DELETE, JSON_TYPE, own, Bytes::new()).await.map(drop)
    }

    async fn get_stream(
        &self,
        _: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        _: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<Events, TransportError> {
        let mut own = with_session(headers, session)?;
        if let Some(last) = last_event.and_then(|last| HeaderValue::from_str(&last).ok()) {
            own.insert(LAST_EVENT_HEADER, last);
        }
        self.wait_for_stream().await;
        let mut answer = self.send(Method::GET, EVENT_STREAM_TYPE, own, Bytes::new()).await?;
        // The stream stays open for as long as the connection, and must not take a place from the calls.
        answer.body.release_place();
        match answer.status {
            StatusCode::OK => {
                check_unencoded(&answer.headers)?;
                Ok(events::read_stream(answer.body, None, self.0.state.clone()))
            }
            status if status.is_server_error() => Err(transport_error(from_status(status))),
            _ => Err(StreamableHttpError::ServerDoesNotSupportSse),
        }
    }
}

/// Refuses an encoded answer, because the host did not request an encoding.
fn check_unencoded(headers: &HeaderMap) -> Result<(), TransportError> {
    match encodings(headers).is_empty() {
        true => Ok(()),
        false => {
            let message = "the server encoded its answer, which the host did not request";
            Err(transport_error(Failure::new(code::MCP_PROTOCOL, message)))
        }
    }
}

fn with_session(
    headers: HashMap<HeaderName, HeaderValue>,
    session: Option<Arc<str>>,
) -> Result<HeaderMap, TransportError> {
    let mut own: HeaderMap = headers.into_iter().collect();
    if let Some(session) = session {
        let value = HeaderValue::from_str(&session).map_err(|_| {
            transport_error(Failure::new(code::MCP_PROTOCOL, "the id of the session is not a valid header"))
        })?;
        own.insert(SESSION_HEADER, value);
    }
    Ok(own)
}

fn is_discovery(message: &ClientJsonRpcMessage) -> bool {
    matches!(message, ClientJsonRpcMessage::Request(request) if matches!(request.request, ClientRequest::DiscoverRequest(_)))
}

fn request_id(message: &ClientJsonRpcMessage) -> Option<RequestId> {
    match message {
        ClientJsonRpcMessage::Request(request) => Some(request.id.clone()),
        _ => None,
    }
}

async fn read_body(mut body: Body, limit: usize) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    while let Some(piece) = body.next().await.map_err(from_exchange)? {
        if bytes.len() + piece.len() > limit {
            return Err(Failure::new(code::MCP_TOO_LARGE, format!("the answer is larger than {limit} bytes")));
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}
