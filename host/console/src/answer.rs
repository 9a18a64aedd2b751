//! The page of a link that answers a gate.

use axum::{
    http::StatusCode,
    response::{IntoResponse, Redirect, Response},
};
use flowcell_server::api::Refusal;
use maud::html;
use serde_json::{Value, json};

use crate::{
    by_link::{LinkPages, code_of},
    frame::Page,
    gate::{MAX_PROMPT_BYTES, answer_fields, answer_of},
    parts::{coded, cut, size, text, time},
    sent::Form,
    visit::Visit,
};

const PAGES: LinkPages = LinkPages {
    here: "/console/answer",
    title: "Answer a question",
    about: "This page shows the question of a link, and takes your answer.",
    button: "Show the question",
    done: ("Answered", "Your answer is recorded, and the run goes on. You can close this page."),
    advice: "Open the link again, and answer as the question asks.",
};

/// Shows the field for a code.
pub(crate) async fn show() -> Page {
    PAGES.take_code()
}

/// Shows the page after an answer.
pub(crate) async fn done() -> Page {
    PAGES.done()
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

fn question(code: &str, question: &Value) -> Page {
    let (shown, whole) = cut(text(question, "prompt"), MAX_PROMPT_BYTES);
    let main = html! {
        section .wait {
            p .faint { (text(question, "flow")) ", run " code { (text(question, "runId")) }
                ", asked " (time(&question["since"])) }
            @match whole {
                None => { p .prompt { (coded(shown)) } }
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
        (PAGES.next_link())
    };
    Page::bare(StatusCode::OK, "A question for you", main)
}

fn refused(refusal: &Refusal) -> Page {
    let known = match refusal.code.as_str() {
        "gate_closed" | "run_ended" => Some(("Too late", "Nothing was changed. You can close this page.")),
        "link_ended" | "link_invalid" => {
            Some(("This link opens nothing", "A person with a login finds open questions in the inbox."))
        }
        _ => None,
    };
    PAGES.refused(refusal, known)
}
