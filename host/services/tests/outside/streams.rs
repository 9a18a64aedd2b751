//! Answers that a node reads in chunks.

use std::sync::{Arc, Mutex};

use flowcell_contract::{AttemptEnd, Capability, Effect, EndAction, EndRegistration, Failure, Json, Tenant, Value};
use flowcell_services::{
    client::Client,
    egress::{Egress, Outbound, OutboundLimits},
    http::{HttpCapability, Limits},
};
use serde_json::json;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::outside::{
    issuer::{self, CANARY, Issuer},
    kit::{FakeResolver, Kit, LOCAL, header, policy},
    server::{Reaction, Seen, Server, answer, ok},
};

const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";

/// A server of one stream, whose pieces the test sends.
async fn relay() -> (Server, UnboundedSender<Vec<u8>>) {
    let (sender, receiver) = unbounded_channel();
    let receiver = Mutex::new(Some(receiver));
    let react = move |_: &Seen| receiver.lock().unwrap().take().map_or_else(|| ok("another"), Reaction::Relay);
    let server = Server::start(react).await;
    sender.send(HEAD.to_vec()).unwrap();
    (server, sender)
}

/// A server that sends these bytes, and closes the connection.
async fn sending(bytes: Vec<u8>) -> Server {
    Server::start(move |_| Reaction::SendAndClose(bytes.clone())).await
}

/// An open stream, as the sandbox keeps it.
struct Stream<'a> {
    kit: &'a Kit,
    id: String,
    once: bool,
    offset: u64,
}

async fn open<'a>(kit: &'a Kit, url: &str) -> Result<Stream<'a>, Failure> {
    open_with(kit, json!({ "method": "GET", "url": url })).await
}

async fn open_with(kit: &Kit, args: serde_json::Value) -> Result<Stream<'_>, Failure> {
    let reply = kit.call("open-stream", args).await?;
    assert_eq!(reply.json().get("status").and_then(Json::as_u64), Some(200), "{reply}");
    let id = reply.json().get("stream").and_then(Json::as_str).unwrap().to_owned();
    Ok(Stream { kit, id, once: reply.json().get("once").is_some(), offset: 0 })
}

impl Stream<'_> {
    fn args(&self) -> serde_json::Value {
        match self.once {
            true => json!({ "stream": self.id, "offset": self.offset, "once": true }),
            false => json!({ "stream": self.id, "offset": self.offset }),
        }
    }

    /// Returns the reply of the next read.
    async fn reply(&mut self) -> Result<Value, Failure> {
        let reply = self.kit.call("read-stream", self.args()).await?;
        assert_eq!(reply.json().get("offset").and_then(Json::as_u64), Some(self.offset), "{reply}");
        self.offset += reply.json().get("size").and_then(Json::as_u64).unwrap_or(0);
        Ok(reply)
    }

    /// Returns the text of the next chunk, and `None` at the end.
    async fn text(&mut self) -> Result<Option<String>, Failure> {
        let reply = self.reply().await?;
        let text = reply.json().get("text").and_then(Json::as_str).map(str::to_owned);
        assert_eq!(text.is_none(), reply.json().get("end") == Some(&Json::Bool(true)), "{reply}");
        Ok(text)
    }

    /// Reads to the end.
    async fn rest(&mut self) -> Result<String, Failure> {
        let mut rest = String::new();
        while let Some(text) = self.text().await? {
            rest.push_str(&text);
        }
        Ok(rest)
    }

    async fn failure(&mut self) -> Failure {
        self.reply().await.unwrap_err()
    }
}

fn told(failure: &Failure) -> (&str, bool, u64) {
    let received = failure.details.as_ref().and_then(|details| details.get("received")).and_then(Json::as_u64);
    (failure.code.as_str(), failure.retryable, received.unwrap())
}

#[tokio::test]
async fn a_slow_answer_is_read_while_it_arrives() {
    let (server, sender) = relay().await;
    let kit = Kit::local(&server.url(""));
    let mut stream = open(&kit, &server.url("/")).await.unwrap();
    assert_eq!(server.seen()[0].header("accept-encoding"), Some("identity"));
    sender.send(b"data: a\n".to_vec()).unwrap();
    let reply = stream.reply().await.unwrap();
    let sha256 = "46f9fd1d5add758218759c89347c405e84c9e6b41b72f300cb6d3b342996ff30";
    let expected = format!(r#"{{"offset":0,"size":8,"sha256":"{sha256}","text":"data: a\n"}}"#);
    assert_eq!(reply.text(), expected);
    // A character may be cut by the network. Its parts are recorded as they came.
    sender.send("ü".as_bytes()[..1].to_vec()).unwrap();
    assert_eq!(stream.reply().await.unwrap().json().get("hex").and_then(Json::as_str), Some("c3"));
    sender.send("ü".as_bytes()[1..].to_vec()).unwrap();
    assert_eq!(stream.reply().await.unwrap().json().get("hex").and_then(Json::as_str), Some("bc"));
    drop(sender);
    assert_eq!((stream.text().await.unwrap(), stream.offset), (None, 10));
}

#[tokio::test]
async fn chunks_are_bounded_and_large_ones_are_files() {
    let body: Vec<u8> = (0..200_000u32).map(|at| (at % 251) as u8).collect();
    let server = sending(answer("200 OK", &[], &body)).await;
    let kit = Kit::local(&server.url(""));
    let mut stream = open(&kit, &server.url("/")).await.unwrap();
    let (mut received, mut files) = (Vec::new(), 0);
    loop {
        let reply = stream.reply().await.unwrap();
        if let Some(hex) = reply.json().get("hex").and_then(Json::as_str) {
            let pairs = (0..hex.len()).step_by(2);
            received.extend(pairs.map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()));
            continue;
        }
        let Some(file) = reply.json().get("file") else { break };
        let size = reply.json().get("size").and_then(Json::as_u64).unwrap();
        assert!(size > 16 << 10 && size <= 64 << 10, "{reply}");
        let body = Value::from(Json::object([("body", Json::object([("file", file.clone())]))]));
        received.extend_from_slice(&kit.file(&body).0);
        files += 1;
    }
    assert!(received == body && files > 0);
}

#[tokio::test]
async fn an_endless_answer_ends_at_its_limit_and_is_not_read_ahead() {
    let server = Server::start(|_| Reaction::SendForEver([HEAD.to_vec(), vec![b'x'; 1 << 20]].concat())).await;
    let limits = Limits { stream_bytes: 64 << 20, ..Limits::default() };
    let kit = Kit::local(&server.url("")).with_limits(limits);
    let mut stream = open(&kit, &server.url("/")).await.unwrap();
    for _ in 0..4 {
        stream.reply().await.unwrap();
        tokio::task::yield_now().await;
    }
    // What the node has not read is in the buffers of the two sockets, if anywhere.
    assert!(server.repeated() <= 32 << 20, "{}", server.repeated());
    let failure = loop {
        if let Err(failure) = stream.reply().await {
            break failure;
        }
    };
    assert!(
        failure.code == "http_body_too_large"
            && failure.message.contains("67108864 bytes (64 MiB), the limit of an answer in chunks"),
        "{failure}"
    );
    assert_eq!(stream.failure().await.code, "stream_interrupted");
    // An answer that announces too much is not begun.
    let server = sending(b"HTTP/1.1 200 OK\r\ncontent-length: 67108865\r\n\r\n".to_vec()).await;
    let failure = open(&Kit::local(&server.url("")), &server.url("/")).await.err().unwrap();
    assert!(
        failure.code == "http_body_too_large"
            && failure.message.contains("67108864 bytes (64 MiB), the limit of an answer in chunks"),
        "{failure}"
    );
}

#[tokio::test]
async fn the_number_of_chunks_is_bounded() {
    let (server, sender) = relay().await;
    let kit = Kit::local(&server.url("")).with_limits(Limits { stream_chunks: 2, ..Limits::default() });
    let mut stream = open(&kit, &server.url("/")).await.unwrap();
    for _ in 0..2 {
        sender.send(b"x".to_vec()).unwrap();
        assert_eq!(stream.text().await.unwrap().as_deref(), Some("x"));
    }
    sender.send(b"x".to_vec()).unwrap();
    let failure = stream.failure().await;
    assert!(failure.code == "limit_exceeded" && failure.message.contains("at most 2 chunks"), "{failure}");
}

#[tokio::test]
async fn a_connection_that_breaks_off_is_an_interruption() {
    let chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n5\r\nwo".to_vec();
    for (sent, received) in [(answer("200 OK", &[], b"hello")[..40].to_vec(), 2), (chunked, 7)] {
        let server = sending(sent).await;
        let kit = Kit::local(&server.url(""));
        let mut stream = open(&kit, &server.url("/")).await.unwrap();
        let failure = stream.rest().await.unwrap_err();
        assert_eq!(told(&failure), ("stream_interrupted", true, received), "{failure}");
        assert_eq!(server.seen().len(), 1, "nothing is requested again");
    }
    // A request that must not be repeated is not worth a retry.
    let server = sending(answer("200 OK", &[], b"hello")[..40].to_vec()).await;
    let kit = Kit::local(&server.url("")).once();
    let mut stream = open_with(&kit, json!({ "method": "POST", "url": server.url("/") })).await.unwrap();
    let failure = stream.rest().await.unwrap_err();
    assert_eq!(told(&failure), ("stream_interrupted", false, 2), "{failure}");
    let lost = stream.failure().await;
    assert!(!lost.retryable && lost.message.contains("may have taken effect"), "{lost}");
}

#[tokio::test]
async fn silence_and_length_are_bounded_in_time() {
    let (server, sender) = relay().await;
    let kit = Kit::local(&server.url(""));
    let args = json!({ "method": "GET", "url": server.url("/"), "idleMs": 20 });
    let mut stream = open_with(&kit, args).await.unwrap();
    let failure = stream.failure().await;
    assert_eq!(told(&failure), ("http_timeout", true, 0), "{failure}");
    assert!(failure.message.contains("nothing for 20 ms"), "{failure}");
    drop(sender);
    let (server, _sender) = relay().await;
    let kit = Kit::local(&server.url(""));
    let args = json!({ "method": "GET", "url": server.url("/"), "totalMs": 20 });
    let mut stream = open_with(&kit, args).await.unwrap();
    let failure = stream.failure().await;
    assert!(failure.code == "http_timeout" && failure.message.contains("longer than 20 ms"), "{failure}");
    for wrong in [json!(0), json!(-1), json!("1")] {
        let args = json!({ "method": "GET", "url": server.url("/"), "idleMs": wrong });
        assert_eq!(kit.call("open-stream", args).await.unwrap_err().code, "invalid_input");
    }
    let args = json!({ "method": "GET", "url": server.url("/"), "idleMs": 1 });
    assert_eq!(kit.call("send", args).await.unwrap_err().code, "invalid_input");
}

#[tokio::test]
async fn a_stream_whose_connection_is_gone_is_interrupted_and_not_read_again() {
    let (server, sender) = relay().await;
    let kit = Kit::local(&server.url(""));
    let mut stream = open(&kit, &server.url("/")).await.unwrap();
    sender.send(b"abc".to_vec()).unwrap();
    assert_eq!(stream.text().await.unwrap().as_deref(), Some("abc"));
    // Another process has no connections of this one.
    let after = Kit::local(&server.url(""));
    let mut lost = Stream { kit: &after, id: stream.id.clone(), once: false, offset: 3 };
    assert_eq!(told(&lost.failure().await), ("stream_interrupted", true, 3));
    // Neither another tenant nor another run has the stream.
    let mut other = Kit { http: kit.http.clone(), ..Kit::local(&server.url("")) };
    other.caller.tenant = Tenant::from("other");
    assert_eq!(Stream { kit: &other, ..lost }.failure().await.code, "stream_interrupted");
    other.caller.tenant = Tenant::local();
    other.caller.run_id = "r2".into();
    let mut lost = Stream { kit: &other, id: stream.id.clone(), once: false, offset: 3 };
    assert_eq!(lost.failure().await.code, "stream_interrupted");
    kit.call("close-stream", json!({ "stream": "unknown", "offset": 0 })).await.unwrap();
    // A chunk that was read and got lost is not skipped.
    sender.send(b"def".to_vec()).unwrap();
    stream.text().await.unwrap();
    stream.offset = 3;
    assert_eq!(told(&stream.failure().await), ("stream_interrupted", true, 3));
    for wrong in [json!({}), json!({ "stream": 1, "offset": 0 }), json!({ "stream": "x".repeat(65), "offset": 0 })] {
        assert_eq!(kit.call("read-stream", wrong).await.unwrap_err().code, "invalid_input");
    }
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test]
async fn two_streams_are_read_at_the_same_time() {
    let ((one, sender), (two, other)) = (relay().await, relay().await);
    let mut kit = Kit::local(&one.url(""));
    let origins = [one.url(""), two.url("")].map(Json::from);
    let grants = [("http".to_owned(), Json::array(origins))];
    kit.caller.grants = Arc::new(flowcell_contract::Grants(grants.into_iter().collect()));
    let mut first = open(&kit, &one.url("/")).await.unwrap();
    let mut second = open(&kit, &two.url("/")).await.unwrap();
    other.send(b"b".to_vec()).unwrap();
    assert_eq!(second.text().await.unwrap().as_deref(), Some("b"));
    let waits = first.text();
    let sends = async {
        sender.send(b"a".to_vec()).unwrap();
        drop(other);
        second.text().await
    };
    let (read, ended) = tokio::join!(waits, sends);
    assert_eq!((read.unwrap().as_deref(), ended.unwrap()), (Some("a"), None));
}

#[tokio::test]
async fn a_compressed_answer_is_refused_unless_the_node_asks_for_it() {
    let packed = [b"\x1f\x8b\x08".as_slice(), &[0; 40]].concat();
    let server = sending(answer("200 OK", &[("content-encoding", "gzip")], &packed)).await;
    let kit = Kit::local(&server.url(""));
    let failure = open(&kit, &server.url("/")).await.err().unwrap();
    assert!(failure.code == "http_protocol" && failure.message.contains("requested no encoding"), "{failure}");
    let headers = json!([["accept-encoding", "gzip"]]);
    let args = json!({ "method": "GET", "url": server.url("/"), "headers": headers });
    let mut stream = open_with(&kit, args).await.unwrap();
    let reply = stream.reply().await.unwrap();
    assert_eq!(reply.json().get("size").and_then(Json::as_u64), Some(43), "it is not unpacked: {reply}");
}

#[tokio::test]
async fn the_guard_the_grants_and_redirects_are_those_of_other_requests() {
    let server = sending(answer("200 OK", &[], b"")).await;
    let denied = open(&Kit::local("https://elsewhere.example"), &server.url("/")).await.err().unwrap();
    assert_eq!(denied.code, "denied");
    let private = Kit::new(policy(&[]), FakeResolver::new(&[]), &server.url(""));
    assert_eq!(open(&private, &server.url("/")).await.err().unwrap().code, "denied");
    assert_eq!(server.connections(), 0);
    let moved = sending(answer("302 Found", &[("location", "http://127.0.0.1/")], b"")).await;
    let kit = Kit::local(&moved.url(""));
    let reply = kit.call("open-stream", json!({ "method": "GET", "url": moved.url("/") })).await.unwrap();
    assert_eq!(header(&reply, "location"), ["http://127.0.0.1/"]);
    assert_eq!(moved.seen().len(), 1);
}

/// Returns a kit that sends a server one request at a time.
fn one_at_a_time(server: &Server) -> Kit {
    let outbound = Outbound::default();
    outbound.set_default_limits(OutboundLimits { max_concurrency: Some(1), ..OutboundLimits::default() });
    let egress = Egress::new(policy(&[LOCAL])).unwrap().with_outbound(outbound);
    let kit = Kit::local(&server.url(""));
    Kit { http: HttpCapability::new(Client::new(egress), kit.blobs.clone()), ..kit }
}

#[tokio::test]
async fn a_stream_counts_for_its_origin_until_it_is_closed() {
    let server = Server::start(|_| Reaction::SendAndHang(HEAD.to_vec())).await;
    let kit = one_at_a_time(&server);
    let stream = open(&kit, &server.url("/")).await.unwrap();
    let url = server.url("/");
    let mut waits = Box::pin(open(&kit, &url));
    assert!(futures_util::poll!(&mut waits).is_pending());
    kit.call("close-stream", stream.args()).await.unwrap();
    waits.await.unwrap();
}

#[tokio::test]
async fn a_stream_that_no_node_reads_is_closed_at_the_end_of_its_time() {
    let server = Server::start(|_| Reaction::SendAndHang(HEAD.to_vec())).await;
    let kit = one_at_a_time(&server);
    let url = server.url("/");
    let mut stream = open_with(&kit, json!({ "method": "GET", "url": url, "totalMs": 20 })).await.unwrap();
    // The place of the first stream is free when its connection is closed.
    let _second = open(&kit, &url).await.unwrap();
    let failure = stream.failure().await;
    assert_eq!(told(&failure), ("http_timeout", true, 0), "{failure}");
    assert!(failure.message.contains("longer than 20 ms"), "{failure}");
    assert_eq!(stream.failure().await.code, "stream_interrupted", "the failure is told once");
}

#[tokio::test]
async fn the_streams_of_a_tenant_are_bounded_and_end_with_their_attempt() {
    let server = Server::start(|_| Reaction::SendAndHang(HEAD.to_vec())).await;
    let ends: Arc<Mutex<Vec<EndAction>>> = Arc::default();
    let registered = ends.clone();
    let attempt_end = AttemptEnd::new(move |action| {
        registered.lock().unwrap().push(action);
        EndRegistration::default()
    });
    let kit = Kit::local(&server.url("")).with_limits(Limits { streams: 2, ..Limits::default() });
    let kit = Kit { attempt_end, ..kit };
    let mut first = open(&kit, &server.url("/")).await.unwrap();
    let second = open(&kit, &server.url("/")).await.unwrap();
    let failure = open(&kit, &server.url("/")).await.err().unwrap();
    assert_eq!((failure.code.as_str(), failure.retryable), ("limit_exceeded", true), "{failure}");
    assert!(failure.message.contains("2 open streams") && server.seen().len() == 2, "{failure}");
    kit.call("close-stream", second.args()).await.unwrap();
    let _third = open(&kit, &server.url("/")).await.unwrap();
    for end in std::mem::take(&mut *ends.lock().unwrap()) {
        end();
    }
    assert_eq!(first.failure().await.code, "stream_interrupted");
    for _ in 0..2 {
        open(&kit, &server.url("/")).await.unwrap();
    }
}

#[tokio::test]
async fn a_read_has_the_weakest_external_effect_and_shows_no_secret() {
    let mut kit = Kit::local("https://a.example");
    kit.caller.effect = Effect::Once;
    let call = |function: &str, args: serde_json::Value| flowcell_contract::Call {
        function: function.into(),
        ..crate::outside::kit::call(args)
    };
    let admission = kit.http.admit(&call("read-stream", json!({ "stream": "s", "offset": 4 })), &kit.caller).unwrap();
    assert_eq!(admission.effect, Effect::Idempotent);
    assert_eq!(admission.about.to_text(), r#"{"stream":"s","offset":4}"#);
    let post = json!({ "method": "POST", "url": "https://a.example/x?token=1" });
    let admission = kit.http.admit(&call("open-stream", post), &kit.caller).unwrap();
    assert_eq!(admission.effect, Effect::Once);
    assert!(!admission.about.to_text().contains("token"));
}

#[tokio::test]
async fn n24_secrets_are_redacted_across_chunks_whose_ends_do_not_show_a_part_of_one() {
    let (server, sender) = relay().await;
    let kit = issuer::kit(Arc::new(issuer::bearer(&server.url(""))), &[server.url("")], &[("shop", &[])]);
    let mut stream = open(&kit, &server.url("/")).await.unwrap();
    let sent = server.seen()[0].header("authorization").map(str::to_owned);
    assert_eq!(sent, Some(format!("Bearer {CANARY}")));
    let (head, tail) = CANARY.split_at(9);
    sender.send(format!("data: first\ndata: grüße {head}").into_bytes()).unwrap();
    assert_eq!(stream.text().await.unwrap().as_deref(), Some("data: first\n"));
    sender.send(format!("{tail} ü\n\n").into_bytes()).unwrap();
    assert_eq!(stream.text().await.unwrap().as_deref(), Some("data: grüße [key] ü\n\n"));
    // A whole event is not held back.
    sender.send(b"data: next\n\n".to_vec()).unwrap();
    assert_eq!(stream.text().await.unwrap().as_deref(), Some("data: next\n\n"));
    // Where chunks end does not show whether a text, which the node may have chosen, begins as the secret does.
    for guess in [head, "something else"] {
        sender.send(format!("one\n{guess}").into_bytes()).unwrap();
        assert_eq!(stream.text().await.unwrap().as_deref(), Some("one\n"), "{guess}");
        sender.send(b"\n".to_vec()).unwrap();
        assert_eq!(stream.text().await.unwrap(), Some(format!("{guess}\n")));
    }
    sender.send(head.as_bytes().to_vec()).unwrap();
    drop(sender);
    assert_eq!(stream.rest().await.unwrap(), head, "a part of a secret at the end is no secret");
}

#[tokio::test]
async fn an_answer_that_cannot_be_searched_for_secrets_is_refused() {
    for bytes in [b"a\xffb".as_slice(), b"a\xc3"] {
        let server = sending([HEAD, bytes].concat()).await;
        let store = Arc::new(issuer::bearer(&server.url("")));
        let kit = issuer::kit(store, &[server.url("")], &[("shop", &[])]);
        let failure = open(&kit, &server.url("/")).await.unwrap().rest().await.unwrap_err();
        assert!(failure.code == "http_protocol" && failure.message.contains("UTF-8"), "{failure}");
    }
}

#[tokio::test]
async fn a_refused_token_is_renewed_before_the_stream_begins() {
    let issuer = Issuer::start().await;
    let store = Arc::new(issuer.store("client_credentials"));
    let kit = issuer::kit(store.clone(), &[issuer.origin()], &[("drive", &[])]);
    let url = issuer.server.url("/file");
    for _ in 0..2 {
        let mut stream = open(&kit, &url).await.unwrap();
        assert_eq!(stream.rest().await.unwrap(), "echo Bearer [key]");
        issuer.revoke();
        store.pass_pause();
    }
}
