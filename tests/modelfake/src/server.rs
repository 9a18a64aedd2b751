//! The HTTP server around the scenario.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::{
    HeaderMap, Method, Request, Response, StatusCode, body::Incoming, server::conn::http1, service::service_fn,
};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpListener;

use crate::{
    Dialect, Fault, Recorded, Scenario, Turn,
    body::{Step, Steps},
    check,
    fault::{self, ErrorReply},
    journal::Journal,
    stream,
};

/// Delay before the server closes a connection on purpose, so that all earlier bytes have been sent.
const FLUSH: Duration = Duration::from_millis(1);

const EVENT_STREAM: &str = "text/event-stream; charset=utf-8";

/// The state that all connections share.
pub(crate) struct Server {
    key: String,
    turns: Mutex<Vec<Option<Turn>>>,
    journal: Arc<Mutex<Journal>>,
}

impl Server {
    pub(crate) fn new(scenario: Scenario, journal: Arc<Mutex<Journal>>) -> Arc<Server> {
        let turns = Mutex::new(scenario.turns.into_iter().map(Some).collect());
        Arc::new(Server { key: scenario.key, turns, journal })
    }

    pub(crate) async fn accept(self: Arc<Server>, listener: TcpListener) {
        while let Ok((stream, _)) = listener.accept().await {
            let server = self.clone();
            tokio::spawn(async move {
                let serve = service_fn(|request| server.serve(request));
                // Some scenarios break the connection, so an error here is expected.
                drop(http1::Builder::new().serve_connection(TokioIo::new(stream), serve).await);
            });
        }
    }

    async fn serve(&self, request: Request<Incoming>) -> Result<Response<Steps>, Infallible> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
        if head.method == Method::GET && path == "/__fake/requests" {
            let text = self.journal.lock().unwrap_or_else(PoisonError::into_inner).to_json().to_string();
            return Ok(response(200, "application/json", Steps::whole(text)));
        }
        let json: Value = serde_json::from_slice(&body).unwrap_or_default();
        self.with_journal(|journal| journal.requests.push(Recorded::new(path, &head.headers, json.clone())));
        let dialect = match (head.method == Method::POST, head.uri.path()) {
            (true, "/v1/messages") => Dialect::Messages,
            (true, "/v1/chat/completions") => Dialect::Chat,
            (true, "/v1/responses") => Dialect::Responses,
            _ => return Ok(response(404, "application/json", Steps::whole("{\"error\":\"not found\"}"))),
        };
        let reply = match check::check_request(dialect, &self.key, &head.headers, &json) {
            Err(refusal) => error_response(dialect, &refusal, &HeaderMap::new()),
            Ok(()) => match self.take_turn(&check::comparable_parts(dialect, &json)) {
                Some(Turn { fault: Some(Fault::NoHead), .. }) => std::future::pending().await,
                Some(turn) => self.answer_turn(dialect, &turn),
                None => self.reject_unexpected(dialect, &json),
            },
        };
        Ok(reply)
    }

    fn with_journal<T>(&self, write: impl FnOnce(&mut Journal) -> T) -> T {
        write(&mut self.journal.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Removes and returns the first turn that is left and expects this request; a turn with `repeat` is not removed.
    /// Returns `None` if no turn expects the request.
    fn take_turn(&self, shown: &Value) -> Option<Turn> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |turn: &Turn| turn.expect.as_ref().is_none_or(|expected| check::matches(expected, shown));
        let slot = turns.iter_mut().find(|turn| turn.as_ref().is_some_and(fits))?;
        if slot.as_ref().is_some_and(|turn| turn.repeat) { slot.clone() } else { slot.take() }
    }

    fn reject_unexpected(&self, dialect: Dialect, body: &Value) -> Response<Steps> {
        self.with_journal(|journal| journal.failures.push(format!("no turn expects {body}")));
        let message = "no turn of the scenario expects this request".to_owned();
        error_response(dialect, &ErrorReply { status: 500, kind: None, code: None, message }, &HeaderMap::new())
    }

    fn answer_turn(&self, dialect: Dialect, turn: &Turn) -> Response<Steps> {
        match &turn.fault {
            Some(Fault::Status { status, kind, code, message, headers }) => {
                let message = message.clone().unwrap_or_else(|| "so the scenario says".into());
                let refusal = ErrorReply { status: *status, kind: kind.clone(), code: code.clone(), message };
                let named = headers.iter().filter_map(|(name, value)| {
                    Some((hyper::header::HeaderName::from_bytes(name.as_bytes()).ok()?, value.parse().ok()?))
                });
                error_response(dialect, &refusal, &named.collect())
            }
            Some(Fault::Html) => response(200, "text/html", Steps::whole("<html><body>Sign in</body></html>")),
            Some(Fault::Redirect(to)) => {
                let mut answer = response(302, "text/plain", Steps::default());
                answer.headers_mut().extend(to.parse().map(|to| (hyper::header::LOCATION, to)));
                answer
            }
            Some(Fault::GzipBomb(size)) => {
                let mut answer = response(200, EVENT_STREAM, Steps::whole(fault::bomb(*size)));
                let gzip = hyper::header::HeaderValue::from_static("gzip");
                answer.headers_mut().insert(hyper::header::CONTENT_ENCODING, gzip);
                answer
            }
            fault => {
                self.with_journal(|journal| {
                    journal.billing.turns += 1;
                    journal.billing.input += turn.usage.fresh + turn.usage.cache_read + turn.usage.cache_write;
                    journal.billing.output += turn.usage.output;
                });
                let kind = if let Some(Fault::ContentType(kind)) = fault { kind } else { EVENT_STREAM };
                response(200, kind, body_of_turn(dialect, turn))
            }
        }
    }
}

/// Returns the stream of a turn, with its faults.
fn body_of_turn(dialect: Dialect, turn: &Turn) -> Steps {
    let mut events = match &turn.reply.raw_sse {
        Some(raw) => vec![raw.clone()],
        None => stream::events(dialect, turn),
    };
    let mut end = Vec::new();
    match &turn.fault {
        Some(Fault::EndAfter(count)) => events.truncate(*count),
        Some(Fault::StallAfter(count)) => {
            events.truncate(*count);
            end = vec![Step::Stall];
        }
        Some(Fault::ErrorAfter { events: count, kind }) => {
            events.truncate(*count);
            events.push(fault::event(dialect, kind));
        }
        Some(Fault::HugeLine(size)) => events.insert(0, format!("data: {}\n\n", "x".repeat(*size))),
        Some(Fault::UnknownEvents) => {
            let unknown = "event: fancy.new\ndata: {\"type\":\"fancy.new\",\"x\":1}\n\n: a comment\n\n".to_owned();
            events = events.into_iter().flat_map(|event| [unknown.clone(), event]).collect();
        }
        _ => {}
    }
    let line_end = turn.line_end.as_deref().unwrap_or("\n");
    let mut pieces: Vec<Bytes> = events.into_iter().map(|event| Bytes::from(event.replace('\n', line_end))).collect();
    if let Some(Fault::CutAfter(count)) = turn.fault {
        let mut whole = pieces.concat();
        whole.truncate(count);
        pieces = vec![whole.into()];
        end = vec![Step::Wait(FLUSH), Step::Cut];
    }
    if let Some(size) = turn.chunking {
        let whole = Bytes::from(pieces.concat());
        pieces = whole.chunks(size.max(1)).map(Bytes::copy_from_slice).collect();
    }
    let wait = (turn.delay_ms > 0).then(|| Duration::from_millis(turn.delay_ms));
    let sent = pieces.into_iter().flat_map(|piece| wait.map(Step::Wait).into_iter().chain([Step::Send(piece)]));
    Steps::new(sent.chain(end))
}

fn error_response(dialect: Dialect, refusal: &ErrorReply, headers: &HeaderMap) -> Response<Steps> {
    let mut answer = response(refusal.status, "application/json", Steps::whole(refusal.body(dialect).to_string()));
    answer.headers_mut().extend(headers.clone());
    answer
}

fn response(status: u16, kind: &str, body: Steps) -> Response<Steps> {
    let mut answer = Response::new(body);
    *answer.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = answer.headers_mut();
    headers.extend(kind.parse().map(|kind| (hyper::header::CONTENT_TYPE, kind)));
    for name in ["request-id", "x-request-id"] {
        headers.insert(name, hyper::header::HeaderValue::from_static("req_fake"));
    }
    answer
}
