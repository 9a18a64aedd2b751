//! When the client reuses a connection, and when it opens a new one.

use std::time::Duration;

use flowcell_contract::Tenant;
use serde_json::json;

use crate::outside::{
    kit::{Kit, text},
    server::{Reaction, Server, answer, ok},
};

#[tokio::test]
async fn a_connection_is_reused_only_by_the_same_tenant() {
    let server = Server::start(|_| ok("hello")).await;
    let mut kit = Kit::local(&server.url(""));
    for _ in 0..3 {
        kit.get(&server.url("/")).await.unwrap();
    }
    assert_eq!(server.connections(), 1);
    kit.caller.tenant = Tenant::from("other");
    kit.get(&server.url("/")).await.unwrap();
    assert_eq!(server.connections(), 2);
}

#[test]
fn a_connection_is_reused_only_on_the_runtime_that_drives_it() {
    let serving = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let server = serving.block_on(Server::start(|_| ok("hello")));
    let kit = serving.block_on(async { Kit::local(&server.url("")) });
    let [first, second] = [(); 2].map(|()| tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap());
    for (runtime, connections) in [(&first, 1), (&second, 2), (&first, 2), (&second, 2)] {
        runtime.block_on(kit.get(&server.url("/"))).unwrap();
        assert_eq!(server.connections(), connections);
    }
    // Otherwise the end of a runtime would break a request that waits on another one.
    drop(first);
    second.block_on(kit.get(&server.url("/"))).unwrap();
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn grants_are_checked_at_each_call_despite_open_connections() {
    let server = Server::start(|_| ok("hello")).await;
    let mut kit = Kit::local(&server.url("/open"));
    kit.get(&server.url("/open/a")).await.unwrap();
    assert_eq!(kit.get(&server.url("/closed")).await.unwrap_err().code, "denied");
    let other = Kit::local("https://a.example");
    kit.caller = other.caller;
    assert_eq!(kit.get(&server.url("/open/a")).await.unwrap_err().code, "denied");
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test]
async fn a_call_of_effect_once_gets_a_new_connection() {
    let server = Server::start(|_| ok("hello")).await;
    let kit = Kit::local(&server.url("")).once();
    for _ in 0..2 {
        kit.send(json!({ "method": "POST", "url": server.url("/") })).await.unwrap();
    }
    let connections: Vec<_> = server.seen().iter().map(|seen| seen.connection).collect();
    assert_eq!(connections, [0, 1]);
}

#[tokio::test]
async fn a_closed_connection_is_not_reused() {
    let server =
        Server::start(|_| Reaction::SendAndClose(answer("200 OK", &[("content-type", "text/plain")], b"bye"))).await;
    let kit = Kit::local(&server.url(""));
    for _ in 0..20 {
        assert_eq!(text(&kit.get(&server.url("/")).await.unwrap()), "bye");
    }
}

#[tokio::test]
async fn an_idle_connection_is_closed_after_its_maximum_time() {
    let server = Server::start(|_| ok("hello")).await;
    let kit = Kit::local(&server.url(""));
    for (later, connections) in [(0, 1), (3_500, 1), (4_000, 2)] {
        // Only the waits are skipped, because a paused clock would run ahead of the network.
        tokio::time::pause();
        tokio::time::advance(Duration::from_millis(later)).await;
        tokio::time::resume();
        kit.get(&server.url("/")).await.unwrap();
        assert_eq!(server.connections(), connections);
    }
}

#[tokio::test]
async fn an_unfinished_body_closes_its_connection() {
    let long = answer("200 OK", &[], &[0; 100_000]);
    let server = Server::start(move |_| Reaction::Send(long.clone())).await;
    let limits = flowcell_services::http::Limits { answer_body: 10, file_body: 10, ..Default::default() };
    let kit = Kit::local(&server.url("")).with_limits(limits);
    for number in 1..4 {
        kit.get(&server.url("/")).await.unwrap_err();
        assert_eq!(server.connections(), number);
    }
}

#[tokio::test]
async fn concurrent_calls_get_their_own_answers() {
    let react = |seen: &crate::outside::server::Seen| ok(seen.line.split(' ').nth(1).unwrap());
    let server = Server::start(react).await;
    let kit = Kit::local(&server.url(""));
    for round in 0..3 {
        let paths: Vec<_> = (0..40).map(|number| format!("/{round}/{number}")).collect();
        let call = async |path| (path, kit.get(&server.url(path)).await.unwrap());
        let calls = paths.iter().map(|path: &String| call(path));
        for (path, reply) in futures_util::future::join_all(calls).await {
            assert_eq!(text(&reply), path);
        }
    }
    assert!(server.connections() <= 40, "{}", server.connections());
}

#[tokio::test]
async fn the_connection_that_was_idle_longest_makes_room() {
    let server = Server::start(|_| ok("hello")).await;
    let mut kit = Kit::local(&server.url(""));
    let mut opened_by = async |tenant: &str| {
        let before = server.connections();
        kit.caller.tenant = Tenant::from(tenant);
        let url = server.url("/");
        let calls = (0..64).map(|_| kit.get(&url));
        futures_util::future::join_all(calls).await.into_iter().for_each(|reply| _ = reply.unwrap());
        server.connections() - before
    };
    for tenant in ["a", "b", "c", "d", "e"] {
        assert_eq!(opened_by(tenant).await, 64);
    }
    assert_eq!(opened_by("e").await, 0);
    assert_eq!(opened_by("c").await, 0);
    assert_eq!(opened_by("a").await, 64, "those of `a` had made room for those of `e`");
}
