//! Tests issuers that answer wrongly, and requests that are made up.

use serde_json::{Value, json};

use super::{
    USERS,
    fake::{Fake, Parts, Signer},
    refused,
    site::Site,
    visitor::{Visitor, query},
};
use crate::client::{Answer, ask};

impl Fake {
    fn issuer(&self, rest: &str) -> String {
        let origin = self.server.origin();
        format!(
            "- name: fake\n  issuer: {origin}\n  clientId: flowcell\n  allowPrivate: true\n  rules: [{USERS}]\n{rest}"
        )
    }
}

/// Signs in with a token whose parts a test changes.
fn sign_in(site: &Site, fake: &Fake, visitor: &mut Visitor, change: impl FnOnce(&mut Parts)) -> Answer {
    let begun = visitor.go(&site.url("/console/sign-in/fake"));
    let location = begun.header("location").unwrap_or_else(|| panic!("{begun:?}"));
    fake.set_token(&query(location, "nonce"), change);
    let state = query(location, "state");
    visitor.open(&site.url(&format!("/console/sign-in/callback?state={state}&code=any")))
}

#[test]
fn wrong_tokens_are_refused() {
    let (site, fake) = (Site::start(&["acme"]), Fake::start());
    site.write(&fake.issuer(""));
    let signed = |change: fn(&mut Value)| move |parts: &mut Parts| change(&mut parts.claims);
    let head = |change: fn(&mut Value)| move |parts: &mut Parts| change(&mut parts.head);
    fn late(claims: &mut Value, member: &str, seconds: i64) {
        claims[member] = json!(claims["iat"].as_i64().unwrap() + seconds);
    }
    type Change = Box<dyn FnOnce(&mut Parts)>;
    let table: Vec<(Change, &str)> = vec![
        (Box::new(signed(|claims| claims["aud"] = json!("other"))), "for another client"),
        (Box::new(signed(|claims| claims["aud"] = json!(["flowcell", "other"]))), "for another client"),
        (Box::new(signed(|claims| claims["azp"] = json!("other"))), "for another client"),
        (Box::new(signed(|claims| claims["aud"] = json!([]))), "for another client"),
        (Box::new(signed(|claims| claims["nonce"] = json!("other"))), "another sign-in"),
        (Box::new(signed(|claims| drop(claims.as_object_mut().unwrap().remove("nonce")))), "another sign-in"),
        (Box::new(signed(|claims| claims["iss"] = json!("https://evil.test"))), "of another issuer"),
        (Box::new(signed(|claims| late(claims, "exp", -61))), "has expired"),
        (Box::new(signed(|claims| claims["exp"] = json!("9999999999"))), "has expired"),
        (Box::new(signed(|claims| drop(claims.as_object_mut().unwrap().remove("exp")))), "has expired"),
        (Box::new(signed(|claims| late(claims, "nbf", 120))), "not valid yet"),
        (Box::new(signed(|claims| late(claims, "iat", 120))), "not valid yet"),
        (Box::new(signed(|claims| claims["sub"] = json!(""))), "needs a `sub`"),
        (Box::new(signed(|claims| claims["sub"] = json!("a\nb"))), "needs a `sub`"),
        (Box::new(signed(|claims| claims["sub"] = json!("a".repeat(256)))), "needs a `sub`"),
        (Box::new(signed(|claims| claims["sub"] = json!(["ada"]))), "needs a `sub`"),
        (Box::new(head(|head| head["kid"] = json!("other"))), "a key that the issuer does not list"),
        (Box::new(head(|head| head["kid"] = json!("shared"))), "a key that the issuer does not list"),
        (Box::new(head(|head| head["crit"] = json!(["exp"]))), "critical extensions"),
        (Box::new(head(|head| head["alg"] = json!("RS256"))), "a key that the issuer does not list"),
        (Box::new(|parts| parts.signer = Signer::Other), "a wrong signature"),
        (Box::new(|parts| parts.signer = Signer::Nobody), "a wrong signature"),
        (
            Box::new(|parts| {
                (parts.head, parts.signer) = (json!({ "alg": "HS256", "kid": "own" }), Signer::PublicKey);
            }),
            "is not signed by RS256",
        ),
        (
            Box::new(|parts| (parts.head, parts.signer) = (json!({ "alg": "none" }), Signer::Nobody)),
            "is not signed by RS256",
        ),
        (Box::new(signed(|claims| claims["pad"] = json!("x".repeat(70_000)))), "larger than 64 KiB"),
    ];
    for (change, expected) in table {
        let mut visitor = Visitor::default();
        let answer = sign_in(&site, &fake, &mut visitor, change);
        refused(&site, &visitor, &answer, 403, "sign_in_refused", expected);
    }
    for change in [
        signed(|_| {}),
        signed(|claims| claims["aud"] = json!(["flowcell"])),
        signed(|claims| {
            claims["aud"] = json!(["other", "flowcell"]);
            claims["azp"] = json!("flowcell");
        }),
        signed(|claims| late(claims, "exp", -30)),
    ] {
        let mut visitor = Visitor::default();
        let answer = sign_in(&site, &fake, &mut visitor, change);
        assert_eq!((answer.status, site.me(&visitor).status), (200, 200), "{answer:?}");
    }
    let mut visitor = Visitor::default();
    let answer = sign_in(&site, &fake, &mut visitor, head(|head| drop(head.as_object_mut().unwrap().remove("kid"))));
    assert_eq!(answer.status, 200, "one key alone fits: {answer:?}");
    site.end();
}

#[test]
fn an_issuer_that_answers_wrongly_is_not_used() {
    let (site, fake) = (Site::start(&["acme"]), Fake::start());
    type Change = fn(&mut Value);
    let table: [(Change, &str); 6] = [
        (|metadata| metadata["issuer"] = json!("https://evil.test"), "`issuer` must be exactly the same"),
        (
            |metadata| metadata["issuer"] = json!(format!("{}/", metadata["issuer"].as_str().unwrap())),
            "exactly the same",
        ),
        (|metadata| metadata["token_endpoint"] = json!("http://login.test/token"), "`token_endpoint` must begin with"),
        (|metadata| drop(metadata.as_object_mut().unwrap().remove("jwks_uri")), "not the expected JSON"),
        (|metadata| metadata["pad"] = json!("x".repeat(1 << 20)), "larger than 1024 KiB"),
        (|metadata| *metadata = json!([]), "not the expected JSON"),
    ];
    for (change, expected) in table {
        fake.set_metadata(change);
        site.write(&fake.issuer(""));
        let answer = Visitor::default().go(&site.url("/console/sign-in/fake"));
        refused(&site, &Visitor::default(), &answer, 503, "issuer_unavailable", expected);
    }
    // A failure is remembered for a moment, so that a queue of people is no load for the issuer.
    let before = fake.server.seen().len();
    assert_eq!(Visitor::default().go(&site.url("/console/sign-in/fake")).status, 503);
    assert_eq!(fake.server.seen().len(), before);
    // Without leave, the address of this machine is private.
    fake.set_metadata(|_| {});
    site.write(&fake.issuer("").replace("  allowPrivate: true\n", ""));
    let answer = Visitor::default().go(&site.url("/console/sign-in/fake"));
    refused(&site, &Visitor::default(), &answer, 503, "issuer_unavailable", "is not a public address");
    site.end();
}

#[test]
fn made_up_requests_reach_no_issuer() {
    let (site, fake) = (Site::start(&["acme"]), Fake::start());
    site.write(&fake.issuer(""));
    let name = format!("flowcell_{}_sign_in", site.address.port());
    let signed = Visitor::default().go(&site.url("/console/sign-in/fake"));
    let cookie = signed.header("set-cookie").unwrap().split_once(';').unwrap().0.to_owned();
    let before = fake.server.seen().len();
    let values =
        [String::new(), "x".into(), "e30.AAAA".into(), "x".repeat(5_000), format!("{}A", &cookie[name.len() + 1..])];
    for value in values {
        let path = "/console/sign-in/callback?state=a&code=b";
        let answer = ask(site.address, "GET", path, &[("Cookie", &format!("{name}={value}"))], "");
        assert_eq!(answer.status, 400, "{answer:?}");
    }
    for (path, status, code) in [
        ("/console/sign-in/callback", 400, "sign_in_state"),
        ("/console/sign-in/other", 404, "issuer_not_found"),
        ("/console/sign-in/%2e%2e", 404, "issuer_not_found"),
        (&format!("/console/sign-in/callback?state={}", "x".repeat(5_000)), 400, "bad_request"),
    ] {
        let answer = ask(site.address, "GET", path, &[("Cookie", &cookie)], "");
        assert!(answer.status == status && answer.body.contains(code), "{path}: {answer:?}");
    }
    // A name of this machine that the operator has not listed is no address for a callback.
    let host = format!("localhost:{}", site.address.port());
    let answer = ask(site.address, "GET", "/console/sign-in/fake", &[("Host", &host)], "");
    let shown = answer.body.contains("sign_in_origin") && answer.body.contains(&site.url("/console"));
    assert!(answer.status == 403 && shown, "{answer:?}");
    // Pages of other sites put no part of it into a frame.
    let frame = [("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "navigate"), ("Sec-Fetch-Dest", "iframe")];
    assert_eq!(ask(site.address, "GET", "/console/sign-in/fake", &frame, "").fault(), (403, "foreign_site".into()));
    assert_eq!(fake.server.seen().len(), before, "the issuer was asked");

    // The page that follows is always one of the console.
    let mut visitor = Visitor::default();
    let begun = visitor.go(&site.url("/console/sign-in/fake?next=//evil.test/console"));
    let location = begun.header("location").unwrap();
    fake.set_token(&query(location, "nonce"), |_| {});
    let state = query(location, "state");
    let done = visitor.open(&site.url(&format!("/console/sign-in/callback?state={state}&code=any")));
    assert!(done.status == 200 && done.body.contains(r#"content="0; url=/console""#), "{done:?}");
    // A file that cannot be read leaves the earlier issuers in force.
    let why = site.try_write("- name: a/b\n").unwrap_err();
    assert!(why.contains("the earlier issuers of the sign-in stay in force"), "{why}");
    assert_eq!(visitor.go(&site.url("/console/sign-in/fake")).status, 303);
    site.end();
}
