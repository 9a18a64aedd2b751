//! The home page: what waits for a person, what needs attention, and the last runs.

use maud::html;

use crate::{
    flows::no_flows,
    frame::{Area, Failure, Page},
    inbox,
    parts::list,
    runs::{no_runs, table},
    visit::Visit,
};

/// Maximum number of runs in each list of the page.
const MAX_RUNS: usize = 5;

/// Shows the home page.
pub(crate) async fn show(visit: Visit) -> Result<Page, Failure> {
    let fails = |refusal| Failure::of(&visit, refusal);
    let waiting = inbox::read(&visit).await?;
    let last = visit.get("/v1/runs?limit=8").await.map_err(fails)?;
    let failed = visit.get(&format!("/v1/runs?limit={MAX_RUNS}&status=failed")).await.map_err(fails)?;
    // A token may lack the scope for flows; then the page has nothing to say about them.
    let flows = visit.get("/v1/flows").await.ok();
    let has_no_flow = flows.as_ref().is_some_and(|flows| list(flows, "flows").is_empty());
    let (runs, failed) = (list(&last, "runs"), list(&failed, "runs"));
    let main = html! {
        @if has_no_flow { (no_flows()) }
        section #waiting data-live {
            h2 { (inbox::headline(&waiting)) }
            @for each in waiting.runs.iter().take(MAX_RUNS) { (inbox::card(each)) }
            @if waiting.runs.is_empty() { p .faint { "Questions and blocked tasks of all runs appear here." } }
            @else { p { a href="/console/inbox" { "Open the inbox" } } }
        }
        section #last {
            h2 { "Last runs" }
            @if runs.is_empty() { (no_runs(&visit, false)) } @else { (table(runs, "last", "Last runs")) p { a href="/console/runs" { "All runs" } } }
        }
        @if !failed.is_empty() {
            section #failed {
                h2 { "Failed last" }
                (table(failed, "failed", "Runs that failed last"))
                p { a href="/console/runs?status=failed" { "All failed runs" } }
            }
        }
    };
    Ok(Page::new(&visit, Area::Home, "Home", main).live("poll"))
}
