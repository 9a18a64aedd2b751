//! Finds the key or value at a place of a flow, the way to it, and its schemas.

use std::ops::Range;

use flowcell_contract::{MarkKind, NodeType};
use serde_json::Value as Json;

use crate::{
    dialect::Dialect,
    flow::Flow,
    reading::{Kind, Member, Value, inner},
    schemas::{Schema, Step},
};

/// The value or the key at a place.
#[derive(Clone, Copy)]
pub(crate) enum Target<'v> {
    /// The key of a member of a map.
    Key(&'v Value, &'v Member),
    /// A text, or a place where a value is missing.
    Value(&'v Value),
}

impl Target<'_> {
    /// Returns the bytes of the key or the text, without quotes.
    pub(crate) fn range(&self, file: &str) -> Range<usize> {
        match self {
            Target::Key(_, member) => member.key.clone(),
            Target::Value(value) => inner(file, value),
        }
    }
}

/// The key or value at a place, and the way to it.
pub(crate) struct Located<'v> {
    /// The steps from the whole flow to the value, or to the map with the key.
    pub(crate) steps: Vec<Step>,
    pub(crate) target: Target<'v>,
    /// The maps and lists around the value, the outermost first.
    pub(crate) around: Vec<&'v Value>,
    /// The node around the place.
    pub(crate) node: Option<usize>,
}

/// Finds the key or value at a byte.
pub(crate) fn locate<'v>(flow: &Flow<'v>, at: usize) -> Option<Located<'v>> {
    let (mut steps, mut around, mut here) = (Vec::new(), Vec::new(), flow.root);
    let contains = |range: &Range<usize>| range.start <= at && at <= range.end;
    let target = loop {
        match &here.kind {
            Kind::Map(members) => {
                if let Some(member) = members.iter().find(|member| contains(&member.key)) {
                    break Target::Key(here, member);
                }
                let member = members.iter().find(|member| contains(&member.value.range))?;
                steps.push(Step::Key(member.name.clone()));
                around.push(here);
                here = &member.value;
            }
            Kind::List(items) => {
                let item = items.iter().find(|item| contains(&item.range))?;
                steps.push(Step::Item);
                around.push(here);
                here = item;
            }
            Kind::Scalar(_) | Kind::Missing => break Target::Value(here),
        }
    };
    let holds = |node: &usize| contains(&flow.nodes[*node].value.range);
    let node = (0..flow.nodes.len()).filter(holds).min_by_key(|node| flow.nodes[*node].value.range.len());
    Some(Located { steps, target, around, node })
}

/// The meaning of a text that names something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    NodeType,
    /// The id of another node of the scope: `after`, `undo`.
    After,
    Body,
    Undo,
    /// The name of a fragment.
    Fragment,
    /// An edge in text.
    EdgeText,
    EdgeFrom,
    EdgeTo,
    /// The name of a flow.
    FlowName,
    /// The path of a file beside the flow.
    File,
    Secret,
    /// The name of a capability, as a key.
    Grant,
    /// The tool of a step: a node type, or its short name.
    Tool,
    /// The agent of a step.
    Agent,
    /// The step to which a rule or a fallback leads.
    NextStep,
    Other,
}

/// Returns steps from the innermost graph: those behind the last `body`, or behind the name of a fragment.
pub(crate) fn in_graph(steps: &[Step]) -> &[Step] {
    let steps = match steps {
        [Step::Key(fragments), Step::Key(_), rest @ ..] if fragments == "fragments" && !rest.is_empty() => rest,
        steps => steps,
    };
    let is_body = |window: &[Step]| matches!(window, [Step::Key(body), Step::Key(list)] if body == "body" && matches!(list.as_str(), "nodes" | "edges"));
    let inner = steps.windows(2).rposition(is_body);
    inner.map_or(steps, |at| &steps[at + 1..])
}

impl Located<'_> {
    /// Returns the meaning of the text.
    pub(crate) fn role(&self, flow: &Flow<'_>) -> Role {
        let steps = in_graph(&self.steps);
        let names: Vec<&str> =
            steps.iter().map(|step| if let Step::Key(key) = step { key.as_str() } else { "*" }).collect();
        match (flow.dialect, names.as_slice()) {
            (Dialect::Graph, names) => self.role_in_graph(flow, names),
            (Dialect::Agentic, ["flow", "steps", "*", "agent"]) => Role::Agent,
            (
                Dialect::Agentic,
                ["flow", "steps", "*", "rules", "*", "then"] | ["flow", "steps", "*", "fallback", "to"],
            ) => Role::NextStep,
            (Dialect::Steps, ["steps", "*", "tool"]) => Role::Tool,
            (Dialect::Steps, ["steps", "*", "grants"]) => Role::Grant,
            _ => Role::Other,
        }
    }

    fn role_in_graph(&self, flow: &Flow<'_>, names: &[&str]) -> Role {
        match names {
            ["nodes", "*", "type"] => Role::NodeType,
            ["nodes", "*", "after"] | ["nodes", "*", "after", "*"] => Role::After,
            ["nodes", "*", "body", "*"] => Role::Body,
            ["nodes", "*", "undo"] => Role::Undo,
            ["nodes", "*", "use"] => Role::Fragment,
            ["nodes", "*", "promptFile"] => Role::File,
            ["nodes", "*", "grants"] | ["flow", "defaults", "grants"] => Role::Grant,
            ["nodes", "*", "grants", "secrets", "name"]
            | ["nodes", "*", "grants", "secrets", "*", "name"]
            | ["flow", "defaults", "grants", "secrets", "name"]
            | ["flow", "defaults", "grants", "secrets", "*", "name"] => Role::Secret,
            ["flow", "triggers", "*", "webhook", "secret"] | ["flow", "triggers", "*", "webhook", "secret", "*"] => {
                Role::Secret
            }
            ["flow", "triggers", "*", "event", "flow"] => Role::FlowName,
            ["edges", "*"] => Role::EdgeText,
            ["edges", "*", "from"] => Role::EdgeFrom,
            ["edges", "*", "to"] => Role::EdgeTo,
            ["nodes", "*", "input", rest @ ..] => match self.mark(flow, rest) {
                Some(MarkKind::Flow) => Role::FlowName,
                Some(MarkKind::File) => Role::File,
                _ => Role::Other,
            },
            _ => Role::Other,
        }
    }

    /// Returns the type of the node around the place.
    pub(crate) fn node_type<'f>(&self, flow: &'f Flow<'_>) -> Option<&'f NodeType> {
        flow.nodes[self.node?].kind.as_deref()
    }

    fn mark(&self, flow: &Flow<'_>, path: &[&str]) -> Option<MarkKind> {
        let marks = &self.node_type(flow)?.marks;
        let is_meant = |mark: &&flowcell_contract::Mark| {
            mark.path.len() == path.len() && mark.path.iter().zip(path).all(|(step, name)| &**step == *name)
        };
        marks.iter().find(is_meant).map(|mark| mark.kind)
    }

    /// Returns the schema of the arguments of a fragment, and the steps from them, for a place in `with`.
    pub(crate) fn arguments(&self, flow: &Flow<'_>) -> Option<(Json, &[Step])> {
        match in_graph(&self.steps) {
            [Step::Key(list), Step::Item, Step::Key(with), rest @ ..] if list == "nodes" && with == "with" => {
                Some((flow.arguments(self.node?)?, rest))
            }
            _ => None,
        }
    }

    /// Returns the schemas that the value follows, or the map with the key.
    pub(crate) fn schemas<'f>(&self, flow: &'f Flow<'_>) -> Vec<Schema<'f>> {
        let steps = in_graph(&self.steps);
        if let [Step::Key(list), Step::Item, Step::Key(member), rest @ ..] = steps
            && let Some(kind) = self.node_type(flow)
        {
            match (flow.dialect, list.as_str(), member.as_str()) {
                (Dialect::Graph, "nodes", "input") | (Dialect::Steps, "steps", "params") => {
                    return Schema::new(&kind.input).follow(rest);
                }
                (Dialect::Graph, "nodes", "config") => return Schema::new(&kind.config).follow(rest),
                _ => {}
            }
        }
        Schema::new(flow.dialect.schema()).follow(&self.steps)
    }
}
