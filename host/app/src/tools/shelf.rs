//! The tools there are, and what models call them.

use std::sync::Arc;

use flowcell_contract::{Caller, Json, Lookup, NodeType, Trait, TypeRef};
use flowcell_flow::{Files, Source};
pub(super) use flowcell_services::pattern::matches;
use serde_json::json;

use super::Tools;

/// What a flow is called by as a tool: `flow:report`.
const FLOW: &str = "flow:";

/// Something that an agent may call.
pub(super) struct Tool {
    /// `data.map`, `flow:report`.
    pub(super) name: String,
    pub(super) kind: Kind,
}

pub(super) enum Kind {
    Node(Arc<NodeType>),
    /// A flow beside the calling one: its description, and the schema of its input.
    Flow {
        description: Option<String>,
        schema: serde_json::Value,
    },
}

impl Tools {
    /// All tools, in the order of their names. Node types that own a body or agents are none.
    pub(super) fn all(&self) -> Vec<Tool> {
        let mut tools: Vec<_> = self.host.catalog().names().filter_map(|name| self.node(name)).collect();
        tools.extend(self.folder.flows().into_iter().filter_map(|name| self.flow(&name)));
        tools.sort_by(|a, b| a.name.cmp(&b.name));
        tools
    }

    /// The tool of a name: its own, or the one that a model calls it.
    pub(super) fn find(&self, name: &str) -> Option<Tool> {
        match name.strip_prefix(FLOW) {
            Some(flow) => self.flow(flow),
            None => self.node(name).or_else(|| self.all().into_iter().find(|tool| tool.called() == name)),
        }
    }

    fn node(&self, name: &str) -> Option<Tool> {
        let Lookup::Found(node) = self.host.catalog().lookup(&TypeRef::parse(name)) else { return None };
        let owns = node.traits.iter().any(|trait_| matches!(trait_, Trait::Body | Trait::Agent));
        (!owns).then(|| Tool { name: node.name.to_string(), kind: Kind::Node(node) })
    }

    fn flow(&self, name: &str) -> Option<Tool> {
        let source = self.folder.flow(name)?;
        let flow = self.host.load_in(&source, self.folder.clone()).ok()?;
        let graph = flow.graph();
        let schema = graph.input_schema.clone().unwrap_or_else(|| json!({ "type": "object" }));
        let description = graph.description.as_deref().map(str::to_owned);
        Some(Tool { name: format!("{FLOW}{name}"), kind: Kind::Flow { description, schema } })
    }
}

impl Tool {
    /// What a model calls it: letters, digits, `_` and `-`.
    pub(super) fn called(&self) -> String {
        self.name.chars().map(|char| if char.is_ascii_alphanumeric() || char == '-' { char } else { '_' }).collect()
    }

    /// As `tools.find` answers it.
    pub(super) fn described(&self) -> Json {
        let (title, description, schema) = match &self.kind {
            Kind::Node(node) => (Some(node.title.clone()), Some(node.description.clone()), node.input.clone()),
            Kind::Flow { description, schema } => (None, description.clone(), schema.clone()),
        };
        let mut members = vec![("name", Json::from(self.called())), ("tool", Json::from(self.name.as_str()))];
        members.extend(title.map(|title| ("title", Json::from(title))));
        members.extend(description.filter(|text| !text.is_empty()).map(|text| ("description", Json::from(text))));
        members.push(("inputSchema", Json::from(plain(schema))));
        Json::object(members)
    }

    /// The flow that a call of a node type runs: the node alone, with what is granted to the caller of what the type asks
    /// for. Of a flow its name.
    pub(super) fn source(&self, caller: &Caller) -> (Option<Source>, &str) {
        let Kind::Node(node) = &self.kind else { return (None, self.name.strip_prefix(FLOW).unwrap_or(&self.name)) };
        let asked = node
            .capabilities
            .iter()
            .filter_map(|request| Some((request.name.to_string(), caller.grants.0.get(&*request.name)?.to_serde())));
        let grants: serde_json::Map<_, _> = asked.collect();
        let flow = json!({
            "flow": { "name": format!("tool-{}", self.called()), "outputs": { "output": "{{ tool }}" } },
            "nodes": [{ "id": "tool", "type": format!("{}@{}", node.name, node.version.as_ref().map_or_else(String::new, ToString::to_string)),
                "input": "{{ flow.input }}", "grants": grants }],
            "edges": [],
        });
        (Some(Source { name: format!("{}.json", self.called()), text: flow.to_string() }), &self.name)
    }
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
