//! Serves over streamable HTTP.

use std::{
    convert::Infallible,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    HeaderMap, Method, Request, Response, StatusCode,
    body::{Frame, Incoming},
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpListener;

use crate::{
    Plan, Reaction,
    session::{LEGACY, MODERN, Session},
};

type Body = UnsyncBoxBody<Bytes, io::Error>;

/// A test server on a local port. It runs as long as the tokio runtime.
pub struct Fake {
    address: SocketAddr,
    server: Arc<Server>,
}

struct Server {
    plan: Plan,
    /// The current session and its number. Only [`Fake::drop_session`] begins a new session. Then the server no
    /// longer knows the former one.
    session: Mutex<(u32, Session)>,
    refused: Mutex<Vec<String>>,
}

impl Fake {
    /// Starts a server on a free local port.
    pub async fn start(plan: Plan) -> io::Result<Fake> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let session = Mutex::new((0, Session::new(plan.clone())));
        let server = Arc::new(Server { plan, session, refused: Mutex::default() });
        let accepting = server.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let server = accepting.clone();
                tokio::spawn(async move {
                    let serve = service_fn(|request| server.serve(request));
                    // Some plans break the connection, so an error here is expected.
                    drop(http1::Builder::new().serve_connection(TokioIo::new(stream), serve).await);
                });
            }
        });
        Ok(Fake { address, server })
    }

    /// Returns the IP address and port on which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Drops the session, as if the server had restarted.
    pub fn drop_session(&self) {
        let mut session = self.server.session.lock().unwrap_or_else(PoisonError::into_inner);
        *session = (session.0 + 1, Session::new(self.server.plan.clone()));
    }

    /// Returns a text for each message of the client that was refused because of its headers. Other violations get an
    /// error as the answer, and are not listed.
    pub fn refused(&self) -> Vec<String> {
        self.server.refused.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the number of pages of the tool list that the client has requested in this session.
    pub fn listed(&self) -> usize {
        self.server.session.lock().unwrap_or_else(PoisonError::into_inner).1.listed
    }

    /// Returns the number of calls of a tool in this session.
    pub fn called(&self, tool: &str) -> usize {
        let session = self.server.session.lock().unwrap_or_else(PoisonError::into_inner);
        session.1.called.iter().filter(|called| *called == tool).count()
    }

    /// Returns the number of cancelled calls in this session.
    pub fn cancelled(&self) -> usize {
        self.server.session.lock().unwrap_or_else(PoisonError::into_inner).1.cancelled.len()
    }
}

impl Server {
    async fn serve(&self, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        Ok(match head.method {
            Method::POST => self.handle_post(&head.headers, &body),
            Method::DELETE => empty(200),
            _ => empty(405),
        })
    }

    fn handle_post(&self, headers: &HeaderMap, body: &[u8]) -> Response<Body> {
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        if self.plan.authorization.as_deref().is_some_and(|expected| header(AUTHORIZATION.as_str()) != expected) {
            return empty(401);
        }
        let message: Value = serde_json::from_slice(body).unwrap_or_default();
        let method = message["method"].as_str().unwrap_or_default();
        let mut slot = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        let (number, session) = &mut *slot;
        let name = format!("session-{number}");
        let begins = matches!(method, "initialize" | "server/discover");
        if !self.plan.modern && !begins && header("mcp-session-id") != name {
            return empty(404);
        }
        if let Err(why) = self.check_headers(headers, &message, begins) {
            self.refused.lock().unwrap_or_else(PoisonError::into_inner).push(format!("{why}: {message}"));
            return empty(400);
        }
        if let Some(status) = self.plan.status.filter(|_| method == "tools/call") {
            return empty(status);
        }
        let reactions = session.handle(&message);
        if message.get("id").is_none() {
            return empty(202);
        }
        let mut answer = self.to_response(reactions);
        if method == "initialize" {
            answer.headers_mut().extend(HeaderValue::from_str(&name).map(|name| (SESSION, name)));
        }
        answer
    }

    fn check_headers(&self, headers: &HeaderMap, message: &Value, begins: bool) -> Result<(), &'static str> {
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let accepted = header(ACCEPT.as_str());
        if !accepted.contains("application/json") || !accepted.contains("text/event-stream") {
            return Err("both kinds of answers are accepted");
        }
        if header(CONTENT_TYPE.as_str()) != "application/json" {
            return Err("the message is JSON");
        }
        let version = if self.plan.modern { MODERN } else { LEGACY };
        if !begins && header("mcp-protocol-version") != version {
            return Err("the version is in a header");
        }
        if self.plan.modern && header("mcp-method") != message["method"].as_str().unwrap_or_default() {
            return Err("the method is in a header");
        }
        match self.plan.modern && message["method"] == "tools/call" && header("mcp-name") != message["params"]["name"] {
            true => Err("the tool is in a header"),
            false => Ok(()),
        }
    }

    fn to_response(&self, reactions: Vec<Reaction>) -> Response<Body> {
        if let (true, [Reaction::Send(message)]) = (self.plan.json, &*reactions) {
            return whole(200, "application/json", message.to_string().into());
        }
        let pieces = reactions.into_iter().map(|reaction| match reaction {
            Reaction::Send(message) => Some(io::Result::Ok(format!("event: message\ndata: {message}\n\n").into())),
            Reaction::Raw(bytes) => Some(Ok([b"data: ", &*bytes, b"\n\n"].concat())),
            Reaction::Crash => Some(Err(io::ErrorKind::ConnectionReset.into())),
            Reaction::Hang => None,
        });
        let frames = stream::iter(pieces).then(|piece| async move {
            let bytes: Vec<u8> = match piece {
                Some(piece) => piece?,
                None => std::future::pending().await,
            };
            Ok(Frame::data(Bytes::from(bytes)))
        });
        typed(200, "text/event-stream", StreamBody::new(frames).boxed_unsync())
    }
}

const SESSION: hyper::header::HeaderName = hyper::header::HeaderName::from_static("mcp-session-id");

fn empty(status: u16) -> Response<Body> {
    whole(status, "text/plain", Bytes::new())
}

fn whole(status: u16, kind: &'static str, bytes: Bytes) -> Response<Body> {
    typed(status, kind, Full::new(bytes).map_err(|never| match never {}).boxed_unsync())
}

fn typed(status: u16, kind: &'static str, body: Body) -> Response<Body> {
    let mut answer = Response::new(body);
    *answer.status_mut() = StatusCode::from_u16(status).unwrap_or_default();
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}
