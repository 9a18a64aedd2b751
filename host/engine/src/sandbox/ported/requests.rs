//! `wasi:http`: performs the requests of ported code as calls of the capability `http`.
//!
//! A request is sent once its body is complete, and its answer arrives complete. So the grants, the egress guard, the
//! record of calls and the limits are the same as for other calls. The requests of an attempt are sent in the order in
//! which the guest made them. So a repeated attempt makes the same calls in the same order as the recorded ones.

use std::{sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use flowcell_contract::{BINARY, BuiltIn, Call, Calls, Failure, Json, Value, code};
use futures_util::poll;
use http_body_util::{BodyExt, Full};
use hyper::{
    Request, Response,
    header::{CONTENT_LENGTH, HOST},
};
use tokio::sync::oneshot;
use wasmtime_wasi_http::{Error, RequestOptions, WasiBody, WasiHttpCtxView, WasiHttpHooks, WasiHttpView};

use crate::sandbox::{
    Sandbox, denial,
    deterministic::Clock,
    reply::{self, Body, Reply},
};

/// The maximum size of a request body, in bytes, the same as for the capability `http`.
const MAX_BODY_BYTES: usize = 32 << 20;

/// Sends the requests of an attempt.
pub(crate) struct Requests {
    calls: Arc<dyn Calls>,
    clock: Clock,
    /// The failure of every request, if the node type has not asked for `http`.
    denied: Option<Failure>,
    /// Resolves when the previous request has been handed to the runtime, or was dropped.
    previous_sent: Option<oneshot::Receiver<()>>,
}

type Sending = Box<dyn Future<Output = Result<(Response<WasiBody>, Rest), Error>> + Send>;
type Rest = Box<dyn Future<Output = Result<(), Error>> + Send>;

impl Requests {
    pub(in crate::sandbox) fn new(calls: Arc<dyn Calls>, clock: Clock) -> Requests {
        Requests { calls, clock, denied: None, previous_sent: None }
    }
}

impl WasiHttpHooks for Requests {
    fn set_host_header(&mut self) -> bool {
        false
    }

    fn send_request(&mut self, request: Request<WasiBody>, options: Option<RequestOptions>, _: Rest) -> Sending {
        if let Some(denied) = self.denied.clone() {
            return Box::new(async move { Err(to_wasi_error(denied)) });
        }
        if options.is_some_and(|options| options.first_byte_timeout.is_some_and(|time| time.is_zero())) {
            return Box::new(async { Err(Error::ConnectionTimeout) });
        }
        let (leaves, sent) = oneshot::channel();
        let before = self.previous_sent.replace(sent);
        let (calls, clock) = (self.calls.clone(), self.clock.clone());
        Box::new(async move {
            let (head, body) = request.into_parts();
            let body = whole(body).await?;
            if let Some(before) = before {
                // This also resolves if the previous request was dropped, with an error that does not matter.
                let _ = before.await;
            }
            let args = arguments(&head, body, options, &*calls).map_err(to_wasi_error)?;
            let mut reply =
                calls.call(Call { interface: BuiltIn::Http.name().into(), function: "send".into(), args: args.into() });
            // The first poll records the call, or queues its record, so the next request may follow.
            let first = poll!(&mut reply);
            drop(leaves);
            let reply = match first {
                std::task::Poll::Ready(reply) => reply,
                std::task::Poll::Pending => reply.await,
            };
            if let Some(now) = calls.now_ms() {
                clock.show(now);
            }
            let response = response(&reply.map_err(to_wasi_error)?, &*calls).map_err(to_wasi_error)?;
            let rest: Rest = Box::new(std::future::ready(Ok(())));
            Ok((response, rest))
        })
    }
}

/// Returns the view of `wasi:http` for a node type that asked for `http`.
pub(crate) fn live_http(sandbox: &mut Sandbox) -> WasiHttpCtxView<'_> {
    WasiHttpCtxView { hooks: &mut sandbox.requests, table: &mut sandbox.table, ctx: &mut sandbox.http }
}

/// Returns the view of `wasi:http` for all other node types. It denies each request.
pub(crate) fn denied_http(sandbox: &mut Sandbox) -> WasiHttpCtxView<'_> {
    sandbox.requests.denied = Some(denial::failure(&sandbox.attempt.node_type, BuiltIn::Http));
    live_http(sandbox)
}

impl WasiHttpView for Sandbox {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        live_http(self)
    }
}

/// Reads a body completely. Fails if it is too large.
async fn whole(mut body: WasiBody) -> Result<Bytes, Error> {
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        if whole.len() + data.len() > MAX_BODY_BYTES {
            return Err(Error::HttpRequestBodySize(Some(MAX_BODY_BYTES as u64)));
        }
        whole.extend_from_slice(&data);
    }
    Ok(whole.freeze())
}

/// Converts a request to the arguments of the capability `http`.
fn arguments(
    head: &hyper::http::request::Parts,
    body: Bytes,
    options: Option<RequestOptions>,
    calls: &dyn Calls,
) -> Result<Json, Failure> {
    // The host sets both headers itself.
    let headers = head.headers.iter().filter(|(name, _)| **name != CONTENT_LENGTH && **name != HOST);
    let header = |(name, value): (&hyper::header::HeaderName, &hyper::header::HeaderValue)| {
        let value = value.to_str().map_err(|_| {
            Failure::new(code::INVALID_INPUT, format!("the header `{name}` has characters that are not visible ASCII"))
        })?;
        Ok(Json::array([Json::from(name.as_str()), Json::from(value)]))
    };
    let headers = headers.map(header).collect::<Result<Vec<_>, Failure>>()?;
    let mut members = vec![
        ("method", Json::from(head.method.as_str())),
        ("url", Json::from(head.uri.to_string())),
        ("headers", Json::array(headers)),
    ];
    if !body.is_empty() {
        let file = Value::from(calls.keep(Arc::from(&*body), BINARY)?);
        members.push(("body", Json::object([("file", file.json().clone())])));
    }
    if let Some(timeout) = options.and_then(|options| options.first_byte_timeout) {
        members.push(("timeoutMs", Json::from(u64::from(milliseconds(timeout)))));
    }
    Ok(Json::object(members))
}

fn milliseconds(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX).max(1)
}

/// Converts the capability's answer to the guest's form.
fn response(reply: &Value, calls: &dyn Calls) -> Result<Response<WasiBody>, Failure> {
    let Reply { status, headers, body } = Reply::read(reply)?;
    let response = Response::builder().status(status);
    let response = headers.into_iter().fold(response, |response, (name, value)| response.header(name, value));
    let bytes = match body {
        Body::Empty => Bytes::new(),
        Body::Text(text) => Bytes::copy_from_slice(text.as_bytes()),
        Body::File(blob, _) => Bytes::from_owner(calls.bytes(&blob)?),
    };
    let body = Full::new(bytes).map_err(|never| match never {}).boxed_unsync();
    response.body(body).map_err(|_| reply::unexpected_reply())
}

/// Converts a failure to an error of `wasi:http`. Codes without an equivalent become internal errors with their text.
fn to_wasi_error(failure: Failure) -> Error {
    match &*failure.code {
        "http_connect" => Error::DestinationUnavailable,
        "http_tls" => Error::TlsProtocolError,
        "http_timeout" => Error::ConnectionTimeout,
        "http_protocol" => Error::HttpProtocolError,
        "http_body_too_large" => Error::HttpResponseBodySize(None),
        _ => Error::InternalError(Some(failure.to_string())),
    }
}
