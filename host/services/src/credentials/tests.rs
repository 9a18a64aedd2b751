//! Tests of signatures, settings and places, without a server.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::sync::Arc;

use flowcell_contract::Json;
use hyper::{HeaderMap, Method, header::HeaderValue};

use super::{
    HmacSettings, OAuth2Settings, SecretMembers, Settings, SigV4Settings, Token,
    apply::{Applied, apply, apply_to},
    hmac, read_redirect, sigv4,
};
use crate::{
    client::Message,
    egress::{Destination, Egress, EgressPolicy, OriginGrants},
    redaction::{MAX_INLINE_BYTES, Redaction, SearchBudget},
};

/// 30 August 2015, 12:36:00, the time of the test vectors that AWS has published.
const TIME: u64 = 1_440_938_160_000;

fn to(url: &str) -> Destination {
    let origin = url.split('/').take(3).collect::<Vec<_>>().join("/");
    let grants = OriginGrants::parse(&Json::from(origin)).unwrap();
    Egress::new(EgressPolicy::default()).unwrap().admit(url, &grants).unwrap()
}

fn message(method: Method, mime: Option<&'static str>, body: &'static str) -> Message {
    let mut headers = HeaderMap::new();
    if let Some(mime) = mime {
        headers.insert(hyper::header::CONTENT_TYPE, HeaderValue::from_static(mime));
    }
    Message { method, headers, body: body.into(), reuse: false, run: None, until: None }
}

fn settings(kind: &str, members: &str) -> Result<Settings, String> {
    Settings::parse(kind, serde_json::from_str(members).unwrap())
}

fn secrets(members: &[(&str, &str)]) -> SecretMembers {
    members.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
}

#[test]
fn signatures_of_aws_are_those_of_the_published_vectors_and_of_botocore() {
    let form = Some("application/x-www-form-urlencoded");
    let host = "https://example.amazonaws.com";
    let cases = [
        // From the test suite of AWS: get-vanilla, post-x-www-form-urlencoded, get-vanilla-query-order-key-case.
        (Method::GET, "/", None, "", None, "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
        (
            Method::POST,
            "/",
            form,
            "Param1=value1",
            None,
            "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
        ),
        (
            Method::GET,
            "/?Param2=value2&Param1=value1",
            None,
            "",
            None,
            "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
        ),
        // From botocore.
        (
            Method::GET,
            "/a%20b/c?x=%2F&x=1",
            None,
            "",
            None,
            "f5666a43d846e7d72fb12426b830c64328841ea907297c701e38a827b5d9fa57",
        ),
        (Method::GET, "/a%20b//c", None, "", None, "38716947ba65b7b62d1fac41d2244cf69dad6f76e6fa83456331ce9315514e6f"),
        (
            Method::GET,
            "/",
            None,
            "",
            Some("session-token-of-a-role"),
            "d912ec561650166e2985969e88c6be1e87a1ccd1883fa71383b2fd5923b71270",
        ),
    ];
    let aws = |service: &str| SigV4Settings {
        access_key_id: "AKIDEXAMPLE".into(),
        region: "us-east-1".into(),
        service: service.into(),
    };
    let secret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
    for (method, path, mime, body, session, signature) in cases {
        let (message, to) = (message(method, mime, body), to(&format!("{host}{path}")));
        let signed = sigv4::sign(&aws("service"), (secret, session), &message, &to, TIME);
        assert_eq!(signed.signature, signature, "{path}");
        assert!(signed.headers.contains(&("x-amz-date".into(), "20150830T123600Z".into())));
    }
    let signed = sigv4::sign(
        &aws("s3"),
        (secret, None),
        &message(Method::PUT, Some("text/plain"), "hello"),
        &to("https://bucket.s3.amazonaws.com/a%20b/c"),
        TIME,
    );
    assert_eq!(signed.signature, "cde2b309470dc0ea51d04e372009879be032c93334bf2bf8d8c0ad06e5f2afc5");
}

#[test]
fn a_signature_by_hmac_covers_the_named_parts_and_no_part_can_name_another() {
    let Ok(Settings::Hmac(signed)) = settings(
        "hmac",
        r#"{ "header": "x-signature", "value": "v1={signature}", "message": "{timestamp}.{method}.{target}.{body}",
            "timestampHeader": "x-time" }"#,
    ) else {
        panic!("the settings are right")
    };
    let body = message(Method::POST, None, "{path}");
    let headers = hmac::sign(&signed, "key", &body, &to("https://a.example/x?y=1"), TIME);
    // From `openssl dgst -sha256 -hmac key` of `1440938160.POST./x?y=1.{path}`.
    let expected =
        ring::hmac::sign(&ring::hmac::Key::new(ring::hmac::HMAC_SHA256, b"key"), b"1440938160.POST./x?y=1.{path}");
    assert_eq!(headers.signature, hex::encode(expected));
    let pair = |name: &str, value: String| (name.to_owned(), value);
    assert_eq!(
        headers.headers,
        [pair("x-signature", format!("v1={}", headers.signature)), pair("x-time", "1440938160".into())]
    );
    // RFC 4231, test case 2, and RFC 2202, test case 2.
    let text = message(Method::POST, None, "what do ya want for nothing?");
    let plain = |algorithm, encoding| HmacSettings {
        header: "x".into(),
        value: "{signature}".into(),
        message: "{body}".into(),
        algorithm,
        encoding,
        timestamp_header: None,
    };
    let sign = |settings: HmacSettings| hmac::sign(&settings, "Jefe", &text, &to("https://a.example/"), TIME).signature;
    assert_eq!(
        sign(plain(hmac::Algorithm::Sha256, hmac::Encoding::Hex)),
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
    );
    assert_eq!(sign(plain(hmac::Algorithm::Sha1, hmac::Encoding::Hex)), "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79");
    assert_eq!(
        sign(plain(hmac::Algorithm::Sha256, hmac::Encoding::Base64)),
        "W9zBRr9gdU5qBCQmCJV1x1oAPwidJzmDnexYuWTsOEM="
    );
}

#[test]
fn settings_are_checked_and_their_errors_name_the_member() {
    let wrong = [
        ("cookie", "{}", "the kind is one of"),
        ("bearer", r#"{ "kind": "basic" }"#, "`kind` is not"),
        ("bearer", r#"{ "token": "hunter2-hunter2" }"#, "the kind `bearer` has no setting `token`"),
        ("apiKey", r#"{ "in": "header" }"#, "the kind `apiKey` needs the setting `key`"),
        ("apiKey", r#"{ "in": "header", "key": "host" }"#, "`key`"),
        ("apiKey", r#"{ "in": "header", "key": "x\r\ny" }"#, "`key`"),
        ("apiKey", r#"{ "in": "header", "key": "x", "prefix": "a\r\nb" }"#, "`prefix`"),
        (
            "apiKey",
            r#"{ "in": "cookie", "key": "x" }"#,
            "`in` of the kind `apiKey` must be one of `header`, `query`, `body`",
        ),
        ("apiKey", r#"{ "in": "query", "key": "" }"#, "`key`"),
        ("hmac", r#"{ "header": "x", "message": "{secret}" }"#, "unknown `{`"),
        ("hmac", r#"{ "header": "x", "message": "{body}", "value": "v1" }"#, "`value`"),
        ("hmac", r#"{ "header": "x", "message": "{timestamp}{body}" }"#, "timestampHeader"),
        ("hmac", r#"{ "header": "x", "message": "{body}.{body}" }"#, "`{body}` more than once"),
        ("hmac", r#"{ "header": "x", "message": "{bodySha256}{body}{bodySha256}" }"#, "`{bodySha256}` more than once"),
        ("sigv4", r#"{ "accessKeyId": "a/b", "region": "r", "service": "s" }"#, "`accessKeyId`"),
        (
            "oauth2",
            r#"{ "grant": "password", "tokenUrl": "https://a.example/t", "clientId": "c" }"#,
            "`grant` of the kind `oauth2` must be one of",
        ),
        (
            "oauth2",
            r#"{ "grant": "client_credentials", "tokenUrl": "https://u:p@a.example/t", "clientId": "c" }"#,
            "`tokenUrl`",
        ),
        (
            "oauth2",
            r#"{ "grant": "client_credentials", "tokenUrl": "file:///etc/passwd", "clientId": "c" }"#,
            "`tokenUrl`",
        ),
        (
            "oauth2",
            r#"{ "grant": "authorization_code", "tokenUrl": "https://a.example/t", "clientId": "c" }"#,
            "authorizeUrl",
        ),
        (
            "oauth2",
            r#"{ "grant": "client_credentials", "tokenUrl": "https://a.example/t", "clientId": "c", "params": { "grant_type": "x" } }"#,
            "`grant_type`",
        ),
    ];
    for (kind, members, part) in wrong {
        let error = settings(kind, members).unwrap_err();
        assert!(error.contains(part) && !error.contains("hunter2"), "{members}: {error}");
    }
    let bearer = settings("bearer", "{}").unwrap();
    assert_eq!(Settings::from_text(&bearer.to_text()).unwrap(), bearer);
    for value in ["short", "with a space", "two\nlines-of-text", "schlüssel-schlüssel"] {
        let error = bearer.check_secrets(&secrets(&[("token", value)])).unwrap_err();
        assert!(!error.contains(value), "{error}");
    }
    assert!(bearer.check_secrets(&secrets(&[])).unwrap_err().contains("missing"));
    let both = secrets(&[("token", "hunter2-hunter2"), ("other", "hunter2-hunter2")]);
    assert!(bearer.check_secrets(&both).unwrap_err().contains("no secret `other`"));
    assert!(settings("basic", "{}").unwrap().check_secrets(&secrets(&[("login", "hunter2-hunter2")])).is_err());
}

#[test]
fn a_key_goes_into_a_json_object_or_a_form_and_into_nothing_else() {
    let key = |members: &str| {
        let settings = settings("apiKey", members).unwrap();
        Applied::new("shop".into(), settings, secrets(&[("value", "k&y=1 \"2\" 3")]), None)
    };
    let body = r#"{ "in": "body", "key": "auth" }"#;
    let send = |mime, text, members: &str| {
        let signed =
            apply(&[key(members)], message(Method::POST, Some(mime), text), to("https://a.example/?q=1"), TIME);
        signed.map(|signed| (String::from_utf8(signed.message.body.to_vec()).unwrap(), signed.to.url().to_string()))
    };
    let sent = |mime, text| send(mime, text, body).map(|(body, _)| body);
    assert_eq!(sent("application/json", r#"{"a":1}"#).unwrap(), r#"{"a":1,"auth":"k&y=1 \"2\" 3"}"#);
    assert_eq!(sent("application/vnd.x+json; charset=utf-8", "{}").unwrap(), r#"{"auth":"k&y=1 \"2\" 3"}"#);
    let form = "application/x-www-form-urlencoded";
    assert_eq!(sent(form, "a=1").unwrap(), "a=1&auth=k%26y%3D1+%222%22+3");
    assert_eq!(sent(form, "").unwrap(), "auth=k%26y%3D1+%222%22+3");
    for (mime, text) in [
        ("text/plain", "a"),
        ("application/json", "[1]"),
        ("application/json", "{"),
        ("application/json", r#"{"auth":"mine"}"#),
        (form, "auth=mine"),
        (form, "%61uth=mine"),
    ] {
        let error = sent(mime, text).unwrap_err();
        assert_eq!(error.code, "invalid_input");
        assert!(!error.message.contains("k&y"), "{error:?}");
    }
    let (_, url) = send("text/plain", "", r#"{ "in": "query", "key": "api key" }"#).unwrap();
    assert_eq!(url, "https://a.example/?q=1&api+key=k%26y%3D1+%222%22+3");
}

#[tokio::test]
async fn a_stored_pattern_that_repeats_the_body_signs_nothing() {
    let one = |pattern: &str| -> Arc<[Applied]> {
        let text = format!(r#"{{ "kind": "hmac", "header": "x", "message": "{pattern}" }}"#);
        // Earlier versions stored such patterns, and what is stored is not checked when it is read.
        let settings = Settings::from_text(&text).unwrap();
        Arc::from([Applied::new("shop".into(), settings, secrets(&[("secret", "hunter2-hunter2")]), None)])
    };
    // A large body is signed on another thread, with the same result.
    let large: &'static str = "x".repeat(MAX_INLINE_BYTES + 1).leak();
    let send = async |pattern: &str, body| {
        let signed = apply_to(&one(pattern), message(Method::POST, None, body), to("https://a.example/"), TIME).await;
        signed.map(|signed| signed.message.headers.get("x").unwrap().to_str().unwrap().to_owned())
    };
    for body in ["small", large] {
        let refused = send(&"{body}".repeat(166), body).await.unwrap_err();
        assert_eq!(refused.code, "denied");
        assert!(refused.message.contains("`shop`: `message` has `{body}` more than once"), "{refused:?}");
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, b"hunter2-hunter2");
        let text = format!("a.{}.{body}", hmac::sha256_hex(body.as_bytes()));
        let expected = hex::encode(ring::hmac::sign(&key, text.as_bytes()));
        assert_eq!(send("a.{bodySha256}.{body}", body).await.unwrap(), expected);
    }
}

#[tokio::test]
async fn a_short_user_name_beside_a_password_is_no_secret() {
    let one = Applied::new("shop".into(), settings("basic", "{}").unwrap(), secrets(&[("login", "ada:hunter2")]), None);
    let redaction = Redaction::new(one.keys(), SearchBudget::default());
    assert_eq!(redaction.text("ada has hunter2, ada:hunter2").await, "ada has [key], [key]");
}

#[tokio::test]
async fn every_secret_of_a_kind_is_redacted() {
    let aws = r#"{ "accessKeyId": "AKID", "region": "r", "service": "s" }"#;
    type Secrets = &'static [(&'static str, &'static str)];
    let cases: [(&str, &str, Secrets); 5] = [
        ("bearer", "{}", &[("token", "hunter2-hunter2")]),
        // The key is the user name, and there is a password, too.
        ("basic", "{}", &[("login", "hunter2-hunter2:x")]),
        ("basic", "{}", &[("login", "ada:hunter2-hunter2")]),
        ("basic", "{}", &[("login", "hunter2-hunter2:")]),
        ("sigv4", aws, &[("secretAccessKey", "another-secret"), ("sessionToken", "hunter2-hunter2")]),
    ];
    for (kind, members, all) in cases {
        let one = Applied::new("shop".into(), settings(kind, members).unwrap(), secrets(all), None);
        let signed = apply(&[one], message(Method::GET, None, ""), to("https://a.example/"), TIME).unwrap();
        let sent: Vec<_> = signed.message.headers.values().map(|value| value.to_str().unwrap().to_owned()).collect();
        let redaction = Redaction::new(signed.keys, SearchBudget::default());
        for text in sent.into_iter().chain(["hunter2-hunter2".into(), "x=hunter2%2Dhunter2".into()]) {
            let shown = redaction.text(&text).await;
            assert!(!shown.contains("hunter2") && !shown.contains("aHVudGVyMi"), "{kind}: {shown}");
        }
        let signature = signed.message.headers.get("authorization").unwrap().to_str().unwrap();
        if kind == "sigv4" {
            let signature = signature.split("Signature=").nth(1).unwrap();
            assert!(!redaction.text(signature).await.contains(signature));
        }
    }
}

#[test]
fn a_token_is_renewed_before_its_end() {
    let at = |seconds| Token::new("a".into(), None, seconds, 1_000).renew_at;
    assert_eq!(
        (at(None), at(Some(3600)), at(Some(20)), at(Some(0))),
        (None, Some(3_571_000), Some(11_000), Some(1_000))
    );
    assert_eq!(at(Some(u64::MAX)), Some(u64::MAX - 29_000), "nothing overflows");
    let token = Token::new("access-token".into(), Some(("refresh-token".into(), Some(60))), None, 0);
    assert_eq!(Token::from_members(&token.to_members(), Some(0), None, token.lifetime).unwrap(), token);
    assert!(!format!("{token:?}{:?}", token.to_members()).contains("access-token"));
}

#[test]
fn an_authorization_has_a_challenge_and_only_its_own_answer_counts() {
    let settings: OAuth2Settings = serde_json::from_str(
        r#"{ "grant": "authorization_code", "tokenUrl": "https://a.example/t", "clientId": "c d", "scope": "x y",
            "authorizeUrl": "https://a.example/auth?prompt=consent" }"#,
    )
    .unwrap();
    let url = settings.authorize_at("http://127.0.0.1:7/callback", "st", "a-challenge").unwrap();
    for part in [
        "https://a.example/auth?prompt=consent&response_type=code&client_id=c+d",
        "redirect_uri=http%3A%2F%2F127.0.0.1%3A7%2Fcallback",
        "state=st",
        "code_challenge=a-challenge&code_challenge_method=S256",
        "scope=x+y",
    ] {
        assert!(url.contains(part), "{url}");
    }
    let set = |query: &str| {
        let members = r#"{ "grant": "authorization_code", "tokenUrl": "https://a.example/t?state=1", "clientId": "c",
            "authorizeUrl": "https://a.example/auth?QUERY", "clientAuth": "none", "params": { "audience": "a" } }"#;
        self::settings("oauth2", &members.replace("QUERY", query))
    };
    assert!(set("prompt=consent&scopes=x").is_ok());
    for query in
        ["state=x", "redirect_uri=https://evil.example", "a=b&client%5fid=x", "scope=", "code_challenge", "audience=b"]
    {
        assert!(set(query).unwrap_err().contains("`authorizeUrl` has the parameter"), "{query}");
    }
    // A credential that an older version has stored.
    let older = settings.authorize_url.clone().map(|url| format!("{url}&client_id=x"));
    let older = OAuth2Settings { authorize_url: older, ..settings };
    let refused = older.authorize_at("http://127.0.0.1:7/callback", "st", "a-challenge").unwrap_err();
    assert!(refused.contains("`authorizeUrl` has the parameter `client_id`"), "{refused}");
    let read = |target: &str| read_redirect(target, "/callback", "st");
    assert_eq!(read("/callback?code=c%2F1&state=st"), Some(Ok("c/1".into())));
    for other in [
        "/callback?code=c",
        "/callback?code=c&state=other",
        "/callback?code=c&state=st&state=st",
        "/callback?code=a&code=b&state=st",
        "/callback?state=st",
        "/callback?code=&state=st",
        "/favicon.ico?code=c&state=st",
        "//evil.example/callback?code=c&state=st",
        "",
    ] {
        assert_eq!(read(other), None, "{other}");
    }
    assert_eq!(read("/callback?error=access_denied%1b[31m&state=st"), Some(Err("access_denied[31m".into())));
}
