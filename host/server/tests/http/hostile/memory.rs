//! Bodies that are announced and never sent, and responses that are never read. Each holds memory of the server.

use std::{
    io::{BufReader, ErrorKind},
    net::TcpStream,
};

use flowcell_server::Limits;
use serde_json::{Value, json};

use super::household::Household;
use crate::{
    client::{announce, ask, connect, connect_from, head, send, wait_for_continue},
    samples::asks,
};

/// The size of the largest body, in bytes.
const BODY_BYTES: usize = 8 << 20;
/// The number of such bodies that one tenant may send at a time: they fill half of the 256 MiB that the server has for
/// request bodies.
const MAX_BODIES: usize = 16;

/// Announces a body without sending it: of the largest size if `is_sized` is true, and otherwise of unknown size.
fn body(house: &Household, token: &str, is_sized: bool) -> BufReader<TcpStream> {
    let size = match is_sized {
        true => format!("Content-Length: {BODY_BYTES}"),
        false => "Transfer-Encoding: chunked".to_owned(),
    };
    let headers = format!("Authorization: Bearer {token}\r\n{size}\r\n");
    announce(connect(house.served.address), house.served.address, &headers)
}

/// Returns true if the server has sent nothing yet.
fn is_silent(stream: &BufReader<TcpStream>) -> bool {
    stream.get_ref().set_nonblocking(true).unwrap();
    let silent = stream.get_ref().peek(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
    stream.get_ref().set_nonblocking(false).unwrap();
    silent
}

#[test]
fn h5_bodies_of_one_tenant_leave_memory_to_others() {
    let house = Household::new(Limits::default());
    let mut begun: Vec<_> = (0..MAX_BODIES).map(|number| body(&house, &house.a, number % 2 == 0)).collect();
    begun.iter_mut().for_each(wait_for_continue);
    let mut waits: Vec<_> = [true, false].map(|is_sized| body(&house, &house.a, is_sized)).into();
    // Another tenant's large body is asked for, and small bodies of the same tenant are answered.
    wait_for_continue(&mut body(&house, &house.b, true));
    assert_eq!(house.call(&house.a, "POST", "/v1/validate", &json!({ "flow": asks() })).status, 200);
    house.canary();
    assert!(waits.iter().all(is_silent));
    begun.truncate(MAX_BODIES - 2);
    waits.iter_mut().for_each(wait_for_continue);
}

#[test]
fn h5_a_body_that_finds_no_memory_is_refused_in_time() {
    let house = Household::new(Limits { body_time: std::time::Duration::from_secs(2), ..Limits::default() });
    let mut begun: Vec<_> = (0..MAX_BODIES).map(|_| body(&house, &house.a, true)).collect();
    begun.iter_mut().for_each(wait_for_continue);
    // All come at the same time, so the later ones find the memory taken until the earlier ones are late.
    let answers: Vec<_> = (0..3 * MAX_BODIES).map(|_| body(&house, &house.a, true)).collect();
    let statuses: Vec<u16> = answers
        .into_iter()
        .map(|mut stream| {
            loop {
                let answer = head(&mut stream);
                if answer.status != 100 {
                    return answer.status;
                }
            }
        })
        .collect();
    assert!(statuses.iter().all(|status| [408, 429].contains(status)), "{statuses:?}");
    assert!(statuses.iter().filter(|status| **status == 429).count() >= MAX_BODIES, "{statuses:?}");
    house.canary();
}

/// Asks for the content of a file without reading it. Returns the status.
fn download(house: &Household, token: &str, path: &str) -> (u16, BufReader<TcpStream>) {
    let stream = connect(house.served.address);
    let bearer = format!("Bearer {token}");
    send(&stream, house.served.address, "GET", path, &[("Authorization", &bearer)], "");
    let mut stream = BufReader::with_capacity(1, stream);
    (head(&mut stream).status, stream)
}

/// Posts a body without reading the response.
fn post(house: &Household, token: &str, path: &str, body: &Value) -> BufReader<TcpStream> {
    let stream = connect(house.served.address);
    let bearer = format!("Bearer {token}");
    send(&stream, house.served.address, "POST", path, &[("Authorization", &bearer)], &body.to_string());
    BufReader::new(stream)
}

#[test]
fn h5_responses_that_a_tenant_does_not_read_leave_memory_to_others() {
    let house = Household::new(Limits::default());
    let file = "x".repeat(32 << 20);
    let paths = [&house.a, &house.b].map(|token| {
        let bearer = format!("Bearer {token}");
        let headers = [("Authorization", bearer.as_str()), ("Content-Type", "application/octet-stream")];
        let put = ask(house.served.address, "POST", "/v1/files?name=x.txt", &headers, &file);
        assert_eq!(put.status, 201, "{put:?}");
        format!("/v1/files/{}/content", put.json()["fileId"].as_str().unwrap())
    });
    let mut unread: Vec<_> = (0..6).map(|_| download(&house, &house.a, &paths[0])).collect();
    let statuses: Vec<_> = unread.iter().map(|(status, _)| *status).collect();
    assert_eq!(statuses, [200, 200, 200, 200, 429, 429], "half of 256 MiB");
    assert_eq!(download(&house, &house.b, &paths[1]).0, 200);
    house.canary();
    // The response to a change waits. The change is in the audit log before.
    let mut flow = asks();
    flow["flow"]["description"] = "x".repeat(100 << 10).into();
    let mut kept = post(&house, &house.a, "/v1/flows", &json!({ "flow": flow }));
    let is_noted = || house.tenants.audit("a", 0, 100).unwrap().iter().any(|entry| entry.action == "POST /v1/flows");
    assert!((0..10_000).any(|_| is_noted()), "the change is not in the audit log");
    assert!(is_silent(&kept));
    unread.clear();
    assert_eq!(head(&mut kept).status, 201);
    let again =
        std::iter::repeat_with(|| download(&house, &house.a, &paths[0]).0).take(10_000).find(|status| *status == 200);
    assert!(again.is_some(), "the bytes of closed connections are not free again");
}

#[test]
fn h5_webhook_posts_of_one_address_leave_memory_to_others() {
    let house = Household::new(Limits::default());
    let address = house.served.address;
    let post = |from: &str| {
        let stream = connect_from(from, address);
        let text = format!(
            "POST /v1/hooks/a/x/y HTTP/1.1\r\nHost: {address}\r\nExpect: 100-continue\r\nContent-Length: {}\r\n\r\n",
            1 << 20
        );
        std::io::Write::write_all(&mut &stream, text.as_bytes()).unwrap();
        BufReader::new(stream)
    };
    // Half of 64 MiB.
    let mut begun: Vec<_> = (0..32).map(|_| post("127.0.0.1")).collect();
    begun.iter_mut().for_each(wait_for_continue);
    let mut waits = post("127.0.0.1");
    wait_for_continue(&mut post("127.0.0.2"));
    house.canary();
    assert!(is_silent(&waits));
    begun.pop();
    wait_for_continue(&mut waits);
}

#[test]
fn h4_websockets_of_one_tenant_leave_permits_to_others() {
    let house = Household::new(Limits { sockets: 8, ..Limits::default() });
    for token in [&house.a, &house.b] {
        let waits = house.call(token, "POST", "/v1/runs?wait=true", &json!({ "flow": asks(), "runId": "g" }));
        assert_eq!(waits.status, 201, "{waits:?}");
    }
    let open = |token: &str| {
        let stream = connect(house.served.address);
        let bearer = format!("Bearer {token}");
        let headers = [
            ("Authorization", bearer.as_str()),
            ("Connection", "Upgrade"),
            ("Upgrade", "websocket"),
            ("Sec-WebSocket-Version", "13"),
            ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ];
        send(&stream, house.served.address, "GET", "/v1/runs/g/socket", &headers, "");
        let mut stream = BufReader::new(stream);
        (head(&mut stream).status, stream)
    };
    let of_a: Vec<_> = (0..6).map(|_| open(&house.a)).collect();
    let statuses: Vec<_> = of_a.iter().map(|(status, _)| *status).collect();
    assert_eq!(statuses, [101, 101, 101, 101, 429, 429]);
    assert_eq!(open(&house.b).0, 101);
}
