//! The pages of the operators: the tenants, the runs of all tenants, and the server with its store.

use axum::{
    extract::Path,
    http::{Method, StatusCode},
    response::{IntoResponse, Redirect, Response},
};
use flowcell_server::api::Refusal;
use jiff::Timestamp;
use maud::{Markup, html};
use serde_json::{Value, json};

use crate::{
    frame::{Area, Failure, Page},
    parts::{count, duration, empty, list, list_table, quoted, server_command, size, state, text, time},
    runs::{PERIODS, STATES, has_ended, period_ms, query, remark, took},
    sent::Form,
    visit::{KNOWN, Visit, escaped},
};

/// The first page of the operators.
pub(crate) const HOME: &str = "/console/operators";
/// The scope that changes of the operators need.
const WRITE: &str = "admin:write";
/// Number of tenants on a page.
const TENANTS: u32 = 20;
/// The filters of the runs, which the API takes as they are, apart from `within`.
const FILTERS: [&str; 5] = ["status", "flow", "error", "within", "cursor"];

/// Shows the links between the pages of the operators.
fn tabs(here: &str) -> Markup {
    let pages = [
        ("Tenants", HOME),
        ("Runs of all tenants", "/console/operators/runs"),
        ("Server", "/console/operators/server"),
    ];
    html! {
        nav .tabs aria-label="Pages of the operators" {
            @for (name, path) in pages { a href=(path) aria-current=[(path == here).then_some("page")] { (name) } }
        }
    }
}

/// Reads an answer for the operators.
async fn read(visit: &Visit, path: &str) -> Result<Value, Failure> {
    visit.get(path).await.map_err(|refusal| Failure::of(visit, refusal))
}

/// Shows a page of the tenants.
pub(crate) async fn tenants(visit: Visit) -> Result<Page, Failure> {
    let cursor = visit.query("cursor").unwrap_or_default();
    let asked = query(&[("limit", &TENANTS.to_string()), ("cursor", &cursor)]);
    let answer = read(&visit, &format!("/v1/admin/tenants{asked}")).await?;
    let me = read(&visit, KNOWN).await?;
    let may_write = visit.may(WRITE).await;
    let tenants = list(&answer, "tenants");
    let is_alone = cursor.is_empty() && tenants.iter().all(|tenant| text(tenant, "name") == "local");
    let main = html! {
        (tabs(HOME))
        @if is_alone {
            (empty("This server has no tenants.", html! {
                p { "Every user of its machine is the tenant " code { "local" } ". These commands make a tenant with a token:" }
                pre tabindex="0" { "flowcell tenant create acme\nflowcell token create acme" }
                p { a href="/console/manual/tenant" { "Tenants and tokens" } }
            }))
        }
        div #tenants data-live {
            (list_table(Some("tenants"), "Tenants, by name", html! { th { "Tenant" } th { "State" } th { "Runs" } th .number { "Live" } th { "Used today (UTC), of its quota" } th { "Created" } th { span .hidden { "Actions" } } }, html! {
                @for tenant in tenants {
                    @let name = text(tenant, "name");
                    tr {
                        td { a .id href={ "/console/operators/runs" (query(&[("tenant", name)])) } { (name) } }
                        td { (standing(tenant)) }
                        td { (counts(tenant)) }
                        td .number { (live(tenant)) @if let Some(most) = tenant["maxLiveRuns"].as_u64() { " of " (most) } }
                        td { (used(&tenant["usage"])) }
                        td { @if tenant["created"].is_u64() { (time(&tenant["created"])) } }
                        td { @if may_write && me["local"] != true { (switch(name, tenant["disabled"] == true)) } }
                    }
                }
            }))
        }
        nav .pages aria-label="Pages of the list" {
            @if !cursor.is_empty() { a rel="first" href=(HOME) { "First" } }
            @if let Some(next) = answer["next"].as_str() { a rel="next" href={ (HOME) (query(&[("cursor", next)])) } { "More" } }
        }
        (server_command("tenant list"))
    };
    Ok(Page::new(&visit, Area::Operators, "Tenants", main).live("poll"))
}

fn standing(tenant: &Value) -> Markup {
    html! {
        @if tenant["beingRemoved"] == true { span .warn { "being removed" } }
        @else if tenant["disabled"] == true { span .warn { "disabled" } }
        @else { "enabled" }
    }
}

/// Shows the numbers of a tenant's runs by their states.
fn counts(tenant: &Value) -> Markup {
    let all = list(tenant, "runs");
    html! {
        @if all.is_empty() { span .faint { "none" } }
        @for each in all { (state(text(each, "value"))) " " (each["runs"].as_u64().unwrap_or(0)) " " }
        @if tenant["moreRuns"] == true { span .cut { "of its latest 10,000" } }
    }
}

/// Returns the number of runs that have not ended, among those that were counted.
fn live(tenant: &Value) -> u64 {
    let open = list(tenant, "runs").iter().filter(|each| !has_ended(&json!({ "status": each["value"] })));
    open.filter_map(|each| each["runs"].as_u64()).sum()
}

/// Shows the use of a day, each with the limit that the tenant has.
fn used(usage: &Value) -> Markup {
    let limits = &usage["perDay"];
    let whole = |value: &Value| value.as_f64().unwrap_or(0.0) as u64;
    let usd = |value: &Value| format!("{:.2} USD", value.as_f64().unwrap_or(0.0));
    let of = |limit: &Value, shown: String| if limit.is_null() { String::new() } else { format!(" of {shown}") };
    let (compute, events) = (&limits["computeMs"], &limits["events"]);
    let (written, model) = (&limits["writtenMib"], &limits["modelUsd"]);
    let all = [
        format!("{} computed{}", duration(whole(&usage["computeMs"])), of(compute, duration(whole(compute)))),
        format!("{}{}", count(whole(&usage["events"]), "event"), of(events, whole(events).to_string())),
        format!(
            "{} written{}",
            size(whole(&usage["writtenBytes"])),
            of(written, size(whole(written).saturating_mul(1 << 20)))
        ),
        format!("{}{} for models", usd(&usage["modelUsd"]), of(model, usd(model))),
    ];
    html! { ul .plain { @for each in &all { li { (each) } } } }
}

/// Shows the form that disables or enables a tenant.
fn switch(name: &str, is_disabled: bool) -> Markup {
    let path = format!("/console/operators/tenants/{}", escaped(name));
    html! {
        @if is_disabled {
            form method="post" action={ (path) "/enable" } { button aria-label={ "Enable " (name) } { "Enable" } }
        } @else {
            details .control { summary { "Disable…" }
                form method="post" action={ (path) "/disable" } {
                    p { "Its tokens are refused, and none of its runs starts or goes on." }
                    label .check { input type="checkbox" name="stop" value="yes"; " Cancel its open runs, too" }
                    button aria-label={ "Disable " (name) } { "Disable" }
                    (server_command(&format!("tenant disable {}", quoted(name))))
                }
            }
        }
    }
}

/// Enables or disables a tenant.
pub(crate) async fn switch_tenant(
    visit: Visit,
    Path((tenant, verb)): Path<(String, String)>,
    form: Form,
) -> Result<Response, Failure> {
    let body = match verb.as_str() {
        "enable" => json!({}),
        "disable" => json!({ "stop": form.text("stop").is_some() }),
        _ => {
            let refusal = Refusal::new(StatusCode::NOT_FOUND, "not_found", "a tenant is enabled or disabled");
            read(&visit, KNOWN).await?;
            return Err(Failure::of(&visit, refusal));
        }
    };
    let path = format!("/v1/admin/tenants/{}/{verb}", escaped(&tenant));
    visit.post(&path, &body).await.map_err(|refusal| Failure::of(&visit, refusal))?;
    Ok(Redirect::to(HOME).into_response())
}

/// Shows the runs of all tenants, newest first.
pub(crate) async fn runs(visit: Visit) -> Result<Page, Failure> {
    let asked = FILTERS.map(|name| (name, visit.query(name).unwrap_or_default()));
    let of = |name: &str| asked.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value.as_str());
    let since = period_ms(of("within")).map(|ms| Timestamp::now().as_millisecond().saturating_sub(ms).to_string());
    let to_api = asked.iter().filter(|(name, _)| *name != "within").map(|(name, value)| (*name, value.as_str()));
    let to_api: Vec<_> = to_api.chain([("since", since.as_deref().unwrap_or_default())]).collect();
    let wanted = visit.query("tenant").filter(|tenant| !tenant.is_empty());
    let of_tenant = wanted.as_ref().map(|tenant| format!("/v1/admin/tenants/{}/runs", escaped(tenant)));
    let path = of_tenant.as_deref().unwrap_or("/v1/admin/runs");
    let answer = read(&visit, &format!("{path}{}", query(&to_api))).await?;
    let may_write = visit.may(WRITE).await;
    let shown = list(&answer, "runs");
    let tenant = ("tenant", wanted.as_deref().unwrap_or_default());
    // The runs of one tenant do not name it.
    let tenant_of = |run: &Value| wanted.clone().unwrap_or_else(|| text(run, "tenant").to_owned());
    let kept: Vec<_> = asked
        .iter()
        .filter(|(name, _)| *name != "cursor")
        .map(|(name, value)| (*name, value.as_str()))
        .chain([tenant])
        .collect();
    let is_filtered = kept.iter().any(|(_, value)| !value.is_empty());
    let has_more = answer["next"].is_string() || !answer["searchedTo"].is_null();
    let here = "/console/operators/runs";
    let main = html! {
        (tabs(here))
        form .filters method="get" action=(here) role="search" {
            label { "Tenant" input name="tenant" value=(tenant.1) autocomplete="off" spellcheck="false"; }
            label { "State" select name="status" {
                option value="" { "any" }
                @for each in STATES { option value=(each) selected[each == of("status")] { (each.replace('_', " ")) } }
            } }
            label { "Flow" input name="flow" value=(of("flow")) autocomplete="off" spellcheck="false"; }
            label { "Error code" input name="error" value=(of("error")) autocomplete="off" spellcheck="false"; }
            label { "Began" select name="within" {
                option value="" { "at any time" }
                @for (word, name, _) in PERIODS { option value=(word) selected[word == of("within")] { (name) } }
            } }
            button { "Filter" }
            @if is_filtered { a href=(here) { "Show all" } }
        }
        @if shown.is_empty() {
            (empty(if is_filtered { "No run fits these filters." } else if has_more { "This page has no run." } else { "No tenant has a run yet." }, html! {
                @if has_more { p { "Older pages may have some." } }
                @else { p { "A tenant starts one with its token, or an operator in a terminal:" } pre tabindex="0" { "flowcell flows run NAME --tenant acme" } }
            }))
        } @else {
            (list_table(Some("runs"), "Runs of all tenants, newest first", html! { th { "Run" } th { "Tenant" } th { "State" } th { "Flow" } th { "Began" } th .number { "Took" } th { "Remarks" } th { span .hidden { "Actions" } } }, html! {
                @for run in shown {
                    @let tenant = tenant_of(run);
                    tr {
                        td .id { (text(run, "runId")) }
                        td { a href={ (here) (query(&[("tenant", &tenant)])) } { (tenant) } }
                        td { (state(text(run, "status"))) }
                        td { (text(run, "flow")) }
                        td { (time(&run["created"])) }
                        td .number { (took(run).unwrap_or_default()) }
                        td { (remark(run)) }
                        td { @if may_write && !has_ended(run) { (cancel_form(&tenant, run)) } }
                    }
                }
            }))
        }
        nav .pages aria-label="Pages of the list" {
            @if !of("cursor").is_empty() { a rel="first" href={ (here) (query(&kept)) } { "Newest" } }
            @if let Some(next) = answer["next"].as_str() {
                a rel="next" href={ (here) (query(&[kept.clone(), vec![("cursor", next)]].concat())) } { "Older" }
            }
        }
        (server_command(&format!("runs list --tenant {}", wanted.as_deref().map_or("NAME".into(), quoted))))
    };
    Ok(Page::new(&visit, Area::Operators, "Runs of all tenants", main))
}

/// Shows the form that cancels a run of a tenant.
fn cancel_form(tenant: &str, run: &Value) -> Markup {
    let id = text(run, "runId");
    html! {
        details .control { summary { "Cancel…" }
            form method="post" action={ "/console/operators/runs/" (escaped(tenant)) "/" (escaped(id)) "/cancel" } {
                p { "The run of " (tenant) " ends as cancelled." }
                button aria-label={ "Cancel " (id) " of " (tenant) } { "Cancel the run" }
            }
        }
    }
}

/// Cancels a run of a tenant.
pub(crate) async fn cancel(
    visit: Visit,
    Path((tenant, run)): Path<(String, String)>,
    _: Form,
) -> Result<Response, Failure> {
    let path = format!("/v1/admin/tenants/{}/runs/{}/cancel", escaped(&tenant), escaped(&run));
    let cancelled = visit.call(Method::POST, &path, Some(&json!({}))).await;
    cancelled.map_err(|refusal| Failure::of(&visit, refusal))?;
    Ok(Redirect::to(&format!("/console/operators/runs{}", query(&[("tenant", &tenant)]))).into_response())
}

/// Shows this process, its store, and the processes that share it.
pub(crate) async fn server(visit: Visit) -> Result<Page, Failure> {
    let server = read(&visit, "/v1/admin/server").await?;
    let store = &server["store"];
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let main = html! {
        (tabs("/console/operators/server"))
        section #server data-live {
            h2 { "This process" }
            (list_table(None, "This process", html! { th { "What" } th { "Value" } }, html! {
                tr { td { "Version" } td { code { (text(&server, "version")) } } }
                tr { td { "Started" } td { (time(&server["started"])) } }
                tr { td { "Takes new runs" } td { @if server["stopping"] == true { span .warn { "no, it stops" } } @else { "yes" } } }
            }))
        }
        section #store data-live {
            h2 { "Store" }
            @if let Some(outage) = store["outage"].as_str() { p .notice .bad { "The server of the store does not answer, or accepts no writes: " (outage) } }
            (list_table(None, "Store", html! { th { "What" } th { "Value" } }, html! {
                tr { td { "Kind" } td { @if store["kind"] == "shared" { "shared by several processes" } @else { "in a folder" } } }
                tr { td { "Available" } td { @if store["available"] == true { "yes" } @else { span .bad { "no" } } } }
                tr { td { "Commits of this process" } td { (number(&store["commits"])) } }
                @if store["freeBytes"].is_u64() {
                    tr { td { "Free room" } td {
                        @let is_low = number(&store["freeBytes"]) < number(&store["leastFreeBytes"]);
                        span .bad[is_low] { (size(number(&store["freeBytes"]))) } ", and new runs need " (size(number(&store["leastFreeBytes"])))
                        @if is_low { ". New runs are refused: free room on the disk, or remove runs." }
                    } }
                }
            }))
        }
        section #processes data-live {
            h2 { "Processes of the store" }
            @match server["processes"].as_array() {
                None if store["kind"] == "shared" => p .cut { "They are unknown while the server of the store does not answer." },
                None => (empty("This process alone uses the store.", html! {
                    p { "Several processes share a store on a database server:" }
                    pre tabindex="0" { "flowcell store migrate --store postgres://…\nflowcell serve --store postgres://…" }
                    p { a href="/console/manual/processes" { "Several processes" } }
                })),
                Some(processes) => (list_table(Some("processes"), "Processes of the store, the latest started first", html! { th { "Process" } th { "Lease" } th .number { "Runs that it holds" } }, html! {
                    @for process in processes {
                        tr {
                            td .id { (text(process, "name")) }
                            td { @match number(&process["leaseMs"]) {
                                0 => span .warn { "ended: other processes take its runs" },
                                left => { "lasts " (duration(left)) }
                            } }
                            td .number { (number(&process["runs"])) }
                        }
                    }
                }))
            }
        }
        p { "The numbers of all tenants for a monitoring system: " a href="/console/manual/monitor" { code { "GET /metrics" } } }
    };
    Ok(Page::new(&visit, Area::Operators, "Server", main).live("poll"))
}
