//! The dialects of flows, and their JSON Schemas.

#[cfg(test)]
mod tests;

use std::sync::LazyLock;

use serde_json::Value as Json;

use crate::reading::Value;

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

    /// Returns the schema of flows of the dialect.
    pub(crate) fn schema(self) -> &'static Json {
        match self {
            Dialect::Graph => &GRAPH,
            Dialect::Agentic => &AGENTIC,
            Dialect::Steps => &STEPS,
        }
    }
}
