//! Completions of keys, values, names and expressions.
//!
//! The module puts a placeholder into the text at the cursor, so that the reader finds the same tree as if a word were
//! there. The completions fit the rest of the text: a type fits the input of its node, an edge without a condition
//! closes no cycle, and an expression names visible values only. The likeliest completion comes first.

mod compared;
mod expressions;
mod files;
mod keys;
mod links;
mod new_edges;
mod steps;
mod types;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod words;

use std::ops::Range;

use crate::{
    Document, Edit,
    expression::is_plain_name,
    flow::Flow,
    is_too_large,
    locate::{Role, Target, locate},
    reading::{Style, Value, read},
    scalar::Scalar,
    schemas::Schema,
    spots,
};

/// Maximum number of completions that are offered at a place.
pub const MAX_COMPLETIONS: usize = 200;

/// The placeholder at the cursor.
const MARK: &str = "q0typed0q";

/// The kind of a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletionKind {
    /// A key of a map.
    Key,
    /// A value from a list.
    Value,
    /// A node type.
    NodeType,
    /// The id of a node, or another name of a value.
    Name,
    /// A member of a value.
    Member,
    /// A filter, test or function.
    Function,
    /// A flow, a secret or an agent.
    Reference,
    /// A file.
    File,
}

/// Something that can be written at a place.
#[derive(Clone, Debug, PartialEq)]
pub struct Completion {
    /// The word as lists show it.
    pub label: String,
    /// Its kind.
    pub kind: CompletionKind,
    /// A few words about it.
    pub detail: String,
    /// Its documentation, as Markdown. May be empty.
    pub documentation: String,
    /// The change that writes it.
    pub edit: Edit,
}

/// A completion without its place in the text.
struct Offer {
    label: String,
    kind: CompletionKind,
    detail: String,
    documentation: String,
    insert: String,
}

impl Offer {
    fn new(label: impl Into<String>, kind: CompletionKind, detail: impl Into<String>) -> Offer {
        let label = label.into();
        Offer { insert: label.clone(), label, kind, detail: detail.into(), documentation: String::new() }
    }

    fn with_documentation(self, documentation: impl Into<String>) -> Offer {
        Offer { documentation: documentation.into(), ..self }
    }

    fn with_insert(self, insert: impl Into<String>) -> Offer {
        Offer { insert: insert.into(), ..self }
    }
}

/// The text with the mark.
struct Marked {
    file: String,
    /// The byte of the mark.
    mark: usize,
    /// The number of bytes that were added.
    added: usize,
    /// True if a space was put before the mark, because a key and its value need one.
    has_space: bool,
}

impl Marked {
    fn new(text: &str, at: usize) -> Marked {
        let line = &text[text[..at].rfind('\n').map_or(0, |end| end + 1)..at];
        let ends_line = text[at..].starts_with(['\n', '\r', ' ']) || at == text.len();
        let is_key = line.trim_start().trim_start_matches("- ").strip_suffix(':').is_some_and(is_plain_name);
        let has_space = ends_line && (is_key || line.trim() == "-") && !line.ends_with(' ');
        let word = if has_space { format!(" {MARK}") } else { MARK.to_owned() };
        let mark = at + usize::from(has_space);
        Marked { file: format!("{}{word}{}", &text[..at], &text[at..]), mark, added: word.len(), has_space }
    }

    /// Returns the letters of the word before the cursor, in lower case.
    fn typed(&self) -> String {
        let before = &self.file[..self.mark];
        let is_part = |sign: char| sign.is_alphanumeric() || matches!(sign, '_' | '-');
        let start = before.trim_end_matches(is_part).len();
        before[start..].to_lowercase()
    }

    /// Returns the bytes of the text without the mark.
    fn original(&self, range: &Range<usize>) -> Range<usize> {
        let start = self.mark - usize::from(self.has_space);
        let place = |at: usize| if at <= start { at } else { at.saturating_sub(self.added).max(start) };
        place(range.start)..place(range.end)
    }
}

/// The place of a completion in the marked text.
struct Context<'c> {
    document: &'c Document<'c>,
    marked: &'c Marked,
    flow: &'c Flow<'c>,
}

/// Returns what can be written at a byte of a flow's text, the likeliest first.
pub fn complete(document: &Document<'_>, at: usize) -> Vec<Completion> {
    if is_too_large(document.text) {
        return Vec::new();
    }
    let at = document.text.floor_char_boundary(at);
    let marked = Marked::new(document.text, at);
    let root = read(&marked.file);
    let flow = Flow::at(&marked.file, &root, document.catalog, marked.mark);
    let context = Context { document, marked: &marked, flow: &flow };
    let (offers, word) = context.offers();
    let typed = marked.file[word.start.min(marked.mark)..marked.mark].to_lowercase();
    let range = marked.original(&word);
    let starts = |offer: &Offer| offer.label.to_lowercase().starts_with(&typed);
    let contains = |offer: &Offer| offer.label.to_lowercase().contains(&typed);
    let any_starts = offers.iter().any(starts);
    let fitting = offers.into_iter().filter(|offer| if any_starts { starts(offer) } else { contains(offer) });
    let finish = |offer: Offer| {
        let Offer { label, kind, detail, documentation, insert } = offer;
        let text = if marked.has_space { format!(" {insert}") } else { insert };
        Completion { label, kind, detail, documentation, edit: Edit { range: range.clone(), text } }
    };
    fitting.take(MAX_COMPLETIONS).map(finish).collect()
}

impl Context<'_> {
    /// Returns what can be written, and the bytes of the word in the marked text that it replaces.
    fn offers(&self) -> (Vec<Offer>, Range<usize>) {
        let inside = self.marked.mark + 1;
        if let Some(found) = self.in_expression(inside).or_else(|| steps::in_reference(self, inside)) {
            return found;
        }
        let nothing = || (Vec::new(), self.marked.mark..self.marked.mark + MARK.len());
        let Some(located) = locate(self.flow, inside) else { return nothing() };
        let mut word = located.target.range(&self.marked.file);
        let arguments = located.arguments(self.flow);
        let schemas = match &arguments {
            Some((schema, steps)) => Schema::new(schema).follow(steps),
            None => located.schemas(self.flow),
        };
        let role = located.role(self.flow);
        match located.target {
            Target::Key(map, member) => (keys::keys(self, &located, &schemas, Some((map, member)), role), word),
            Target::Value(value) => {
                if is_comment(&self.marked.file, self.marked.mark, value) {
                    return nothing();
                }
                let mut offers = match role {
                    Role::NodeType => types::types(self, &located),
                    Role::EdgeText => {
                        let Some(scalar) = Scalar::new(&self.marked.file, value) else { return nothing() };
                        let (offers, part) = links::edge_text(self, &located, &scalar);
                        word = scalar.range_to_file(&part);
                        offers
                    }
                    Role::After | Role::Body | Role::Undo | Role::EdgeFrom | Role::EdgeTo => {
                        links::ids(self, &located, role)
                    }
                    Role::Fragment => keys::fragments(self, value),
                    Role::FlowName => references(self.document.surroundings.flows(), "a flow"),
                    Role::File => files::files(self, &located, value),
                    Role::Secret => references(self.document.surroundings.secrets(), "a secret"),
                    Role::Tool => types::tools(self, &located),
                    Role::Agent => steps::agents(self),
                    Role::NextStep => steps::next_steps(self, &located),
                    Role::Grant | Role::Other => keys::values(self, &located, &schemas, value),
                };
                // A bare word may be the first key of a map, but not beside an arrow.
                let is_bare = value.style() == Some(Style::Plain)
                    && !(role == Role::EdgeText && self.marked.file[value.range.clone()].contains("->"));
                if is_bare && offers.is_empty() && schemas.iter().any(|schema| schema.types().contains(&"object")) {
                    offers = keys::keys(self, &located, &schemas, None, role);
                }
                (offers, word)
            }
        }
    }

    /// Returns what can be written in the `{{ }}` or the condition at a byte.
    fn in_expression(&self, inside: usize) -> Option<(Vec<Offer>, Range<usize>)> {
        let mut found = None;
        spots::each(self.flow, Some(&(inside..inside)), &mut |spot| {
            let at = spot.scalar.offset_of(inside);
            let is_here = spot.part.start <= at && at <= spot.part.end;
            if found.is_none() && is_here && spot.scalar.text[spot.part.clone()].contains(MARK) {
                found = Some(expressions::offers(self, &spot));
            }
        });
        found
    }
}

fn references(names: Vec<String>, detail: &str) -> Vec<Offer> {
    names.into_iter().map(|name| Offer::new(name, CompletionKind::Reference, detail)).collect()
}

/// Returns true if the mark stands behind a value, as in a comment.
fn is_comment(file: &str, mark: usize, value: &Value) -> bool {
    !file[value.range.clone()].contains(MARK) || value.range.end < mark
}

/// Writes a text so that YAML reads it as this text.
fn quoted(text: &str, style: Style) -> String {
    let is_plain = |sign: char| sign.is_ascii_alphanumeric() || matches!(sign, '_' | '-' | '.' | '/' | '@' | '+');
    let starts = text.starts_with(|sign: char| sign.is_ascii_alphabetic() || sign == '_');
    let is_word = matches!(text, "true" | "false" | "null");
    match style {
        Style::Double => {
            let escaped = serde_json::Value::from(text).to_string();
            escaped[1..escaped.len() - 1].to_owned()
        }
        Style::Single => text.replace('\'', "''"),
        Style::Plain if !(starts && !is_word && text.chars().all(is_plain)) => {
            serde_json::Value::from(text).to_string()
        }
        Style::Plain | Style::Block => text.to_owned(),
    }
}
