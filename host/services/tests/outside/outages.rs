//! Circuit breakers of the capability `http`, against a real server that goes down and comes back. The time of the
//! breakers belongs to the test.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use flowcell_contract::{Failure, Json, Tenant, Value};
use flowcell_services::{
    client::Client,
    egress::{Egress, OnRefusal, Outbound, OutboundClock, OutboundLimits},
    http::HttpCapability,
};
use futures_util::future::BoxFuture;
use serde_json::json;
use tokio::time::Instant;

use super::{
    kit::{FakeResolver, Kit, LOCAL, policy},
    server::{Reaction, Server, answer, ok},
};

/// A time that the test sets. Short waits take it forward and end at once. Waits for a turn never end.
struct TestClock(Mutex<Instant>);

impl TestClock {
    fn new() -> Arc<TestClock> {
        Arc::new(TestClock(Mutex::new(Instant::now())))
    }

    fn advance(&self, by: Duration) {
        *self.0.lock().unwrap() += by;
    }
}

impl OutboundClock for TestClock {
    fn now(&self) -> Instant {
        *self.0.lock().unwrap()
    }

    fn sleep(&self, how_long: Duration) -> BoxFuture<'static, ()> {
        if how_long >= Duration::from_secs(10) {
            return Box::pin(std::future::pending());
        }
        self.advance(how_long);
        Box::pin(std::future::ready(()))
    }

    fn random(&self) -> f64 {
        0.5
    }
}

/// Returns a kit whose guard has these breakers.
fn kit(outbound: &Outbound, grant: &str) -> Kit {
    let kit = Kit::local(grant);
    let egress = Egress::new(policy(&[LOCAL])).unwrap().with_resolver(FakeResolver::new(&[]));
    let http = HttpCapability::new(Client::new(egress.with_outbound(outbound.clone())), kit.blobs.clone());
    Kit { http, ..kit }
}

fn for_tenant(kit: Kit, tenant: &str) -> Kit {
    let caller = flowcell_contract::Caller { tenant: Tenant::from(tenant), ..kit.caller.clone() };
    Kit { caller, ..kit }
}

/// A server that answers 503 while the switch is on.
async fn server() -> (Server, Arc<AtomicBool>) {
    let is_down = Arc::new(AtomicBool::new(true));
    let switch = is_down.clone();
    let server = Server::start(move |_| match switch.load(Ordering::SeqCst) {
        true => Reaction::Send(answer("503 Service Unavailable", &[], b"")),
        false => ok("fine"),
    });
    (server.await, is_down)
}

async fn status(kit: &Kit, url: &str) -> Result<u64, Failure> {
    let reply = kit.get(url).await?;
    Ok(reply.json().get("status").and_then(Json::as_u64).unwrap())
}

#[tokio::test]
async fn streams_open_the_circuit_breaker_and_are_refused_by_it() {
    let (server, is_down) = server().await;
    let clock = TestClock::new();
    let outbound = Outbound::new(clock.clone(), None);
    let own = kit(&outbound, &server.url(""));
    let open = || own.call("open-stream", json!({ "method": "GET", "url": server.url("/") }));
    let status = |reply: &Value| reply.json().get("status").and_then(Json::as_u64);
    for _ in 0..10 {
        assert_eq!(status(&open().await.unwrap()), Some(503));
    }
    let refused = open().await.unwrap_err();
    assert_eq!((refused.code.as_str(), refused.retryable, server.seen().len()), ("circuit_open", true, 10));
    is_down.store(false, Ordering::SeqCst);
    clock.advance(Duration::from_secs(5));
    assert_eq!(status(&open().await.unwrap()), Some(200));
}

#[tokio::test]
async fn r29_a_server_that_is_down_is_left_alone_until_it_answers() {
    let (server, is_down) = server().await;
    let (clock, refusals) = (TestClock::new(), Arc::new(Mutex::new(Vec::new())));
    let seen = refusals.clone();
    let on_refusal: OnRefusal = Arc::new(move |tenant, code| seen.lock().unwrap().push((tenant.clone(), code)));
    let outbound = Outbound::new(clock.clone(), Some(on_refusal));
    let (url, origin) = (server.url("/orders?token=hidden"), server.url(""));
    let own = kit(&outbound, &origin);
    for _ in 0..10 {
        assert_eq!(status(&own, &url).await.unwrap(), 503);
    }
    for _ in 0..5 {
        let refused = status(&own, &url).await.unwrap_err();
        assert_eq!((refused.code.as_str(), refused.retryable), ("circuit_open", true));
        assert!(refused.message.contains(&origin) && !refused.message.contains("orders"), "{refused}");
        let told = refused.details.as_ref().unwrap();
        assert_eq!(told.get("origin").and_then(Json::as_str), Some(&*origin));
        assert!(!told.to_text().contains("hidden"), "{told:?}");
        assert!((1_000..60_000).contains(&refused.retry_after_ms.unwrap()), "{refused:?}");
    }
    // A call of effect `once` is not ambiguous, because nothing was sent.
    let once = kit(&outbound, &origin).once();
    let refused = once.send(json!({ "method": "POST", "url": url, "body": { "text": "x" } })).await.unwrap_err();
    assert_eq!(refused.code, "circuit_open");
    assert_eq!(*refusals.lock().unwrap(), vec![(Tenant::local(), "circuit_open"); 6]);
    assert_eq!((server.seen().len(), outbound.open_breakers()), (10, vec![(Tenant::local(), 1)]));

    // The wait is over, and the server is still down: one request finds that out.
    clock.advance(Duration::from_secs(2));
    assert_eq!(status(&own, &url).await.unwrap(), 503);
    status(&own, &url).await.unwrap_err();
    assert_eq!(server.seen().len(), 11);

    is_down.store(false, Ordering::SeqCst);
    clock.advance(Duration::from_secs(1));
    status(&own, &url).await.unwrap_err();
    clock.advance(Duration::from_secs(2));
    for _ in 0..30 {
        assert_eq!(status(&own, &url).await.unwrap(), 200);
    }
    assert_eq!((server.seen().len(), outbound.open_breakers()), (41, vec![]));
    clock.advance(Duration::from_secs(10));
    assert_eq!(status(&own, &url).await.unwrap(), 200);
    assert_eq!(outbound.tracked(), 0);
}

#[tokio::test]
async fn missing_servers_and_silent_ones_open_the_breaker() {
    let outbound = Outbound::new(TestClock::new(), None);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let nowhere = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let own = kit(&outbound, &nowhere);
    for _ in 0..10 {
        assert_eq!(status(&own, &nowhere).await.unwrap_err().code, "http_connect");
    }
    assert_eq!(status(&own, &nowhere).await.unwrap_err().code, "circuit_open");

    let silent = Server::start(|_| Reaction::SendAndHang(Vec::new())).await;
    let own = kit(&outbound, &silent.url(""));
    let ask = async || own.send(json!({ "method": "GET", "url": silent.url("/"), "timeoutMs": 5 })).await.unwrap_err();
    let first = ask().await;
    assert_eq!((first.code.as_str(), first.message.as_str()), ("http_timeout", "the call took longer than 5 ms"));
    for _ in 1..10 {
        assert_eq!(ask().await.code, "http_timeout");
    }
    assert_eq!(ask().await.code, "circuit_open");
}

#[tokio::test]
async fn answers_and_denials_open_nothing() {
    let outbound = Outbound::new(TestClock::new(), None);
    for status_line in ["200 OK", "404 Not Found", "429 Too Many Requests", "500 Internal Server Error"] {
        let server = Server::start(move |_| Reaction::Send(answer(status_line, &[("retry-after", "9")], b""))).await;
        let own = kit(&outbound, &server.url(""));
        for _ in 0..30 {
            status(&own, &server.url("/")).await.unwrap();
        }
    }
    let own = kit(&outbound, "http://10.0.0.1");
    for _ in 0..30 {
        assert_eq!(status(&own, "http://10.0.0.1/").await.unwrap_err().code, "denied");
    }
    assert_eq!(outbound.tracked(), 0);
}

#[tokio::test]
async fn two_tenants_at_one_origin_are_independent() {
    let (server, is_down) = server().await;
    let outbound = Outbound::new(TestClock::new(), None);
    let [a, b] = ["a", "b"].map(|tenant| for_tenant(kit(&outbound, &server.url("")), tenant));
    for _ in 0..10 {
        status(&a, &server.url("/")).await.unwrap();
    }
    status(&a, &server.url("/")).await.unwrap_err();
    is_down.store(false, Ordering::SeqCst);
    assert_eq!(status(&b, &server.url("/")).await.unwrap(), 200);
    status(&a, &server.url("/")).await.unwrap_err();
    assert_eq!(outbound.open_breakers(), [(Tenant::from("a"), 1)]);
}

#[tokio::test]
async fn the_operators_limits_hold_for_real_requests() {
    let (server, is_down) = server().await;
    is_down.store(false, Ordering::SeqCst);
    let clock = TestClock::new();
    let outbound = Outbound::new(clock.clone(), None);
    let limits = OutboundLimits { per_second: Some(0.05), burst: Some(2), max_concurrency: Some(1), breaker: None };
    outbound.set_limits(&Tenant::local(), Some(limits));
    let own = kit(&outbound, &server.url(""));
    for _ in 0..2 {
        // The place of the first request is free again after its body.
        assert_eq!(status(&own, &server.url("/")).await.unwrap(), 200);
    }
    let refused = kit(&outbound, &server.url("")).once();
    let refused = refused.send(json!({ "method": "POST", "url": server.url("/") })).await.unwrap_err();
    assert_eq!((refused.code.as_str(), refused.retryable), ("rate_limited", true));
    assert!(refused.retry_after_ms.is_some_and(|after| (20_000..=60_000).contains(&after)), "{refused:?}");
    assert_eq!(server.seen().len(), 2);
    clock.advance(Duration::from_secs(20));
    assert_eq!(status(&own, &server.url("/")).await.unwrap(), 200);
}
