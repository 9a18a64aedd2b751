//! Jobs: one action on all runs that the filters of the list select, with a preview, and its progress.

use axum::{
    extract::Path,
    http::StatusCode,
    response::{IntoResponse, Redirect, Response},
};
use flowcell_server::api::Refusal;
use jiff::Timestamp;
use maud::{Markup, html};
use serde_json::{Map, Value, json};

use crate::{
    form::exact,
    frame::{Area, Failure, Page},
    once,
    parts::{command, count, empty, glyph, list, list_table, positionals, quoted, state, text, time},
    runs::{FILTERS, period_ms, query, run_path},
    sent::Form,
    visit::{KNOWN, Visit, escaped},
};

/// An action of a job.
struct Action {
    name: &'static str,
    label: &'static str,
    /// The effect on each run.
    effect: &'static str,
    /// The fields of its parameters: name, label, whether one is needed.
    fields: &'static [(&'static str, &'static str, bool)],
}

const ACTIONS: [Action; 7] = [
    Action {
        name: "cancel",
        label: "Cancel",
        effect: "The tasks of each run that has not ended end, and the run cannot go on afterwards.",
        fields: &[],
    },
    Action {
        name: "resume",
        label: "Resume",
        effect: "Each run that is parked or needs attention looks again whether it can go on.",
        fields: &[],
    },
    Action {
        name: "retry",
        label: "Retry",
        effect: "A new run repeats each ended run with the same input, in the same version of its flow or in another one.",
        fields: &[
            ("from", "From this node on (all nodes, if empty)", false),
            ("flowVersion", "Another version: its number, or latest (the same one, if empty)", false),
        ],
    },
    Action {
        name: "answer",
        label: "Answer",
        effect: "Each open question at this address gets this answer.",
        fields: &[("gate", "Address of the gate", true), ("answer", "Answer", true)],
    },
    Action {
        name: "label",
        label: "Label",
        effect: "Each run gets a label, or loses one. Its flow is not changed.",
        fields: &[("set", "Set, as NAME=VALUE", false), ("remove", "Remove the label with this name", false)],
    },
    Action {
        name: "migrate",
        label: "Move",
        effect: "Each run that is parked or needs attention goes on in another version of its flow.",
        fields: &[("to", "Number of the version", true)],
    },
    Action {
        name: "delete",
        label: "Delete",
        effect: "Each ended run is deleted, with its events and outputs. It cannot be brought back.",
        fields: &[],
    },
];

/// Returns the request for the API, without empty `params`. `Err` names the missing part.
fn request(visit: &Visit, action: &Action) -> Result<Value, String> {
    let mut filter = Map::new();
    for name in FILTERS.into_iter().filter(|name| *name != "cursor") {
        let Some(value) = visit.query(name) else { continue };
        match name {
            "within" => {
                let period = period_ms(&value).ok_or_else(|| format!("`{value}` is not a period of the list"))?;
                let began = Timestamp::now().as_millisecond().saturating_sub(period);
                filter.insert("since".into(), began.into());
            }
            "labels" => {
                let mut labels = Map::new();
                for pair in value.split(',') {
                    let (name, value) = pair.split_once('=').ok_or_else(|| format!("write `{pair}` as NAME=VALUE"))?;
                    if labels.insert(name.trim().to_owned(), value.trim().into()).is_some() {
                        return Err(format!("name the label `{}` once", name.trim()));
                    }
                }
                filter.insert("labels".into(), Value::Object(labels));
            }
            "version" => {
                let number = value.parse::<u32>().map_err(|_| format!("`{value}` is not a version"))?;
                filter.insert("version".into(), number.into());
            }
            _ => {
                filter.insert(name.into(), value.into());
            }
        }
    }
    if filter.is_empty() {
        return Err("choose at least one filter in the list of runs first".into());
    }
    let mut params = Map::new();
    for (name, label, needed) in action.fields {
        let value = visit.query(&format!("p-{name}")).unwrap_or_default();
        match (*name, value.trim()) {
            (_, "") if *needed => return Err(format!("fill in “{label}”")),
            (_, "") => {}
            ("set", pair) => {
                let (name, value) = pair.split_once('=').ok_or("write the label as NAME=VALUE")?;
                params.insert("set".into(), json!({ name.trim(): value.trim() }));
            }
            ("remove", name) => _ = params.insert("remove".into(), json!([name])),
            ("flowVersion", "latest") => _ = params.insert("flowVersion".into(), "latest".into()),
            (name @ ("to" | "flowVersion"), number) => {
                let number = number.parse::<u32>().map_err(|_| format!("`{number}` is not a version"))?;
                params.insert(name.into(), number.into());
            }
            (name, value) => _ = params.insert(name.into(), value.into()),
        }
    }
    Ok(json!({ "action": action.name, "filter": filter, "params": params }))
}

/// Shows the preview of a job, and the button that creates it.
pub(crate) async fn prepare(visit: Visit) -> Result<Page, Failure> {
    let filters: Vec<_> = FILTERS
        .into_iter()
        .filter(|name| *name != "cursor")
        .filter_map(|name| Some((name, visit.query(name)?)))
        .collect();
    let chosen = visit.query("action").and_then(|name| ACTIONS.iter().find(|action| action.name == name));
    let here = |action: &str| {
        let members: Vec<_> = filters.iter().map(|(name, value)| (*name, value.as_str())).collect();
        format!("/console/jobs/new{}", query(&[members, vec![("action", action)]].concat()))
    };
    visit.get(KNOWN).await.map_err(|refusal| Failure::of(&visit, refusal))?;
    let body = match chosen {
        None => html! { p { "Choose an action. A preview shows the runs before anything happens." } },
        Some(action) => preview(&visit, action, &filters).await?,
    };
    let main = html! {
        p { "The filters: "
            @for (name, value) in &filters { code { (name) "=" (value) } " " }
            @if filters.is_empty() { "none. " a href="/console/runs" { "Choose filters in the list of runs" } }
        }
        nav .tabs aria-label="Actions" {
            @for action in &ACTIONS {
                a href=(here(action.name)) aria-current=[chosen.is_some_and(|chosen| chosen.name == action.name).then_some("true")] { (action.label) }
            }
        }
        (body)
    };
    Ok(Page::new(&visit, Area::Runs, "Act on many runs", main))
}

async fn preview(visit: &Visit, action: &Action, filters: &[(&str, String)]) -> Result<Markup, Failure> {
    let asked = request(visit, action);
    let seen = match &asked {
        Ok(asked) => Some(visit.post("/v1/jobs?preview=true", asked).await),
        Err(_) => None,
    };
    let fields = html! {
        @if !action.fields.is_empty() {
            form .filters method="get" action="/console/jobs/new" {
                @for (name, value) in filters { input type="hidden" name=(name) value=(value); }
                input type="hidden" name="action" value=(action.name);
                @for (name, label, needed) in action.fields {
                    label { (label) input name={ "p-" (name) } required[*needed] value=(visit.query(&format!("p-{name}")).unwrap_or_default()) autocomplete="off"; }
                }
                button { "Preview" }
            }
        }
    };
    let shown = match (&asked, seen) {
        (Ok(asked), Some(Ok(seen))) => confirm(action, asked, &seen.body),
        (_, Some(Err(refusal))) if refusal.status == StatusCode::BAD_REQUEST => {
            html! { p .notice .warn { (refusal.message) } }
        }
        (_, Some(Err(refusal))) => return Err(Failure::of(visit, refusal)),
        (Err(why), _) => html! { p .notice { "For the preview, " (why) "." } },
        (Ok(_), None) => html! {},
    };
    Ok(html! { p { (action.effect) } (fields) (shown) })
}

/// Shows the runs of a preview, and the button that creates the job.
fn confirm(action: &Action, asked: &Value, seen: &Value) -> Markup {
    let runs = seen["runs"].as_u64().unwrap_or(0);
    // The job acts on no more runs than the preview has counted.
    let mut job = asked.clone();
    if seen["more"] != true {
        job["maxRuns"] = runs.max(1).into();
    }
    let first = list(seen, "first");
    html! {
        @if runs == 0 { (empty("No run fits the filters now.", html! { p { "Change them in the list of runs." } })) }
        @else {
            section {
                h2 { (count(runs, "run")) @if seen["more"] == true { ", counted up to 10,000" } }
                p { @for (status, number) in seen["byStatus"].as_object().into_iter().flatten() {
                    (state(status)) " " (number.as_u64().unwrap_or(0)) " " } }
                @if let Some(moves) = seen["moves"].as_object() { (checks_of(moves, "move")) }
                @if let Some(retries) = seen["retries"].as_object() { (checks_of(retries, "be repeated")) }
                p { "The latest: "
                    @for run in first.iter().filter_map(Value::as_str) { a href=(run_path(run)) { (run) } " " }
                    @if runs > first.len() as u64 { span .faint { "and " (runs - first.len() as u64) " more" } } }
                form method="post" action="/console/jobs" {
                    (once::field())
                    input type="hidden" name="job" value=(exact(&job.to_string()));
                    p { "Runs that the action does not fit are skipped and counted." }
                    button .primary { (action.label) " " (count(runs, "run")) }
                }
                (command(&command_of(&job)))
            }
        }
    }
}

/// Says how many runs would not move to another version or be repeated in it. `what`: the action.
fn checks_of(checks: &Map<String, Value>, what: &str) -> Markup {
    let number = |key: &str| checks.get(key).and_then(Value::as_u64).unwrap_or(0);
    let refused = checks.get("refused").and_then(Value::as_object);
    html! {
        p { (count(number("checked"), "run")) " checked, " (number("unchecked")) " not." }
        @for (code, number) in refused.into_iter().flatten() {
            p .notice .warn { (count(number.as_u64().unwrap_or(0), "run")) " would not " (what) ": " code { (code) } }
        }
    }
}

/// Returns the command line that creates the same job.
fn command_of(job: &Value) -> String {
    let mut line = format!("runs bulk {}", text(job, "action"));
    let params = &job["params"];
    for (name, value) in job["filter"].as_object().into_iter().flatten() {
        match value {
            Value::Object(labels) => {
                for (label, value) in labels {
                    line += &format!(" -l {}", quoted(&format!("{label}={}", value.as_str().unwrap_or_default())));
                }
            }
            Value::String(value) => line += &format!(" --{name} {}", quoted(value)),
            // The command takes times as dates.
            Value::Number(ms) if name == "since" => {
                let at = ms.as_i64().and_then(|ms| Timestamp::from_millisecond(ms).ok());
                line += &format!(" --since {}", at.map(|at| at.to_string()).unwrap_or_default());
            }
            value if name == "version" => line += &format!(" --flow-version {value}"),
            value => line += &format!(" --{name} {value}"),
        }
    }
    for (param, name) in [("from", "from"), ("to", "to"), ("flowVersion", "to")] {
        match &params[param] {
            Value::Null => {}
            Value::String(value) => line += &format!(" --{name} {}", quoted(value)),
            value => line += &format!(" --{name} {value}"),
        }
    }
    for (label, value) in params["set"].as_object().into_iter().flatten() {
        line += &format!(" --set {}", quoted(&format!("{label}={}", value.as_str().unwrap_or_default())));
    }
    for label in list(params, "remove").iter().filter_map(Value::as_str) {
        line += &format!(" --remove {}", quoted(label));
    }
    if let Some(most) = job["maxRuns"].as_u64() {
        line += &format!(" --max-runs {most}");
    }
    line += " --yes";
    match params["gate"].as_str() {
        Some(gate) => format!("{line} {}", positionals(&[gate, text(params, "answer")])),
        None => line,
    }
}

/// Creates a job that was previewed, and opens its page.
pub(crate) async fn create(visit: Visit, form: Form) -> Result<Response, Failure> {
    let fails = |refusal| Failure::of(&visit, refusal);
    visit.get(KNOWN).await.map_err(fails)?;
    let job = serde_json::from_str::<Value>(form.text("job").unwrap_or_default());
    let job = job.map_err(|_| {
        fails(Refusal::new(StatusCode::BAD_REQUEST, "bad_request", "the form has no job: open its preview again"))
    })?;
    let made = once::post(&visit, "/v1/jobs", &job, &form).await.map_err(fails)?;
    Ok(Redirect::to(&page_path(text(&made.body, "id"))).into_response())
}

fn page_path(job: &str) -> String {
    format!("/console/jobs/{}", escaped(job))
}

/// Shows the jobs.
pub(crate) async fn all(visit: Visit) -> Result<Page, Failure> {
    let jobs = visit.get("/v1/jobs").await.map_err(|refusal| Failure::of(&visit, refusal))?;
    let jobs = list(&jobs, "jobs");
    let main = html! {
        div #jobs data-live {
            @if jobs.is_empty() {
                (empty("No job yet.", html! {
                    p { "A job performs one action on all runs that filters select: retry all failed runs of a flow, say. "
                        a href="/console/runs?status=failed" { "Choose filters in the list of runs" } ", and then “Act on these runs”." }
                }))
            } @else {
                (list_table(Some("jobs"), "Jobs, the latest first", html! { th { "Job" } th { "State" } th { "Action" } th { "Began" } th .number { "Done" } th .number { "Of" } }, html! {
                    @for job in jobs {
                        tr {
                            td { a .id href=(page_path(text(job, "id"))) { (text(job, "id")) } }
                            td { (job_state(job)) }
                            td { (text(job, "action")) }
                            td { (time(&job["created"])) }
                            td .number { (job["done"].as_u64().unwrap_or(0)) }
                            td .number { (expected(job)) }
                        }
                    }
                }))
            }
        }
        (command("jobs list"))
    };
    Ok(Page::new(&visit, Area::Runs, "Jobs", main).live("/v1/stream"))
}

fn expected(job: &Value) -> String {
    let more = if job["expectedMore"] == true { "more than " } else { "" };
    format!("{more}{}", job["expected"].as_u64().unwrap_or(0))
}

/// Shows the state of a job with the shape and the colour of a similar state of a run.
fn job_state(job: &Value) -> Markup {
    let word = text(job, "state");
    let (like, tone) = match word {
        "done" => ("succeeded", "good"),
        "running" => ("running", "busy"),
        "paused" => ("parked", "wait"),
        "stopped" => ("failed", "bad"),
        _ => ("cancelled", "calm"),
    };
    html! { span class={ "state " (tone) } { (glyph(like)) (word) } }
}

/// Shows a job with its progress.
pub(crate) async fn show(visit: Visit, Path(id): Path<String>) -> Result<Page, Failure> {
    let path = format!("/v1/jobs/{}", escaped(&id));
    let job = visit.get(&path).await.map_err(|refusal| Failure::of(&visit, refusal))?;
    let (done, is_open) = (job["done"].as_u64().unwrap_or(0), ["running", "paused"].contains(&text(&job, "state")));
    let steer = |verb: &str, label: &str| {
        html! { form method="post" action={ (page_path(&id)) "/" (verb) } { button { (label) } } }
    };
    let main = html! {
        div #job data-live {
            div .row { (job_state(&job)) span { (text(&job, "action")) } span .faint { "began " (time(&job["created"])) } }
            @if job["reason"].is_object() { p .notice .warn { (text(&job["reason"], "message")) " " code { (text(&job["reason"], "code")) } } }
            @let skipped = job["skipped"].as_object().into_iter().flatten().filter_map(|(_, number)| number.as_u64()).sum::<u64>();
            @let failed = job["failed"].as_u64().unwrap_or(0);
            label for="progress" { (done) " done" @if skipped > 0 { ", " (skipped) " skipped" } @if failed > 0 { ", " (failed) " failed" } " of " (expected(&job)) }
            progress #progress max=(job["expected"].as_u64().unwrap_or(0).max(1)) value=(done + skipped + failed) {}
            @for (title, key) in [("Skipped, because the action does not fit", "skipped"), ("Failed", "failures")] {
                @if let Some(counts) = job[key].as_object().filter(|counts| !counts.is_empty()) {
                    h2 { (title) }
                    ul .plain { @for (code, number) in counts { li { code { (code) } ": " (count(number.as_u64().unwrap_or(0), "run")) } } }
                }
            }
            @for error in list(&job, "errors") {
                p { a href=(run_path(text(error, "run"))) { (text(error, "run")) } ": " (text(error, "message")) }
            }
            @if is_open {
                div .buttons {
                    @if job["state"] == "running" { (steer("pause", "Pause")) } @else { (steer("resume", "Go on")) }
                    (steer("cancel", "Cancel the job"))
                }
            }
        }
        h2 { "Filter" }
        (crate::parts::json(&job["filter"], &path))
        (command(&format!("jobs show {}", quoted(&id))))
    };
    let page = Page::new(&visit, Area::Runs, format!("Job {id}"), main);
    Ok(if is_open { page.live("/v1/stream") } else { page })
}

/// Pauses a job, goes on with it, or cancels it.
pub(crate) async fn steer(
    visit: Visit,
    Path((id, verb)): Path<(String, String)>,
    _: Form,
) -> Result<Response, Failure> {
    let fails = |refusal| Failure::of(&visit, refusal);
    if !["pause", "resume", "cancel"].contains(&verb.as_str()) {
        visit.get(KNOWN).await.map_err(fails)?;
        let why = format!("a job cannot `{verb}`");
        return Err(fails(Refusal::new(StatusCode::NOT_FOUND, "not_found", why)));
    }
    visit.post(&format!("/v1/jobs/{}/{verb}", escaped(&id)), &json!({})).await.map_err(fails)?;
    Ok(Redirect::to(&page_path(&id)).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_has_its_command_line() {
        let table = [
            (
                json!({ "action": "retry", "filter": { "status": "failed", "flow": "it's" }, "params": { "from": "pay" } }),
                r"runs bulk retry --status failed --flow 'it'\''s' --from pay --yes",
            ),
            (
                json!({ "action": "label", "filter": { "labels": { "team": "a b" } }, "params": { "set": { "x": "y" }, "remove": ["z"] } }),
                "runs bulk label -l 'team=a b' --set x=y --remove z --yes",
            ),
            (
                json!({ "action": "answer", "filter": { "since": 0 }, "params": { "gate": "ok", "answer": "-no" }, "maxRuns": 7 }),
                "runs bulk answer --since 1970-01-01T00:00:00Z --max-runs 7 --yes -- ok -no",
            ),
            (
                json!({ "action": "migrate", "filter": { "flow": "f", "version": 1 }, "params": { "to": 2 } }),
                "runs bulk migrate --flow f --flow-version 1 --to 2 --yes",
            ),
        ];
        for (job, line) in table {
            assert_eq!(command_of(&job), line);
        }
    }
}
