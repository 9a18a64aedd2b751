//! Writes edges in a form.

use std::ops::Range;

use flowcell_contract::Json;

use super::{
    EdgeForm,
    text::{end_of, has_comment, indented},
};
use crate::{
    edges::{INBOUND_KEY, MAX_PASSES_KEY, RawEdge},
    graph::On,
    ports::PortMap,
    yaml::{self, Tree},
};

/// Reads and writes the edges in the text of a flow.
pub(super) struct Rewriter<'a> {
    pub(super) text: &'a str,
    pub(super) form: EdgeForm,
    /// True if the flow is written in JSON.
    pub(super) is_json: bool,
}

impl Rewriter<'_> {
    /// Returns the bytes of an item in the text; `None` if they are not certain, or if a comment stands among them, or a tag
    /// such as `!!map` or the sign of a text in lines before them. The next item begins at `next`, so that a quote which
    /// ends nowhere is not sought in the whole text.
    pub(super) fn range(&self, item: &Tree, next: usize) -> Option<Range<usize>> {
        let start = item.span.start;
        let end = end_of(self.text.get(..next)?, item)?;
        let written = self.text.get(start..end)?;
        let before = self.text[..start].trim_end().rsplit([' ', '\t', '\n', ',', '[', '{']).next();
        let has_tag = before.is_some_and(|before| before.starts_with(['!', '>', '|']));
        let read = yaml::parse(&indented(written, item.span.column));
        let is_certain = !has_comment(written) && !has_tag && read.is_ok_and(|read| read.json() == item.json());
        is_certain.then_some(start..end)
    }

    /// Returns the text between two edges that take the place of one item: a new line, if only a dash stands before the item.
    pub(super) fn separator(&self, start: usize) -> String {
        let blank = [' ', '\t'];
        let dash = self.text[..start].trim_end_matches(blank).strip_suffix('-');
        match dash.map(|before| before.trim_end_matches(blank)) {
            Some(before) if before.is_empty() || before.ends_with('\n') => {
                format!("\n{}", &self.text[before.len()..start])
            }
            _ => ", ".to_owned(),
        }
    }

    /// Writes an edge; `None` if the form cannot express it.
    pub(super) fn write(&self, edge: &RawEdge<'_>, ports: &mut PortMap<'_>) -> Option<String> {
        match self.form {
            // The meaning of a label is unknown if a parameter of a fragment gives the type of the node.
            _ if edge.label.is_some() => None,
            EdgeForm::Long => Some(self.long(edge)),
            EdgeForm::Short => self.short(edge, ports),
        }
    }

    fn short(&self, edge: &RawEdge<'_>, ports: &mut PortMap<'_>) -> Option<String> {
        if edge.max_passes.is_some() || edge.orders_only {
            return None;
        }
        let label = match (&edge.when, edge.on) {
            (Some(when), On::Success) => Some(ports.label(&edge.from.0, &when.json())?),
            (Some(_), _) => return None,
            (None, On::Success) => None,
            (None, On::Error) => Some("error".to_owned()),
            (None, On::End) => Some("end".to_owned()),
        };
        let edge = format!("{} -> {}", edge.from.0, edge.to.0);
        Some(match label {
            Some(label) => Json::from(format!("{edge}: {label}")).to_text(),
            None if self.is_json => Json::from(edge).to_text(),
            None => edge,
        })
    }

    /// Writes an edge as a map.
    pub(super) fn long(&self, edge: &RawEdge<'_>) -> String {
        let on = match edge.on {
            On::Success => None,
            On::Error => Some("error"),
            On::End => Some("end"),
        };
        let ends = [("from", edge.from.0.as_str().into()), ("to", edge.to.0.as_str().into())];
        let on = on.map(|on| ("on", on.into()));
        let when = edge.when.as_ref().map(|when| ("when", when.json()));
        let passes = edge.max_passes.map(|(number, _)| (MAX_PASSES_KEY, number.into()));
        let inbound = edge.orders_only.then(|| (INBOUND_KEY, Json::Bool(false)));
        let edge = Json::object(ends.into_iter().chain(on).chain(when).chain(inbound).chain(passes));
        if self.is_json { edge.to_text() } else { yaml_text(&edge) }
    }
}

/// Writes a value as YAML on one line.
fn yaml_text(value: &Json) -> String {
    match value {
        Json::Object(members) => {
            let members: Vec<_> = members.iter().map(|(key, member)| format!("{key}: {}", yaml_text(member))).collect();
            format!("{{ {} }}", members.join(", "))
        }
        Json::String(text) if is_plain(text) => text.to_string(),
        other => other.to_text(),
    }
}

/// Returns true if a text needs no quotes: YAML reads it as a text.
fn is_plain(text: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(is_word)
        && yaml::parse(text).is_ok_and(|read| read.text() == Some(text))
}
