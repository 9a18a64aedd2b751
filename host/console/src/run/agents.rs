//! The agents of a run, and the conversation with one of them.

mod entries;

use axum::{
    extract::Path,
    http::StatusCode,
    response::{IntoResponse, Redirect, Response},
};
use flowcell_server::api::Refusal;
use jiff::Timestamp;
use maud::{Markup, html};
use serde_json::{Value, json};

use self::entries::{beginning, entry};
use super::{AGENTS, Shown, api_path, tasks::present_task_path};
use crate::{
    frame::{Failure, Page},
    gate::wait,
    once,
    parts::{command, count, cut, duration, empty, list as items, list_table, quoted, state, text, time},
    runs::{has_ended, query, run_path},
    sent::Form,
    visit::{KNOWN, Visit, escaped},
};

/// Number of entries of a conversation on a page.
const PAGE_ENTRIES: u64 = 30;
/// Number of agents of a page of the list.
const PAGE_AGENTS: u64 = 100;
/// Maximum number of bytes of a message, an answer, or an input of a tool on a page.
const MAX_TEXT_BYTES: u64 = 4 << 10;
/// The events after which the page of an agent may have changed, and the live ones that it shows at once.
const KINDS: &str = "agent:start,agent:state,agent:message,agent:usage,agent:inbox,agent:event,agent:complete,agent:error,\
    agent:tool:start,agent:tool:permission,agent:tool:decision,agent:tool:result,agent:tool:error,agent:text,agent:retry,\
    harness:parked,harness:resumed,harness:complete,harness:migrated,\
    task:paused,task:woken,task:blocked,task:resolved,task:failed,task:complete,task:cancelled";

/// Returns the path of an agent's page.
fn agent_path(run: &str, agent: &str) -> String {
    format!("{}{AGENTS}/{}", run_path(run), escaped(agent))
}

/// Writes tokens that were read and written.
fn tokens(usage: &Value) -> String {
    let number = |name: &str| usage[name].as_u64().unwrap_or(0);
    let read = number("input") + number("cacheRead") + number("cacheWrite");
    let about = if usage["estimated"] == true { "about " } else { "" };
    format!("{about}{read} in, {} out", number("output"))
}

/// Writes a cost, as far as it is known.
fn cost(usage: &Value) -> String {
    match (usage["costUsd"].as_f64(), usage["costUnknown"] == true) {
        (Some(usd), false) => format!("{usd:.4} USD"),
        (Some(usd), true) => format!("{usd:.4} USD and an unknown part"),
        (None, _) => "unknown".to_owned(),
    }
}

/// Returns the time that an agent took. For one that is open, its time so far.
fn took(agent: &Value) -> String {
    let now = u64::try_from(Timestamp::now().as_millisecond()).unwrap_or(0);
    let began = agent["began"].as_u64().unwrap_or(now);
    let ended = agent["ended"].as_u64();
    format!("{}{}", duration(ended.unwrap_or(now).saturating_sub(began)), if ended.is_none() { " so far" } else { "" })
}

/// Lists the agents of a run.
pub(crate) async fn list(visit: Visit, Path(id): Path<String>) -> Result<Page, Failure> {
    let run = Shown::read(&visit, id).await?;
    let from = visit.query("from").and_then(|from| from.parse::<u64>().ok()).unwrap_or(0);
    let path = api_path(&run.id, &format!("{AGENTS}?limit={PAGE_AGENTS}&from={from}"));
    let all = visit.get(&path).await.map_err(|refusal| Failure::of(&visit, refusal))?;
    let (agents, next) = (items(&all, "agents"), all["next"].as_u64());
    let here = format!("{}{AGENTS}", run_path(&run.id));
    let called = format!("/console/runs{}", query(&[("parent", &run.id)]));
    let body = html! {
        @if agents.is_empty() && from > 0 { p .empty { "No agents follow." } }
        @else if agents.is_empty() { (no_agents(&run)) } @else {
            (list_table(Some("agents"), "Agents, in the order of their begins", html! {
                th { "Agent" } th { "State" } th { "Model" } th .number { "Answers" } th .number { "Tools" } th { "Tokens" } th { "Cost" } th .number { "Took" }
            }, html! { @for agent in agents { (row(&run.id, agent)) } }))
        }
        nav #pages .pages data-live aria-label="Pages of the agents" {
            @if from > 0 {
                a rel="first" href=(here) { "First" }
                a rel="prev" href={ (here) "?from=" (from.saturating_sub(PAGE_AGENTS)) } { "Earlier" }
            }
            @if let Some(next) = next { a rel="next" href={ (here) "?from=" (next) } { "Later" } }
        }
        p .faint { "Agents of called runs are on the pages of " a href=(called) { "those runs" } "." }
    };
    Ok(run.page(&visit, AGENTS, body))
}

/// Says how a run gets an agent.
fn no_agents(run: &Shown) -> Markup {
    let example = html! { p { a href="/console/manual/first-agent" { "A first agent" } } };
    match (run.view["hasAgents"] == true, has_ended(&run.view)) {
        (true, false) => empty(
            "No agent has begun.",
            html! {
                p { "A node such as " code { "agent.run" } " begins one when it runs. Then you can read its conversation here, answer its questions and write to it." }
                p { a href="/console/manual/agents" { "Agents" } }
            },
        ),
        (true, true) => empty(
            "No agent had begun when the run ended.",
            html! {
                p { a href={ (run_path(&run.id)) "/list" } { "The tasks of the run" } }
            },
        ),
        (false, _) => empty("The flow of this run has no agents.", example),
    }
}

fn row(run: &str, agent: &Value) -> Markup {
    let task = text(agent, "task");
    let name = Some(text(agent, "agent")).filter(|name| !name.is_empty());
    html! {
        tr {
            td { a .id href=(agent_path(run, text(agent, "agentRunId"))) { (task) }
                @if let Some(name) = name { " " span .faint { (name) } }
                @if agent["attempt"].as_u64().is_some_and(|attempt| attempt > 1) { span .faint { " attempt " (agent["attempt"]) } } }
            td { (state(text(agent, "status"))) }
            td { (text(agent, "model")) }
            td .number { (agent["modelCalls"].as_u64().unwrap_or(0)) }
            td .number { (agent["toolCalls"].as_u64().unwrap_or(0)) }
            td { (tokens(&agent["usage"])) }
            td { (cost(&agent["usage"])) }
            td .number { (took(agent)) }
        }
    }
}

/// Shows the conversation with an agent, with forms to write to it and to close it.
pub(crate) async fn show(visit: Visit, Path((id, agent)): Path<(String, String)>) -> Result<Page, Failure> {
    let mut run = Shown::read(&visit, id).await?;
    let number = |name: &str| visit.query(name).and_then(|number| number.parse::<u64>().ok());
    let (from, before) = (number("from"), number("before"));
    // Without a place, the page has the latest entries, and follows the agent.
    let is_latest = from.is_none() && before.is_none();
    let end = match (from, before) {
        (Some(from), _) => format!("from={from}"),
        (None, before) => format!("before={}", before.unwrap_or(u64::MAX)),
    };
    let path = api_path(&run.id, &format!("{AGENTS}/{}", escaped(&agent)));
    let mut page = visit.get(&format!("{path}?{end}&limit={PAGE_ENTRIES}&preview={MAX_TEXT_BYTES}")).await;
    // Answers that ask for hundreds of calls can be more than a page reads.
    if page.as_ref().is_err_and(|refusal| refusal.code == "too_large") {
        page = visit.get(&format!("{path}?{end}&limit=1&preview=256")).await;
    }
    let page = page.map_err(|refusal| Failure::of(&visit, refusal))?;
    let (about, entries) = (&page["agent"], items(&page, "entries"));
    let task = text(about, "task").to_owned();
    let here = agent_path(&run.id, &agent);
    // The waits of this agent are shown in place.
    let calls = format!("{task}#");
    let is_own = |wait: &Value| {
        let address = text(wait, "address");
        address == task || address.starts_with(&calls) || (wait["kind"] == "message" && wait["agentRunId"] == agent)
    };
    let (own, others): (Vec<_>, Vec<_>) = std::mem::take(&mut run.waits).into_iter().partition(is_own);
    run.waits = others;
    let gates: Vec<_> = entries.iter().flat_map(|entry| items(entry, "tools")).map(|tool| text(tool, "gate")).collect();
    let (in_place, rest): (Vec<_>, Vec<_>) = own
        .into_iter()
        .filter(|wait| wait["kind"] != "message")
        .partition(|wait| gates.contains(&text(wait, "address")));
    let has_beginning = entries.first().is_none_or(|first| first["number"] == 0);
    let input = match has_beginning {
        true => first_input(&visit, &run.id, about).await,
        false => None,
    };
    let card = |address: &str| {
        let asked = in_place.iter().find(|wait| text(wait, "address") == address);
        asked.map(|asked| wait(&run.id, asked, &here))
    };
    let parts = html! {
        div #agent data-live { (heading(&run.id, about)) }
        @if let Some(previous) = page["previous"].as_u64() {
            nav .pages aria-label="Earlier entries" { a rel="prev" href={ (here) "?before=" (previous) } { "Earlier" } }
        }
        ol #talk .talk data-entries {
            @if has_beginning { (beginning(&run.id, &task, input.as_ref())) }
            @for each in entries { (entry(&run.id, each, &card)) }
        }
        @if let Some(next) = page["next"].as_u64() {
            nav .pages aria-label="Later entries" { a rel="next" href={ (here) "?from=" (next) } { "Later" } a rel="last" href=(here) { "Latest" } }
        }
        @if is_latest {
            div #speech hidden data-speech=(agent) { h3 { "The model writes…" } p .speech {} }
        }
        div #waits data-live { @for each in &rest { (wait(&run.id, each, &here)) } }
        div #write data-live { (controls(&run, about, &agent)) }
        // It stays while the form is shown anew, so that a message that is sent twice counts once.
        input type="hidden" autocomplete="off" form="message" name="message" value=(once::new_id());
        p { a href={ (run_path(&run.id)) (AGENTS) } { "All agents of the run" } " · " a href=(present_task_path(&run.id, &task)) { "The task" } }
    };
    let shown = run.page_of(&visit, AGENTS, &format!("&preview=65536&type={KINDS}"), parts);
    Ok(if is_latest { shown } else { shown.fixed() })
}

/// Reads the input of the attempt that has begun an agent. Returns `None` if it cannot be shown here: the page of the
/// task says why.
async fn first_input(visit: &Visit, run: &str, about: &Value) -> Option<Value> {
    let attempt = about["attempt"].as_u64()?;
    // Each resumption of an attempt is listed, so only the place of the first one is known.
    let limit = if attempt == 1 { 1 } else { 20 };
    let path = format!("/tasks/{}?limit={limit}", escaped(text(about, "task")));
    let detail = visit.get(&api_path(run, &path)).await.ok()?;
    let found = items(&detail, "attempts").iter().find(|each| each["attempt"] == attempt && !each["input"].is_null());
    found.map(|found| found["input"].clone())
}

/// Shows the state and the use of an agent.
fn heading(run: &str, agent: &Value) -> Markup {
    let task = text(agent, "task");
    let usage = &agent["usage"];
    html! {
        h2 { a href=(present_task_path(run, task)) { (task) } @if let Some(name) = agent["agent"].as_str() { " " span .faint { (name) } } }
        div .row {
            (state(text(agent, "status")))
            @if agent["closing"] == true { span .faint { "was asked to finish" } }
            @if let Some(model) = agent["model"].as_str() { span { (model) @if let Some(provider) = agent["provider"].as_str() { span .faint { " of " (provider) } } } }
            span .faint { "began " (time(&agent["began"])) }
            span .faint { "took " (took(agent)) }
            span { (count(agent["modelCalls"].as_u64().unwrap_or(0), "answer")) ", " (count(agent["toolCalls"].as_u64().unwrap_or(0), "call")) " of tools" }
            span { "Tokens " (tokens(usage)) }
            span { "Cost " (cost(usage)) }
            @if let Some(stop) = agent["stopReason"].as_str() { span .faint { "ended: " (stop.replace('_', " ")) } }
        }
        @if agent["error"].is_object() {
            p .notice .bad { strong { (cut(text(&agent["error"], "message"), 2_000).0) } " " code { (text(&agent["error"], "code")) } }
        }
    }
}

/// Shows the forms to write to an agent and to close it, each with its command line.
fn controls(run: &Shown, about: &Value, agent: &str) -> Markup {
    let path = agent_path(&run.id, agent);
    let to = format!("send {} 'TEXT' --to {}", quoted(&run.id), quoted(agent));
    let to_close = format!("send {} --to {} --close", quoted(&run.id), quoted(agent));
    let has_ended = !about["ended"].is_null() || has_ended(&run.view);
    html! {
        @if has_ended { p .faint { "The agent has ended." } }
        @else if about["closing"] == true { p .faint { "The agent was asked to finish, and takes no more messages." } }
        @else if about["hasInbox"] != true { p .faint { "This agent takes no messages." } }
        @else if !run.may("run:control") {
            p .notice { "Your token lacks the scope " code { "run:control" } ", so it cannot write to this agent." }
        } @else {
            form #message method="post" action={ (path) "/send" } {
                div .field { label for="text" { "Message to the agent" } textarea #text name="text" rows="3" required {}
                    p .hint { "The agent reads it before its next answer." } }
                button .primary { "Send" }
            }
            (command(&to))
            details .control {
                summary { "Close…" }
                form method="post" action={ (path) "/close" } {
                    p { "The agent finishes its answer and ends. The run goes on." }
                    button { "Close the agent" }
                }
                (command(&to_close))
            }
        }
    }
}

/// Sends a message to an agent.
pub(crate) async fn send(
    visit: Visit,
    Path((run, agent)): Path<(String, String)>,
    form: Form,
) -> Result<Response, Failure> {
    let fails = |refusal| Failure::of(&visit, refusal);
    let written = form.text("text").unwrap_or_default();
    if written.trim().is_empty() {
        visit.get(KNOWN).await.map_err(fails)?;
        return Err(fails(Refusal::new(
            StatusCode::BAD_REQUEST,
            "bad_request",
            "the message was not sent, because it is empty",
        )));
    }
    let mut body = json!({ "content": written });
    if let Some(id) = form.text("message").filter(|id| !id.is_empty()) {
        // A browser that goes back shows the id of an earlier message, and another text is another message.
        body["messageId"] = format!("{id}-{}", &blake3::hash(written.as_bytes()).to_hex()[..16]).into();
    }
    let path = api_path(&run, &format!("{AGENTS}/{}/send", escaped(&agent)));
    visit.post(&path, &body).await.map_err(fails)?;
    Ok(Redirect::to(&format!("{}#write", agent_path(&run, &agent))).into_response())
}

/// Asks an agent to finish.
pub(crate) async fn close(
    visit: Visit,
    Path((run, agent)): Path<(String, String)>,
    _: Form,
) -> Result<Response, Failure> {
    let path = api_path(&run, &format!("{AGENTS}/{}/close", escaped(&agent)));
    visit.post(&path, &json!({})).await.map_err(|refusal| Failure::of(&visit, refusal))?;
    Ok(Redirect::to(&agent_path(&run, &agent)).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_and_cost_say_how_far_they_are_known() {
        let table = [
            (
                json!({ "input": 5, "cacheRead": 2, "output": 7, "estimated": true, "costUnknown": true }),
                "about 7 in, 7 out",
                "unknown",
            ),
            (json!({ "input": 5, "output": 7, "costUsd": 0.25 }), "5 in, 7 out", "0.2500 USD"),
            (json!({ "costUsd": 0.5, "costUnknown": true }), "0 in, 0 out", "0.5000 USD and an unknown part"),
            (json!(null), "0 in, 0 out", "unknown"),
        ];
        for (usage, read, paid) in table {
            assert_eq!((&*tokens(&usage), &*cost(&usage)), (read, paid), "{usage}");
        }
    }
}
