//! Servers at addresses: the guard, sessions, keys, and statuses.

use flowcell_mcpfake::{Plan, http::Fake};
use serde_json::json;

use crate::mcp::kit::{CANARY, Kit, at};

#[tokio::test]
async fn private_addresses_must_be_listed() {
    let fake = Fake::start(Plan::default()).await.unwrap();
    let mut server = at(&fake);
    server["allowPrivate"] = json!([]);
    let kit = Kit::of(&json!({ "it": server }));
    let failure = kit.call("it", "echo", json!({})).await.unwrap_err();
    assert_eq!((failure.code.as_str(), failure.retryable), ("denied", false), "{failure}");
}

#[tokio::test]
async fn a_refused_connection_is_retryable() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let server = json!({ "url": format!("http://{free}/mcp"), "allowPrivate": ["127.0.0.1"] });
    let kit = Kit::of(&json!({ "it": server }));
    let failure = kit.call("it", "echo", json!({})).await.unwrap_err();
    assert_eq!((failure.code.as_str(), failure.retryable), ("mcp_connect", true), "{failure}");
}

#[tokio::test]
async fn an_expired_session_is_replaced() {
    let fake = Fake::start(Plan::default()).await.unwrap();
    let kit = Kit::of(&json!({ "it": at(&fake) }));
    for _ in 0..3 {
        assert_eq!(kit.call("it", "echo", json!({ "text": "a" })).await.unwrap(), json!("a"));
        fake.drop_session();
    }
    assert_eq!(fake.refused(), Vec::<String>::new());
}

#[tokio::test]
async fn keys_are_sent_in_headers() {
    let expecting = |authorization: &str| Plan { authorization: Some(authorization.into()), ..Plan::default() };
    let fake = Fake::start(expecting(&format!("Bearer {CANARY}"))).await.unwrap();
    let kit = Kit::of(&json!({ "it": at(&fake) }));
    assert_eq!(kit.call("it", "echo", json!({ "text": "a" })).await.unwrap(), json!("a"));
    let fake = Fake::start(expecting("Bearer another")).await.unwrap();
    let kit = Kit::of(&json!({ "it": at(&fake) }));
    let failure = kit.call("it", "echo", json!({})).await.unwrap_err();
    assert_eq!((failure.code.as_str(), failure.retryable), ("mcp_auth", false), "{failure}");
}

#[tokio::test]
async fn statuses_decide_if_a_failure_is_retryable() {
    for (status, code, retryable) in
        [(503, "mcp_unavailable", true), (429, "mcp_unavailable", true), (418, "mcp_protocol", false)]
    {
        let fake = Fake::start(Plan { status: Some(status), ..Plan::default() }).await.unwrap();
        let kit = Kit::of(&json!({ "it": at(&fake) }));
        let failure = kit.call("it", "echo", json!({})).await.unwrap_err();
        assert_eq!((failure.code.as_str(), failure.retryable), (code, retryable), "{status}: {failure}");
        assert!(failure.message.contains(&status.to_string()), "{failure}");
    }
}
