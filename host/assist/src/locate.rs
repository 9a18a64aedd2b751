//! Finds the key or value at a place of a flow, the way to it, and its schemas.

use std::{ops::Range, sync::LazyLock};

use flowcell_contract::{MarkKind, NodeType};
use serde_json::Value as Json;

use crate::{
    flow::Flow,
    reading::{Kind, Member, Value, inner},
    schemas::{Schema, Step},
};

static GRAPH: LazyLock<Json> = LazyLock::new(flowcell_flow::schema);
static AGENTIC: LazyLock<Json> = LazyLock::new(flowcell_flow::schema::agentic);
static STEPS: LazyLock<Json> =
    LazyLock::new(|| serde_json::from_str(flowcell_flow::schema::steps()).unwrap_or(Json::Bool(true)));

/// The dialect of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    Graph,
    Agentic,
    Steps,
}

impl Dialect {
    /// Tells the dialect by the keys of a text. A text that shows none is a graph.
    pub(crate) fn of(root: &Value) -> Dialect {
        match root.member("flow") {
            _ if root.member("nodes").is_some() => Dialect::Graph,
            Some(flow) if flow.member("steps").is_some() || flow.member("args").is_some() => Dialect::Agentic,
            None if root.member("steps").is_some() => Dialect::Steps,
            _ => Dialect::Graph,
        }
    }

    fn schema(self) -> &'static Json {
        match self {
            Dialect::Graph => &GRAPH,
            Dialect::Agentic => &AGENTIC,
            Dialect::Steps => &STEPS,
        }
    }
}

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
        match names.as_slice() {
            ["nodes", "*", "type"] => Role::NodeType,
            ["nodes", "*", "after"] | ["nodes", "*", "after", "*"] => Role::After,
            ["nodes", "*", "body", "*"] => Role::Body,
            ["nodes", "*", "undo"] => Role::Undo,
            ["nodes", "*", "use"] => Role::Fragment,
            ["nodes", "*", "promptFile"] => Role::File,
            ["nodes", "*", "grants"] | ["flow", "defaults", "grants"] => Role::Grant,
            ["nodes", "*", "grants", "secrets", "*", "name"] => Role::Secret,
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
    pub(crate) fn schemas<'f>(&self, flow: &'f Flow<'_>, dialect: Dialect) -> Vec<Schema<'f>> {
        let steps = in_graph(&self.steps);
        if dialect == Dialect::Graph
            && let [Step::Key(list), Step::Item, Step::Key(member), rest @ ..] = steps
            && list == "nodes"
            && let Some(kind) = self.node_type(flow)
        {
            match member.as_str() {
                "input" => return Schema::new(&kind.input).follow(rest),
                "config" => return Schema::new(&kind.config).follow(rest),
                _ => {}
            }
        }
        Schema::new(dialect.schema()).follow(&self.steps)
    }
}
