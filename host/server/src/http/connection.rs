//! Connections: their number, their time limits, their handshakes, and the addresses that they come from.

use std::{convert::Infallible, io, net::IpAddr, sync::Arc, time::Duration};

use axum::{Router, body::Body, http::header, response::Response};
use flowcell_platform::observe::metrics::Metrics;
use hyper::{
    body::{Body as _, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};
use tower::ServiceExt;

use super::{
    auth_rate_limiter::ClientAddr,
    cookie,
    intake::BodyTimeout,
    limits::Limits,
    permit::Guarded,
    proxies::Proxies,
    seats::{Seat, Seats},
    unread,
};
use crate::{
    origin::{STRICT_TRANSPORT, is_local_name},
    tls::Tls,
};

/// The maximum size of a request's head, in bytes.
pub(crate) const MAX_HEAD_BYTES: usize = 32 * 1024;
/// The maximum number of headers of a request.
pub(crate) const MAX_HEADERS: usize = 100;
/// The time that answers in progress have to finish when the server ends.
const FINISH_TIME: Duration = Duration::from_secs(5);
/// The wait before the next connection is accepted, after the system had no free file descriptor.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

/// The answer to a connection for which no permit is free.
const FULL_ANSWER: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\n\
                      retry-after: 1\r\nconnection: close\r\ncontent-length: 83\r\n\r\n\
                      {\"error\":{\"code\":\"too_many_connections\",\"message\":\"too many connections are open\"}}";

/// The encryption of a server's connections.
#[derive(Clone)]
pub(crate) struct Encryption {
    tls: Arc<Tls>,
    /// The permits for handshakes. A handshake counts as a connection that waits: if none is free, it takes that of the
    /// address with the most handshakes.
    handshakes: Seats,
    metrics: Metrics,
}

impl Encryption {
    pub(crate) fn new(tls: Arc<Tls>, limits: &Limits, metrics: Metrics) -> Encryption {
        Encryption { tls, handshakes: Seats::new(limits.handshakes), metrics }
    }

    /// Takes the permit for the handshake of a new connection. The caller takes permits in the order of the
    /// connections, so that a connection loses its permit to a later one only.
    fn permit(&self, peer: IpAddr, is_proxy: bool) -> Option<Arc<Seat>> {
        self.handshakes.take(peer, is_proxy)
    }

    /// Performs the handshake of a new connection from `peer`. Counts a handshake that fails, takes longer than `time`,
    /// or has to leave its permit to another one, and returns `None`.
    async fn accept(
        &self,
        stream: TcpStream,
        (peer, permit): (IpAddr, Option<Arc<Seat>>),
        time: Duration,
    ) -> Option<impl AsyncRead + AsyncWrite + Send + Unpin + use<>> {
        let stopped = |why: &str| Err(io::Error::new(io::ErrorKind::TimedOut, why));
        let accepted = match permit {
            None => stopped("too many handshakes are in progress"),
            Some(permit) => tokio::select! {
                accepted = tokio::time::timeout(time, self.tls.accept(stream)) =>
                    accepted.unwrap_or_else(|_| stopped("the client took too long")),
                () = permit.wait_until_closed() => stopped("another handshake needs the permit"),
            },
        };
        if let Err(error) = &accepted {
            self.metrics.count_failed_handshake();
            // A warning for each packet would let strangers fill the log.
            tracing::debug!("a handshake with {peer} failed: {error}");
        }
        accepted.ok()
    }
}

/// Serves connections until the server ends. Then answers in progress have [`FINISH_TIME`] to finish.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    (limits, proxies, encryption): (Limits, Proxies, Option<Encryption>),
    mut ends: watch::Receiver<bool>,
) {
    let seats = Seats::new(limits.connections);
    let mut open = JoinSet::new();
    let context = ConnectionContext { router, limits, proxies, encryption, ends: ends.clone() };
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    let peer = peer.ip().to_canonical();
                    let is_proxy = context.proxies.trusts(peer);
                    match (seats.take(peer, is_proxy), &context.encryption) {
                        (Some(seat), None) => _ = open.spawn(context.clone().serve_plain(stream, peer, seat)),
                        (Some(seat), Some(encryption)) => {
                            let permit = encryption.permit(peer, is_proxy);
                            open.spawn(context.clone().serve_encrypted(stream, (peer, permit), seat));
                        }
                        (None, None) => _ = open.spawn(turn_away(stream)),
                        // The answer would be no TLS.
                        (None, Some(_)) => drop(stream),
                    }
                }
                // No file descriptor is free. Open connections may close in the meantime.
                Err(_) => tokio::time::sleep(ACCEPT_RETRY_DELAY).await,
            },
            Some(_) = open.join_next() => {}
            () = wait_for_server_end(&mut ends) => break,
        }
    }
    drop(listener);
    // Connections that take longer are closed when the process ends.
    let _ = tokio::time::timeout(FINISH_TIME, async { while open.join_next().await.is_some() {} }).await;
}

/// The state that all connections share.
#[derive(Clone)]
struct ConnectionContext {
    router: Router,
    limits: Limits,
    proxies: Proxies,
    encryption: Option<Encryption>,
    ends: watch::Receiver<bool>,
}

impl ConnectionContext {
    /// Serves a connection without TLS.
    async fn serve_plain(self, stream: TcpStream, peer: IpAddr, seat: Arc<Seat>) {
        send_at_once(&stream);
        self.answer_requests(stream, peer, seat).await;
    }

    /// Performs the handshake of a connection, and then answers its requests.
    async fn serve_encrypted(self, stream: TcpStream, (peer, permit): (IpAddr, Option<Arc<Seat>>), seat: Arc<Seat>) {
        let Some(encryption) = self.encryption.clone() else { return };
        send_at_once(&stream);
        let (time, mut ends) = (self.limits.handshake_time, self.ends.clone());
        let accepted = tokio::select! {
            accepted = encryption.accept(stream, (peer, permit), time) => accepted,
            () = seat.wait_until_closed() => None,
            () = wait_for_server_end(&mut ends) => None,
        };
        if let Some(stream) = accepted {
            self.answer_requests(stream, peer, seat).await;
        }
    }

    /// Answers the requests of one connection, until it closes, its permit is given to another connection, or the
    /// server ends.
    async fn answer_requests<S>(self, stream: S, peer: IpAddr, seat: Arc<Seat>)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let ConnectionContext { router, limits, proxies, encryption, mut ends } = self;
        let body_time = limits.body_time;
        let (has_tls, is_proxy) = (encryption.is_some(), proxies.trusts(peer));
        let asked = seat.clone();
        let service = service_fn(move |request: hyper::Request<Incoming>| {
            let (router, busy) = (router.clone(), asked.begin());
            let caller = proxies.caller(peer, request.headers());
            async move {
                let busy = busy.ok_or_else(|| io::Error::from(io::ErrorKind::ConnectionAborted))?;
                let (head, body) = request.into_parts();
                // A client that expects an answer first sends no body if it is refused.
                let has_rest = is_proxy && !body.is_end_stream() && !head.headers.contains_key(header::EXPECT);
                let (body, unread) = match has_rest {
                    true => {
                        let (body, unread) = unread::share(body);
                        (body, Some(unread))
                    }
                    false => (Body::new(body), None),
                };
                let mut request = hyper::Request::from_parts(head, body);
                if has_tls {
                    cookie::note_tls(request.headers_mut(), is_proxy);
                }
                if let Some(over_tls) = cookie::came_over_tls(request.headers(), has_tls, is_proxy) {
                    request.extensions_mut().insert(over_tls);
                }
                let is_strict = has_tls && !is_local_name(request.headers());
                request.extensions_mut().insert(ClientAddr(caller));
                request.extensions_mut().insert(BodyTimeout(body_time));
                let answer: Result<Response, Infallible> = router.oneshot(request).await;
                if let Some(unread) = unread {
                    unread.read(body_time).await;
                }
                let mut answer = answer.unwrap_or_else(|never| match never {});
                if is_strict {
                    answer.headers_mut().insert(header::STRICT_TRANSPORT_SECURITY, STRICT_TRANSPORT);
                }
                // The connection counts as busy until the response is sent.
                Ok::<_, io::Error>(answer.map(|body| Guarded::new(body, busy)))
            }
        });
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(limits.head_time);
        builder.max_buf_size(MAX_HEAD_BYTES).max_headers(MAX_HEADERS);
        let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service).with_upgrades());
        tokio::select! {
            // The connection has ended. An error only means that the client has disconnected.
            _ = connection.as_mut() => return,
            () = seat.wait_until_closed() => return,
            () = wait_for_server_end(&mut ends) => connection.as_mut().graceful_shutdown(),
        }
        let _ = connection.await;
    }
}

/// Sends answers without delay (`TCP_NODELAY`), since most of them are small.
fn send_at_once(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
}

/// Waits until the server ends.
pub(crate) async fn wait_for_server_end(ends: &mut watch::Receiver<bool>) {
    // If the sender is gone, the server has ended.
    let _ = ends.wait_for(|ends| *ends).await;
}

async fn turn_away(mut stream: TcpStream) {
    let _ = stream.write_all(FULL_ANSWER).await;
    let _ = stream.shutdown().await;
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn the_answer_of_a_full_server_is_complete() {
        let text = std::str::from_utf8(FULL_ANSWER).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.ends_with(&format!("content-length: {}", body.len())), "{text}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(body).unwrap()["error"]["code"], "too_many_connections");
    }
}
