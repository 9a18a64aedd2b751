//! The consent of a person for a credential: the page that sends a browser to an authorization server, and those that the
//! server sends it back to.
//!
//! The cookies of the console are strict: a browser does not send them with a request that another site has caused. So the
//! page at [`CALLBACK`] reads none, and leads to [`finish`], which does.

use axum::{
    extract::Path,
    response::{Html, IntoResponse, Redirect, Response},
};
use flowcell_server::api::Refusal;
use maud::html;
use serde_json::json;

use super::{HERE, place_of};
use crate::{
    frame::{Area, Failure, Page},
    parts::{message, text},
    runs::query,
    sent::Form,
    sign_in::{onward, with_cookies},
    visit::{KNOWN, Visit, escaped},
};

/// The path of the page that authorization servers send browsers to.
pub(crate) const CALLBACK: &str = "/console/connect/callback";
const FINISH: &str = "/console/connect/finish";

/// Sends the browser to the authorization server. The answer is a page, because the policy of the pages lets no form lead to
/// another site.
pub(crate) async fn begin(visit: Visit, Path(name): Path<String>, _: Form) -> Result<Response, Failure> {
    let path = format!("/v1/credentials/{}/connect", escaped(&name));
    match visit.post(&path, &json!({})).await {
        Ok(answer) => {
            let page = onward(text(&answer.body, "location"), "Connect", "The authorization server asks you now.");
            Ok(with_cookies(&answer, Html(page.into_string())))
        }
        Err(refusal) if refusal.code == "credential_not_connected" => Ok(failed(&visit, &refusal, &place_of(&name))),
        Err(refusal) => Err(Failure::of(&visit, refusal)),
    }
}

/// Leads a browser that comes from an authorization server to the page that finishes the consent.
pub(crate) async fn come_back(visit: Visit) -> Html<String> {
    let sent = ["state", "code", "error", "error_description"].map(|name| (name, visit.query(name)));
    let sent: Vec<_> = sent.iter().filter_map(|(name, value)| Some((*name, value.as_deref()?))).collect();
    let next = format!("{FINISH}{}", query(&sent));
    Html(onward(&next, "Connect", "The credential is being connected.").into_string())
}

/// Finishes the consent.
pub(crate) async fn finish(visit: Visit) -> Result<Response, Failure> {
    visit.get(KNOWN).await.map_err(|refusal| Failure::of(&visit, refusal))?;
    let mut body = json!({ "state": visit.query("state").unwrap_or_default() });
    for (name, member) in [("code", "code"), ("error", "error"), ("error_description", "errorDescription")] {
        if let Some(value) = visit.query(name) {
            body[member] = value.into();
        }
    }
    match visit.post("/v1/connect/callback", &body).await {
        // A reload of the page that follows sends nothing again.
        Ok(answer) => {
            let page = Redirect::to(&place_of(text(&answer.body, "credential")));
            Ok(with_cookies(&answer, page))
        }
        Err(refusal) if ["consent_state", "credential_not_connected", "bad_request"].contains(&&*refusal.code) => {
            Ok(failed(&visit, &refusal, HERE))
        }
        Err(refusal) => Err(Failure::of(&visit, refusal)),
    }
}

fn failed(visit: &Visit, refusal: &Refusal, back: &str) -> Response {
    let main = html! {
        p .notice .bad role="alert" { (message(&refusal.message)) }
        p { a href=(back) { "Back to the credentials" } }
        p .faint { "Code " code { (refusal.code) } ", status " (refusal.status.as_u16()) ". "
            a href="/console/manual/credential" { "The manual explains the consent" } "." }
    };
    Page::new(visit, Area::Credentials, "Not connected", main).with_status(refusal.status).into_response()
}
