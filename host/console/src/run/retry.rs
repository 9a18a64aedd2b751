//! The retry of a run: the form, and the plan of a retry in another version of the flow.

use axum::{
    extract::Path,
    response::{IntoResponse, Redirect, Response},
};
use maud::{Markup, html};
use serde_json::{Value, json};

use super::{Shown, api_path};
use crate::{
    frame::{Area, Failure, Page},
    once,
    parts::{command, list, list_table, quoted, text},
    runs::{has_ended, on_run, run_path},
    sent::Form,
    visit::Visit,
};

/// Returns the name, in the version of the flow that the run uses, of the node of the flow itself that contains a task.
fn node_of(run: &Shown, task: &str) -> String {
    let id = task.split(['.', '[', '/']).next().unwrap_or(task);
    run.view["nodeNames"][id].as_str().unwrap_or(id).to_owned()
}

/// Shows the form that repeats a run: all of it, or from the node of a task on. Says why if the run cannot be repeated.
/// Shows nothing for a run that has not ended, and at an earlier moment.
pub(super) fn form(run: &Shown, task: Option<&str>) -> Markup {
    let (id, from) = (&run.id, task.map(|task| node_of(run, task)));
    let label = if from.is_some() { "Retry from here" } else { "Retry" };
    let line = match &from {
        Some(from) => format!("{} --from {}", on_run("retry", id), quoted(from)),
        None => on_run("retry", id),
    };
    let version_field = format!("version-{}", from.as_deref().unwrap_or_default());
    html! {
        @if !has_ended(&run.view) || run.moment.is_earlier() {}
        @else if run.view["calledBy"].is_string() {
            p .faint { "A called run is repeated with the run that has called it." }
        } @else if !run.may("run:create") {
            p .faint { "Your token lacks the scope " code { "run:create" } ", so it cannot repeat this run." }
        } @else {
            details .control {
                summary { (label) "…" }
                form method="post" action={ (run_path(id)) "/retry" } {
                    (once::field())
                    @if let Some(from) = &from {
                        input type="hidden" name="from" value=(from);
                        p { "A new run keeps the outputs of the nodes that do not come after " code { (from) } ", and repeats this node and all nodes after it. A question before it is asked again, unless its answer is kept, and the nodes after that question run again, too." }
                    } @else {
                        p { "A new run repeats this one with the same input." }
                    }
                    @if let Some(version) = run.view["version"].as_u64() {
                        div .field { label for=(version_field) { "Version of the flow" } select id=(version_field) name="version" {
                            option value="" { (version) ", as in this run" }
                            option value="latest" { "the newest: its plan is shown first" }
                        } }
                    }
                    @if from.is_none() { p .faint { "It asks people again." } }
                    @else if run.may("gate:decide") {
                        p { label .check { input type="checkbox" name="keep" value="yes"; " Keep the answers of people, and do not ask again" } }
                    } @else {
                        p .faint { "It asks people again: your token lacks the scope " code { "gate:decide" } ", which keeps their answers." }
                    }
                    button { (label) }
                }
                (command(&line))
            }
        }
    }
}

/// Repeats a run, or its tasks from one on, and opens the new run. For another version of the flow, shows the plan
/// first.
pub(crate) async fn retry(visit: Visit, Path(run): Path<String>, form: Form) -> Result<Response, Failure> {
    let fails = |refusal| Failure::of(&visit, refusal);
    let given = |name| form.text(name).filter(|value| !value.is_empty());
    let (mut body, is_sure) = (json!({}), given("sure").is_some());
    if let Some(from) = given("from") {
        body["from"] = from.into();
    }
    if given("keep").is_some() {
        body["keepAnswers"] = true.into();
    }
    if let Some(version) = given("version") {
        body["flowVersion"] = version.parse::<u32>().map_or_else(|_| version.into(), Value::from);
        if !is_sure {
            body["check"] = true.into();
            let plan = visit.post(&api_path(&run, "/retry"), &body).await.map_err(fails)?.body;
            return Ok(plan_page(&visit, &run, &body, &plan).into_response());
        }
    }
    let started = once::post(&visit, &api_path(&run, "/retry"), &body, &form).await.map_err(fails)?.body;
    Ok(Redirect::to(&run_path(text(&started, "runId"))).into_response())
}

/// Shows which nodes a retry keeps and runs, with a form that begins it.
fn plan_page(visit: &Visit, run: &str, body: &Value, plan: &Value) -> Page {
    let of = |what: &'static str, key: &str| {
        list(plan, key).iter().map(move |node| (node.as_str().unwrap_or_default(), what.to_owned(), String::new()))
    };
    let runs = list(plan, "runs").iter().map(|node| {
        let calls = node["madeCalls"].as_object().into_iter().flatten();
        let calls: Vec<_> = calls.map(|(name, number)| format!("{name} × {number}")).collect();
        (text(node, "node"), format!("runs: {}", reason(node)), calls.join(", "))
    });
    let kept = of("keeps its output", "kept");
    let skipped = of("was skipped; its condition is evaluated again", "skipped");
    let rows: Vec<_> = runs.chain(kept).chain(skipped).chain(of("is not in this version", "gone")).collect();
    // What begins is the version of the plan, also if a newer one is stored meanwhile.
    let version =
        plan["version"].as_u64().map_or_else(|| text(body, "flowVersion").to_owned(), |number| number.to_string());
    let main = html! {
        p { a href=(run_path(run)) { "Back to the run" } }
        p { "Nothing has begun yet. The new run uses version " (version) " of the flow." }
        (list_table(None, "Nodes of the new run", html! { th { "Node" } th { "In the new run" } th { "Calls that it made, and may make again" } }, html! {
            @for (node, what, calls) in &rows { tr { td { code { (node) } } td { (what) } td { (calls) } } }
        }))
        @if !list(plan, "similar").is_empty() {
            p { "If a node only has another name in this version, repeat the run with this command: the node then counts as the same one." }
            (command(&with_names(run, &version, body, plan)))
        }
        form method="post" action={ (run_path(run)) "/retry" } {
            (once::field())
            input type="hidden" name="sure" value="yes";
            input type="hidden" name="version" value=(version);
            @if let Some(from) = body["from"].as_str() { input type="hidden" name="from" value=(from); }
            @if body["keepAnswers"] == true { input type="hidden" name="keep" value="yes"; }
            button { "Begin the new run" }
        }
    };
    Page::new(visit, Area::Runs, format!("Retry of {run}"), main).fixed()
}

/// Returns the command that repeats a run with the names that the plan proposes.
fn with_names(run: &str, version: &str, body: &Value, plan: &Value) -> String {
    let mut line = format!("{} --flow-version {}", on_run("retry", run), quoted(version));
    for node in list(plan, "similar") {
        line += &format!(" --rename {}", quoted(&format!("{}={}", text(node, "node"), text(node, "name"))));
    }
    if let Some(from) = body["from"].as_str() {
        line += &format!(" --from {}", quoted(from));
    }
    if body["keepAnswers"] == true {
        line += " --keep-answers";
    }
    line
}

/// Returns the reason for which a node runs, for people.
fn reason(node: &Value) -> String {
    match text(node, "reason") {
        "requested" => "it was requested".into(),
        "new" => "it is new".into(),
        "changed" => format!("its part “{}” changed", text(node, "part").replace('_', " ")),
        "not_succeeded" => "it did not succeed".into(),
        "not_begun" => "it had not begun".into(),
        "asks_again" => "it asks again, since a node that depends on its answer runs again".into(),
        "after" => format!("it comes after {}", text(node, "after")),
        other => other.replace('_', " "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_proposes_a_command_with_the_names() {
        let plan = json!({ "similar": [{ "node": "pay", "name": "charge" }, { "node": "a b", "name": "it's" }] });
        for (body, more) in
            [(json!({}), ""), (json!({ "from": "charge", "keepAnswers": true }), " --from charge --keep-answers")]
        {
            let expected = format!(r"runs retry r --flow-version 3 --rename pay=charge --rename 'a b=it'\''s'{more}");
            assert_eq!(with_names("r", "3", &body, &plan), expected);
        }
    }
}
