//! The timeline of a run: a bar for each task, from its begin to its end.

use axum::extract::Path;
use jiff::Timestamp;
use maud::{Markup, html};
use serde_json::Value;

use super::{Shown, api_path, tasks::task_path};
use crate::{
    frame::{Failure, Page},
    parts::{command, count, duration, glyph, list, list_table, tone},
    runs::{has_ended, on_run, query, run_path},
    visit::Visit,
};

/// Number of tasks on a page.
const PAGE_TASKS: usize = 200;

/// A task of the timeline.
struct Row<'a> {
    address: &'a str,
    status: &'a str,
    /// Milliseconds after the begin of the run. `None`: no attempt has begun.
    begin: Option<u64>,
    /// `None`: it has not ended.
    end: Option<u64>,
    attempts: u64,
}

fn rows(timeline: &Value) -> Vec<Row<'_>> {
    let number = |key: &str, at: usize| timeline[key][at].as_u64();
    let tasks = list(timeline, "task").iter().enumerate();
    tasks
        .map(|(at, task)| Row {
            address: task.as_str().unwrap_or_default(),
            status: number("status", at)
                .and_then(|index| timeline["statuses"][usize::try_from(index).unwrap_or(usize::MAX)].as_str())
                .unwrap_or_default(),
            begin: number("begin", at),
            end: number("end", at),
            attempts: number("attempts", at).unwrap_or(0),
        })
        .collect()
}

/// Shows the timeline of a run by page.
pub(crate) async fn show(visit: Visit, Path(id): Path<String>) -> Result<Page, Failure> {
    let run = Shown::read_at(&visit, id).await?;
    let before = run.moment.before();
    let path = api_path(&run.id, &format!("/timeline{}", run.moment.query()));
    let timeline = visit.get(&path).await.map_err(|refusal| Failure::of(&visit, refusal))?;
    let began = timeline["began"].as_u64().unwrap_or(0);
    // A task that waits makes no events.
    let now = u64::try_from(Timestamp::now().as_millisecond()).unwrap_or(0);
    let last = timeline["until"].as_u64().unwrap_or(0);
    // At an earlier moment, the bars of tasks that had not ended reach to its last event.
    let is_fixed = has_ended(&run.view) || run.moment.is_earlier();
    let until = if is_fixed { last } else { last.max(now) }.saturating_sub(began);
    let from = visit.query("from").and_then(|from| from.parse::<usize>().ok()).unwrap_or(0);
    let all = rows(&timeline);
    let shown: Vec<_> = all.iter().skip(from).take(PAGE_TASKS).collect();
    // A page of a long run shows its own part of the time.
    let first = shown.iter().filter_map(|row| row.begin).min().unwrap_or(0);
    let last = shown.iter().map(|row| row.end.unwrap_or(until)).max().unwrap_or(until).max(first + 1);
    let here = format!("{}/timeline", run_path(&run.id));
    let left_out = timeline["tasksLeftOut"].as_u64().unwrap_or(0);
    let at = |from: usize| format!("{here}{}", query(&[("from", &from.to_string()), ("before", &before)]));
    let body = html! {
        (run.moment.slider(&run.id, "/timeline"))
        p .faint { "From " (duration(first)) " to " (duration(last)) " after the begin of the run." }
        div #timeline data-run=(run.id) {
            (list_table(Some("timeline"), "Timeline of the tasks", html! { th { "Task" } th .number { "Began after" } th .number { "Took" } th .span { "Time" } }, html! {
                @for row in &shown { (line(&run, row, (first, last), until)) }
            }))
        }
        @if shown.is_empty() { p .faint { @if from > 0 { "No task has this number." } @else { "No task has begun." } } }
        nav .pages aria-label="Pages of the list" {
            @if from > 0 { a rel="prev" href=(at(from.saturating_sub(PAGE_TASKS))) { "Earlier" } }
            @if from + shown.len() < all.len() { a rel="next" href=(at(from + shown.len())) { "Later" } }
            @if all.len() > shown.len() { span .faint { (from + 1) " to " (from + shown.len()) " of " (all.len()) " tasks" } }
        }
        @if left_out > 0 { p .cut { (count(left_out, "task")) " began after the part that the server lists." } }
        (command(&on_run("show", &run.id)))
    };
    Ok(run.page(&visit, "/timeline", body))
}

/// Returns where a time lies between two others, in thousandths.
fn place(at: u64, (first, last): (u64, u64)) -> u64 {
    at.clamp(first, last).saturating_sub(first).saturating_mul(1_000) / (last - first).max(1)
}

fn line(run: &Shown, row: &Row<'_>, span: (u64, u64), until: u64) -> Markup {
    let end = row.end.unwrap_or(until);
    let bar = row.begin.map(|begin| (place(begin, span), place(end, span), end.saturating_sub(begin)));
    html! {
        tr {
            td { a .id href=(task_path(run, row.address)) { (row.address) }
                @if row.attempts > 1 { span .faint { " " (row.attempts) " attempts" } } }
            td .number { @if let Some(begin) = row.begin { (duration(begin)) } }
            td .number { @if let Some((.., took)) = bar { (duration(took)) @if row.end.is_none() { " so far" } } }
            td { div .span { span class={ "state " (tone(row.status)) } { (glyph(row.status)) span .hidden { (row.status) } }
                @if let Some((begin, end, _)) = bar {
                    svg class={ "bar " (tone(row.status)) } viewBox="0 0 1000 10" preserveAspectRatio="none" aria-hidden="true" {
                        rect x=(begin.min(996)) y="0" width=(end.saturating_sub(begin).max(4)) height="10" {}
                    }
                } @else { span .faint { "no attempt" } }
            } }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_timeline_in_columns_has_a_row_for_each_task() {
        let timeline = json!({ "task": ["a", "each[0].b"], "status": [1, 0], "statuses": ["running", "succeeded"],
            "begin": [5, null], "end": [9, null], "attempts": [2, 0] });
        let rows = rows(&timeline);
        let shown: Vec<_> =
            rows.iter().map(|row| (row.address, row.status, row.begin, row.end, row.attempts)).collect();
        assert_eq!(shown, [("a", "succeeded", Some(5), Some(9), 2), ("each[0].b", "running", None, None, 0)]);
        // A damaged answer shows less, and does not fail.
        assert_eq!(super::rows(&json!({ "task": ["a"], "status": [9] }))[0].status, "");
    }

    #[test]
    fn bars_lie_between_the_first_and_the_last_time() {
        for (at, span, expected) in
            [(5, (5, 15), 0), (10, (5, 15), 500), (15, (5, 15), 1_000), (0, (5, 15), 0), (99, (5, 15), 1_000)]
        {
            assert_eq!(place(at, span), expected, "{at} {span:?}");
        }
    }
}
