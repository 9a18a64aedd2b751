//! Prompts: texts in which `${args.key}` and `${args}` are replaced.

use crate::{
    agentic::argument::{Argument, WRITTEN, quoted},
    diagnostic::{Findings, similar},
    fields::shown,
    input,
    literal::escaped,
    yaml::Tree,
};

/// A prompt, taken apart.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Template(Vec<Piece>);

#[derive(Clone, Debug, PartialEq)]
enum Piece {
    Text(String),
    Argument(Argument),
}

impl Template {
    /// Reads a prompt. Placeholders of other things stay as they are, unless arguments were probably meant.
    pub(crate) fn read(tree: &Tree, findings: &mut Findings<'_>) -> Template {
        let written = tree.text().unwrap_or_default();
        let (mut pieces, mut at) = (Vec::new(), 0);
        let mut plain = String::new();
        while let Some(open) = written[at..].find("${").map(|open| at + open) {
            plain.push_str(&written[at..open]);
            let inside = &written[open + 2..];
            let length = inside.find(['}', '\n', '$']).unwrap_or(inside.len());
            let closed = inside[length..].starts_with('}');
            let (inside, end) = (&inside[..length], open + 2 + length + usize::from(closed));
            match Argument::parse(inside).filter(|_| closed) {
                Some(argument) => {
                    pieces.push(Piece::Text(std::mem::take(&mut plain)));
                    pieces.push(Piece::Argument(argument));
                }
                None => {
                    tell(tree, inside, open..end, findings);
                    plain.push_str(&written[open..end]);
                }
            }
            at = end;
        }
        plain.push_str(&written[at..]);
        pieces.push(Piece::Text(plain));
        Template(pieces)
    }

    /// The binding that renders it, if `args` is the expression of all arguments. A missing argument fails with its name.
    pub(crate) fn binding(&self, args: &str) -> String {
        let piece = |piece: &Piece| match piece {
            Piece::Text(text) => escaped(text),
            Piece::Argument(all) if all.is_all() => format!("{{{{ {args} | tojson }}}}"),
            Piece::Argument(one) => {
                let (value, name) = (one.expression(args), quoted(&one.to_string()));
                format!("{{{{ {value} | required({name}) | string }}}}")
            }
        };
        self.0.iter().map(piece).collect()
    }

    /// The arguments that it names.
    pub(crate) fn arguments(&self) -> impl Iterator<Item = &Argument> {
        self.0.iter().filter_map(|piece| match piece {
            Piece::Text(_) => None,
            Piece::Argument(argument) => Some(argument),
        })
    }

    /// Whether it says nothing.
    pub(crate) fn is_blank(&self) -> bool {
        self.0.iter().all(|piece| matches!(piece, Piece::Text(text) if text.trim().is_empty()))
    }
}

/// Tells of a placeholder that is not replaced, but looks as if it should be.
fn tell(tree: &Tree, inside: &str, bytes: std::ops::Range<usize>, findings: &mut Findings<'_>) {
    let word = inside.trim().split(|sign: char| !sign.is_ascii_alphanumeric()).next().unwrap_or_default();
    // Finding a place in a long text takes its time.
    let span = if findings.is_full() { tree.span } else { input::place(tree, "", Some(bytes)) };
    let written = format!("`${{{}}}`", shown(inside));
    match word {
        "args" => findings.error("bad_template", span, format!("{written} names no argument"), Some(WRITTEN.into())),
        word if similar(word, ["args"]).is_some() || word.starts_with("args") => {
            let help = "did you mean `${args.…}`?".to_owned();
            findings.warning("unknown_placeholder", span, format!("{written} is plain text in a prompt"), Some(help));
        }
        _ => {}
    }
}
