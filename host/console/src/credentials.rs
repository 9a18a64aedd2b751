//! The credentials of the tenant: their list, a page of each, and the form that sets one. No page shows a secret.
//!
//! | module | content |
//! |---|---|
//! | connect | the consent of a person at an authorization server |
//! | fields | the kinds, and the fields of their forms |

pub(crate) mod connect;
mod fields;

use std::collections::BTreeMap;

use axum::{
    extract::Path,
    http::{Method, StatusCode},
    response::{IntoResponse, Redirect, Response},
};
use flowcell_server::api::Refusal;
use maud::{Markup, html};
use serde_json::{Value, json};

use self::fields::{KINDS, Kind, lines};
use crate::{
    frame::{Area, Failure, Page},
    parts::{command, empty, list, list_table, message, positionals, text, time},
    runs::query,
    sent::Form,
    visit::{Visit, escaped},
};

/// Maximum number of rows in the list.
const MAX_ROWS: usize = 100;
/// The path of the list.
const HERE: &str = "/console/credentials";

/// The packs with node types that declare a credential of a name, and the first declaration.
struct Declared {
    packs: Vec<String>,
    request: Value,
}

/// A form that sets a credential.
struct SetForm<'a> {
    kind: &'static Kind,
    /// The name of the credential that the form replaces. `None`: the form asks for a name.
    replaces: Option<&'a str>,
    name: &'a str,
    settings: Value,
    origins: String,
}

/// Shows the credentials, and a form to set one.
pub(crate) async fn all(visit: Visit) -> Result<Page, Failure> {
    let kind = visit.query("kind");
    let kind = kind.as_deref().and_then(Kind::named).unwrap_or(&KINDS[0]);
    let name = visit.query("name").unwrap_or_default();
    let setting = |name: &str| Value::from(visit.query(name).unwrap_or_default());
    let settings = json!({ "in": setting("in"), "key": setting("key") });
    let origins = visit.query("for").unwrap_or_default();
    page(&visit, SetForm { kind, replaces: None, name: &name, settings, origins }, None).await
}

async fn page(visit: &Visit, form: SetForm<'_>, refusal: Option<&Refusal>) -> Result<Page, Failure> {
    let answer = visit.get("/v1/credentials").await.map_err(|refusal| Failure::of(visit, refusal))?;
    let rows = list(&answer, "credentials");
    let packs = visit.get("/v1/packs").await;
    let declared = packs.as_ref().map(declared_by).unwrap_or_default();
    let missing: Vec<_> =
        declared.iter().filter(|(name, _)| !rows.iter().any(|row| text(row, "name") == *name)).collect();
    let main = html! {
        (refused(refusal))
        p .faint { "The host adds credentials to the requests of nodes that a flow grants them to. Nothing shows their secrets: neither a page nor the API. "
            a href="/console/secrets" { "Secrets" } ", " a href="/console/manual/credential" { "all about credentials" } "." }
        @if rows.is_empty() { (empty("No credential is set.", html! { p { "Set one below, or in a terminal." } })) } @else {
            (list_table(Some("credentials"), "Credentials, by name", html! { th { "Name" } th { "Kind" } th { "For" } th { "Declared by" } th { "State" } th { "Set" } th { span .hidden { "Remove" } } }, html! {
                @for row in rows.iter().take(MAX_ROWS) {
                    @let name = text(row, "name");
                    tr {
                        td { a .id href=(place_of(name)) { (name) } }
                        td { (text(row, "kind")) }
                        td { (origins_of(row)) }
                        td { (packs_of(declared.get(name))) }
                        td { (state_of(row)) }
                        td { (time(&row["updated"])) }
                        td { (remove_control(name)) }
                    }
                }
            }))
        }
        @if rows.len() > MAX_ROWS { p .cut { "Only the first " (MAX_ROWS) " of " (rows.len()) " are shown: " a href="/v1/credentials" { code { "/v1/credentials" } } } }
        @if let Err(refusal) = &packs { p .notice .warn { "The packs that declare credentials cannot be shown: " (refusal.message) } }
        (command("credential list"))
        @if !missing.is_empty() { section {
            h2 { "Declared by packs, and not set" }
            p { "A flow may also grant a credential of another name." }
            ul .plain { @for (name, declared) in missing.iter().copied() { li {
                a href=(place_to_set(name, &declared.request)) { "Set " (name) } " (" (text(&declared.request, "kind")) "), for " (packs_of(Some(declared)))
            } } }
        } }
        section #set { h2 { "Set a credential" }
            nav .tabs aria-label="Kinds of credentials" { @for kind in &KINDS {
                a href={ (HERE) (query(&[("kind", kind.name), ("name", form.name)])) "#set" } aria-current=[(kind.name == form.kind.name).then_some("true")] { (kind.name) }
            } }
            (set_form(&form)) }
    };
    Ok(Page::new(visit, Area::Credentials, "Credentials", main))
}

/// Shows a credential, and the form that replaces it.
pub(crate) async fn show(visit: Visit, Path(name): Path<String>) -> Result<Page, Failure> {
    page_of(&visit, &name, None).await
}

/// Shows a credential. `sent` is a form that was refused, with the refusal.
async fn page_of(visit: &Visit, name: &str, sent: Option<(SetForm<'_>, &Refusal)>) -> Result<Page, Failure> {
    let path = format!("/v1/credentials/{}", escaped(name));
    let row = visit.get(&path).await.map_err(|refusal| Failure::of(visit, refusal))?;
    let stored = Kind::named(text(&row, "kind"));
    let origins: Vec<_> = list(&row, "for").iter().filter_map(Value::as_str).collect();
    let (form, refusal) = match sent {
        Some((form, refusal)) => (Some(form), Some(refusal)),
        None => {
            let (settings, origins) = (row["settings"].clone(), origins.join("\n"));
            (stored.map(|kind| SetForm { kind, replaces: Some(name), name, settings, origins }), None)
        }
    };
    let is_connectable = row["settings"]["grant"] == "authorization_code";
    let main = html! {
        (refused(refusal))
        dl .facts {
            dt { "Kind" } dd { (text(&row, "kind")) }
            @for (setting, value) in row["settings"].as_object().into_iter().flatten() {
                dt { (setting) } dd { code { @if let Some(value) = value.as_str() { (value) } @else { (value.to_string()) } } }
            }
            dt { "For" } dd { (origins_of(&row)) }
            dt { "State" } dd { (state_of(&row)) }
            dt { "Set" } dd { (time(&row["updated"])) ", version " (row["version"].as_u64().unwrap_or(0)) }
        }
        (command(&format!("credential show {}", positionals(&[name]))))
        @if is_connectable { section { h2 { "Connect" }
            p { "The authorization server asks you whether flows may act for you. It sends you back to "
                code { (visit.origin()) (connect::CALLBACK) } ": register this address for the client there." }
            form method="post" action={ (place_of(name)) "/connect" } { button .primary { @if row["token"]["exists"] == true { "Connect again" } @else { "Connect" } } }
            (command(&format!("credential connect {}", positionals(&[name]))))
        } }
        @if let Some(form) = &form { section #set { h2 { "Replace it" }
            p { "All values are replaced, so the secrets have to be given again. Its token is removed." }
            (set_form(form))
        } }
        section { h2 { "Remove it" } (remove_control(name)) }
        p { a href=(HERE) { "All credentials" } }
    };
    Ok(Page::new(visit, Area::Credentials, name, main))
}

fn set_form(form: &SetForm<'_>) -> Markup {
    let SetForm { kind, replaces, name, settings, origins } = form;
    let shown = if name.is_empty() { "NAME" } else { *name };
    let for_origins: Vec<_> = lines(origins).collect();
    let for_origins = if for_origins.is_empty() { vec!["https://api.example.com"] } else { for_origins };
    html! {
        form method="post" action=(HERE) {
            input type="hidden" name="kind" value=(kind.name);
            @match replaces {
                Some(name) => {
                    input type="hidden" name="name" value=(name);
                    input type="hidden" name="replaces" value="yes";
                }
                None => { div .field { label for="name" { "Name" } input #name name="name" value=(name) required autocomplete="off" spellcheck="false" aria-describedby="name-hint";
                    p .hint #name-hint { "Letters, digits, “-” and “_”. A credential of this name is replaced." } } }
            }
            (kind.fields(settings))
            div .field { label for="for" { "For" } textarea #for name="for" rows="2" required placeholder="https://api.example.com" spellcheck="false" aria-describedby="for-hint" { (origins) }
                p .hint #for-hint { "The servers that may receive it, one a line." } }
            button .primary { @if replaces.is_some() { "Replace" } @else { "Set" } }
        }
        (command(&kind.command(shown, settings, &for_origins)))
    }
}

/// Sets a credential. A form that is refused is shown again without its secrets.
pub(crate) async fn set(visit: Visit, form: Form) -> Result<Response, Failure> {
    let value = |name: &str| form.text(name).unwrap_or_default();
    let name = value("name").trim();
    let Some(kind) = Kind::named(value("kind")).filter(|_| !name.is_empty()) else {
        visit.get("/v1/credentials").await.map_err(|refusal| Failure::of(&visit, refusal))?;
        let why = "the credential was not set, because it has no name or no kind";
        return Err(Failure::of(&visit, Refusal::new(StatusCode::BAD_REQUEST, "bad_request", why)));
    };
    let (settings, origins) = (Value::from(kind.settings_of(&form)), value("for"));
    let body = json!({
        "kind": kind.name, "settings": settings, "secrets": kind.secrets_of(&form),
        "for": lines(origins).collect::<Vec<_>>(),
    });
    let path = format!("/v1/credentials/{}", escaped(name));
    match visit.call(Method::PUT, &path, Some(&body)).await {
        Ok(_) => Ok(Redirect::to(&place_of(name)).into_response()),
        Err(refusal) if [StatusCode::UNPROCESSABLE_ENTITY, StatusCode::CONFLICT].contains(&refusal.status) => {
            let replaces = (value("replaces") == "yes").then_some(name);
            let again = SetForm { kind, replaces, name, settings, origins: origins.to_owned() };
            let page = match replaces {
                Some(_) => page_of(&visit, name, Some((again, &refusal))).await?,
                None => page(&visit, again, Some(&refusal)).await?,
            };
            Ok(page.with_status(refusal.status).into_response())
        }
        Err(refusal) => Err(Failure::of(&visit, refusal)),
    }
}

/// Removes a credential.
pub(crate) async fn remove(visit: Visit, Path(name): Path<String>, _: Form) -> Result<Response, Failure> {
    let removed = visit.call(Method::DELETE, &format!("/v1/credentials/{}", escaped(&name)), None).await;
    removed.map_err(|refusal| Failure::of(&visit, refusal))?;
    Ok(Redirect::to(HERE).into_response())
}

/// Returns the path of the page of a credential.
fn place_of(name: &str) -> String {
    format!("{HERE}/{}", escaped(name))
}

/// Returns the path of the form for a credential that a pack declares.
fn place_to_set(name: &str, request: &Value) -> String {
    let hosts: Vec<_> = list(request, "hosts").iter().filter_map(Value::as_str).map(with_scheme).collect();
    let hosts = hosts.join("\n");
    let asked = [("kind", "kind"), ("in", "in"), ("key", "key")].map(|(name, key)| (name, text(request, key)));
    format!("{HERE}{}#set", query(&[&[("name", name), ("for", &*hosts)][..], &asked].concat()))
}

fn with_scheme(host: &str) -> String {
    if host.contains("://") { host.to_owned() } else { format!("https://{host}") }
}

fn refused(refusal: Option<&Refusal>) -> Markup {
    html! { @if let Some(refusal) = refusal {
        div .notice .bad role="alert" { p { (message(&refusal.message)) } p { "Nothing was stored. Give the secrets again." } }
    } }
}

fn remove_control(name: &str) -> Markup {
    html! {
        details .control { summary { "Remove…" span .hidden { " " (name) } }
            form method="post" action={ (place_of(name)) "/remove" } {
                p { "Nodes with a grant for it fail from now on." }
                button aria-label={ "Remove " (name) } { "Remove" }
            }
            (command(&format!("credential remove {}", positionals(&[name]))))
        }
    }
}

fn origins_of(row: &Value) -> Markup {
    html! { @for origin in list(row, "for") { code { (origin.as_str().unwrap_or_default()) } " " } }
}

/// Shows the state of a credential, and of its token.
fn state_of(row: &Value) -> Markup {
    let token = &row["token"];
    let is_by_consent = row["settings"]["grant"] == "authorization_code";
    html! {
        @match (token.is_object(), token["exists"] == true) {
            (false, _) => "set",
            (true, true) => { "connected"
                @if token["renewAt"].is_u64() { ", the token is renewed " (time(&token["renewAt"])) }
                @if token["expires"].is_u64() { ", until " (time(&token["expires"])) } }
            (true, false) if is_by_consent => span .warn { "not connected" },
            (true, false) => "the host gets a token with the first request",
        }
        @if let Some(why) = token["failure"].as_str() { p .bad { "Renewals fail since " (time(&token["failedSince"])) ": " (why) } }
    }
}

fn packs_of(declared: Option<&Declared>) -> Markup {
    html! {
        @match declared {
            None => span .faint { "no pack" },
            Some(declared) => { @for pack in &declared.packs { a href={ "/console/packs/" (escaped(pack)) } { (pack) } " " } }
        }
    }
}

/// Returns the credentials that packs declare, by their names.
fn declared_by(answer: &Value) -> BTreeMap<String, Declared> {
    let mut all: BTreeMap<String, Declared> = BTreeMap::new();
    for pack in list(answer, "packs") {
        for request in list(pack, "types").iter().flat_map(|each| list(each, "credentials")) {
            let new = || Declared { packs: Vec::new(), request: request.clone() };
            let declared = all.entry(text(request, "name").to_owned()).or_insert_with(new);
            let name = text(pack, "pack").to_owned();
            if !declared.packs.contains(&name) {
                declared.packs.push(name);
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_packs_that_declare_a_credential_are_named_once() {
        let slack = json!({ "name": "slack", "kind": "oauth2", "hosts": ["slack.com"] });
        let maps =
            json!({ "name": "maps", "kind": "apiKey", "in": "query", "key": "api_key", "hosts": ["http://m.test:1"] });
        let types = json!([{ "type": "a.x", "credentials": [slack, maps] }, { "type": "a.y", "credentials": [slack] }, { "type": "a.z" }]);
        let answer = json!({ "packs": [{ "pack": "a@0.1.0", "types": types }, { "pack": "b@0.2.0", "types": [{ "type": "b.x", "credentials": [slack] }] }] });
        let declared = declared_by(&answer);
        assert_eq!(declared["slack"].packs, ["a@0.1.0", "b@0.2.0"]);
        assert_eq!(declared["maps"].packs, ["a@0.1.0"]);
        let place = place_to_set("maps", &declared["maps"].request);
        let expected =
            "/console/credentials?name=maps&for=http%3A%2F%2Fm.test%3A1&kind=apiKey&in=query&key=api_key#set";
        assert_eq!(place, expected);
        assert!(place_to_set("slack", &slack).contains("for=https%3A%2F%2Fslack.com&kind=oauth2"));
    }

    #[test]
    fn states_name_the_failure_of_a_renewal_as_text() {
        let row = |token: Value| json!({ "settings": { "grant": "authorization_code" }, "token": token });
        let shown = |row: &Value| state_of(row).into_string();
        assert_eq!(shown(&json!({ "settings": {} })), "set");
        assert!(shown(&row(json!({ "exists": false }))).contains("not connected"));
        assert!(shown(&row(json!({ "exists": true, "renewAt": 0 }))).contains("1970-01-01"));
        let failed = shown(&row(json!({ "exists": true, "expires": 0, "failure": "<img src=x>", "failedSince": 1 })));
        assert!(failed.contains(": &lt;img src=x&gt;") && failed.matches("1970-01-01").count() == 4, "{failed}");
    }
}
