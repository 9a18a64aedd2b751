//! Registries of packs that misbehave, or delegate authentication to other servers.

use flowcell_contract::Failure;
use flowcell_services::{
    distribution::{Artifact, Content, Credentials, MAX_DOCUMENT_BYTES, Realm, Reference, Registry, Wanted},
    egress::Egress,
};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::outside::{
    kit::policy,
    server::{Reaction, Seen, Server, answer},
};

const PACK: &[u8] = b"\0asm and the rest";
/// Maximum bytes of a pack in these tests.
const MAX_PACK_BYTES: usize = 64;

fn sha256(bytes: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(bytes)))
}

/// Returns the manifest of a component.
fn manifest(digest: &str, size: usize) -> Vec<u8> {
    let described = |kind: &str| json!({ "mediaType": kind, "digest": digest, "size": size });
    let config = described("application/vnd.wasm.config.v0+json");
    json!({ "schemaVersion": 2, "config": config, "layers": [described("application/wasm")] }).to_string().into_bytes()
}

fn found(body: &[u8]) -> Reaction {
    Reaction::Send(answer("200 OK", &[], body))
}

fn redirect_to(place: &str) -> Reaction {
    Reaction::Send(answer("307 Temporary Redirect", &[("location", place)], b""))
}

fn path(seen: &Seen) -> String {
    seen.line.split(' ').nth(1).unwrap().to_owned()
}

fn registry(server: &Server, credentials: Option<Credentials>) -> Registry {
    let reference: Reference = format!("{}/acme", server.address).parse().unwrap();
    Registry::open(&Egress::new(policy(&[])).unwrap(), &reference, credentials).unwrap()
}

async fn pulled(server: &Server) -> Result<Artifact, Failure> {
    registry(server, None).pull(&Wanted::Tag("next".into()), Content::Component, MAX_PACK_BYTES).await
}

#[tokio::test]
async fn credentials_go_to_a_configured_token_server_and_its_token_to_the_registry() {
    let storage = Server::start(|_| found(PACK)).await;
    let tokens = Server::start(|_| found(br#"{ "access_token": "t-1" }"#)).await;
    let (realm, stored) = (tokens.url("/token"), storage.url("/blob"));
    let server = Server::start(move |seen| {
        let challenge = format!(r#"Bearer realm="{realm}",service="registry of the tests""#);
        match (seen.header("authorization"), path(seen)) {
            (Some("Bearer t-1"), path) if path.ends_with("/manifests/next") => {
                found(&manifest(&sha256(PACK), PACK.len()))
            }
            (Some("Bearer t-1"), _) => redirect_to(&stored),
            _ => Reaction::Send(answer("401 Unauthorized", &[("www-authenticate", &challenge)], b"")),
        }
    })
    .await;
    let credentials = Credentials { user: "ada".into(), password: "secret".to_owned().into() };
    let registry = registry(&server, Some(credentials.clone()));
    let refused = registry.pull(&Wanted::Tag("next".into()), Content::Component, MAX_PACK_BYTES).await.unwrap_err();
    let hint = format!("`--registry-realm {}=http://{}`", server.address, tokens.address);
    assert!(refused.code == "registry_denied" && refused.message.contains(&hint), "{refused}");
    assert!(tokens.seen().is_empty(), "credentials are for the registry's own origin");
    let other: Realm = format!("other.example={}", tokens.url("")).parse().unwrap();
    let registry = registry.with_realms(&[other]);
    assert!(
        registry.pull(&Wanted::Tag("next".into()), Content::Component, MAX_PACK_BYTES).await.is_err()
            && tokens.seen().is_empty()
    );
    let realm: Realm = format!("{}={}", server.address, tokens.url("")).parse().unwrap();
    let registry = registry.with_realms(&[realm]);
    assert_eq!(
        registry.pull(&Wanted::Tag("next".into()), Content::Component, MAX_PACK_BYTES).await.unwrap().bytes,
        PACK
    );
    let [asked] = &tokens.seen()[..] else { panic!("{:?}", tokens.seen()) };
    assert_eq!(path(asked), "/token?scope=repository%3Aacme%3Apull&service=registry+of+the+tests");
    assert_eq!(asked.header("authorization"), Some("Basic YWRhOnNlY3JldA=="));
    assert_eq!(storage.seen()[0].header("authorization"), None, "a token is not shown where a redirect leads");
}

#[tokio::test]
async fn a_token_server_at_the_registry_gets_the_credentials_and_others_work_without() {
    let tokens = Server::start(|_| found(br#"{ "token": "t-1" }"#)).await;
    let elsewhere = tokens.url("/token");
    let server = Server::start(move |seen| {
        let host = seen.header("host").unwrap();
        let (own, other) = (format!("http://{host}/token"), elsewhere.clone());
        let realm = if path(seen).contains("open") { other } else { own };
        let challenge = format!("Bearer realm=\"{realm}\"");
        match (path(seen), seen.header("authorization")) {
            (path, Some("Basic YWRhOnNlY3JldA==")) if path.starts_with("/token") => found(br#"{ "token": "t-1" }"#),
            (_, Some("Bearer t-1")) => found(&manifest(&sha256(PACK), PACK.len())),
            _ => Reaction::Send(answer("401 Unauthorized", &[("www-authenticate", &challenge)], b"")),
        }
    })
    .await;
    let credentials = Credentials { user: "ada".into(), password: "secret".to_owned().into() };
    let version = "1.0.0".parse().unwrap();
    assert!(registry(&server, Some(credentials)).digest(&version).await.unwrap().is_some());
    let open: Reference = format!("{}/open", server.address).parse().unwrap();
    let open = Registry::open(&Egress::new(policy(&[])).unwrap(), &open, None).unwrap();
    assert!(open.digest(&version).await.unwrap().is_some());
    assert_eq!(tokens.seen()[0].header("authorization"), None);
}

#[tokio::test]
async fn answers_of_a_registry_are_bounded_and_verified() {
    type React = fn(&Seen) -> Reaction;
    let blob: fn(&Seen, fn() -> Reaction) -> Reaction = |seen, blob| match path(seen).contains("/blobs/") {
        true => blob(),
        false => found(&manifest(&sha256(PACK), PACK.len())),
    };
    // Sends data forever, after a head that announces more than the limit.
    fn endless() -> Reaction {
        Reaction::SendForEver(vec![b' '; 1 << 16])
    }
    let cases: [(&str, React, &str, &str); 9] = [
        (
            "an endless manifest",
            |_| Reaction::SendForEver(answer("200 OK", &[], &[b' '; MAX_DOCUMENT_BYTES + 1])),
            "http_body_too_large",
            "more than",
        ),
        (
            "a pack that is too large",
            |_| found(&manifest(&sha256(PACK), MAX_PACK_BYTES + 1)),
            "http_body_too_large",
            "the limit is 64",
        ),
        ("no manifest", |_| found(b"{}"), "registry_refused", "is not the manifest"),
        ("a digest that is a path", |_| found(&manifest("../../other", 1)), "registry_refused", "is not a SHA-256"),
        (
            "a failure",
            |_| Reaction::Send(answer("500 Internal Server Error", &[], b"")),
            "registry_refused",
            "answers 500",
        ),
        ("a redirect inwards", |_| redirect_to("https://10.0.0.1/"), "denied", "not a public address"),
        ("a redirect without TLS", |_| redirect_to("http://example.com/"), "invalid_input", "without TLS"),
        ("an endless way", |_| redirect_to("/again"), "registry_refused", "more than 5 times"),
        (
            "a server of tokens inside",
            |_| {
                let challenge = r#"Bearer realm="https://10.0.0.1/token""#;
                Reaction::Send(answer("401 Unauthorized", &[("www-authenticate", challenge)], b""))
            },
            "denied",
            "not a public address",
        ),
    ];
    for (name, react, code, why) in cases {
        let failure = pulled(&Server::start(react).await).await.unwrap_err();
        assert!(failure.code == code && failure.message.contains(why), "{name}: {failure}");
    }
    let other = Server::start(move |seen| blob(seen, || found(b"\0asm and the REST"))).await;
    let failure = pulled(&other).await.unwrap_err();
    assert!(failure.code == "pack_changed" && failure.message.contains(&sha256(PACK)), "{failure}");
    let more = Server::start(move |seen| blob(seen, || found(&[b'x'; MAX_PACK_BYTES + 1]))).await;
    assert_eq!(pulled(&more).await.unwrap_err().code, "http_body_too_large");
    let nonsense = Server::start(move |seen| blob(seen, endless)).await;
    assert_eq!(pulled(&nonsense).await.unwrap_err().code, "http_protocol");
}

#[tokio::test]
async fn versions_are_read_page_by_page() {
    let server = Server::start(|seen| match path(seen).as_str() {
        "/v2/acme/tags/list?n=1000" => {
            let next = ("link", r#"</v2/acme/tags/list?n=1000&last=b>; rel="next""#);
            Reaction::Send(answer("200 OK", &[next], br#"{ "tags": ["1.9.0", "latest", "2.0.0-rc.1"] }"#))
        }
        "/v2/acme/tags/list?n=1000&last=b" => found(br#"{ "tags": ["1.10.0", "1.10.0_7", "1.2"] }"#),
        other => panic!("{other}"),
    })
    .await;
    let registry = registry(&server, None);
    let versions: Vec<_> = registry.versions().await.unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(versions, ["2.0.0-rc.1", "1.10.0+7", "1.10.0", "1.9.0"]);
    assert_eq!(registry.highest().await.unwrap().to_string(), "1.10.0+7");
}
