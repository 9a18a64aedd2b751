//! The login: a one-time code or a token is exchanged for a token of the browser, in a cookie.

use axum::{
    http::{HeaderValue, Method, StatusCode, header},
    response::{AppendHeaders, IntoResponse, Redirect, Response},
};
use flowcell_server::api::{Answer, Refusal};
use maud::html;
use serde_json::json;

use crate::{
    frame::{Failure, Page},
    sent::Form,
    sign_in,
    visit::{Visit, own_page},
};

/// Shows the form. The script takes the code out of the fragment of the address, and sends the form.
pub(crate) async fn show(visit: Visit) -> Page {
    page(&visit, StatusCode::OK, &own_page(visit.query("next").as_deref()), None).await
}

async fn page(visit: &Visit, status: StatusCode, next: &str, refused: Option<&Refusal>) -> Page {
    let buttons = sign_in::buttons(visit, next).await;
    let main = html! {
        @if let Some(refused) = refused {
            p .notice .bad role="alert" {
                (refused.message) ". A code works once, and for two minutes: " code { "flowcell console" } " prints another one."
            }
        }
        (buttons)
        p { "On the machine of the server, this command prints a link that logs you in:" }
        pre { "flowcell console --tenant NAME" }
        form #login data-by-link method="post" action="/console/login" {
            input type="hidden" name="next" value=(next);
            label for="proof" { "Or paste a code or a token" }
            input #proof name="proof" type="password" autocomplete="off" required spellcheck="false";
            p .hint { "This browser gets a token of its own for 12 hours, with the same rights. Logging out revokes it." }
            button .primary { "Log in" }
        }
    };
    Page::bare(status, "Log in", main)
}

/// Logs the browser in, and opens the page that it came from.
pub(crate) async fn log_in(visit: Visit, form: Form) -> Response {
    let next = own_page(form.text("next"));
    let proof = form.text("proof").unwrap_or_default().trim();
    match visit.post("/v1/login", &json!({ "proof": proof })).await {
        Ok(answer) => with_cookie(answer, Redirect::to(&next)),
        Err(refused) => page(&visit, refused.status, &next, Some(&refused)).await.into_response(),
    }
}

/// Revokes the token of the browser.
pub(crate) async fn log_out(visit: Visit) -> Result<Response, Failure> {
    let left = visit.call(Method::POST, "/v1/logout", None).await;
    let left = left.map_err(|refusal| Failure::of(&visit, refusal))?;
    Ok(with_cookie(left, Redirect::to("/console/login")))
}

/// Passes the cookie of the API on to the browser.
fn with_cookie(answer: Answer, to: Redirect) -> Response {
    let cookie: Option<HeaderValue> = answer.headers.get(header::SET_COOKIE).cloned();
    (AppendHeaders(cookie.map(|cookie| (header::SET_COOKIE, cookie))), to).into_response()
}
