//! The pages of a run: its picture, and its answers as JSON.
//!
//! | module | content |
//! |---|---|
//! | tasks | its tasks, and one of them |
//! | agents | its agents, and the conversation with one of them |
//! | timeline | when its tasks began and ended |
//! | events | its events and log lines |
//! | moment | the run at an earlier event |
//! | retry | its retry, all of it or from a task on |

pub(crate) mod agents;
pub(crate) mod events;
mod moment;
pub(crate) mod retry;
pub(crate) mod tasks;
pub(crate) mod timeline;

use axum::{
    extract::Path,
    http::StatusCode,
    response::{IntoResponse, Redirect, Response},
};
use flowcell_server::api::Refusal;
use maud::{Markup, html};
use serde_json::{Value, json};

use self::moment::Moment;
use crate::{
    frame::{Area, Failure, Page, place_of_later},
    gate::{MAX_PROMPT_BYTES, follow_up, wait},
    parts::{block, coded, command, cut, glyph, json as show_json, list, state, text, time},
    picture::{Links, Pictured, View, picture},
    runs::{has_ended, labels, on_run, query, run_path, took},
    sent::Form,
    visit::{KNOWN, Visit, escaped},
};

/// Maximum number of bytes of the answers of the API on the page with JSON.
const MAX_RAW_BYTES: usize = 32 << 10;

/// The end of the path of the agents. Only a run whose flow can have some shows this tab.
const AGENTS: &str = "/agents";

/// The tabs of a run: the end of the path, and the name.
const TABS: [(&str, &str); 7] = [
    ("", "Graph"),
    ("/timeline", "Timeline"),
    ("/list", "Tasks"),
    (AGENTS, "Agents"),
    ("/events", "Events"),
    ("/logs", "Logs"),
    ("/raw", "Raw"),
];

/// The tabs that can show an earlier moment.
const MOMENTS: [&str; 3] = ["", "/timeline", "/list"];

/// A run that a page shows.
struct Shown {
    id: String,
    view: Value,
    /// The questions and waits. Empty for an ended run.
    waits: Vec<Value>,
    /// The scopes of the caller.
    scopes: Vec<String>,
    /// The moment at which the page shows the run.
    moment: Moment,
}

impl Shown {
    async fn read(visit: &Visit, id: String) -> Result<Shown, Failure> {
        let fails = |refusal| Failure::of(visit, refusal);
        let view = visit.get(&api_path(&id, "")).await.map_err(fails)?;
        Shown::with(visit, id, view, Moment::default()).await
    }

    /// Reads a run for a page that may show an earlier moment.
    async fn read_at(visit: &Visit, id: String) -> Result<Shown, Failure> {
        let fails = |refusal| Failure::of(visit, refusal);
        let mut view = visit.get(&api_path(&id, "")).await.map_err(fails)?;
        let moment = Moment::read(visit, &id, &view).await;
        if moment.is_earlier() {
            view = visit.get(&api_path(&id, &moment.query())).await.map_err(fails)?;
        }
        Shown::with(visit, id, view, moment).await
    }

    async fn with(visit: &Visit, id: String, view: Value, moment: Moment) -> Result<Shown, Failure> {
        let fails = |refusal| Failure::of(visit, refusal);
        let scopes = visit.scopes().await.map_err(fails)?;
        // A run that is busy may have an open question, too.
        let mut waits = match has_ended(&view) {
            true => Vec::new(),
            false => {
                let gates = visit.get(&api_path(&id, &format!("/gates{}", moment.query()))).await.map_err(fails)?;
                list(&gates, "waiting").to_vec()
            }
        };
        let (decides, controls) =
            (scopes.iter().any(|scope| scope == "gate:decide"), scopes.iter().any(|scope| scope == "run:control"));
        for wait in &mut waits {
            let may = if wait["kind"] == "decision" { controls } else { decides };
            wait["mayDecide"] = may.into();
        }
        Ok(Shown { id, view, waits, scopes, moment })
    }

    /// Returns whether the caller has a scope.
    fn may(&self, scope: &str) -> bool {
        self.scopes.iter().any(|own| own == scope)
    }

    /// Returns the page with the head of the run, and a tab.
    fn page(&self, visit: &Visit, tab: &str, body: Markup) -> Page {
        self.page_of(visit, tab, "", html! { div #tab data-live { (body) } })
    }

    /// Returns the page with the head of the run, and a tab of several parts. `selection` selects the events after which
    /// the parts may have changed, as the end of a query.
    fn page_of(&self, visit: &Visit, tab: &str, selection: &str, parts: Markup) -> Page {
        let is_shown = |end: &str| end != AGENTS || end == tab || self.view["hasAgents"] == true;
        let main = html! {
            div #head data-live { (head(self)) }
            nav .tabs data-run aria-label="Views of the run" {
                @for (end, name) in TABS.into_iter().filter(|(end, _)| is_shown(end)) {
                    @let moment = if MOMENTS.contains(&end) { self.moment.query() } else { String::new() };
                    a href={ (run_path(&self.id)) (end) (moment) } aria-current=[(end == tab).then_some("true")] { (name) }
                }
            }
            (parts)
        };
        let source = match self.view["events"].as_u64() {
            Some(next) => format!("{}?from={next}{selection}", api_path(&self.id, "/events/stream")),
            None => "poll".to_owned(),
        };
        let page = Page::new(visit, Area::Runs, self.id.as_str(), main);
        if self.moment.is_earlier() {
            page.fixed()
        } else if has_ended(&self.view) {
            page
        } else {
            page.live(source)
        }
    }
}

/// Returns the path of a run in the API.
fn api_path(run: &str, end: &str) -> String {
    format!("/v1/runs/{}{end}", escaped(run))
}

fn head(run: &Shown) -> Markup {
    let Shown { id, view, waits, .. } = run;
    let flow = text(view, "flow");
    html! {
        div .row {
            (state(text(view, "status")))
            span { a href={ "/console/flows/" (escaped(flow)) } { (flow) }
                @if let Some(version) = view["version"].as_u64() { span .faint { " version " (version) } } }
            span .faint { "began " (time(&view["created"])) }
            @if let Some(took) = took(view) { span .faint { "took " (took) } }
            (labels(view))
            a href={ "/console/runs" (query(&[("parent", id)])) } { "Called runs" }
        }
        (origin(view))
        @if view["error"].is_object() { (error(run, &view["error"])) }
        @if view["reason"] == "quota_exceeded" {
            p .notice .warn { "The tenant has used up a quota. The run goes on by itself " (time(&view["pausedUntil"])) "." }
        }
        @if view["due"].is_u64() { p .notice { "A timer continues the run " (time(&view["due"])) "." } }
        @for unknown in ["inputUnknown", "outputsUnknown", "packsUnknown"] {
            @if let Some(why) = view[unknown].as_str() { p .notice .bad { "A part of the run is damaged: " (why) } }
        }
        @if run.moment.is_earlier() {
            @for each in waits { (earlier_wait(run, each)) }
            p .notice { "Nothing can be answered or steered at an earlier moment." }
        } @else {
            @for each in waits { (wait(id, each, "")) }
            (controls(run))
        }
    }
}

/// Says which run or trigger a run comes from, and which runs repeat it.
fn origin(view: &Value) -> Markup {
    let link = |run: &str| html! { a href=(run_path(run)) { (run) } };
    html! {
        @if let Some(trigger) = view["trigger"].as_str() { p .faint { "Started by the trigger " code { (trigger) } "." } }
        @if let Some(first) = view["retryOf"].as_str() { p .faint { "Repeats " (link(first)) "." } }
        @if let Some(parent) = view["calledBy"].as_str() { p .faint { "Called by " (link(parent)) "." } }
        @if !list(view, "retriedBy").is_empty() {
            p .faint { "Repeated by " @for each in list(view, "retriedBy").iter().filter_map(Value::as_str) { (link(each)) " " } }
        }
    }
}

/// Shows a wait of an earlier moment, without a form.
fn earlier_wait(run: &Shown, wait: &Value) -> Markup {
    let address = text(wait, "address");
    html! {
        section .wait {
            @if wait["kind"] == "more" { p { (wait["leftOut"].as_u64().unwrap_or(0)) " more waits are not shown." } }
            @else {
                h2 .place { (glyph("waiting")) " " a href=(tasks::task_path(run, address)) { (address) } }
                @match text(wait, "kind") {
                    "event" => p { "Waited for the event " code { (text(wait, "event")) } "." }
                    "message" => p { "An agent waited for a message." }
                    "decision" => p { "Needed a decision: " (cut(text(wait, "message"), 2_000).0) }
                    _ => p .prompt { (coded(cut(text(wait, "prompt"), MAX_PROMPT_BYTES).0)) }
                }
            }
        }
    }
}

fn error(run: &Shown, error: &Value) -> Markup {
    html! {
        div .notice .bad {
            p { strong { (cut(text(error, "message"), 2_000).0) } }
            p { code { (text(error, "code")) }
                @if let Some(task) = error["task"].as_str() {
                    " at " a href=(tasks::task_path(run, task)) { (task) }
                }
                @if error["retryable"] == true { ". Another try may succeed." }
            }
        }
    }
}

/// Shows the buttons that steer a run, each with its command line.
fn controls(run: &Shown) -> Markup {
    let (id, has_ended) = (&run.id, has_ended(&run.view));
    let button = |verb: &str, label: &str, what: &str| {
        html! {
            details .control {
                summary { (label) "…" }
                form method="post" action={ (run_path(id)) "/" (verb) } { p { (what) } button { (label) } }
                (command(&on_run(verb, id)))
            }
        }
    };
    html! {
        div .controls {
            @if has_ended { (retry::form(run, None)) }
            @else if !run.may("run:control") {
                p .faint { "Your token lacks the scope " code { "run:control" } ", so it cannot steer this run." }
            } @else {
                (button("cancel", "Cancel", "The tasks end, and tasks that declare it are undone. The run cannot go on afterwards."))
                (button("resume", "Resume", "The run looks again whether it can go on."))
            }
        }
    }
}

/// Cancels a run.
pub(crate) async fn cancel(visit: Visit, Path(run): Path<String>, _: Form) -> Result<Response, Failure> {
    steer(&visit, &run, "/cancel").await?;
    Ok(Redirect::to(&run_path(&run)).into_response())
}

/// Lets a run look again whether it can go on.
pub(crate) async fn resume(visit: Visit, Path(run): Path<String>, _: Form) -> Result<Response, Failure> {
    steer(&visit, &run, "/resume").await?;
    Ok(Redirect::to(&run_path(&run)).into_response())
}

/// Sends a control to the API, and returns its answer.
async fn steer(visit: &Visit, run: &str, end: &str) -> Result<Value, Failure> {
    let done = visit.post(&api_path(run, end), &json!({})).await;
    Ok(done.map_err(|refusal| Failure::of(visit, refusal))?.body)
}

/// Decides a blocked task.
pub(crate) async fn resolve(
    visit: Visit,
    Path((run, task)): Path<(String, String)>,
    form: Form,
) -> Result<Response, Failure> {
    let fails = |refusal| Failure::of(&visit, refusal);
    let (how, value) = (form.text("how").unwrap_or_default(), form.text("value").unwrap_or_default());
    let json = || {
        serde_json::from_str::<Value>(value).map_err(|error| {
            let why = format!("the value is not JSON: {error}");
            fails(Refusal::new(StatusCode::BAD_REQUEST, "bad_request", why))
        })
    };
    visit.get(KNOWN).await.map_err(fails)?;
    let body = match how {
        "repeat" => json!({ "repeat": true }),
        "fail" => json!({ "fail": value }),
        "reply" => json!({ "reply": json()? }),
        "output" => json!({ "output": json()? }),
        _ => {
            return Err(fails(Refusal::new(StatusCode::BAD_REQUEST, "bad_request", "choose what to do with the task")));
        }
    };
    visit.post(&api_path(&run, &format!("/tasks/{}/resolve", escaped(&task))), &body).await.map_err(fails)?;
    Ok(Redirect::to(&follow_up(&form, &run)).into_response())
}

/// Shows the picture of a run, its input and its outputs.
pub(crate) async fn graph(visit: Visit, Path(id): Path<String>) -> Result<Page, Failure> {
    let run = Shown::read_at(&visit, id).await?;
    let (input, outputs) = (&run.view["input"], &run.view["outputs"]);
    let body = html! {
        (run.moment.slider(&run.id, ""))
        (place_of_later())
        div .columns {
            section {
                h2 { "Input" }
                @if let Some(part) = run.view["inputCut"].as_object() {
                    pre tabindex="0" { (cut(part.get("start").and_then(Value::as_str).unwrap_or_default(), 4_096).0) }
                    p .cut { "Shown in part. All of it: " a href=(api_path(&run.id, "/input")) { code { (api_path(&run.id, "/input")) } } }
                } @else { (show_json(input, &api_path(&run.id, "/input"))) }
            }
            section {
                h2 { "Outputs" }
                @if outputs.is_null() { p .faint { "A run has outputs once it has ended." } }
                @else { (show_json(outputs, &api_path(&run.id, &run.moment.query()))) }
            }
        }
    };
    let page = run.page(&visit, "", body);
    Ok(page.later(drawing(visit, run)))
}

/// Shows the picture of a run.
async fn drawing(visit: Visit, run: Shown) -> Markup {
    let mut view = View::of(&visit, vec![("before", run.moment.before())]);
    let drawing = match view.read(&visit, Pictured::Run(&api_path(&run.id, ""))).await {
        Ok(drawing) => drawing,
        Err(refusal) => return html! { p .notice .warn { "The picture cannot be drawn: " (refusal.message) } },
    };
    let link = |task: &str| tasks::task_path(&run, task);
    let before = run.moment.before();
    let passes = |node: &str| {
        format!("{}/list{}", run_path(&run.id), query(&[("under", node), ("order", "urgent"), ("before", &before)]))
    };
    picture(&drawing, &view, &run_path(&run.id), Some(&Links { task: &link, passes: &passes }))
}

/// Shows the answer of the API about a run.
pub(crate) async fn raw(visit: Visit, Path(id): Path<String>) -> Result<Page, Failure> {
    let run = Shown::read(&visit, id).await?;
    let path = api_path(&run.id, "");
    let pretty = serde_json::to_string_pretty(&run.view).unwrap_or_default();
    let body = html! {
        p { "The answers of the API: " @for end in ["", "/tree", "/events", "/gates", "/input"] {
            a href=(api_path(&run.id, end)) { code { (api_path(&run.id, end)) } } " "
        } }
        (block(&pretty, MAX_RAW_BYTES, &path))
        (command(&format!("{} --json", on_run("show", &run.id))))
    };
    Ok(run.page(&visit, "/raw", body))
}
