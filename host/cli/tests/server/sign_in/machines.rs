//! Tests machines that send the token of an issuer in place of a token of the server.

use serde_json::{Value, json};

use super::{
    fake::{Fake, Parts, Signer},
    site::Site,
};
use crate::client::{Answer, ask};

const SUBJECT: &str = "repo:acme/shop:ref:refs/heads/main";

impl Fake {
    /// An issuer of the file that has no people.
    fn machines(&self) -> String {
        let (origin, rule) =
            (self.server.origin(), "{ when: { repository: acme/shop }, tenant: acme, scopes: [run:read] }");
        format!(
            "- name: ci\n  issuer: {origin}\n  audience: https://flows.test\n  allowPrivate: true\n  rules: [{rule}]\n"
        )
    }

    /// Returns the token of a job, after a change of its parts.
    fn job(&self, change: impl FnOnce(&mut Parts)) -> String {
        self.token("", |parts| {
            let claims = parts.claims.as_object_mut().unwrap();
            claims.remove("nonce");
            claims.insert("aud".into(), json!("https://flows.test"));
            claims.insert("sub".into(), json!(SUBJECT));
            claims.insert("repository".into(), json!("acme/shop"));
            change(parts);
        })
    }

    fn count(&self, path: &str) -> usize {
        self.server.seen().iter().filter(|seen| seen.head.starts_with(&format!("GET {path} "))).count()
    }
}

fn me(site: &Site, token: &str) -> Answer {
    ask(site.address, "GET", "/v1/me", &[("Authorization", &format!("Bearer {token}"))], "")
}

/// A server for machines alone. The metadata of its issuer name neither a page nor a place of codes.
fn start() -> (Site, Fake) {
    let (site, fake) = (Site::start(&["acme"]), Fake::start());
    fake.set_metadata(|metadata| {
        let metadata = metadata.as_object_mut().unwrap();
        metadata.remove("authorization_endpoint");
        metadata.remove("token_endpoint");
    });
    site.write(&fake.machines());
    (site, fake)
}

#[test]
fn a_job_uses_the_api_with_the_token_of_its_issuer() {
    let (site, fake) = start();
    let token = fake.job(|_| {});
    let first = me(&site, &token).json();
    assert_eq!((&first["tenant"], &first["scopes"]), (&json!("acme"), &json!(["run:read"])), "{first}");
    assert_eq!(first["token"]["name"], format!("oidc:ci:{SUBJECT}"));
    let ends = first["token"]["expires"].as_u64().unwrap();
    assert!(ends <= first["now"].as_u64().unwrap() + 300_000, "the session ends with the token: {first}");
    let second = me(&site, &token).json();
    assert_eq!(second["token"]["id"], first["token"]["id"], "further requests use the same session");
    let flow = json!({ "flow": { "flow": { "name": "a" }, "nodes": [] } }).to_string();
    let bearer = format!("Bearer {token}");
    let start = ask(site.address, "POST", "/v1/runs", &[("Authorization", &bearer)], &flow);
    assert_eq!(start.fault(), (403, "forbidden".into()), "the rule gives no scope for it");
    // The token of an issuer makes sessions until it ends, so no logout ends it.
    let out = ask(site.address, "POST", "/v1/logout", &[("Authorization", &bearer)], "");
    assert_eq!((out.fault(), me(&site, &token).status), ((409, "conflict".into()), 200));
    let list = ask(site.address, "GET", "/v1/sign-in", &[], "").json();
    assert_eq!(list, json!({ "issuers": [] }), "people do not sign in with it");
    let page = ask(site.address, "GET", "/console/sign-in/ci", &[], "");
    assert_eq!(page.status, 404, "{page:?}");

    let id = site.run(&["account", "list"])[0]["id"].as_str().unwrap().to_owned();
    site.run(&["account", "disable", &id]);
    assert_eq!(me(&site, &token).fault(), (403, "account_disabled".into()));
    site.run(&["account", "enable", &id]);
    assert_eq!(me(&site, &token).status, 200);
    // A session that ends before the token of the machine costs no request.
    site.run(&["account", "delete", &id]);
    let again = me(&site, &token).json();
    assert_ne!(again["token"]["id"], first["token"]["id"], "{again}");
    assert_eq!((fake.count("/keys"), fake.count("/.well-known/openid-configuration")), (1, 1));
    site.end();
}

#[test]
fn wrong_tokens_of_jobs_are_refused() {
    let (site, fake) = start();
    let claim = |name: &'static str, value: Value| {
        move |parts: &mut Parts| _ = parts.claims.as_object_mut().unwrap().insert(name.into(), value)
    };
    type Change = Box<dyn FnOnce(&mut Parts)>;
    let table: Vec<(Change, u16, &str)> = vec![
        (Box::new(claim("iss", json!("https://evil.test"))), 401, "unknown or expired"),
        (Box::new(claim("aud", json!("flowcell"))), 403, "for another audience"),
        (Box::new(claim("aud", json!(["https://flows.test", "https://evil.test"]))), 403, "for another audience"),
        (Box::new(claim("exp", json!(1))), 403, "has expired"),
        (Box::new(claim("repository", json!("evil/shop"))), 403, "no value of `repository` fits"),
        (Box::new(claim("pad", json!("x".repeat(8_192)))), 401, "unknown or expired"),
        (Box::new(|parts| parts.signer = Signer::Other), 403, "a wrong signature"),
        (
            Box::new(|parts| (parts.head, parts.signer) = (json!({ "alg": "none" }), Signer::Nobody)),
            403,
            "is not signed by",
        ),
        (
            Box::new(|parts| (parts.head, parts.signer) = (json!({ "alg": "HS256", "kid": "own" }), Signer::PublicKey)),
            403,
            "is not signed by",
        ),
    ];
    for (change, status, expected) in table {
        let answer = me(&site, &fake.job(change));
        assert!(answer.status == status && answer.body.contains(expected), "{expected}: {answer:?}");
        assert!(!answer.body.contains("evil"), "{answer:?}");
    }
    assert_eq!(me(&site, &fake.job(claim("aud", json!(["https://flows.test"])))).status, 200);
    // Made-up keys are looked for once a minute, and tokens of other issuers cause no request.
    let before = fake.count("/keys");
    for kid in ["a", "b", "c"] {
        let token = fake.job(|parts| parts.head["kid"] = json!(kid));
        let answer = me(&site, &token);
        assert!(answer.status == 403 && answer.body.contains("a key that the issuer does not list"), "{answer:?}");
    }
    assert_eq!(fake.count("/keys"), before + 1);
    assert_eq!(me(&site, "eyJhbGciOiJFUzI1NiJ9.e30.AAAA").status, 401);
    // An ID token of a person is none of a machine.
    assert_eq!(me(&site, &fake.token("nonce", |_| {})).status, 403);
    site.end();
}

#[test]
fn the_audience_of_a_token_chooses_among_the_entries_of_one_issuer() {
    let (site, fake) = start();
    let first = fake.machines();
    let second = first.replace("name: ci", "name: deploy").replace("https://flows.test", "https://deploy.test");
    site.write(&(first.clone() + &second));
    for (audience, name) in [("https://flows.test", "ci"), ("https://deploy.test", "deploy")] {
        let answer = me(&site, &fake.job(|parts| parts.claims["aud"] = json!(audience)));
        assert_eq!(answer.json()["token"]["name"], format!("oidc:{name}:{SUBJECT}"), "{answer:?}");
    }
    let other = me(&site, &fake.job(|parts| parts.claims["aud"] = json!("https://other.test")));
    assert!(other.status == 403 && other.body.contains("for another audience"), "{other:?}");
    let why = site.try_write(&(first.clone() + &first.replace("name: ci", "name: deploy"))).unwrap_err();
    assert!(why.contains("no token can tell them apart"), "{why}");
    site.end();
}
