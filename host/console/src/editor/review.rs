//! The changes that a person confirms before they are stored: the difference of the texts, and what each node may
//! reach.

use std::collections::BTreeSet;

use axum::{
    http::StatusCode,
    response::{IntoResponse, Redirect, Response},
};
use maud::{Markup, html};
use serde_json::{Value, json};

use super::{Editor, Outcome, beside::Beside, findings::unless_forbidden, written::Written};
use crate::{
    diff::diff,
    flows::page_path,
    form::exact,
    frame::Failure,
    parts::{command, count, cut, list, text},
    sent::Form,
    visit::escaped,
};

/// Maximum number of nodes whose reach a page lists.
const MAX_NODES: usize = 100;
/// Maximum number of bytes of a grant on the page.
const MAX_GRANT_BYTES: usize = 400;
/// Says that an action has stored nothing.
const NOTHING: &str = "Nothing was stored. Your text is below.";

/// Shows what storing the text would change, with the button that stores it.
pub(super) async fn show(editor: &mut Editor) -> Result<Outcome, Failure> {
    let own = json!({ "flow": editor.written.named_text(), "files": editor.beside.for_checks() });
    let about = match editor.visit.post("/v1/inspect", &own).await {
        Ok(about) => about.body,
        Err(refusal) => return unless_forbidden(editor, refusal, NOTHING),
    };
    let name = text(&about, "name");
    let stored = match editor.visit.get(&format!("/v1/flows/{}", escaped(name))).await {
        Ok(stored) => Some(stored),
        Err(refusal) if refusal.code == "flow_not_found" => None,
        Err(refusal) => return unless_forbidden(editor, refusal, NOTHING),
    };
    let newest = stored.as_ref().and_then(|stored| stored["version"].as_u64()).unwrap_or(0);
    if newest != expected(editor, name) {
        return Ok(conflict(editor, name, newest));
    }
    let old = match &stored {
        Some(stored) => Some(Written::stored(&editor.visit, name, text(stored, "text")).await),
        None => None,
    };
    let before = match &stored {
        // Files of any size can be compared, because they are not shown whole.
        Some(_) => match Beside::stored(&editor.visit, name, newest, usize::MAX).await {
            Ok(before) => before.ok(),
            Err(refusal) => return unless_forbidden(editor, refusal, NOTHING),
        },
        None => None,
    };
    let is_same = before.as_ref().is_none_or(|before| editor.beside.is_same(before, name));
    if is_same && old.as_ref().is_some_and(|old| old.text == editor.written.text) {
        let shown = html! { p .notice { "The text is that of version " (newest) ". There is nothing to store." } (editor.beside.changes(before.as_ref(), name).await) };
        return Ok(Outcome::new(StatusCode::OK, shown));
    }
    let files = editor.beside.changes(before.as_ref(), name).await;
    let reach = reaches(editor, &own).await;
    let before = match &old {
        Some(_) => Some(reaches(editor, &json!({ "flow": name, "version": newest })).await),
        None => None,
    };
    let changes = match &old {
        Some(old) => Some(diff(old.text.clone(), editor.written.text.clone()).await),
        None => None,
    };
    let shown = html! {
        section .card {
            h2 { "Changes to store" }
            @match &changes {
                Some(changes) => (changes),
                None => p { "The flow " code { (name) } " is new, with " (count(editor.written.text.lines().count() as u64, "line")) "." }
            }
            (files)
            h3 { "Reach of the nodes" }
            @if let Some(Err(why)) = &before {
                p .cut { "New rows cannot be marked, because the reach of version " (newest) " is unknown: " (why) }
            }
            @match &reach {
                Ok(reach) => (reached(reach, before.as_ref().and_then(|before| before.as_deref().ok()))),
                Err(why) => p .cut { "It cannot be shown: " (why) }
            }
            input type="hidden" form="editor" name="reviewed" value=(editor.digest());
            input type="hidden" form="editor" name="against" value=(newest);
            input type="hidden" form="editor" name="as" value=(exact(name));
            div .buttons { button .primary form="editor" name="do" value="store" { "Store as version " (newest + 1) " of " (name) } }
            @match stored.as_ref().map(|stored| text(stored, "source")) {
                None => (command("flows create FILE")),
                Some("store") => (command("flows push FILE")),
                Some(_) => p .command { span .faint { "The same in a terminal: change the file of " (name) " in the folder of the server's flows." } }
            }
        }
    };
    Ok(Outcome::new(StatusCode::OK, shown))
}

/// Stores the text that was reviewed, and opens the page of its flow. A text that was changed after its review is
/// reviewed again.
pub(super) async fn store(editor: &mut Editor, form: &Form) -> Result<Result<Response, Outcome>, Failure> {
    let against = form.text("against").and_then(|version| version.parse::<u64>().ok());
    let (Some(against), true) = (against, form.text("reviewed") == Some(&editor.digest())) else {
        return show(editor).await.map(Err);
    };
    let mut body = json!({ "flow": editor.written.flow(), "ifVersion": against });
    if let Some(files) = editor.beside.to_store(form.text("as").unwrap_or_default()) {
        body["files"] = files;
    }
    match editor.visit.post("/v1/flows", &body).await {
        Ok(stored) => {
            let page = page_path(text(&stored.body, "name"));
            // The script of the page removes the text that the browser has kept.
            let kept = if editor.draft.is_empty() { String::new() } else { format!("#stored={}", editor.draft) };
            Ok(Ok(Redirect::to(&format!("{page}{kept}")).into_response()))
        }
        Err(refusal) if refusal.code == "version_conflict" => {
            let newest = refusal.details["version"].as_u64().unwrap_or(0);
            let name = form.text("as").map(str::to_owned).or_else(|| editor.name.clone()).unwrap_or_default();
            Ok(Err(conflict(editor, &name, newest)))
        }
        Err(refusal) => unless_forbidden(editor, refusal, NOTHING).map(Err),
    }
}

/// Returns the version of a flow that the person has seen.
fn expected(editor: &Editor, name: &str) -> u64 {
    if editor.name.as_deref() == Some(name) { editor.version } else { 0 }
}

/// Says that another version is the newest one. The next review of the same flow compares with it.
fn conflict(editor: &mut Editor, name: &str, newest: u64) -> Outcome {
    let seen = expected(editor, name);
    let is_own = editor.name.as_deref() == Some(name);
    let shown = html! {
        div .notice .bad role="alert" {
            p { (NOTHING) }
            @if !is_own {
                p { "A flow with the name " code { (name) } " is stored already, in version " (newest) ". Choose another name in the text, or "
                    a href={ (page_path(name)) "/edit" } { "edit that flow" } "." }
            } @else if newest == 0 {
                p { "The flow was removed after you opened version " (seen) ". Save stores your text as a new flow." }
            } @else {
                p { "Version " (newest) " was stored after you opened version " (seen) ": "
                    a href={ (page_path(name)) "/diff?from=" (seen) "&to=" (newest) } { "what it changed" } "." }
                p { "Take over those changes first. Save then shows the difference between version " (newest) " and your text." }
            }
        }
    };
    if is_own {
        editor.version = newest;
    }
    Outcome::new(StatusCode::CONFLICT, shown)
}

/// Returns the nodes of a flow with their reach, or the reason why it is unknown.
async fn reaches(editor: &Editor, flow: &Value) -> Result<Vec<Value>, String> {
    let explained = editor.visit.post("/v1/explain", flow).await.map_err(|refusal| refusal.message)?;
    Ok(list(&explained.body, "nodes").to_vec())
}

/// Lists the nodes that reach something. With the nodes of the stored version, it marks new rows, and lists them whole
/// and first.
fn reached(nodes: &[Value], before: Option<&[Value]>) -> Markup {
    let of = |nodes: &[Value]| -> Vec<(String, String, String)> {
        let rows = |node: &Value| {
            let (id, kind) = (text(node, "id").to_owned(), text(node, "type").to_owned());
            list(node, "reaches").iter().map(|one| (id.clone(), kind.clone(), sentence(one))).collect::<Vec<_>>()
        };
        nodes.iter().flat_map(rows).collect()
    };
    let known: Option<BTreeSet<_>> = before.map(|nodes| of(nodes).into_iter().collect());
    let (new, same): (Vec<_>, Vec<_>) =
        of(nodes).into_iter().partition(|row| known.as_ref().is_some_and(|known| !known.contains(row)));
    let left_out = same.len().saturating_sub(MAX_NODES);
    let silent = nodes.iter().filter(|node| list(node, "reaches").is_empty()).count();
    html! {
        ul .plain {
            @for (id, kind, sentence) in &new {
                li { code { (id) } " (" (kind) "): " (sentence) " " span .label { "new" } }
            }
            @for (id, kind, sentence) in same.iter().take(MAX_NODES) {
                @let (shown, whole) = cut(sentence, MAX_GRANT_BYTES);
                li { code { (id) } " (" (kind) "): " (shown) @if whole.is_some() { "…" } }
            }
        }
        @if left_out > 0 { p .cut { (left_out) " more are not listed: " code { "flowcell explain FILE" } } }
        p .faint { "Nodes that reach nothing outside of the flow: " (silent) }
    }
}

/// Names a capability that a node reaches, and its grant.
fn sentence(reached: &Value) -> String {
    let grant = match (&reached["grant"], reached["needsGrant"] == true) {
        (Value::Null, true) => "no grant, so it is denied".to_owned(),
        (Value::Null, false) => "needs no grant".to_owned(),
        (grant, _) => grant.to_string(),
    };
    let reason = reached["reason"].as_str().map(|reason| format!(", because {reason}")).unwrap_or_default();
    format!("{} {grant}{reason}", text(reached, "capability"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wider_reach_is_marked_as_new() {
        let node = |grant: Value| json!({ "id": "get", "type": "http.request@1", "reaches": [{ "capability": "http", "needsGrant": true, "grant": grant }] });
        let quiet = json!({ "id": "q", "type": "t", "reaches": [] });
        let shown = |new: &[Value], old: Option<&[Value]>| reached(new, old).into_string();
        let (a, b) = ([node(json!(["https://a.test"])), quiet], [node(json!(["https://b.test"]))]);
        let wider = shown(&a, Some(&b));
        assert!(
            wider.contains(">new<") && wider.contains("https://a.test") && wider.contains("of the flow: 1<"),
            "{wider}"
        );
        assert!(!shown(&a, Some(&a)).contains(">new<") && !shown(&a, None).contains(">new<"));
        assert!(shown(&[node(Value::Null)], None).contains("no grant, so it is denied"));
        let long = "x".repeat(2_000);
        assert!(shown(&[node(json!([long]))], None).len() < 1_000);
    }
}
