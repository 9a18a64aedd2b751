//! The external resources that a flow allows a node to reach.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use flowcell_expr::Json;

/// The `grants` of a node: the allowed targets of each external capability.
/// An example is `http: ["https://api.example.com"]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Grants(pub IndexMap<String, Json>);

impl Grants {
    /// Returns whether the flow grants anything for this capability.
    pub fn covers(&self, capability: &str) -> bool {
        self.0.contains_key(capability)
    }
}
