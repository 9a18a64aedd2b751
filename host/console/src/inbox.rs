//! The inbox: everything that waits for a person, over all runs.

use maud::{Markup, html};
use serde_json::Value;

use crate::{
    frame::{Area, Failure, Page},
    gate::wait,
    parts::{count, empty, list, state, text, time},
    runs::run_path,
    visit::{Visit, escaped},
};

/// Maximum number of runs whose waits a page reads.
const MAX_RUNS: usize = 20;

/// A run with its waits.
pub(crate) struct Waiting {
    /// The row of the run in the list.
    pub(crate) run: Value,
    waits: Vec<Value>,
}

/// The runs that wait for people.
pub(crate) struct Inbox {
    pub(crate) runs: Vec<Waiting>,
    /// Whether more runs wait than are shown.
    more: bool,
}

/// Returns whether a run waits for a person, and not only for a time.
fn waits_for_people(run: &Value) -> bool {
    !text(&run["waitsFor"], "reason").is_empty()
}

/// Reads the waits of the latest runs that wait for people, at most `most`.
pub(crate) async fn read(visit: &Visit, most: usize) -> Result<Inbox, Failure> {
    let (mut rows, mut more) = (Vec::new(), false);
    for status in ["needs_attention", "parked"] {
        let path = format!("/v1/runs?limit=100&status={status}");
        let page = visit.get(&path).await.map_err(|refusal| Failure::of(visit, refusal))?;
        more |= page["next"].is_string();
        rows.extend(list(&page, "runs").iter().filter(|run| waits_for_people(run)).cloned());
    }
    more |= rows.len() > most;
    rows.truncate(most);
    let mut runs = Vec::new();
    for run in rows {
        let path = format!("/v1/runs/{}/gates", escaped(text(&run, "runId")));
        // The run may have been deleted or damaged meanwhile; its own page tells.
        let waits = visit.get(&path).await.map(|gates| list(&gates, "waiting").to_vec()).unwrap_or_default();
        runs.push(Waiting { run, waits });
    }
    Ok(Inbox { runs, more })
}

/// Shows the inbox.
pub(crate) async fn show(visit: Visit) -> Result<Page, Failure> {
    let inbox = read(&visit, MAX_RUNS).await?;
    let main = html! {
        @if inbox.runs.is_empty() {
            (empty("Nothing waits for you.", html! {
                p { "Questions of gates and agents, and blocked tasks, appear here when a run has one. "
                    a href="/console/manual/approvals" { "How a flow asks" } }
            }))
        }
        div #inbox data-live {
            @for waiting in &inbox.runs { (card(waiting, "/console/inbox")) }
        }
        @if inbox.more {
            p .cut { "Older runs may wait, too: " a href="/console/runs?status=parked" { "all parked runs" } }
        }
    };
    Ok(Page::new(&visit, Area::Inbox, "Inbox", main).live("poll"))
}

/// Shows a run with its waits.
pub(crate) fn card(waiting: &Waiting, back: &str) -> Markup {
    let Waiting { run, waits } = waiting;
    let id = text(run, "runId");
    html! {
        article .card {
            header .row {
                h2 { a href=(run_path(id)) { (id) } }
                (state(text(run, "status")))
                span .faint { (text(run, "flow")) ", since " (time(&run["updated"])) }
            }
            @for each in waits { (wait(id, each, back)) }
            @if waits.is_empty() { p .faint { "Open the run to see what it waits for." } }
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
