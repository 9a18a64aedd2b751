//! The node whose output a node gives.

use super::NameResolver;
use crate::fragments::SCOPE_TYPE;

/// Returns the node whose output a node gives: of a scope or a use of a fragment, the only last node of its body. A scope
/// whose last node never succeeds gives nothing, so its members are not known.
pub(super) fn of(names: &NameResolver<'_>, mut node: usize) -> usize {
    while let Some(kind) = &names.types[node]
        && &*kind.name == SCOPE_TYPE
        && names.flow.nodes[node].body_output.is_none()
        && let Some(body) = names.shape.owned[node]
    {
        let mut sinks = names.shape.sinks(body);
        match (sinks.next(), sinks.next()) {
            (Some(sink), None) if names.types[sink].as_ref().is_none_or(|kind| kind.output != false) => node = sink,
            _ => break,
        }
    }
    node
}
