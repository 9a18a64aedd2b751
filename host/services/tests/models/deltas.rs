//! Text that is reported while the model writes.

use std::sync::Arc;

use flowcell_services::model::Wait;
use serde_json::json;

use crate::models::kit::{DIALECTS, Kit, playing};

#[tokio::test]
async fn the_first_piece_is_reported_at_once_and_later_ones_together() {
    for dialect in DIALECTS {
        let fake = playing(json!([{ "reply": { "text": "012 456 89a cde " } }])).await;
        let kit = Kit::with_fake(&fake, dialect, json!({}));
        kit.ask("hi").await.unwrap();
        assert_eq!(
            kit.events("agent:text"),
            [json!({ "delta": "012 " }), json!({ "delta": "456 89a cde " })],
            "{dialect}"
        );
        assert_eq!(kit.clock.slept(Wait::Coalesce), [50, 50]);
    }
}

#[tokio::test]
async fn waiting_text_is_reported_after_the_pause_even_if_no_piece_follows() {
    for dialect in DIALECTS {
        // The stream then stalls, so only the timer can report the rest.
        let turn = json!({ "reply": { "text": "012 456 89a cde " }, "fault": { "stallAfter": 6 } });
        let fake = playing(json!([turn])).await;
        let mut kit = Kit::with_fake(&fake, dialect, json!({ "maxRetries": 0 }));
        let (clock, told) = (kit.clock.clone(), kit.told.clone());
        kit.on_tell = Arc::new(move |_| match told.lock().unwrap().len() {
            1 => clock.fire(Wait::Coalesce),
            2 => clock.fire(Wait::Idle),
            _ => {}
        });
        assert_eq!(kit.ask("hi").await.unwrap_err().code, "model_timeout");
        let told = kit.text_of_events("agent:text");
        assert!(
            kit.events("agent:text").len() == 2 && told.len() > 4 && "012 456 89a cde ".starts_with(&told),
            "{dialect} {told}"
        );
    }
}

#[tokio::test]
async fn events_after_the_last_retry_have_the_text_of_the_reply() {
    for dialect in DIALECTS {
        let broken = json!({ "reply": { "text": "wrong wrong wrong" }, "fault": { "endAfter": 6 } });
        let fake = playing(json!([broken, { "reply": { "thinking": "t", "text": "right right right" } }])).await;
        let kit = Kit::with_fake(&fake, dialect, json!({}));
        kit.ask("hi").await.unwrap();
        let told = kit.told.lock().unwrap().clone();
        let retry = told.iter().position(|(kind, _)| kind == "agent:retry").unwrap();
        let after = told[retry..].iter().filter(|(kind, _)| kind == "agent:text");
        let text: String = after.map(|(_, members)| members.get("delta").unwrap().as_str().unwrap()).collect();
        assert_eq!(text, "right right right", "{dialect}");
        assert!(told[..retry].iter().any(|(kind, _)| kind == "agent:text"), "{dialect}");
    }
}
