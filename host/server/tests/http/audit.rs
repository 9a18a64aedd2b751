//! The audit log, the tokens and the packs that a tenant sees over HTTP.

use std::sync::{Arc, Mutex};

use flowcell_platform::tenants::{NewToken, Tenants};
use flowcell_server::{Limits, identity::Identify};
use serde_json::{Value, json};

use crate::{client::Served, samples::hello, tenants::call};

/// Starts a server with the tenants `a` and `b`, and returns an administrator's token of each, and one of `a` without the
/// scope.
fn served() -> (Served, Tenants, [NewToken; 3]) {
    let known = Mutex::new(None);
    let served = Served::of(
        |host| {
            let tenants = Tenants::of(host);
            ["a", "b"].iter().for_each(|name| tenants.create(name).unwrap());
            let admin = ["admin".to_owned(), "flow:write".to_owned(), "flow:read".to_owned()];
            let tokens = [("a", "lena", &admin[..]), ("b", "", &admin[..]), ("a", "", &admin[1..])];
            let tokens = tokens.map(|(tenant, name, scopes)| {
                tenants.create_named_token(tenant, name, scopes, "for tests", None).unwrap()
            });
            *known.lock().unwrap() = Some((tenants.clone(), tokens));
            Arc::new(tenants) as Arc<dyn Identify>
        },
        Limits::default(),
    );
    let (tenants, tokens) = known.into_inner().unwrap().unwrap();
    (served, tenants, tokens)
}

#[test]
fn the_audit_log_is_read_by_page_and_shows_damage() {
    let (served, tenants, [a, b, without]) = served();
    for version in 0..5 {
        let mut flow = hello();
        flow["flow"]["description"] = format!("{version}").into();
        assert_eq!(call(&served, &a.token, "POST", "/v1/flows", &json!({ "flow": flow })).status, 201);
    }
    let get = |token: &str, query: &str| call(&served, token, "GET", &format!("/v1/audit{query}"), &Value::Null);
    let whole = get(&a.token, "").json();
    let entries = whole["entries"].as_array().unwrap();
    assert_eq!(entries.len() as u64, tenants.verify_audit("a", None).unwrap().entries);
    assert_eq!((whole.get("next"), &whole["damage"]), (None, &json!([])), "{whole}");
    let posts = entries.iter().filter(|entry| entry["actor"] == a.id.as_str() && entry["action"] == "POST /v1/flows");
    assert_eq!(posts.count(), 5);
    let (mut read, mut after) = (Vec::new(), 0);
    loop {
        let page = get(&a.token, &format!("?limit=3&after={after}")).json();
        assert_eq!(page["damage"], json!([]), "{page}");
        read.extend(page["entries"].as_array().unwrap().clone());
        match page["next"].as_u64() {
            Some(next) => after = next,
            None => break,
        }
    }
    assert_eq!(read, *entries);
    let latest = get(&a.token, "?latest=true&limit=2").json();
    assert_eq!(latest["entries"], json!(entries[entries.len() - 2..]));
    assert_eq!(get(&a.token, "?after=1000").json(), json!({ "entries": [], "damage": [] }));
    // Another tenant has its own log, and a token needs the scope.
    assert!(!get(&b.token, "").body.contains(&a.id));
    assert_eq!(get(&without.token, "").fault(), (403, "forbidden".to_owned()));
    for query in [
        "?after=-1",
        "?after=9223372036854775808",
        "?limit=0",
        "?limit=501",
        "?latest=true&after=1",
        "?latest=maybe",
        "?from=1",
    ] {
        assert_eq!(get(&a.token, query).fault(), (400, "bad_request".to_owned()), "{query}");
    }
}

#[test]
fn tokens_are_listed_without_their_secrets() {
    let (served, tenants, [a, b, without]) = served();
    tenants.revoke_token(&without.id).unwrap();
    let get = |token: &str, query: &str| call(&served, token, "GET", &format!("/v1/tokens{query}"), &Value::Null);
    let answer = get(&a.token, "");
    let shown = answer.json();
    let tokens = shown["tokens"].as_array().unwrap();
    let mut ids = [a.id.as_str(), without.id.as_str()];
    ids.sort_unstable();
    assert_eq!(tokens.iter().map(|token| token["id"].as_str().unwrap()).collect::<Vec<_>>(), ids);
    let named = tokens.iter().find(|token| token["id"] == a.id.as_str()).unwrap();
    assert_eq!((&named["name"], &named["note"], named.get("revoked")), (&json!("lena"), &json!("for tests"), None));
    assert!(tokens.iter().any(|token| token["revoked"].is_u64()), "{shown}");
    for token in [&a, &without] {
        assert!(!answer.body.contains(token.token.rsplit('_').next().unwrap()), "a secret is shown");
    }
    assert!(!answer.body.contains(&b.id) && !answer.body.contains("hash"), "{answer:?}");
    let first = get(&a.token, "?limit=1").json();
    let rest = get(&a.token, &format!("?cursor={}", first["next"].as_str().unwrap())).json();
    assert_eq!((&first["tokens"][0]["id"], &rest["tokens"][0]["id"]), (&json!(ids[0]), &json!(ids[1])));
    assert_eq!(get(&without.token, "").fault(), (401, "unauthorized".to_owned()), "it is revoked");
    assert_eq!(get(&a.token, "?limit=0").fault(), (400, "bad_request".to_owned()));
}

#[test]
fn a_token_makes_others_with_at_most_its_own_scopes() {
    let (served, tenants, [a, b, without]) = served();
    let create = |token: &str, body: Value| call(&served, token, "POST", "/v1/tokens", &body);
    let list = |token: &str| call(&served, token, "GET", "/v1/tokens", &Value::Null).json()["tokens"].clone();
    let made = create(&a.token, json!({ "name": "ci", "scopes": ["flow:read"], "note": "for <b>CI</b>" }));
    assert_eq!((made.status, made.header("cache-control")), (201, Some("no-store")), "{made:?}");
    let new = made.json();
    let (id, token) = (new["id"].as_str().unwrap(), new["token"].as_str().unwrap());
    assert_eq!(made.header("location"), Some(&*format!("/v1/tokens/{id}")));
    let days = (new["expires"].as_u64().unwrap() - served.host().now()) / 86_400_000;
    assert!((89..=90).contains(&days), "{new}");
    assert_eq!(call(&served, token, "GET", "/v1/flows", &Value::Null).status, 200);
    let hello = json!({ "flow": hello() });
    assert_eq!(call(&served, token, "POST", "/v1/flows", &hello).fault(), (403, "forbidden".to_owned()));
    assert!(list(&a.token).as_array().unwrap().iter().any(|row| row["id"] == id && row["note"] == "for <b>CI</b>"));
    for (from, body, fault) in [
        (&a, json!({ "scopes": ["run:create"] }), (403, "forbidden")),
        (&a, json!({ "scopes": ["admin", "secret:write"] }), (403, "forbidden")),
        (&a, json!({ "scopes": ["admin:read"] }), (403, "forbidden")),
        (&a, json!({ "scopes": ["everything"] }), (422, "unknown_scope")),
        (&a, json!({ "scopes": ["flow:read"], "name": "ci" }), (409, "token_exists")),
        (&a, json!({ "scopes": ["flow:read"], "name": "a/b" }), (422, "invalid_name")),
        (&a, json!({ "scopes": [] }), (400, "bad_request")),
        (&a, json!({ "scopes": ["flow:read"], "expiresInMs": 0 }), (400, "bad_request")),
        (&a, json!({ "scopes": ["flow:read"], "expiresInMs": u64::MAX }), (400, "bad_request")),
        (&a, json!({ "scopes": ["flow:read"], "note": "n".repeat(201) }), (400, "bad_request")),
        (&a, json!({ "scopes": ["flow:read"], "tenant": "b" }), (400, "bad_request")),
        (&without, json!({ "scopes": ["flow:read"] }), (403, "forbidden")),
    ] {
        let refused = create(&from.token, body.clone());
        assert_eq!(refused.fault(), (fault.0, fault.1.to_owned()), "{body}: {refused:?}");
    }
    // A tenant revokes its own tokens only.
    let revoke =
        |of: &NewToken, id: &str| call(&served, &of.token, "DELETE", &format!("/v1/tokens/{id}"), &Value::Null);
    assert_eq!(revoke(&b, id).fault(), (404, "token_not_found".to_owned()));
    assert_eq!(call(&served, token, "GET", "/v1/flows", &Value::Null).status, 200);
    assert_eq!(revoke(&a, id).status, 204);
    assert_eq!(revoke(&a, id).status, 204, "it is revoked already");
    assert_eq!(call(&served, token, "GET", "/v1/flows", &Value::Null).fault(), (401, "unauthorized".to_owned()));
    let entries = tenants.audit("a", 0, 100).unwrap();
    let created = format!("{id} flow:read");
    for (action, subject) in [("token.create", &*created), ("token.revoke", id)] {
        let by_lena = entries.iter().filter(|entry| (&*entry.action, &*entry.subject) == (action, subject));
        assert_eq!(by_lena.map(|entry| &*entry.actor).collect::<Vec<_>>(), [a.id.as_str()], "{action}");
    }
    let local = Served::local();
    let refused = local.post("/v1/tokens", &json!({ "scopes": ["flow:read"] }));
    assert_eq!(refused.fault(), (409, "tenant_local".to_owned()));
}

#[test]
fn a_server_without_packs_lists_none() {
    let (served, _, [a, ..]) = served();
    assert_eq!(call(&served, &a.token, "GET", "/v1/packs", &Value::Null).json(), json!({ "packs": [] }));
}
