//! The list of runs, with its filters in the address.

use axum::http::StatusCode;
use flowcell_server::api::Refusal;
use jiff::Timestamp;
use maud::{Markup, PreEscaped, html};
use serde_json::Value;

use crate::{
    frame::{Area, Failure, Page},
    parts::{TENANT_MARK, count, duration, empty, list as items, list_table, positionals, state, text, time},
    visit::{Visit, escaped},
};

/// The states by which the list can be filtered.
pub(crate) const STATES: [&str; 6] = ["running", "parked", "needs_attention", "failed", "succeeded", "cancelled"];
/// The filters in the address of the page. The API takes them as they are, apart from `within`.
pub(crate) const FILTERS: [&str; 11] =
    ["status", "flow", "version", "error", "node", "text", "labels", "trigger", "parent", "within", "cursor"];
/// The periods of the filter by begin: the word in the address, its name, and its length in milliseconds.
pub(crate) const PERIODS: [(&str, &str, i64); 4] = [
    ("1h", "last hour", 3_600_000),
    ("1d", "last day", 86_400_000),
    ("7d", "last week", 604_800_000),
    ("30d", "last 30 days", 2_592_000_000),
];

/// Returns the length of a period in milliseconds.
pub(crate) fn period_ms(word: &str) -> Option<i64> {
    PERIODS.iter().find(|(known, ..)| *known == word).map(|(.., ms)| *ms)
}

/// Returns the path of a run's page.
pub(crate) fn run_path(run: &str) -> String {
    format!("/console/runs/{}", escaped(run))
}

/// Returns a query with the given members, without empty ones.
pub(crate) fn query(members: &[(&str, &str)]) -> String {
    let given = members.iter().filter(|(_, value)| !value.is_empty());
    let query: Vec<_> = given.map(|(name, value)| format!("{name}={}", escaped(value))).collect();
    if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) }
}

/// Shows a page of the runs.
pub(crate) async fn list(visit: Visit) -> Result<Page, Failure> {
    let asked = FILTERS.map(|name| (name, visit.query(name).unwrap_or_default()));
    let of = |name: &str| asked.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value.as_str());
    let members = asked.each_ref().map(|(name, value)| (*name, value.as_str()));
    if !of("within").is_empty() && period_ms(of("within")).is_none() {
        let why = format!("`within` must be {}", PERIODS.map(|(word, ..)| word).join(", "));
        return Err(Failure::of(&visit, Refusal::new(StatusCode::BAD_REQUEST, "bad_request", why)));
    }
    // The API takes the time at which the period begins.
    let since = period_ms(of("within")).map(|ms| Timestamp::now().as_millisecond().saturating_sub(ms).to_string());
    let to_api = |members: &[(&str, &str)]| {
        let others = members.iter().copied().filter(|(name, _)| *name != "within");
        query(&others.chain([("since", since.as_deref().unwrap_or_default())]).collect::<Vec<_>>())
    };
    let path = format!("/v1/runs{}", to_api(&members));
    let page = visit.get(&path).await.map_err(|refusal| Failure::of(&visit, refusal))?;
    let without = |left_out: &[&str]| {
        members.into_iter().filter(|(name, _)| !left_out.contains(name)).collect::<Vec<(&str, &str)>>()
    };
    let counted = [without(&["status", "cursor"]), vec![("countBy", "status"), ("limit", "1")]].concat();
    let counted = visit.get(&format!("/v1/runs{}", to_api(&counted))).await;
    let counted = counted.map_err(|refusal| Failure::of(&visit, refusal))?;
    let with_state = |state: &str| query(&[without(&["status", "cursor"]), vec![("status", state)]].concat());
    let runs = items(&page, "runs");
    let filters = without(&["cursor"]);
    let is_filtered = filters.iter().any(|(_, value)| !value.is_empty());
    let rarely = ["version", "error", "node", "trigger"];
    let main = html! {
        nav #states .tabs data-live aria-label="States" {
            a href={ "/console/runs" (with_state("")) } aria-current=[of("status").is_empty().then_some("true")] { "All" }
            @for each in STATES {
                a href={ "/console/runs" (with_state(each)) } aria-current=[(of("status") == each).then_some("true")] {
                    (each.replace('_', " ")) " " span .faint { (number(&counted, each)) }
                }
            }
        }
        form .filters method="get" action="/console/runs" role="search" {
            @for kept in ["status", "parent"] { @if !of(kept).is_empty() { input type="hidden" name=(kept) value=(of(kept)); } }
            label { "Flow" input name="flow" value=(of("flow")) autocomplete="off" spellcheck="false"; }
            label { "Words of the error" input name="text" type="search" value=(of("text")); }
            label { "Labels" input name="labels" value=(of("labels")) placeholder="team=billing" autocomplete="off"; }
            label { "Began" select name="within" {
                option value="" { "at any time" }
                @for (word, name, _) in PERIODS { option value=(word) selected[word == of("within")] { (name) } }
            } }
            details .more open[rarely.iter().any(|name| !of(name).is_empty())] {
                summary { "More filters" }
                div .filters {
                    label { "Error code" input name="error" value=(of("error")) autocomplete="off" spellcheck="false"; }
                    label { "Failed node" input name="node" value=(of("node")) autocomplete="off" spellcheck="false"; }
                    label { "Trigger" input name="trigger" value=(of("trigger")) autocomplete="off" spellcheck="false"; }
                    label { "Flow version" input name="version" value=(of("version")) inputmode="numeric" autocomplete="off"; }
                }
            }
            button { "Filter" }
            @if is_filtered { a href="/console/runs" { "Show all" } }
        }
        div .row {
            // The script shows the saved views here, and a field for a new one.
            div #views data-place="/console/runs" {}
            @if is_filtered && !runs.is_empty() { a href={ "/console/jobs/new" (query(&filters)) } { "Act on these runs" } }
            a href="/console/jobs" { "Jobs" }
        }
        @if !of("parent").is_empty() { p { "Runs that " a href=(run_path(of("parent"))) { (of("parent")) } " has called." } }
        @if counted["more"] == true { p .faint { "Older runs are not counted: a count has at most 10,000 runs, and reads at most 200,000." } }
        @if !runs.is_empty() { (table(runs, "run", "Runs, newest first")) }
        @else if page["searchedTo"].is_null() { (no_runs(&visit, is_filtered)) }
        @if !page["searchedTo"].is_null() { p { "Runs that began before " (time(&page["searchedTo"])) " are not searched yet." } }
        nav .pages aria-label="Pages of the list" {
            @if !of("cursor").is_empty() { a rel="first" href={ "/console/runs" (query(&without(&["cursor"]))) } { "Newest" } }
            @if let Some(next) = page["next"].as_str() {
                a rel="next" href={ "/console/runs" (query(&[without(&["cursor"]), vec![("cursor", next)]].concat())) } {
                    (if page["searchedTo"].is_null() { "Older" } else { "Search older runs" })
                }
            }
        }
    };
    Ok(Page::new(&visit, Area::Runs, "Runs", main).live("/v1/stream"))
}

fn number(counted: &Value, state: &str) -> u64 {
    let mut counts = items(counted, "counts").iter();
    counts.find(|count| count["value"] == state).and_then(|count| count["runs"].as_u64()).unwrap_or(0)
}

/// Says how to get a first run, or that the filters select none.
pub(crate) fn no_runs(visit: &Visit, is_filtered: bool) -> Markup {
    if is_filtered {
        return empty("No run fits these filters.", html! { p { a href="/console/runs" { "Show all runs" } } });
    }
    let how = html! {
        p { "Start a " a href="/console/flows" { "stored flow" } " from its page, or send one to this server:" }
        pre tabindex="0" {
            "curl " (visit.origin()) "/v1/runs --json '{\"flow\": \"NAME\", \"input\": {}}'\n"
            "flowcell flows run NAME" (PreEscaped(TENANT_MARK))
        }
    };
    empty("No run yet.", how)
}

/// Returns whether a run has ended.
pub(crate) fn has_ended(run: &Value) -> bool {
    ["succeeded", "failed", "cancelled"].contains(&text(run, "status"))
}

/// Returns the time that an ended run took.
pub(crate) fn took(run: &Value) -> Option<String> {
    let (created, updated) = (run["created"].as_u64()?, run["updated"].as_u64()?);
    has_ended(run).then(|| duration(updated.saturating_sub(created)))
}

/// Says in a few words why a run waits, or which error ended it.
pub(crate) fn remark(run: &Value) -> Markup {
    let waits = &run["waitsFor"];
    let (reason, task) = (text(waits, "reason").replace('_', " "), text(waits, "task"));
    html! {
        @if let Some(code) = run["errorCode"].as_str() {
            code { (code) } @if let Some(node) = run["failedNode"].as_str() { " at " code { (node) } }
        } @else if !reason.is_empty() {
            (reason) @if !task.is_empty() { " at " code { (task) } }
            @if let Some(others) = waits["others"].as_u64().filter(|others| *others > 0) { " and " (count(others, "more wait")) }
        } @else if run["reason"] == "quota_exceeded" {
            "a quota is used up until " (time(&run["pausedUntil"]))
        } @else if run["due"].is_u64() {
            "goes on " (time(&run["due"]))
        }
    }
}

/// Shows runs as a table. `name` distinguishes the tables of a page.
pub(crate) fn table(runs: &[Value], name: &str, caption: &str) -> Markup {
    html! {
        (list_table(Some(name), caption, html! { th { "Run" } th { "State" } th { "Flow" } th { "Began" } th .number { "Took" } th { "Remarks" } }, html! {
            @for run in runs {
                tr #{ (name) "-" (text(run, "runId")) } data-live {
                    td { a .id href=(run_path(text(run, "runId"))) { (text(run, "runId")) } }
                    td { (state(text(run, "status"))) }
                    td { a href={ "/console/flows/" (escaped(text(run, "flow"))) } { (text(run, "flow")) }
                        @if let Some(version) = run["version"].as_u64() { span .faint { " v" (version) } } }
                    td { (time(&run["created"])) }
                    td .number { (took(run).unwrap_or_default()) }
                    td { (remark(run)) (labels(run)) }
                }
            }
        }))
    }
}

/// Shows the labels of a run.
pub(crate) fn labels(run: &Value) -> Markup {
    html! {
        @if let Some(labels) = run["labels"].as_object() {
            @for (name, value) in labels {
                @let label = format!("{name}={}", value.as_str().unwrap_or_default());
                " " a .label href={ "/console/runs?labels=" (escaped(&label)) } { (label) }
            }
        }
    }
}

/// Returns the arguments of `flowcell runs` for a run.
pub(crate) fn on_run(verb: &str, run: &str) -> String {
    format!("runs {verb} {}", positionals(&[run]))
}
