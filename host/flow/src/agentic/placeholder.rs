//! The placeholders in prompts and predicates: an argument, all arguments, or the number of the present iteration.

use std::fmt;

use flowcell_contract::Json;

/// The text between `${` and `}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Placeholder {
    /// An argument (`args.key`), a part of an argument (`args.key.of.a.member`) or all arguments (`args`). Contains the
    /// keys after `args`.
    Args(Vec<String>),
    /// The number of the iteration of the loop around the step, from 1 (`step.iteration`).
    Iteration,
}

/// The expressions that read the values of placeholders.
#[derive(Clone, Copy)]
pub(crate) struct PlaceholderValues<'a> {
    /// Reads all arguments.
    pub(crate) args: &'a str,
    /// Reads the number of the iteration.
    pub(crate) iteration: &'a str,
}

/// Help text for an invalid argument.
pub(crate) const ARGUMENT_HELP: &str = "write `${args.key}`, of letters, digits, `_` and `-`";

/// Help text for an unknown member of `step`.
pub(crate) const STEP_HELP: &str = "write `${step.iteration}`, the number of the present iteration of a loop";

const ITERATION: &str = "step.iteration";

impl Placeholder {
    /// Parses the text between `${` and `}`. Returns `None` if it is not a valid placeholder.
    pub(crate) fn parse(inside: &str) -> Option<Placeholder> {
        if inside.trim() == ITERATION {
            return Some(Placeholder::Iteration);
        }
        let mut steps = inside.trim().split('.');
        if steps.next() != Some("args") {
            return None;
        }
        let is_key = |key: &&str| !key.is_empty() && key.chars().all(is_key_sign);
        let keys: Vec<_> = steps.clone().filter(is_key).map(str::to_owned).collect();
        (keys.len() == steps.count()).then_some(Placeholder::Args(keys))
    }

    /// Returns true if the placeholder selects all arguments.
    pub(crate) fn is_all(&self) -> bool {
        matches!(self, Placeholder::Args(keys) if keys.is_empty())
    }

    /// Returns the name of the argument, the first key after `args`; `None` if no single argument is selected.
    pub(crate) fn key(&self) -> Option<&str> {
        match self {
            Placeholder::Args(keys) => keys.first().map(String::as_str),
            Placeholder::Iteration => None,
        }
    }

    /// Returns an expression that reads the value.
    pub(crate) fn expression(&self, values: PlaceholderValues<'_>) -> String {
        match self {
            Placeholder::Args(keys) => {
                keys.iter().fold(values.args.to_owned(), |path, key| format!("{path}[{}]", quoted(key)))
            }
            Placeholder::Iteration => values.iteration.to_owned(),
        }
    }
}

impl fmt::Display for Placeholder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Placeholder::Args(keys) => {
                formatter.write_str("args")?;
                keys.iter().try_for_each(|key| write!(formatter, ".{key}"))
            }
            Placeholder::Iteration => formatter.write_str(ITERATION),
        }
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
    fn only_paths_of_keys_and_the_iteration_are_placeholders() {
        let cases = [
            ("args", Some("a")),
            (" args.k ", Some(r#"a["k"]"#)),
            ("args.work-flow.x_1", Some(r#"a["work-flow"]["x_1"]"#)),
            (" step.iteration ", Some("n")),
            ("args.", None),
            ("args.a..b", None),
            ("args.a b", None),
            ("args[0]", None),
            ("argsx", None),
            ("step", None),
            ("step.iterations", None),
            ("step.iteration.x", None),
            ("HOME", None),
            ("", None),
        ];
        let values = PlaceholderValues { args: "a", iteration: "n" };
        for (inside, expected) in cases {
            let given = Placeholder::parse(inside).map(|placeholder| placeholder.expression(values));
            assert_eq!(given.as_deref(), expected, "{inside}");
        }
    }
}
