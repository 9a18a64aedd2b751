//! Keys of `hmac` that are written elsewhere in the flow: in a var, as a default of the input, or in the input of a node.

use flowcell_expr::Path;

use super::{KnownInput, NameResolver};
use crate::{
    diagnostic::Diagnostics,
    written_keys::{is_written, key, warn},
    yaml::Span,
};

/// Warns if the value at a path, which is a key of `hmac`, is written in the flow.
pub(super) fn warn_of_written(names: &NameResolver<'_>, path: &Path, span: Span, diagnostics: &mut Diagnostics<'_>) {
    let members: Vec<&str> = path.segments().iter().map_while(key).collect();
    let (id, members) = match (path.root(), members.as_slice()) {
        ("flow", ["input", members @ ..]) => {
            if has_default(names.known_input, members) {
                warn(path, "is by default", span, diagnostics);
            }
            return;
        }
        ("nodes", [id, members @ ..]) => (*id, members),
        (id, members) => (id, members),
    };
    let Some(node) = names.shape.by_id.get(id) else { return };
    // Some nodes hand on what their input has.
    let input = match crate::first_node::vars_of_node(names.flow, *node) {
        Some(vars) => Some(vars.tree()),
        None => names.flow.nodes[*node].input,
    };
    if input.is_some_and(|input| is_written(input, members)) {
        warn(path, "is", span, diagnostics);
    }
}

fn has_default(known: &KnownInput, members: &[&str]) -> bool {
    let text = match known {
        KnownInput::Unknown => None,
        KnownInput::Defaults(defaults) => {
            let member = members.iter().try_fold(defaults, |value, member| value.get(member));
            member.and_then(|text| text.as_str())
        }
        KnownInput::Schema(schema) => {
            let inside = |schema, member: &&str| -> Option<&serde_json::Value> {
                serde_json::Value::get(schema, "properties")?.get(*member)
            };
            members.iter().try_fold(schema, inside).and_then(|schema| schema.get("default")?.as_str())
        }
    };
    text.is_some_and(|text| !text.is_empty())
}
