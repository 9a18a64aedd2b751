//! Explains wrong indentation in YAML and suggests a correction.

use crate::{
    lines::{line_at, offset, place, write_help},
    yaml::{Span, SyntaxError},
};

/// A level of indentation: a column at which a further line can start, because a map or list that is still open starts
/// there.
#[derive(Clone, Copy)]
struct Level {
    indent: usize,
    is_item: bool,
    /// Line number, from 1.
    line: usize,
}

/// Finds a tab in the indentation of the error's line or the next one.
pub(crate) fn find_tab(text: &str, span: Span) -> Option<SyntaxError> {
    let first = offset(text, Span { column: 1, ..span })?;
    let mut start = first;
    for line in text[first..].split_inclusive('\n').take(2) {
        let blank = line.len() - line.trim_start_matches([' ', '\t']).len();
        if let Some(tab) = line[..blank].find('\t') {
            let written = format!("{}{}", line[..blank].replace('\t', "  "), line[blank..].trim_end());
            let message = "YAML does not allow tabs for indentation".to_owned();
            let help = Some(format!("indent with spaces: {}", write_help(&written)));
            return Some(SyntaxError { span: place(text, start + tab), message, help });
        }
        start += line.len();
    }
    None
}

/// Finds a `-` or `:` that lacks its space, in the last line before the line at which the parser stopped.
pub(crate) fn missing_space(text: &str, at: usize) -> Option<SyntaxError> {
    let (start, _) = line_at(text, at);
    let before = text[..start].trim_end();
    let (start, line) = line_at(text, before.len());
    let mut content = line.trim_start();
    if let Some(rest) = content.strip_prefix('-').filter(|rest| rest.starts_with(|sign: char| sign.is_alphabetic())) {
        let dash = start + (line.len() - content.len());
        return Some(without_space(text, dash, "-", &format!("- {rest}")));
    }
    while let Some(rest) = content.strip_prefix("- ") {
        content = rest.trim_start();
    }
    let (key, value) = content.split_once(':')?;
    let is_word = !key.is_empty() && key.chars().all(|sign| sign.is_alphanumeric() || matches!(sign, '_' | '-'));
    let is_value = value.starts_with(|sign: char| !sign.is_whitespace() && sign != '/' && sign != ':');
    let colon = start + (line.len() - content.len()) + key.len();
    (is_word && is_value).then(|| without_space(text, colon, ":", &format!("{key}: {value}")))
}

fn without_space(text: &str, at: usize, sign: &str, line: &str) -> SyntaxError {
    let message = format!("a space is missing after `{sign}`");
    SyntaxError { span: place(text, at), message, help: Some(write_help(line)) }
}

/// Finds a line whose indentation matches no open level above it.
pub(crate) fn wrong_indentation(text: &str, at: usize) -> Option<SyntaxError> {
    let (start, line) = line_at(text, at);
    let content = line.trim_start();
    let indent = line.len() - content.len();
    let at_start = text.get(start + indent..at).is_some_and(|before| before.trim_matches(['-', ' ']).is_empty());
    let at_colon = content.find(':').is_some_and(|colon| start + indent + colon == at);
    if content.is_empty() || !(at_start || at_colon) {
        return None;
    }
    let near = nearest(&levels(&text[..start]), indent, is_item(content));
    let help = match near.as_slice() {
        [] => return None,
        [level] => {
            format!("indent it {}: {}", like(level), write_help(&format!("{}{content}", " ".repeat(level.indent))))
        }
        [one, other, ..] => format!("indent it {}, or {}", like(one), like(other)),
    };
    let span = Span { len: content.chars().count(), ..place(text, start + indent) };
    let message = "the indentation of this line matches no line above it".to_owned();
    Some(SyntaxError { span, message, help: Some(help) })
}

fn like(level: &Level) -> String {
    let plural = if level.indent == 1 { "" } else { "s" };
    format!("with {} space{plural}, like line {}", level.indent, level.line)
}

fn is_item(content: &str) -> bool {
    content == "-" || content.starts_with("- ")
}

/// Returns the open levels that are nearest to the column `indent`: those of list items if `is_item` is true, otherwise
/// those of keys. Returns no levels if one of them has exactly this column.
fn nearest(levels: &[Level], indent: usize, is_item: bool) -> Vec<Level> {
    let fitting = || levels.iter().filter(|level| level.is_item == is_item);
    let distance = |level: &&Level| level.indent.abs_diff(indent);
    match fitting().map(|level| distance(&level)).min() {
        None | Some(0) => Vec::new(),
        Some(least) => fitting().filter(|level| distance(level) == least).copied().collect(),
    }
}

/// Returns the levels that are still open after the text `before`, the deepest first.
fn levels(before: &str) -> Vec<Level> {
    let mut levels: Vec<Level> = Vec::new();
    let mut lowest = usize::MAX;
    let count = before.lines().count();
    for (index, line) in before.lines().rev().enumerate() {
        let of_line = levels_of_line(line, count - index);
        for level in of_line.iter().rev() {
            let known = levels.iter().any(|known| (known.indent, known.is_item) == (level.indent, level.is_item));
            if level.indent < lowest || (level.indent == lowest && !known) {
                levels.push(*level);
            }
        }
        lowest = of_line.first().map_or(lowest, |first| lowest.min(first.indent));
    }
    levels
}

/// Returns the levels that start in a line: one for each `- ` at its beginning, and one for its key.
fn levels_of_line(line: &str, number: usize) -> Vec<Level> {
    let mut content = line.trim_start();
    let mut levels = Vec::new();
    if content.starts_with('#') || content.starts_with("---") {
        return levels;
    }
    while is_item(content) {
        levels.push(Level { indent: line.len() - content.len(), is_item: true, line: number });
        content = content[1..].trim_start();
    }
    if content.contains(':') {
        levels.push(Level { indent: line.len() - content.len(), is_item: false, line: number });
    }
    levels
}
