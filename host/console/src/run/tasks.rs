//! The tasks of a run, and one of its tasks with its attempts.

use axum::extract::Path;
use maud::{Markup, html};
use serde_json::Value;

use super::{Shown, api_path, error, events::log_lines, retry};
use crate::{
    frame::{Failure, Page},
    parts::{
        URGENCY, bar, command, count, cut, duration, json as show_json, list, list_table, positionals, size, state,
        tally, text, time,
    },
    runs::{has_ended, on_run, query, run_path},
    visit::{Visit, escaped},
};

/// Number of tasks on a page.
const PAGE_TASKS: u64 = 150;
/// Maximum number of bytes of an error in the list.
const MAX_ERROR_BYTES: usize = 160;
/// Maximum number of calls of an attempt that the page shows.
const MAX_CALLS: usize = 50;
/// Maximum number of log lines of a task on its page.
const MAX_LINES: u64 = 20;

/// Returns the path of a task's page, at the moment that a page of its run shows.
pub(super) fn task_path(run: &Shown, task: &str) -> String {
    format!("{}{}", present_task_path(&run.id, task), run.moment.query())
}

/// Returns the path of the page of a task as it is now.
pub(super) fn present_task_path(run: &str, task: &str) -> String {
    format!("{}/tasks/{}", run_path(run), escaped(task))
}

/// Shows the tasks of a run by page: those of the flow, the passes of a body, or the tasks of a pass.
pub(crate) async fn tasks(visit: Visit, Path(id): Path<String>) -> Result<Page, Failure> {
    let run = Shown::read_at(&visit, id).await?;
    let [asked_under, only, order, from] =
        ["under", "status", "order", "from"].map(|name| visit.query(name).unwrap_or_default());
    let before = run.moment.before();
    // The latest pass of a body, which is another one when the page looks again.
    let followed = if visit.query("follow").is_some() { latest_pass(&visit, &run, &asked_under).await? } else { None };
    let under = followed.clone().unwrap_or_else(|| asked_under.clone());
    // A filter by state looks at the tasks in bodies, too.
    let deep = if only.is_empty() { "" } else { "true" };
    let limit = PAGE_TASKS.to_string();
    let asked = [("under", &*under), ("status", &only), ("order", &order), ("from", &from), ("before", &before)];
    let path =
        api_path(&run.id, &format!("/tasks{}", query(&[&asked[..], &[("deep", deep), ("limit", &limit)]].concat())));
    let page = visit.get(&path).await.map_err(|refusal| Failure::of(&visit, refusal))?;
    let here = format!("{}/list", run_path(&run.id));
    let at = |from: u64| {
        let from = from.to_string();
        let members = [("under", &*under), ("status", &only), ("order", &order), ("before", &before), ("from", &from)];
        format!("{here}{}", query(&members))
    };
    let (items, total) = (list(&page, "tasks"), page["total"].as_u64().unwrap_or(0));
    let first = from.parse::<u64>().unwrap_or(0);
    let left_out = page["tasksLeftOut"].as_u64().unwrap_or(0);
    let body = html! {
        (run.moment.slider(&run.id, "/list"))
        @if !under.is_empty() { p { a href={ (here) (query(&[("before", &before)])) } { "All tasks" } " › " code { (under) }
            @if followed.is_some() { " " span .label { "latest pass" } " " a href={ (here) (query(&[("under", &asked_under)])) } { "All passes" } }
            @else if items.iter().any(|task| task["tasks"].is_u64()) && !has_ended(&run.view) && !run.moment.is_earlier() {
                " " a href={ (here) (query(&[("under", &asked_under), ("follow", "yes")])) } { "Follow the latest pass" } } } }
        form .filters method="get" action=(here) {
            @if !under.is_empty() { input type="hidden" name="under" value=(under); }
            @if !before.is_empty() { input type="hidden" name="before" value=(before); }
            label { "State" select name="status" {
                option value="" { "all" }
                @for each in URGENCY { option value=(each) selected[each == only] { (each) } }
            } }
            label { "Order" select name="order" {
                option value="" { "as they began" }
                option value="urgent" selected[order == "urgent"] { "most urgent first" }
            } }
            button { "Filter" }
        }
        (list_table(Some("tasks"), "Tasks", html! { th { "Task" } th { "State" } th .number { "Attempts" } th .number { "Calls" } th .number { "Took" } th { "Passes, error" } }, html! {
            @for task in items { (row(&run, &here, &before, task)) }
        }))
        @if items.is_empty() { p .faint { @if only.is_empty() { "No task has begun." } @else { "No task is in this state." } } }
        nav .pages aria-label="Pages of the list" {
            @if first > 0 { a rel="prev" href=(at(first.saturating_sub(PAGE_TASKS))) { "Earlier" } }
            @if let Some(next) = page["next"].as_u64() { a rel="next" href=(at(next)) { "Later" } }
            @if total > items.len() as u64 { span .faint { (first + 1) " to " (first + items.len() as u64) " of " (total) } }
        }
        @if left_out > 0 {
            p .cut { (count(left_out, "task")) " began after the part that the server lists; " a href={ (run_path(&run.id)) "/events" } { "the events" } " have all." }
        }
        (command(&on_run("show", &run.id)))
    };
    Ok(run.page(&visit, "/list", body))
}

/// Returns the address of the pass of a body that began last. Returns `None` if no pass has begun.
async fn latest_pass(visit: &Visit, run: &Shown, body: &str) -> Result<Option<String>, Failure> {
    let before = run.moment.before();
    let page = |from: &str| {
        api_path(
            &run.id,
            &format!("/tasks{}", query(&[("under", body), ("limit", "1"), ("before", &before), ("from", from)])),
        )
    };
    let fails = |refusal| Failure::of(visit, refusal);
    let total = visit.get(&page("")).await.map_err(fails)?["total"].as_u64().unwrap_or(0);
    let last = visit.get(&page(&total.saturating_sub(1).to_string())).await.map_err(fails)?;
    let pass = list(&last, "tasks").iter().find(|task| task["tasks"].is_u64());
    Ok(pass.map(|pass| text(pass, "address").to_owned()))
}

fn row(run: &Shown, list_path: &str, before: &str, task: &Value) -> Markup {
    let (address, is_pass) = (text(task, "address"), task["tasks"].is_u64());
    let passes = task["passes"].as_object().filter(|passes| !passes.is_empty());
    let inside =
        |order: &str| format!("{list_path}{}", query(&[("under", address), ("order", order), ("before", before)]));
    html! {
        tr {
            td {
                @if is_pass { a .id href=(inside("")) { (address) } }
                @else { a .id href=(task_path(run, address)) { (address) } }
                @if let Some(undone) = task["undoes"].as_str() { span .faint { " undoes " (undone) } }
            }
            td data-fresh={ "state " (address) } { (state(text(task, "status"))) }
            td .number { @if let Some(attempts) = task["attempts"].as_u64() { (attempts) } }
            td .number { @if let Some(calls) = task["calls"].as_u64() { (calls) } }
            td .number { (task["durationMs"].as_u64().map(duration).unwrap_or_default()) }
            td {
                @if let Some(passes) = passes {
                    @let counts: Vec<_> = passes.iter().map(|(status, number)| (status.as_str(), number.as_u64().unwrap_or(0))).collect();
                    a .passes href=(inside("urgent")) data-fresh={ "passes " (address) } aria-label={ "Passes of " (address) ": " (tally(&counts)) } { (bar(&counts)) (tally(&counts)) }
                }
                @if let Some(tasks) = task["tasks"].as_u64() { span .faint { (count(tasks, "task")) " " } }
                (cut(text(&task["error"], "message"), MAX_ERROR_BYTES).0)
            }
        }
    }
}

/// Shows a task with its attempts, their inputs, calls and outputs, and its log lines.
pub(crate) async fn task(visit: Visit, Path((id, task)): Path<(String, String)>) -> Result<Page, Failure> {
    let run = Shown::read_at(&visit, id).await?;
    let path = api_path(&run.id, &format!("/tasks/{}", escaped(&task)));
    let from = visit.query("from").and_then(|from| from.parse::<u64>().ok()).unwrap_or(0);
    let (above, _) = task.rsplit_once('.').unwrap_or(("", &task));
    let before = run.moment.before();
    let listed = |before: &str| api_path(&run.id, &format!("/tasks{}", query(&[("task", &*task), ("before", before)])));
    // A task that has no event yet is in no list.
    let found = visit.get(&listed(&before)).await.unwrap_or_default();
    let about = list(&found, "tasks").first();
    let shown = query(&[("limit", "20"), ("from", &from.to_string()), ("before", &before)]);
    let detail = match visit.get(&format!("{path}{shown}")).await {
        // The task has begun no attempt yet.
        Err(refusal) if refusal.code == "task_not_found" => {
            let is_known = about.is_some() || run.moment.is_earlier() && is_known(&visit, &listed(""), &path).await;
            if !is_known {
                return Err(Failure::of(&visit, refusal));
            }
            Value::Null
        }
        detail => detail.map_err(|refusal| Failure::of(&visit, refusal))?,
    };
    let until = if before.is_empty() { u64::MAX.to_string() } else { before.clone() };
    let lines = [("type", "log"), ("task", &*task), ("before", &until), ("limit", &MAX_LINES.to_string())];
    let lines = visit.get(&api_path(&run.id, &format!("/events{}", query(&lines)))).await.unwrap_or_default();
    let at = |from: u64| {
        let from = if from == 0 { String::new() } else { from.to_string() };
        format!("{}/tasks/{}{}", run_path(&run.id), escaped(&task), query(&[("from", &from), ("before", &before)]))
    };
    let events = format!("{}/events{}", run_path(&run.id), query(&[("task", &*task), ("before", &before)]));
    let has_passes = about.is_some_and(|about| about["passes"].is_object());
    let source = format!("{path}{}", run.moment.query());
    let whole_reply = |attempt: u64, call: &Value| {
        let (at, call) = (attempt.to_string(), call.to_string());
        format!("{path}{}", query(&[("from", &*at), ("limit", "1"), ("before", &before), ("call", &call)]))
    };
    let body = html! {
        (run.moment.slider(&run.id, &format!("/tasks/{}", escaped(&task))))
        p { a href={ (run_path(&run.id)) "/list" (query(&[("under", above), ("before", &before)])) } { "Tasks" } " › " code { (task) } }
        h2 { code { (task) } }
        div .row {
            @if let Some(about) = about { (state(text(about, "status"))) }
            @let kind = text(&detail, "nodeType");
            @if !kind.is_empty() { a href={ "/console/catalog/" (escaped(kind)) } { (kind) } }
            @if let Some(ms) = about.and_then(|about| about["durationMs"].as_u64()) { span .faint { "took " (duration(ms)) } }
            @if has_passes {
                a href={ (run_path(&run.id)) "/list" (query(&[("under", &*task), ("order", "urgent"), ("before", &before)])) } { "Its passes" }
            }
            a href=(events) { "Its events" }
        }
        // The only attempt has the same error below.
        @let attempts = list(&detail, "attempts");
        @let is_below = |about: &Value| attempts.len() == 1 && attempts[0]["error"]["message"] == about["error"]["message"];
        @if let Some(about) = about.filter(|about| about["error"].is_object() && !is_below(about)) { (error(&run, &about["error"])) }
        // A task that undoes another is repeated with that one.
        @if about.is_none_or(|about| about["undoes"].is_null()) { (retry::form(&run, Some(&task))) }
        @if from > 0 { nav .pages aria-label="Attempts" { a rel="first" href=(at(0)) { "First attempts" } } }
        @for (at, attempt) in (from..).zip(list(&detail, "attempts")) {
            (self::attempt(attempt, &source, &|call: &Value| whole_reply(at, call)))
        }
        @if list(&detail, "attempts").is_empty() {
            @if from > 0 { p .faint { "No attempt has this number." } }
            @else if has_passes { p .faint { "Its attempts are in its passes." } }
            @else if run.moment.is_earlier() { p .faint { "No attempt of this task had begun." } }
            @else { p .faint { "No attempt of this task has begun." } }
        }
        @if let Some(next) = detail["next"].as_u64() { nav .pages aria-label="Attempts" { a rel="next" href=(at(next)) { "More attempts" } } }
        @if !list(&lines, "events").is_empty() {
            section {
                h3 { "Log lines, the latest" }
                (log_lines(&run.id, list(&lines, "events")))
            }
        }
        @if !run.moment.is_earlier() && !list(&detail, "attempts").is_empty() { (command(&format!("runs show {}", positionals(&[&run.id, &task])))) }
    };
    Ok(run.page(&visit, "/list", body))
}

/// Returns whether a task is known now: by its events, or by an attempt in a run that this one called.
async fn is_known(visit: &Visit, listed: &str, path: &str) -> bool {
    let found = visit.get(listed).await.unwrap_or_default();
    !list(&found, "tasks").is_empty() || visit.get(&format!("{path}?limit=1")).await.is_ok()
}

/// Shows an attempt. `whole_reply` returns the path of the API that has the whole reply of a call.
fn attempt(attempt: &Value, path: &str, whole_reply: &dyn Fn(&Value) -> String) -> Markup {
    let took =
        attempt["ended"].as_u64().zip(attempt["began"].as_u64()).map(|(ended, began)| ended.saturating_sub(began));
    let calls = list(attempt, "calls");
    html! {
        section .attempt {
            h3 { "Attempt " (attempt["attempt"].as_u64().unwrap_or(0))
                @if let Some(resumes) = attempt["resumes"].as_u64().filter(|resumes| *resumes > 0) { ", after resume " (resumes) } }
            @if attempt["inputDigest"] == "not_run" {
                p .notice { "It did not run: its output was kept from the run that this one repeats." }
            }
            div .row { (state(text(attempt, "status"))) span .faint { "began " (time(&attempt["began"])) }
                @if let Some(took) = took { span .faint { "took " (duration(took)) } } }
            @if attempt["error"].is_object() {
                p .notice .bad { strong { (cut(text(&attempt["error"], "message"), 2_000).0) } " " code { (text(&attempt["error"], "code")) } }
            }
            div .columns {
                section {
                    h4 { "Input" }
                    @if attempt["sameInput"] == true { p .faint { "The input is that of the attempt before." } }
                    @else if attempt["inputError"].is_object() {
                        p .notice .warn { "The input cannot be shown: " (text(&attempt["inputError"], "message")) }
                        @if !attempt["input"].is_null() { p { "Its members that can be shown:" } (show_json(&attempt["input"], path)) }
                    }
                    @else { (show_json(&attempt["input"], path)) }
                    @if attempt["inputDigest"] == "differs" {
                        p .notice .warn { "This is not the input that the attempt received: the flow or a pack renders it differently now." }
                    }
                    @if attempt["config"].as_object().is_some_and(|config| !config.is_empty()) { h4 { "Config" } (show_json(&attempt["config"], path)) }
                }
                @if !attempt["output"].is_null() { section { h4 { "Output" } (show_json(&attempt["output"], path)) } }
            }
            @for call in calls.iter().take(MAX_CALLS) { (self::call(call, path, whole_reply)) }
            @if calls.len() > MAX_CALLS { p .cut { (count((calls.len() - MAX_CALLS) as u64, "more call")) ": " a href=(path) { code { (path) } } } }
        }
    }
}

/// Shows a call with its reply, folded.
fn call(call: &Value, path: &str, whole_reply: &dyn Fn(&Value) -> String) -> Markup {
    let (reply, is_cut) = (&call["reply"], call["replyCut"].is_object());
    html! {
        details .call {
            summary { "Call " (call["call"].as_u64().unwrap_or(0)) ": " code { (text(call, "interface")) "." (text(call, "function")) }
                @if call["error"].is_object() { " " span .state .bad { "failed" } }
                @else if reply.is_null() && !is_cut { " " span .faint { "no reply is recorded" } } }
            (show_json(&call["about"], path))
            @if !call["preview"].is_null() { h4 { "It sent" } (show_json(&call["preview"], path)) }
            @if call["error"].is_object() { h4 { "Its failure" } (show_json(&call["error"], path)) }
            @else if !reply.is_null() { h4 { "Its reply" } (show_json(reply, path)) }
            @else if is_cut {
                @let (start, whole) = (text(&call["replyCut"], "start"), whole_reply(&call["call"]));
                h4 { "Its reply" }
                pre tabindex="0" { (start) }
                p .cut { "Shown in part: " (size(start.len() as u64)) " of " (size(call["replyCut"]["bytes"].as_u64().unwrap_or(0)))
                    ". All of it: " a href=(whole) { code { (whole) } } }
            }
        }
    }
}
