//! A run at an earlier event: its tasks and its picture as they were then, with a slider over all events.

use maud::{Markup, html};
use serde_json::Value;

use super::api_path;
use crate::{
    parts::{list, moment, text},
    runs::{query, run_path},
    visit::{Visit, escaped},
};

/// The members of the query that a move of the slider keeps.
const KEPT: [&str; 5] = ["under", "status", "order", "fold", "open"];

/// Returns the last event before a place of the slider, as the script shows it, too.
fn reached(at: u64, events: u64) -> String {
    match at.checked_sub(1) {
        Some(last) => format!("event {last} of {events}"),
        None => "before the first event".to_owned(),
    }
}

/// The event before which a page shows a run.
#[derive(Default)]
pub(super) struct Moment {
    /// The number of the event. `None`: the page shows the run as it is.
    before: Option<u64>,
    /// The last event that the page counts. `null` without one.
    last: Value,
    /// The number of events so far.
    events: u64,
    /// The other members of the query.
    others: Vec<(&'static str, String)>,
}

impl Moment {
    /// Reads the moment from the address of a page. `now` is the answer of the API about the run as it is.
    pub(super) async fn read(visit: &Visit, id: &str, now: &Value) -> Moment {
        let events = now["events"].as_u64().unwrap_or(0);
        let before =
            visit.query("before").and_then(|before| before.parse::<u64>().ok()).map(|before| before.min(events));
        let last = match before.and_then(|before| before.checked_sub(1)) {
            Some(last) => {
                let path = format!("/events?from={last}&limit=1&preview=0");
                let page = visit.get(&api_path(id, &path)).await.unwrap_or_default();
                list(&page, "events").first().cloned().unwrap_or_default()
            }
            None => Value::Null,
        };
        let others = KEPT.iter().filter_map(|name| Some((*name, visit.query(name)?))).collect();
        Moment { before, last, events, others }
    }

    /// Returns whether the page shows an earlier moment.
    pub(super) fn is_earlier(&self) -> bool {
        self.before.is_some()
    }

    /// Returns the number of the event as a member of a query. It is empty for a page that shows the run as it is.
    pub(super) fn before(&self) -> String {
        self.before.map(|before| before.to_string()).unwrap_or_default()
    }

    /// Returns the query of a page that shows the same moment.
    pub(super) fn query(&self) -> String {
        query(&[("before", &self.before())])
    }

    /// Shows the slider over the events, and the event that the page has reached. `tab` is the end of the page's path.
    pub(super) fn slider(&self, id: &str, tab: &str) -> Markup {
        let here = format!("{}{tab}", run_path(id));
        let at = self.before.unwrap_or(self.events);
        let link = |before: u64| {
            let others = self.others.iter().map(|(name, value)| format!("&{name}={}", escaped(value)));
            format!("{here}?before={before}{}", others.collect::<String>())
        };
        html! {
            form .scrub method="get" action=(here) {
                @for (name, value) in &self.others { input type="hidden" name=(name) value=(value); }
                label for="before" { "After event" }
                input #before name="before" type="range" min="0" max=(self.events) value=(at) data-events=(self.events);
                // The time is that of the event that the page has reached. The script hides it for other events.
                output #reached for="before" data-at=(at) {
                    span .number { (reached(at, self.events)) }
                    @if self.last["ts"].is_u64() && at > 0 { span .time { ", " (moment(&self.last["ts"])) } }
                }
                button { "Show" }
                @if at > 0 { a rel="prev" href=(link(at - 1)) aria-label="One event back" { "‹ back" } }
                @if at < self.events { a rel="next" href=(link(at + 1)) aria-label="One event on" { "on ›" } }
            }
            @if let Some(before) = self.before {
                p .notice role="status" {
                    @if before == 0 { "Before the first event. " }
                    @else {
                        "As it was after event " (before - 1) " of " (self.events) ": " code { (text(&self.last, "type")) }
                        @let node = text(&self.last, "nodeId");
                        @if !node.is_empty() { " of " code { (node) } }
                        ", " (moment(&self.last["ts"])) ". "
                    }
                    a href=(here) { "Show it as it is now" }
                }
            }
        }
    }
}
