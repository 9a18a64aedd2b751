//! The expression between `${` and `}`: all arguments, or the path of one argument.

use std::fmt;

use flowcell_contract::Json;

/// An argument (`args.key`), a part of an argument (`args.key.of.a.member`) or all arguments (`args`). Contains the
/// keys after `args`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Argument(Vec<String>);

/// Help text for an invalid argument.
pub(crate) const ARGUMENT_HELP: &str = "write `${args.key}`, of letters, digits, `_` and `-`";

/// Help text for `${step.iteration}`, which other programs for this dialect know.
pub(crate) const NO_ITERATION: &str = "a step runs once in a run, so it has no `step.iteration`; count in an argument";

impl Argument {
    /// Parses the text between `${` and `}`. Returns `None` if it is not a valid argument path.
    pub(crate) fn parse(inside: &str) -> Option<Argument> {
        let mut steps = inside.trim().split('.');
        if steps.next() != Some("args") {
            return None;
        }
        let is_key = |key: &&str| !key.is_empty() && key.chars().all(is_key_sign);
        let keys: Vec<_> = steps.clone().filter(is_key).map(str::to_owned).collect();
        (keys.len() == steps.count()).then_some(Argument(keys))
    }

    /// Returns true if the expression selects all arguments.
    pub(crate) fn is_all(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the keys after `args`.
    pub(crate) fn keys(&self) -> &[String] {
        &self.0
    }

    /// Returns the name of the argument, the first key after `args`; `None` if all arguments are selected.
    pub(crate) fn key(&self) -> Option<&str> {
        self.0.first().map(String::as_str)
    }

    /// Returns an expression that reads the argument. The parameter `args` is an expression that reads all arguments.
    pub(crate) fn expression(&self, args: &str) -> String {
        self.0.iter().fold(args.to_owned(), |path, key| format!("{path}[{}]", quoted(key)))
    }
}

impl fmt::Display for Argument {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("args")?;
        self.0.iter().try_for_each(|key| write!(formatter, ".{key}"))
    }
}

fn is_key_sign(sign: char) -> bool {
    sign.is_ascii_alphanumeric() || matches!(sign, '_' | '-')
}

/// Writes a text as a quoted text of the expression language.
pub(crate) fn quoted(text: &str) -> String {
    Json::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_of_keys_are_arguments() {
        let cases = [
            ("args", Some("a")),
            (" args.k ", Some(r#"a["k"]"#)),
            ("args.work-flow.x_1", Some(r#"a["work-flow"]["x_1"]"#)),
            ("args.", None),
            ("args.a..b", None),
            ("args.a b", None),
            ("args[0]", None),
            ("argsx", None),
            ("HOME", None),
            ("", None),
        ];
        for (inside, expected) in cases {
            let given = Argument::parse(inside).map(|argument| argument.expression("a"));
            assert_eq!(given.as_deref(), expected, "{inside}");
        }
    }
}
