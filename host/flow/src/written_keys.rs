//! Warns of keys of `hmac` that are texts in the flow.

use flowcell_expr::{Path, Segment};

use crate::{
    diagnostic::Diagnostics,
    fields::for_message,
    yaml::{Span, Tree},
};

/// Warns if the value at a path, which is a key of `hmac`, is a text in the field of the input whose members are names of
/// another field.
pub(crate) fn warn_of_value(values: &Tree, path: &Path, span: Span, diagnostics: &mut Diagnostics<'_>) {
    let members: Vec<&str> = std::iter::once(path.root()).chain(path.segments().iter().map_while(key)).collect();
    if is_written(values, &members) {
        warn(path, "is", span, diagnostics);
    }
}

/// Returns the key of a segment; `None` for an index.
pub(crate) fn key(segment: &Segment) -> Option<&str> {
    match segment {
        Segment::Key(key) => Some(key),
        _ => None,
    }
}

/// Returns true if a member of a value is a text without `{{ }}`.
pub(crate) fn is_written(value: &Tree, members: &[&str]) -> bool {
    let member = members.iter().try_fold(value, |value, member| value.member(member));
    let text = member.filter(|_| !members.is_empty()).and_then(Tree::text);
    text.is_some_and(|text| !text.is_empty() && !text.contains("{{"))
}

/// Warns of a key at a path. `is` begins the sentence about it.
pub(crate) fn warn(path: &Path, is: &str, span: Span, diagnostics: &mut Diagnostics<'_>) {
    let message = format!("the key of `hmac`, `{}`, {is} a text in the flow", for_message(&path.to_string()));
    let help =
        "every reader of the flow knows it: take the key from an input without a default, such as `flow.input.key`";
    diagnostics.warning("written_key", span, message, Some(help.into()));
}
