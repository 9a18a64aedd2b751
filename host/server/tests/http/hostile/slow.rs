//! Slow clients: heads and bodies that do not arrive, and streams that the client does not read.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

use flowcell_server::Limits;
use serde_json::json;

use super::household::Household;
use crate::{
    client::{connect, head, send},
    samples::asks,
};

/// Reads everything until the connection is closed.
fn rest(mut stream: TcpStream) -> String {
    let mut all = String::new();
    stream.read_to_string(&mut all).unwrap();
    all
}

#[test]
fn h4_heads_and_bodies_that_do_not_arrive_time_out() {
    let time = Duration::from_millis(500);
    let house = Household::new(Limits { head_time: time, body_time: time, ..Limits::default() });
    let address = house.served.address;
    let begin = |text: String| {
        let mut stream = connect(address);
        stream.write_all(text.as_bytes()).unwrap();
        stream
    };
    let body = format!("Authorization: Bearer {}\r\nContent-Type: application/json\r\n", house.a);
    let heads: Vec<_> = (0..50).map(|_| begin(format!("GET /v1/runs HTTP/1.1\r\nHost: {address}\r\n"))).collect();
    let bodies: Vec<_> = ["/v1/runs", "/v1/validate", "/v1/flows", "/v1/triggers"]
        .iter()
        .flat_map(|path| {
            let start = format!("POST {path} HTTP/1.1\r\nHost: {address}\r\n{body}");
            [format!("{start}Content-Length: 9\r\n\r\n{{"), format!("{start}Transfer-Encoding: chunked\r\n\r\n9\r\n{{")]
        })
        .map(begin)
        .collect();
    house.canary();
    for stream in heads {
        let told = rest(stream);
        assert!(told.is_empty() || told.starts_with("HTTP/1.1 408 "), "{told}");
    }
    for stream in bodies {
        let told = rest(stream);
        assert!(told.starts_with("HTTP/1.1 408 "), "{told}");
    }
    house.canary();
}

/// Opens an event stream, and returns the status of the answer.
fn listen(house: &Household, token: &str) -> (u16, TcpStream) {
    let stream = connect(house.served.address);
    let token = format!("Bearer {token}");
    send(&stream, house.served.address, "GET", "/v1/runs/g/events/stream", &[("Authorization", &token)], "");
    let answer = head(&mut std::io::BufReader::new(&stream));
    (answer.status, stream)
}

#[test]
fn h4_a_tenant_with_idle_subscribers_leaves_permits_to_others() {
    let house = Household::new(Limits { subscribers: 64, ..Limits::default() });
    for token in [&house.a, &house.b] {
        let waits = house.call(token, "POST", "/v1/runs?wait=true", &json!({ "flow": asks(), "runId": "g" }));
        assert_eq!(waits.status, 201, "{waits:?}");
    }
    let mut idle: Vec<_> = (0..100).map(|_| listen(&house, &house.a)).collect();
    let heard = idle.iter().filter(|(status, _)| *status == 200).count();
    assert!(idle.iter().all(|(status, _)| [200, 429].contains(status)));
    assert_eq!(heard, 32, "one tenant has a half");
    assert_eq!(listen(&house, &house.b).0, 200);
    house.canary();
    // Permits of disconnected clients are free again.
    idle.clear();
    let again = std::iter::repeat_with(|| listen(&house, &house.a).0).take(10_000).find(|status| *status == 200);
    assert!(again.is_some(), "no place is free");
}
