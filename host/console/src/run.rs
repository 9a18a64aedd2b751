//! The pages of a run: its picture, and its answers as JSON.
//!
//! | module | content |
//! |---|---|
//! | tasks | its tasks, and one of them |
//! | timeline | when its tasks began and ended |
//! | events | its events and log lines |
//! | moment | the run at an earlier event |

pub(crate) mod events;
mod moment;
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
    frame::{Area, Failure, Page},
    gate::wait,
    parts::{block, command, cut, json as show_json, list, state, text, time},
    picture::{Links, Pictured, View, picture},
    runs::{has_ended, labels, on_run, query, run_path, took},
    sent::Form,
    visit::{KNOWN, Visit, escaped},
};

/// Maximum number of bytes of the answers of the API on the page with JSON.
const MAX_RAW_BYTES: usize = 32 << 10;

/// The tabs of a run: the end of the path, and the name.
const TABS: [(&str, &str); 6] = [
    ("", "Graph"),
    ("/timeline", "Timeline"),
    ("/list", "Tasks"),
    ("/events", "Events"),
    ("/logs", "Logs"),
    ("/raw", "Raw"),
];

/// A run that a page shows.
struct Shown {
    id: String,
    view: Value,
    /// The questions and waits. Empty for an ended run.
    waits: Vec<Value>,
    /// The scopes of the caller.
    scopes: Vec<String>,
}

impl Shown {
    async fn read(visit: &Visit, id: String) -> Result<Shown, Failure> {
        let fails = |refusal| Failure::of(visit, refusal);
        let view = visit.get(&api_path(&id, "")).await.map_err(fails)?;
        let scopes = visit.scopes().await.map_err(fails)?;
        // A run that is busy may have an open question, too.
        let mut waits = match has_ended(&view) {
            true => Vec::new(),
            false => list(&visit.get(&api_path(&id, "/gates")).await.map_err(fails)?, "waiting").to_vec(),
        };
        let (decides, controls) =
            (scopes.iter().any(|scope| scope == "gate:decide"), scopes.iter().any(|scope| scope == "run:control"));
        for wait in &mut waits {
            let may = if wait["kind"] == "decision" { controls } else { decides };
            wait["mayDecide"] = may.into();
        }
        Ok(Shown { id, view, waits, scopes })
    }

    /// Returns whether the caller has a scope.
    fn may(&self, scope: &str) -> bool {
        self.scopes.iter().any(|own| own == scope)
    }

    /// Returns the page with the head of the run, and a tab.
    fn page(self, visit: &Visit, tab: &str, body: Markup) -> Page {
        let main = html! {
            div #head data-live { (head(&self)) }
            nav .tabs data-run aria-label="Views of the run" {
                @for (end, name) in TABS {
                    a href={ (run_path(&self.id)) (end) } aria-current=[(end == tab).then_some("true")] { (name) }
                }
            }
            div #tab data-live { (body) }
        };
        let source = match self.view["events"].as_u64() {
            Some(next) => format!("{}?from={next}", api_path(&self.id, "/events/stream")),
            None => "poll".to_owned(),
        };
        let page = Page::new(visit, Area::Runs, self.id.as_str(), main);
        if has_ended(&self.view) { page } else { page.live(source) }
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
        @if view["error"].is_object() { (error(id, &view["error"])) }
        @if view["reason"] == "quota_exceeded" {
            p .notice .warn { "The tenant has used up a quota. The run goes on by itself " (time(&view["pausedUntil"])) "." }
        }
        @if view["due"].is_u64() { p .notice { "A timer continues the run " (time(&view["due"])) "." } }
        @for unknown in ["inputUnknown", "outputsUnknown", "packsUnknown"] {
            @if let Some(why) = view[unknown].as_str() { p .notice .bad { "A part of the run is damaged: " (why) } }
        }
        @for each in waits { (wait(id, each, "")) }
        (controls(run))
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

fn error(run: &str, error: &Value) -> Markup {
    html! {
        div .notice .bad {
            p { strong { (cut(text(error, "message"), 2_000).0) } }
            p { code { (text(error, "code")) }
                @if let Some(task) = error["task"].as_str() {
                    " at " a href={ (run_path(run)) "/tasks/" (escaped(task)) } { (task) }
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
            @if has_ended && run.view["calledBy"].is_string() {
                p .faint { "A called run is repeated with the run that has called it." }
            } @else if !run.may(if has_ended { "run:create" } else { "run:control" }) {
                p .faint { "Your token lacks the scope " code { @if has_ended { "run:create" } @else { "run:control" } } ", so it cannot steer this run." }
            } @else if has_ended {
                (button("retry", "Retry", "A new run repeats this one with the same input, in the same version of the flow."))
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

/// Repeats a run, or its tasks from one on, and opens the new run.
pub(crate) async fn retry(visit: Visit, Path(run): Path<String>, form: Form) -> Result<Response, Failure> {
    let from = form.text("from").filter(|from| !from.is_empty());
    let body = from.map_or(json!({}), |from| json!({ "from": from }));
    let started = visit.post(&api_path(&run, "/retry"), &body).await;
    let started = started.map_err(|refusal| Failure::of(&visit, refusal))?.body;
    Ok(Redirect::to(&run_path(text(&started, "runId"))).into_response())
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
    let back = form.text("back").filter(|back| *back == "/console/inbox").map(str::to_owned);
    Ok(Redirect::to(&back.unwrap_or_else(|| run_path(&run))).into_response())
}

/// Shows the picture of a run, its input and its outputs.
pub(crate) async fn graph(visit: Visit, Path(id): Path<String>) -> Result<Page, Failure> {
    let run = Shown::read(&visit, id).await?;
    let moment = Moment::read(&visit, &run).await;
    let mut view = View::of(&visit, vec![("before", moment.before())]);
    let drawing = view.read(&visit, Pictured::Run(&api_path(&run.id, ""))).await;
    let link = |task: &str| tasks::task_path(&run.id, task);
    let passes = |node: &str| format!("{}/list{}", run_path(&run.id), query(&[("under", node), ("order", "urgent")]));
    let (input, outputs) = (&run.view["input"], &run.view["outputs"]);
    let body = html! {
        (moment.slider(&run, ""))
        @match &drawing {
            Ok(drawing) => (picture(drawing, &view, &run_path(&run.id), Some(&Links { task: &link, passes: &passes }))),
            Err(refusal) => p .notice .warn { "The picture cannot be drawn: " (refusal.message) }
        }
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
                @else { (show_json(outputs, &api_path(&run.id, ""))) }
            }
        }
    };
    Ok(moment.page(run.page(&visit, "", body)))
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
