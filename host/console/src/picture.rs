//! The picture of a flow, with the states of a run's tasks. Bodies fold, and a large picture is shown in parts.

use std::{collections::BTreeSet, fmt::Write};

use flowcell_server::api::Refusal;
use maud::{Markup, html};
use serde_json::Value;

use crate::{
    parts::{bar, glyph, list, tally, text, tone, worst},
    runs::query,
    visit::{Visit, escaped},
};

/// Number of nodes above which all bodies are folded, unless the address says otherwise.
const MAX_UNFOLDED: usize = 120;
/// The view of a picture, as the address of its page has it.
pub(crate) struct View {
    /// `all`, or the ids of the nodes whose bodies are folded. `None`: the page decides.
    fold: Option<String>,
    /// With `all`: the ids of the nodes whose bodies are shown.
    open: String,
    /// The number of the part, from 0.
    part: usize,
    /// True if the page has folded all bodies, because the picture is large.
    is_large: bool,
    /// False on a page whose unsaved text a link would lose.
    has_links: bool,
    /// The members of the query that are not about the picture.
    others: Vec<(&'static str, String)>,
}

impl View {
    /// Reads the view from the address of a page. `others` are members of its query that links keep.
    pub(crate) fn of(visit: &Visit, others: Vec<(&'static str, String)>) -> View {
        let part = visit.query("part").and_then(|part| part.parse().ok()).unwrap_or(0);
        let (fold, open) = (visit.query("fold"), visit.query("open").unwrap_or_default());
        View { fold, open, part, is_large: false, has_links: true, others }
    }

    /// Returns the view of the first part, without links that fold bodies or show other parts.
    pub(crate) fn without_links() -> View {
        View { fold: None, open: String::new(), part: 0, is_large: false, has_links: false, others: Vec::new() }
    }

    /// Asks for a picture. Folds all bodies of a large one.
    pub(crate) async fn read(&mut self, visit: &Visit, of: Pictured<'_>) -> Result<Value, Refusal> {
        let first = of.ask(visit, &self.to_api()).await;
        let is_large = first.as_ref().is_ok_and(|drawing| {
            let part = &drawing["part"];
            part["nodes"].as_u64().is_some_and(|all| all > MAX_UNFOLDED as u64) && part["hasBodies"] == true
        });
        if !is_large || self.fold.is_some() {
            return first;
        }
        (self.fold, self.is_large) = (Some("all".to_owned()), true);
        of.ask(visit, &self.to_api()).await
    }

    /// Returns the query for the API.
    fn to_api(&self) -> String {
        let open = if self.folds_all() { self.open.as_str() } else { "" };
        let before = self.others.iter().find(|(name, _)| *name == "before").map_or("", |(_, before)| before);
        let (fold, part) = (self.fold.as_deref().unwrap_or_default(), self.part.to_string());
        query(&[("fold", fold), ("open", open), ("before", before), ("part", &part)])
    }

    fn folds_all(&self) -> bool {
        self.fold.as_deref() == Some("all")
    }

    /// Returns the query of the page with these members for the picture.
    fn link(&self, fold: &str, open: &str, part: usize) -> String {
        let part = if part == 0 { String::new() } else { part.to_string() };
        let others = self.others.iter().map(|(name, value)| (*name, value.as_str()));
        query(&others.chain([("fold", fold), ("open", open), ("part", &*part)]).collect::<Vec<_>>())
    }

    /// Returns the query of the page that folds the body of a node, or shows a folded one.
    fn toggled(&self, node: &str) -> String {
        let flip = |ids: &str| {
            let mut ids: BTreeSet<&str> = ids.split(',').filter(|id| !id.is_empty()).collect();
            if !ids.remove(node) {
                ids.insert(node);
            }
            ids.into_iter().collect::<Vec<_>>().join(",")
        };
        match self.fold.as_deref() {
            Some("all") => self.link("all", &flip(&self.open), 0),
            // A comma alone folds nothing, and keeps the page from deciding.
            fold => match flip(fold.unwrap_or_default()).as_str() {
                "" => self.link(",", "", 0),
                // The word `all` alone has another meaning.
                "all" => self.link("all,", "", 0),
                ids => self.link(ids, "", 0),
            },
        }
    }
}

/// The subject of a picture.
#[derive(Clone, Copy)]
pub(crate) enum Pictured<'a> {
    /// A flow: the body of the request for its picture.
    Flow(&'a Value),
    /// The run at this path of the API.
    Run(&'a str),
}

impl Pictured<'_> {
    async fn ask(self, visit: &Visit, fold: &str) -> Result<Value, Refusal> {
        match self {
            Pictured::Flow(flow) => Ok(visit.post(&format!("/v1/graph{fold}"), flow).await?.body),
            Pictured::Run(path) => visit.get(&format!("{path}/graph{fold}")).await,
        }
    }
}

/// The pages that a picture of a run links to, by the address of a task.
pub(crate) struct Links<'a> {
    /// The page of a task.
    pub(crate) task: &'a dyn Fn(&str) -> String,
    /// The list of the passes of a body of the flow itself. Without a node, the list of all tasks.
    pub(crate) passes: &'a dyn Fn(&str) -> String,
}

/// Returns the page of a node's tasks: its task, or the passes that have them.
fn page_of(node: &Value, nodes: &[Value], links: &Links<'_>) -> Option<String> {
    if let Some(task) = node["task"].as_str() {
        return Some((links.task)(task));
    }
    if !node["states"].is_object() && !node["passes"].is_object() {
        return None;
    }
    // The outermost body around the node.
    let (mut outer, mut owner) = (node["passes"].is_object().then(|| text(node, "id")), node["owner"].as_str());
    for _ in 0..nodes.len() {
        let Some(id) = owner else { break };
        outer = Some(id);
        owner = nodes.iter().find(|each| text(each, "id") == id).and_then(|each| each["owner"].as_str());
    }
    Some((links.passes)(outer.unwrap_or_default()))
}

/// Draws a flow from its layout. With the links of a run, each node has its state, and is a link to its task. `here` is the
/// path of the page.
pub(crate) fn picture(drawing: &Value, view: &View, here: &str, links: Option<&Links<'_>>) -> Markup {
    let of_part = &drawing["part"];
    let (part, parts) = (number(of_part, "number"), number(of_part, "of"));
    let (top, bottom) = (number(of_part, "top"), number(of_part, "bottom"));
    let (width, height) = (number(drawing, "width"), bottom - top);
    let (nodes, edges) = (list(drawing, "nodes"), list(drawing, "edges"));
    let (all, left_out) = (number(of_part, "nodes"), number(of_part, "edgesLeftOut"));
    let at =
        |part: i64| view.link(view.fold.as_deref().unwrap_or_default(), &view.open, usize::try_from(part).unwrap_or(0));
    html! {
        @if let Some(left_out) = drawing["tasksLeftOut"].as_u64() {
            p .cut { "The states of " (left_out) " tasks, which began last, are not in the picture." }
        }
        div .picture tabindex="0" role="region" aria-label="Picture of the flow" {
            svg #picture width=(width) height=(height) viewBox={ "0 " (top) " " (width) " " (height) } role="group" aria-label={ "The flow " (text(drawing, "name")) } {
                defs { marker #tip markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto" markerUnits="userSpaceOnUse" { path .tip d="M0,0 L8,4 L0,8 z" {} } }
                @for node in nodes {
                    @match links.and_then(|links| page_of(node, list(drawing, "nodes"), links)) {
                        Some(page) => a href=(page) data-node=(text(node, "id")) data-fresh=(fresh_key(node)) { (draw_node(node, true)) },
                        None => (draw_node(node, links.is_some()))
                    }
                }
                @for edge in edges {
                    path class={ "edge" (edge_class(edge)) } d=(curve(list(edge, "points"))) marker-end="url(#tip)" data-from=(text(edge, "from")) data-to=(text(edge, "to")) {}
                }
                @for edge in edges {
                    @let label = if edge["on"] == "undo" { "undo" } else { text(&edge["label"], "text") };
                    @if let (false, Some(at)) = (label.is_empty(), label_place(edge)) { text class={ "label" @if edge["label"].is_null() { " middle" } } x=(at.0) y=(at.1) { (label) } }
                }
                @for node in nodes.iter().filter(|node| view.has_links && node["body"] == true) { (toggle(node, view, here)) }
            }
        }
        @if parts > 1 {
            nav .pages aria-label="Parts of the picture" {
                @if view.has_links && part > 0 { a rel="prev" href={ (here) (at(part - 1)) } { "Part above" } }
                @if view.has_links && part + 1 < parts { a rel="next" href={ (here) (at(part + 1)) } { "Part below" } }
                span .faint { "Part " (part + 1) " of " (parts) ", " (nodes.len()) " of " (all) " nodes" }
            }
        }
        @if left_out > 0 {
            p .cut { (left_out) " more edges of these nodes are not drawn. " code { "flowcell graph FILE --format svg" } " draws all." }
        }
        @if view.has_links && view.is_large && list(drawing, "nodes").iter().any(|node| node["folded"].is_u64()) {
            p .faint { "The bodies of nodes are folded, because the picture is large. “+” shows one." }
        }
    }
}

/// Returns the name of a node's link, which a newer page changes in place.
fn fresh_key(node: &Value) -> String {
    format!("node {} {}", text(node, "owner"), text(node, "id"))
}

/// Draws the control that folds the body of a node, or shows it.
fn toggle(node: &Value, view: &View, here: &str) -> Markup {
    let (id, folded) = (text(node, "id"), node["folded"].as_u64());
    let (x, y) = (number(node, "x") + number(node, "width") - 26, number(node, "y") + 1);
    let label = match folded {
        Some(inside) => format!("Show the {inside} nodes in {id}"),
        None => format!("Fold {id}"),
    };
    html! {
        a .fold href={ (here) (view.toggled(id)) } aria-label=(label) {
            rect x=(x) y=(y) width="25" height="25" rx="4" {}
            path d={ "M" (x + 8) "," (y + 12) "h9" @if folded.is_some() { "m-4.5,-4.5v9" } } {}
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
fn draw_node(node: &Value, of_run: bool) -> Markup {
    let [x, y, width, height] = ["x", "y", "width", "height"].map(|key| number(node, key));
    let (id, kind) = (text(node, "id"), text(node, "type"));
    let (states, passes) = (counts(&node["states"]), counts(&node["passes"]));
    let status = worst(&states).unwrap_or("pending");
    let below = match (&states[..], &passes[..]) {
        (_, [_, ..]) => tally(&passes),
        ([] | [(_, 1)], []) => {
            node["folded"].as_u64().map_or(kind.to_owned(), |inside| format!("{kind}, {inside} inside"))
        }
        (states, []) => tally(states),
    };
    let is_frame = node["body"] == true && node["folded"].is_null();
    html! {
        g class={ "node" @if of_run { " " (tone(status)) } @if is_frame { " frame" } @if node["race"] == true { " race" }
            @if status == "pending" && of_run { " pending" } } {
            title { (id) ": " (kind) @if of_run { ", " (status.replace('_', " ")) } @if below != kind { " (" (below) ")" }
                @if node["race"] == true { ", begins with the first edge that fires" } }
            rect x=(x) y=(y) width=(width) height=(height) rx="6" {}
            @if node["race"] == true { rect .inner x=(x + 3) y=(y + 3) width=(width - 6) height=(height - 6) rx="4" {} }
            @if of_run && status != "pending" {
                svg x=(x + 8) y=(y + 5) width="15" height="15" { (glyph(status)) }
            }
            text .name x=(x + width / 2) y=(y + 19) { (fitting(id, (width - if of_run || is_frame { 56 } else { 16 }) / 8)) }
            text .kind x=(x + width / 2) y=(y + 36) { (fitting(&below, (width - 16) / 6)) }
            // In a frame the space below the name belongs to the boxes inside.
            @if !passes.is_empty() { svg x=(x + 6) y=(if is_frame { y + 1 } else { y + 39 }) width=(width - 12) height="4" { (bar(&passes)) } }
        }
    }
}

/// Returns the numbers of tasks by their states in an answer of the API.
fn counts(states: &Value) -> Vec<(&str, u64)> {
    let states = states.as_object().into_iter().flatten();
    states.map(|(state, number)| (state.as_str(), number.as_u64().unwrap_or(0))).collect()
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

/// Shows the nodes of a flow as a list, for readers that do not see the picture.
pub(crate) fn outline(drawing: &Value) -> Markup {
    let nodes = list(drawing, "nodes");
    let targets = |id: &str| {
        let from = list(drawing, "edges").iter().filter(move |edge| edge["from"] == *id);
        from.map(|edge| text(edge, "to").to_owned()).collect::<Vec<_>>().join(", ")
    };
    html! {
        @if drawing["part"]["nodes"].as_u64().is_some_and(|all| all <= MAX_UNFOLDED as u64) {
            details { summary { "The picture as a list" }
                ul .plain {
                    @for node in nodes {
                        @let next = targets(text(node, "id"));
                        li { code { (text(node, "id")) } " (" a href={ "/console/catalog/" (escaped(text(node, "type"))) } { (text(node, "type")) } ")"
                            @if let Some(owner) = node["owner"].as_str() { " in " code { (owner) } }
                            @if !next.is_empty() { ", then " code { (next) } } }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn view(fold: Option<&str>, open: &str) -> View {
        View {
            fold: fold.map(str::to_owned),
            open: open.to_owned(),
            part: 0,
            is_large: false,
            has_links: true,
            others: vec![("version", "3".to_owned())],
        }
    }

    #[test]
    fn a_long_name_fits_into_its_box() {
        assert_eq!(fitting("short", 5), "short");
        assert_eq!(fitting("too long", 4), "too…");
        assert_eq!(fitting("ab", -3), "…");
    }

    #[test]
    fn a_body_folds_and_opens_again() {
        for (fold, open, expected) in [
            (None, "", "?version=3&fold=each"),
            (Some("each"), "", "?version=3&fold=%2C"),
            (Some(","), "", "?version=3&fold=each"),
            (Some("a,each,b"), "", "?version=3&fold=a%2Cb"),
            (Some("all"), "", "?version=3&fold=all&open=each"),
            (Some("all"), "each", "?version=3&fold=all"),
            (Some("all,each"), "", "?version=3&fold=all%2C"),
        ] {
            assert_eq!(view(fold, open).toggled("each"), expected, "{fold:?} {open}");
        }
    }

    #[test]
    fn a_part_of_a_picture_links_to_its_neighbours_and_names_what_it_leaves_out() {
        let node = json!({ "id": "n", "type": "t", "x": 0, "y": 900, "width": 120, "height": 44 });
        let part = json!({ "number": 1, "of": 5, "top": 800, "bottom": 1_600, "nodes": 2_000, "hasBodies": false, "edgesLeftOut": 7 });
        let drawing =
            json!({ "name": "f", "width": 2_000, "height": 9_000, "nodes": [node], "edges": [], "part": part });
        let shown = picture(&drawing, &view(None, ""), "/here", None).into_string();
        for expected in
            ["Part 2 of 5", "1 of 2000 nodes", "part=2\"", "/here?version=3\"", "0 800 2000 800", "7 more edges"]
        {
            assert!(shown.contains(expected), "{expected}: {shown}");
        }
    }

    #[test]
    fn a_node_shows_the_state_that_matters_and_counts_its_passes() {
        let node = json!({ "id": "each", "type": "control.foreach", "x": 0, "y": 0, "width": 200, "height": 44, "body": true, "folded": 3,
            "states": { "running": 1 }, "task": "each", "passes": { "succeeded": 990, "failed": 7 } });
        let shown = draw_node(&node, true).into_string();
        assert!(shown.contains("node busy") && shown.contains("7 failed, 990 succeeded"), "{shown}");
        let inside =
            json!({ "id": "get", "type": "t", "width": 300, "height": 44, "states": { "succeeded": 2, "blocked": 1 } });
        let shown = draw_node(&inside, true).into_string();
        assert!(shown.contains("node warn") && shown.contains("1 blocked, 2 succeeded"), "{shown}");
        let race = json!({ "id": "first", "type": "t", "width": 120, "height": 44, "race": true });
        assert!(draw_node(&race, false).into_string().contains("node race"));
    }
}
