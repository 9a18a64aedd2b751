//! The events and the log lines of a run.

use axum::extract::Path;
use maud::{Markup, html};
use serde_json::Value;

use super::{Shown, api_path};
use crate::{
    frame::{Failure, Page},
    parts::{command, count, cut, list, list_table, moment, positionals, size, text},
    runs::{query, run_path},
    visit::{Visit, escaped},
};

/// Number of events on a page.
const PAGE_EVENTS: u64 = 100;
/// Maximum number of log lines on a page.
const MAX_LINES: u64 = 200;
/// Maximum number of bytes of an event in the list.
const MAX_EVENT_BYTES: usize = 160;
/// Maximum number of bytes of a log line.
const MAX_LINE_BYTES: usize = 400;
/// The kinds of events by which the list can be filtered: the name, and the types.
const KINDS: [(&str, &str); 6] = [
    (
        "failures",
        "task:failed,task:unhandled,task:retry,task:blocked,call:error,service:error,agent:error,phase:failed",
    ),
    ("tasks", "task:start,task:complete,task:failed,task:skipped,task:cancelled,task:retry,task:blocked,task:paused"),
    ("calls", "call:start,call:result,call:error,call:held,call:repeated,service:call,service:result,service:error"),
    ("passes", "pass:start,pass:complete,cycle:pass,cycle:complete,undo:start,undo:complete,scope:closing"),
    ("agents", "agent:start,agent:message,agent:usage,agent:error,agent:complete,agent:tool:start,agent:tool:result"),
    ("log lines", "log"),
];

/// Returns the members of an event that the table shows in no column of their own, and their whole size in bytes. Of the
/// members that the API has cut, it returns the beginning.
fn summary(event: &Value) -> (String, usize) {
    const SHOWN: [&str; 10] = ["v", "seq", "ts", "tenant", "runId", "type", "nodeId", "taskId", "scope", "cut"];
    let members = event.as_object().into_iter().flatten().filter(|(key, _)| !SHOWN.contains(&key.as_str()));
    let mut parts: Vec<_> = members.map(|(key, value)| format!("{key}: {value}")).collect();
    let mut left_out = 0;
    for (key, cut) in event["cut"].as_object().into_iter().flatten() {
        let start = text(cut, "start");
        left_out += (cut["bytes"].as_u64().unwrap_or(0) as usize).saturating_sub(start.len());
        parts.push(format!("{key}: {start}"));
    }
    let members = parts.join(", ");
    let size = members.len() + left_out;
    (members, size)
}

/// Shows the address of the task, or of the pass, that an event is about.
fn place_of(run: &str, event: &Value) -> Markup {
    let (scope, node) = (text(event, "scope"), text(event, "nodeId"));
    let address = if scope.is_empty() { node.to_owned() } else { format!("{scope}.{node}") };
    html! {
        @if node.is_empty() { (scope) }
        @else { a href={ (run_path(run)) "/tasks/" (escaped(&address)) } { (address) } }
    }
}

/// Shows a page of the events of a run.
pub(crate) async fn events(visit: Visit, Path(id): Path<String>) -> Result<Page, Failure> {
    let run = Shown::read(&visit, id).await?;
    let total = run.view["events"].as_u64();
    let (kind, task) = (visit.query("kind").unwrap_or_default(), visit.query("task").unwrap_or_default());
    let types = KINDS.iter().find(|(name, _)| *name == kind).map_or("", |(_, types)| types);
    let is_filtered = !types.is_empty() || !task.is_empty();
    let number = |name: &str| visit.query(name).and_then(|number| number.parse::<u64>().ok());
    let before = number("before");
    // Without a place, the page has the latest events.
    let latest = total.unwrap_or(0).saturating_sub(PAGE_EVENTS);
    let from = number("from").or_else(|| (before.is_none() && !is_filtered).then_some(latest));
    let before = before.or_else(|| from.is_none().then_some(total.unwrap_or(u64::MAX)));
    let [from_text, before_text] =
        [from, before].map(|number| number.map(|number| number.to_string()).unwrap_or_default());
    let asked = query(&[
        ("from", &from_text),
        ("before", if from.is_some() { "" } else { &before_text }),
        ("limit", &PAGE_EVENTS.to_string()),
        ("preview", &MAX_EVENT_BYTES.to_string()),
        ("type", types),
        ("task", &task),
    ]);
    let page = visit.get(&api_path(&run.id, &format!("/events{asked}"))).await;
    let page = page.map_err(|refusal| Failure::of(&visit, refusal))?;
    let (events, here) = (list(&page, "events"), format!("{}/events", run_path(&run.id)));
    let next = page["next"].as_u64().unwrap_or(0);
    let at = |name: &str, number: u64| {
        format!("{here}{}", query(&[("kind", &kind), ("task", &task), (name, &number.to_string())]))
    };
    let earlier = match from {
        Some(0) => None,
        Some(from) if is_filtered => Some(at("before", from)),
        Some(from) => Some(at("from", from.saturating_sub(PAGE_EVENTS))),
        None => page["previous"].as_u64().map(|previous| at("before", previous)),
    };
    let body = html! {
        form .filters method="get" action=(here) role="search" {
            label { "Events" select name="kind" {
                option value="" { "all" }
                @for (name, _) in KINDS { option value=(name) selected[name == kind] { (name) } }
            } }
            label { "Task" input name="task" value=(task) autocomplete="off" spellcheck="false" placeholder="each[3].pay"; }
            button { "Filter" }
            @if is_filtered { a href=(here) { "Show all" } }
        }
        (list_table(None, "Events, in their order", html! { th .number { "Number" } th { "Time" } th { "Type" } th { "Task" } th { "Members" } }, html! {
            @for event in events {
                @let (members, bytes) = summary(event);
                @let (shown, _) = cut(&members, MAX_EVENT_BYTES);
                tr {
                    td .number { (event["seq"].as_u64().unwrap_or(0)) }
                    td { (moment(&event["ts"])) }
                    td { code { (text(event, "type")) } }
                    td { (place_of(&run.id, event)) }
                    td .members { (shown) @if bytes > shown.len() { "… " span .faint { (size(bytes as u64)) } } }
                }
            }
        }))
        @if events.is_empty() {
            p .faint { @if is_filtered { "No event of this page fits the filters." } @else { "No event has this number yet." } }
        }
        nav .pages aria-label="Pages of the list" {
            @if let Some(earlier) = earlier { a rel="prev" href=(earlier) { "Earlier" } }
            @if total.is_some_and(|total| next < total) { a rel="next" href=(at("from", next)) { "Later" } }
            @if let Some(total) = total { span .faint { (count(total, "event")) " so far" } }
        }
        @if let (Some(from), false) = (from, is_filtered) { (command(&format!("runs events --from {from} {}", positionals(&[&run.id])))) }
    };
    Ok(run.page(&visit, "/events", body))
}

/// Shows log lines as a list.
pub(super) fn log_lines(run: &str, lines: &[Value]) -> Markup {
    html! {
        ol .log {
            @for event in lines {
                @let (shown, whole) = cut(text(event, "message"), MAX_LINE_BYTES);
                li class={ "level-" (text(event, "level")) } {
                    (moment(&event["ts"])) " " span .level { (text(event, "level")) } " " (place_of(run, event)) " "
                    span .message { (shown) @if let Some(whole) = whole { "… " span .faint { (size(whole as u64)) } } }
                }
            }
        }
    }
}

/// Shows the log lines of a run by page.
pub(crate) async fn logs(visit: Visit, Path(id): Path<String>) -> Result<Page, Failure> {
    let run = Shown::read(&visit, id).await?;
    let from: u64 = visit.query("from").and_then(|from| from.parse().ok()).unwrap_or(0);
    let path = api_path(&run.id, &format!("/events?type=log&from={from}&limit={MAX_LINES}"));
    let page = visit.get(&path).await.map_err(|refusal| Failure::of(&visit, refusal))?;
    let (lines, next) = (list(&page, "events"), page["next"].as_u64().unwrap_or(from));
    let has_more = run.view["events"].as_u64().is_some_and(|total| next < total);
    let body = html! {
        @if lines.is_empty() { p .faint { "The tasks have written no log lines in the events from " (from) " to " (next) "." } }
        (log_lines(&run.id, lines))
        nav .pages aria-label="Pages of the list" {
            @if has_more { a rel="next" href={ (run_path(&run.id)) "/logs?from=" (next) } { "Later" } }
        }
    };
    Ok(run.page(&visit, "/logs", body))
}
