//! The parser of predicates.
//!
//! A predicate that begins with `${` and has no second `${` is a single comparison, and its right side is plain text up
//! to the end, also with signs such as `&&`. In any other predicate `&&`, `||` and `)` end the right side. `&&` binds tighter
//! than `||`, and `!` stands before parentheses.

use flowcell_contract::Json;
use flowcell_expr::Condition;

use super::{Comparison, Predicate, Test};
use crate::{
    agentic::placeholder::{ARGUMENT_HELP, Placeholder, STEP_HELP},
    fields::for_message,
    limits,
};

/// An error message and a help text.
type PredicateError = (String, String);

const OPERATORS_HELP: &str = "write `==`, `!=`, `=~`, `<`, `<=`, `>` or `>=` after `${args.key}`";
const BEGIN_HELP: &str = "write `${args.key} == value`";

/// Parses a predicate.
pub(super) fn parse(written: &str) -> Result<Predicate, PredicateError> {
    let text = written.trim();
    let is_single = text.starts_with("${") && !text[2..].contains("${");
    if is_single {
        let (value, rest) = Value::parse(text)?;
        let (sign, right) = operator(rest);
        return Ok(Predicate::Compare(value.compared(sign, right.trim())?));
    }
    if text.len() > limits::PREDICATE_BYTES {
        let message = format!("the predicate has {} bytes", text.len());
        return Err((
            message,
            format!("use at most {} bytes; let the agent decide in one argument", limits::PREDICATE_BYTES),
        ));
    }
    let mut parser = Parser { rest: text, depth: 0, comparisons: 0 };
    let predicate = parser.any()?;
    match parser.rest.is_empty() {
        true => Ok(predicate),
        false if parser.rest.starts_with(')') => {
            Err(error("the predicate closes more parentheses than it opens", "remove a `)`"))
        }
        // Everything else ends a right side, or is refused where a part begins.
        false => Err(behind_parenthesis(parser.rest)),
    }
}

/// Creates the error about text that follows a parenthesis without an operator.
fn behind_parenthesis(rest: &str) -> PredicateError {
    let word = rest.split_whitespace().next().unwrap_or_default();
    let help = match word {
        "and" => "write `&&` instead of `and`",
        "or" => "write `||` instead of `or`",
        _ => "write `&&` or `||` between two parts",
    };
    (format!("`{}` follows a parenthesis", for_message(word)), help.to_owned())
}

/// The left side of a comparison.
struct Value {
    placeholder: Placeholder,
    of_size: bool,
}

impl Value {
    /// Parses `${args.key}`, also after `sizeof`. Returns it and the text after it.
    fn parse(text: &str) -> Result<(Value, &str), PredicateError> {
        let sized = text.strip_prefix("sizeof").filter(|rest| rest.starts_with(char::is_whitespace));
        let place = sized.map_or(text, str::trim_start);
        let Some((inside, rest)) = place.strip_prefix("${").and_then(|rest| rest.split_once('}')) else {
            return Err(no_placeholder(text, place));
        };
        match Placeholder::parse(inside).filter(|placeholder| !placeholder.is_all()) {
            Some(Placeholder::Iteration) if sized.is_some() => {
                Err(error("`step.iteration` is a number and has no size", "remove `sizeof`"))
            }
            Some(placeholder) => Ok((Value { placeholder, of_size: sized.is_some() }, rest)),
            None => {
                Err((format!("`${{{}}}` does not select a single argument", for_message(inside)), help_for(inside)))
            }
        }
    }

    /// Returns the comparison of the value with the text on the right side.
    fn compared(self, sign: &str, right: &str) -> Result<Comparison, PredicateError> {
        let Value { placeholder, of_size } = self;
        if right.contains("${") {
            let help = match [(" and ", "&&"), (" or ", "||")].into_iter().find(|(word, _)| right.contains(word)) {
                Some((word, sign)) => format!("write `{sign}` instead of `{}`", word.trim()),
                None => "a comparison has plain text on its right side; to join two of them, write `&&` or `||`; to \
                         compare two arguments, let the agent do it and give the result as one argument"
                    .to_owned(),
            };
            return Err((format!("`{}` contains a second `${{`", for_message(right)), help));
        }
        if right.is_empty() && !sign.is_empty() {
            return Err(error(
                "the predicate has no value to compare with",
                "write the value after the operator, without quotes",
            ));
        }
        let test = match sign {
            "==" | "!=" if of_size => Test::Number(if sign == "==" { "==" } else { "!=" }, size(sign, right)?),
            "==" => Test::Equals(right.to_owned()),
            "!=" => Test::Differs(right.to_owned()),
            "=~" => Test::Matches(pattern(right)?),
            "<" | "<=" | ">" | ">=" => {
                let operator = ["<", "<=", ">", ">="].into_iter().find(|known| *known == sign).unwrap_or("<");
                Test::Number(operator, if of_size { size(sign, right)? } else { number(sign, right)? })
            }
            sign => return Err(unknown_operator(sign, right, of_size)),
        };
        Ok(Comparison { placeholder, of_size, test })
    }
}

/// Parses a predicate with several comparisons, `sizeof` or parentheses.
struct Parser<'t> {
    rest: &'t str,
    /// Number of open parentheses.
    depth: usize,
    comparisons: usize,
}

impl<'t> Parser<'t> {
    fn any(&mut self) -> Result<Predicate, PredicateError> {
        let mut parts = vec![self.all()?];
        while self.skip("||") {
            parts.push(self.all()?);
        }
        Ok(joined(parts, Predicate::Any))
    }

    fn all(&mut self) -> Result<Predicate, PredicateError> {
        let mut parts = vec![self.part()?];
        while self.skip("&&") {
            parts.push(self.part()?);
        }
        Ok(joined(parts, Predicate::All))
    }

    /// Parses a comparison, or a predicate in parentheses, also after `!`.
    fn part(&mut self) -> Result<Predicate, PredicateError> {
        if self.skip("(") {
            return self.group();
        }
        if self.skip("!") {
            return match self.skip("(") {
                true => Ok(Predicate::Not(Box::new(self.group()?))),
                false => Err(error(
                    "`!` must stand before parentheses",
                    "write `!( ${args.key} == value )`, or `${args.key} != value`, which is false for a missing argument",
                )),
            };
        }
        self.comparisons += 1;
        if self.comparisons > limits::PREDICATE_COMPARISONS {
            let message = format!("the predicate has more than {} comparisons", limits::PREDICATE_COMPARISONS);
            return Err((message, "use several rules, or let the agent decide in one argument".into()));
        }
        Ok(Predicate::Compare(self.comparison()?))
    }

    /// Parses the rest of a group whose `(` is read.
    fn group(&mut self) -> Result<Predicate, PredicateError> {
        self.depth += 1;
        if self.depth > limits::PREDICATE_DEPTH {
            let message = format!("the predicate nests parentheses deeper than {}", limits::PREDICATE_DEPTH);
            return Err((message, "remove parentheses; `&&` binds tighter than `||`".into()));
        }
        let inside = self.any()?;
        self.depth -= 1;
        match self.skip(")") {
            true => Ok(inside),
            false if self.rest.is_empty() => Err(error("a `(` is not closed", "add `)`")),
            false => Err(behind_parenthesis(self.rest)),
        }
    }

    fn comparison(&mut self) -> Result<Comparison, PredicateError> {
        let (value, rest) = Value::parse(self.rest)?;
        let (sign, rest) = operator(rest);
        let rest = rest.trim_start();
        let length = match sign {
            "=~" => pattern_length(rest)?,
            _ => ["&&", "||", ")"].iter().filter_map(|end| rest.find(end)).min().unwrap_or(rest.len()),
        };
        let (right, rest) = rest.split_at(length);
        let right = right.trim_end();
        self.rest = rest.trim_start();
        if sign != "=~" {
            check_text(right, !self.rest.is_empty())?;
        }
        value.compared(sign, right)
    }

    /// Skips a sign and the space after it. Returns false if the rest begins with something else.
    fn skip(&mut self, sign: &str) -> bool {
        let rest = self.rest.strip_prefix(sign);
        self.rest = rest.map_or(self.rest, str::trim_start);
        rest.is_some()
    }
}

fn joined(mut parts: Vec<Predicate>, join: impl Fn(Vec<Predicate>) -> Predicate) -> Predicate {
    if parts.len() == 1 { parts.remove(0) } else { join(parts) }
}

/// Splits the operator off a text.
fn operator(text: &str) -> (&str, &str) {
    let text = text.trim_start();
    let length = text.find(|sign: char| !"=!~<>".contains(sign)).unwrap_or(text.len());
    text.split_at(length)
}

/// Refuses a text that probably goes on behind `&&`, `||` or `)`, and one with `(`.
fn check_text(right: &str, goes_on: bool) -> Result<(), PredicateError> {
    let opened = right.chars().next().filter(|sign| ['"', '\''].contains(sign));
    let is_open = opened.is_some_and(|quote| right.len() == 1 || !right.ends_with(quote));
    let cause = match () {
        () if is_open && goes_on => "quotes do not keep `&&`, `||` and `)` in a text together",
        () if right.contains('(') => "a text beside other comparisons may not contain `(`",
        () => return Ok(()),
    };
    let help = "write a pattern for such a text: `=~ /^a && b \\(c\\)$/`";
    Err((format!("{cause}: `{}`", for_message(right)), help.into()))
}

/// Returns the length of the pattern at the beginning of a text, with its slashes. A `/` in it follows a `\`.
fn pattern_length(text: &str) -> Result<usize, PredicateError> {
    let mut signs = text.char_indices();
    if !matches!(signs.next(), Some((_, '/'))) {
        return Err(no_slashes());
    }
    while let Some((at, sign)) = signs.next() {
        match sign {
            '\\' => drop(signs.next()),
            '/' => return end_of_pattern(text, at + 1),
            _ => {}
        }
    }
    Err(no_slashes())
}

/// Returns the length of a pattern that ends before `end`, with the text up to the next sign, which must be empty.
fn end_of_pattern(text: &str, end: usize) -> Result<usize, PredicateError> {
    let rest = text[end..].trim_start();
    match rest.is_empty() || ["&&", "||", ")"].iter().any(|sign| rest.starts_with(sign)) {
        true => Ok(end),
        false => Err((
            format!("`{}` follows the pattern", for_message(rest)),
            "write `&&` or `||` after a pattern, `\\/` for a slash in it, and flags inside it: `/(?i)…/`".into(),
        )),
    }
}

fn error(message: &str, help: &str) -> PredicateError {
    (message.to_owned(), help.to_owned())
}

fn no_slashes() -> PredicateError {
    error("a pattern must be between slashes", "write `${args.key} =~ /pattern/`")
}

/// Returns the error about a part that does not begin with `${args.key}`. `place` is the text after `sizeof`.
fn no_placeholder(text: &str, place: &str) -> PredicateError {
    let word = place.split(|sign: char| sign.is_whitespace() || sign == '(').next().unwrap_or_default();
    let help = match word {
        "not" => "write `!( … )` instead of `not`",
        "and" => "write `&&` instead of `and`",
        "or" => "write `||` instead of `or`",
        "sizeof" => "write `sizeof ${args.key} == 0`",
        _ if place.starts_with("${") => "close it with `}`",
        _ => BEGIN_HELP,
    };
    match text.is_empty() {
        true => error("a comparison must begin with `${args.key}`", help),
        false => {
            (format!("a comparison must begin with `${{args.key}}`, not with `{}`", for_message(place)), help.into())
        }
    }
}

/// Returns the help for a placeholder that selects no argument.
fn help_for(inside: &str) -> String {
    match inside.trim().split('.').next() {
        Some("step") => STEP_HELP.to_owned(),
        _ => ARGUMENT_HELP.to_owned(),
    }
}

fn unknown_operator(sign: &str, right: &str, of_size: bool) -> PredicateError {
    let help = match sign {
        "=" | "===" => "write `==`",
        "!" | "<>" | "!==" => "write `!=`",
        "~" | "~=" | "==~" => "write `=~ /pattern/`",
        "!~" => "write `!( ${args.key} =~ /pattern/ )`, which also holds for a missing argument",
        "=<" => "write `<=`",
        "=>" => "write `>=`",
        "" if of_size => "write `sizeof ${args.key} > 0`, or one of `==`, `!=`, `<`, `<=` and `>=`",
        "" if right.is_empty() || right.starts_with(['&', '|', ')']) => {
            "write `${args.key} == true` for a value that is true"
        }
        _ => OPERATORS_HELP,
    };
    match sign {
        "" => error("the predicate has no operator", help),
        sign => (format!("unknown operator `{}`", for_message(sign)), help.to_owned()),
    }
}

/// Returns the number on the right side of `<`, `<=`, `>` or `>=`.
fn number(sign: &str, right: &str) -> Result<String, PredicateError> {
    let is_exact = |number: &serde_json::Number| match number.is_f64() {
        true => right.contains(['.', 'e', 'E']) && number.as_f64().is_some_and(f64::is_finite),
        false => true,
    };
    let parsed = serde_json::from_str::<serde_json::Number>(right).ok().filter(is_exact);
    parsed.map(|number| number.to_string()).ok_or_else(|| {
        let message = format!("`{sign}` compares numbers, and `{}` is not a number", for_message(right));
        (message, "write a number such as `3` or `0.5`, below 2^64; texts are compared by `==`, `!=` and `=~`".into())
    })
}

/// Returns the size on the right side of a comparison with `sizeof`.
fn size(sign: &str, right: &str) -> Result<String, PredicateError> {
    right.parse::<u32>().map(|size| size.to_string()).map_err(|_| {
        let message = format!("`sizeof` gives a whole number, and `{}` is none", for_message(right));
        (message, format!("write a number from 0 to {}, such as `sizeof ${{args.key}} {sign} 0`", u32::MAX))
    })
}

/// Returns the pattern between the slashes. Returns an error if there are no slashes, if flags follow, or if the
/// pattern is invalid.
fn pattern(value: &str) -> Result<String, PredicateError> {
    let inside = value.strip_prefix('/').filter(|rest| !rest.is_empty());
    let Some((pattern, flags)) = inside.and_then(|rest| rest.rsplit_once('/')) else {
        return Err(no_slashes());
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
