//! The inbox: everything that waits for a person, over all runs.

use maud::{Markup, html};
use serde_json::Value;

use crate::{
    frame::{Area, Failure, Page},
    gate::wait,
    parts::{count, empty, list, text, time},
    runs::run_path,
    visit::{Visit, escaped},
};

/// The path of the inbox.
pub(crate) const INBOX: &str = "/console/inbox";
/// Maximum number of waits of a page.
const MAX_WAITS: usize = 50;

/// The runs that wait for people, the longest waiting one first.
pub(crate) struct Inbox {
    /// The waits of each run, at least one.
    pub(crate) runs: Vec<Vec<Value>>,
    /// The place of the next page, if more runs may wait than are shown.
    next: Option<String>,
}

impl Inbox {
    /// Returns whether nothing waits for a person.
    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.next.is_none()
    }
}

/// Reads waits for people over all runs, by default the first ones. `cursor` is the place of another page.
pub(crate) async fn read(visit: &Visit, cursor: Option<&str>) -> Result<Inbox, Failure> {
    let after = cursor.map(|cursor| format!("&cursor={}", escaped(cursor))).unwrap_or_default();
    let page = visit.get(&format!("/v1/gates?limit={MAX_WAITS}{after}")).await;
    let page = page.map_err(|refusal| Failure::of(visit, refusal))?;
    let by_run = list(&page, "gates").chunk_by(|a, b| a["runId"] == b["runId"]);
    Ok(Inbox { runs: by_run.map(<[Value]>::to_vec).collect(), next: page["next"].as_str().map(str::to_owned) })
}

/// Shows the inbox.
pub(crate) async fn show(visit: Visit) -> Result<Page, Failure> {
    let cursor = visit.query("cursor");
    let inbox = read(&visit, cursor.as_deref()).await?;
    let is_whole = cursor.is_none() && inbox.next.is_none();
    let here = cursor.as_ref().map_or(INBOX.to_owned(), |cursor| format!("{INBOX}?cursor={}", escaped(cursor)));
    let main = html! {
        div #inbox data-live {
            @if inbox.runs.is_empty() && is_whole {
                (empty("Nothing waits for you.", html! {
                    p { "Questions of gates and agents, and blocked tasks, appear here when a run has one. "
                        a href="/console/manual/approvals" { "How a flow asks" } }
                }))
            } @else if inbox.runs.is_empty() {
                // The API looks at a bounded number of runs for a page, and none of them may wait for a person.
                p .empty { "Nothing on this page waits for you." @if inbox.next.is_some() { " Later pages may have questions." } }
            }
            @for waits in &inbox.runs { (card(waits, &here)) }
        }
        nav #pages .pages data-live aria-label="Pages" {
            @if cursor.is_some() { a rel="first" href=(INBOX) { "Longest waiting" } }
            @if let Some(next) = &inbox.next { a rel="next" href={ (INBOX) "?cursor=" (escaped(next)) } { "More" } }
        }
    };
    Ok(Page::new(&visit, Area::Inbox, "Inbox", main).live("/v1/stream"))
}

/// Shows the waits of a run, at least one. `back` is the page of the inbox that follows an answer.
pub(crate) fn card(waits: &[Value], back: &str) -> Markup {
    let first = &waits[0];
    let id = text(first, "runId");
    html! {
        article .card {
            header .row {
                h2 { a href=(run_path(id)) { (id) } }
                span .faint { (text(first, "flow")) ", asked " (time(&first["since"])) }
            }
            @for each in waits { (wait(id, each, back)) }
        }
    }
}

/// Says how many runs wait, for the home page.
pub(crate) fn headline(inbox: &Inbox) -> String {
    let least = if inbox.next.is_some() { "At least " } else { "" };
    match inbox.runs.len() as u64 {
        0 if inbox.next.is_some() => "Runs may wait for you: the inbox has several pages".to_owned(),
        0 => "Nothing waits for you".to_owned(),
        runs => format!("{least}{}{} for you", count(runs, "run"), if runs == 1 { " waits" } else { " wait" }),
    }
}
