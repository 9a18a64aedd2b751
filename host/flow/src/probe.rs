//! An expression that is checked as if it stood in a flow.

/// An expression that stands in a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The id of the node whose input the expression replaces. `None`: it replaces the outputs of the flow.
    pub node: Option<String>,
    /// A text with `{{ }}`, or one expression without them.
    pub expression: String,
}
