//! Replacements for names of other tools.

use super::KnownInput;
use crate::{fields::for_message, shape::Shape};

/// Suggests a replacement for a name of another tool.
pub(super) fn suggest(known_input: &KnownInput, shape: &Shape, root: &str) -> Option<String> {
    let is_given = match known_input {
        KnownInput::Unknown => false,
        KnownInput::Schema(schema) => schema.get("properties").is_some_and(|known| known.get(root).is_some()),
        KnownInput::Defaults(defaults) => defaults.get(root).is_some(),
    };
    if is_given {
        return Some(format!("did you mean `flow.input.{}`?", for_message(root)));
    }
    let part_of = |id: &&String| {
        let (before, after) = (id.strip_prefix(root), id.strip_suffix(root));
        before.is_some_and(|rest| rest.starts_with('-')) || after.is_some_and(|rest| rest.ends_with('-'))
    };
    if let Some(id) = shape.by_id.keys().find(part_of) {
        return Some(format!("write `nodes[\"{id}\"]` for a name with a dash"));
    }
    let help = match root {
        "secrets" | "secret" | "credentials" | "env" => {
            "expressions cannot read secrets; grant the secret to the node that sends it: \
             `grants: { secrets: [{ name: …, header: authorization, prefix: \"Bearer \" }] }`"
        }
        "vars" => "declare it in `flow: { vars: { … } }`; the run's input is `flow.input`",
        "params" => "parameters are known inside of fragments; the run's input is `flow.input`",
        "input" | "inputs" | "parameters" | "args" => "the run's input is `flow.input`",
        "steps" | "node" | "outputs" | "tasks" | "jobs" => "use a node's id for its output",
        "json" | "data" | "prev" | "previous" | "result" => "the output of the preceding node is `inbound`",
        "item" | "index" | "loop" => "inside a body use the owner's id: `each.item`, `each.index`",
        _ => return None,
    };
    Some(help.to_owned())
}
