//! The tokens and the audit log of the tenant, for its administrators.

use axum::{
    extract::Path,
    http::{Method, StatusCode},
    response::{IntoResponse, Redirect, Response},
};
use maud::html;
use serde_json::{Value, json};

use crate::{
    frame::{Area, Failure, Page},
    parts::{command, empty, list, list_table, quoted, server_command, text, time},
    runs::query,
    sent::Form,
    visit::{KNOWN, Visit, escaped},
};

/// Number of tokens, or of entries of the audit log, on a page.
const PAGE: u64 = 100;
/// The lifetimes that the form offers: the name, and the length in milliseconds.
const LIFETIMES: [(&str, u64); 4] =
    [("1 day", 86_400_000), ("30 days", 2_592_000_000), ("90 days", 7_776_000_000), ("365 days", 31_536_000_000)];

/// Shows the tokens, and a form to create one.
pub(crate) async fn all(visit: Visit) -> Result<Page, Failure> {
    page(&visit, None).await
}

/// Shows the tokens. `made` is a token that was just created: this page alone shows its secret.
async fn page(visit: &Visit, made: Option<&Value>) -> Result<Page, Failure> {
    let fails = |refusal| Failure::of(visit, refusal);
    let cursor = visit.query("cursor").unwrap_or_default();
    let asked = query(&[("limit", &PAGE.to_string()), ("cursor", &cursor)]);
    let answer = visit.get(&format!("/v1/tokens{asked}")).await.map_err(fails)?;
    let me = visit.get(KNOWN).await.map_err(fails)?;
    let tokens = list(&answer, "tokens");
    let main = html! {
        @if let Some(made) = made {
            div .notice role="status" {
                p { strong { "The token was created. Copy it now: no other page shows it." } }
                pre tabindex="0" { (text(made, "token")) }
                p { "Send it as " code { "Authorization: Bearer TOKEN" } "." }
            }
        }
        @if me["local"] == true {
            (empty("This server asks for no tokens.", html! {
                p { "It has no tenants, so every user of its machine is the tenant " code { "local" } ". " a href="/console/manual/tenant" { "Tenants and tokens" } }
            }))
        } @else {
            (list_table(Some("tokens"), "Tokens, by id", html! { th { "Token" } th { "Scopes" } th { "Created" } th { "Last used" } th { "Ends" } th { span .hidden { "Revoke" } } }, html! {
                @for token in tokens {
                    @let (id, name) = (text(token, "id"), text(token, "name"));
                    tr {
                        td { span .id { @if name.is_empty() { (id) } @else { (name) } }
                            @if !name.is_empty() { " " span .faint { (id) } }
                            @if me["token"]["id"] == *id { " " span .faint { "(yours)" } }
                            @if !text(token, "note").is_empty() { br; span .faint { (text(token, "note")) } } }
                        td { @for scope in list(token, "scopes") { code { (scope.as_str().unwrap_or_default()) } " " } }
                        td { (time(&token["created"])) }
                        td { @if token["lastUsed"].is_u64() { (time(&token["lastUsed"])) } @else { span .faint { "never" } } }
                        td {
                            @if token["revoked"].is_u64() { "revoked " (time(&token["revoked"])) }
                            @else if token["expires"].is_u64() { (time(&token["expires"])) @if let Some(warning) = token["warning"].as_str() { " " span .warn { (warning) } } }
                            @else { "never" }
                        }
                        td {
                            @if !token["revoked"].is_u64() {
                                details .control { summary { "Revoke…" }
                                    form method="post" action={ "/console/tokens/" (escaped(id)) "/revoke" } {
                                        p { "Requests with it are refused from now on." }
                                        button aria-label={ "Revoke " (id) } { "Revoke" }
                                    }
                                }
                            }
                        }
                    }
                }
            }))
            nav .pages aria-label="Pages of the list" {
                @if !cursor.is_empty() { a rel="first" href="/console/tokens" { "First" } }
                @if let Some(next) = answer["next"].as_str() { a rel="next" href={ "/console/tokens?cursor=" (escaped(next)) } { "More" } }
            }
            section {
                h2 { "Create a token" }
                form method="post" action="/console/tokens" {
                    div .field { label for="name" { "Name" } input #name name="name" autocomplete="off" spellcheck="false";
                        p .hint { "Letters, digits, “-” and “_”. It may be empty." } }
                    fieldset .field { legend { "Scopes" }
                        @for scope in list(&me, "scopes").iter().filter_map(Value::as_str) {
                            label .check { input type="checkbox" name="scope" value=(scope); " " code { (scope) } }
                        }
                        p .hint { "At most those of your own token. " a href="/console/manual/tenant" { "What each scope allows" } } }
                    div .field { label for="note" { "Purpose" } input #note name="note" maxlength="200" autocomplete="off"; }
                    div .field { label for="lasts" { "Lifetime" } select #lasts name="lasts" {
                        @for (name, ms) in LIFETIMES { option value=(ms) selected[name == "90 days"] { (name) } }
                    } }
                    p .hint { "The token does not end with yours: it stays valid when yours ends or is revoked." }
                    button .primary { "Create" }
                }
            }
        }
        p { a href="/console/audit" { "The audit log" } " has all changes of tokens, secrets, flows, triggers and files." }
        (command("token list"))
    };
    Ok(Page::new(visit, Area::Tokens, "Tokens", main))
}

/// Creates a token, and shows it once.
pub(crate) async fn create(visit: Visit, form: Form) -> Result<Response, Failure> {
    let field = |name: &str| form.text(name).map(str::trim).filter(|text| !text.is_empty());
    let mut body = json!({ "scopes": form.all("scope"), "note": field("note").unwrap_or_default() });
    if let Some(name) = field("name") {
        body["name"] = name.into();
    }
    if let Some(lasts) = field("lasts") {
        // The API refuses a text.
        body["expiresInMs"] = serde_json::from_str(lasts).unwrap_or_else(|_| lasts.into());
    }
    let made = visit.post("/v1/tokens", &body).await.map_err(|refusal| Failure::of(&visit, refusal))?;
    Ok(page(&visit, Some(&made.body)).await?.with_status(StatusCode::CREATED).into_response())
}

/// Revokes a token.
pub(crate) async fn revoke(visit: Visit, Path(id): Path<String>, _: Form) -> Result<Response, Failure> {
    let revoked = visit.call(Method::DELETE, &format!("/v1/tokens/{}", escaped(&id)), None).await;
    revoked.map_err(|refusal| Failure::of(&visit, refusal))?;
    Ok(Redirect::to("/console/tokens").into_response())
}

/// Shows a page of the audit log. Without a place, it has the last entries.
pub(crate) async fn audit(visit: Visit) -> Result<Page, Failure> {
    let after = visit.query("after").and_then(|after| after.parse::<u64>().ok());
    let asked = match after {
        Some(after) => format!("?limit={PAGE}&after={after}"),
        None => format!("?limit={PAGE}&latest=true"),
    };
    let page = visit.get(&format!("/v1/audit{asked}")).await.map_err(|refusal| Failure::of(&visit, refusal))?;
    let me = visit.get(KNOWN).await.map_err(|refusal| Failure::of(&visit, refusal))?;
    let entries = list(&page, "entries");
    let number = |entry: Option<&Value>| entry.and_then(|entry| entry["seq"].as_u64()).unwrap_or(0);
    let (first, last) = (number(entries.first()), number(entries.last()));
    let damage = list(&page, "damage");
    let main = html! {
        @for each in damage { p .notice .bad { (each.as_str().unwrap_or_default()) } }
        @if entries.is_empty() {
            (empty("No entry is here.", html! { p { "Changes of tokens, secrets, flows, triggers and files, and answers of people, appear here." } }))
        } @else {
            @if damage.is_empty() { p .faint { "The entries of this page are whole, and follow the entry before it." } }
            (list_table(Some("audit"), "Audit log", html! { th .number { "Number" } th { "Time" } th { "Who" } th { "What" } th { "Outcome" } }, html! {
                @for entry in entries.iter().rev() {
                    tr {
                        td .number { (number(Some(entry))) }
                        td { (time(&entry["ts"])) }
                        td { code { (text(entry, "actor")) } }
                        td { code { (text(entry, "action")) } " " (text(entry, "subject")) }
                        td { (text(entry, "outcome")) }
                    }
                }
            }))
        }
        nav .pages aria-label="Pages of the list" {
            @if first > 1 { a rel="prev" href={ "/console/audit?after=" (first.saturating_sub(PAGE + 1)) } { "Older" } }
            @if page["next"].is_u64() { a rel="next" href={ "/console/audit?after=" (last) } { "Newer" } }
            @if after.is_some() { a href="/console/audit" { "Newest" } }
        }
        (server_command(&format!("audit list {}", quoted(text(&me, "tenant")))))
    };
    Ok(Page::new(&visit, Area::Tokens, "Audit log", main))
}
