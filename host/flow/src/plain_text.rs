//! Texts that look like expressions and are plain text.

use flowcell_expr::{Path, is_one_expression, paths_in_braces, statements};

use crate::{
    diagnostic::Diagnostics,
    fields::for_message,
    yaml::{Entry, Kind, Span, Tree, place},
};

/// Warns of forms of other languages that are plain text in every field: Jinja statements, the sign `=` before a
/// `{{ }}`, and `{{ }}` in keys. Gives at most one warning for each text.
pub(crate) fn warn(tree: &Tree, diagnostics: &mut Diagnostics<'_>) {
    match &tree.kind {
        Kind::Scalar(json) => {
            let text = json.as_str().unwrap_or_default();
            warn_of_sign(tree, text, diagnostics);
            let Some(found) = statements(text).into_iter().next() else { return };
            let written = found.word.map_or("{# … #}".to_owned(), |word| format!("{{% {word} … %}}"));
            let message = format!("`{written}` is plain text here; only `{{{{ }}}}` is evaluated");
            let span = place(tree, "", Some(found.offset));
            diagnostics.warning("statement_as_text", span, message, Some(statement_help(found.word)));
        }
        Kind::List(items) => items.iter().for_each(|item| warn(item, diagnostics)),
        Kind::Map(entries) => {
            for entry in entries {
                warn_of_key(entry, diagnostics);
                warn(&entry.value, diagnostics);
            }
        }
    }
}

/// Warns of a `=` directly before a text that is a single `{{ }}`.
fn warn_of_sign(tree: &Tree, text: &str, diagnostics: &mut Diagnostics<'_>) {
    let Some(behind) = text.strip_prefix('=').filter(|behind| is_one_expression(behind)) else { return };
    let message = "the `=` is plain text here, and makes a text of the value";
    let help = format!("remove it: write `{}`", for_message(behind));
    diagnostics.warning("sign_as_text", place(tree, "", Some(0..1)), message, Some(help));
}

/// Warns of `{{ }}` in a key.
fn warn_of_key(entry: &Entry, diagnostics: &mut Diagnostics<'_>) {
    let inside = entry.key.split_once("{{").and_then(|(_, rest)| rest.split_once("}}"));
    if let Some((inside, _)) = inside {
        let inside = for_message(inside.trim());
        let message = format!("`{{{{ {inside} }}}}` is plain text in a key; only values are evaluated");
        let help = format!("compute the whole object: `{{{{ {{{inside}: value}} }}}}`");
        diagnostics.warning("key_as_text", entry.key_span, message, Some(help));
    }
}

/// Maximum number of paths in braces that are checked per text.
const MAX_BRACED_PATHS: usize = 64;

/// Returns the paths in braces in all texts.
pub(crate) fn find_braced_paths(tree: &Tree) -> Vec<(Path, String, Span)> {
    match &tree.kind {
        Kind::Scalar(json) => {
            let text = json.as_str().unwrap_or_default();
            let found = paths_in_braces(text).into_iter().take(MAX_BRACED_PATHS);
            let written = |offset: &std::ops::Range<usize>| text.get(offset.clone()).unwrap_or_default().to_owned();
            found.map(|(path, offset)| (path, written(&offset), place(tree, "", Some(offset)))).collect()
        }
        Kind::List(items) => items.iter().flat_map(find_braced_paths).collect(),
        Kind::Map(entries) => entries.iter().flat_map(|entry| find_braced_paths(&entry.value)).collect(),
    }
}

/// Maximum size in bytes of a text that is read as a path.
const MAX_BARE_BYTES: usize = 256;

/// Returns the paths of all texts that are a path with at least two parts and nothing else.
pub(crate) fn find_bare_paths(tree: &Tree) -> Vec<(Path, Span)> {
    match &tree.kind {
        Kind::Scalar(json) => {
            let text = json.as_str().filter(|text| text.len() <= MAX_BARE_BYTES && text.contains(['.', '[']));
            let path = text.and_then(|text| Path::parse(text).ok()).filter(|path| !path.segments().is_empty());
            path.map(|path| (path, tree.span)).into_iter().collect()
        }
        Kind::List(items) => items.iter().flat_map(find_bare_paths).collect(),
        Kind::Map(entries) => entries.iter().flat_map(|entry| find_bare_paths(&entry.value)).collect(),
    }
}

/// Returns the help text for a Jinja statement.
fn statement_help(word: Option<&str>) -> String {
    let help = match word {
        None => "move the comment out of the text, as `# …`",
        Some("if" | "elif" | "else" | "endif") => "write `{{ a if condition else b }}`",
        Some("for" | "endfor") => "write `{{ list | join(\", \") }}`, or compute the text with `data.map` first",
        Some("raw" | "endraw") => "write `{{ \"{{\" }}` for a literal `{{`",
        Some(_) => "write the value in `{{ }}`",
    };
    help.to_owned()
}
