//! The requests of the capability `http`: what it sends, what it refuses, and how it describes a request.

use std::sync::Arc;

use flowcell_contract::{Blobs, Effect, Json, Tenant};
use flowcell_services::http::Limits;
use serde_json::json;

use crate::outside::{
    kit::Kit,
    server::{Server, ok},
};

#[tokio::test]
async fn a_request_arrives_unchanged() {
    let server = Server::start(|_| ok("hello")).await;
    let kit = Kit::local(&server.url(""));
    let headers = json!([["X-Two", "a"], ["x-two", "b"], ["Accept", "text/plain"]]);
    let (url, body) = (server.url("/a%20b/?q=1&r=%2F#part"), json!({ "text": "grüße" }));
    let args = json!({ "method": "POST", "url": url, "headers": headers, "body": body });
    kit.send(args).await.unwrap();
    let seen = &server.seen()[0];
    assert_eq!(seen.line, "POST /a%20b/?q=1&r=%2F HTTP/1.1");
    assert_eq!(seen.body, "grüße".as_bytes());
    assert_eq!(seen.header("host").unwrap(), server.address.to_string());
    assert_eq!(seen.header("accept"), Some("text/plain"));
    assert_eq!(seen.header("accept-encoding"), Some("gzip"));
    assert_eq!(seen.header("content-type"), Some("text/plain; charset=utf-8"));
    assert_eq!(seen.header("content-length"), Some("7"));
    assert!(seen.header("user-agent").unwrap().starts_with("flowcell/"));
    let twice: Vec<_> =
        seen.headers.iter().filter(|(name, _)| name == "x-two").map(|(_, value)| value.as_str()).collect();
    assert_eq!(twice, ["a", "b"]);
    assert!(seen.header("transfer-encoding").is_none());
}

#[tokio::test]
async fn both_functions_do_the_same() {
    let server = Server::start(|_| ok("hello")).await;
    let kit = Kit::local(&server.url(""));
    for (function, admitted) in [("send", true), ("start-send", true), ("take-response", false)] {
        let mut call = crate::outside::kit::call(json!({ "method": "GET", "url": server.url("/") }));
        call.function = function.into();
        assert_eq!(flowcell_contract::Capability::admit(&kit.http, &call, &kit.caller).is_ok(), admitted, "{function}");
    }
}

#[tokio::test]
async fn calls_that_change_something_have_an_idempotency_key() {
    let server = Server::start(|_| ok("")).await;
    let kit = Kit::local(&server.url(""));
    for method in ["GET", "HEAD", "OPTIONS", "POST", "POST", "PUT", "PATCH", "DELETE", "PROPFIND"] {
        kit.send(json!({ "method": method, "url": server.url("/") })).await.unwrap();
    }
    let own = json!([["Idempotency-Key", "mine"]]);
    kit.send(json!({ "method": "POST", "url": server.url("/"), "headers": own })).await.unwrap();
    let keys: Vec<_> = server.seen().iter().map(|seen| seen.header("idempotency-key").map(str::to_owned)).collect();
    let key = Some("key-1".to_owned());
    let expected = [&None, &None, &None, &key, &key, &key, &key, &key, &key, &Some("mine".to_owned())];
    assert_eq!(keys.iter().collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn a_body_may_be_a_file_of_the_tenant() {
    let server = Server::start(|_| ok("")).await;
    let kit = Kit::local(&server.url(""));
    let bytes: Arc<[u8]> = (0..=255).cycle().take(300_000).collect::<Vec<u8>>().into();
    let blob = kit.blobs.put(&Tenant::local(), bytes.clone(), "image/png");
    let foreign = kit.blobs.put(&Tenant::from("other"), bytes.clone(), "image/png");
    let put = |file: serde_json::Value| json!({ "method": "PUT", "url": server.url("/"), "body": { "file": file } });
    let args = |id: &str| put(json!({ "kind": "file", "fileId": id }));
    let with_type = json!({ "kind": "file", "fileId": &*blob.file_id, "mime": "image/png" });
    kit.send(put(with_type)).await.unwrap();
    assert_eq!(server.seen()[0].body, &*bytes);
    assert_eq!(server.seen()[0].header("content-type"), Some("image/png"));
    for missing in [&*foreign.file_id, "99", "../etc/passwd"] {
        let failure = kit.send(args(missing)).await.unwrap_err();
        assert_eq!((failure.code.as_str(), failure.retryable), ("invalid_input", false));
    }
    // The size that a node claims is ignored.
    let kit = kit.with_limits(Limits { request_body: 1000, ..Limits::default() });
    assert_eq!(kit.send(args(&blob.file_id)).await.unwrap_err().code, "http_body_too_large");
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test]
async fn an_empty_body_is_announced_if_the_method_usually_has_one() {
    let server = Server::start(|_| ok("")).await;
    let kit = Kit::local(&server.url(""));
    kit.send(json!({ "method": "POST", "url": server.url("/"), "body": null })).await.unwrap();
    kit.send(json!({ "method": "GET", "url": server.url("/") })).await.unwrap();
    let seen = server.seen();
    assert_eq!(seen[0].header("content-length"), Some("0"));
    assert_eq!(seen[1].header("content-length"), None);
}

#[test]
fn wrong_arguments_are_refused_before_anything_happens() {
    let kit = Kit::local("http://127.0.0.1:1");
    let with = |member: &str, value: serde_json::Value| {
        let mut args = json!({ "method": "GET", "url": "http://127.0.0.1:1/" });
        args[member] = value;
        args
    };
    let header = |name: &str, value: &str| with("headers", json!([[name, value]]));
    let mut table = vec![
        json!([]),
        json!({}),
        json!({ "method": "GET" }),
        json!({ "url": "http://127.0.0.1:1/" }),
        with("method", json!("get")),
        with("method", json!("")),
        with("method", json!("GET /")),
        with("method", json!("CONNECT")),
        with("method", json!("ABCDEFGHIJKLMNOPQRSTU")),
        with("method", json!(1)),
        with("url", json!(null)),
        with("url", json!("/relative")),
        with("url", json!(format!("http://127.0.0.1:1/{}", "a".repeat(9000)))),
        with("timeoutMs", json!(0)),
        with("timeoutMs", json!(-1)),
        with("timeoutMs", json!(1.5)),
        with("timeoutMs", json!("1")),
        with("body", json!("text")),
        with("body", json!({})),
        with("body", json!({ "text": 1 })),
        with("body", json!({ "text": "a", "file": { "kind": "file", "fileId": "0" } })),
        with("body", json!({ "file": { "fileId": "0" } })),
        with("headers", json!({ "a": "b" })),
        with("headers", json!([["a"]])),
        with("headers", json!([["a", 1]])),
        with("headers", json!([["a", "b", "c"]])),
        with("headers", json!(vec![["a", "b"]; 65])),
        with("follow", json!(true)),
        header("", "a"),
        header("a b", "a"),
        header("a:", "a"),
        header(":path", "a"),
        header("a\r\nb", "a"),
        header("a", "b\r\nc: d"),
        header("a", "b\nc"),
        header("a", "b\0"),
        header("a", "ü"),
        header("a", &"x".repeat(40_000)),
    ];
    let forbidden = [
        "Host",
        "Content-Length",
        "Transfer-Encoding",
        "Connection",
        "Keep-Alive",
        "Upgrade",
        "TE",
        "Trailer",
        "Expect",
        "HTTP2-Settings",
        "Proxy-Authorization",
        "proxy-connection",
    ];
    table.extend(forbidden.map(|name| header(name, "1")));
    for args in table {
        let shown: String = args.to_string().chars().take(100).collect();
        let Err(failure) = kit.admit(args) else { panic!("admitted {shown}") };
        assert_eq!((failure.code.as_str(), failure.retryable), ("invalid_input", false), "{shown}");
        assert!(failure.message.len() < 200, "{shown}");
    }
}

#[test]
fn a_text_that_is_too_large_is_refused_when_it_is_admitted() {
    let kit = Kit::local("http://127.0.0.1:1").with_limits(Limits { request_body: 3, ..Limits::default() });
    let args = |text: &str| json!({ "method": "POST", "url": "http://127.0.0.1:1", "body": { "text": text } });
    assert!(kit.admit(args("abc")).is_ok());
    assert_eq!(kit.admit(args("abcd")).unwrap_err().code, "http_body_too_large");
    let file = json!({ "kind": "file", "fileId": "0", "size": u64::MAX });
    let args = json!({ "method": "POST", "url": "http://127.0.0.1:1", "body": { "file": file } });
    assert_eq!(kit.admit(args).unwrap_err().code, "http_body_too_large");
}

#[test]
fn a_preview_has_the_query_and_the_beginning_of_the_body_and_no_headers() {
    let kit = Kit::local("http://127.0.0.1:1");
    let url = "http://127.0.0.1:1/a?q=%C3%BC&token=x#part";
    let long = "ü".repeat(1_500);
    let file = json!({ "kind": "file", "fileId": "0", "size": 3, "mime": "text/plain" });
    let table = [
        (json!({ "method": "GET", "url": "http://127.0.0.1:1/a" }), json!(null)),
        (json!({ "method": "GET", "url": url }), json!({ "query": "q=%C3%BC&token=x" })),
        (
            json!({ "method": "POST", "url": url, "headers": [["authorization", "x"]], "body": { "text": "pay 7" } }),
            json!({ "query": "q=%C3%BC&token=x", "body": "pay 7" }),
        ),
        (
            json!({ "method": "POST", "url": "http://127.0.0.1:1/a", "body": { "text": long } }),
            json!({ "body": format!("{}… ⟨cut: 3000 bytes⟩", "ü".repeat(1_000)) }),
        ),
        (json!({ "method": "PUT", "url": "http://127.0.0.1:1/a", "body": { "file": file } }), json!({ "body": file })),
    ];
    for (args, preview) in table {
        assert_eq!(kit.admit(args).unwrap().preview, Json::from(preview));
    }
}

#[test]
fn an_admission_describes_the_call_without_its_query() {
    let mut kit = Kit::local("http://127.0.0.1:1");
    let long = "x".repeat(300);
    let table = [
        ("GET", Effect::Once, "/a?token=secret#x", Effect::Idempotent, "http://127.0.0.1:1/a".to_owned()),
        ("HEAD", Effect::Once, "", Effect::Idempotent, "http://127.0.0.1:1/".to_owned()),
        ("OPTIONS", Effect::Once, "/", Effect::Idempotent, "http://127.0.0.1:1/".to_owned()),
        ("TRACE", Effect::Once, "/", Effect::Idempotent, "http://127.0.0.1:1/".to_owned()),
        ("POST", Effect::Once, "/", Effect::Once, "http://127.0.0.1:1/".to_owned()),
        ("POST", Effect::Idempotent, "/", Effect::Idempotent, "http://127.0.0.1:1/".to_owned()),
        ("DELETE", Effect::Inert, "/", Effect::AtLeastOnce, "http://127.0.0.1:1/".to_owned()),
        ("PUT", Effect::Read, &long, Effect::AtLeastOnce, String::new()),
    ];
    for (method, of_the_type, path, effect, url) in table {
        kit.caller.effect = of_the_type;
        let path = if path.len() == 300 { format!("/{path}") } else { path.to_owned() };
        let admission = kit.admit(json!({ "method": method, "url": format!("http://127.0.0.1:1{path}") })).unwrap();
        assert_eq!(admission.effect, effect, "{method} {of_the_type:?}");
        assert_eq!(admission.about.get("method").and_then(Json::as_str), Some(method));
        let shown = admission.about.get("url").and_then(Json::as_str).unwrap();
        if url.is_empty() {
            assert!(shown.chars().count() == 201 && shown.ends_with('…'), "{shown}");
        } else {
            assert_eq!(shown, url);
        }
    }
}
