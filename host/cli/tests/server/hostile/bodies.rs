//! Sends oversized bodies.

use std::{
    io::{Read, Write},
    net::SocketAddr,
};

use serde_json::json;

use crate::{
    client::{ask, connect},
    samples::hello,
    server::process::{memory, serve, stop},
};

/// Sends an endless chunked body. Returns the server's response.
fn endless(address: SocketAddr) -> String {
    let mut stream = connect(address);
    let start = format!(
        "POST /v1/validate HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n\
         Transfer-Encoding: chunked\r\n\r\n"
    );
    stream.write_all(start.as_bytes()).unwrap();
    let mut sends = stream.try_clone().unwrap();
    let sending = std::thread::spawn(move || {
        let piece = format!("10000\r\n{}\r\n", " ".repeat(0x10000));
        // A server that never stops reading would receive 10 GiB.
        (0..160_000).take_while(|_| sends.write_all(piece.as_bytes()).is_ok()).count()
    });
    let (mut all, mut piece) = (Vec::new(), [0; 4096]);
    while let Ok(length @ 1..) = stream.read(&mut piece) {
        all.extend(&piece[..length]);
    }
    drop(stream);
    assert!(sending.join().unwrap() < 160_000, "the server has read it all");
    String::from_utf8_lossy(&all).into_owned()
}

#[test]
fn h5_endless_bodies_are_cut_off_and_not_stored() {
    let folder = tempfile::tempdir().unwrap();
    let (child, address) = serve(folder.path(), &[]);
    let run = json!({ "flow": hello() }).to_string();
    assert_eq!(ask(address, "POST", "/v1/runs?wait=true", &[], &run).status, 201);
    let before = memory(child.id(), "VmHWM");
    // Above the limit of values, and below it.
    let deep = [(1_000_000, (413, "too_large")), (100_000, (400, "bad_request"))];
    let deep = deep.map(|(depth, fault)| ["[".repeat(depth), r#"{"a":"#.repeat(depth)].map(|text| (text, fault)));
    for _ in 0..5 {
        let announced = ask(address, "POST", "/v1/runs", &[("Content-Length", "10737418240")], "");
        assert_eq!(announced.fault(), (413, "too_large".to_owned()));
        let told = endless(address);
        assert!(told.starts_with("HTTP/1.1 413 "), "{told}");
        for (deep, (status, code)) in deep.as_flattened() {
            let bodies = [
                ("/v1/runs", format!("{{\"flow\":{deep}")),
                ("/v1/runs", format!("{{\"flow\":\"hello\",\"input\":{deep}")),
                ("/v1/validate", format!("{{\"flow\":{deep}")),
                ("/v1/runs/r/gates/g/reply", format!("{{\"answer\":{deep}")),
                ("/v1/runs", deep.clone()),
            ];
            for (path, body) in bodies {
                assert_eq!(ask(address, "POST", path, &[], &body).fault(), (*status, (*code).to_owned()));
            }
        }
        let packed = [("Content-Encoding", "gzip")];
        let bomb = ask(address, "POST", "/v1/validate", &packed, "\u{1f}\u{8}\u{8}\0\0\0\0\0\0\u{3}");
        assert_eq!(bomb.status, 400, "nothing is unpacked: {bomb:?}");
    }
    // A complete but deep body is refused when it is parsed as a flow.
    let whole = format!("{{\"flow\":{}{}}}", "[".repeat(1_000_000), "]".repeat(1_000_000));
    assert_eq!(ask(address, "POST", "/v1/runs", &[], &whole).fault(), (413, "too_large".to_owned()));
    let whole = format!("{{\"flow\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    assert!([400, 422].contains(&ask(address, "POST", "/v1/runs", &[], &whole).status));
    if let (Some(before), Some(after)) = (before, memory(child.id(), "VmHWM")) {
        assert!(after < before + 64 * 1024, "{before} KiB became {after} KiB");
    }
    assert_eq!(ask(address, "POST", "/v1/runs?wait=true", &[], &run).status, 201);
    assert_eq!(stop(child), Some(0));
}
