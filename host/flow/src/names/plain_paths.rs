//! Paths that stand outside of `{{ }}`, so that they are not evaluated.

use flowcell_expr::{Path, Segment};

use super::{NameResolver, Visible, giver, known_input::KnownInput, reach};
use crate::{
    diagnostic::Diagnostics,
    fields::for_message,
    input::{FieldReads, Locals},
    members,
    yaml::Span,
};

/// Warns of paths in braces, such as `${flow.input.a}` and `{ node.field }`, and of texts that are a path and nothing else.
/// Ignores names that the flow does not define.
pub(super) fn warn(names: &NameResolver<'_>, read: &FieldReads, diagnostics: &mut Diagnostics<'_>) {
    if names.flow.is_agentic {
        return;
    }
    for (path, written, span) in read.braced.iter().filter(|(path, ..)| is_known_in_braces(names, path)) {
        report(path, written, *span, diagnostics);
    }
    // The steps dialect has references of its own.
    let bare = read.bare.iter().filter(|_| names.flow.references.is_none());
    for (path, span) in bare.filter(|(path, span)| is_known(names, path, &read.locals, *span)) {
        report(path, &path.to_string(), *span, diagnostics);
    }
}

fn report(path: &Path, written: &str, span: Span, diagnostics: &mut Diagnostics<'_>) {
    let message = format!("`{}` is plain text here; only `{{{{ }}}}` is evaluated", for_message(written));
    let help = format!("write `{{{{ {} }}}}`", for_message(&path.to_string()));
    diagnostics.warning("path_as_text", span, message, Some(help));
}

fn is_known_in_braces(names: &NameResolver<'_>, path: &Path) -> bool {
    let Some(Segment::Key(first)) = path.segments().first() else { return false };
    match path.root() {
        "flow" => &**first == "input",
        root => names.shape.by_id.contains_key(root),
    }
}

/// Returns true for a path to a member that exists: of the input, of a variable, or of the output of a node that the
/// expression may name.
fn is_known(names: &NameResolver<'_>, path: &Path, locals: &Locals, span: Span) -> bool {
    let (root, segments) = (path.root(), path.segments());
    if root == "flow" {
        return match segments {
            [Segment::Key(first), _, ..] if &**first == "input" => is_input(names, &segments[1..]),
            _ => false,
        };
    }
    let is_alias = |owner: usize| names.owners[owner].alias.as_deref() == Some(root);
    locals.names.iter().any(|local| &**local == root)
        || names.enclosing_owners().any(is_alias)
        || is_variable(names, root, segments)
        || is_output(names, root, segments, span)
}

fn is_input(names: &NameResolver<'_>, segments: &[Segment]) -> bool {
    match names.known_input {
        KnownInput::Unknown => true,
        KnownInput::Schema(schema) => members::in_schema(schema, segments).is_none(),
        KnownInput::Defaults(defaults) => members::in_default(defaults, segments).is_none(),
    }
}

fn is_variable(names: &NameResolver<'_>, root: &str, segments: &[Segment]) -> bool {
    let Some(Segment::Key(first)) = segments.first() else { return false };
    names.find_owner(root).is_some_and(|owner| names.owners[owner].variables.iter().any(|name| name == first))
}

/// Returns true for a member that the type of a node declares in its output.
fn is_output(names: &NameResolver<'_>, root: &str, segments: &[Segment], span: Span) -> bool {
    let (Some(Segment::Key(first)), Some(node)) = (segments.first(), names.shape.by_id.get(root)) else { return false };
    let kind = names.types[giver::of(names, *node)].as_ref();
    let declares = |output: &serde_json::Value| output.get("properties").is_some_and(|all| all.get(&**first).is_some());
    kind.is_some_and(|kind| declares(&kind.output) && members::in_output(kind, segments).is_none())
        && reach::is_inside(names, *node, span)
        && comes_before(names, *node)
}

/// Returns true if a node ends before the expression is evaluated.
fn comes_before(names: &NameResolver<'_>, node: usize) -> bool {
    let shape = names.shape;
    let reader = match names.visible {
        Visible::All if shape.scope_of[node] == names.scope => return true,
        Visible::Before(reader) | Visible::Through(reader) | Visible::Undone(reader)
            if shape.scope_of[node] == names.scope =>
        {
            Some(reader)
        }
        _ => names.enclosing_owners().find(|owner| shape.scope_of[*owner] == shape.scope_of[node]),
    };
    reader.is_some_and(|reader| shape.ancestry.comes_before(node, reader))
}
