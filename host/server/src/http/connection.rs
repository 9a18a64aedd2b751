//! Connections: their number, their time limits, and the addresses that they come from.

use std::{convert::Infallible, io, net::IpAddr, sync::Arc, time::Duration};

use axum::{Router, body::Body, response::Response};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};
use tower::ServiceExt;

use super::{
    auth_rate_limiter::ClientAddr,
    intake::BodyTimeout,
    limits::Limits,
    permit::Guarded,
    proxies::Proxies,
    seats::{Seat, Seats},
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

/// Serves connections until the server ends. Then answers in progress have [`FINISH_TIME`] to finish.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    (limits, proxies): (Limits, Proxies),
    mut ends: watch::Receiver<bool>,
) {
    let seats = Seats::new(limits.connections);
    let mut open = JoinSet::new();
    let context = ConnectionContext { router, limits, proxies, ends: ends.clone() };
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    let peer = peer.ip().to_canonical();
                    match seats.take(peer, context.proxies.trusts(peer)) {
                        Some(seat) => _ = open.spawn(context.clone().serve_connection(stream, peer, seat)),
                        None => _ = open.spawn(turn_away(stream)),
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
    ends: watch::Receiver<bool>,
}

impl ConnectionContext {
    /// Answers the requests of one connection, until it closes, its permit is given to another connection, or the
    /// server ends.
    async fn serve_connection(self, stream: TcpStream, peer: IpAddr, seat: Arc<Seat>) {
        let ConnectionContext { router, limits, proxies, mut ends } = self;
        // Most answers are small, so they are sent without delay (`TCP_NODELAY`).
        let _ = stream.set_nodelay(true);
        let asked = seat.clone();
        let service = service_fn(move |request: hyper::Request<Incoming>| {
            let (router, busy) = (router.clone(), asked.begin());
            let caller = proxies.caller(peer, request.headers());
            async move {
                let busy = busy.ok_or_else(|| io::Error::from(io::ErrorKind::ConnectionAborted))?;
                let mut request = request.map(Body::new);
                request.extensions_mut().insert(ClientAddr(caller));
                request.extensions_mut().insert(BodyTimeout(limits.body_time));
                let answer: Result<Response, Infallible> = router.oneshot(request).await;
                let answer = answer.unwrap_or_else(|never| match never {});
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
