//! `$inputs.name` and `$ctx.name.path`, as they are written.

/// What a reference begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Root {
    /// What the caller gives.
    Inputs,
    /// What steps have saved.
    Ctx,
}

/// A text that stands for a value.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Reference<'t> {
    pub(super) root: Root,
    pub(super) name: &'t str,
    /// The way from there to a part of it; empty for all of it.
    pub(super) path: Vec<&'t str>,
}

/// Reads a text that is a reference and nothing else; none if it means itself.
pub(super) fn parse(text: &str) -> Option<Reference<'_>> {
    let inputs = text.strip_prefix("$inputs.").map(|rest| (Root::Inputs, rest));
    let (root, rest) = inputs.or_else(|| Some((Root::Ctx, text.strip_prefix("$ctx.")?)))?;
    let mut words = rest.split('.');
    let name = words.next()?;
    let path: Vec<_> = words.collect();
    let all_words = is_word(name) && path.iter().all(|word| is_word(word));
    all_words.then_some(Reference { root, name, path })
}

/// Whether a reference can name it.
pub(super) fn is_word(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-'))
}

impl Reference<'_> {
    /// The way on, in the expression language. A number takes an item of a list.
    pub(super) fn subscripts(&self) -> String {
        self.path.iter().map(|word| subscript(word)).collect()
    }
}

/// A step from a value to a part of it, in the expression language.
fn subscript(word: &str) -> String {
    let is_index = word.len() <= 9 && word.bytes().all(|byte| byte.is_ascii_digit());
    if is_index { format!("[{}]", word.parse().unwrap_or(0_u32)) } else { format!("[\"{word}\"]") }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn a_reference_is_a_whole_text() {
        let read = parse("$ctx.raw-data.rows.0.größe").unwrap();
        assert_eq!((read.root, read.name), (Root::Ctx, "raw-data"));
        assert_eq!(read.subscripts(), r#"["rows"][0]["größe"]"#);
        assert_eq!(parse("$inputs.day").unwrap().subscripts(), "");
        let literals = [
            "",
            "$",
            "$ctx",
            "$ctx.",
            "$inputs",
            "$ctx..a",
            "$ctx.a.",
            "$ctx.a b",
            " $ctx.a",
            "$ctx.a ",
            "$ctx.a\n",
            "x $ctx.a",
            "$CTX.a",
            "$$ctx.a",
            "$context.a",
            "${ctx.a}",
            "$ctx.a[0]",
            "$ctx.{{ a }}",
            "$ctx.\"a\"",
        ];
        for literal in literals {
            assert_eq!(parse(literal), None, "{literal}");
        }
    }
}
