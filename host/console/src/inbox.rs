//! The inbox: everything that waits for a person, over all runs.

use maud::{Markup, html};
use serde_json::Value;

use crate::{
    frame::{Area, Failure, Page},
    gate::wait,
    parts::{count, empty, list, text, time},
    runs::run_path,
    visit::Visit,
};

/// Maximum number of waits of a page.
const MAX_WAITS: usize = 50;

/// The runs that wait for people, the longest waiting one first.
pub(crate) struct Inbox {
    /// The waits of each run, at least one.
    pub(crate) runs: Vec<Vec<Value>>,
    /// Whether more runs may wait than are shown.
    more: bool,
}

/// Reads the first waits for people over all runs.
pub(crate) async fn read(visit: &Visit) -> Result<Inbox, Failure> {
    let page = visit.get(&format!("/v1/gates?limit={MAX_WAITS}")).await;
    let page = page.map_err(|refusal| Failure::of(visit, refusal))?;
    let by_run = list(&page, "gates").chunk_by(|a, b| a["runId"] == b["runId"]);
    Ok(Inbox { runs: by_run.map(<[Value]>::to_vec).collect(), more: page["next"].is_string() })
}

/// Shows the inbox.
pub(crate) async fn show(visit: Visit) -> Result<Page, Failure> {
    let inbox = read(&visit).await?;
    let main = html! {
        @if inbox.runs.is_empty() {
            (empty("Nothing waits for you.", html! {
                p { "Questions of gates and agents, and blocked tasks, appear here when a run has one. "
                    a href="/console/manual/approvals" { "How a flow asks" } }
            }))
        }
        div #inbox data-live {
            @for waits in &inbox.runs { (card(waits)) }
        }
        @if inbox.more {
            p .cut { "At most " (MAX_WAITS) " questions are shown, the oldest first. More runs may wait: "
                a href="/console/runs?status=parked" { "all parked runs" } }
        }
    };
    Ok(Page::new(&visit, Area::Inbox, "Inbox", main).live("/v1/stream"))
}

/// Shows the waits of a run, at least one. The inbox follows an answer.
pub(crate) fn card(waits: &[Value]) -> Markup {
    let first = &waits[0];
    let id = text(first, "runId");
    html! {
        article .card {
            header .row {
                h2 { a href=(run_path(id)) { (id) } }
                span .faint { (text(first, "flow")) ", since " (time(&first["since"])) }
            }
            @for each in waits { (wait(id, each, "/console/inbox")) }
        }
    }
}

/// Says how many runs wait, for the home page.
pub(crate) fn headline(inbox: &Inbox) -> String {
    match inbox.runs.len() as u64 {
        0 => "Nothing waits for you".to_owned(),
        runs => format!("{}{} for you", count(runs, "run"), if runs == 1 { " waits" } else { " wait" }),
    }
}
