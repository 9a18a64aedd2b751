//! The pages of a run: its picture, tasks, events and logs, its answers as JSON, and one of its tasks.

use axum::{
    extract::Path,
    response::{IntoResponse, Redirect, Response},
};
use maud::{Markup, html};
use serde_json::{Value, json};

use crate::{
    frame::{Area, Failure, Page},
    gate::wait,
    parts::{
        block, command, count, cut, duration, json as show_json, list, list_table, moment, quoted, state, text, time,
    },
    picture::{Tasks, picture},
    runs::{has_ended, labels, on_run, run_path, took},
    sent::Form,
    visit::{Visit, escaped},
};

/// Maximum number of tasks in the list of a run.
const MAX_TASKS: usize = 150;
/// Number of events on a page.
const PAGE_EVENTS: u64 = 100;
/// Maximum number of log lines on a page.
const MAX_LINES: u64 = 200;
/// Maximum number of bytes of an event in the list.
const MAX_EVENT_BYTES: usize = 160;
/// Maximum number of bytes of a log line.
const MAX_LINE_BYTES: usize = 400;
/// Maximum number of bytes of the answers of the API on the page with JSON.
const MAX_RAW_BYTES: usize = 32 << 10;

/// The tabs of a run: the end of the path, and the name.
const TABS: [(&str, &str); 5] =
    [("", "Graph"), ("/list", "Tasks"), ("/events", "Events"), ("/logs", "Logs"), ("/raw", "Raw")];

/// A run that a page shows.
struct Shown {
    id: String,
    view: Value,
    /// The questions and waits. Empty for an ended run.
    waits: Vec<Value>,
}

impl Shown {
    async fn read(visit: &Visit, id: String) -> Result<Shown, Failure> {
        let fails = |refusal| Failure::of(visit, refusal);
        let view = visit.get(&api_path(&id, "")).await.map_err(fails)?;
        let is_open = ["parked", "needs_attention"].contains(&text(&view, "status"));
        let waits = match is_open {
            true => list(&visit.get(&api_path(&id, "/gates")).await.map_err(fails)?, "waiting").to_vec(),
            false => Vec::new(),
        };
        Ok(Shown { id, view, waits })
    }

    /// Returns the page with the head of the run, and a tab.
    fn page(self, visit: &Visit, tab: &str, body: Markup) -> Page {
        let main = html! {
            div #head data-live { (head(&self)) }
            nav .tabs aria-label="Views of the run" {
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
    let Shown { id, view, waits } = run;
    let flow = text(view, "flow");
    html! {
        div .row {
            (state(text(view, "status")))
            span { a href={ "/console/flows/" (escaped(flow)) } { (flow) }
                @if let Some(version) = view["version"].as_u64() { span .faint { " version " (version) } } }
            span .faint { "began " (time(&view["created"])) }
            @if let Some(took) = took(view) { span .faint { "took " (took) } }
            (labels(view))
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
            @if has_ended {
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

/// Repeats a run, and opens the new one.
pub(crate) async fn retry(visit: Visit, Path(run): Path<String>, _: Form) -> Result<Response, Failure> {
    let started = steer(&visit, &run, "/retry").await?;
    Ok(Redirect::to(&run_path(text(&started, "runId"))).into_response())
}

/// Sends a control to the API, and returns its answer.
async fn steer(visit: &Visit, run: &str, end: &str) -> Result<Value, Failure> {
    let done = visit.post(&api_path(run, end), &json!({})).await;
    Ok(done.map_err(|refusal| Failure::of(visit, refusal))?.body)
}

/// Shows the picture of a run, its input and its outputs.
pub(crate) async fn graph(visit: Visit, Path(id): Path<String>) -> Result<Page, Failure> {
    let run = Shown::read(&visit, id).await?;
    let drawing = visit.get(&api_path(&run.id, "/graph")).await;
    let tree = visit.get(&api_path(&run.id, "/tree")).await.unwrap_or_default();
    let link = |task: &str| format!("{}/tasks/{}", run_path(&run.id), escaped(task));
    let (input, outputs) = (&run.view["input"], &run.view["outputs"]);
    let body = html! {
        @match &drawing {
            Ok(drawing) => (picture(drawing, Some((&Tasks::of(&tree), &link)))),
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
    Ok(run.page(&visit, "", body))
}

/// Shows the tasks of a run as a list.
pub(crate) async fn tasks(visit: Visit, Path(id): Path<String>) -> Result<Page, Failure> {
    let run = Shown::read(&visit, id).await?;
    let tree = visit.get(&api_path(&run.id, "/tree")).await.map_err(|refusal| Failure::of(&visit, refusal))?;
    let only = visit.query("status").unwrap_or_default();
    let tasks = Tasks::of(&tree);
    let all: Vec<_> = tasks.all().iter().filter(|task| only.is_empty() || task.status() == only).collect();
    let here = format!("{}/list", run_path(&run.id));
    let body = html! {
        form .filters method="get" action=(here) {
            label { "State" select name="status" {
                option value="" { "all" }
                @for each in ["running", "waiting", "blocked", "retrying", "failed", "succeeded", "skipped", "cancelled"] {
                    option value=(each) selected[each == only] { (each) }
                }
            } }
            button { "Filter" }
        }
        (list_table(Some("tasks"), "Tasks, in the order of their begin", html! { th { "Task" } th { "State" } th .number { "Attempts" } th .number { "Calls" } th .number { "Took" } th { "Error" } }, html! {
            @for task in all.iter().take(MAX_TASKS) {
                tr {
                    td class={ "d" (task.depth.min(6)) } {
                        a .id href={ (run_path(&run.id)) "/tasks/" (escaped(&task.address)) } { (task.address) }
                    }
                    td { (state(task.status())) }
                    td .number { (task.twig["attempts"].as_u64().unwrap_or(0)) }
                    td .number { (task.twig["calls"].as_u64().unwrap_or(0)) }
                    td .number { (task.twig["durationMs"].as_u64().map(duration).unwrap_or_default()) }
                    td { (cut(text(&task.twig["error"], "message"), MAX_EVENT_BYTES).0) }
                }
            }
        }))
        @if all.is_empty() { p .faint { "No task is in this state." } }
        @let left_out = tree["tasksLeftOut"].as_u64().unwrap_or(0) + all.len().saturating_sub(MAX_TASKS) as u64;
        @if left_out > 0 {
            p .cut { (count(left_out, "more task")) " are not shown: choose a state, or read " a href=(api_path(&run.id, "/tree")) { code { (api_path(&run.id, "/tree")) } } }
        }
        (command(&on_run("show", &run.id)))
    };
    Ok(run.page(&visit, "/list", body))
}

/// Returns the members of an event that the table shows in no column of their own, and their whole size in bytes. Of the
/// members that the API has cut, it returns the beginning.
fn summary(event: &Value) -> (String, usize) {
    const SHOWN: [&str; 10] = ["v", "seq", "ts", "tenant", "runId", "type", "nodeId", "taskId", "scope", "cut"];
    let members = event.as_object().into_iter().flatten().filter(|(key, _)| !SHOWN.contains(&key.as_str()));
    let mut parts: Vec<_> = members.map(|(key, value)| format!("{key}: {value}")).collect();
    let mut left_out = 0;
    for (key, cut) in event["cut"].as_object().into_iter().flatten() {
        let start = text(cut, "start");
        left_out += (cut["bytes"].as_u64().unwrap_or(0) as usize).saturating_sub(start.len());
        parts.push(format!("{key}: {start}"));
    }
    let members = parts.join(", ");
    let size = members.len() + left_out;
    (members, size)
}

/// Shows the address of the task, or of the pass, that an event is about.
fn place_of(run: &str, event: &Value) -> Markup {
    let (scope, node) = (text(event, "scope"), text(event, "nodeId"));
    let address = if scope.is_empty() { node.to_owned() } else { format!("{scope}.{node}") };
    html! {
        @if node.is_empty() { (scope) }
        @else { a href={ (run_path(run)) "/tasks/" (escaped(&address)) } { (address) } }
    }
}

/// Shows a page of the events of a run.
pub(crate) async fn events(visit: Visit, Path(id): Path<String>) -> Result<Page, Failure> {
    let run = Shown::read(&visit, id).await?;
    let total = run.view["events"].as_u64();
    let latest = total.unwrap_or(0).saturating_sub(PAGE_EVENTS);
    let from = visit.query("from").and_then(|from| from.parse().ok()).unwrap_or(latest);
    let path = api_path(&run.id, &format!("/events?from={from}&limit={PAGE_EVENTS}&preview={MAX_EVENT_BYTES}"));
    let page = visit.get(&path).await.map_err(|refusal| Failure::of(&visit, refusal))?;
    let (events, here) = (list(&page, "events"), format!("{}/events", run_path(&run.id)));
    let next = page["next"].as_u64().unwrap_or(0);
    let body = html! {
        (list_table(None, "Events, in their order", html! { th .number { "Number" } th { "Time" } th { "Type" } th { "Task" } th { "Members" } }, html! {
            @for event in events {
                @let (members, size) = summary(event);
                @let (shown, _) = cut(&members, MAX_EVENT_BYTES);
                tr {
                    td .number { (event["seq"].as_u64().unwrap_or(0)) }
                    td { (moment(&event["ts"])) }
                    td { code { (text(event, "type")) } }
                    td { (place_of(&run.id, event)) }
                    td .members { (shown) @if size > shown.len() { "… " span .faint { (crate::parts::size(size as u64)) } } }
                }
            }
        }))
        @if events.is_empty() { p .faint { "No event has this number yet." } }
        nav .pages aria-label="Pages" {
            @if from > 0 { a rel="prev" href={ (here) "?from=" (from.saturating_sub(PAGE_EVENTS)) } { "Earlier" } }
            @if total.is_some_and(|total| next < total) { a rel="next" href={ (here) "?from=" (next) } { "Later" } }
            @if let Some(total) = total { span .faint { (count(total, "event")) " so far" } }
        }
        (command(&format!("{} --from {from}", on_run("events", &run.id))))
    };
    Ok(run.page(&visit, "/events", body))
}

/// Shows the log lines of a run.
pub(crate) async fn logs(visit: Visit, Path(id): Path<String>) -> Result<Page, Failure> {
    let run = Shown::read(&visit, id).await?;
    let from: u64 = visit.query("from").and_then(|from| from.parse().ok()).unwrap_or(0);
    let path = api_path(&run.id, &format!("/events?type=log&from={from}&limit={MAX_LINES}"));
    let page = visit.get(&path).await.map_err(|refusal| Failure::of(&visit, refusal))?;
    let (lines, next) = (list(&page, "events"), page["next"].as_u64().unwrap_or(from));
    let has_more = run.view["events"].as_u64().is_some_and(|total| next < total);
    let body = html! {
        @if lines.is_empty() { p .faint { "The tasks have written no log lines in the events from " (from) " to " (next) "." } }
        ol .log {
            @for event in lines {
                @let (shown, whole) = cut(text(event, "message"), MAX_LINE_BYTES);
                li class={ "level-" (text(event, "level")) } {
                    (moment(&event["ts"])) " " span .level { (text(event, "level")) } " " (place_of(&run.id, event)) " "
                    span .message { (shown) @if let Some(whole) = whole { "… " span .faint { (crate::parts::size(whole as u64)) } } }
                }
            }
        }
        nav .pages aria-label="Pages" {
            @if has_more { a rel="next" href={ (run_path(&run.id)) "/logs?from=" (next) } { "Later" } }
        }
    };
    Ok(run.page(&visit, "/logs", body))
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

/// Shows a task with the inputs of its attempts.
pub(crate) async fn task(visit: Visit, Path((id, task)): Path<(String, String)>) -> Result<Page, Failure> {
    let run = Shown::read(&visit, id).await?;
    let path = api_path(&run.id, &format!("/tasks/{}", escaped(&task)));
    let tree = visit.get(&api_path(&run.id, "/tree")).await.unwrap_or_default();
    let tasks = Tasks::of(&tree);
    let twig = tasks.all().iter().find(|each| each.address == task);
    let detail = visit.get(&format!("{path}?limit=20")).await;
    let detail = match detail {
        // The task has begun no attempt yet.
        Err(refusal) if refusal.code == "task_not_found" && twig.is_some() => Value::Null,
        detail => detail.map_err(|refusal| Failure::of(&visit, refusal))?,
    };
    let body = html! {
        h2 { code { (task) } }
        div .row {
            @if let Some(twig) = twig { (state(twig.status())) }
            span .faint { (text(&detail, "nodeType")) }
            @if let Some(ms) = twig.and_then(|twig| twig.twig["durationMs"].as_u64()) { span .faint { "took " (duration(ms)) } }
        }
        @if let Some(twig) = twig.filter(|twig| twig.twig["error"].is_object()) { (error(&run.id, &twig.twig["error"])) }
        @for attempt in list(&detail, "attempts") { (self::attempt(attempt, &path)) }
        @if list(&detail, "attempts").is_empty() { p .faint { "No attempt of this task has begun." } }
        @if detail["next"].is_u64() { p .cut { "More attempts: " a href=(path) { code { (path) } } } }
        (command(&format!("{} {}", on_run("input", &run.id), quoted(&task))))
    };
    Ok(run.page(&visit, "/list", body))
}

fn attempt(attempt: &Value, path: &str) -> Markup {
    html! {
        section .attempt {
            h3 { "Attempt " (attempt["attempt"].as_u64().unwrap_or(0)) }
            div .row { (state(text(attempt, "status"))) span .faint { "began " (time(&attempt["began"])) }
                @if let Some(resumes) = attempt["resumes"].as_u64().filter(|resumes| *resumes > 0) { span .faint { (count(resumes, "resume")) } } }
            @if attempt["sameInput"] == true { p .faint { "The input is that of the attempt before." } }
            @else if let Some(why) = attempt["inputError"].as_str() { p .notice .warn { "The input cannot be shown: " (why) } }
            @else { h4 { "Input" } (show_json(&attempt["input"], path)) }
            @if attempt["inputDigest"] == "differs" {
                p .notice .warn { "This is not the input that the attempt received: the flow or a pack renders it differently now." }
            }
            @if attempt["config"].as_object().is_some_and(|config| !config.is_empty()) { h4 { "Config" } (show_json(&attempt["config"], path)) }
            @if attempt.get("calls").is_some_and(|calls| !calls.is_null()) { h4 { "Calls" } (show_json(&attempt["calls"], path)) }
        }
    }
}
