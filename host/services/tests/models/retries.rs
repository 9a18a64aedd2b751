//! Retries: their conditions, their waits and their number.

use flowcell_services::model::Wait;
use serde_json::{Value, json};

use crate::models::kit::{DIALECTS, Kit, detail, playing};

fn status(status: u16, headers: Value) -> Value {
    json!({ "fault": { "status": { "status": status, "headers": headers } } })
}

#[tokio::test]
async fn r20_transient_failures_are_retried() {
    let table = [
        (408, "model_timeout"),
        (409, "model_overloaded"),
        (429, "model_rate_limited"),
        (500, "model_overloaded"),
        (502, "model_overloaded"),
        (504, "model_timeout"),
        (529, "model_overloaded"),
    ];
    for dialect in DIALECTS {
        for (number, class) in table {
            let fault = status(number, json!({}));
            let fake = playing(json!([fault, fault, { "reply": { "text": "at last" } }])).await;
            let kit = Kit::with_fake(&fake, dialect, json!({}));
            let reply = kit.ask("hi").await.unwrap();
            assert_eq!(reply["content"][0]["text"], "at last", "{dialect} {number}");
            // Half a second, doubled, minus an eighth: half of the maximum random part of a quarter.
            assert_eq!(kit.clock.slept(Wait::Backoff), [437, 875], "{dialect} {number}");
            assert_eq!(
                kit.events("agent:retry"),
                [
                    json!({ "attempt": 2, "reason": class, "delayMs": 437 }),
                    json!({ "attempt": 3, "reason": class, "delayMs": 875 }),
                ]
            );
            assert_eq!((fake.requests().len(), fake.billing().turns), (3, 1));
            assert_eq!(reply["usage"]["estimated"], false, "refused attempts cost nothing");
        }
    }
}

#[tokio::test]
async fn r20_the_number_of_attempts_is_bounded_and_reported() {
    let table = [(json!({}), 3), (json!({ "maxRetries": 0 }), 1), (json!({ "maxRetries": 6 }), 7)];
    for (profile, attempts) in table {
        let fake = playing(json!([{ "fault": { "status": { "status": 529 } }, "repeat": true }])).await;
        let kit = Kit::with_fake(&fake, "messages", profile);
        let failure = kit.ask("hi").await.unwrap_err();
        assert_eq!((failure.code.as_str(), failure.retryable), ("model_overloaded", true));
        assert_eq!((fake.requests().len(), detail(&failure, "attempts")), (attempts, json!(attempts)));
        if attempts == 7 {
            assert_eq!(kit.clock.slept(Wait::Backoff), [437, 875, 1750, 3500, 7000, 7000]);
        }
    }
}

#[tokio::test]
async fn the_wait_that_a_provider_requests_is_kept() {
    let table = [
        ("messages", json!({ "retry-after": "7" }), 7000),
        ("messages", json!({ "retry-after": "0.25" }), 250),
        ("messages", json!({ "retry-after-ms": "12.5" }), 12),
        ("messages", json!({ "retry-after-ms": "30", "retry-after": "7" }), 30),
        ("messages", json!({ "retry-after": "Sat, 21 Nov 2026 12:00:09 GMT" }), 9000),
        ("messages", json!({ "retry-after": "Sat, 21 Nov 2026 11:00:00 GMT" }), 437),
        ("messages", json!({ "retry-after": "soon" }), 437),
        ("messages", json!({ "retry-after": "-5" }), 437),
        ("messages", json!({ "retry-after": "NaN" }), 437),
        ("messages", json!({ "retry-after": "120" }), 120_000),
        ("chat", json!({ "retry-after": "7" }), 7000),
        ("chat", json!({ "retry-after": "0" }), 0),
        ("chat", json!({ "retry-after": "120" }), 437),
        ("responses", json!({ "retry-after": "61" }), 437),
        ("responses", json!({ "retry-after-ms": "60000" }), 60_000),
    ];
    for (dialect, headers, delay) in table {
        let fake = playing(json!([status(429, headers.clone()), { "reply": { "text": "ok" } }])).await;
        let kit = Kit::with_fake(&fake, dialect, json!({}));
        kit.ask("hi").await.unwrap();
        assert_eq!(kit.clock.slept(Wait::Backoff), [delay], "{dialect} {headers}");
    }
}

#[tokio::test]
async fn a_requested_wait_beyond_the_time_limit_fails_the_turn() {
    let fake = playing(json!([status(429, json!({ "retry-after": "700" }))])).await;
    let kit = Kit::with_fake(&fake, "messages", json!({}));
    let failure = kit.ask("hi").await.unwrap_err();
    assert_eq!((failure.code.as_str(), failure.retryable), ("model_rate_limited", true));
    assert_eq!((failure.retry_after_ms, kit.clock.slept(Wait::Backoff)), (Some(700_000), vec![]));
}

#[tokio::test]
async fn the_header_x_should_retry_decides_about_retries() {
    let table = [
        (529, json!({ "x-should-retry": "false" }), 1),
        (400, json!({ "x-should-retry": "true" }), 3),
        (400, json!({ "x-should-retry": "maybe" }), 1),
        (402, json!({ "x-should-retry": "true" }), 1),
    ];
    for dialect in DIALECTS {
        for (number, headers, attempts) in &table {
            let fault = json!({ "status": { "status": number, "headers": headers } });
            let fake = playing(json!([{ "fault": fault, "repeat": true }])).await;
            let failure = Kit::with_fake(&fake, dialect, json!({})).ask("hi").await.unwrap_err();
            assert_eq!(fake.requests().len(), *attempts, "{dialect} {number} {headers}");
            assert_eq!(failure.retryable, *attempts > 1, "{dialect} {number} {headers}");
        }
    }
}

#[tokio::test]
async fn overloads_are_recognised_by_their_type() {
    let fault = json!({ "status": { "status": 429, "type": "overloaded_error" } });
    let fake = playing(json!([{ "fault": fault, "repeat": true }])).await;
    assert_eq!(Kit::with_fake(&fake, "messages", json!({})).ask("hi").await.unwrap_err().code, "model_overloaded");
}

#[tokio::test]
async fn a_refused_connection_is_retried() {
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let profile = json!({ "dialect": "chat", "baseUrl": format!("http://{address}"), "auth": "none", "model": "m",
        "allowPrivate": ["127.0.0.1"] });
    // Certainly no byte was sent, so a call of effect `once` is retried too.
    let kit = Kit::configured(&json!({ "default": "p", "profiles": { "p": profile } })).once();
    let failure = kit.ask("hi").await.unwrap_err();
    assert_eq!((failure.code.as_str(), failure.retryable), ("model_connect", true), "{failure}");
    assert_eq!(kit.clock.slept(Wait::Backoff).len(), 2);
}

#[tokio::test]
async fn a_turn_that_is_made_once_is_repeated_only_if_it_certainly_was_not_made() {
    let reply = json!({ "text": "a text that is long enough" });
    let table = [
        (json!({ "fault": { "status": { "status": 429 } } }), 3, "model_rate_limited"),
        (json!({ "fault": { "status": { "status": 529 } } }), 3, "model_overloaded"),
        (json!({ "fault": { "status": { "status": 400 } } }), 1, "model_invalid_request"),
        (json!({ "fault": { "status": { "status": 500 } } }), 1, "ambiguous"),
        (json!({ "reply": reply, "fault": { "endAfter": 4 } }), 1, "ambiguous"),
        (json!({ "reply": reply, "fault": { "cutAfter": 0 } }), 1, "ambiguous"),
        (json!({ "reply": reply, "fault": "html" }), 1, "ambiguous"),
    ];
    for (turn, attempts, code) in table {
        let mut turn = turn.clone();
        turn["repeat"] = json!(true);
        let fake = playing(json!([turn])).await;
        let failure = Kit::with_fake(&fake, "messages", json!({})).once().ask("hi").await.unwrap_err();
        assert_eq!((failure.code.as_str(), fake.requests().len()), (code, attempts), "{turn} {failure}");
        if code == "ambiguous" {
            assert!(!failure.retryable && detail(&failure, "code").as_str().unwrap().starts_with("model_"));
        }
    }
}
