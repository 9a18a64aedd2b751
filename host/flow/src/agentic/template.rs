//! Prompts: texts with the placeholders `${args.key}`, `${args}` and `${step.iteration}`.

use crate::{
    agentic::placeholder::{ARGUMENT_HELP, Placeholder, PlaceholderValues, STEP_HELP, quoted},
    diagnostic::{Diagnostics, similar},
    fields::for_message,
    literal::escaped,
    yaml::{Tree, place},
};

/// A parsed prompt.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Template(Vec<Piece>);

#[derive(Clone, Debug, PartialEq)]
enum Piece {
    Text(String),
    Placeholder(Placeholder),
}

impl Template {
    /// Reads a prompt. Placeholders of any other form stay as plain text, with a warning if they look like misspelled
    /// arguments.
    pub(crate) fn read(tree: &Tree, diagnostics: &mut Diagnostics<'_>) -> Template {
        let written = tree.text().unwrap_or_default();
        let (mut pieces, mut at) = (Vec::new(), 0);
        let mut plain = String::new();
        while let Some(open) = written[at..].find("${").map(|open| at + open) {
            plain.push_str(&written[at..open]);
            let inside = &written[open + 2..];
            let length = inside.find(['}', '\n', '$']).unwrap_or(inside.len());
            let closed = inside[length..].starts_with('}');
            let (inside, end) = (&inside[..length], open + 2 + length + usize::from(closed));
            match Placeholder::parse(inside).filter(|_| closed) {
                Some(placeholder) => {
                    pieces.push(Piece::Text(std::mem::take(&mut plain)));
                    pieces.push(Piece::Placeholder(placeholder));
                }
                None => {
                    report(tree, (inside, closed), open..end, diagnostics);
                    plain.push_str(&written[open..end]);
                }
            }
            at = end;
        }
        plain.push_str(&written[at..]);
        pieces.push(Piece::Text(plain));
        Template(pieces)
    }

    /// Returns the binding that renders the prompt. If an argument is missing, rendering fails with an error that names
    /// the argument.
    pub(crate) fn binding(&self, values: PlaceholderValues<'_>) -> String {
        let piece = |piece: &Piece| match piece {
            Piece::Text(text) => escaped(text),
            Piece::Placeholder(all) if all.is_all() => format!("{{{{ {} | tojson }}}}", all.expression(values)),
            Piece::Placeholder(one) => {
                let (value, name) = (one.expression(values), quoted(&one.to_string()));
                format!("{{{{ {value} | required({name}) | string }}}}")
            }
        };
        self.0.iter().map(piece).collect()
    }

    /// Returns the placeholders in the prompt.
    pub(crate) fn placeholders(&self) -> impl Iterator<Item = &Placeholder> {
        self.0.iter().filter_map(|piece| match piece {
            Piece::Text(_) => None,
            Piece::Placeholder(placeholder) => Some(placeholder),
        })
    }

    /// Returns true if the prompt contains only white space.
    pub(crate) fn is_blank(&self) -> bool {
        self.0.iter().all(|piece| matches!(piece, Piece::Text(text) if text.trim().is_empty()))
    }
}

/// Reports a placeholder, which has a `}` if it is `closed`, that stays plain text but was probably meant as an argument.
fn report(
    tree: &Tree,
    (inside, closed): (&str, bool),
    bytes: std::ops::Range<usize>,
    diagnostics: &mut Diagnostics<'_>,
) {
    let word = inside.trim().split(|sign: char| !sign.is_ascii_alphanumeric()).next().unwrap_or_default();
    // Finding the position in a long text is slow, so it is skipped for diagnostics that are not shown.
    let span = if diagnostics.is_full() { tree.span } else { place(tree, "", Some(bytes)) };
    let written = format!("`${{{}}}`", for_message(inside));
    match word {
        "args" if !closed => {
            let help = match Placeholder::parse(inside) {
                Some(placeholder) => format!("write `${{{placeholder}}}`"),
                None => ARGUMENT_HELP.to_owned(),
            };
            let message = format!("`${{{}` lacks its `}}`", for_message(inside));
            diagnostics.error("bad_template", span, message, Some(help));
        }
        "args" => diagnostics.error(
            "bad_template",
            span,
            format!("{written} does not select an argument"),
            Some(ARGUMENT_HELP.into()),
        ),
        "step" if inside.trim().starts_with("step.") => diagnostics.warning(
            "unknown_placeholder",
            span,
            format!("{written} is plain text in a prompt"),
            Some(STEP_HELP.into()),
        ),
        word if similar(word, ["args"]).is_some() || word.starts_with("args") => {
            let help = "did you mean `${args.…}`?".to_owned();
            diagnostics.warning(
                "unknown_placeholder",
                span,
                format!("{written} is plain text in a prompt"),
                Some(help),
            );
        }
        _ => {}
    }
}
