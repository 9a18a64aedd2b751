//! Corrections of diagnostics: changes of the text that the help of a diagnostic names.

use std::ops::Range;

use flowcell_contract::Catalog;
use flowcell_flow::{CheckContext, Diagnostic, Source};

use crate::{Edit, apply, diagnose, positions::LineIndex};

/// Maximum number of corrections of one diagnostic.
const MAX_FIXES: usize = 8;

/// A correction of a diagnostic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fix {
    /// The correction in a few words.
    pub title: String,
    /// The change of the text.
    pub edit: Edit,
}

/// Returns the bytes that a diagnostic marks.
pub fn marked(text: &str, index: &LineIndex, diagnostic: &Diagnostic) -> Range<usize> {
    let place = &diagnostic.location;
    let start = index.offset_of_column(text, place.line, place.column);
    let end = index.offset_of_column(text, place.line, place.column + place.len);
    start..end.max(start)
}

/// Returns the correction that a diagnostic carries. It is not tried.
pub fn carried(text: &str, index: &LineIndex, diagnostic: &Diagnostic) -> Option<Fix> {
    let fix = diagnostic.fix.as_ref()?;
    let [start, end] = [fix.column, fix.column + fix.len].map(|at| index.offset_of_column(text, fix.line, at));
    Some(titled(Edit { range: start..end.max(start), text: fix.text.clone() }))
}

fn titled(edit: Edit) -> Fix {
    Fix { title: format!("Write `{}`", edit.text.trim()), edit }
}

/// Returns the corrections of a diagnostic: the one that it carries, and those that its help names. Each of them was
/// tried: the text has this diagnostic no more, and no new errors. `before` are all diagnostics of the text, as
/// [`diagnose`] returns them.
pub fn fixes(
    source: &Source,
    (diagnostic, before): (&Diagnostic, &[Diagnostic]),
    catalog: &Catalog,
    context: &dyn CheckContext,
) -> Vec<Fix> {
    let index = LineIndex::new(&source.text);
    let range = marked(&source.text, &index, diagnostic);
    let carried = carried(&source.text, &index, diagnostic).map(|fix| fix.edit);
    let named = candidates(&source.text, range, diagnostic).into_iter().filter(|edit| Some(edit) != carried.as_ref());
    let candidates: Vec<_> = carried.iter().cloned().chain(named).take(MAX_FIXES).collect();
    let mut found: Vec<Fix> = Vec::new();
    for edit in candidates {
        // The same text in place of a longer part has the same title, and loses more.
        if found.iter().any(|fix| fix.edit.text == edit.text) {
            continue;
        }
        let corrected = Source { text: apply(&source.text, std::slice::from_ref(&edit)), ..source.clone() };
        let after = diagnose(&corrected, catalog, context);
        let is_same = |other: &Diagnostic| other.code == diagnostic.code && other.message == diagnostic.message;
        let count = |list: &[Diagnostic]| list.iter().filter(|other| is_same(other)).count();
        let is_new = |other: &Diagnostic| {
            before.iter().all(|known| (known.code, &known.message) != (other.code, &other.message))
        };
        // A text that YAML cannot read shows its other errors only afterwards.
        let may_add = diagnostic.code == "syntax";
        if count(&after) < count(before) && (may_add || !after.iter().any(is_new)) {
            found.push(titled(edit));
        }
    }
    found
}

/// Returns the changes that the help of a diagnostic may mean: each word in backquotes in place of the marked text, and
/// a line in place of the whole line.
fn candidates(text: &str, range: Range<usize>, diagnostic: &Diagnostic) -> Vec<Edit> {
    let Some(help) = diagnostic.help.as_deref() else { return Vec::new() };
    let words: Vec<&str> = help.split('`').skip(1).step_by(2).filter(|word| !word.contains('…')).collect();
    let mut found = Vec::new();
    if help.starts_with("did you mean")
        || help.starts_with("write")
        || help.starts_with("use")
        || help.contains("write `")
    {
        for word in words {
            if diagnostic.code == "syntax" {
                found.extend(line_edit(text, range.start, word));
            } else {
                found.extend(part_edits(text, &range, word));
                // A mark at a whole text in quotes leaves the quotes.
                let marked = &text[range.clone()];
                if marked.len() >= 2 && marked.starts_with(['"', '\'']) && marked.ends_with(['"', '\'']) {
                    found.push(Edit { range: range.start + 1..range.end - 1, text: word.to_owned() });
                }
                found.push(Edit { range: range.clone(), text: word.to_owned() });
            }
        }
    }
    found
}

/// Returns the changes that replace one part of a marked path.
fn part_edits(text: &str, range: &Range<usize>, word: &str) -> Vec<Edit> {
    let mut at = range.start;
    let parts = text[range.clone()].split('.').map(|part| {
        let start = at;
        at += part.len() + 1;
        Edit { range: start..start + part.len(), text: word.to_owned() }
    });
    let parts: Vec<_> = parts.collect();
    // The last part is the likeliest. A text without dots is replaced as a whole.
    if parts.len() < 2 || word.contains('.') { Vec::new() } else { parts.into_iter().rev().collect() }
}

/// Returns the change that replaces a line by a corrected one, with the indentation of the line unless the new one has
/// its own.
fn line_edit(text: &str, at: usize, line: &str) -> Option<Edit> {
    let start = text[..at].rfind('\n').map_or(0, |end| end + 1);
    let end = text[at..].find('\n').map_or(text.len(), |end| at + end);
    let old = &text[start..end];
    let skipped = |signs: &[char]| old.len() - old.trim_start_matches(signs).len();
    let from = match line.chars().next() {
        Some(' ') => start,
        Some('-') => start + skipped(&[' ', '\t']),
        _ => start + skipped(&[' ', '\t', '-']),
    };
    (line.trim() != old.trim()).then(|| Edit { range: from..end, text: line.to_owned() })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;
    use crate::kit::{CATALOG, Examples, diagnose};

    /// Returns the texts that the corrections of all diagnostics give.
    fn fixed(text: &str) -> Vec<String> {
        let source = Source { name: "a.yaml".into(), text: text.into() };
        let found = diagnose("a.yaml", text);
        let fixes = found.iter().flat_map(|one| fixes(&source, (one, &found), &CATALOG, &Examples));
        fixes.map(|fix| apply(text, &[fix.edit])).collect()
    }

    #[test]
    fn misspelt_words_and_broken_lines_are_corrected() {
        let node = |node: &str| format!("flow: {{ name: a, input: {{ who: Ada }} }}\nnodes:\n  - {node}\n");
        let right = node("{ id: x, type: control.noop, input: { value: \"{{ flow.input.who }}\" } }");
        for (wrong, with) in [("control.noop", "control.nop"), ("id:", "ids:"), ("input.who", "input.whom")] {
            let text = right.replacen(wrong, with, 1);
            assert!(fixed(&text).contains(&right), "{text}: {:?}", fixed(&text));
        }
        let right = "flow:\n  name: a\nnodes:\n  - id: x\n    type: control.noop\n    input:\n      value: 1\n";
        let wrong = right.replace("  - id:", "  -id:");
        assert!(fixed(&wrong).contains(&right.to_owned()), "{:?}", fixed(&wrong));
    }

    /// The misspelt part of a path is replaced, and its members stay. No other correction has the same title.
    #[test]
    fn a_misspelt_path_has_one_correction() {
        let text = "flow: { name: a }\nnodes:\n  - { id: check, type: control.if, input: { condition: true } }\n  - { id: x, \
                    type: control.noop, after: check, input: { value: '{{ chek.condition }}' } }\n";
        assert_eq!(fixed(text), [text.replace("chek", "check")]);
    }

    #[test]
    fn the_correction_that_a_diagnostic_carries_comes_first_and_is_tried() {
        let text = "flow: { name: a }\nnodes: [{ id: x, type: control.nop }]\n";
        let source = Source { name: "a.yaml".into(), text: text.into() };
        let before = diagnose("a.yaml", text);
        let texts = |diagnostic: &Diagnostic, before: &[Diagnostic]| {
            let found = fixes(&source, (diagnostic, before), &CATALOG, &Examples);
            found.into_iter().map(|fix| apply(text, &[fix.edit])).collect::<Vec<_>>()
        };
        let right = text.replace("control.nop", "control.noop");
        let column = text.lines().nth(1).unwrap().find("control.nop").unwrap() + 1;
        let carried = flowcell_flow::Fix { line: 2, column, len: "control.nop".len(), text: "control.noop".into() };
        let with = |fix: flowcell_flow::Fix, help: Option<String>| {
            let mut diagnostic = before[0].clone();
            (diagnostic.fix, diagnostic.help) = (Some(fix), help);
            diagnostic
        };
        assert_eq!(texts(&with(carried.clone(), None), &before), std::slice::from_ref(&right));
        let help = Some("write `control.if`, `control.noop` or `unknown`".to_owned());
        let found = texts(&with(carried.clone(), help), &before);
        assert_eq!(found[0], right);
        assert_eq!(found.iter().filter(|text| **text == right).count(), 1, "the same correction is offered once");
        // One beyond the text, one that breaks the text, and one of a diagnostic of something else than the text.
        let wrong = |line, text: &str| flowcell_flow::Fix { line, text: text.into(), ..carried.clone() };
        assert!(texts(&with(wrong(99, "control.noop"), None), &before).is_empty());
        assert!(texts(&with(wrong(2, "}} {"), None), &before).is_empty());
        assert!(texts(&with(flowcell_flow::Fix { column: 9_999, ..carried.clone() }, None), &before).is_empty());
        assert!(texts(&before[0], &[]).is_empty());
    }

    #[test]
    fn a_diagnostic_without_a_word_to_write_has_no_correction() {
        assert!(fixed("flow: { name: a }\n").is_empty());
        assert!(fixed("flow: { name: a }\nnodes: [{ id: 'a b', type: control.noop }]\n").is_empty());
    }
}
