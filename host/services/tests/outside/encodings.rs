//! A secret with a space, which the host itself sends in forms, where `+` stands for the space. N24 is a case in
//! `tests/README.md`.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use crate::outside::{
    issuer::{Memory, kit},
    kit::{header, text},
    server::{Reaction, Seen, Server, answer},
};

const SECRET: &str = "kanarien vogel+7 geheim";

/// Sends a request back in the body, and in the address of a redirect. The body also has the secret in other encodings.
fn echo(seen: &Seen) -> Reaction {
    let body = String::from_utf8_lossy(&seen.body);
    let query = seen.line.split(' ').nth(1).unwrap().split_once('?').map_or("", |(_, query)| query);
    let form: String = url::form_urlencoded::byte_serialize(SECRET.as_bytes()).collect();
    let percent = form.replace('+', "%20");
    let told = format!("{} {:?} {body} {SECRET} {form} {percent} {}", seen.line, seen.headers, STANDARD.encode(&form));
    let location = format!("https://other.example/?{query}&{body}&key={form}");
    Reaction::Send(answer("302 Found", &[("content-type", "text/plain"), ("location", &location)], told.as_bytes()))
}

#[tokio::test]
async fn n24_a_secret_with_a_space_comes_back_in_no_encoding() {
    let server = Server::start(echo).await;
    let origin = server.url("");
    let key = |place: &str| json!({ "in": place, "key": "api_key" });
    let form = "application/x-www-form-urlencoded";
    let cases: [(&str, Value, &str, String); 3] = [
        ("apiKey", key("query"), "value", SECRET.to_owned()),
        ("apiKey", key("body"), "value", SECRET.to_owned()),
        ("basic", json!({}), "login", format!("ada:{SECRET}")),
    ];
    for (kind, settings, name, secret) in cases {
        let store = Memory::default().with("shop", kind, settings, &[(name, &secret)], &origin);
        let kit = kit(Arc::new(store), std::slice::from_ref(&origin), &[("shop", &[])]);
        let reply = kit
            .send(json!({ "method": "POST", "url": server.url("/v1?q=1"), "headers": [["content-type", form]],
                "body": { "text": "a=1" } }))
            .await
            .unwrap();
        let shown = reply.to_string();
        assert!(!shown.contains("vogel"), "{kind}: {shown}");
        assert!(text(&reply).contains("[key]"), "{kind}: {shown}");
        assert!(header(&reply, "location")[0].ends_with("&key=[key]"), "{kind}: {shown}");
    }
    let sent = "kanarien+vogel%2B7+geheim";
    let seen = server.seen();
    assert_eq!(seen[0].line, format!("POST /v1?q=1&api_key={sent} HTTP/1.1"));
    assert_eq!(String::from_utf8_lossy(&seen[1].body), format!("a=1&api_key={sent}"));
}

#[tokio::test]
async fn n24_an_issuer_that_tells_a_secret_with_a_space_reveals_nothing() {
    // The issuer tells the form, or the login with its form inside.
    let issuer = Server::start(|seen| {
        let login = seen.header("authorization").and_then(|login| STANDARD.decode(login.strip_prefix("Basic ")?).ok());
        let told = login.map_or_else(|| seen.body.clone(), |login| [b"login ".to_vec(), login].concat());
        let body = json!({ "error": "invalid_client", "error_description": String::from_utf8_lossy(&told) });
        let headers = [("content-type", "application/json")];
        Reaction::Send(answer("401 Unauthorized", &headers, body.to_string().as_bytes()))
    })
    .await;
    for client_auth in ["basic", "post"] {
        let settings = json!({ "grant": "client_credentials", "tokenUrl": issuer.url("/token"), "clientId": "flow",
            "clientAuth": client_auth });
        let secrets = [("clientSecret", SECRET)];
        let store = Memory::default().with("drive", "oauth2", settings, &secrets, &issuer.url(""));
        let kit = kit(Arc::new(store), &[issuer.url("")], &[("drive", &[])]);
        let failure = kit.get(&issuer.url("/file")).await.unwrap_err();
        let shown = format!("{failure:?}");
        assert!(failure.code == "credential_refresh_failed" && shown.contains("[key]"), "{client_auth}: {shown}");
        assert!(!shown.contains("vogel") && !shown.contains("kanarien"), "{client_auth}: {shown}");
    }
    assert_eq!(issuer.seen().len(), 2);
}
