//! Connections: how many, and how long each may stay silent.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{Router, body::Body};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    task::JoinSet,
};
use tower::ServiceExt;

use super::{
    app::SUBSCRIBERS,
    events::HEARTBEAT,
    failures::Peer,
    intake::{BODY_TIME, Patience},
};

/// Connections at a time.
pub(crate) const CONNECTIONS: usize = 4_096;
/// How long the head of a request may take, and how long a connection may be idle before it.
pub(crate) const HEAD_TIME: Duration = Duration::from_secs(30);
/// Bytes of the head of a request.
pub(crate) const HEAD_BYTES: usize = 32 * 1024;
/// Headers of a request.
pub(crate) const HEADERS: usize = 100;
/// How long answers that are under way may take once the server ends.
const LAST: Duration = Duration::from_secs(5);
/// Time before the next try when the system has no connection to give.
const REST: Duration = Duration::from_millis(50);

/// What somebody is told who has no place.
const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\n\
    connection: close\r\ncontent-length: 91\r\n\r\n\
    {\"error\":{\"code\":\"too_many_connections\",\"message\":\"too many connections are open already\"}}";

/// Limits that tests make smaller.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at a time.
    pub connections: usize,
    /// How long the head of a request may take.
    pub head_time: Duration,
    /// How long the body of a request may take.
    pub body_time: Duration,
    /// Live subscribers at a time.
    pub subscribers: u64,
    /// Time between two signs of life to a live subscriber. With each it is looked whether it may still hear the run.
    pub heartbeat: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: CONNECTIONS,
            head_time: HEAD_TIME,
            body_time: BODY_TIME,
            subscribers: SUBSCRIBERS,
            heartbeat: HEARTBEAT,
        }
    }
}

/// Serves whoever connects, until it is told to end; then what is under way may come to its end for a while.
pub(super) async fn serve(listener: TcpListener, router: Router, limits: Limits, mut ends: watch::Receiver<bool>) {
    let places = Arc::new(Semaphore::new(limits.connections));
    let mut open = JoinSet::new();
    let each = ends.clone();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => match places.clone().try_acquire_owned() {
                    Ok(place) => {
                        let peer = Peer(peer.ip());
                        open.spawn(talk(stream, peer, router.clone(), limits, each.clone(), place));
                    }
                    Err(_) => _ = open.spawn(turn_away(stream)),
                },
                // Out of descriptors: those that are open may close.
                Err(_) => tokio::time::sleep(REST).await,
            },
            Some(_) = open.join_next() => {}
            () = over(&mut ends) => break,
        }
    }
    drop(listener);
    // Whoever takes longer is cut off with the process.
    let _ = tokio::time::timeout(LAST, async { while open.join_next().await.is_some() {} }).await;
}

async fn talk(
    stream: TcpStream,
    peer: Peer,
    router: Router,
    limits: Limits,
    mut ends: watch::Receiver<bool>,
    _place: OwnedSemaphorePermit,
) {
    // An answer is small, and is not to wait for more.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let router = router.clone();
        async move {
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(peer);
            request.extensions_mut().insert(Patience(limits.body_time));
            let answer = router.oneshot(request).await;
            answer.map_err(|never: Infallible| never)
        }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(limits.head_time);
    builder.max_buf_size(HEAD_BYTES).max_headers(HEADERS);
    let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service).with_upgrades());
    tokio::select! {
        // Whoever has gone is not waited for.
        _ = connection.as_mut() => return,
        () = over(&mut ends) => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

/// Waits until the server ends.
pub(super) async fn over(ends: &mut watch::Receiver<bool>) {
    // Without anybody who could say so, it has ended.
    let _ = ends.wait_for(|ends| *ends).await;
}

async fn turn_away(mut stream: TcpStream) {
    let _ = stream.write_all(FULL).await;
    let _ = stream.shutdown().await;
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn the_answer_without_a_place_is_whole() {
        let text = std::str::from_utf8(FULL).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.ends_with(&format!("content-length: {}", body.len())), "{text}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(body).unwrap()["error"]["code"], "too_many_connections");
    }
}
