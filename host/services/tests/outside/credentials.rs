//! Credentials on the wire: where they go, where they never go, and how their tokens are renewed.

use std::sync::{Arc, atomic::Ordering};

use flowcell_contract::{Json, Tenant};
use flowcell_services::{
    credentials::{CredentialStore as _, REFRESH_LEASE_MS, TokenState},
    secrets::Secrets,
};
use serde_json::{Value, json};

use crate::outside::{
    issuer::{CANARY, Issuer, Memory, bearer, kit},
    kit::{Kit, header, text},
    server::{Reaction, Server, answer, ok},
};

#[tokio::test]
async fn each_kind_goes_where_it_belongs_and_comes_back_from_nowhere() {
    let server = Server::start(|seen| {
        let all = format!("{} {:?} {}", seen.line, seen.headers, String::from_utf8_lossy(&seen.body));
        Reaction::Send(answer("200 OK", &[("content-type", "text/plain"), ("x-told", &all)], all.as_bytes()))
    })
    .await;
    let origin = server.url("");
    let (key, sent) = (|place: &str| json!({ "in": place, "key": "api_key" }), json!({ "a": 1 }).to_string());
    let cases: [(&str, Value, &str); 6] = [
        ("bearer", json!({}), "token"),
        ("basic", json!({}), "login"),
        ("apiKey", json!({ "in": "header", "key": "X-Api-Key", "prefix": "Key " }), "value"),
        ("apiKey", key("query"), "value"),
        ("apiKey", key("body"), "value"),
        ("hmac", json!({ "header": "x-signature", "message": "{method}{target}{body}" }), "secret"),
    ];
    for (kind, settings, name) in cases {
        let value = if kind == "basic" { format!("ada:{CANARY}") } else { CANARY.to_owned() };
        let store = Memory::default().with("shop", kind, settings, &[(name, &value)], &origin);
        let kit = kit(Arc::new(store), std::slice::from_ref(&origin), &[("shop", &[])]);
        let headers = json!([["content-type", "application/json"], ["accept-encoding", "br"]]);
        let args =
            json!({ "method": "POST", "url": server.url("/v1?q=1"), "headers": headers, "body": { "text": sent } });
        // Neither the record of the call nor its key has more than the name.
        let admission = kit.admit(args.clone()).unwrap();
        let about = admission.about.to_text();
        assert!(about.contains(r#""credentials":["shop"]"#) && !about.contains(CANARY), "{about}");
        assert!(!admission.preview.to_text().contains(CANARY));
        let reply = kit.send(args).await.unwrap();
        assert!(!reply.to_string().contains(CANARY), "{kind}: {reply}");
        assert!(text(&reply).contains("[key]") || kind == "hmac", "{kind}: {}", text(&reply));
        assert!(header(&reply, "x-told").iter().all(|told| !told.contains(CANARY)));
    }
    let seen = server.seen();
    assert_eq!(seen[0].header("authorization").unwrap(), format!("Bearer {CANARY}"));
    assert!(seen.iter().all(|seen| seen.header("accept-encoding") == Some("gzip")));
    assert!(seen[1].header("authorization").unwrap().starts_with("Basic YWRhOmthbmFyaWVu"));
    assert_eq!(seen[2].header("x-api-key").unwrap(), format!("Key {CANARY}"));
    assert_eq!(seen[3].line, format!("POST /v1?q=1&api_key={CANARY} HTTP/1.1"));
    assert_eq!(String::from_utf8_lossy(&seen[4].body), format!(r#"{{"a":1,"api_key":"{CANARY}"}}"#));
    assert_eq!(seen[5].header("x-signature").unwrap().len(), 64);
    assert!(seen[5].headers.iter().all(|(_, value)| !value.contains(CANARY)));
}

#[tokio::test]
async fn a_credential_goes_only_where_flow_manifest_and_operator_allow_it() {
    let (one, two) = (Server::start(|_| ok("")).await, Server::start(|_| ok("")).await);
    let (first, second) = (one.url(""), two.url(""));
    let grants = [first.clone(), second.clone()];
    // The credential is for the first server alone.
    let kit_of = |store: Memory, hosts: &[String]| kit(Arc::new(store), &grants, &[("shop", hosts)]);
    let own = kit_of(bearer(&first), &[]);
    own.get(&one.url("/a")).await.unwrap();
    own.get(&two.url("/a")).await.unwrap();
    // The manifest declares the second one alone.
    kit_of(bearer(&first), std::slice::from_ref(&second)).get(&one.url("/b")).await.unwrap();
    kit_of(bearer(&second), std::slice::from_ref(&second)).get(&two.url("/b")).await.unwrap();
    // A path of the credential narrows it.
    kit_of(bearer(&one.url("/v1")), &[]).get(&one.url("/v2")).await.unwrap();
    kit_of(bearer(&one.url("/v1")), &[]).get(&one.url("/v1/../v2")).await.unwrap();
    let sent = |server: &Server| -> Vec<bool> {
        server.seen().iter().map(|seen| seen.header("authorization").is_some()).collect()
    };
    assert_eq!((sent(&one), sent(&two)), (vec![true, false, false, false], vec![false, true]));
    // The flow does not grant the server, or names a user in the URL.
    let closed = kit(Arc::new(bearer(&first)), &[second], &[("shop", &[])]);
    assert_eq!(closed.get(&one.url("/")).await.unwrap_err().code, "denied");
    let user = one.url("/").replace("http://", "http://ada:pw@");
    assert_eq!(own.get(&user).await.unwrap_err().code, "denied");
    assert_eq!(one.seen().len(), 4);
}

#[tokio::test]
async fn a_redirect_carries_no_credential_to_another_server() {
    let target = Server::start(|_| ok("")).await;
    let away = target.url("/taken");
    let server = Server::start(move |seen| {
        let told = seen.header("authorization").unwrap_or_default().to_owned();
        Reaction::Send(answer("302 Found", &[("location", &format!("{away}?{told}"))], b""))
    })
    .await;
    let store = Arc::new(bearer(&server.url("")));
    let kit = kit(store, &[server.url(""), target.url("")], &[("shop", &[])]);
    let reply = kit.get(&server.url("/")).await.unwrap();
    assert!(target.seen().is_empty());
    let location = header(&reply, "location")[0].to_owned();
    assert!(location.contains("[key]") && !location.contains(CANARY), "{location}");
    // A node that follows the redirect makes another request, which gets no credential.
    kit.get(&target.url("/taken")).await.unwrap();
    assert_eq!(target.seen()[0].header("authorization"), None);
}

#[tokio::test]
async fn a_request_cannot_set_the_place_of_a_credential_and_two_cannot_share_it() {
    let server = Server::start(|_| ok("")).await;
    let origin = server.url("");
    let query = json!({ "in": "query", "key": "api_key" });
    let store = || bearer(&origin).with("other", "bearer", json!({}), &[("token", CANARY)], &origin);
    let store = || store().with("query", "apiKey", query.clone(), &[("value", CANARY)], &origin);
    let own = |names: &[&str]| {
        let granted: Vec<(&str, &[String])> = names.iter().map(|name| (*name, &[][..])).collect();
        kit(Arc::new(store()), std::slice::from_ref(&origin), &granted)
    };
    let mine = json!({ "method": "GET", "url": server.url("/"), "headers": [["Authorization", "Bearer mine"]] });
    let refused = own(&["shop"]).send(mine).await.unwrap_err();
    assert_eq!(refused.code, "invalid_input");
    assert!(refused.message.contains("from the credential `shop`"), "{refused:?}");
    let refused = own(&["query"]).get(&server.url("/?a=1&api%5Fkey=mine")).await.unwrap_err();
    assert_eq!(refused.code, "invalid_input");
    let refused = own(&["shop", "other"]).get(&server.url("/")).await.unwrap_err();
    assert!(refused.code == "denied" && refused.message.contains("`shop` and `other`"), "{refused:?}");
    assert!(server.seen().is_empty());
    own(&["shop", "query"]).get(&server.url("/")).await.unwrap();
    assert!(server.seen()[0].line.contains("api_key=") && server.seen()[0].header("authorization").is_some());
}

#[tokio::test]
async fn a_credential_of_another_tenant_does_not_exist() {
    let server = Server::start(|_| ok("")).await;
    let store = Arc::new(bearer(&server.url("")));
    let mut kit = kit(store.clone(), &[server.url("")], &[("shop", &[])]);
    kit.caller.tenant = Tenant::from("other");
    let refused = kit.get(&server.url("/")).await.unwrap_err();
    assert_eq!(refused.code, "denied");
    assert!(refused.message.contains("`shop` does not exist") && refused.message.contains("--tenant other"));
    assert_eq!((server.seen().len(), store.refused.load(Ordering::Relaxed)), (0, 1));
}

#[tokio::test]
async fn a_server_without_tls_gets_no_credential_unless_its_address_is_private() {
    let names = crate::outside::kit::FakeResolver::new(&[("api.example", &[&["93.184.216.34"]])]);
    let origin = "http://api.example";
    let mut own = kit(Arc::new(bearer(origin)), &[origin.to_owned()], &[("shop", &[])]);
    own.http = Kit::new(crate::outside::kit::policy(&[]), names, origin)
        .http
        .with_secrets(Secrets::default().with_credentials(Arc::new(bearer(origin))));
    let refused = own.get("http://api.example/").await.unwrap_err();
    assert!(refused.code == "denied" && refused.message.contains("only over `https`"), "{refused:?}");
}

#[tokio::test]
async fn a_token_is_got_once_and_stored_before_it_is_used() {
    let issuer = Issuer::start().await;
    let store = Arc::new(issuer.store("client_credentials"));
    let kit = kit(store.clone(), &[issuer.origin()], &[("drive", &[])]);
    for _ in 0..3 {
        let reply = kit.get(&issuer.server.url("/file")).await.unwrap();
        assert_eq!(text(&reply), "echo Bearer [key]");
    }
    assert_eq!(issuer.asked(), ["grant_type=client_credentials&scope=read+write"]);
    let asked = &issuer.server.seen()[0];
    // The parts of the login are encoded (RFC 6749, section 2.3.1): `flow%3Acell:client+secret%2B1`.
    assert_eq!(asked.header("authorization"), Some("Basic ZmxvdyUzQWNlbGw6Y2xpZW50K3NlY3JldCUyQjE="));
    let state = store.state("drive");
    assert_eq!(state.token.unwrap().access.as_str(), "access-token-1");
    assert_eq!(state.claimed_until, None);
    // Near its end it is renewed.
    store.now.store(3_570_000, Ordering::Relaxed);
    kit.get(&issuer.server.url("/file")).await.unwrap();
    assert_eq!(issuer.asked().len(), 2);
    // The operator has forbidden the token endpoint since then: the current token is used, and none is asked for.
    store.forbids_token_urls.store(true, Ordering::Relaxed);
    kit.get(&issuer.server.url("/file")).await.unwrap();
    store.now.store(7_200_000, Ordering::Relaxed);
    let refused = kit.get(&issuer.server.url("/file")).await.unwrap_err();
    assert!(refused.code == "credential_refresh_failed" && !refused.retryable, "{refused:?}");
    assert!(refused.message.contains("`tokenUrl`: ") && refused.message.contains("exceeds the limits"), "{refused:?}");
    assert_eq!((issuer.asked().len(), store.state("drive").claimed_until), (2, None));
}

#[tokio::test]
async fn a_refused_token_is_renewed_once_and_the_request_is_sent_once_more() {
    let issuer = Issuer::start().await;
    let store = Arc::new(issuer.store("refresh_token"));
    let kit = kit(store.clone(), &[issuer.origin()], &[("drive", &[])]);
    kit.get(&issuer.server.url("/file")).await.unwrap();
    // The issuer ends the token early, as if another client had used the refresh token.
    issuer.number.store(0, Ordering::Relaxed);
    let state = store.state("drive");
    assert!(
        store
            .replace_tokens(
                &Tenant::local(),
                "drive",
                1,
                &TokenState {
                    token: state.token.map(|token| flowcell_services::credentials::Token {
                        refresh: Some("refresh-0".to_owned().into()),
                        access: "access-token-9".to_owned().into(),
                        ..token
                    }),
                    ..state
                }
            )
            .unwrap()
    );
    store.pass_pause();
    let reply = kit.get(&issuer.server.url("/file")).await.unwrap();
    assert_eq!(reply.json().get("status"), Some(&Json::from(200_u64)));
    let api: Vec<_> = issuer.server.seen().into_iter().filter(|seen| seen.line.contains("/file")).collect();
    assert_eq!((issuer.asked().len(), api.len()), (2, 3));
    // A server that refuses every token gets two requests, and the node the refusal. A new token is not renewed.
    let never = Server::start(|_| Reaction::Send(answer("401 Unauthorized", &[], b""))).await;
    let settings = json!({ "grant": "client_credentials", "tokenUrl": issuer.server.url("/token"), "clientId": "c" });
    let store =
        Memory::default().with("drive", "oauth2", settings, &[("clientSecret", "client secret")], &never.url(""));
    let store = Arc::new(store);
    let own = self::kit(store.clone(), &[never.url("")], &[("drive", &[])]);
    for (passes, sent, asked) in [(false, 1, 3), (false, 2, 3), (true, 4, 4), (false, 5, 4)] {
        if passes {
            store.pass_pause();
        }
        let reply = own.send(json!({ "method": "POST", "url": never.url("/") })).await.unwrap();
        assert_eq!(reply.json().get("status"), Some(&Json::from(401_u64)));
        assert_eq!((never.seen().len(), issuer.asked().len()), (sent, asked));
    }
}

#[tokio::test]
async fn many_requests_at_once_renew_a_token_once() {
    let issuer = Issuer::start().await;
    let store = Arc::new(issuer.store("refresh_token"));
    // Two processes share the store.
    let kits: Vec<_> = (0..2).map(|_| kit(store.clone(), &[issuer.origin()], &[("drive", &[])])).collect();
    let url = issuer.server.url("/file");
    let sent = (0..40).map(|n| kits[n % 2].get(&url));
    for reply in futures_util::future::join_all(sent).await {
        assert_eq!(text(&reply.unwrap()), "echo Bearer [key]");
    }
    assert_eq!(issuer.asked(), ["grant_type=refresh_token&refresh_token=refresh-0&scope=read+write"]);
}

#[tokio::test]
async fn the_claim_of_a_process_that_ended_is_taken_over_after_its_lease() {
    let issuer = Issuer::start().await;
    let store = Arc::new(issuer.store("client_credentials"));
    let dead = TokenState { claimed_until: Some(REFRESH_LEASE_MS), ..TokenState::default() };
    assert!(store.replace_tokens(&Tenant::local(), "drive", 1, &dead).unwrap());
    let kit = kit(store.clone(), &[issuer.origin()], &[("drive", &[])]);
    let url = issuer.server.url("/file");
    let waiting = kit.get(&url);
    tokio::pin!(waiting);
    // It waits for the lease, and asks for nothing.
    while store.pauses.load(Ordering::Relaxed) < 3 {
        let step = futures_util::future::select(waiting.as_mut(), Box::pin(tokio::task::yield_now())).await;
        assert!(matches!(step, futures_util::future::Either::Right(_)), "it did not wait");
    }
    assert!(issuer.asked().is_empty());
    store.now.store(REFRESH_LEASE_MS, Ordering::Relaxed);
    assert_eq!(text(&waiting.await.unwrap()), "echo Bearer [key]");
    assert_eq!(issuer.asked().len(), 1);
}

#[tokio::test]
async fn a_refused_renewal_says_why_and_shows_no_secret() {
    let issuer = Issuer::start().await;
    issuer.number.store(7, Ordering::Relaxed);
    let store = Arc::new(issuer.store("refresh_token"));
    let kit = kit(store.clone(), &[issuer.origin()], &[("drive", &[])]);
    let failure = kit.get(&issuer.server.url("/file")).await.unwrap_err();
    assert_eq!((failure.code.as_str(), failure.retryable), ("credential_refresh_failed", false));
    let details = failure.details.clone().unwrap();
    assert_eq!(details.get("error").and_then(Json::as_str), Some("invalid_grant"));
    assert_eq!(details.get("credential").and_then(Json::as_str), Some("drive"));
    let shown = format!("{failure:?}");
    assert!(shown.contains("flowcell credential connect drive") && !shown.contains("refresh-0"), "{shown}");
    assert_eq!(issuer.server.seen().len(), 1, "no request leaves without its credential");
    assert_eq!(store.state("drive").claimed_until, None);
    // The refusal is for good, so the issuer is asked again only after a pause.
    assert_eq!(kit.get(&issuer.server.url("/file")).await.unwrap_err(), failure);
    assert_eq!(issuer.server.seen().len(), 1);
    store.pass_pause();
    kit.get(&issuer.server.url("/file")).await.unwrap_err();
    assert_eq!(issuer.server.seen().len(), 2);
    // The server that issues tokens may be down, too.
    let down = Server::start(|_| Reaction::Send(answer("503 Service Unavailable", &[], b"busy"))).await;
    let settings = json!({ "grant": "client_credentials", "tokenUrl": down.url("/token"), "clientId": "c" });
    let store =
        Memory::default().with("drive", "oauth2", settings, &[("clientSecret", "client secret")], &down.url(""));
    let own = self::kit(Arc::new(store), &[down.url("")], &[("drive", &[])]);
    let failure = own.get(&down.url("/file")).await.unwrap_err();
    assert_eq!((failure.code.as_str(), failure.retryable), ("credential_refresh_failed", true));
}

#[tokio::test]
async fn a_credential_without_consent_says_how_to_connect_it() {
    let issuer = Issuer::start().await;
    let settings = json!({
        "grant": "authorization_code", "tokenUrl": issuer.server.url("/token"), "clientId": "c", "clientAuth": "none",
        "authorizeUrl": issuer.server.url("/authorize"),
    });
    let store = Memory::default().with("drive", "oauth2", settings, &[], &issuer.origin());
    let kit = kit(Arc::new(store), &[issuer.origin()], &[("drive", &[])]);
    let failure = kit.get(&issuer.server.url("/file")).await.unwrap_err();
    assert_eq!(failure.code, "denied");
    assert!(failure.message.contains("flowcell credential connect drive"), "{failure:?}");
}

#[tokio::test]
async fn n24_no_request_with_a_credential_asks_for_a_part_of_an_answer() {
    // The server echoes the credential, and honours ranges.
    let server = Server::start(|seen| {
        let all = format!("your key: {}", seen.header("x-key").unwrap_or_default());
        match seen.header("range") {
            Some(_) => Reaction::Send(answer(
                "206 Partial Content",
                &[("content-range", "bytes 0-15/40")],
                &all.as_bytes()[..16],
            )),
            None => Reaction::Send(answer("200 OK", &[("content-type", "text/plain")], all.as_bytes())),
        }
    })
    .await;
    let origin = server.url("");
    let settings = json!({ "in": "header", "key": "x-key" });
    let store = Arc::new(Memory::default().with("shop", "apiKey", settings, &[("value", CANARY)], &origin));
    let granted = kit(store.clone(), std::slice::from_ref(&origin), &[("shop", &[])]);
    let without = kit(store, std::slice::from_ref(&origin), &[]);
    let request = |method: &str, name: &str, value: &str| json!({ "method": method, "url": server.url("/"), "headers": [[name, value]] });
    for (method, name, value, told) in [
        ("GET", "Range", "bytes=0-15", "the header `range`"),
        ("GET", "Request-Range", "bytes=0-15", "the header `request-range`"),
        ("GET", "If-Range", "\"a\"", "the header `if-range`"),
        ("GET", "If_Range", "\"a\"", "the header `if_range`"),
        ("GET", "A-IM", "range", "the header `a-im`"),
        ("GET", "Accept-Charset", "utf-7", "another `accept-charset` than `utf-8`"),
        ("TRACE", "x-a", "b", "the method `TRACE`"),
        // Servers of CGI take `_` for `-`.
        ("GET", "X_Key", "mine", "the host sets the header `x-key` from the credential `shop`"),
    ] {
        let args = request(method, name, value);
        for failure in [granted.admit(args.clone()).unwrap_err(), granted.send(args.clone()).await.unwrap_err()] {
            assert_eq!(&*failure.code, "invalid_input", "{failure:?}");
            assert!(failure.message.contains(told), "{failure:?}");
        }
        without.admit(args).unwrap();
    }
    assert!(server.seen().is_empty(), "nothing was sent");
    let reply = granted.send(request("GET", "accept-charset", "UTF-8")).await.unwrap();
    assert_eq!(text(&reply), "your key: [key]");
    let refused = without.admit(request("GET", "Transfer_Encoding", "chunked")).unwrap_err();
    assert!(refused.message.contains("the host sets the header `transfer_encoding`"), "{refused:?}");
}
