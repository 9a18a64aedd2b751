//! Failures, and the certainty about sent bytes after them.

use flowcell_contract::{Failure, Json};
use serde_json::json;
use tokio::net::TcpListener;

use crate::outside::{
    kit::{FakeResolver, Kit, LOCAL, policy},
    server::{Reaction, Server},
};

fn post(url: &str) -> serde_json::Value {
    json!({ "method": "POST", "url": url, "body": { "text": "pay" } })
}

fn why(failure: &Failure) -> &str {
    failure.details.as_ref().and_then(|details| details.get("code")).and_then(Json::as_str).unwrap()
}

#[tokio::test]
async fn a_refused_connection_is_retryable() {
    let address = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let url = format!("http://{address}");
    for kit in [Kit::local(&url), Kit::local(&url).once()] {
        let failure = kit.send(post(&url)).await.unwrap_err();
        assert_eq!((failure.code.as_str(), failure.retryable), ("http_connect", true), "{failure}");
    }
}

#[tokio::test]
async fn an_unknown_name_is_retryable() {
    let kit = Kit::new(policy(&[LOCAL]), FakeResolver::new(&[("empty.test", &[&[]])]), "http://*.x.test").once();
    for url in ["http://a.x.test", "http://b.x.test/"] {
        let failure = kit.send(post(url)).await.unwrap_err();
        assert_eq!((failure.code.as_str(), failure.retryable), ("http_connect", true), "{failure}");
    }
    let kit = Kit::new(policy(&[]), FakeResolver::new(&[("empty.test", &[&[]])]), "http://empty.test");
    assert_eq!(kit.get("http://empty.test").await.unwrap_err().code, "http_connect");
}

#[tokio::test]
async fn a_connection_that_breaks_after_the_request_is_ambiguous_only_for_once() {
    let table: [&[u8]; 3] =
        [b"", b"HTTP/1.1 200 OK\r\ncontent-le", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf"];
    for bytes in table {
        let server = Server::start(|_| Reaction::SendAndClose(bytes.to_vec())).await;
        let kit = Kit::local(&server.url(""));
        let failure = kit.send(post(&server.url("/"))).await.unwrap_err();
        assert_eq!((failure.code.as_str(), failure.retryable), ("http_protocol", true), "{failure}");
        let failure = kit.once().send(post(&server.url("/"))).await.unwrap_err();
        assert_eq!((failure.code.as_str(), failure.retryable), ("ambiguous", false), "{failure}");
        assert_eq!(why(&failure), "http_protocol");
    }
}

#[tokio::test]
async fn answers_that_are_not_http_are_not_retryable() {
    let many: String = (0..200).map(|number| format!("x-{number}: 1\r\n")).collect();
    let table = [
        "SSH-2.0-OpenSSH_9.9\r\n\r\n".to_owned(),
        "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab".to_owned(),
        "HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n".to_owned(),
        "HTTP/1.1 200 OK\r\nbad header\r\n\r\n".to_owned(),
        format!("HTTP/1.1 200 OK\r\n{many}\r\n"),
        format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "x".repeat(200_000)),
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n".to_owned(),
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n".to_owned(),
    ];
    for bytes in table {
        let shown: String = bytes.chars().take(60).collect();
        let server = Server::start(move |_| Reaction::Send(bytes.clone().into_bytes())).await;
        let failure = Kit::local(&server.url("")).get(&server.url("/")).await.unwrap_err();
        assert_eq!((failure.code.as_str(), failure.retryable), ("http_protocol", false), "{shown} {failure}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_server_meets_the_time_limit() {
    let table: [&[u8]; 3] = [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf"];
    for bytes in table {
        let server = Server::start(|_| Reaction::SendAndHang(bytes.to_vec())).await;
        let kit = Kit::local(&server.url(""));
        let begin = tokio::time::Instant::now();
        let mut args = post(&server.url("/"));
        args["timeoutMs"] = json!(1500);
        let failure = kit.send(args.clone()).await.unwrap_err();
        assert_eq!((failure.code.as_str(), failure.retryable), ("http_timeout", true), "{failure}");
        assert_eq!(begin.elapsed().as_millis() / 10, 150);
        let failure = kit.once().send(args).await.unwrap_err();
        assert_eq!((failure.code.as_str(), failure.retryable), ("ambiguous", false), "{failure}");
        assert_eq!(why(&failure), "http_timeout");
        let status = failure.details.as_ref().and_then(|details| details.get("status")).and_then(Json::as_u64);
        assert_eq!(status, bytes.ends_with(b"half").then_some(200));
    }
}

#[tokio::test(start_paused = true)]
async fn timeouts_have_a_default_and_a_maximum() {
    let server = Server::start(|_| Reaction::SendAndHang(Vec::new())).await;
    let kit = Kit::local(&server.url(""));
    for (asked, seconds) in [(json!(null), 30), (json!(u64::MAX), 600), (json!(1e15), 600), (json!(2000.0), 2)] {
        let begin = tokio::time::Instant::now();
        let failure =
            kit.send(json!({ "method": "GET", "url": server.url("/"), "timeoutMs": asked })).await.unwrap_err();
        assert_eq!(failure.code, "http_timeout");
        assert_eq!(begin.elapsed().as_secs(), seconds);
    }
}

#[tokio::test(start_paused = true)]
async fn a_tls_handshake_without_an_end_is_not_ambiguous() {
    // The server accepts and stays silent, so only the connect timeout ends the attempt.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let kit = Kit::local(&url).once();
    let begin = tokio::time::Instant::now();
    let failure = kit.send(post(&url)).await.unwrap_err();
    assert_eq!((failure.code.as_str(), failure.retryable), ("http_timeout", true), "{failure}");
    assert_eq!(begin.elapsed().as_secs(), 10);
}
