//! The home page: open questions, runs that need attention, the last runs, and the next starts of triggers.

use axum::response::{IntoResponse, Redirect, Response};
use jiff::Timestamp;
use maud::html;

use crate::{
    flows::no_flows,
    frame::{Area, Failure, Page},
    inbox,
    operators::HOME,
    parts::{count, list, text},
    runs::{no_runs, query, table},
    visit::{KNOWN, Visit, escaped, is_only_operator},
};

/// Maximum number of runs in each list of the page.
const MAX_RUNS: usize = 5;

/// Shows the home page.
pub(crate) async fn show(visit: Visit) -> Result<Response, Failure> {
    let fails = |refusal| Failure::of(&visit, refusal);
    if is_only_operator(&visit.get(KNOWN).await.map_err(fails)?) {
        return Ok(Redirect::to(HOME).into_response());
    }
    let waiting = inbox::read(&visit, None).await?;
    let last = visit.get("/v1/runs?limit=8").await.map_err(fails)?;
    let failed = visit.get(&format!("/v1/runs?limit={MAX_RUNS}&status=failed")).await.map_err(fails)?;
    // A token may lack the scope for flows; then the page has nothing to say about them.
    let (runs, failed) = (list(&last, "runs"), list(&failed, "runs"));
    let flows = if runs.is_empty() { visit.get("/v1/flows").await.ok() } else { None };
    let has_no_flow = flows.as_ref().is_some_and(|flows| list(flows, "flows").is_empty());
    // A day of failures by flow, and the triggers that are due next. A token may lack their scopes, too.
    let since = Timestamp::now().as_millisecond().saturating_sub(86_400_000);
    let by_flow =
        visit.get(&format!("/v1/runs?status=failed&since={since}&countBy=flow&limit=1")).await.unwrap_or_default();
    let mut by_flow: Vec<_> = list(&by_flow, "counts").iter().collect();
    by_flow.sort_by_key(|count| std::cmp::Reverse(count["runs"].as_u64()));
    let triggers = visit.get("/v1/triggers").await.unwrap_or_default();
    let mut due: Vec<_> = list(&triggers, "triggers").iter().filter(|trigger| trigger["next"].is_string()).collect();
    due.sort_by_key(|trigger| text(trigger, "next"));
    let attention = visit.get(&format!("/v1/runs?limit={MAX_RUNS}&status=needs_attention")).await.map_err(fails)?;
    let attention = list(&attention, "runs");
    let main = html! {
        @if has_no_flow { (no_flows()) }
        section #waiting data-live {
            h2 { (inbox::headline(&waiting)) }
            @for each in waiting.runs.iter().take(MAX_RUNS) { (inbox::card(each, inbox::INBOX)) }
            @if waiting.is_empty() { p .faint { "Questions and blocked tasks of all runs appear here." } }
            @else { p { a href="/console/inbox" { "Open the inbox" } } }
        }
        section #last {
            h2 { "Last runs" }
            @if runs.is_empty() { (no_runs(&visit, false)) } @else { (table(runs, "last", "Last runs")) p { a href="/console/runs" { "All runs" } } }
        }
        @if !attention.is_empty() {
            section #attention {
                h2 { "Need attention" }
                (table(attention, "attention", "Runs that need attention"))
                p { a href="/console/runs?status=needs_attention" { "All of them" } }
            }
        }
        @if !failed.is_empty() {
            section #failed {
                h2 { "Failed last" }
                (table(failed, "failed", "Runs that failed last"))
                p { a href="/console/runs?status=failed" { "All failed runs" } }
            }
        }
        div .columns {
            @if !by_flow.is_empty() {
                section #failing {
                    h2 { "Failed in the last day" }
                    ul .plain { @for each in by_flow.iter().take(MAX_RUNS) {
                        @let flow = text(each, "value");
                        li { a href={ "/console/runs" (query(&[("status", "failed"), ("flow", flow), ("within", "1d")])) } { (flow) } ": "
                            (count(each["runs"].as_u64().unwrap_or(0), "run")) }
                    } }
                }
            }
            @if !due.is_empty() {
                section #due {
                    h2 { "Due next" }
                    ul .plain { @for trigger in due.iter().take(MAX_RUNS) {
                        li { a href={ "/console/flows/" (escaped(text(trigger, "flow"))) } { (text(trigger, "flow")) } " by " (text(trigger, "id")) ", "
                            time datetime=(text(trigger, "next")) { (text(trigger, "next")) } }
                    } }
                }
            }
        }
    };
    Ok(Page::new(&visit, Area::Home, "Home", main).live("/v1/stream").into_response())
}
