//! What a flow allows a node to reach outside.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use flowcell_expr::Json;

/// `grants` of a node: for each external capability what it may reach, such as `http: ["https://api.example.com"]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Grants(pub IndexMap<String, Json>);

impl Grants {
    /// Whether anything is granted of this capability.
    pub fn covers(&self, capability: &str) -> bool {
        self.0.contains_key(capability)
    }
}
