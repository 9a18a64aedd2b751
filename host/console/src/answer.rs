//! The page of a link that answers a gate. It needs no login, and shows nothing before the code of the link was sent: the
//! code is behind the `#` of the address, so a client that only fetches the address, such as a scanner of mails, learns nothing.

use axum::{
    http::StatusCode,
    response::{IntoResponse, Redirect, Response},
};
use flowcell_server::api::Refusal;
use maud::{Markup, html};
use serde_json::{Value, json};

use crate::{
    frame::Page,
    gate::{MAX_PROMPT_BYTES, answer_fields, answer_of},
    parts::{cut, size, text, time},
    sent::Form,
    visit::Visit,
};

/// The page that takes the code of a link.
const HERE: &str = "/console/answer";

/// Shows the form for a code. The script takes the code out of the address, and sends the form.
pub(crate) async fn show() -> Page {
    let main = html! {
        p { "This page shows the question of a link, and takes your answer." }
        form data-by-link method="post" action="/console/answer" {
            label for="code" { "Or paste the link, or its part behind #" }
            input #code name="code" type="password" autocomplete="off" required spellcheck="false";
            button .primary { "Show the question" }
        }
    };
    Page::bare(StatusCode::OK, "Answer a question", main)
}

/// Shows the page after an answer.
pub(crate) async fn done() -> Page {
    let main = html! {
        p role="status" { "Your answer is recorded, and the run goes on. You can close this page." }
        (next_link(HERE))
    };
    Page::bare(StatusCode::OK, "Answered", main)
}

/// Shows the question of a code.
pub(crate) async fn open(visit: Visit, form: Form) -> Page {
    let code = code_of(&form);
    match visit.post("/v1/links/question", &json!({ "code": code })).await {
        Ok(answer) => question(code, &answer.body),
        Err(refusal) => refused(&refusal),
    }
}

/// Sends the answer of a form, for the question of its code.
pub(crate) async fn send(visit: Visit, form: Form) -> Response {
    let body = json!({ "code": code_of(&form), "answer": answer_of(&form) });
    match visit.post("/v1/links/answer", &body).await {
        Ok(_) => Redirect::to("/console/answer/done").into_response(),
        Err(refusal) => refused(&refusal).into_response(),
    }
}

/// Returns the code of a form. A whole link may be pasted.
pub(crate) fn code_of(form: &Form) -> &str {
    let sent = form.text("code").unwrap_or_default().trim();
    sent.rsplit_once('#').map_or(sent, |(_, code)| code)
}

fn question(code: &str, question: &Value) -> Page {
    let (shown, whole) = cut(text(question, "prompt"), MAX_PROMPT_BYTES);
    let main = html! {
        section .wait {
            p .faint { (text(question, "flow")) ", run " code { (text(question, "runId")) }
                ", asked " (time(&question["since"])) }
            @match whole {
                None => { p .prompt { (shown) } }
                Some(whole) => {
                    pre tabindex="0" { (shown) }
                    p .cut { "Shown in part: " (size(shown.len() as u64)) " of " (size(whole as u64))
                        ". The page of the run has all of it." }
                }
            }
            form .answer method="post" action="/console/answer/send" {
                input type="hidden" name="code" value=(code);
                (answer_fields("answer", question))
            }
            p .hint { "The first answer counts. This link ends " (time(&question["linkEnds"])) "." }
        }
        (next_link(HERE))
    };
    Page::bare(StatusCode::OK, "A question for you", main)
}

fn refused(refusal: &Refusal) -> Page {
    let (title, advice) = match refusal.code.as_str() {
        "gate_closed" | "run_ended" => ("Too late", "Nothing was changed. You can close this page."),
        "link_ended" | "link_invalid" => {
            ("This link opens nothing", "A person with a login finds open questions in the inbox.")
        }
        _ if refusal.status == StatusCode::TOO_MANY_REQUESTS || refusal.status.is_server_error() => {
            ("Not now", "Try again in a moment: open the link again.")
        }
        _ => ("Refused", "Open the link again, and answer as the question asks."),
    };
    let main = html! {
        p .notice .bad role="alert" {
            (refusal.message)
            // The page shows the time in the zone of its reader.
            @if refusal.details["answeredAt"].is_u64() { " (" (time(&refusal.details["answeredAt"])) ")" }
        }
        p { (advice) }
        p .faint { "Code " code { (refusal.code) } ", status " (refusal.status.as_u16()) "." }
        (next_link(HERE))
    };
    Page::bare(refusal.status, title, main)
}

/// Returns a form that only the script sends: a further link that is opened in the same window changes only the part of the
/// address behind `#`.
pub(crate) fn next_link(page: &str) -> Markup {
    html! {
        form data-by-link hidden method="post" action=(page) { input type="hidden" name="code"; }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sent::form_of;

    #[test]
    fn a_code_may_be_pasted_as_a_link() {
        for sent in ["fca_x.y", " fca_x.y\n", "https://flows.example.com/console/answer#fca_x.y"] {
            assert_eq!(code_of(&form_of(&[("code", sent)])), "fca_x.y");
        }
        assert_eq!(code_of(&form_of(&[])), "");
    }
}
