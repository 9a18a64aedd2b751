//! Parses the references `$inputs.name`, `$ctx.name.path` and `$facts.name.path`.

/// The root name of a reference: `$inputs`, `$ctx` or `$facts`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Root {
    /// The inputs of the run.
    Inputs,
    /// The saved results of steps.
    Ctx,
    /// The facts about the run.
    Facts,
}

/// The root names as flows write them.
const ROOTS: [(&str, Root); 3] = [("$inputs.", Root::Inputs), ("$ctx.", Root::Ctx), ("$facts.", Root::Facts)];

/// A parsed reference.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Reference<'t> {
    pub(super) root: Root,
    pub(super) name: &'t str,
    /// Path to a part of the value; empty for the whole value.
    pub(super) path: Vec<&'t str>,
}

/// Parses a text that consists of a single reference; returns `None` for any other text.
pub(super) fn parse(text: &str) -> Option<Reference<'_>> {
    let (root, rest) = ROOTS.iter().find_map(|(written, root)| Some((*root, text.strip_prefix(written)?)))?;
    let mut words = rest.split('.');
    let name = words.next()?;
    let path: Vec<_> = words.collect();
    let all_words = is_word(name) && path.iter().all(|word| is_word(word));
    all_words.then_some(Reference { root, name, path })
}

/// Roots in other spellings, and the Flowcell roots that replace them.
const FOREIGN_ROOTS: [(&str, &str); 12] = [
    ("$input.", "$inputs."),
    ("$args.", "$inputs."),
    ("$params.", "$inputs."),
    ("$context.", "$ctx."),
    ("$steps.", "$ctx."),
    ("${inputs.", "$inputs."),
    ("${ctx.", "$ctx."),
    ("${facts.", "$facts."),
    ("$json.", "$ctx."),
    ("$run.", "$facts.run."),
    ("$flow.", "$facts.flow."),
    ("$task.", "$facts.task."),
];

/// Finds a part of a literal text that its author probably meant as a reference. Returns this part and a help text;
/// `None` if there is no such part.
pub(super) fn suggest(text: &str) -> Option<(&str, String)> {
    let word = |from: usize| {
        let rest = &text[from..];
        let end = rest.char_indices().skip(1).find(|(_, c)| !(c.is_alphanumeric() || "_-.{}".contains(*c)));
        rest[..end.map_or(rest.len(), |(at, _)| at)].trim_end_matches('.')
    };
    if let Some((at, other, root)) =
        FOREIGN_ROOTS.iter().find_map(|(other, root)| Some((text.find(other)?, other, root)))
    {
        let found = word(at);
        let rest = found.strip_prefix(other).unwrap_or_default().trim_end_matches('}');
        return Some((found, format!("write `{root}{rest}`, as the whole text")));
    }
    let at = ROOTS.iter().find_map(|(written, _)| text.find(written))?;
    let found = word(at);
    let whole = parse(found).is_some();
    whole.then(|| {
        (found, "a reference must be the whole text; use `data.template` to combine text and values".to_owned())
    })
}

/// Returns true if a reference can contain the name.
pub(super) fn is_word(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-'))
}

impl Reference<'_> {
    /// Returns the path as subscripts of the expression language, such as `["a"][0]`. A number selects an item of a
    /// list.
    pub(super) fn subscripts(&self) -> String {
        self.path.iter().map(|word| subscript(word)).collect()
    }
}

/// Returns one part of a path as a subscript of the expression language.
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
        assert_eq!(parse("$facts.run.id").map(|read| (read.root, read.name)), Some((Root::Facts, "run")));
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
            "$facts",
            "$facts.",
            "$fact.run",
        ];
        for literal in literals {
            assert_eq!(parse(literal), None, "{literal}");
        }
    }

    #[test]
    fn references_inside_a_text_get_a_suggestion() {
        let found = |text| suggest(text).map(|(found, help)| format!("{found}: {help}"));
        let write = |found: &str, name: &str| Some(format!("{found}: write `{name}`, as the whole text"));
        assert_eq!(found("$input.a"), write("$input.a", "$inputs.a"));
        assert_eq!(found("${ctx.rows.0}!"), write("${ctx.rows.0}", "$ctx.rows.0"));
        assert_eq!(found("$run.labels.team"), write("$run.labels.team", "$facts.run.labels.team"));
        assert!(
            found("Total $inputs.a.")
                .is_some_and(|told| told.starts_with("$inputs.a: a reference must be the whole text"))
        );
        for text in ["", "$5", "costs $ctx", "$ctx.", "a $inputs. b", "$ctx..a", "é$"] {
            assert_eq!(found(text), None, "{text}");
        }
    }
}
