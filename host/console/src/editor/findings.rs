//! The diagnostics of a text, and the outcome of a test.

use axum::http::StatusCode;
use flowcell_server::api::Refusal;
use maud::{Markup, html};
use serde_json::{Value, json};

use super::{Editor, Outcome};
use crate::{
    frame::Failure,
    parts::{count, cut, list, size, state, text},
};

/// Maximum number of diagnostics that a page lists.
const MAX_LISTED: usize = 100;
/// Maximum number of bytes of the outcome of a test that a page shows.
const MAX_OUTCOME_BYTES: usize = 16 << 10;

/// Shows the part of the page with the diagnostics. The script changes it.
pub(super) fn section(shown: Markup) -> Markup {
    html! { section #findings { h2 { "Diagnostics" } (shown) } }
}

/// Checks the text.
pub(super) async fn check(editor: &Editor) -> Result<Outcome, Failure> {
    let draft = json!({ "text": editor.written.text, "name": editor.written.file(), "files": editor.beside.for_checks(), "want": ["fixes"] });
    match editor.visit.post("/v1/assist", &draft).await {
        Ok(checked) => Ok(with_findings(StatusCode::OK, html! {}, list(&checked.body, "diagnostics"))),
        Err(refusal) => unless_forbidden(editor, refusal, "The text was not checked."),
    }
}

/// Returns the outcome of an action that was refused. A missing scope opens the usual page of refusal.
pub(super) fn unless_forbidden(editor: &Editor, refusal: Refusal, what: &str) -> Result<Outcome, Failure> {
    if [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN].contains(&refusal.status) {
        return Err(editor.fails(refusal));
    }
    let found = list(&refusal.details, "diagnostics").to_vec();
    let refused = Outcome::refused(&refusal, what);
    Ok(match found.is_empty() {
        true => refused,
        false => with_findings(refused.status, refused.shown, &found),
    })
}

fn with_findings(status: StatusCode, shown: Markup, found: &[Value]) -> Outcome {
    Outcome { status, shown, findings: Some(section(rows(found))) }
}

/// Shows diagnostics of `/v1/assist` or of `/v1/validate`.
fn rows(found: &[Value]) -> Markup {
    let errors = found.iter().filter(|each| each["severity"] == "error").count();
    let warnings = found.len() - errors;
    html! {
        p { @match found.len() {
            0 => "The text has no mistakes.",
            _ => { (count(errors as u64, "error")) ", " (count(warnings as u64, "warning")) "." }
        } }
        ul .plain {
            @for each in found.iter().take(MAX_LISTED) {
                @let place = if each["range"].is_object() { &each["range"]["start"] } else { each };
                li { span class=(if each["severity"] == "error" { "bad" } else { "warn" }) { (text(each, "severity")) } " "
                    @if let Some(line) = place["line"].as_u64() { "line " (line) ", column " (place["column"].as_u64().unwrap_or(1)) ": " }
                    (text(each, "message")) @if let Some(help) = each["help"].as_str() { "; " (help) } " " code { (text(each, "code")) } }
            }
        }
        @if found.len() > MAX_LISTED { p .cut { (found.len() - MAX_LISTED) " more are not listed." } }
    }
}

/// Runs the text as a test. `simulate` names the calls with simulated replies; `None` leaves it to the API.
pub(super) async fn test(editor: &Editor, simulate: Option<&str>) -> Result<Outcome, Failure> {
    let written = if editor.input.trim().is_empty() { "{}" } else { &*editor.input };
    let input = match serde_json::from_str::<Value>(written) {
        Ok(input) => input,
        Err(error) => {
            let shown = html! { p .notice .bad role="alert" { "The test was not run. The input is not JSON: " (error.to_string()) } };
            return Ok(Outcome::new(StatusCode::UNPROCESSABLE_ENTITY, shown));
        }
    };
    let files = editor.beside.for_checks();
    let mut body = json!({ "flow": editor.written.named_text(), "files": files, "input": input });
    if let Some(simulate) = simulate {
        body["simulate"] = json!([simulate]);
    }
    match editor.visit.post("/v1/test", &body).await {
        Ok(tested) => Ok(Outcome::new(StatusCode::OK, outcome(&tested.body, simulate.is_some()))),
        Err(refusal) => unless_forbidden(editor, refusal, "The test was not run."),
    }
}

fn outcome(tested: &Value, is_dry: bool) -> Markup {
    let all = serde_json::to_string_pretty(tested).unwrap_or_default();
    let (shown, whole) = cut(&all, MAX_OUTCOME_BYTES);
    html! {
        section .card {
            h2 { @if is_dry { "Outcome of the dry run " } @else { "Outcome of the test " } (state(text(tested, "status"))) }
            @if let Some(why) = tested["error"]["message"].as_str() {
                p { (why) }
                // The host advises an option of the command line.
                @if !is_dry && why.contains("--simulate") { p { "On this page, press Dry run: it simulates the replies of all calls." } }
            }
            pre tabindex="0" { (shown) }
            @if let Some(whole) = whole { p .cut { "Shown in part: " (size(shown.len() as u64)) " of " (size(whole as u64)) ". " code { "flowcell test FILE --json" } " prints all of it." } }
        }
    }
}
