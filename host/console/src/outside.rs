//! The form of a link that starts a flow. It needs no login, and shows nothing before the code of the link was sent, as the
//! page of a link that [answers a gate](crate::answer).

use axum::{
    http::StatusCode,
    response::{IntoResponse, Redirect, Response},
};
use flowcell_server::api::Refusal;
use maud::{Markup, html};
use serde_json::{Value, json};

use crate::{
    answer::{code_of, next_link},
    flows::mistakes_of,
    form::{Fields, Mistake},
    frame::Page,
    once,
    parts::{cut, size, text, time},
    sent::Form,
    visit::Visit,
};

/// Maximum size in bytes of the description of a flow that the page shows.
const MAX_DESCRIPTION_BYTES: usize = 4 << 10;
/// The page that takes the code of a link.
const HERE: &str = "/console/form";
/// The route that starts a flow.
const START: &str = "/v1/links/form/start";

/// Shows the field for a code. The script takes the code out of the address, and sends it.
pub(crate) async fn show() -> Page {
    let main = html! {
        p { "This page shows the form of a link." }
        form data-by-link method="post" action=(HERE) {
            label for="code" { "Or paste the link, or its part behind #" }
            input #code name="code" type="password" autocomplete="off" required spellcheck="false";
            button .primary { "Show the form" }
        }
    };
    Page::bare(StatusCode::OK, "Fill a form in", main)
}

/// Shows the page after a form was sent.
pub(crate) async fn done() -> Page {
    let main = html! {
        p role="status" { "Your form was received, and its run has begun. You can close this page." }
        (next_link(HERE))
    };
    Page::bare(StatusCode::OK, "Received", main)
}

/// Shows the form of a code.
pub(crate) async fn open(visit: Visit, form: Form) -> Page {
    let code = code_of(&form);
    match visit.post("/v1/links/form", &json!({ "code": code })).await {
        Ok(answer) => page(code, &answer.body, None, &[]),
        Err(refusal) => refused(&refusal),
    }
}

/// Starts the flow with the input of a form. A wrong input shows the form again, with the mistakes at their fields.
pub(crate) async fn send(visit: Visit, sent: Form) -> Response {
    let code = code_of(&sent);
    let shown = match visit.post("/v1/links/form", &json!({ "code": code })).await {
        Ok(answer) => answer.body,
        // The form was sent before, and the link has no further use.
        Err(refusal) if refusal.code == "link_used" => Value::Null,
        Err(refusal) => return refused(&refusal).into_response(),
    };
    let again = |mistakes: &[Mistake]| {
        page(code, &shown, Some(&sent), mistakes).with_status(StatusCode::UNPROCESSABLE_ENTITY).into_response()
    };
    let input = match Fields::of(&shown["schema"]).read(&sent) {
        Ok(input) => input,
        Err(mistakes) => return again(&mistakes),
    };
    let body = json!({ "code": code, "input": input, "once": once::key_of(&sent, START) });
    match visit.post(START, &body).await {
        Ok(_) => Redirect::to("/console/form/done").into_response(),
        Err(refusal) if refusal.status == StatusCode::UNPROCESSABLE_ENTITY && !shown.is_null() => {
            again(&mistakes_of(&refusal))
        }
        Err(refusal) => refused(&refusal).into_response(),
    }
}

fn page(code: &str, shown: &Value, sent: Option<&Form>, mistakes: &[Mistake]) -> Page {
    let fields = Fields::of(&shown["schema"]);
    let (about, whole) = cut(text(shown, "description"), MAX_DESCRIPTION_BYTES);
    let main = html! {
        p .lead { (about) }
        @if let Some(whole) = whole { p .cut { "Shown in part: " (size(about.len() as u64)) " of " (size(whole as u64)) "." } }
        form method="post" action="/console/form/send" {
            input type="hidden" name="code" value=(code);
            (once::kept_field(sent))
            (fields.render(sent, mistakes))
            @if fields.left_out() > 0 {
                p .notice { "The form does not show " (fields.left_out()) " further fields of the flow." }
            }
            @if fields.take_files() { p .notice { "A form of a link takes no files." } }
            button .primary { "Send" }
        }
        p .hint { "This link ends " (time(&shown["linkEnds"])) "." }
        (next_link(HERE))
    };
    Page::bare(StatusCode::OK, text(shown, "flow").to_owned(), main)
}

fn refused(refusal: &Refusal) -> Page {
    let (title, advice) = match refusal.code.as_str() {
        "link_ended" | "link_invalid" | "link_used" | "flow_not_found" => {
            ("This link opens nothing", "Ask the person who sent it for a new one.")
        }
        _ if refusal.status == StatusCode::TOO_MANY_REQUESTS || refusal.status.is_server_error() => {
            ("Not now", "Try again in a moment: open the link again.")
        }
        _ => ("Refused", "Open the link again, and fill the form in as it asks."),
    };
    let main: Markup = html! {
        p .notice .bad role="alert" { (refusal.message) }
        p { (advice) }
        p .faint { "Code " code { (refusal.code) } ", status " (refusal.status.as_u16()) "." }
        (next_link(HERE))
    };
    Page::bare(refusal.status, title, main)
}
