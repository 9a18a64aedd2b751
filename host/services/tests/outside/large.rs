//! Bodies that pass the capability `http` in parts: files that are sent, and answers that become files.

use flowcell_contract::{Blobs, Json, Tenant, Value};
use flowcell_services::http::Limits;
use serde_json::json;

use crate::outside::{
    kit::Kit,
    server::{Reaction, Server, answer, ok},
};

/// Larger than the part of an answer that stays in memory.
const LARGE: usize = 5 << 20;

fn granted() -> Limits {
    Limits { file_body: 1 << 30, ..Limits::default() }
}

fn content(size: usize) -> Vec<u8> {
    (0..size).map(|at| (at % 251) as u8).collect()
}

#[tokio::test]
async fn an_answer_above_the_limit_of_a_text_becomes_a_file_while_it_arrives() {
    for size in [(3 << 20) + 1, LARGE] {
        let body = content(size);
        let sent = answer("200 OK", &[("content-type", "video/mp4")], &body);
        let server = Server::start(move |_| Reaction::Send(sent.clone())).await;
        let kit = Kit::local(&server.url(""));
        let (bytes, mime) = kit.file(&kit.get(&server.url("/")).await.unwrap());
        assert!(*bytes == *body && &*mime == "video/mp4", "{size}");
    }
}

#[tokio::test]
async fn the_operator_grants_larger_bodies() {
    let body = content((32 << 20) + 1);
    let sent = answer("200 OK", &[], &body);
    let server = Server::start(move |_| Reaction::Send(sent.clone())).await;
    let kit = Kit::local(&server.url(""));
    let failure = kit.get(&server.url("/")).await.unwrap_err();
    assert!(failure.code == "http_body_too_large", "{failure}");
    let expected = "the body of the answer is larger than 33554432 bytes (32 MiB), the limit of an answer: ask for less, or \
                    the operator raises it with `--max-http-file MIB`";
    assert_eq!(failure.message, expected);
    // The store of this test has files of 32 MiB at most, and says so.
    let failure = kit.with_limits(granted()).get(&server.url("/")).await.unwrap_err();
    assert_eq!((failure.code.as_str(), failure.retryable), ("file_too_large", false), "{failure}");
}

#[tokio::test]
async fn an_endless_body_ends_at_the_limit_and_leaves_nothing() {
    let head = b"HTTP/1.1 200 OK\r\n\r\n".to_vec();
    let server = Server::start(move |_| Reaction::SendForEver([head.clone(), vec![b'x'; 1 << 20]].concat())).await;
    let limits = Limits { file_body: 8 << 20, ..Limits::default() };
    let kit = Kit::local(&server.url("")).with_limits(limits);
    assert_eq!(kit.get(&server.url("/")).await.unwrap_err().code, "http_body_too_large");
    assert_eq!(kit.blobs.count(), 0);
}

#[tokio::test]
async fn a_body_that_ends_too_early_is_interrupted_and_can_be_asked_for_again() {
    let all = answer("200 OK", &[], &content(LARGE));
    let cut = all[..all.len() - 1000].to_vec();
    let server = Server::start(move |seen| match seen.connection {
        0 => Reaction::SendAndClose(cut.clone()),
        _ => Reaction::Send(all.clone()),
    })
    .await;
    let kit = Kit::local(&server.url(""));
    let failure = kit.get(&server.url("/")).await.unwrap_err();
    assert_eq!((failure.code.as_str(), failure.retryable), ("stream_interrupted", true), "{failure}");
    let details = failure.details.unwrap();
    let number = |name: &str| details.get(name).and_then(Json::as_u64);
    assert_eq!((number("received"), number("announced")), (Some((LARGE - 1000) as u64), Some(LARGE as u64)));
    assert_eq!(kit.blobs.count(), 0, "nothing of it is stored");
    assert_eq!(kit.file(&kit.get(&server.url("/")).await.unwrap()).0.len(), LARGE);
}

#[tokio::test]
async fn a_length_that_is_too_small_ends_the_body() {
    let mut sent = answer("200 OK", &[], &content(LARGE));
    sent.extend(content(LARGE));
    let server = Server::start(move |_| Reaction::SendAndClose(sent.clone())).await;
    let kit = Kit::local(&server.url(""));
    assert!(*kit.file(&kit.get(&server.url("/")).await.unwrap()).0 == *content(LARGE));
}

#[tokio::test]
async fn a_file_is_read_while_it_is_sent() {
    let server = Server::start(|_| ok("thanks")).await;
    let kit = Kit::local(&server.url(""));
    let bytes = content(LARGE + 7);
    let blob = kit.blobs.put(&Tenant::local(), bytes.clone().into(), "video/mp4");
    let post = |file: Json| {
        let file: serde_json::Value = serde_json::from_str(&file.to_text()).unwrap();
        kit.send(json!({ "method": "POST", "url": server.url("/"), "body": { "file": file } }))
    };
    post(Value::from(blob.clone()).json().clone()).await.unwrap();
    let seen = server.seen().remove(0);
    assert!(seen.body == bytes);
    assert_eq!(seen.header("content-length"), Some(bytes.len().to_string().as_str()));
    assert_eq!(seen.header("content-type"), Some("video/mp4"));
    // The size in the value counts for nothing, and neither does the file of another tenant.
    let claims = flowcell_contract::BlobRef { size: 1, ..blob };
    post(Value::from(claims).json().clone()).await.unwrap();
    assert!(server.seen().remove(1).body == bytes);
    let other = kit.blobs.put(&Tenant::from("other"), bytes.into(), "video/mp4");
    let failure = post(Value::from(other).json().clone()).await.unwrap_err();
    assert_eq!(failure.code, "invalid_input", "{failure}");
}
