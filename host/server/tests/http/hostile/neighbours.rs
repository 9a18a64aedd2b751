//! Clients that share an address or a proxy with an attacker.

use std::io::{BufReader, Write};

use flowcell_platform::{Host, tenants::Tenants};
use flowcell_server::Limits;
use serde_json::Value;

use super::household::{Household, all_scopes};
use crate::client::{Served, ask, begin_body, connect_from, read, send};

/// Maximum number of unknown tokens from one address in a minute.
const MAX_UNKNOWN_TOKENS: usize = 100;
const HERE: &str = "127.0.0.1";
const THERE: &str = "127.0.0.2";

/// Sends a request with a token, as a proxy forwards it for the address `caller`. Returns the status of the response.
fn status(served: &Served, token: &str, caller: &str) -> u16 {
    let headers = [("Authorization", &*format!("Bearer {token}")), ("X-Forwarded-For", caller)];
    ask(served.address, "GET", "/v1/runs", &headers, "").status
}

#[test]
fn h18_a_valid_token_is_accepted_despite_unknown_tokens_of_others() {
    let house = Household::new(Limits::default());
    let guess = || house.call("fct_0123456789abcdef_guessed", "GET", "/v1/runs", &Value::Null);
    let valid = |token: &str| house.call(token, "GET", "/v1/runs", &Value::Null).status;
    assert_eq!(valid(&house.a), 200, "let in before the first failure");
    for _ in 0..MAX_UNKNOWN_TOKENS {
        assert_eq!(guess().status, 401);
    }
    let refused = guess();
    assert_eq!(refused.fault(), (429, "too_many_failures".into()));
    assert!(refused.header("retry-after").is_some(), "{refused:?}");
    assert_eq!(valid(&house.a), 200);
    assert_eq!(valid(&house.b), 200, "never shown before");
    let tokens = (0..100).map(|_| house.tenants.create_token("b", &all_scopes(), "", None).unwrap().token);
    for token in tokens {
        assert_eq!((valid(&token), guess().status), (200, 429));
    }
    house.canary();
}

/// Starts a server that trusts these proxies, and returns it with a token.
pub(super) fn behind(proxies: &[&str]) -> (Served, String) {
    let folder = tempfile::tempdir().unwrap();
    let cache = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache");
    let host = Host::builder().cache_dir(cache).instances(4).state_dir(folder.path()).build().unwrap();
    let tenants = Tenants::of(&host);
    tenants.create("a").unwrap();
    let token = tenants.create_token("a", &all_scopes(), "", None).unwrap().token;
    (Served::behind(proxies, host, folder, std::sync::Arc::new(tenants), Limits::default()), token)
}

#[test]
fn h18_callers_behind_a_trusted_proxy_are_limited_separately() {
    let (served, token) = behind(&["127.0.0.0/8"]);
    for _ in 0..MAX_UNKNOWN_TOKENS {
        assert_eq!(status(&served, "guessed", "203.0.113.1"), 401);
    }
    // An entry that the caller writes before the proxy's own entry does not count.
    assert_eq!(status(&served, "guessed", "198.51.100.7, 203.0.113.1"), 429);
    assert_eq!(status(&served, "guessed", "203.0.113.2"), 401);
    assert_eq!(status(&served, &token, "203.0.113.1"), 200);
}

#[test]
fn h18_an_untrusted_client_cannot_state_an_address() {
    let (served, token) = behind(&["10.0.0.0/8"]);
    for number in 0..MAX_UNKNOWN_TOKENS {
        assert_eq!(status(&served, "guessed", &format!("203.0.113.{number}")), 401);
    }
    assert_eq!(status(&served, "guessed", "198.51.100.1"), 429);
    assert_eq!(status(&served, &token, "198.51.100.1"), 200);
}

#[test]
fn h4_incomplete_heads_of_one_address_do_not_block_others() {
    let house = Household::new(Limits { connections: 64, ..Limits::default() });
    let address = house.served.address;
    let heads: Vec<_> = (0..200)
        .map(|_| {
            let mut stream = connect_from(HERE, address);
            stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: a\r\n").unwrap();
            stream
        })
        .collect();
    for from in [THERE, HERE] {
        let stream = connect_from(from, address);
        send(&stream, address, "GET", "/healthz", &[], "");
        assert_eq!(read(&mut BufReader::new(stream)).status, 200, "{from}");
    }
    house.canary();
    drop(heads);
}

#[test]
fn h4_busy_connections_of_one_address_leave_connections_to_others() {
    let house = Household::new(Limits { connections: 64, ..Limits::default() });
    let address = house.served.address;
    let token = format!("Authorization: Bearer {}\r\n", house.a);
    let busy: Vec<_> = (0..32).map(|_| begin_body(connect_from(HERE, address), address, &token)).collect();
    let refused = read(&mut BufReader::new(connect_from(HERE, address)));
    assert_eq!(
        refused.fault(),
        (503, "too_many_connections".into()),
        "an address has no more than it leaves to others"
    );
    let stream = connect_from(THERE, address);
    send(&stream, address, "GET", "/healthz", &[], "");
    assert_eq!(read(&mut BufReader::new(stream)).status, 200);
    drop(busy);
}
