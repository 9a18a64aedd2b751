//! The flows of the tenant: their list, a flow with its picture and text, and the form that starts it.

use std::borrow::Cow;

use axum::{
    extract::Path,
    http::StatusCode,
    response::{IntoResponse, Redirect, Response},
};
use flowcell_server::api::Refusal;
use maud::{Markup, PreEscaped, html};
use serde_json::{Value, json};

use crate::{
    diff::diff,
    form::{Fields, Mistake, exact},
    frame::{Area, Failure, Page, place_of_later},
    once,
    parts::{TENANT_MARK, block, brief, command, empty, list as items, list_table, quoted, text},
    picture::{Pictured, View, outline, picture},
    runs::{no_runs, run_path, table},
    sent::Form,
    visit::{Visit, escaped},
};

/// Maximum number of bytes of the text of a flow on its page.
const MAX_TEXT_BYTES: usize = 24 << 10;
/// Maximum number of flows in the list.
const MAX_FLOWS: usize = 200;
/// The field of the whole input as JSON.
const AS_JSON: &str = "input";

pub(crate) fn page_path(flow: &str) -> String {
    format!("/console/flows/{}", escaped(flow))
}

/// Names a stored flow for the API, in its newest version if `version` is `None`.
fn named(flow: &str, version: Option<u32>) -> Value {
    let mut named = json!({ "flow": flow });
    if let Some(version) = version {
        named["version"] = version.into();
    }
    named
}

/// Returns the version that the address of a page names.
fn version_of(visit: &Visit) -> Result<Option<u32>, Failure> {
    let Some(asked) = visit.query("version") else { return Ok(None) };
    let wrong = |_| {
        let why = format!("`{asked}` is not the number of a version");
        Failure::of(visit, Refusal::new(StatusCode::BAD_REQUEST, "bad_request", why))
    };
    asked.parse().map(Some).map_err(wrong)
}

/// Says how to store a first flow.
pub(crate) fn no_flows() -> Markup {
    let how = html! {
        p { "A flow is a text file. These commands make one with its test, and store it for this server:" }
        pre tabindex="0" { "flowcell init shop --example triage\nflowcell flows create shop/triage.yaml" (PreEscaped(TENANT_MARK)) }
        p { a href="/console/manual/start" { "How to read and write flows" } }
    };
    empty("No flow is stored yet.", how)
}

/// Shows the flows.
pub(crate) async fn list(visit: Visit) -> Result<Page, Failure> {
    let cursor = visit.query("cursor").map(|cursor| format!("?cursor={}", escaped(&cursor))).unwrap_or_default();
    let page = visit.get(&format!("/v1/flows{cursor}")).await.map_err(|refusal| Failure::of(&visit, refusal))?;
    let flows = items(&page, "flows");
    let may_write = visit.may("flow:write").await;
    let rest = flows.get(MAX_FLOWS - 1).filter(|_| flows.len() > MAX_FLOWS).map(|flow| text(flow, "name"));
    let main = html! {
        @if may_write { p { a .button href="/console/edit" { "New flow" } } }
        @if flows.is_empty() {
            (no_flows())
        } @else {
            (list_table(Some("flows"), "Flows, by name", html! { th { "Flow" } th .number { "Version" } th { "Purpose" } th { span .hidden { "Actions" } } }, html! {
                @for flow in flows.iter().take(MAX_FLOWS) {
                    tr {
                        td { a .id href=(page_path(text(flow, "name"))) { (text(flow, "name")) } }
                        td .number { (flow["version"].as_u64().unwrap_or(0)) }
                        td { (brief(text(flow, "description"))) }
                        td { a href={ (page_path(text(flow, "name"))) "/start" } aria-label={ "Start " (text(flow, "name")) } { "Start" }
                            @if may_write { " " a href={ (page_path(text(flow, "name"))) "/edit" } aria-label={ "Edit " (text(flow, "name")) } { "Edit" } } }
                    }
                }
            }))
        }
        nav .pages aria-label="Pages of the list" {
            @if let Some(next) = rest.or(page["next"].as_str()) { a rel="next" href={ "/console/flows?cursor=" (escaped(next)) } { "More" } }
        }
    };
    Ok(Page::new(&visit, Area::Flows, "Flows", main))
}

/// Shows a flow: its picture, its last runs, its versions and its text.
pub(crate) async fn show(visit: Visit, Path(name): Path<String>) -> Result<Page, Failure> {
    let fails = |refusal| Failure::of(&visit, refusal);
    let version = version_of(&visit)?;
    let api = format!("/v1/flows/{}", escaped(&name));
    let path = version.map_or(api.clone(), |version| format!("{api}/versions/{version}"));
    let flow = visit.get(&path).await.map_err(fails)?;
    let versions = visit.get(&format!("{api}/versions")).await.map_err(fails)?;
    let asked = named(&name, version);
    let about = visit.post("/v1/inspect", &asked).await.map(|answer| answer.body).unwrap_or_default();
    let may_write = visit.may("flow:write").await;
    // A token may lack the scope for runs; the page then has none.
    let runs = visit.get(&format!("/v1/runs?limit=8&flow={}", escaped(&name))).await.ok();
    let shown_version = flow["version"].as_u64().unwrap_or(0);
    let main = html! {
        p .lead { (text(&about, "description")) }
        div .row { a .button href={ (page_path(&name)) "/start" @if let Some(version) = version { "?version=" (version) } } { "Start" }
            @if may_write { a href={ (page_path(&name)) "/edit" } { "Edit" } }
            (versions_of(&name, &versions, shown_version)) }
        (place_of_later())
        @if let Some(runs) = &runs {
            section {
                h2 { "Last runs" }
                @if items(runs, "runs").is_empty() { (no_runs(&visit, false)) }
                @else { (table(items(runs, "runs"), "run", "Last runs of the flow"))
                    p { a href={ "/console/runs?flow=" (escaped(&name)) } { "All runs of this flow" } } }
            }
        }
        section { h2 { "Text" } (block(&readable(text(&flow, "text")), MAX_TEXT_BYTES, &path)) }
        @let older = version.map(|version| format!(" --version {version}")).unwrap_or_default();
        (command(&format!("flows show {}{older}", quoted(&name))))
    };
    let page = Page::new(&visit, Area::Flows, name.as_str(), main);
    Ok(page.later(drawing(visit, name, asked)))
}

/// Shows the picture of a flow. `asked` is the body of the request for it.
async fn drawing(visit: Visit, name: String, asked: Value) -> Markup {
    let mut view = View::of(&visit, vec![("version", visit.query("version").unwrap_or_default())]);
    match view.read(&visit, Pictured::Flow(&asked)).await {
        Ok(drawing) => html! { (picture(&drawing, &view, &page_path(&name), None)) (outline(&drawing)) },
        Err(refusal) => html! { p .notice .warn { "The picture cannot be drawn: " (refusal.message) } },
    }
}

/// Returns the text of a flow with line breaks, if it is JSON in one line.
pub(crate) fn readable(text: &str) -> Cow<'_, str> {
    match serde_json::from_str::<Value>(text) {
        Ok(flow) if !text.trim().contains('\n') => serde_json::to_string_pretty(&flow).unwrap_or_default().into(),
        _ => text.into(),
    }
}

/// Shows the versions of a flow as links, the newest first, at most ten, and the way to the difference of two.
fn versions_of(name: &str, versions: &Value, shown: u64) -> Markup {
    let all: Vec<_> = items(versions, "versions").iter().filter_map(Value::as_u64).collect();
    let before = all.iter().rev().find(|version| **version < shown);
    html! {
        span .faint { "Version" }
        @for version in all.iter().rev().take(10) {
            a href={ (page_path(name)) "?version=" (version) } aria-current=[(*version == shown).then_some("true")] { (version) }
        }
        @if all.len() > 10 { span .faint { "and " (all.len() - 10) " older" } }
        @if let Some(before) = before { a href={ (page_path(name)) "/diff?from=" (before) "&to=" (shown) } { "What version " (shown) " changed" } }
    }
}

/// Shows the difference between two versions of a flow.
pub(crate) async fn compare(visit: Visit, Path(name): Path<String>) -> Result<Page, Failure> {
    let fails = |refusal| Failure::of(&visit, refusal);
    let api = format!("/v1/flows/{}", escaped(&name));
    let versions = visit.get(&format!("{api}/versions")).await.map_err(fails)?;
    let all: Vec<_> = items(&versions, "versions").iter().filter_map(Value::as_u64).collect();
    let asked = |name: &str| visit.query(name).and_then(|version| version.parse::<u64>().ok());
    let to = asked("to").or(all.last().copied()).unwrap_or(1);
    let from = asked("from").or(all.iter().rev().find(|version| **version < to).copied()).unwrap_or(to);
    let old = visit.get(&format!("{api}/versions/{from}")).await.map_err(fails)?;
    let new = visit.get(&format!("{api}/versions/{to}")).await.map_err(fails)?;
    let chooser = |label: &str, field: &str, chosen: u64| {
        html! {
            label { (label) select name=(field) {
                @for version in all.iter().rev().take(MAX_FLOWS) { option value=(version) selected[*version == chosen] { (version) } }
            } }
        }
    };
    let compared = diff(readable(text(&old, "text")).into(), readable(text(&new, "text")).into()).await;
    let main = html! {
        form .filters method="get" action={ (page_path(&name)) "/diff" } {
            (chooser("From version", "from", from))
            (chooser("To version", "to", to))
            button { "Compare" }
        }
        (compared)
        p { a href=(page_path(&name)) { "The flow " (name) } }
        (command(&format!("flows show {} --version {to}", quoted(&name))))
    };
    Ok(Page::new(&visit, Area::Flows, format!("Versions of {name}"), main))
}

/// A flow that a form starts.
struct Startable {
    name: String,
    version: Option<u32>,
    about: Value,
    /// The stored files, if the input has files.
    files: Vec<Value>,
}

impl Startable {
    async fn read(visit: &Visit, name: String) -> Result<Startable, Failure> {
        let version = version_of(visit)?;
        let about =
            visit.post("/v1/inspect", &named(&name, version)).await.map_err(|refusal| Failure::of(visit, refusal))?;
        let about = about.body;
        let files = match Fields::of(&about["inputSchema"]).take_files() {
            true => items(&visit.get("/v1/files").await.unwrap_or_default(), "files").to_vec(),
            false => Vec::new(),
        };
        Ok(Startable { name, version, about, files })
    }

    fn page(&self, visit: &Visit, sent: Option<&Form>, mistakes: &[Mistake]) -> Page {
        let Startable { name, version, about, files } = self;
        let schema = &about["inputSchema"];
        let here = format!("{}/start", page_path(name));
        let action = version.map_or(here.clone(), |version| format!("{here}?version={version}"));
        let as_json = sent.and_then(|form| form.text(AS_JSON));
        let has_fields = schema["properties"].as_object().is_some_and(|members| !members.is_empty());
        let main = html! {
            p .lead { (text(about, "description")) }
            form method="post" action=(action) {
                (once::field())
                (Fields::of(schema).with_files(files).render(sent.filter(|_| as_json.is_none()), mistakes))
                @if !has_fields { p .faint { "The flow declares no input." } }
                button .primary { "Start" }
            }
            details open[as_json.is_some()] {
                summary { "As JSON" }
                form method="post" action=(action) {
                    (once::field())
                    label for="as-json" { "The whole input" }
                    textarea #as-json name=(AS_JSON) rows="8" spellcheck="false" { "\n" (exact(as_json.unwrap_or("{}"))) }
                    button { "Start with this input" }
                }
            }
            @if version.is_none() { (command(&format!("flows run {} -i NAME=VALUE", quoted(name)))) }
        };
        Page::new(visit, Area::Flows, format!("Start {name}"), main)
    }
}

/// Shows the form of a flow's input.
pub(crate) async fn form(visit: Visit, Path(name): Path<String>) -> Result<Page, Failure> {
    let flow = Startable::read(&visit, name).await?;
    Ok(flow.page(&visit, None, &[]))
}

/// Starts a run with the input of a form, and opens its page. A wrong input opens the form again, with the mistakes at
/// their fields.
pub(crate) async fn start(visit: Visit, Path(name): Path<String>, sent: Form) -> Result<Response, Failure> {
    let flow = Startable::read(&visit, name).await?;
    let input = match sent.text(AS_JSON) {
        None => Fields::of(&flow.about["inputSchema"]).read(&sent),
        Some(text) => serde_json::from_str(text)
            .map_err(|error| vec![Mistake { pointer: String::new(), why: format!("the input is not JSON: {error}") }]),
    };
    let again = |mistakes: &[Mistake]| {
        let page = flow.page(&visit, Some(&sent), mistakes).with_status(StatusCode::UNPROCESSABLE_ENTITY);
        Ok(page.into_response())
    };
    let input = match input {
        Ok(input) => input,
        Err(mistakes) => return again(&mistakes),
    };
    let mut body = named(&flow.name, flow.version);
    body["input"] = input;
    match once::post(&visit, "/v1/runs", &body, &sent).await {
        Ok(started) => Ok(Redirect::to(&run_path(text(&started.body, "runId"))).into_response()),
        Err(refusal) if refusal.status == StatusCode::UNPROCESSABLE_ENTITY => again(&mistakes_of(&refusal)),
        Err(refusal) => Err(Failure::of(&visit, refusal)),
    }
}

/// Returns the mismatches of a refused input.
pub(crate) fn mistakes_of(refusal: &Refusal) -> Vec<Mistake> {
    let findings = items(&refusal.details, "findings").iter().chain(refusal.details.as_array().into_iter().flatten());
    let mistakes: Vec<_> = findings.filter_map(Value::as_str).map(Mistake::of).collect();
    match mistakes.is_empty() {
        true => vec![Mistake { pointer: String::new(), why: refusal.message.clone() }],
        false => mistakes,
    }
}
