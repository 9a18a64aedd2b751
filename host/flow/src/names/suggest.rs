//! Replacements for names of other tools.

use flowcell_contract::functions::{FunctionKind, functions_named};

use super::KnownInput;
use crate::{diagnostic::similar, fields::for_message, shape::Shape};

/// Returns true for the name of a function that is called without arguments.
fn is_function(name: &str) -> bool {
    functions_named(name).any(|function| function.kind == FunctionKind::Call && !function.needs_arguments())
}

/// Suggests the form for a node whose id has a dash, if a name is a part of the id, or the id with `_`.
pub(super) fn with_dash(shape: &Shape, root: &str) -> Option<String> {
    let is_meant = |id: &&String| {
        let (before, after) = (id.strip_prefix(root), id.strip_suffix(root));
        before.is_some_and(|rest| rest.starts_with('-'))
            || after.is_some_and(|rest| rest.ends_with('-'))
            || id.contains('-') && id.replace('-', "_") == root
    };
    let id = shape.by_id.keys().find(is_meant)?;
    Some(format!("write `nodes[\"{id}\"]` for a name with a dash, because `-` subtracts"))
}

/// Returns "did you mean …?", if a name is similar.
pub(super) fn near<'a>(root: &str, names: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let name = similar(root, names)?;
    Some(if name.contains('-') {
        format!("did you mean `nodes[\"{name}\"]`?")
    } else {
        format!("did you mean `{name}`?")
    })
}

/// Names of null in other languages.
const FOREIGN_NULLS: [&str; 6] = ["undefined", "nil", "NULL", "Null", "NONE", "nothing"];

/// Objects of JavaScript and Python whose functions are filters here.
const FOREIGN_OBJECTS: [&str; 12] = [
    "Math", "JSON", "Object", "Array", "String", "Number", "Boolean", "Date", "DateTime", "datetime", "math", "moment",
];

/// Returns the help for a name that nothing has. If it stands `alone`, without members, it may be a text that lacks its
/// quotes.
pub(super) fn unknown<'a>(
    known_input: &KnownInput,
    shape: &Shape,
    (id, alone): (&str, bool),
    ids: impl Iterator<Item = &'a str>,
) -> String {
    if let Some(help) = suggest(known_input, shape, id).or_else(|| near(id, ids)) {
        return help;
    }
    match alone {
        true if is_function(id) => format!("`{id}` is a function: write `{id}()`"),
        true if FOREIGN_NULLS.contains(&id) => {
            "write `is defined` or `is none` after a value to test it, or `null` for the null value".to_owned()
        }
        _ if FOREIGN_OBJECTS.contains(&id) => {
            "write a filter after its value, as in `value | round`; `flowcell functions` lists them".to_owned()
        }
        true => format!(
            "write a text in quotes: `'{}'`; or use `flow.input.…` or the id of an earlier node",
            for_message(id)
        ),
        false => "use `flow.input.…` or the id of an earlier node".into(),
    }
}

/// Suggests a replacement for a name of another tool.
fn suggest(known_input: &KnownInput, shape: &Shape, root: &str) -> Option<String> {
    let is_given = match known_input {
        KnownInput::Unknown => false,
        KnownInput::Schema(schema) => schema.get("properties").is_some_and(|known| known.get(root).is_some()),
        KnownInput::Defaults(defaults) => defaults.get(root).is_some(),
    };
    if is_given {
        return Some(format!("did you mean `flow.input.{}`?", for_message(root)));
    }
    if let Some(help) = with_dash(shape, root) {
        return Some(help);
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
