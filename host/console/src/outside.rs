//! The form of a link that starts a flow.

use axum::{
    http::StatusCode,
    response::{IntoResponse, Redirect, Response},
};
use flowcell_server::api::Refusal;
use maud::html;
use serde_json::{Value, json};

use crate::{
    by_link::{LinkPages, code_of},
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
const PAGES: LinkPages = LinkPages {
    here: "/console/form",
    title: "Fill a form in",
    about: "This page shows the form of a link.",
    button: "Show the form",
    done: ("Received", "Your form was received, and its run has begun. You can close this page."),
    advice: "Open the link again, and fill the form in as it asks.",
};
/// The route that starts a flow.
const START: &str = "/v1/links/form/start";

/// Shows the field for a code.
pub(crate) async fn show() -> Page {
    PAGES.take_code()
}

/// Shows the page after a form was sent.
pub(crate) async fn done() -> Page {
    PAGES.done()
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
    let key = once::key_of(&sent, START);
    // The same form may have been sent before, and may have used the link up.
    let shown = match visit.post("/v1/links/form", &json!({ "code": code, "once": key })).await {
        Ok(answer) => answer.body,
        Err(refusal) => return refused(&refusal).into_response(),
    };
    let again = |mistakes: &[Mistake]| {
        page(code, &shown, Some(&sent), mistakes).with_status(StatusCode::UNPROCESSABLE_ENTITY).into_response()
    };
    let input = match Fields::of(&shown["schema"]).read(&sent) {
        Ok(input) => input,
        Err(mistakes) => return again(&mistakes),
    };
    let body = json!({ "code": code, "input": input, "once": key });
    match visit.post(START, &body).await {
        Ok(_) => Redirect::to("/console/form/done").into_response(),
        Err(refusal) if refusal.status == StatusCode::UNPROCESSABLE_ENTITY => again(&mistakes_of(&refusal)),
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
        (PAGES.next_link())
    };
    Page::bare(StatusCode::OK, text(shown, "flow").to_owned(), main)
}

fn refused(refusal: &Refusal) -> Page {
    let known = match refusal.code.as_str() {
        "link_ended" | "link_invalid" | "link_used" | "flow_not_found" => {
            Some(("This link opens nothing", "Ask the person who sent it for a new one."))
        }
        "conflict" => Some(("Not now", "Another request sends the same form: go back in a minute, and send it again.")),
        _ => None,
    };
    PAGES.refused(refusal, known)
}
