//! Predicates of rules: `${args.key} == value`, `!=`, and `=~ /pattern/`.

use flowcell_contract::Json;
use flowcell_expr::Condition;

use crate::{
    agentic::argument::{ARGUMENT_HELP, Argument, quoted},
    diagnostic::Diagnostics,
    fields::for_message,
    yaml::Tree,
};

/// A parsed predicate.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Predicate {
    argument: Argument,
    test: Test,
}

#[derive(Clone, Debug, PartialEq)]
enum Test {
    Equals(String),
    Differs(String),
    Matches(String),
}

/// An error message and a help text.
type PredicateError = (String, String);

impl Predicate {
    /// Reads the text of `if`.
    pub(crate) fn read(tree: &Tree, diagnostics: &mut Diagnostics<'_>) -> Option<Predicate> {
        let Some(written) = tree.text() else {
            let message = format!("`if` must be a text, not {}", tree.type_name());
            let help = "write `if: ${args.key} == value`; a rule without `if` always applies";
            diagnostics.error("wrong_type", tree.span, message, Some(help.into()));
            return None;
        };
        match Predicate::parse(written) {
            Ok(predicate) => {
                predicate.warn_of_quotes(tree, diagnostics);
                Some(predicate)
            }
            Err((message, help)) => {
                diagnostics.error("bad_predicate", tree.span, message, Some(help));
                None
            }
        }
    }

    /// Parses a predicate.
    pub(crate) fn parse(written: &str) -> Result<Predicate, PredicateError> {
        let (inside, rest) =
            written.trim().strip_prefix("${").and_then(|rest| rest.split_once('}')).ok_or_else(|| {
                predicate_error("a predicate must begin with `${args.key}`", "write `${args.key} == value`")
            })?;
        let argument = Argument::parse(inside).filter(|argument| !argument.is_all());
        let argument = argument.ok_or_else(|| {
            (format!("`${{{}}}` does not select a single argument", for_message(inside)), ARGUMENT_HELP.to_owned())
        })?;
        let rest = rest.trim();
        let sign: String = rest.chars().take_while(|sign| "=!~<>&|".contains(*sign)).collect();
        let value = rest[sign.len()..].trim();
        if value.contains("${") {
            let help = "a rule compares one argument with plain text; use two steps, or let the agent combine the \
                        values in one argument";
            return Err((format!("`{}` contains a second `${{`", for_message(value)), help.into()));
        }
        if value.is_empty() && !sign.is_empty() {
            return Err(predicate_error(
                "the predicate has no value to compare with",
                "write the value after the operator, without quotes",
            ));
        }
        let test = match &*sign {
            "==" => Test::Equals(value.to_owned()),
            "!=" => Test::Differs(value.to_owned()),
            "=~" => Test::Matches(pattern(value)?),
            sign => return Err(unknown_operator(sign)),
        };
        Ok(Predicate { argument, test })
    }

    /// Returns the argument that the predicate tests.
    pub(crate) fn argument(&self) -> &Argument {
        &self.argument
    }

    /// Returns the predicate in the expression language. The parameter `args` is an expression that reads all
    /// arguments. The argument is compared as text. If the argument is missing or null, every predicate is false, even
    /// `!=`.
    pub(crate) fn expression(&self, args: &str) -> String {
        let value = self.argument.expression(args);
        let test = match &self.test {
            Test::Equals(text) => format!("({value} | string) == {}", quoted(text)),
            Test::Differs(text) => format!("({value} | string) != {}", quoted(text)),
            Test::Matches(pattern) => format!("({value} | string) is matches({})", quoted(pattern)),
        };
        format!("({value} != null) and ({test})")
    }

    /// Warns of quotes, `&&` and `||` on the right side of a comparison: this side is plain text, so they are a part of
    /// it.
    fn warn_of_quotes(&self, tree: &Tree, diagnostics: &mut Diagnostics<'_>) {
        let (Test::Equals(text) | Test::Differs(text)) = &self.test else { return };
        if let Some(sign) = [" && ", " || "].into_iter().find(|sign| text.contains(sign)) {
            let message = format!("`{}` is compared literally, including `{}`", for_message(text), sign.trim());
            let help = "a rule compares one argument with plain text; use two steps";
            diagnostics.warning("joined_value", tree.span, message, Some(help.into()));
        }
        let inside = ['"', '\''].into_iter().find_map(|quote| text.strip_prefix(quote)?.strip_suffix(quote));
        if let Some(inside) = inside {
            let message = format!("`{}` is compared literally, including the quotes", for_message(text));
            diagnostics.warning("quoted_value", tree.span, message, Some(format!("write `{}`", for_message(inside))));
        }
    }
}

fn predicate_error(message: &str, help: &str) -> PredicateError {
    (message.to_owned(), help.to_owned())
}

fn unknown_operator(sign: &str) -> PredicateError {
    let help = match sign {
        "=" | "===" => "write `==`",
        "!" | "<>" | "!==" => "write `!=`",
        "~" | "~=" | "==~" => "write `=~ /pattern/`",
        "!~" => "write a rule with `=~ /pattern/` for the values that match",
        _ => "write `==`, `!=` or `=~` after `${args.key}`",
    };
    match sign {
        "" => predicate_error("the predicate has no operator", help),
        sign => (format!("unknown operator `{}`", for_message(sign)), help.to_owned()),
    }
}

/// Returns the pattern between the slashes. Returns an error if there are no slashes, if flags follow, or if the
/// pattern is invalid.
fn pattern(value: &str) -> Result<String, PredicateError> {
    let inside = value.strip_prefix('/').filter(|rest| !rest.is_empty());
    let Some((pattern, flags)) = inside.and_then(|rest| rest.rsplit_once('/')) else {
        return Err(predicate_error("a pattern must be between slashes", "write `${args.key} =~ /pattern/`"));
    };
    if !flags.is_empty() {
        let help = format!("write flags inside the pattern: `/(?{})…/`", for_message(flags));
        return Err((format!("flags after a pattern are not supported: `{}`", for_message(flags)), help));
    }
    let matches = Json::object([("var", Json::from("text")), ("pattern", Json::from(pattern))]);
    match Condition::compile(&Json::object([("matches", matches)])) {
        Ok(_) => Ok(pattern.to_owned()),
        Err(errors) => {
            let cause = errors.into_iter().next().map(|error| error.message).unwrap_or_default();
            Err((cause, "patterns support neither look-around nor back-references".into()))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    fn holds(predicate: &str, args: &str) -> bool {
        let expression = Predicate::parse(predicate).unwrap().expression("args");
        let roots = Json::object([("args", Json::parse(args).unwrap())]);
        Condition::compile(&expression.into()).unwrap().evaluate(&roots).unwrap()
    }

    #[test]
    fn predicates_compare_texts() {
        let args = r#"{ "workflow": "IMPLEMENTATION", "n": 5, "f": 1.5, "yes": true, "none": null, "empty": "",
            "of": { "kind": "bug" }, "list": [1, "a"], "a-b": "c", "odd": "{{ x }} \"q\" \\ é\n" }"#;
        let cases = [
            ("${args.workflow} == IMPLEMENTATION", true),
            ("${args.workflow}==IMPLEMENTATION", true),
            ("  ${ args.workflow }  ==   IMPLEMENTATION  ", true),
            ("${args.workflow} == implementation", false),
            ("${args.workflow} == \"IMPLEMENTATION\"", false),
            ("${args.workflow} != SKIP", true),
            ("${args.workflow} != IMPLEMENTATION", false),
            ("${args.workflow} =~ /IMPLEMENTATION|CORRECTION/", true),
            ("${args.workflow} =~ /^CORR/", false),
            ("${args.workflow} =~ /(?i)impl/", true),
            ("${args.workflow} =~ //", true),
            ("${args.n} == 5", true),
            ("${args.n} != 5", false),
            ("${args.n} =~ /^[0-9]+$/", true),
            ("${args.f} == 1.5", true),
            ("${args.yes} == true", true),
            ("${args.yes} == True", false),
            ("${args.of.kind} == bug", true),
            ("${args.of} == {\"kind\":\"bug\"}", true),
            ("${args.list} == [1,\"a\"]", true),
            ("${args.a-b} == c", true),
            ("${args.odd} =~ /^\\{\\{ x \\}\\} \"q\" \\\\ é/", true),
            ("${args.empty} != x", true),
            ("${args.missing} == x", false),
            ("${args.missing} != x", false),
            ("${args.missing} =~ /.*/", false),
            ("${args.none} == null", false),
            ("${args.none} != x", false),
            ("${args.workflow.deeper} != x", false),
        ];
        for (predicate, expected) in cases {
            assert_eq!(holds(predicate, args), expected, "{predicate}");
        }
    }

    #[test]
    fn invalid_predicates_are_refused() {
        let cases = [
            ("", "must begin with"),
            ("args.k == v", "must begin with"),
            ("${args.k == v", "must begin with"),
            ("${args} == v", "not select a single argument"),
            ("${arg.k} == v", "not select a single argument"),
            ("${args.k}", "no operator"),
            ("${args.k} is v", "no operator"),
            ("${args.k} = v", "unknown operator `=`"),
            ("${args.k} >= 3", "unknown operator `>=`"),
            ("${args.k} !~ /v/", "unknown operator `!~`"),
            ("${args.k} ==", "no value to compare with"),
            ("${args.k} =~ v", "between slashes"),
            ("${args.k} =~ /v", "between slashes"),
            ("${args.k} =~ /", "between slashes"),
            ("${args.k} =~ /v/i", "not supported"),
            ("${args.k} =~ /(/", "not valid"),
            ("${args.k} =~ /a(?=b)/", "not valid"),
            ("${args.a} == x && ${args.b} == y", "a second"),
        ];
        for (predicate, expected) in cases {
            let (message, help) = Predicate::parse(predicate).unwrap_err();
            assert!(message.contains(expected), "{predicate}: {message}");
            assert!(!help.is_empty());
        }
    }
}
