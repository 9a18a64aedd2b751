//! API keys: their sources, and that no output contains them.

use std::{path::Path, sync::Arc};

use flowcell_contract::Failure;
use flowcell_services::model::Providers;
use serde_json::json;

use crate::models::kit::{DIALECTS, KEY, Kit, playing};

/// A key that cannot be confused with other text.
const CANARY: &str = "sk-canary/5+x=";

fn shown(failure: &Failure) -> String {
    format!("{failure:?} {failure} {}", failure.to_json())
}

fn hides(text: &str) -> bool {
    // Plain, in base64, and percent-encoded.
    !["sk-canary", "c2stY2FuYXJ5LzUreD0", "sk-canary%2F5%2Bx%3D"].iter().any(|form| text.contains(form))
}

#[tokio::test]
async fn a_key_that_a_provider_repeats_is_in_no_failure() {
    let said = format!("bad key {CANARY}, c2stY2FuYXJ5LzUreD0=, sk-canary%2F5%2Bx%3D");
    for dialect in DIALECTS {
        for status in [400, 401, 403, 429, 500] {
            let fault = json!({ "status": { "status": status, "message": said, "code": said } });
            let mut fake_turns = json!({ "key": CANARY, "turns": [{ "fault": fault, "repeat": true }] });
            if status == 401 {
                // The server itself repeats the key that it refuses.
                fake_turns["key"] = json!("another");
            }
            let fake = flowcell_modelfake::Fake::start(fake_turns).await.unwrap();
            let kit = Kit::with_fake(&fake, dialect, json!({}));
            let kit = Kit { model: kit.model.clone().with_environment(Arc::new(|_| Some(CANARY.into()))), ..kit };
            let failure = kit.ask("hi").await.unwrap_err();
            assert!(hides(&shown(&failure)), "{dialect} {status} {}", shown(&failure));
            assert!(hides(&format!("{:?}", kit.told.lock().unwrap())));
            assert!(hides(&format!("{:?}", kit.model.providers())));
            assert!(status == 401 || failure.message.contains("[key]"), "{failure}");
        }
    }
}

#[tokio::test]
async fn n24_a_key_is_in_no_reply_and_no_event() {
    let said = format!("it is {CANARY}, c2stY2FuYXJ5LzUreD0=, sk-canary%2F5%2Bx%3D and sk-canary\\u002f5\\u002Bx=");
    for dialect in DIALECTS {
        let turns = json!({ "key": CANARY, "turns": [{ "reply": { "text": said } }] });
        let fake = flowcell_modelfake::Fake::start(turns).await.unwrap();
        let kit = Kit::with_fake(&fake, dialect, json!({}));
        let kit = Kit { model: kit.model.clone().with_environment(Arc::new(|_| Some(CANARY.into()))), ..kit };
        let reply = kit.ask("hi").await.unwrap();
        let shown = reply.to_string();
        assert!(hides(&shown) && shown.contains("it is [key], [key]"), "{dialect}: {shown}");
        let told = kit.told.lock().unwrap().clone();
        let told: String = told.iter().filter_map(|(_, data)| data.get("delta")?.as_str()).collect();
        assert!(hides(&told) && told.contains("[key]"), "{dialect}: {told}");
    }
}

#[tokio::test]
async fn a_key_is_read_at_each_call() {
    let folder = tempfile::tempdir().unwrap();
    let fake = playing(json!([{ "reply": { "text": "a" } }, { "reply": { "text": "b" } }])).await;
    let profile = json!({ "dialect": "chat", "baseUrl": fake.url("/v1"), "keyFile": "key.txt", "model": "m",
        "allowPrivate": ["127.0.0.1"] });
    let text = json!({ "default": "p", "profiles": { "p": profile } }).to_string();
    let kit = Kit::of(Providers::parse(&text, folder.path()).unwrap());
    let failure = kit.ask("hi").await.unwrap_err();
    assert_eq!((failure.code.as_str(), failure.retryable), ("model_auth", false));
    assert!(
        failure.message.contains("key.txt") && !failure.message.contains(&*folder.path().to_string_lossy()),
        "{failure}"
    );
    let contents: [(&[u8], bool); 6] = [
        (b"", false),
        (b"two words", false),
        (b"\xff", false),
        ("ü".as_bytes(), false),
        (b"test-key\n", true),
        (b"  test-key", true),
    ];
    for (content, good) in contents {
        std::fs::write(folder.path().join("key.txt"), content).unwrap();
        let outcome = kit.ask("hi").await;
        assert_eq!(outcome.is_ok(), good, "{content:?} {outcome:?}");
    }
}

#[tokio::test]
async fn the_failure_names_a_missing_variable() {
    let kit = Kit::configured(&json!({ "profiles": { "anthropic": { "model": "m" } } }));
    let failure = kit.ask("hi").await.unwrap_err();
    assert_eq!(failure.code, "model_auth");
    assert!(failure.message.contains("ANTHROPIC_API_KEY: it is not set"), "{failure}");
}

#[tokio::test]
async fn the_log_of_the_fake_has_no_keys_either() {
    let fake = playing(json!([{ "reply": { "text": "a" } }])).await;
    Kit::with_fake(&fake, "messages", json!({})).ask("hi").await.unwrap();
    assert!(!format!("{:?}", fake.requests()).contains(KEY));
    assert!(Providers::parse("{}", Path::new("")).is_ok());
}
