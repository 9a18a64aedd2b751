//! An open question or another wait of a run, and its answer.

use axum::{
    extract::Path,
    response::{IntoResponse, Redirect, Response},
};
use maud::{Markup, html};
use serde_json::{Value, json};

use crate::{
    form::exact,
    frame::Failure,
    parts::{block, coded, command, glyph, list, positionals, quoted, size, text},
    runs::run_path,
    sent::Form,
    visit::{Visit, escaped},
};

/// Maximum number of bytes of a prompt that a page shows.
pub(crate) const MAX_PROMPT_BYTES: usize = 8 << 10;

/// Shows one wait of a run, with a form for the answer if it is a question. `back` is the page that follows the answer.
pub(crate) fn wait(run: &str, wait: &Value, back: &str) -> Markup {
    let address = text(wait, "address");
    // Without an address the whole run waits.
    let (place, shown) = match address {
        "" => (run_path(run), run),
        address => (format!("{}/tasks/{}", run_path(run), escaped(address)), address),
    };
    html! {
        section .wait {
            @match text(wait, "kind") {
                "gate" | "approval" => (question(run, wait, back)),
                "more" => p { (wait["leftOut"].as_u64().unwrap_or(0)) " more waits are not shown: " code { "flowcell runs show " (quoted(run)) } },
                kind => {
                    (heading(&place, shown, back))
                    @match kind {
                        "event" => {
                            p { "Waits for the event " code { (text(wait, "event")) } "." }
                            (command(&format!("emit {} {} '{{}}'", quoted(run), quoted(text(wait, "event")))))
                        }
                        "message" => {
                            p { "An agent waits for a message." }
                            @let agent = text(wait, "agentRunId");
                            // The agents of a called run are on the pages of that run.
                            @if !agent.is_empty() && !address.contains('/') {
                                p { a href={ (run_path(run)) "/agents/" (escaped(agent)) } { "Write to it" } }
                            }
                            (command(&format!("send {} 'TEXT' --to {}", quoted(run), quoted(address))))
                        }
                        _ => {
                            p { "Needs a decision: " (text(wait, "message")) }
                            @if address.is_empty() { (command(&format!("runs resume {}", quoted(run)))) }
                            @else { (decision(run, wait, back)) }
                        }
                    }
                }
            }
        }
    }
}

/// Shows the form that decides a blocked task.
fn decision(run: &str, wait: &Value, back: &str) -> Markup {
    let address = text(wait, "address");
    let [how, value] = ["how", "value"].map(|field| format!("{field}-{run}-{address}"));
    html! {
        @if wait["mayDecide"] == false {
            p .notice { "Your token lacks the scope " code { "run:control" } ", so it cannot decide this task." }
        } @else {
            form .answer method="post" action={ (run_path(run)) "/tasks/" (escaped(address)) "/resolve" } {
                input type="hidden" name="back" value=(back);
                div .field { label for=(how) { "Decision" } select id=(how) name="how" {
                    option value="repeat" { "It did not happen: do it again" }
                    option value="reply" { "It happened, with the reply below (JSON)" }
                    option value="output" { "The task is done, with the output below (JSON)" }
                    option value="fail" { "The task fails, for the reason below" }
                } }
                div .field { label for=(value) { "Reply, output or reason" } textarea id=(value) name="value" rows="2" spellcheck="false" {} }
                button { "Decide" }
            }
        }
        (command(&format!("runs resolve --repeat {}", positionals(&[run, address]))))
    }
}

/// Shows the place of a wait. On the page of its run it is a heading below the title, elsewhere below that of the run.
fn heading(place: &str, shown: &str, back: &str) -> Markup {
    let link = html! { (glyph("waiting")) " " a href=(place) { (shown) } };
    html! { @if back.is_empty() { h2 .place { (link) } } @else { h3 .place { (link) } } }
}

fn question(run: &str, wait: &Value, back: &str) -> Markup {
    let address = text(wait, "address");
    let whole = format!("/v1/runs/{}/gates/{}", escaped(run), escaped(address));
    let answer = format!("/console/runs/{}/gates/{}", escaped(run), escaped(address));
    let field = format!("answer-{run}-{address}");
    let choices = list(wait, "choices");
    html! {
        (heading(&format!("{}/tasks/{}", run_path(run), escaped(address)), address, back))
        @if text(wait, "prompt").len() > MAX_PROMPT_BYTES {
            (block(text(wait, "prompt"), MAX_PROMPT_BYTES, &whole))
        } @else { p .prompt { (coded(text(wait, "prompt"))) } }
        @if let Some(arguments) = wait.get("arguments") { (crate::parts::json(arguments, &whole)) }
        @if let Some(bytes) = wait["argumentsBytes"].as_u64() {
            p .cut { "The arguments have " (size(bytes)) ": " a href=(whole) { code { (whole) } } }
        }
        @if wait["mayDecide"] == false {
            p .notice { "Your token lacks the scope " code { "gate:decide" } ", so it cannot answer this question." }
        } @else { form .answer method="post" action=(answer) {
            input type="hidden" name="back" value=(back);
            @if let Some(digest) = wait["digest"].as_str() { input type="hidden" name="digest" value=(digest); }
            @if let Some(attempt) = wait["attempt"].as_u64() { input type="hidden" name="attempt" value=(attempt); }
            (answer_fields(&field, wait))
        } }
        (command(&format!("answer {}", positionals(&[run, address, choices.first().map_or("TEXT", value_of)]))))
    }
}

/// Shows the fields and buttons of the form that answers a question. `field` is the id of the field for a text.
pub(crate) fn answer_fields(field: &str, question: &Value) -> Markup {
    let choices = list(question, "choices");
    let allows_text = question["allowText"] == true || choices.is_empty();
    html! {
        @if allows_text {
            label for=(field) { "Answer" @if !choices.is_empty() { " in your words" } }
            textarea #(field) name="text" rows="2" {}
        }
        div .buttons {
            @for choice in choices { (button(choice)) }
            @if allows_text { button name="choice" value="" { "Send the text" } }
        }
    }
}

/// Returns the answer of a form with these fields.
pub(crate) fn answer_of(form: &Form) -> Value {
    let choice = form.text("choice").filter(|choice| !choice.is_empty());
    let written = form.text("text").unwrap_or_default();
    match choice {
        Some(choice) if written.is_empty() => json!(choice),
        Some(choice) => json!({ "content": written, "choice": choice }),
        None => json!(written),
    }
}

fn value_of(choice: &Value) -> &str {
    choice.as_str().unwrap_or_else(|| text(choice, "value"))
}

fn button(choice: &Value) -> Markup {
    let label = Some(text(choice, "label")).filter(|label| !label.is_empty()).unwrap_or_else(|| value_of(choice));
    html! { button .primary name="choice" value=(exact(value_of(choice))) { (label) } }
}

/// Sends the answer of a form, for the very question that the page has shown.
pub(crate) async fn answer(
    visit: Visit,
    Path((run, gate)): Path<(String, String)>,
    form: Form,
) -> Result<Response, Failure> {
    let mut body = json!({ "answer": answer_of(&form) });
    if let Some(digest) = form.text("digest") {
        body["digest"] = digest.into();
    }
    if let Some(attempt) = form.text("attempt").and_then(|attempt| attempt.parse::<u32>().ok()) {
        body["attempt"] = attempt.into();
    }
    let path = format!("/v1/runs/{}/gates/{}/reply", escaped(&run), escaped(&gate));
    visit.post(&path, &body).await.map_err(|refusal| Failure::of(&visit, refusal))?;
    Ok(Redirect::to(&follow_up(&form, &run)).into_response())
}

/// Returns the page that follows a form about a wait: the inbox or the page of an agent, if the form is from there,
/// else the page of the run.
pub(crate) fn follow_up(form: &Form, run: &str) -> String {
    let (of_run, back) = (run_path(run), form.text("back").unwrap_or_default());
    let agent = back.strip_prefix(&of_run).and_then(|rest| rest.strip_prefix("/agents/"));
    let is_inbox = |back: &str| {
        let cursor = back.strip_prefix("/console/inbox").map(|rest| rest.strip_prefix("?cursor=").unwrap_or(rest));
        cursor.is_some_and(|cursor| cursor.bytes().all(|byte| byte.is_ascii_hexdigit()))
    };
    let is_plain = |agent: &str| agent.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.~%".contains(&byte));
    match agent.filter(|agent| is_plain(agent)) {
        Some(_) => format!("{back}#write"),
        None if is_inbox(back) => back.to_owned(),
        None => of_run,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sent::form_of;

    #[test]
    fn an_answer_is_followed_by_a_page_of_the_console() {
        let table = [
            ("", "/console/runs/a%3Ab"),
            ("/console/inbox", "/console/inbox"),
            ("/console/inbox?cursor=0aF9", "/console/inbox?cursor=0aF9"),
            ("/console/inbox?cursor=0&x=\r\n", "/console/runs/a%3Ab"),
            ("/console/inbox/../../evil", "/console/runs/a%3Ab"),
            ("//evil.test", "/console/runs/a%3Ab"),
            ("/console/runs/a%3Ab/agents/agent-7%2F", "/console/runs/a%3Ab/agents/agent-7%2F#write"),
            ("/console/runs/a%3Ab/agents/agent-7/../x", "/console/runs/a%3Ab"),
            ("/console/runs/a%3Ab/agents/x\r\nSet-Cookie: y", "/console/runs/a%3Ab"),
            ("/console/runs/other/agents/agent-7", "/console/runs/a%3Ab"),
        ];
        for (back, page) in table {
            assert_eq!(follow_up(&form_of(&[("back", back)]), "a:b"), page, "{back:?}");
        }
    }
}
