//! The triggers, files, usage and secrets of the tenant.

use axum::{
    extract::Path,
    http::{Method, StatusCode},
    response::{IntoResponse, Redirect, Response},
};
use flowcell_server::api::Refusal;
use maud::{Markup, html};
use serde_json::{Value, json};

use crate::{
    frame::{Area, Failure, Page},
    once,
    parts::{command, duration, empty, list, list_table, quoted, size, text, time},
    runs::query,
    sent::Form,
    visit::{KNOWN, Visit, escaped},
};

/// Maximum number of rows in a list.
const MAX_ROWS: usize = 100;

/// Reads a list, and shows its rows or the way to a first one.
async fn rows(visit: &Visit, path: &str, key: &str) -> Result<(Vec<Value>, Markup), Failure> {
    let answer = visit.get(path).await.map_err(|refusal| Failure::of(visit, refusal))?;
    let all = list(&answer, key);
    let more = all.len() > MAX_ROWS || answer["next"].is_string();
    let note = html! { @if more { p .cut { "Only the first " (all.len().min(MAX_ROWS)) " are shown: " a href=(path) { code { (path) } } } } };
    Ok((all.iter().take(MAX_ROWS).cloned().collect(), note))
}

/// Shows the triggers with the times when they are due.
pub(crate) async fn triggers(visit: Visit) -> Result<Page, Failure> {
    let (rows, note) = rows(&visit, "/v1/triggers", "triggers").await?;
    let main = html! {
        @if rows.is_empty() {
            (empty("No flow has a trigger.", html! {
                p { "A trigger starts a flow at a time, after a run, or by a post. Add one to the text of a flow:" }
                pre tabindex="0" { "flow:\n  triggers:\n    - { id: nightly, cron: \"0 3 * * *\" }" }
                p { a href="/console/manual/trigger" { "All triggers" } }
            }))
        } @else {
            (list_table(None, "Triggers", html! { th { "Trigger" } th { "Flow" } th { "Kind" } th { "Next due" } th { "Enabled" } th { span .hidden { "Actions" } } }, html! {
                @for row in &rows {
                    tr {
                        td .id { (text(row, "id")) }
                        td { a href={ "/console/flows/" (escaped(text(row, "flow"))) } { (text(row, "flow")) } }
                        td { (kind(row)) }
                        td { @if let Some(next) = row["next"].as_str() { time datetime=(next) { (next) } } @else { span .faint { "not by time" } } }
                        td {
                            @if row["enabled"] == false { "no" } @else { "yes" }
                            @for problem in list(row, "problems") { p .bad { (problem.as_str().unwrap_or_default()) } }
                        }
                        td { (trigger_controls(row)) }
                    }
                }
            }))
        }
        (note)
        (command("trigger list"))
    };
    Ok(Page::new(&visit, Area::Triggers, "Triggers", main))
}

/// Shows the buttons of a trigger, each with its command line.
fn trigger_controls(trigger: &Value) -> Markup {
    let (flow, id) = (text(trigger, "flow"), text(trigger, "id"));
    let button = |verb: &str, label: &str| {
        html! {
            form method="post" action={ "/console/triggers/" (escaped(flow)) "/" (escaped(id)) "/" (verb) } {
                @if verb == "fire" { (once::field()) }
                button aria-label={ (label) " " (id) " of " (flow) } { (label) }
            }
            (command(&format!("trigger {verb} {} {}", quoted(flow), quoted(id))))
        }
    };
    html! {
        details .control { summary { "Act…" span .hidden { " on " (id) " of " (flow) } }
            (button("fire", "Start a run now"))
            @if trigger["enabled"] == false { (button("enable", "Enable")) } @else { (button("disable", "Disable")) }
        }
    }
}

/// Fires, enables or disables a trigger.
pub(crate) async fn steer_trigger(
    visit: Visit,
    Path((flow, trigger, verb)): Path<(String, String, String)>,
    form: Form,
) -> Result<Response, Failure> {
    let fails = |refusal| Failure::of(&visit, refusal);
    if !["fire", "enable", "disable"].contains(&verb.as_str()) {
        visit.get(KNOWN).await.map_err(fails)?;
        let why = format!("a trigger cannot `{verb}`");
        return Err(fails(Refusal::new(StatusCode::NOT_FOUND, "not_found", why)));
    }
    let path = format!("/v1/triggers/{}/{}/{verb}", escaped(&flow), escaped(&trigger));
    once::post(&visit, &path, &json!({}), &form).await.map_err(fails)?;
    // The server starts the run in a moment, and the list shows it then.
    let runs = format!("/console/runs{}", query(&[("flow", &flow), ("trigger", &trigger)]));
    Ok(Redirect::to(if verb == "fire" { &runs } else { "/console/triggers" }).into_response())
}

/// Removes a file.
pub(crate) async fn remove_file(visit: Visit, Path(id): Path<String>, _: Form) -> Result<Response, Failure> {
    let removed = visit.call(Method::DELETE, &format!("/v1/files/{}", escaped(&id)), None).await;
    removed.map_err(|refusal| Failure::of(&visit, refusal))?;
    Ok(Redirect::to("/console/files").into_response())
}

fn kind(trigger: &Value) -> Markup {
    html! {
        @if let Some(cron) = trigger["cron"].as_str() { "cron " code { (cron) } }
        @else if !trigger["webhook"].is_null() { "webhook" }
        @else if !trigger["event"].is_null() { "after a run" }
        @else { (text(trigger, "kind")) }
    }
}

/// Shows the files of the tenant.
pub(crate) async fn files(visit: Visit) -> Result<Page, Failure> {
    let (rows, note) = rows(&visit, "/v1/files", "files").await?;
    let main = html! {
        @if rows.is_empty() {
            (empty("No file is stored.", html! {
                p { "Flows take files as input. Store one:" }
                pre tabindex="0" { "flowcell files put report.pdf" }
            }))
        } @else {
            (list_table(None, "Files, by name", html! { th { "Name" } th { "Type" } th .number { "Size" } th { "Stored" } th { span .hidden { "Remove" } } }, html! {
                @for row in &rows {
                    tr {
                        td { a .id href={ "/v1/files/" (escaped(text(row, "fileId"))) "/content" } { (text(row, "name")) } }
                        td { (text(row, "mime")) }
                        td .number { (size(row["size"].as_u64().unwrap_or(0))) }
                        td { (time(&row["created"])) }
                        td {
                            details .control { summary { "Remove…" }
                                form method="post" action={ "/console/files/" (escaped(text(row, "fileId"))) "/remove" } {
                                    p { "Runs that have it keep it." }
                                    button aria-label={ "Remove " (text(row, "name")) } { "Remove" }
                                }
                            }
                        }
                    }
                }
            }))
        }
        (note)
        div .field data-needs-script hidden { label for="upload" { "Store a file" } input #upload type="file" data-upload="reload"; }
        (command("files list"))
    };
    Ok(Page::new(&visit, Area::Files, "Files", main))
}

/// Shows the usage of the day against the limits of the policy.
pub(crate) async fn usage(visit: Visit) -> Result<Page, Failure> {
    let used = visit.get("/v1/usage").await.map_err(|refusal| Failure::of(&visit, refusal))?;
    let limits = &used["perDay"];
    let whole = |value: &Value| value.as_f64().unwrap_or(0.0) as u64;
    let usd = |value: &Value| format!("{:.2} USD", value.as_f64().unwrap_or(0.0));
    let mib = |value: &Value| size(whole(value).saturating_mul(1 << 20));
    let table = [
        (
            "Computing time",
            duration(whole(&used["computeMs"])),
            &limits["computeMs"],
            duration(whole(&limits["computeMs"])),
        ),
        ("Events", whole(&used["events"]).to_string(), &limits["events"], whole(&limits["events"]).to_string()),
        ("Written", size(whole(&used["writtenBytes"])), &limits["writtenMib"], mib(&limits["writtenMib"])),
        ("Models", usd(&used["modelUsd"]), &limits["modelUsd"], usd(&limits["modelUsd"])),
    ];
    let main = html! {
        (list_table(None, "Usage of today (UTC)", html! { th { "Today (UTC)" } th .number { "Used" } th .number { "Limit" } }, html! {
            @for (name, used, limit, shown) in &table {
                tr { td { (name) } td .number { (used) } td .number { @if limit.is_null() { "none" } @else { (shown) } } }
            }
        }))
        p .faint { "The last two seconds may be missing. A server without tenants counts nothing." }
    };
    Ok(Page::new(&visit, Area::Usage, "Usage", main))
}

/// Shows the names of the secrets, and a form to set one.
pub(crate) async fn secrets(visit: Visit) -> Result<Page, Failure> {
    let (rows, note) = rows(&visit, "/v1/secrets", "secrets").await?;
    let main = html! {
        p .faint { "Flows can send secrets, and nothing shows their values: neither a page nor the API. "
            a href="/console/credentials" { "Credentials" } " are for API keys, passwords, signatures and OAuth 2." }
        @if rows.is_empty() { (empty("No secret is set.", html! { p { "Set one below, or in a terminal." } })) } @else {
            (list_table(None, "Secrets, by name", html! { th { "Name" } th { "For" } th { "Set" } th { "Expires" } th { span .hidden { "Remove" } } }, html! {
                @for row in &rows {
                    @let name = text(row, "name");
                    tr {
                        td .id { (name) }
                        td { @for origin in list(row, "for") { code { (origin.as_str().unwrap_or_default()) } " " } }
                        td { (time(&row["updated"])) }
                        td { @if row["expires"].is_u64() { (time(&row["expires"])) } @else { "no end" } }
                        td {
                            details .control { summary { "Remove…" }
                                form method="post" action={ "/console/secrets/" (escaped(name)) "/remove" } {
                                    p { "Calls that need it fail from now on." }
                                    button aria-label={ "Remove " (name) } { "Remove" }
                                }
                            }
                        }
                    }
                }
            }))
        }
        (note)
        section {
            h2 { "Set a secret" }
            form method="post" action="/console/secrets" {
                div .field { label for="name" { "Name" } input #name name="name" required autocomplete="off" spellcheck="false"; }
                div .field { label for="value" { "Value" } input #value name="value" type="password" required autocomplete="new-password";
                    p .hint { "8 bytes to 64 KiB. It is stored encrypted, and replaces an earlier value." } }
                div .field { label for="for" { "For" } textarea #for name="for" rows="2" placeholder="https://api.example.com" spellcheck="false" {}
                    p .hint { "The servers that may receive it, one a line." } }
                div .field { label for="days" { "Expires after days" } input #days name="days" inputmode="numeric" pattern="[0-9]*";
                    p .hint { "When the server that issued it ends it: 1 to 365, or empty. A notification tells of it a week before." } }
                button .primary { "Set" }
            }
        }
        (command("secret set NAME --for https://api.example.com"))
    };
    Ok(Page::new(&visit, Area::Secrets, "Secrets", main))
}

/// Sets a secret.
pub(crate) async fn set_secret(visit: Visit, form: Form) -> Result<Response, Failure> {
    let name = form.text("name").unwrap_or_default().trim();
    if name.is_empty() {
        visit.get("/v1/secrets").await.map_err(|refusal| Failure::of(&visit, refusal))?;
        let why = "the secret was not set, because it has no name";
        return Err(Failure::of(&visit, Refusal::new(StatusCode::BAD_REQUEST, "bad_request", why)));
    }
    let origins: Vec<_> =
        form.text("for").unwrap_or_default().lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let mut body = json!({ "value": form.text("value").unwrap_or_default(), "for": origins });
    let days = form.text("days").unwrap_or_default().trim();
    if !days.is_empty() {
        let Some(lasts) = days.parse::<u64>().ok().and_then(|days| days.checked_mul(24 * 3_600_000)) else {
            let why = "the secret was not set: write the days until it expires as a number from 1 to 365";
            return Err(Failure::of(&visit, Refusal::new(StatusCode::BAD_REQUEST, "bad_request", why)));
        };
        body["expiresInMs"] = lasts.into();
    }
    let path = format!("/v1/secrets/{}", escaped(name));
    let set = visit.call(Method::PUT, &path, Some(&body)).await;
    set.map_err(|refusal| Failure::of(&visit, refusal))?;
    Ok(Redirect::to("/console/secrets").into_response())
}

/// Removes a secret.
pub(crate) async fn remove_secret(visit: Visit, Path(name): Path<String>, _: Form) -> Result<Response, Failure> {
    let removed = visit.call(Method::DELETE, &format!("/v1/secrets/{}", escaped(&name)), None).await;
    removed.map_err(|refusal| Failure::of(&visit, refusal))?;
    Ok(Redirect::to("/console/secrets").into_response())
}
