//! Predicates of rules: `${args.key} == value`, `!=`, and `=~ /pattern/`.

use flowcell_contract::Json;
use flowcell_expr::Condition;

use crate::{
    agentic::argument::{Argument, WRITTEN, quoted},
    diagnostic::Findings,
    fields::shown,
    yaml::Tree,
};

/// A predicate, taken apart.
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

/// Why a text is no predicate, and what to write instead.
type Refusal = (String, String);

impl Predicate {
    /// Reads what `if` says.
    pub(crate) fn read(tree: &Tree, findings: &mut Findings<'_>) -> Option<Predicate> {
        let Some(written) = tree.text() else {
            let message = format!("`if` is a text, this is {}", tree.type_name());
            let help = "write `if: ${args.key} == value`; a rule without `if` always fires";
            findings.error("wrong_type", tree.span, message, Some(help.into()));
            return None;
        };
        match Predicate::parse(written) {
            Ok(predicate) => {
                predicate.warn_of_quotes(tree, findings);
                Some(predicate)
            }
            Err((message, help)) => {
                findings.error("bad_predicate", tree.span, message, Some(help));
                None
            }
        }
    }

    /// Takes a predicate apart.
    pub(crate) fn parse(written: &str) -> Result<Predicate, Refusal> {
        let (inside, rest) = written
            .trim()
            .strip_prefix("${")
            .and_then(|rest| rest.split_once('}'))
            .ok_or_else(|| refusal("a predicate begins with `${args.key}`", "write `${args.key} == value`"))?;
        let argument = Argument::parse(inside).filter(|argument| !argument.is_all());
        let argument = argument
            .ok_or_else(|| (format!("`${{{}}}` names no single argument", shown(inside)), WRITTEN.to_owned()))?;
        let rest = rest.trim();
        let sign: String = rest.chars().take_while(|sign| "=!~<>&|".contains(*sign)).collect();
        let value = rest[sign.len()..].trim();
        if value.contains("${") {
            let help = "a rule compares one argument with plain text: lead over two steps, or let the agent put what \
                        decides into one argument";
            return Err((format!("`{}` holds a second `${{`", shown(value)), help.into()));
        }
        if value.is_empty() && !sign.is_empty() {
            return Err(refusal("there is nothing to compare with", "write the value behind the sign, without quotes"));
        }
        let test = match &*sign {
            "==" => Test::Equals(value.to_owned()),
            "!=" => Test::Differs(value.to_owned()),
            "=~" => Test::Matches(pattern(value)?),
            sign => return Err(unknown_sign(sign)),
        };
        Ok(Predicate { argument, test })
    }

    /// The argument that it is about.
    pub(crate) fn argument(&self) -> &Argument {
        &self.argument
    }

    /// The expression that tells whether it holds, if `args` is the expression of all arguments. The argument is
    /// compared as text; one that is missing (or null) makes every predicate false.
    pub(crate) fn expression(&self, args: &str) -> String {
        let value = self.argument.expression(args);
        let test = match &self.test {
            Test::Equals(text) => format!("({value} | string) == {}", quoted(text)),
            Test::Differs(text) => format!("({value} | string) != {}", quoted(text)),
            Test::Matches(pattern) => format!("({value} | string) is matches({})", quoted(pattern)),
        };
        format!("({value} != null) and ({test})")
    }

    /// The right side is plain text, so quotes and signs are part of it.
    fn warn_of_quotes(&self, tree: &Tree, findings: &mut Findings<'_>) {
        let (Test::Equals(text) | Test::Differs(text)) = &self.test else { return };
        if let Some(sign) = [" && ", " || "].into_iter().find(|sign| text.contains(sign)) {
            let message = format!("`{}` is compared as it is written, `{}` and all", shown(text), sign.trim());
            let help = "a rule compares one argument with plain text: lead over two steps";
            findings.warning("joined_value", tree.span, message, Some(help.into()));
        }
        let inside = ['"', '\''].into_iter().find_map(|quote| text.strip_prefix(quote)?.strip_suffix(quote));
        if let Some(inside) = inside {
            let message = format!("`{}` is compared as it is written, quotes and all", shown(text));
            findings.warning("quoted_value", tree.span, message, Some(format!("write `{}`", shown(inside))));
        }
    }
}

fn refusal(message: &str, help: &str) -> Refusal {
    (message.to_owned(), help.to_owned())
}

fn unknown_sign(sign: &str) -> Refusal {
    let help = match sign {
        "=" | "===" => "write `==`",
        "!" | "<>" | "!==" => "write `!=`",
        "~" | "~=" | "==~" => "write `=~ /pattern/`",
        "!~" => "write `=~ /pattern/` at a rule of what does match",
        _ => "write `==`, `!=` or `=~` behind `${args.key}`",
    };
    match sign {
        "" => refusal("the predicate compares with nothing", help),
        sign => (format!("there is no comparison `{}`", shown(sign)), help.to_owned()),
    }
}

/// The pattern between the slashes, if it can be used.
fn pattern(value: &str) -> Result<String, Refusal> {
    let inside = value.strip_prefix('/').filter(|rest| !rest.is_empty());
    let Some((pattern, flags)) = inside.and_then(|rest| rest.rsplit_once('/')) else {
        return Err(refusal("a pattern stands between slashes", "write `${args.key} =~ /pattern/`"));
    };
    if !flags.is_empty() {
        let help = format!("write what it means into the pattern: `/(?{})…/`", shown(flags));
        return Err((format!("there are no flags behind a pattern: `{}`", shown(flags)), help));
    }
    let matches = Json::object([("var", Json::from("text")), ("pattern", Json::from(pattern))]);
    match Condition::compile(&Json::object([("matches", matches)])) {
        Ok(_) => Ok(pattern.to_owned()),
        Err(errors) => {
            let cause = errors.into_iter().next().map(|error| error.message).unwrap_or_default();
            Err((cause, "patterns take linear time: no look-around, no references back to groups".into()))
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
    fn what_is_no_predicate_is_refused() {
        let cases = [
            ("", "begins with"),
            ("args.k == v", "begins with"),
            ("${args.k == v", "begins with"),
            ("${args} == v", "no single argument"),
            ("${arg.k} == v", "no single argument"),
            ("${args.k}", "compares with nothing"),
            ("${args.k} is v", "compares with nothing"),
            ("${args.k} = v", "no comparison `=`"),
            ("${args.k} >= 3", "no comparison `>=`"),
            ("${args.k} !~ /v/", "no comparison `!~`"),
            ("${args.k} ==", "nothing to compare with"),
            ("${args.k} =~ v", "between slashes"),
            ("${args.k} =~ /v", "between slashes"),
            ("${args.k} =~ /", "between slashes"),
            ("${args.k} =~ /v/i", "no flags"),
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
