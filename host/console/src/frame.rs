//! The frame of all pages, the pages of errors, and the headers of all answers.

use std::{
    convert::Infallible,
    future::{Future, ready},
};

use axum::{
    body::{Body, HttpBody, to_bytes},
    extract::{Request, State},
    http::{HeaderName, HeaderValue, StatusCode, header, request::Parts},
    middleware::Next,
    response::{Html, IntoResponse, Redirect, Response},
};
use flowcell_server::api::{Api, Refusal};
use futures_util::{FutureExt, StreamExt, future::BoxFuture, stream::once};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde_json::Value;

use crate::{
    assets,
    parts::{TENANT_MARK, message, quoted, visible},
    visit::{KNOWN, Visit, escaped, is_only_operator},
};

/// The headers of all answers of the console.
pub const HEADERS: [(&str, &str); 6] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data: blob:; \
         form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
         trusted-types 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    // With `no-referrer`, browsers would send the forms of these pages with `Origin: null`.
    ("referrer-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
];

/// Adds [`HEADERS`] to an answer, and to a page the tenant of its command lines and the links of the caller. Only assets
/// may be kept.
pub(crate) async fn protect(State(api): State<Api>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let of_page = parts.clone();
    let mut response = with_caller(&api, &of_page, next.run(Request::from_parts(parts, body)).await).await;
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

/// Writes the links of the caller into a page, and the option `--tenant` into its command lines, unless the server has no
/// tenants.
async fn with_caller(api: &Api, page: &Parts, response: Response) -> Response {
    let kind = response.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    if !kind.is_some_and(|kind| kind.starts_with("text/html")) {
        return response;
    }
    let is_whole = response.body().size_hint().exact().is_some();
    let (parts, body) = response.into_parts();
    if !is_whole {
        let me = api.get(page, KNOWN).await.unwrap_or_default();
        let pieces = body
            .into_data_stream()
            .map(move |piece| piece.map(|piece| personal(&me, &String::from_utf8_lossy(&piece))));
        return Response::from_parts(parts, Body::from_stream(pieces));
    }
    let Ok(bytes) = to_bytes(body, usize::MAX).await else { return StatusCode::INTERNAL_SERVER_ERROR.into_response() };
    let text = String::from_utf8_lossy(&bytes);
    if !text.contains(TENANT_MARK) && !text.contains(PAGES_MARK) {
        return Response::from_parts(parts, Body::from(bytes));
    }
    let me = api.get(page, KNOWN).await.unwrap_or_default();
    Response::from_parts(parts, Body::from(personal(&me, &text)))
}

/// Returns a text of a page for a caller, as the API shows it to itself.
fn personal(me: &Value, text: &str) -> String {
    let option = match me["tenant"].as_str() {
        Some(tenant) if me["local"] != true => format!(" --tenant {}", quoted(tenant)),
        _ => String::new(),
    };
    let text = text.replace(TENANT_MARK, &option);
    let whole = text.split_once(PAGES_MARK).and_then(|(before, rest)| {
        let (area, after) = rest.split_once("-->")?;
        let area = Area::ALL.get(area.parse::<usize>().ok()?)?.0;
        Some(format!("{before}{}{after}", links(area, me).into_string()))
    });
    whole.unwrap_or(text)
}

/// The areas of the console, with their names and paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Area {
    Home,
    Runs,
    Inbox,
    Flows,
    Catalog,
    Triggers,
    Secrets,
    Credentials,
    Files,
    Usage,
    Tokens,
    Operators,
    Manual,
}

impl Area {
    const ALL: [(Area, &str, &str); 13] = [
        (Area::Home, "Home", "/console"),
        (Area::Runs, "Runs", "/console/runs"),
        (Area::Inbox, "Inbox", "/console/inbox"),
        (Area::Flows, "Flows", "/console/flows"),
        (Area::Catalog, "Catalog", "/console/catalog"),
        (Area::Triggers, "Triggers", "/console/triggers"),
        (Area::Secrets, "Secrets", "/console/secrets"),
        (Area::Credentials, "Credentials", "/console/credentials"),
        (Area::Files, "Files", "/console/files"),
        (Area::Usage, "Usage", "/console/usage"),
        (Area::Tokens, "Tokens", "/console/tokens"),
        (Area::Operators, "Operators", "/console/operators"),
        (Area::Manual, "Manual", "/console/manual"),
    ];

    /// Returns whether the page is for a caller, as the API shows it to itself.
    fn is_for(self, me: &Value) -> bool {
        match self {
            Area::Operators => me["operator"] == true,
            Area::Manual => true,
            _ => !is_only_operator(me),
        }
    }
}

/// The beginning of the place of the navigation in a page, before the number of the page's area. No text of a tenant can
/// contain it, because texts are escaped. The links depend on the caller; [`protect`] asks for the caller.
const PAGES_MARK: &str = "<!--pages:";

/// The place of the part of a page that is sent later.
const LATER_MARK: &str = "<!--later-->";

/// Returns the place for the part that [`Page::later`] gives.
pub(crate) fn place_of_later() -> Markup {
    PreEscaped(LATER_MARK.to_owned())
}

/// The keys of the pages, for the list that `?` opens.
const KEYS: [(&str, &str); 19] = [
    ("?", "show these keys"),
    ("g h", "Home"),
    ("g r", "Runs"),
    ("g i", "Inbox"),
    ("g f", "Flows"),
    ("g o", "Operators"),
    ("/", "move to the search or the first filter"),
    ("j  k", "next and previous row"),
    ("Enter", "open the row"),
    ("[  ]", "previous and next failure or question"),
    ("v g  v t  v l  v e  v a", "graph, timeline, tasks, events and agents of a run"),
    ("1 … 9", "choose an answer of the first open question"),
    ("m", "write to the agent of the page"),
    ("Ctrl Enter", "send the message"),
    ("↑ ↓", "in a picture: along its edges"),
    ("Ctrl Space", "in the editor: suggestions for the word at the caret"),
    ("F2", "in the editor: rename the node at the caret"),
    ("← →", "in the editor: between the tabs of the files"),
    ("Esc Tab", "in the editor: leave the text"),
];

/// A page.
pub(crate) struct Page {
    status: StatusCode,
    title: String,
    area: Option<Area>,
    /// The source of changes: the path of a stream of events, or `poll`. `None` for a page that does not change.
    live: Option<String>,
    has_login: bool,
    /// The script, which imports those of all pages.
    script: &'static str,
    main: Markup,
    later: Option<BoxFuture<'static, Markup>>,
}

/// The script of most pages.
const SCRIPT: &str = "console.js";

impl Page {
    /// Creates a page. `main` has everything below the title.
    pub(crate) fn new(visit: &Visit, area: Area, title: impl Into<String>, main: Markup) -> Page {
        let (title, has_login) = (title.into(), visit.has_cookie());
        Page {
            status: StatusCode::OK,
            title,
            area: Some(area),
            live: None,
            has_login,
            script: SCRIPT,
            main,
            later: None,
        }
    }

    /// Creates a page without navigation, for browsers that are not logged in.
    pub(crate) fn bare(status: StatusCode, title: impl Into<String>, main: Markup) -> Page {
        Page {
            status,
            title: title.into(),
            area: None,
            live: None,
            has_login: false,
            script: SCRIPT,
            main,
            later: None,
        }
    }

    /// Returns the page with a source of changes.
    pub(crate) fn live(self, source: impl Into<String>) -> Page {
        Page { live: Some(source.into()), ..self }
    }

    /// Returns the page without a source of changes.
    pub(crate) fn fixed(self) -> Page {
        Page { live: None, ..self }
    }

    /// Returns the page with another script than most pages.
    pub(crate) fn with_script(self, script: &'static str) -> Page {
        Page { script, ..self }
    }

    /// Returns the page with a part that takes the server long. The browser shows all that stands before
    /// [`place_of_later`] meanwhile.
    pub(crate) fn later(self, part: impl Future<Output = Markup> + Send + 'static) -> Page {
        Page { later: Some(part.boxed()), ..self }
    }

    /// Returns the page with a status.
    pub(crate) fn with_status(self, status: StatusCode) -> Page {
        Page { status, ..self }
    }

    fn render(&self) -> String {
        let markup = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    title { (self.title) " · Flowcell" }
                    link rel="icon" type="image/svg+xml" href=(assets::path("icon.svg"));
                    link rel="stylesheet" href=(assets::path("console.css"));
                    script type="module" src=(assets::path(self.script)) {}
                }
                body data-live=[&self.live] {
                    a .skip href="#main" { "Skip to the content" }
                    header .top {
                        a .brand href="/console" { "Flowcell" }
                        @if let Some(area) = self.area { (navigation(area, self.has_login)) }
                    }
                    main #main tabindex="-1" {
                        h1 { (self.title) }
                        (self.main)
                    }
                    div #news role="status" {}
                    @if self.area.is_some() { (keys()) }
                }
            }
        };
        visible(&markup.into_string()).into_owned()
    }
}

fn navigation(area: Area, has_login: bool) -> Markup {
    html! {
        nav aria-label="Pages" {
            ul { (PreEscaped(format!("{PAGES_MARK}{}-->", Area::ALL.iter().position(|(each, ..)| *each == area).unwrap_or(0)))) }
        }
        @if has_login {
            form .logout method="post" action="/console/logout" { button .quiet { "Log out" } }
        }
    }
}

/// Shows the links to the pages of a caller.
fn links(area: Area, me: &Value) -> Markup {
    html! {
        @for (each, name, path) in Area::ALL.iter().filter(|(each, ..)| each.is_for(me)) {
            li { a href=(path) aria-current=[(*each == area).then_some("page")] { (name) } }
        }
    }
}

fn keys() -> Markup {
    html! {
        dialog #keys aria-labelledby="keys-title" {
            h2 #keys-title { "Keys" }
            dl {
                @for (key, what) in KEYS {
                    dt { @for each in key.split_whitespace() { kbd { (each) } " " } }
                    dd { (what) }
                }
            }
            form method="dialog" { button { "Close" } }
        }
    }
}

impl IntoResponse for Page {
    fn into_response(self) -> Response {
        let page = self.render();
        let (Some(later), Some((before, after))) = (self.later, page.split_once(LATER_MARK)) else {
            return (self.status, Html(page)).into_response();
        };
        let (before, after) = (before.to_owned(), after.to_owned());
        let rest = later.map(move |part| visible(&part.into_string()).into_owned() + &after);
        let pieces = once(ready(before)).chain(once(rest)).map(Ok::<_, Infallible>);
        (self.status, Html(Body::from_stream(pieces))).into_response()
    }
}

/// A request that the console does not answer with its page.
pub(crate) struct Failure {
    refusal: Refusal,
    /// The page that was asked for, to come back after the login.
    place: String,
    comes_from_elsewhere: bool,
}

impl Failure {
    /// Creates the failure of a request to this page.
    pub(crate) fn of(visit: &Visit, refusal: Refusal) -> Failure {
        let comes_from_elsewhere = visit.comes_from_elsewhere();
        Failure { refusal, place: visit.place().to_owned(), comes_from_elsewhere }
    }

    /// Creates the failure of a request to the page at a path.
    pub(crate) fn at(place: &str, refusal: Refusal) -> Failure {
        Failure { refusal, place: place.to_owned(), comes_from_elsewhere: false }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        Failure::at("/console", refusal)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let Failure { refusal, place, comes_from_elsewhere } = self;
        if refusal.status != StatusCode::UNAUTHORIZED {
            return error_page(&refusal).into_response();
        }
        // The browser sends the cookie once the page itself asks again.
        if comes_from_elsewhere {
            let again = html! {
                (DOCTYPE)
                html lang="en" { head { meta http-equiv="refresh" content="0"; title { "Flowcell" } } body {} }
            };
            return Html(again.into_string()).into_response();
        }
        Redirect::to(&format!("/console/login?next={}", escaped(&place))).into_response()
    }
}

/// Returns a sentence about a refusal that says what to do, where the message of the API does not.
fn advice(refusal: &Refusal) -> &'static str {
    match refusal.status {
        StatusCode::FORBIDDEN => "Log in with a token that has this scope, or ask its owner for it.",
        StatusCode::NOT_FOUND => "It may have been removed, or the address may be wrong.",
        StatusCode::CONFLICT
            if ["gate_closed", "not_blocked", "run_not_active", "run_driven"].contains(&&*refusal.code) =>
        {
            "The run has moved on meanwhile. Open its page again and look."
        }
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => "Try again in a moment.",
        _ => "",
    }
}

fn error_page(refusal: &Refusal) -> Page {
    let title = match refusal.status {
        StatusCode::FORBIDDEN => "Not allowed",
        StatusCode::NOT_FOUND => "Not found",
        StatusCode::CONFLICT if !advice(refusal).is_empty() => "Too late",
        status if status.is_server_error() => "The server failed",
        _ => "Refused",
    };
    let main = html! {
        p .notice .bad { (message(&refusal.message)) }
        p { (advice(refusal)) }
        p .faint { "Code " code { (refusal.code) } ", status " (refusal.status.as_u16()) ". "
            a href="/console/manual/errors" { "The manual explains all codes" } "." }
    };
    Page { area: Some(Area::Home), ..Page::bare(refusal.status, title, main) }
}

/// Answers for an unknown path.
pub(crate) async fn missing(visit: Visit) -> Failure {
    let why = format!("the console has no page `{}`", visit.place());
    Failure::of(&visit, Refusal::new(StatusCode::NOT_FOUND, "not_found", why))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn a_page_shows_what_stands_before_its_later_part_at_once() {
        let main = html! { p { "before" } (place_of_later()) p { "after" (PreEscaped(TENANT_MARK)) } };
        let page = Page::bare(StatusCode::OK, "Title", main).later(async {
            html! { p { "part" (PreEscaped(TENANT_MARK)) } }
        });
        let mut pieces = page.into_response().into_body().into_data_stream();
        let me = json!({ "tenant": "acme" });
        let mut next = async || personal(&me, std::str::from_utf8(&pieces.next().await.unwrap().unwrap()).unwrap());
        let first = next().await;
        assert!(first.contains("<h1>Title</h1>") && first.ends_with("<p>before</p>"), "{first}");
        let rest = next().await;
        assert!(rest.starts_with("<p>part --tenant acme</p><p>after --tenant acme</p>"), "{rest}");
        assert!(rest.trim_end().ends_with("</html>"), "{rest}");
        assert!(pieces.next().await.is_none());
    }
}
