//! Bytes that two parsers could read differently, or that try to add a header or a log line.

use std::io::{Read, Write};

use serde_json::{Value, json};

use super::household::Household;
use crate::{
    client::{Served, connect},
    samples::hello,
};

/// Sends these bytes, and returns all bytes of the answer until the connection is closed.
fn exchange_bytes(address: std::net::SocketAddr, bytes: &[u8]) -> String {
    let mut stream = connect(address);
    // A server that refuses a request early does not read all of it.
    let _ = stream.write_all(bytes);
    let (mut all, mut piece) = (Vec::new(), [0; 4096]);
    while let Ok(length @ 1..) = stream.read(&mut piece) {
        all.extend(&piece[..length]);
    }
    String::from_utf8_lossy(&all).into_owned()
}

#[test]
fn h8_a_request_hidden_in_another_one_is_not_answered() {
    let served = Served::local();
    let hidden = "GET /v1/nodes HTTP/1.1\r\nHost: HOST\r\n\r\n";
    let table = [
        "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        "X: y\r\n Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "Content-Length: 0\r\nContent-Length: 4\r\n\r\n",
        "Content-Length: 4\r\nContent-Length: 0\r\n\r\n",
        "Content-Length: 0, 4\r\n\r\n",
        "Content-Length: +2\r\n\r\n{}",
        "Content-Length: -1\r\n\r\n",
        "Content-Length: 99999999999999999999\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n-1\r\n{}\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n0x2\r\n{}\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n{}\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n2;a\n{}\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n2\r\n{}0\r\n\r\n",
        "X: y\rContent-Length: 4\r\n\r\n",
    ];
    for hiding in table {
        let text = format!("POST /v1/validate HTTP/1.1\r\nHost: HOST\r\n{hiding}{hidden}");
        let told = exchange_bytes(served.address, text.replace("HOST", &served.address.to_string()).as_bytes());
        assert!(told.starts_with("HTTP/1.1 400 "), "{hiding:?}: {told}");
        assert_eq!(told.matches("HTTP/1.1 ").count(), 1, "{hiding:?}: {told}");
        assert_eq!(served.get("/healthz").status, 200);
    }
}

#[test]
fn h11_an_injected_line_becomes_no_header_and_no_row() {
    let house = Household::furnished();
    let text = "x\r\nInjected: yes\r\n\r\nHTTP/1.1 200 OK";
    let encoded = "x%0d%0aInjected:%20yes";
    let key = json!({ "flow": hello(), "runId": text });
    let named = json!({ "flow": { "flow": { "name": text }, "nodes": [] } });
    let requests = [
        ("POST", "/v1/runs".to_owned(), key),
        ("POST", "/v1/flows".to_owned(), named),
        ("GET", format!("/v1/runs/{encoded}"), Value::Null),
        ("GET", format!("/v1/flows/{encoded}"), Value::Null),
        ("DELETE", format!("/v1/secrets/{encoded}"), Value::Null),
        ("PUT", format!("/v1/secrets/{encoded}"), json!({ "value": "a-secret-of-many-characters" })),
        ("POST", format!("/v1/triggers/{encoded}/{encoded}/fire"), json!({})),
        ("GET", format!("/{encoded}"), Value::Null),
        ("GET", format!("/v1/runs?cursor={encoded}"), Value::Null),
    ];
    for (method, path, body) in requests {
        let answer = house.call(&house.a, method, &path, &body);
        assert!((400..500).contains(&answer.status), "{method} {path}: {answer:?}");
        assert!(answer.header("injected").is_none() && !answer.body.contains('\n'), "{method} {path}: {answer:?}");
        answer.fault();
    }
    // A text from an operator is stored in one entry, with all its characters.
    house.tenants.create_token("a", &["run:read".to_owned()], text, None).unwrap();
    let entries = house.tenants.audit("a", 0, 1_000).unwrap();
    let whole = house.tenants.verify_audit("a", None).unwrap();
    assert_eq!((whole.entries, whole.damage.len()), (entries.len() as u64, 0));
    house.canary();
}
