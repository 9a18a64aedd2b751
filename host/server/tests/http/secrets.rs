//! A tenant's own secrets over HTTP: written, and never read.

use std::io::BufReader;

use base64::{Engine, engine::general_purpose::STANDARD};
use flowcell_platform::{policy::Policy, triggers::post_limiter::MAX_REFUSED_POSTS};
use serde_json::{Value, json};

use crate::{
    client::{ask, connect_from, read, send},
    doors::hook_signed_by,
    tenants::{call, served},
};

const VALUE: &str = "hunter2-hunter2";

#[test]
fn t3_a_tenant_sets_lists_and_removes_secrets_and_no_value_is_returned() {
    let (served, [a, b]) = served(&Policy::default());
    let ask = |token: &str, method: &str, path: &str, body: &Value| call(&served, token, method, path, body);
    let (path, body) = ("/v1/secrets/api-token", json!({ "value": VALUE, "for": ["https://api.example.com"] }));
    let set = ask(&a, "PUT", path, &body);
    assert_eq!((set.status, &set.json()["version"]), (200, &json!(1)), "{set:?}");
    let (shown, listed) = (ask(&a, "GET", path, &Value::Null), ask(&a, "GET", "/v1/secrets", &Value::Null));
    assert_eq!(shown.json(), set.json());
    assert_eq!(listed.json()["secrets"], json!([set.json()]));
    for answer in [&set, &shown, &listed] {
        assert!(!answer.body.contains("hunter2"), "{answer:?}");
    }
    assert!(set.json().get("expires").is_none(), "{set:?}");
    let ends = ask(&a, "PUT", path, &json!({ "value": VALUE, "expiresInMs": 86_400_000 })).json();
    assert_eq!(ends["expires"].as_u64().unwrap() - ends["updated"].as_u64().unwrap(), 86_400_000);
    // Another tenant may use the same name, and cannot see this secret.
    for method in ["GET", "DELETE"] {
        assert_eq!(ask(&b, method, path, &Value::Null).fault(), (404, "secret_not_found".into()), "{method}");
    }
    assert_eq!(ask(&b, "GET", "/v1/secrets", &Value::Null).json()["secrets"], json!([]));
    assert_eq!(ask(&b, "PUT", path, &json!({ "value": "another-value" })).json()["for"], json!([]));
    assert_eq!(ask(&a, "PUT", path, &body).json()["version"], 3);
    assert_eq!(ask(&a, "DELETE", path, &Value::Null).status, 204);
    assert_eq!(ask(&a, "GET", path, &Value::Null).status, 404);
    assert_eq!(ask(&b, "GET", path, &Value::Null).status, 200);
}

#[test]
fn an_invalid_secret_is_refused_without_repeating_its_value() {
    let (served, [a, _]) = served(&Policy::default());
    let put = |name: &str, body: Value| call(&served, &a, "PUT", &format!("/v1/secrets/{name}"), &body);
    let table = [
        ("n", json!({ "value": "hunter2" }), 422, "invalid_secret"),
        ("n", json!({ "value": "hunter2".repeat(10_000) }), 422, "invalid_secret"),
        ("n", json!({ "value": "hunter2-hunter2\n" }), 422, "invalid_secret"),
        ("a.b", json!({ "value": VALUE }), 422, "invalid_name"),
        ("n", json!({ "value": VALUE, "for": ["example.com"] }), 422, "invalid_secret"),
        ("n", json!({ "value": "hunter2 hunter2", "for": ["https://api.example.com"] }), 422, "invalid_secret"),
        ("n", json!({ "value": "hunter2\nhunter2", "for": ["https://api.example.com"] }), 422, "invalid_secret"),
        ("n", json!({ "value": "hunter2-h\u{fc}nter2", "for": ["https://api.example.com"] }), 422, "invalid_secret"),
        ("n", json!({ "value": "hunter2".repeat(3_000), "for": ["https://api.example.com"] }), 422, "invalid_secret"),
        ("n", json!({ "value": VALUE, "expiresInMs": 0 }), 422, "invalid_secret"),
        ("n", json!({ "value": VALUE, "expiresInMs": 365 * 86_400_000_u64 + 1 }), 422, "invalid_secret"),
        ("n", json!({ "value": VALUE, "more": 1 }), 400, "bad_request"),
        ("n", json!({}), 400, "bad_request"),
    ];
    for (name, body, status, code) in table {
        let answer = put(name, body.clone());
        assert_eq!(answer.fault(), (status, code.to_owned()), "{body}");
        assert!(!answer.body.contains("hunter2"), "{answer:?}");
    }
}

#[test]
fn a_secret_with_spaces_proves_posts_and_is_refused_for_a_server() {
    let (served, [a, _]) = served(&Policy::default());
    let set = |origin: &str| {
        let body = json!({ "value": "two words, and more", "for": [origin] });
        call(&served, &a, "PUT", "/v1/secrets/hook", &body)
    };
    assert_eq!(set("webhook").status, 200);
    let refused = set("https://api.example.com");
    assert_eq!(refused.fault(), (422, "invalid_secret".to_owned()));
    assert!(refused.body.contains("it has a space") && !refused.body.contains("two words"), "{refused:?}");
    let hook = json!({ "id": "in", "webhook": { "secret": "hook", "scheme": "gitlab" } });
    let flow = json!({
        "flow": { "name": "posted", "triggers": [hook] },
        "nodes": [{ "id": "n", "type": "control.noop" }],
    });
    assert_eq!(call(&served, &a, "POST", "/v1/flows", &json!({ "flow": flow })).status, 201);
    for (token, status) in [("two words, and more", 202), ("two words,  and more", 401), ("two words", 401)] {
        let headers = [("X-Gitlab-Token", token), ("Idempotency-Key", "one")];
        let answer = ask(served.address, "POST", "/v1/hooks/a/posted/in", &headers, "{}");
        assert_eq!(answer.status, status, "{token}: {answer:?}");
    }
}

#[test]
fn h18_guesses_of_a_webhooks_password_are_limited_by_address_and_trigger() {
    let (served, [a, _]) = served(&Policy::default());
    let body = json!({ "value": VALUE, "for": ["webhook"] });
    assert_eq!(call(&served, &a, "PUT", "/v1/secrets/hook", &body).status, 200);
    let hook = |id: &str, scheme: &str| json!({ "id": id, "webhook": { "secret": "hook", "scheme": scheme } });
    let mut basic = hook("basic", "basic");
    basic["webhook"]["user"] = "ada".into();
    let flow = json!({
        "flow": { "name": "posted", "triggers": [basic, hook("bearer", "bearer"), hook("signed", "standard")] },
        "nodes": [{ "id": "n", "type": "control.noop" }],
    });
    assert_eq!(call(&served, &a, "POST", "/v1/flows", &json!({ "flow": flow })).status, 201);
    let post = |from: &str, trigger: &str, proof: &str| {
        let stream = connect_from(from, served.address);
        let path = format!("/v1/hooks/a/posted/{trigger}");
        send(&stream, served.address, "POST", &path, &[("Authorization", proof)], "{}");
        read(&mut BufReader::new(stream))
    };
    let (right, wrong) = (format!("Bearer {VALUE}"), "Bearer a-guess-that-is-wrong");
    let right_basic = format!("Basic {}", STANDARD.encode(format!("ada:{VALUE}")));
    // A sender that is accepted in between stays below the limit.
    assert_eq!(post("127.0.0.1", "bearer", &right).status, 202);
    let mut refused = Vec::new();
    for trigger in ["bearer", "basic", "signed", "none"] {
        // Guesses at the same time count, too.
        let statuses: Vec<_> = std::thread::scope(|scope| {
            let guess = || (0..10).map(|_| post("127.0.0.1", trigger, wrong).status).collect::<Vec<_>>();
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(guess)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        let checked = statuses.iter().filter(|status| **status == 401).count();
        assert!(statuses.iter().all(|status| [401, 429].contains(status)), "{trigger}: {statuses:?}");
        // One more may be checked by each thread of the server.
        let most = MAX_REFUSED_POSTS as usize + std::thread::available_parallelism().unwrap().get();
        assert!((MAX_REFUSED_POSTS as usize..=most).contains(&checked), "{trigger}: {statuses:?}");
        let limited = post("127.0.0.1", trigger, wrong);
        assert_eq!(limited.fault(), (429, "too_many_failures".to_owned()), "{trigger}");
        let seconds: u32 = limited.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=60).contains(&seconds), "{trigger}: {seconds}");
        refused.push(limited.body.replace(&format!("in {seconds} s"), "in S s"));
    }
    refused.dedup();
    assert_eq!(refused.len(), 1, "the answer reveals whether a trigger exists, or its scheme: {refused:?}");
    // A signature cannot be guessed, so one that is right is accepted, also from an address that a stranger shares.
    assert_eq!(hook_signed_by(VALUE, &served, "/v1/hooks/a/posted/signed", "m1", "{}").status, 202);
    // The right secret is not tried either, so that the answers of further guesses reveal nothing.
    assert_eq!(post("127.0.0.1", "bearer", &right).status, 429);
    // The true sender has another address.
    assert_eq!(post("127.0.0.2", "bearer", &right).status, 202);
    assert_eq!(post("127.0.0.2", "basic", &right_basic).status, 202);
    assert_eq!(post("127.0.0.2", "basic", wrong).status, 401);
}
