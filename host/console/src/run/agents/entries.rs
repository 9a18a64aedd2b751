//! The entries of a conversation: messages, answers with their calls of tools, and notes.

use maud::{Markup, html};
use serde_json::Value;

use super::{MAX_TEXT_BYTES, cost, tokens};
use crate::{
    parts::{cut, duration, json as show_json, list, moment, size, state, text},
    run::{api_path, tasks::present_task_path},
    runs::run_path,
    said::said,
};

/// Maximum number of bytes of the error of a tool.
const MAX_ERROR_BYTES: usize = 2_000;

/// Shows the first message: the input of the task.
pub(super) fn beginning(run: &str, task: &str, input: Option<&Value>) -> Markup {
    let path = api_path(run, &format!("/tasks/{}", crate::visit::escaped(task)));
    let asked = input.and_then(|input| input["prompt"].as_str().or_else(|| input["input"].as_str()));
    html! {
        li #entry-begin .person data-live {
            h3 { "Input" }
            @match (asked, input) {
                (Some(asked), _) => {
                    @let (shown, whole) = cut(asked, MAX_TEXT_BYTES as usize);
                    (said(shown))
                    @if let Some(whole) = whole { (part_of(shown.len(), whole as u64, &path)) }
                }
                (None, Some(input)) => (show_json(input, &path)),
                (None, None) => p .faint { "It cannot be shown here." },
            }
            p .faint { a href=(present_task_path(run, task)) { "Its config and its calls" } }
        }
    }
}

/// Shows an entry. `card` returns the form for the open question at an address.
pub(super) fn entry(run: &str, entry: &Value, card: &dyn Fn(&str) -> Option<Markup>) -> Markup {
    let seq = entry["seq"].as_u64().unwrap_or(0);
    let whole_at = api_path(run, &format!("/events?from={seq}&limit=1"));
    let shown = text(entry, "text");
    html! {
        li #{ "entry-" (seq) } .person[entry["kind"] == "message"] .note[entry["kind"] == "note"] data-live {
            @match text(entry, "kind") {
                "message" => {
                    h3 { "Message " span .faint { (message_state(text(entry, "state"))) " · " (moment(&entry["at"])) } }
                    (said(shown))
                }
                "answer" => {
                    h3 { (Some(text(entry, "model")).filter(|model| !model.is_empty()).unwrap_or("The model")) " "
                        span .faint { (moment(&entry["at"])) (measured(entry)) } }
                    (said(shown))
                }
                _ => {
                    h3 { "Note " span .faint { (text(entry, "name")) " · " (moment(&entry["at"])) } }
                    pre tabindex="0" { (shown) }
                }
            }
            @if let Some(whole) = entry["textBytes"].as_u64() { (part_of(shown.len(), whole, &whole_at)) }
            @for other in list(entry, "others").iter().filter_map(Value::as_str) {
                p .faint { "A part of the type " code { (other) } " is not shown: " a href=(whole_at) { code { (whole_at) } } }
            }
            @if !["", "end", "tool_calls"].contains(&text(entry, "stop")) {
                p .faint { "Stopped: " (text(entry, "stop").replace('_', " ")) }
            }
            @for tool in list(entry, "tools") {
                (self::tool(tool, &whole_at))
                (card(text(tool, "gate")).unwrap_or_default())
            }
        }
    }
}

/// Names the size of a text that the page has in part.
fn part_of(shown: usize, whole: u64, all_at: &str) -> Markup {
    html! { p .cut { "Shown in part: " (size(shown as u64)) " of " (size(whole)) ". All of it: " a href=(all_at) { code { (all_at) } } } }
}

fn message_state(state: &str) -> &'static str {
    match state {
        "applied" => "read",
        "discarded" => "not read: the agent has ended",
        _ => "not read yet",
    }
}

/// Writes the time, the tokens and the cost of an answer.
fn measured(answer: &Value) -> String {
    let mut parts: Vec<_> = answer["tookMs"].as_u64().map(duration).into_iter().collect();
    if answer["usage"].is_object() {
        parts.push(format!("tokens {}", tokens(&answer["usage"])));
        parts.push(format!("cost {}", cost(&answer["usage"])));
    }
    parts.iter().map(|part| format!(" · {part}")).collect()
}

/// Shows a call of a tool, folded.
fn tool(tool: &Value, answer_at: &str) -> Markup {
    let called = tool["runId"].as_str();
    let name = text(tool, "tool");
    html! {
        details .call {
            summary { "Tool " code { (name) } " "
                @match text(tool, "status") {
                    "pending" => span .faint { "not called" },
                    status => (state(status)),
                }
                @if let Some(ms) = tool["tookMs"].as_u64() { " " span .faint { (duration(ms)) } }
                @if let Some(decision) = tool["decision"].as_str() { " " span .faint { (decided(decision)) } }
            }
            h4 { "Input" }
            pre tabindex="0" { (text(tool, "input")) }
            @if let Some(whole) = tool["inputBytes"].as_u64() { (part_of(text(tool, "input").len(), whole, answer_at)) }
            @if let Some(output) = tool["output"].as_str() {
                h4 { "Output" }
                pre tabindex="0" { (output) }
                @if output.ends_with('…') {
                    p .cut { "Its first KiB. "
                        @if let Some(called) = called { "All of it: " a href=(api_path(called, "")) { code { (api_path(called, "")) } } } }
                }
            }
            @if tool["error"].is_object() {
                h4 { "Error" }
                p .notice .bad { strong { (cut(text(&tool["error"], "message"), MAX_ERROR_BYTES).0) } " " code { (text(&tool["error"], "code")) } }
            }
            @if let Some(called) = called {
                // A flow may have agents of its own.
                @if name.starts_with("flow:") { p { a href={ (run_path(called)) (super::AGENTS) } { "The agents of its run" } } }
                p { a href=(run_path(called)) { "Its run" } }
            }
        }
    }
}

fn decided(decision: &str) -> &'static str {
    match decision {
        "allow" => "a person allowed it",
        "deny" => "a person denied it",
        _ => "nobody answered in time",
    }
}
