//! The picture of a flow, with the states of a run's tasks.

use std::{collections::HashMap, fmt::Write};

use maud::{Markup, html};
use serde_json::Value;

use crate::parts::{glyph, list, text, tone};

/// Maximum number of nodes in a picture. More of them would make a page of more than 60 kB.
pub(crate) const MAX_NODES: usize = 120;

/// A task of a run.
pub(crate) struct Task<'a> {
    pub(crate) address: String,
    /// The number of bodies around it.
    pub(crate) depth: usize,
    /// The id of the node that owns the body around it.
    owner: Option<&'a str>,
    /// The task in the answer of the API.
    pub(crate) twig: &'a Value,
}

impl Task<'_> {
    pub(crate) fn status(&self) -> &str {
        text(self.twig, "status")
    }
}

/// The tasks of each node, by the id of its owner and its own.
type Nodes<'a> = HashMap<(Option<&'a str>, &'a str), Vec<&'a Task<'a>>>;

/// The tasks of a run, each before the tasks of its passes.
pub(crate) struct Tasks<'a>(Vec<Task<'a>>);

impl<'a> Tasks<'a> {
    /// Returns the tasks in the answer of the API to `…/tree`.
    pub(crate) fn of(tree: &'a Value) -> Tasks<'a> {
        let mut tasks = Vec::new();
        add(list(tree, "tasks"), "", None, 0, &mut tasks);
        Tasks(tasks)
    }

    pub(crate) fn all(&self) -> &[Task<'a>] {
        &self.0
    }

    /// Returns the tasks of each node, by the id of its owner and its own.
    fn by_node(&self) -> Nodes<'_> {
        let mut nodes = Nodes::new();
        for task in &self.0 {
            nodes.entry((task.owner, text(task.twig, "id"))).or_default().push(task);
        }
        nodes
    }
}

fn add<'a>(twigs: &'a [Value], prefix: &str, owner: Option<&'a str>, depth: usize, tasks: &mut Vec<Task<'a>>) {
    for twig in twigs {
        let id = text(twig, "id");
        let address = format!("{prefix}{id}");
        tasks.push(Task { address: address.clone(), depth, owner, twig });
        for pass in list(twig, "passes") {
            let inside = format!("{address}[{}].", pass["index"].as_u64().unwrap_or(0));
            add(list(pass, "tasks"), &inside, Some(id), depth + 1, tasks);
        }
    }
}

/// Returns the tasks of a node of a drawing.
fn tasks_of<'a>(nodes: &'a Nodes<'a>, node: &'a Value) -> &'a [&'a Task<'a>] {
    let id = text(node, "id");
    let owned = nodes.get(&(node["owner"].as_str(), id));
    // The passes of a cycle of edges stand below the entry of the cycle, which owns no body.
    let found = owned.or_else(|| nodes.iter().find(|((_, each), _)| *each == id).map(|(_, tasks)| tasks));
    found.map_or(&[], Vec::as_slice)
}

/// The tasks of a run, and the page of the task at an address.
pub(crate) type Run<'a> = (&'a Tasks<'a>, &'a dyn Fn(&str) -> String);

/// Draws a flow from its layout. With a run, each node has its state, and is a link to its task.
pub(crate) fn picture(drawing: &Value, run: Option<Run<'_>>) -> Markup {
    let (nodes, edges) = (list(drawing, "nodes"), list(drawing, "edges"));
    if nodes.len() > MAX_NODES {
        return html! {
            p .notice { "The picture has " (nodes.len()) " nodes; a page shows at most " (MAX_NODES) ". "
                code { "flowcell graph FILE --format svg" } " draws all of them." }
        };
    }
    let (width, height) = (number(drawing, "width"), number(drawing, "height"));
    let by_node = run.map(|(tasks, _)| tasks.by_node()).unwrap_or_default();
    html! {
        div .picture tabindex="0" role="region" aria-label="Picture of the flow" {
            svg #picture width=(width) height=(height) viewBox={ "0 0 " (width) " " (height) } role="group" aria-label={ "The flow " (text(drawing, "name")) } {
                defs { marker #tip markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto" markerUnits="userSpaceOnUse" { path .tip d="M0,0 L8,4 L0,8 z" {} } }
                @for node in nodes {
                    @let tasks = tasks_of(&by_node, node);
                    @match (run, tasks) {
                        (Some((_, link)), [one]) => a href=(link(&one.address)) { (draw_node(node, tasks, true)) },
                        _ => (draw_node(node, tasks, run.is_some()))
                    }
                }
                @for edge in edges { path class={ "edge" (edge_class(edge)) } d=(curve(list(edge, "points"))) marker-end="url(#tip)" {} }
                @for edge in edges {
                    @let label = if edge["on"] == "undo" { "undo" } else { text(&edge["label"], "text") };
                    @if let (false, Some(at)) = (label.is_empty(), label_place(edge)) { text .label x=(at.0) y=(at.1) { (label) } }
                }
            }
        }
    }
}

fn number(value: &Value, key: &str) -> i64 {
    value[key].as_i64().unwrap_or(0)
}

fn label_place(edge: &Value) -> Option<(i64, i64)> {
    let label = &edge["label"];
    if let (Some(x), Some(y)) = (label["x"].as_i64(), label["y"].as_i64()) {
        return Some((x, y));
    }
    let (first, last) = (list(edge, "points").first()?, list(edge, "points").last()?);
    let middle = |index: usize| Some((first[index].as_i64()? + last[index].as_i64()?) / 2);
    Some((middle(0)?, middle(1)? - 6))
}

fn edge_class(edge: &Value) -> &'static str {
    match (text(edge, "on"), edge["goesBack"] == true) {
        ("error", _) => " on-error",
        ("end", _) => " on-end",
        ("undo", _) => " on-undo",
        (_, true) => " back",
        _ => "",
    }
}

/// Draws the box of a node. The box of a node with a body is drawn before the boxes in it, and has its name at the top.
fn draw_node(node: &Value, tasks: &[&Task<'_>], of_run: bool) -> Markup {
    let [x, y, width, height] = ["x", "y", "width", "height"].map(|key| number(node, key));
    let (id, kind) = (text(node, "id"), text(node, "type"));
    let status = match tasks {
        [] => "pending",
        [one] => one.status(),
        many => worst(many),
    };
    let below = if tasks.len() > 1 { tally(tasks) } else { kind.to_owned() };
    let class = if of_run { format!("node {}", tone(status)) } else { "node".to_owned() };
    let is_frame = height > 60;
    html! {
        g class={ (class) @if is_frame { " frame" } @if status == "pending" && of_run { " pending" } } {
            title { (id) ": " (kind) @if of_run { ", " (status.replace('_', " ")) } @if tasks.len() > 1 { " (" (below) ")" } }
            rect x=(x) y=(y) width=(width) height=(height) rx="6" {}
            @if of_run && status != "pending" {
                svg x=(x + 8) y=(y + 5) width="15" height="15" { (glyph(status)) }
            }
            text .name x=(x + width / 2) y=(y + 19) { (fitting(id, (width - if of_run { 48 } else { 16 }) / 8)) }
            text .kind x=(x + width / 2) y=(y + 36) { (fitting(&below, (width - 16) / 6)) }
        }
    }
}

/// Returns the state that matters most.
fn worst<'a>(tasks: &[&'a Task<'_>]) -> &'a str {
    const ORDER: [&str; 9] =
        ["blocked", "failed", "waiting", "running", "retrying", "ready", "cancelled", "succeeded", "skipped"];
    let rank = |task: &&&'a Task<'_>| ORDER.iter().position(|state| *state == task.status()).unwrap_or(ORDER.len());
    tasks.iter().min_by_key(rank).map_or("pending", |task| task.status())
}

/// Writes the number of tasks in each state: `7 failed, 990 succeeded`.
fn tally(tasks: &[&Task<'_>]) -> String {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for task in tasks {
        match counts.iter_mut().find(|(status, _)| *status == task.status()) {
            Some((_, count)) => *count += 1,
            None => counts.push((task.status(), 1)),
        }
    }
    counts.sort_by_key(|(status, _)| *status != "failed");
    let parts: Vec<_> = counts.iter().map(|(status, count)| format!("{count} {status}")).collect();
    parts.join(", ")
}

/// Returns a text with at most this many characters. The title of the box has all of it.
fn fitting(text: &str, most: i64) -> String {
    let most = usize::try_from(most).unwrap_or(1).max(1);
    match text.chars().count() <= most {
        true => text.to_owned(),
        false => text.chars().take(most - 1).chain(['…']).collect(),
    }
}

/// Returns the path through points: straight lines, and between two columns a curve that begins and ends upright.
fn curve(points: &[Value]) -> String {
    let mut path = String::new();
    let mut last = None;
    for point in points {
        let (x, y) = (point[0].as_i64().unwrap_or(0), point[1].as_i64().unwrap_or(0));
        // Writing to a string never fails.
        let _ = match last {
            None => write!(path, "M{x},{y}"),
            Some((left, top)) if left == x || top == y => write!(path, "L{x},{y}"),
            Some((left, top)) => write!(path, "C{left},{middle} {x},{middle} {x},{y}", middle = (top + y) / 2),
        };
        last = Some((x, y));
    }
    path
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tasks_in_passes_have_addresses_and_their_node_counts_them() {
        let pass = |index: u64, status: &str| json!({ "index": index, "tasks": [{ "id": "get", "status": status }] });
        let tree = json!({ "tasks": [
            { "id": "each", "status": "failed", "passes": [pass(0, "succeeded"), pass(1, "failed"), pass(2, "succeeded")] },
            { "id": "end", "status": "skipped" },
        ] });
        let tasks = Tasks::of(&tree);
        let addresses: Vec<_> = tasks.all().iter().map(|task| task.address.as_str()).collect();
        assert_eq!(addresses, ["each", "each[0].get", "each[1].get", "each[2].get", "end"]);
        let by_node = tasks.by_node();
        let inside = &by_node[&(Some("each"), "get")];
        assert_eq!((worst(inside), tally(inside)), ("failed", "1 failed, 2 succeeded".to_owned()));
    }

    #[test]
    fn a_long_name_fits_into_its_box() {
        assert_eq!(fitting("short", 5), "short");
        assert_eq!(fitting("too long", 4), "too…");
        assert_eq!(fitting("ab", -3), "…");
    }

    #[test]
    fn a_picture_of_too_many_nodes_says_so() {
        let drawing = json!({ "nodes": vec![json!({ "id": "n" }); MAX_NODES + 1], "edges": [] });
        let shown = picture(&drawing, None).into_string();
        assert!(shown.contains("has 121 nodes") && !shown.contains("<svg"), "{shown}");
    }
}
