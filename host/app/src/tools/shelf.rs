//! The tools there are, and what models call them.

use std::{collections::HashSet, sync::Arc};

use flowcell_contract::{Caller, Failure, Json, Lookup, NodeType, Trait, TypeRef};
use flowcell_flow::{Files, Source};
pub(super) use flowcell_services::pattern::matches;
use futures_util::future::try_join_all;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::Tools;

/// What a flow is called by as a tool: `flow:report`.
const FLOW: &str = "flow:";
/// What a tool of a server is called by: `mcp:files/read_file`.
const MCP: &str = "mcp:";
/// Letters of the name that a model calls a tool, at most: providers take no more.
const MAX_CALLED: usize = 64;

/// Something that an agent may call.
pub(super) struct Tool {
    /// `data.map`, `flow:report`, `mcp:files/read_file`.
    pub(super) name: String,
    pub(super) kind: Kind,
}

pub(super) enum Kind {
    Node(Arc<NodeType>),
    /// A flow beside the calling one.
    Flow(Source),
    /// A tool of one of the operator's servers.
    Mcp {
        server: String,
        tool: String,
    },
}

/// What a model is told of a tool.
struct Offer {
    name: String,
    title: Option<String>,
    description: Option<String>,
    schema: serde_json::Value,
}

impl Tools {
    /// What `wanted` names, in the order of the names, as `tools.find` answers it. `near` tells whether it may name anything
    /// that begins like this: a server is not asked in vain.
    pub(super) async fn offers(
        &self,
        wanted: impl Fn(&str) -> bool,
        near: impl Fn(&str) -> bool,
    ) -> Result<Json, Failure> {
        let nodes = self.host.catalog().names().filter(|name| wanted(name)).filter_map(|name| self.node(name));
        let mut offers: Vec<_> = nodes.map(|node| Offer::of_node(&node)).collect();
        let flows = self.folder.flows().into_iter().map(|name| format!("{FLOW}{name}")).filter(|name| wanted(name));
        offers.extend(flows.filter_map(|name| self.flow_offer(name)));
        let servers = self.mcp.servers().filter(|server| near(&format!("{MCP}{server}/")));
        let listed = try_join_all(servers.map(|server| self.offers_of(server))).await?;
        offers.extend(listed.into_iter().flatten().filter(|offer| wanted(&offer.name)));
        offers.sort_by(|a, b| a.name.cmp(&b.name));
        let mut taken = HashSet::new();
        Ok(Json::array(offers.into_iter().map(|offer| offer.into_json(&mut taken)).collect::<Vec<_>>()))
    }

    /// The tool of a name.
    pub(super) fn find(&self, name: &str) -> Option<Tool> {
        let kind = if let Some(flow) = name.strip_prefix(FLOW) {
            Kind::Flow(self.folder.flow(flow)?)
        } else if let Some((server, tool)) = name.strip_prefix(MCP).and_then(|name| name.split_once('/')) {
            self.mcp.servers().find(|known| *known == server)?;
            Kind::Mcp { server: server.to_owned(), tool: tool.to_owned() }
        } else {
            Kind::Node(self.node(name)?)
        };
        Some(Tool { name: name.to_owned(), kind })
    }

    /// Node types that own a body or agents are no tools.
    fn node(&self, name: &str) -> Option<Arc<NodeType>> {
        let Lookup::Found(node) = self.host.catalog().lookup(&TypeRef::parse(name)) else { return None };
        let owns = node.traits.iter().any(|trait_| matches!(trait_, Trait::Body | Trait::Agent));
        (!owns).then_some(node)
    }

    fn flow_offer(&self, name: String) -> Option<Offer> {
        let source = self.folder.flow(name.strip_prefix(FLOW)?)?;
        let flow = self.host.load_in(&source, self.folder.clone()).ok()?;
        let graph = flow.graph();
        let schema = graph.input_schema.clone().unwrap_or_else(|| json!({ "type": "object" }));
        Some(Offer { name, title: None, description: graph.description.as_deref().map(str::to_owned), schema })
    }

    async fn offers_of(&self, server: &str) -> Result<Vec<Offer>, Failure> {
        let listed = self.mcp.list(server).await?;
        let offer = |tool: flowcell_services::mcp::Tool| Offer {
            name: format!("{MCP}{server}/{}", tool.name),
            title: tool.title.as_deref().map(str::to_owned),
            description: tool.description.as_deref().map(str::to_owned),
            schema: tool.input_schema.to_serde(),
        };
        Ok(listed.into_iter().map(offer).collect())
    }
}

impl Offer {
    fn of_node(node: &NodeType) -> Offer {
        let (title, description) = (Some(node.title.clone()), Some(node.description.clone()));
        Offer { name: node.name.to_string(), title, description, schema: node.input.clone() }
    }

    fn into_json(self, taken: &mut HashSet<String>) -> Json {
        let plainly = called(&self.name);
        let called = if taken.contains(&plainly) { marked(&plainly, &self.name) } else { plainly };
        taken.insert(called.clone());
        let mut members = vec![("name", Json::from(called)), ("tool", Json::from(self.name))];
        members.extend(self.title.map(|title| ("title", Json::from(title))));
        members.extend(self.description.filter(|text| !text.is_empty()).map(|text| ("description", Json::from(text))));
        members.push(("inputSchema", Json::from(plain(self.schema))));
        Json::object(members)
    }
}

/// What a model calls a tool: letters, digits, `_` and `-`.
pub(super) fn called(name: &str) -> String {
    let plain = |char: char| if char.is_ascii_alphanumeric() || char == '-' { char } else { '_' };
    let called: String = name.chars().map(plain).collect();
    if called.len() > MAX_CALLED { marked(&called, name) } else { called }
}

/// A name that no other tool is called.
fn marked(called: &str, name: &str) -> String {
    let mark = hex::encode(&Sha256::digest(name)[..4]);
    format!("{}-{mark}", &called[..called.len().min(MAX_CALLED - mark.len() - 1)])
}

/// The flow that a call of a node type runs: the node alone, with what is granted to the caller of what the type asks for.
pub(super) fn flow_of_node(node: &NodeType, caller: &Caller) -> Source {
    let asked = node
        .capabilities
        .iter()
        .filter_map(|request| Some((request.name.to_string(), caller.grants.0.get(&*request.name)?.to_serde())));
    let grants: serde_json::Map<_, _> = asked.collect();
    let version = node.version.as_ref().map_or_else(String::new, ToString::to_string);
    let called = called(&node.name);
    let flow = json!({
        "flow": { "name": format!("tool-{called}"), "outputs": { "output": "{{ tool }}" } },
        "nodes": [{ "id": "tool", "type": format!("{}@{version}", node.name), "input": "{{ flow.input }}", "grants": grants }],
        "edges": [],
    });
    Source { name: format!("{called}.json"), text: flow.to_string() }
}

/// The schema without what only Flowcell reads.
fn plain(mut schema: serde_json::Value) -> serde_json::Value {
    match &mut schema {
        serde_json::Value::Object(members) => {
            members.remove("x-flowcell");
            members.values_mut().for_each(|member| *member = plain(member.take()));
        }
        serde_json::Value::Array(items) => items.iter_mut().for_each(|item| *item = plain(item.take())),
        _ => {}
    }
    schema
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_model_can_call_every_tool_by_a_name_of_its_own() {
        let offer = |name: &str| Offer { name: name.into(), title: None, description: None, schema: json!({}) };
        let mut taken = HashSet::new();
        let long = format!("mcp:files/{}", "a".repeat(128));
        for name in ["data.map", "data_map", "mcp:files/read.file", "mcp:files/read:file", &long, &format!("{long}b")] {
            let told = offer(name).into_json(&mut taken);
            let called = told.get("name").and_then(Json::as_str).unwrap_or_default();
            assert!((1..=MAX_CALLED).contains(&called.len()), "{called}");
            assert!(called.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte)), "{called}");
        }
        assert_eq!(taken.len(), 6, "{taken:?}");
        assert!(taken.contains("data_map") && taken.contains("mcp_files_read_file"), "{taken:?}");
    }
}
