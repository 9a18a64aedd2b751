//! The packs of the server, with what their node types may reach.

use axum::extract::Path;
use maud::{Markup, html};
use serde_json::Value;

use crate::{
    frame::{Area, Failure, Page},
    parts::{brief, empty, list, list_table, server_command, text},
    visit::{Visit, escaped},
};

/// Maximum number of packs in the list.
const MAX_PACKS: usize = 100;

/// Shows the packs.
pub(crate) async fn all(visit: Visit) -> Result<Page, Failure> {
    let answer = visit.get("/v1/packs").await.map_err(|refusal| Failure::of(&visit, refusal))?;
    let packs = list(&answer, "packs");
    let main = html! {
        @if packs.is_empty() {
            (empty("This server has only the built-in node types.", html! {
                p { "A pack adds node types. Install one with its signature, then read the packs again:" }
                pre tabindex="0" { "flowcell node install PACK.wasm\nkill -HUP PID" }
                p { a href="/console/manual/packs" { "How packs are shared and trusted" } ", " a href="/console/catalog" { "the built-in types" } }
            }))
        } @else {
            (list_table(Some("packs"), "Packs, by name and version", html! { th { "Pack" } th { "From" } th { "Signer" } th { "Node types" } th { "May reach" } th { "Digest" } }, html! {
                @for pack in packs.iter().take(MAX_PACKS) {
                    tr {
                        td { a .id href={ "/console/packs/" (escaped(text(pack, "pack"))) } { (text(pack, "pack")) } }
                        td { (text(pack, "source")) }
                        td { (signer_of(pack, false)) }
                        td .number { (list(pack, "types").len()) }
                        td { @for name in reach(pack) { code { (name) } " " } }
                        td { code title=(text(pack, "digest")) { (text(pack, "digest").chars().take(20).collect::<String>()) "…" } }
                    }
                }
            }))
        }
        @if packs.len() > MAX_PACKS { p .cut { (packs.len() - MAX_PACKS) " more packs: " a href="/v1/packs" { code { "/v1/packs" } } } }
        (server_command("packs list"))
    };
    Ok(Page::new(&visit, Area::Catalog, "Packs", main))
}

/// Shows the signer of a pack: the operator's name for the key, and the key if `whole` or if it has no name.
fn signer_of(pack: &Value, whole: bool) -> Markup {
    let signer = &pack["signer"];
    let (name, key) = (text(signer, "name"), text(signer, "key"));
    html! {
        @match (signer.is_object(), text(pack, "source")) {
            (true, _) => { (name) @if whole || name.is_empty() { " " code { (key) } } }
            (false, "folder") => { span .faint { "not read in a folder" } }
            (false, _) => { span .faint { "none" } }
        }
    }
}

/// Returns the names of the capabilities that the types of a pack may be granted, each once.
fn reach(pack: &Value) -> Vec<&str> {
    let capabilities = list(pack, "types").iter().flat_map(|each| list(each, "capabilities"));
    let mut names: Vec<_> = capabilities.map(|capability| text(capability, "name")).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Shows a pack with its node types.
pub(crate) async fn show(visit: Visit, Path(wanted): Path<String>) -> Result<Page, Failure> {
    let fails = |refusal| Failure::of(&visit, refusal);
    let answer = visit.get("/v1/packs").await.map_err(fails)?;
    let Some(pack) = list(&answer, "packs").iter().find(|pack| text(pack, "pack") == wanted) else {
        let why = format!("this server has no pack `{wanted}`");
        return Err(fails(flowcell_server::api::Refusal::new(axum::http::StatusCode::NOT_FOUND, "not_found", why)));
    };
    let main = html! {
        p { "From the " (text(pack, "source")) ", digest " code { (text(pack, "digest")) } }
        p { "Signer: " (signer_of(pack, true)) }
        @for each in list(pack, "types") {
            section {
                h2 { a href={ "/console/catalog/" (escaped(text(each, "type"))) } { (text(each, "type")) } }
                p { (brief(text(each, "title"))) }
                (reach_of(each))
            }
        }
    };
    Ok(Page::new(&visit, Area::Catalog, wanted.as_str(), main))
}

/// Shows the reach of a node type, as far as a flow grants it.
pub(crate) fn reach_of(node: &Value) -> Markup {
    let capabilities = list(node, "capabilities");
    html! {
        @if capabilities.is_empty() { p { "It reaches nothing outside its sandbox." } } @else {
            p { "It reaches this, as far as a flow grants it: "
                @for capability in capabilities { code { (text(capability, "name")) } " " } }
        }
        @for request in list(node, "credentials") {
            p { @if request["optional"] == true { "It can use" } @else { "It needs" } " the credential "
                a href="/console/credentials" { code { (text(request, "name")) } } " of the kind " (text(request, "kind"))
                @for host in list(request, "hosts") { ", for " code { (host.as_str().unwrap_or_default()) } } "." }
        }
        p .faint { "Effect: " code { (text(node, "effect")) } }
    }
}

/// Shows the flows that use a node type, with their grants.
pub(crate) async fn users(visit: &Visit, node_type: &str) -> Markup {
    let cursor = visit.query("cursor").map(|cursor| format!("?cursor={}", escaped(&cursor))).unwrap_or_default();
    let path = format!("/v1/nodes/{}/flows{cursor}", escaped(node_type));
    let answer = visit.get(&path).await;
    html! {
        section {
            h2 { "Flows that use it" }
            @match &answer {
                Err(refusal) => p .notice .warn { "The flows cannot be listed: " (refusal.message) },
                Ok(answer) => {
                    @if list(answer, "flows").is_empty() { p .faint { "None" @if answer["next"].is_string() { " of the first 50" } "." } }
                    @else {
                        (list_table(None, "Flows that use the type", html! { th { "Flow" } th { "Node" } th { "Grants" } }, html! {
                            @for flow in list(answer, "flows") { @for node in list(flow, "nodes") {
                                tr {
                                    td { a .id href={ "/console/flows/" (escaped(text(flow, "flow"))) } { (text(flow, "flow")) } }
                                    td { code { (text(node, "id")) } }
                                    td { (grants(&node["grants"])) }
                                }
                            }
                                @if let Some(left_out) = flow["nodesLeftOut"].as_u64() { tr { td {} td .cut { (left_out) " more nodes" } td {} } }
                            }
                        }))
                    }
                    @for flow in list(answer, "unread") {
                        p .notice .warn { "The flow " code { (text(flow, "flow")) } " cannot be read: " (text(flow, "message")) }
                    }
                    @if let Some(next) = answer["next"].as_str() { nav .pages aria-label="Flows" { a rel="next" href={ "?cursor=" (escaped(next)) } { "More flows" } } }
                }
            }
        }
    }
}

fn grants(grants: &Value) -> Markup {
    let given: Vec<_> = grants.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null()).collect();
    html! {
        @if given.is_empty() { span .faint { "nothing" } }
        @for (name, value) in given {
            code { (name) ": " (crate::parts::cut(&value.to_string(), 200).0) @if value.to_string().len() > 200 { "…" } } " "
        }
    }
}
