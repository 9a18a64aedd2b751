//! Tests the schemes of webhooks at a server: the posts of known senders start one run each, and the refusals of
//! unknown senders reveal nothing.

use std::{fs, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use flowcell_server::{Limits, identity::Local};
use ring::{
    hmac,
    signature::{Ed25519KeyPair, KeyPair},
};

use crate::{
    client::Served,
    triggers::{
        hooks::{SECRET, count_runs, json_of, now, post},
        household::{builder, write},
    },
};

const HOOKS: &str = "{ id: github, webhook: { secret: [old-key, key], scheme: github } }, \
    { id: gitlab, webhook: { secret: key, scheme: gitlab } }, \
    { id: stripe, webhook: { secret: stripe-key, scheme: stripe } }, \
    { id: slack, webhook: { secret: key, scheme: slack } }, \
    { id: command, webhook: { secret: key, scheme: slack, id: { pointer: /trigger_id } } }, \
    { id: shopify, webhook: { secret: key, scheme: shopify } }, \
    { id: discord, webhook: { secret: discord-key, scheme: discord } }, \
    { id: answers, webhook: { secret: discord-key, scheme: discord, respond: outputs } }, \
    { id: mistaken, webhook: { secret: key, scheme: discord } }, \
    { id: hmac, webhook: { secret: key, scheme: hmac, header: X-Sum, algorithm: sha512, id: { header: X-Id } } }, \
    { id: basic, webhook: { secret: key, scheme: basic, user: me, id: { pointer: /id } } }, \
    { id: bearer, webhook: { secret: key, scheme: bearer, id: { pointer: /id } } }, \
    { id: open, webhook: { secret: key, scheme: bearer } }";

/// A secret that would be invalid base64 for Standard Webhooks, and that fits into no header.
const STRIPE_SECRET: &str = "whsec_no base64, \u{fc}";

fn serve() -> Served {
    let folder = tempfile::tempdir().unwrap();
    let secrets = folder.path().join("secrets.yaml");
    fs::write(folder.path().join("key"), SECRET).unwrap();
    fs::write(folder.path().join("stripe-key"), STRIPE_SECRET).unwrap();
    fs::write(folder.path().join("discord-key"), hex::encode(discord_key().public_key())).unwrap();
    let known =
        ["key", "stripe-key", "discord-key"].map(|name| format!("{name}: {{ keyFile: {name}, for: webhook }}\n"));
    fs::write(&secrets, known.concat()).unwrap();
    write(folder.path(), "posted", HOOKS);
    let host = builder().state_dir(folder.path()).secrets_file(secrets).build().unwrap();
    let served = Served::over(host, folder, Arc::new(Local), Limits::default());
    assert_eq!(served.get("/v1/triggers").json()["triggers"].as_array().unwrap().len(), 13);
    served
}

fn sign(algorithm: hmac::Algorithm, secret: &str, signed: &str) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(algorithm, secret.as_bytes()), signed.as_bytes()).as_ref().to_vec()
}

/// Returns the key pair of an application. Flowcell knows the public key alone.
fn discord_key() -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap()
}

fn hex_of(secret: &str, signed: &str) -> String {
    hex::encode(sign(hmac::HMAC_SHA256, secret, signed))
}

/// Returns the headers of a post that its sender has signed. The first proves who the sender is.
fn headers(hook: &str, body: &str) -> Vec<(&'static str, String)> {
    let now = now();
    let slack = || {
        let signature = format!("v0={}", hex_of(SECRET, &format!("v0:{now}:{body}")));
        vec![("X-Slack-Signature", signature), ("X-Slack-Request-Timestamp", now.to_string())]
    };
    match hook {
        "github" => vec![
            ("X-Hub-Signature-256", format!("sha256={}", hex_of(SECRET, body))),
            ("X-GitHub-Delivery", "the-id".into()),
            ("X-GitHub-Event", "push".into()),
        ],
        "gitlab" => vec![("X-Gitlab-Token", SECRET.into()), ("Idempotency-Key", "the-id".into())],
        "stripe" => {
            let signature = hex_of(STRIPE_SECRET, &format!("{now}.{body}"));
            vec![("Stripe-Signature", format!("t={now},v1={},v1={signature}", "00".repeat(32)))]
        }
        "slack" => slack(),
        "command" => [slack(), vec![("Content-Type", "application/x-www-form-urlencoded".into())]].concat(),
        "shopify" => vec![
            ("X-Shopify-Hmac-SHA256", STANDARD.encode(sign(hmac::HMAC_SHA256, SECRET, body))),
            ("X-Shopify-Webhook-Id", "the-id".into()),
        ],
        "discord" | "answers" | "mistaken" => {
            let signature = discord_key().sign(format!("{now}{body}").as_bytes());
            vec![("X-Signature-Ed25519", hex::encode(signature)), ("X-Signature-Timestamp", now.to_string())]
        }
        "hmac" => {
            vec![("X-Sum", hex::encode(sign(hmac::HMAC_SHA512, SECRET, body))), ("X-Id", "the-id".into())]
        }
        "basic" => vec![("Authorization", format!("Basic {}", STANDARD.encode(format!("me:{SECRET}"))))],
        _ => vec![("Authorization", format!("Bearer {SECRET}"))],
    }
}

fn path(hook: &str) -> String {
    format!("/v1/hooks/local/posted/{hook}")
}

#[test]
fn h7_posts_of_each_scheme_start_one_run_and_others_none() {
    let served = serve();
    let json = r#"{"id":"the-id","event_id":"the-id"}"#;
    let cases = [
        ("github", json),
        ("gitlab", json),
        ("stripe", json),
        ("slack", json),
        ("command", "command=%2Fsay&trigger_id=the-id&text=a+b&text=c"),
        ("shopify", json),
        ("hmac", json),
        ("basic", json),
        ("bearer", json),
    ];
    for (index, (hook, body)) in cases.into_iter().enumerate() {
        let good = headers(hook, body);
        let mut wrong = good.clone();
        wrong[0].1.pop();
        for (case, headers) in
            [("wrong", wrong), ("missing", good[1..].to_vec()), ("twice", [&good[..1], &good[..]].concat())]
        {
            let refused = post(&served, &path(hook), &headers, body);
            assert_eq!(refused.fault(), (401, "unsigned".into()), "{hook}: {case}");
            // A trigger of its own, so that the limit of refused posts is not reached.
            let nothing = post(&served, &path(&format!("none-{hook}")), &headers, body);
            assert_eq!(refused.body, nothing.body, "{hook}: {case} reveals that the trigger exists");
            let neutral =
                String::from_utf8_lossy(refused.body.as_ref()).contains("the log of the server has the reason");
            assert!(neutral, "{hook}: {case} names another cause");
        }
        assert_eq!(count_runs(&served), index, "{hook}");
        let first = post(&served, &path(hook), &good, body);
        assert_eq!(first.status, 202, "{hook}: {first:?}");
        let again = post(&served, &path(hook), &headers(hook, body), body);
        assert_eq!((again.status, &again.json()["runId"]), (200, &first.json()["runId"]), "{hook}");
        assert_eq!(count_runs(&served), index + 1, "{hook}");
        let run = json_of(&served, first.json()["runId"].as_str().unwrap());
        let trigger = &run["outputs"]["say"]["value"];
        assert_eq!(trigger["messageId"], "the-id", "{hook}: {run}");
        match hook {
            "command" => {
                assert_eq!(trigger["body"]["text"], serde_json::json!(["a b", "c"]), "{run}");
                assert_eq!(trigger["body"]["command"], "/say", "{run}");
            }
            _ => assert_eq!(trigger["body"]["id"], "the-id", "{hook}: {run}"),
        }
        let event = if hook == "github" { serde_json::json!("push") } else { serde_json::Value::Null };
        assert_eq!(trigger["event"], event, "{hook}: {run}");
    }
}

#[test]
fn h7_posts_of_discord_are_verified_with_a_public_key_and_answered_as_it_expects() {
    let served = serve();
    let send = |hook: &str, body: &str| post(&served, &path(hook), &headers(hook, body), body);
    let ping = send("discord", r#"{"version":1,"type":0}"#);
    assert_eq!((ping.status, &*ping.body, ping.header("content-type")), (204, "", Some("application/json")));
    let ping = send("discord", r#"{"id":"1","type":1}"#);
    assert_eq!((ping.status, ping.json()), (200, serde_json::json!({ "type": 1 })));
    let forged = post(&served, &path("discord"), &headers("discord", "{}"), r#"{"version":1,"type":0}"#);
    assert_eq!(forged.fault(), (401, "unsigned".into()), "a test of the address needs its signature, too");
    assert_eq!(count_runs(&served), 0);
    // An event has no id. A repeated one has the same body and another signature.
    let event =
        r#"{"version":1,"type":1,"event":{"type":"ENTITLEMENT_CREATE","timestamp":"2024-10-18T14:42:53.064834"}}"#;
    for _ in 0..2 {
        let taken = send("discord", event);
        assert_eq!((taken.status, &*taken.body), (204, ""), "{taken:?}");
    }
    assert_eq!(count_runs(&served), 1);
    let other = send("discord", &event.replace("CREATE", "DELETE"));
    assert_eq!((other.status, count_runs(&served)), (204, 2));
    // An interaction is answered by its run.
    let answered = send("answers", r#"{"id":"2","type":2}"#);
    assert_eq!((answered.status, &answered.json()["say"]["value"]["messageId"]), (200, &serde_json::json!("2")));
    // A secret that is no public key fits no post.
    assert_eq!(send("mistaken", event).fault(), (401, "unsigned".into()));
}

#[test]
fn h7_the_same_id_with_another_body_is_a_conflict_unless_deliveries_differ() {
    let served = serve();
    let bodies = [r#"{"id":"the-id","pending_webhooks":2}"#, r#"{"id":"the-id","pending_webhooks":1}"#];
    for (hook, status) in [("bearer", 409), ("github", 409), ("stripe", 200)] {
        let [first, second] = bodies.map(|body| post(&served, &path(hook), &headers(hook, body), body));
        assert_eq!((first.status, second.status), (202, status), "{hook}: {second:?}");
    }
    assert_eq!(count_runs(&served), 3);
}

#[test]
fn tests_of_the_address_are_answered_after_the_proof_and_start_nothing() {
    let served = serve();
    let body = r#"{"type":"url_verification","challenge":"3eZbrw1aBm2r"}"#;
    assert_eq!(post(&served, &path("slack"), &headers("slack", "{}"), body).fault(), (401, "unsigned".into()));
    let answer = post(&served, &path("slack"), &headers("slack", body), body);
    assert_eq!((answer.status, answer.json()), (200, serde_json::json!({ "challenge": "3eZbrw1aBm2r" })));
    let mut ping = headers("github", "{}");
    ping[2].1 = "ping".into();
    assert_eq!(post(&served, &path("github"), &ping, "[]").fault(), (401, "unsigned".into()));
    let answer = post(&served, &path("github"), &ping, "{}");
    assert_eq!((answer.status, answer.json()), (200, serde_json::json!({})));
    assert_eq!(count_runs(&served), 0);
}

#[test]
fn known_senders_learn_what_is_wrong_with_a_post() {
    let served = serve();
    let github = |body: &str, without: &str, more: &[(&'static str, &str)]| {
        let mut headers = headers("github", body);
        headers.retain(|(name, _)| *name != without);
        headers.extend(more.iter().map(|(name, value)| (*name, (*value).to_owned())));
        post(&served, &path("github"), &headers, body)
    };
    let missing = github("{}", "X-GitHub-Delivery", &[]);
    assert_eq!(missing.fault(), (400, "bad_request".into()));
    assert!(missing.body.contains("`X-GitHub-Delivery` is missing"), "{missing:?}");
    let twice = github("{}", "", &[("X-GitHub-Delivery", "other")]);
    assert_eq!(twice.fault(), (400, "bad_request".into()));
    let mixed = github("--x--", "", &[("Content-Type", "multipart/mixed; boundary=x")]);
    assert_eq!(mixed.fault(), (415, "unsupported_media_type".into()));
    let torn = github("--x\r\n", "", &[("Content-Type", "multipart/form-data; boundary=x")]);
    assert_eq!(torn.fault(), (400, "bad_request".into()));
    let many = format!("{}--x--\r\n", "--x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n".repeat(1_001));
    let many = github(&many, "", &[("Content-Type", "multipart/form-data; boundary=x")]);
    assert!(many.fault().0 == 400 && many.body.contains("more than 1000 parts"), "{many:?}");
    let odd = part("x", "a", "..", "bytes") + "--x--\r\n";
    let odd = github(&odd, "", &[("Content-Type", "multipart/form-data; boundary=x")]);
    assert!(odd.fault().0 == 400 && odd.body.contains("the part `a`"), "{odd:?}");
    let large = format!(r#"{{"id":"{}"}}"#, "1".repeat(1_000_000));
    for body in ["not JSON", "{}", r#"{"id":""}"#, r#"{"id":{}}"#, large.as_str()] {
        let answer = post(&served, &path("stripe"), &headers("stripe", body), body);
        assert_eq!(answer.fault(), (400, "bad_request".into()), "{body:.40}");
        assert!(answer.body.contains("`/id`") && answer.body.len() < 1_000, "{answer:?}");
    }
    assert_eq!(count_runs(&served), 0);
}

/// Returns a part of a body with a file.
fn part(boundary: &str, name: &str, file: &str, text: &str) -> String {
    format!(
        "--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"{file}\"\r\n\
         Content-Type: text/plain\r\n\r\n{text}\r\n"
    )
}

#[test]
fn a_body_of_several_parts_gives_texts_and_files_and_counts_once() {
    let served = serve();
    // Another delivery has another boundary.
    let send = |boundary: &str, text: &str| {
        let parts = part(boundary, "photo", "a.txt", text);
        let field = format!("--{boundary}\r\nContent-Disposition: form-data; name=\"title\"\r\n\r\nA b\r\n");
        let body = format!("{parts}{field}--{boundary}--\r\n");
        let kind = ("Content-Type", format!("multipart/form-data; boundary={boundary}"));
        post(&served, &path("github"), &[headers("github", &body), vec![kind]].concat(), &body)
    };
    let first = send("x", "bytes of a file");
    assert_eq!(first.status, 202, "{first:?}");
    let again = send("other", "bytes of a file");
    assert_eq!((again.status, &again.json()["runId"]), (200, &first.json()["runId"]), "{again:?}");
    assert_eq!(send("x", "other bytes").fault(), (409, "webhook_conflict".into()));
    let run = json_of(&served, first.json()["runId"].as_str().unwrap());
    let body = &run["outputs"]["say"]["value"]["body"];
    assert_eq!((&body["title"], &body["photo"]["name"]), (&"A b".into(), &"a.txt".into()), "{run}");
    assert_eq!((&body["photo"]["kind"], &body["photo"]["size"]), (&"file".into(), &15.into()), "{run}");
    assert!(!run.to_string().contains("bytes of a file"), "{run}");
}

#[test]
fn each_post_without_an_id_starts_a_run() {
    let served = serve();
    let body = r#"{"a":1}"#;
    let answers = [(); 2].map(|()| post(&served, &path("open"), &headers("open", body), body));
    assert!(answers.iter().all(|answer| answer.status == 202), "{answers:?}");
    assert_ne!(answers[0].json()["runId"], answers[1].json()["runId"]);
    assert_eq!(count_runs(&served), 2);
}
