//! The usage and cost of turns, with all their attempts.

use flowcell_contract::Effect;
use serde_json::{Value, json};

use crate::models::kit::{DIALECTS, Kit, detail, playing};

fn prices() -> Value {
    json!({ "prices": [
        { "model": "fake-*", "input": 3, "output": 15, "cacheRead": 0.3, "cacheWrite": 3.75 },
        { "model": "*", "input": 1000, "output": 1000 },
    ] })
}

#[tokio::test]
async fn tokens_have_the_same_members_in_all_dialects_and_the_listed_cost() {
    let usage = json!({ "fresh": 1000, "output": 500, "cacheRead": 600, "cacheWrite": 300, "reasoning": 40 });
    let table = [
        (
            "messages",
            json!({ "input": 1900, "output": 500, "cacheRead": 600, "cacheWrite": 300, "reasoning": 0,
            "estimated": false, "costUsd": 0.011805, "costBasis": "list" }),
        ),
        (
            "chat",
            json!({ "input": 1600, "output": 500, "cacheRead": 600, "cacheWrite": 0, "reasoning": 40,
            "estimated": false, "costUsd": 0.01068, "costBasis": "list" }),
        ),
        (
            "responses",
            json!({ "input": 1600, "output": 500, "cacheRead": 600, "cacheWrite": 0, "reasoning": 40,
            "estimated": false, "costUsd": 0.01068, "costBasis": "list" }),
        ),
    ];
    for (dialect, expected) in table {
        let fake = playing(json!([{ "reply": { "text": "x" }, "usage": usage }])).await;
        let reply = Kit::with_fake(&fake, dialect, prices()).ask("hi").await.unwrap();
        assert_eq!(reply["usage"], expected, "{dialect}");
    }
}

#[tokio::test]
async fn unreported_usage_is_estimated() {
    for dialect in DIALECTS {
        let fake = playing(json!([{ "reply": { "text": "12345678" }, "usage": { "missing": true } }])).await;
        let reply = Kit::with_fake(&fake, dialect, json!({})).ask("hi").await.unwrap();
        let sent = fake.requests()[0].header("content-length").unwrap().parse::<u64>().unwrap();
        assert_eq!(
            reply["usage"],
            json!({ "input": sent.div_ceil(4), "output": 2, "cacheRead": 0, "cacheWrite": 0,
            "reasoning": 0, "estimated": true, "costBasis": "unknown" }),
            "{dialect}"
        );
    }
}

#[tokio::test]
async fn w7_a_turn_never_exceeds_its_maximum_cost() {
    let text = "a text of forty letters, in ten pieces..";
    for dialect in DIALECTS {
        for retries in [0, 2, 10] {
            let broken = json!({ "reply": { "text": text }, "fault": { "endAfter": 10 }, "repeat": true });
            let fake = playing(json!([broken])).await;
            let mut profile = prices();
            (profile["maxRetries"], profile["maxTokens"]) = (json!(retries), json!(1000));
            let kit = Kit::with_fake(&fake, dialect, profile);
            let image = json!([{ "type": "image", "url": "https://example.com/a.png", "mime": "image/png" }]);
            let request = json!({ "messages": [{ "role": "user", "content": image }] });
            let most = kit.max_cost(&request, Effect::AtLeastOnce);
            let failure = kit.generate(&request).await.unwrap_err();
            assert_eq!(detail(&failure, "attempts"), json!(retries + 1), "{dialect}: {failure}");
            let cost = detail(&failure, "usage")["costUsd"].as_f64().unwrap();
            assert!(cost > 0.0 && cost <= most, "{dialect} {retries}: {cost} of {most}");
            // The image and the longest reply, in every attempt.
            let least = f64::from(retries + 1) * (50_000.0 * 3.75 + 1000.0 * 15.0) / 1e6;
            assert!(most >= least && most < least * 1.1, "{dialect} {retries}: {most}");
            let once = kit.max_cost(&request, Effect::Once) * f64::from(retries + 1);
            assert!((once - most).abs() < 1e-9, "a turn that is made once: {once} {most}");
        }
    }
}

#[tokio::test]
async fn attempts_that_broke_off_are_counted() {
    for dialect in DIALECTS {
        let text = "a text of forty letters, in ten pieces.."; // 40 bytes
        let broken =
            json!({ "reply": { "text": text }, "usage": { "fresh": 100, "output": 10 }, "fault": { "endAfter": 10 } });
        let whole = json!({ "reply": { "text": text }, "usage": { "fresh": 100, "output": 10 } });
        let fake = playing(json!([broken, whole])).await;
        let kit = Kit::with_fake(&fake, dialect, json!({}));
        let reply = kit.ask("hi").await.unwrap();
        assert_eq!(fake.billing().turns, 2, "{dialect}");
        let (input, output) = (reply["usage"]["input"].as_u64().unwrap(), reply["usage"]["output"].as_u64().unwrap());
        assert!(input > 100 && output > 10, "{dialect} {input} {output}");
        assert_eq!(reply["usage"]["estimated"], true, "{dialect}");
        if dialect == "messages" {
            assert_eq!(input, 200, "Messages says at once what it reads");
        }
        let fake = playing(json!([{ "reply": { "text": text }, "fault": { "endAfter": 10 }, "repeat": true }])).await;
        let failure = Kit::with_fake(&fake, dialect, prices()).ask("hi").await.unwrap_err();
        let usage = detail(&failure, "usage");
        assert!(usage["costUsd"].as_f64().unwrap() > 0.0 && usage["estimated"] == true, "{dialect} {usage}");
    }
}

/// A turn is lost if the host process ends during the turn. A lost turn counts like an attempt that broke off: the
/// tokens of its request are estimated.
#[tokio::test]
async fn w11_turns_that_were_lost_are_counted_too() {
    let request = json!({ "messages": [{ "role": "user", "content": "hello" }] });
    let sent = (request.to_string().len() as u64).div_ceil(4);
    for dialect in DIALECTS {
        let whole = json!({ "reply": { "text": "x" }, "usage": { "fresh": 100, "output": 10 }, "repeat": true });
        for (profile, dollars) in [(prices(), Some(0.00045)), (json!({}), None)] {
            let fake = playing(json!([whole])).await;
            let once = Kit::with_fake(&fake, dialect, profile.clone()).generate(&request).await.unwrap();
            let kit = Kit::with_fake(&fake, dialect, profile).lost(2);
            let usage = kit.generate(&request).await.unwrap()["usage"].clone();
            assert_eq!((&once["usage"]["input"], &usage["input"]), (&json!(100), &json!(100 + 2 * sent)), "{dialect}");
            assert_eq!((&usage["output"], &usage["estimated"]), (&json!(10), &json!(true)), "{dialect}");
            let lost = (2 * sent) as f64 * 3.0 / 1e6;
            let cost = usage.get("costUsd").and_then(Value::as_f64);
            let expected = dollars.map(|dollars| dollars + lost);
            assert!(cost.is_some() == expected.is_some(), "{dialect}: {usage}");
            assert!((cost.unwrap_or(0.0) - expected.unwrap_or(0.0)).abs() < 1e-9, "{dialect}: {usage}");
        }
    }
    let fake = playing(json!([{ "reply": { "text": "x" }, "usage": { "cost": 0.0125 } }])).await;
    let usage = Kit::with_fake(&fake, "chat", json!({})).lost(1).ask("hi").await.unwrap()["usage"].clone();
    assert_eq!(usage["costUsd"], 0.0125, "the cost that is known is told: {usage}");
}

#[tokio::test]
async fn a_cost_that_a_provider_reports_is_used() {
    let usage = json!({ "cost": 0.0125 });
    let fake = playing(json!([{ "reply": { "text": "x" }, "usage": usage }])).await;
    let reply = Kit::with_fake(&fake, "chat", prices()).ask("hi").await.unwrap();
    assert_eq!((&reply["usage"]["costUsd"], &reply["usage"]["costBasis"]), (&json!(0.0125), &json!("managed")));
}
