//! Sign-in by OpenID Connect: the page that sends a browser to an issuer, and the one that the issuer sends it back to.

use axum::{
    extract::Path,
    http::{StatusCode, header},
    response::{Html, IntoResponse, Redirect, Response},
};
use flowcell_server::api::{Answer, Refusal};
use maud::{DOCTYPE, Markup, html};
use serde_json::{Value, json};

use crate::{
    assets,
    frame::Page,
    parts::{list, message},
    visit::{Visit, escaped, own_page},
};

/// Returns a link for each issuer of the server, for the login page. They are no forms, because the policy of the page lets
/// no form lead to another site.
pub(crate) async fn buttons(visit: &Visit, next: &str) -> Markup {
    let found = visit.get("/v1/sign-in").await;
    let issuers = found.as_ref().map(|found| list(found, "issuers").to_vec()).unwrap_or_default();
    let place = |issuer: &Value| {
        let name = issuer["name"].as_str().unwrap_or_default();
        format!("/console/sign-in/{}?next={}", escaped(name), escaped(next))
    };
    html! {
        @if let Err(refusal) = &found {
            p .notice .bad { "The issuers of the sign-in cannot be shown: " (refusal.message) }
        }
        @for issuer in &issuers {
            p { a .button .primary href=(place(issuer)) {
                "Sign in with " (issuer["title"].as_str().unwrap_or_default())
            } }
        }
    }
}

/// Sends the browser to the issuer.
pub(crate) async fn begin(visit: Visit, Path(issuer): Path<String>) -> Response {
    let next = own_page(visit.query("next").as_deref());
    match visit.post("/v1/sign-in", &json!({ "issuer": issuer, "next": next })).await {
        Ok(answer) => {
            let to = Redirect::to(answer.body["location"].as_str().unwrap_or("/console/login"));
            with_cookies(&answer, to)
        }
        Err(refusal) => failed(&refusal).into_response(),
    }
}

/// Finishes the sign-in of a browser that the issuer has sent back. The page opens the next one by itself: the cookie of the
/// session is not sent with a request that another site has caused.
pub(crate) async fn finish(visit: Visit) -> Response {
    let sent = |name: &str| visit.query(name);
    let mut body = json!({ "state": sent("state").unwrap_or_default() });
    for name in ["code", "iss", "error"] {
        if let Some(value) = sent(name) {
            body[name] = value.into();
        }
    }
    match visit.post("/v1/sign-in/callback", &body).await {
        Ok(answer) => {
            let next = own_page(answer.body["next"].as_str());
            with_cookies(&answer, Html(onward(&next, "Signed in", "You are signed in.").into_string()))
        }
        Err(refusal) => failed(&refusal).into_response(),
    }
}

/// Returns a page with a title and a sentence, which opens the next address by itself.
pub(crate) fn onward(next: &str, title: &str, said: &str) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="refresh" content=(format!("0; url={next}"));
                title { (title) " · Flowcell" }
                link rel="icon" type="image/svg+xml" href=(assets::path("icon.svg"));
            }
            body { p { (said) " " a href=(next) { "Go on" } } }
        }
    }
}

fn failed(refusal: &Refusal) -> Page {
    let title =
        if refusal.status == StatusCode::SERVICE_UNAVAILABLE { "Sign-in is not possible now" } else { "Not signed in" };
    let main = html! {
        p .notice .bad role="alert" { (message(&refusal.message)) }
        p { a href="/console/login" { "Back to the login page" } }
        p .faint { "Code " code { (refusal.code) } ", status " (refusal.status.as_u16()) ". "
            a href="/console/manual/sign-in" { "The manual explains the sign-in" } "." }
    };
    Page::bare(refusal.status, title, main)
}

/// Passes the cookies of the API on to the browser.
pub(crate) fn with_cookies(answer: &Answer, response: impl IntoResponse) -> Response {
    let mut response = response.into_response();
    for cookie in answer.headers.get_all(header::SET_COOKIE) {
        response.headers_mut().append(header::SET_COOKIE, cookie.clone());
    }
    response
}
