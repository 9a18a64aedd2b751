//! The catalog of node types.

use axum::extract::Path;
use maud::html;

use crate::{
    frame::{Area, Failure, Page},
    packs::{reach_of, users},
    parts::{brief, empty, json, list as items, list_table, quoted, server_command, text},
    visit::{Visit, escaped},
};

/// Maximum number of node types in the list.
const MAX_TYPES: usize = 150;

/// Shows the node types whose names or texts have the words of the search.
pub(crate) async fn list(visit: Visit) -> Result<Page, Failure> {
    let answer = visit.get("/v1/nodes").await.map_err(|refusal| Failure::of(&visit, refusal))?;
    let asked = visit.query("q").unwrap_or_default();
    let words: Vec<_> = asked.to_lowercase().split_whitespace().map(str::to_owned).collect();
    let fits = |node: &&serde_json::Value| {
        let all = ["type", "title", "description"].map(|key| text(node, key).to_lowercase()).join(" ");
        words.iter().all(|word| all.contains(word))
    };
    let found: Vec<_> = items(&answer, "nodes").iter().filter(fits).collect();
    let main = html! {
        form .filters method="get" role="search" action="/console/catalog" {
            label { "Words" input type="search" name="q" value=(asked); }
            button { "Search" }
            a href="/console/packs" { "Packs" }
        }
        @if found.is_empty() { (empty("No node type has these words.", html! { p { a href="/console/catalog" { "Show all" } } })) }
        @else {
            (list_table(None, "Node types", html! { th { "Type" } th { "Version" } th { "Purpose" } th { "May use" } }, html! {
                @for node in found.iter().take(MAX_TYPES) {
                    tr {
                        td { a .id href={ "/console/catalog/" (escaped(text(node, "type"))) } { (text(node, "type")) } }
                        td { (text(node, "version")) }
                        td { (brief(text(node, "description"))) }
                        td { @for capability in items(node, "capabilities") { code { (text(capability, "name")) } " " } }
                    }
                }
            }))
        }
        @if found.len() > MAX_TYPES { p .cut { (found.len() - MAX_TYPES) " more node types: search for words" } }
    };
    Ok(Page::new(&visit, Area::Catalog, "Catalog", main))
}

/// Shows a node type with its schemas.
pub(crate) async fn show(visit: Visit, Path(wanted): Path<String>) -> Result<Page, Failure> {
    let path = format!("/v1/nodes/{}", escaped(&wanted));
    let node = visit.get(&path).await.map_err(|refusal| Failure::of(&visit, refusal))?;
    let main = html! {
        p .lead { (text(&node, "description")) }
        p .faint { "Version " (text(&node, "version")) }
        (reach_of(&node))
        @for (name, key) in [("Input", "input"), ("Config", "config"), ("Output", "output")] {
            @if !node[key].is_null() { section { h2 { (name) } (json(&node[key], &path)) } }
        }
        (users(&visit, &wanted).await)
        (server_command(&format!("nodes {}", quoted(&wanted))))
    };
    Ok(Page::new(&visit, Area::Catalog, wanted.as_str(), main))
}
