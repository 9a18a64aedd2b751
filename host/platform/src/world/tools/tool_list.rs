//! All tools, with their names for models.

use std::{collections::HashSet, sync::Arc};

use flowcell_contract::{
    CREDENTIALS, Caller, CredentialGrant, Failure, Json, Lookup, NodeType, Tenant, Trait, TypeRef,
};
use flowcell_flow::Source;
use flowcell_services::pattern::matches;
use futures_util::future::try_join_all;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::{FLOW_TOOL, Tools};

/// The prefix of an MCP server's tool: `mcp:files/read_file`.
const MCP: &str = "mcp:";
/// Maximum number of characters of a tool's name for a model. It is a limit of the providers.
const MAX_MODEL_NAME_CHARS: usize = 64;

/// A tool that an agent may call.
pub(super) struct Tool {
    /// The name in the call: `data.map`, `data.map@0.1`, `flow:report`, `mcp:files/read_file`.
    pub(super) asked: String,
    /// The identity that grants and rules apply to.
    pub(super) named: Named,
    pub(super) kind: Kind,
}

/// The tool that a name resolves to. The patterns of grants and rules are compared with it, not with the name in the
/// call.
pub(super) struct Named {
    /// The name without a version.
    pub(super) name: String,
    /// The version of a node type.
    pub(super) version: Option<semver::Version>,
}

impl Named {
    fn of_node(node: &NodeType) -> Named {
        Named { name: node.name.to_string(), version: node.version.clone() }
    }

    /// Returns whether a pattern matches this tool. A pattern without a version matches every version of a node type.
    /// A pattern such as `data.map@0.1` matches the versions that this version admits.
    pub(super) fn fits(&self, pattern: &str) -> bool {
        match (pattern.split_once('@'), &self.version) {
            (Some((name, wanted)), Some(version)) => {
                let admitted = TypeRef::parse(pattern).admits(version) || matches(wanted, &version.to_string());
                admitted && matches(name, &self.name)
            }
            _ => matches(pattern, &self.name),
        }
    }
}

impl From<String> for Named {
    /// Creates the identity of a flow, or of a tool of an MCP server.
    fn from(name: String) -> Named {
        Named { name, version: None }
    }
}

pub(super) enum Kind {
    Node(Arc<NodeType>),
    /// A flow that the agent's run can call, by its name.
    Flow(String),
    /// A tool of one of the operator's MCP servers.
    Mcp {
        server: String,
        tool: String,
    },
}

/// The description of a tool for a model.
struct Offer {
    name: String,
    title: Option<String>,
    description: Option<String>,
    schema: serde_json::Value,
}

impl Tools {
    /// Returns the tools for which `wanted` returns true, sorted by name, as the result of `tools.find`. For each MCP
    /// server, `near` receives the prefix of the names of the server's tools, `mcp:SERVER/`. Only if `near` returns
    /// true, the server is asked for its tools.
    pub(super) async fn offers(
        &self,
        tenant: &Tenant,
        wanted: impl Fn(&Named) -> bool,
        near: impl Fn(&str) -> bool,
    ) -> Result<Json, Failure> {
        let types = self.flows.catalog();
        let nodes = types.names().filter_map(|name| self.node(name));
        let nodes = nodes.filter(|node| wanted(&Named::of_node(node)));
        let mut offers: Vec<_> = nodes.map(|node| Offer::of_node(&node)).collect();
        let flows = self.flows.names().into_iter().map(|name| Named::from(format!("{FLOW_TOOL}{name}")));
        offers.extend(flows.filter(|flow| wanted(flow)).filter_map(|flow| self.flow_offer(flow.name)));
        let servers = self.mcp.servers().filter(|server| near(&format!("{MCP}{server}/")));
        let listed = try_join_all(servers.map(|server| self.offers_of(tenant, server))).await?;
        offers.extend(listed.into_iter().flatten().filter(|offer| wanted(&Named::from(offer.name.clone()))));
        offers.sort_by(|a, b| a.name.cmp(&b.name));
        let mut taken = HashSet::new();
        Ok(Json::array(offers.into_iter().map(|offer| offer.into_json(&mut taken)).collect::<Vec<_>>()))
    }

    /// Finds the tool with this name. Returns `None` if there is no such tool.
    pub(super) fn find(&self, name: &str) -> Option<Tool> {
        let (named, kind) = if let Some(flow) = name.strip_prefix(FLOW_TOOL) {
            (Named::from(name.to_owned()), Kind::Flow(self.flows.has(flow).then(|| flow.to_owned())?))
        } else if let Some((server, tool)) = name.strip_prefix(MCP).and_then(|name| name.split_once('/')) {
            self.mcp.servers().find(|known| *known == server)?;
            (Named::from(name.to_owned()), Kind::Mcp { server: server.to_owned(), tool: tool.to_owned() })
        } else {
            let node = self.node(name)?;
            (Named::of_node(&node), Kind::Node(node))
        };
        Some(Tool { asked: name.to_owned(), named, kind })
    }

    /// Returns a node type, unless it owns a body or agents. Those cannot be tools.
    fn node(&self, name: &str) -> Option<Arc<NodeType>> {
        let Lookup::Found(node) = self.flows.catalog().lookup(&TypeRef::parse(name)) else { return None };
        let owns = node.traits.iter().any(|trait_| matches!(trait_, Trait::Body | Trait::Agent));
        (!owns).then_some(node)
    }

    fn flow_offer(&self, name: String) -> Option<Offer> {
        let graph = self.flows.graph(name.strip_prefix(FLOW_TOOL)?)?;
        let schema = graph.input_schema.clone().unwrap_or_else(|| json!({ "type": "object" }));
        Some(Offer { name, title: None, description: graph.description.as_deref().map(str::to_owned), schema })
    }

    async fn offers_of(&self, tenant: &Tenant, server: &str) -> Result<Vec<Offer>, Failure> {
        // Lists have their own permits, so a slow list delays no tool call.
        let _permit = self.permit(tenant, server, &format!("mcp:{server} (list of tools)")).await?;
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
        let plainly = model_name(&self.name);
        let called = if taken.contains(&plainly) { with_hash(&plainly, &self.name) } else { plainly };
        taken.insert(called.clone());
        let mut members = vec![("name", Json::from(called)), ("tool", Json::from(self.name))];
        members.extend(self.title.map(|title| ("title", Json::from(title))));
        members.extend(self.description.filter(|text| !text.is_empty()).map(|text| ("description", Json::from(text))));
        members.push(("inputSchema", Json::from(without_own_members(self.schema))));
        Json::object(members)
    }
}

/// Returns a tool's name for a model, with only letters, digits, `_` and `-`.
pub(super) fn model_name(name: &str) -> String {
    let plain = |char: char| if char.is_ascii_alphanumeric() || char == '-' { char } else { '_' };
    let called: String = name.chars().map(plain).collect();
    if called.len() > MAX_MODEL_NAME_CHARS { with_hash(&called, name) } else { called }
}

/// Adds a hash to a shortened name, so that it stays unique.
fn with_hash(called: &str, name: &str) -> String {
    let mark = hex::encode(&Sha256::digest(name)[..4]);
    format!("{}-{mark}", &called[..called.len().min(MAX_MODEL_NAME_CHARS - mark.len() - 1)])
}

/// Builds the flow that runs a node type as a tool. It contains only a node of this type. The node gets the caller's
/// grants for the capabilities that the type requests, and for the credentials that it declares.
pub(super) fn flow_of_node(node: &NodeType, caller: &Caller) -> Source {
    let asked = node
        .capabilities
        .iter()
        .filter_map(|request| Some((request.name.to_string(), caller.grants.0.get(&*request.name)?.to_serde())));
    let mut grants: serde_json::Map<_, _> = asked.collect();
    let credentials = credentials_of(node, caller);
    if !credentials.is_empty() {
        grants.insert(CREDENTIALS.to_owned(), credentials.into());
    }
    let version = node.version.as_ref().map_or_else(String::new, ToString::to_string);
    let called = model_name(&node.name);
    let flow = json!({
        "flow": { "name": format!("tool-{called}"), "outputs": { "output": "{{ tool }}" } },
        "nodes": [{ "id": "tool", "type": format!("{}@{version}", node.name), "input": "{{ flow.input }}", "grants": grants }],
        "edges": [],
    });
    Source { name: format!("{called}.json"), text: flow.to_string() }
}

/// Returns the credentials that the flow grants the caller under names that the type declares. The check of the tool's flow
/// compares their kinds and servers with the declarations. A type without declarations, such as `http.request`, gets none:
/// a model would choose the request.
fn credentials_of(node: &NodeType, caller: &Caller) -> serde_json::Map<String, serde_json::Value> {
    let granted = caller.grants.0.get(CREDENTIALS).and_then(|grant| CredentialGrant::parse_all(grant).ok());
    let is_declared = |grant: &CredentialGrant| node.credentials.iter().any(|request| request.name == grant.name);
    let pair = |grant: CredentialGrant| (grant.name.to_string(), serde_json::Value::from(&*grant.credential));
    granted.unwrap_or_default().into_iter().filter(is_declared).map(pair).collect()
}

/// Removes from a schema the members that only Flowcell reads.
fn without_own_members(mut schema: serde_json::Value) -> serde_json::Value {
    match &mut schema {
        serde_json::Value::Object(members) => {
            members.remove("x-flowcell");
            members.values_mut().for_each(|member| *member = without_own_members(member.take()));
        }
        serde_json::Value::Array(items) => items.iter_mut().for_each(|item| *item = without_own_members(item.take())),
        _ => {}
    }
    schema
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::collections::HashSet;

    use flowcell_contract::{Catalog, Digest, Effect, Grants, Manifest, NodeId, Value};

    use super::*;

    #[test]
    fn a_tool_gets_only_the_credentials_that_its_type_declares() {
        let http = "capabilities: [{ name: http, reason: r }]";
        let manifest = format!(
            "name: shop\nversion: 1.0.0\nnodes:\n  - {{ type: shop.post, title: A, {http}, credentials: [{{ name: slack, kind: \
             bearer, hosts: [slack.com] }}] }}\n  - {{ type: shop.send, title: A, {http} }}\n"
        );
        let mut catalog = Catalog::default();
        catalog.add(Manifest::parse(&manifest).unwrap(), &Digest("00".into()));
        let grants = |grants: &str, node: &str| {
            let caller = Caller {
                tenant: Tenant::local(),
                run_id: "r".into(),
                pin: "flow".into(),
                node_id: NodeId("n".into()),
                node_type: "agent.run".into(),
                grants: Arc::new(serde_json::from_str::<Grants>(grants).unwrap()),
                effect: Effect::Idempotent,
                config: Value::parse("{}").unwrap(),
            };
            let Lookup::Found(node) = catalog.lookup(&TypeRef::parse(node)) else { panic!("{node} is there") };
            let flow: serde_json::Value = serde_json::from_str(&flow_of_node(&node, &caller).text).unwrap();
            flow["nodes"][0]["grants"].clone()
        };
        let all = r#"{ "http": ["https://slack.com"], "tools": ["*"], "secrets": [{ "name": "a" }], "credentials":
            [{ "name": "slack", "credential": "team", "hosts": ["https://evil.example"] }, { "name": "maps", "credential": "maps" }] }"#;
        let origins = json!(["https://slack.com"]);
        assert_eq!(grants(all, "shop.post"), json!({ "http": origins, "credentials": { "slack": "team" } }));
        assert_eq!(grants(all, "shop.send"), json!({ "http": origins }));
        let other = r#"{ "http": ["https://slack.com"], "credentials": [{ "name": "maps", "credential": "slack" }] }"#;
        assert_eq!(grants(other, "shop.post"), json!({ "http": origins }));
        // The graph of a version that did not check the grant.
        assert_eq!(grants(r#"{ "credentials": ["slack"] }"#, "shop.post"), json!({}));
    }

    #[test]
    fn a_model_can_call_every_tool_by_a_name_of_its_own() {
        let offer = |name: &str| Offer { name: name.into(), title: None, description: None, schema: json!({}) };
        let mut taken = HashSet::new();
        let long = format!("mcp:files/{}", "a".repeat(128));
        for name in ["data.map", "data_map", "mcp:files/read.file", "mcp:files/read:file", &long, &format!("{long}b")] {
            let told = offer(name).into_json(&mut taken);
            let called = told.get("name").and_then(Json::as_str).unwrap_or_default();
            assert!((1..=MAX_MODEL_NAME_CHARS).contains(&called.len()), "{called}");
            assert!(called.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte)), "{called}");
        }
        assert_eq!(taken.len(), 6, "{taken:?}");
        assert!(taken.contains("data_map") && taken.contains("mcp_files_read_file"), "{taken:?}");
    }
}
