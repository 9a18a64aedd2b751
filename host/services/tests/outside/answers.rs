//! Which replies the capability `http` makes of the answers of servers.

use std::io::Write;

use flate2::{Compression, write::GzEncoder};
use flowcell_contract::Json;
use flowcell_services::http::Limits;
use serde_json::json;

use crate::outside::{
    kit::{Kit, header, text},
    server::{Reaction, Server, answer},
};

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Starts a server that always sends these bytes.
async fn answering(bytes: Vec<u8>) -> (Server, Kit) {
    let server = Server::start(move |_| Reaction::Send(bytes.clone())).await;
    let kit = Kit::local(&server.url(""));
    (server, kit)
}

#[tokio::test]
async fn every_status_is_an_answer() {
    for status in [
        "200 OK",
        "201 Created",
        "204 No Content",
        "301 Moved",
        "304 Not Modified",
        "404 Not Found",
        "429 Slow",
        "500 No",
        "599 X",
    ] {
        let (server, kit) = answering(format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n").into_bytes()).await;
        let reply = kit.get(&server.url("/")).await.unwrap();
        assert_eq!(reply.json().get("status").and_then(Json::as_u64), status[..3].parse().ok());
        assert!(reply.json().get("body").unwrap().is_null(), "{reply}");
    }
}

#[tokio::test]
async fn h14_a_redirect_is_not_followed() {
    let hidden = Server::start(|_| Reaction::Send(answer("200 OK", &[], b"secret"))).await;
    let (server, kit) = answering(answer("302 Found", &[("location", &hidden.url("/"))], b"")).await;
    let reply = kit.get(&server.url("/")).await.unwrap();
    assert_eq!(reply.json().get("status").and_then(Json::as_u64), Some(302));
    assert_eq!(header(&reply, "location"), [hidden.url("/")]);
    assert_eq!(hidden.connections(), 0);
}

#[tokio::test]
async fn header_names_are_in_lower_case_and_repeated_headers_stay() {
    let headers = [("Set-Cookie", "a=1"), ("SET-COOKIE", "b=2"), ("X-Latin", "gr\u{fc}n"), ("Keep-Alive", "timeout=5")];
    let (server, kit) = answering(answer("200 OK", &headers, b"")).await;
    let reply = kit.get(&server.url("/")).await.unwrap();
    assert_eq!(header(&reply, "set-cookie"), ["a=1", "b=2"]);
    assert_eq!(header(&reply, "x-latin"), ["grün"]);
    assert!(header(&reply, "keep-alive").is_empty());
    let (server, kit) = answering(b"HTTP/1.1 200 OK\r\nx-latin: gr\xfcn\r\ncontent-length: 0\r\n\r\n".to_vec()).await;
    assert_eq!(header(&kit.get(&server.url("/")).await.unwrap(), "x-latin"), ["grün"]);
}

#[tokio::test]
async fn textual_bodies_are_texts_and_others_are_files() {
    let table: [(&str, &[u8], bool); 16] = [
        ("text/plain", b"a", true),
        ("text/html; charset=UTF-8", "ü".as_bytes(), true),
        ("text/html; charset=\"utf-8\"", "ü".as_bytes(), true),
        ("TEXT/CSV", b"a", true),
        ("application/json", b"{}", true),
        ("application/problem+json", b"{}", true),
        ("image/svg+xml", b"<svg/>", true),
        ("application/javascript", b"a", true),
        ("application/x-www-form-urlencoded", b"a=b", true),
        ("text/plain; charset=iso-8859-1", b"ascii", true),
        ("text/plain; charset=iso-8859-1", "ü".as_bytes(), false),
        ("text/plain", b"\xff", false),
        ("application/octet-stream", b"a", false),
        ("image/png", b"a", false),
        ("nonsense", b"a", false),
        ("", b"a", false),
    ];
    for (mime, body, is_text) in table {
        let (server, kit) = answering(answer("200 OK", &[("content-type", mime)], body)).await;
        let reply = kit.get(&server.url("/")).await.unwrap();
        if is_text {
            assert_eq!(text(&reply).as_bytes(), body, "{mime}");
        } else {
            let expected = if mime.is_empty() { "application/octet-stream" } else { mime };
            let (bytes, mime) = kit.file(&reply);
            assert_eq!((&*bytes, &*mime), (body, expected));
        }
    }
}

#[tokio::test]
async fn large_texts_become_files() {
    for (size, is_text) in [(3 << 20, true), ((3 << 20) + 1, false), (5_000_000, false)] {
        let body = vec![b'x'; size];
        let (server, kit) = answering(answer("200 OK", &[("content-type", "text/plain")], &body)).await;
        let reply = kit.get(&server.url("/")).await.unwrap();
        if is_text {
            assert_eq!(text(&reply).len(), size);
        } else {
            assert_eq!(kit.file(&reply).0.len(), size);
        }
    }
}

#[tokio::test]
async fn bodies_are_joined_with_every_framing() {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked\r\n\r\n";
    let chunked = format!("{head}3\r\nabc\r\n2\r\nde\r\n0\r\nx-trailer: 1\r\n\r\n");
    let (server, kit) = answering(chunked.into_bytes()).await;
    let reply = kit.get(&server.url("/")).await.unwrap();
    assert_eq!(text(&reply), "abcde");
    assert!(header(&reply, "x-trailer").is_empty() && header(&reply, "transfer-encoding").is_empty());
    let server =
        Server::start(|_| Reaction::SendAndClose(b"HTTP/1.0 200 OK\r\ncontent-type: text/plain\r\n\r\nold".to_vec()))
            .await;
    let kit = Kit::local(&server.url(""));
    assert_eq!(text(&kit.get(&server.url("/")).await.unwrap()), "old");
}

#[tokio::test]
async fn gzip_is_decompressed_unless_the_node_set_accept_encoding() {
    let packed = gzip("grüße".as_bytes());
    let headers = [("content-type", "text/plain"), ("Content-Encoding", "GZIP")];
    let (server, kit) = answering(answer("200 OK", &headers, &packed)).await;
    let reply = kit.get(&server.url("/")).await.unwrap();
    assert_eq!(text(&reply), "grüße");
    assert!(header(&reply, "content-encoding").is_empty() && header(&reply, "content-length").is_empty());
    let args = json!({ "method": "GET", "url": server.url("/"), "headers": [["accept-encoding", "gzip, br"]] });
    let reply = kit.send(args).await.unwrap();
    assert_eq!(&*kit.file(&reply).0, packed);
    assert_eq!(header(&reply, "content-encoding"), ["GZIP"]);
}

#[tokio::test]
async fn unrequested_encodings_are_refused() {
    let refused: [&[(&str, &str)]; 6] = [
        &[("content-encoding", "deflate")],
        &[("content-encoding", "br")],
        &[("content-encoding", "gzip, gzip")],
        &[("content-encoding", "gzip"), ("content-encoding", "gzip")],
        &[("content-encoding", "identity, zstd")],
        &[("content-encoding", "\"gzip\"")],
    ];
    for headers in refused {
        let (server, kit) = answering(answer("200 OK", headers, b"packed")).await;
        let failure = kit.get(&server.url("/")).await.unwrap_err();
        assert_eq!((failure.code.as_str(), failure.retryable), ("http_protocol", false), "{headers:?}");
        let (server, kit) = answering(answer("200 OK", headers, b"")).await;
        assert!(kit.get(&server.url("/")).await.is_ok(), "{headers:?}: there is nothing to unpack");
    }
    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n";
    let (server, kit) = answering(format!("{head}1\r\nx\r\n0\r\n\r\n").into_bytes()).await;
    assert_eq!(kit.get(&server.url("/")).await.unwrap_err().code, "http_protocol");
    let plain = [("content-encoding", "identity"), ("content-type", "text/plain")];
    let (server, kit) = answering(answer("200 OK", &plain, b"plain")).await;
    assert_eq!(text(&kit.get(&server.url("/")).await.unwrap()), "plain");
}

#[tokio::test]
async fn broken_gzip_is_a_protocol_error() {
    let packed = gzip(&[7; 10_000]);
    for body in [&packed[..packed.len() - 9], b"no gzip", &[&packed[..], b"tail"].concat()] {
        let (server, kit) = answering(answer("200 OK", &[("content-encoding", "gzip")], body)).await;
        let failure = kit.get(&server.url("/")).await.unwrap_err();
        assert_eq!((failure.code.as_str(), failure.retryable), ("http_protocol", false), "{failure}");
    }
}

#[tokio::test]
async fn h15_a_gzip_bomb_stops_at_the_limit() {
    // 64 MiB of zeros in 64 KiB, compressed once more.
    let bomb = gzip(&vec![0; 64 * 1024 * 1024]);
    let (server, kit) = answering(answer("200 OK", &[("content-encoding", "gzip")], &bomb)).await;
    let failure = kit.get(&server.url("/")).await.unwrap_err();
    assert_eq!((failure.code.as_str(), failure.retryable), ("http_body_too_large", false));
    assert!(failure.message.contains("33554432 bytes (32 MiB), the limit of an answer that is packed"), "{failure}");
}

#[tokio::test]
async fn bodies_above_the_limit_are_refused_with_and_without_announced_length() {
    let limits = Limits { answer_body: 1000, file_body: 1000, ..Limits::default() };
    let announced = answer("200 OK", &[("content-type", "text/plain")], &[b'x'; 1001]);
    let (server, kit) = answering(announced).await;
    let kit = kit.with_limits(limits.clone());
    assert_eq!(kit.get(&server.url("/")).await.unwrap_err().code, "http_body_too_large");

    let server = Server::start(|_| Reaction::SendForEver(b"HTTP/1.1 200 OK\r\n\r\n".repeat(1000))).await;
    let kit = Kit::local(&server.url("")).with_limits(limits.clone());
    assert_eq!(kit.get(&server.url("/")).await.unwrap_err().code, "http_body_too_large");

    let fits = answer("200 OK", &[("content-type", "text/plain")], &[b'x'; 1000]);
    let (server, kit) = answering(fits).await;
    assert_eq!(text(&kit.with_limits(limits).get(&server.url("/")).await.unwrap()).len(), 1000);
}

#[tokio::test]
async fn a_reply_to_head_has_no_body() {
    let head = b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\ncontent-encoding: gzip\r\n\r\n".to_vec();
    let (server, kit) = answering(head).await;
    let reply = kit.send(json!({ "method": "HEAD", "url": server.url("/") })).await.unwrap();
    assert!(reply.json().get("body").unwrap().is_null());
    assert_eq!(header(&reply, "content-length"), ["99999999999"]);
}
