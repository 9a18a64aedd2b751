//! Reads runtime expressions, which are queries in jq. Nothing is executed here: the expressions stay as they are, and
//! `data.query` runs them. This module checks their form, finds the values that they read, and tells whether the
//! interpreter of Flowcell does the same as jq.

use std::collections::BTreeSet;

use jaq_core::{
    load::{
        Lexer, Parser,
        lex::StrPart,
        parse::{BinaryOp, Def, Pattern, Term},
    },
    ops::Math,
    path::{Opt, Part},
};

/// Maximum length of an expression in bytes.
const LONGEST: usize = 4_096;
/// Maximum number of brackets that are open at the same place.
const DEPTH: usize = 24;
/// Maximum number of words, signs and texts. Each may be a level of the parsed expression.
const TOKENS: usize = 120;

/// Functions with one result that are the same in jq and here, if their arguments are.
const SAME: [&str; 47] = [
    "add",
    "all",
    "any",
    "ascii_downcase",
    "ascii_upcase",
    "ceil",
    "contains",
    "del",
    "endswith",
    "error",
    "false",
    "flatten",
    "floor",
    "fromjson",
    "group_by",
    "has",
    "index",
    "inside",
    "keys",
    "keys_unsorted",
    "length",
    "ltrimstr",
    "map",
    "map_values",
    "max",
    "max_by",
    "min",
    "min_by",
    "not",
    "null",
    "reverse",
    "round",
    "rtrimstr",
    "sort",
    "sort_by",
    "split",
    "startswith",
    "to_entries",
    "tojson",
    "tonumber",
    "tostring",
    "true",
    "type",
    "unique",
    "unique_by",
    "values",
    "with_entries",
];
/// Functions whose arguments may have any number of results, since they collect them.
const COLLECT: [&str; 12] = [
    "all",
    "any",
    "del",
    "group_by",
    "map",
    "map_values",
    "max_by",
    "min_by",
    "sort_by",
    "unique_by",
    "with_entries",
    "add",
];
/// Functions that queries do not have.
const ABSENT: [&str; 25] = [
    "date",
    "dateadd",
    "datesub",
    "debug",
    "env",
    "fromdate",
    "fromdateiso8601",
    "get_search_list",
    "gmtime",
    "halt",
    "halt_error",
    "input",
    "input_filename",
    "input_line_number",
    "inputs",
    "localtime",
    "mktime",
    "now",
    "stderr",
    "strflocaltime",
    "strftime",
    "strptime",
    "todate",
    "todateiso8601",
    "tostream",
];

/// A variable that an expression reads, with the first members behind it, such as `workflow` and `[input]`.
pub(super) type Read = (String, Vec<String>);

/// The reads of an expression, and whether its results are certain.
#[derive(Debug, Default)]
pub(super) struct Reading {
    /// The variables of the workflow that the expression may read.
    pub(super) reads: BTreeSet<Read>,
    /// The reason for which the expression may not do exactly the same.
    pub(super) differs: Option<String>,
    /// The literal beginning of the text that the expression gives, if it is a text with `\(…)`.
    pub(super) beginning: Option<String>,
    /// True if the expression is `.`.
    pub(super) is_identity: bool,
}

/// Returns the inner text of `${ … }`; `None` if the text has another form.
pub(super) fn inner(text: &str) -> Option<&str> {
    text.trim().strip_prefix("${")?.strip_suffix('}')
}

/// Reads an expression.
pub(super) fn read(text: &str) -> Result<Reading, String> {
    if text.len() > LONGEST {
        return Err(format!("the expression has more than {LONGEST} bytes"));
    }
    check_size(text)?;
    let found =
        |part: &str| format!("the expression cannot be read at {:?}", part.chars().take(20).collect::<String>());
    let tokens = Lexer::new(text).lex().map_err(|errors| found(errors.first().map_or("", |(_, part)| part)))?;
    let term = Parser::new(&tokens).parse(Parser::term).map_err(|errors| {
        found(errors.first().and_then(|(_, token)| token.map(|token| token.0)).unwrap_or_default())
    })?;
    let mut reader = Reader::default();
    let is_single = reader.term(&term, &mut Vec::new());
    let mut reading = reader.reading;
    if let Some(name) = reader.absent {
        return Err(format!("queries do not have `{name}`"));
    }
    if !is_single && reading.differs.is_none() {
        reading.differs = Some("several results or none: the first one counts here, or else null".into());
    }
    reading.is_identity = matches!(term, Term::Id);
    if let Term::Str(None, parts) = &term {
        reading.beginning = match parts.first() {
            Some(StrPart::Str(text)) => Some((*text).to_owned()),
            _ => None,
        };
    }
    Ok(reading)
}

/// Checks the nesting and the number of parts before the parser, which needs stack for each, reads them. Refuses
/// comments, which would hide what follows.
fn check_size(text: &str) -> Result<(), String> {
    let (mut open, mut tokens, mut in_word) = (Vec::new(), 0_usize, false);
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        let is_in_text = open.last() == Some(&'"');
        match letter {
            '\\' if is_in_text => open.extend(letters.next().filter(|next| *next == '(')),
            '"' if is_in_text => drop(open.pop()),
            _ if is_in_text => {}
            '"' | '(' | '[' | '{' => open.push(letter),
            ')' | ']' | '}' => drop(open.pop()),
            '#' => return Err("comments in expressions are not supported".into()),
            _ => {}
        }
        let is_word = letter.is_alphanumeric() || matches!(letter, '_' | '$' | '@');
        tokens += usize::from(!(is_in_text || letter.is_whitespace() || is_word && in_word));
        in_word = is_word && !is_in_text;
        if open.len() > DEPTH {
            return Err(format!("brackets are more than {DEPTH} deep"));
        }
        if tokens > TOKENS {
            return Err(format!("the expression has more than {TOKENS} parts"));
        }
    }
    Ok(())
}

/// Goes through a parsed expression.
#[derive(Default)]
struct Reader {
    reading: Reading,
    /// The first function that queries do not have.
    absent: Option<String>,
}

type Query<'t> = Term<&'t str>;

impl Reader {
    fn differ(&mut self, why: String) {
        self.reading.differs.get_or_insert(why);
    }

    /// Goes through a part. Returns true if it has exactly one result, unless it fails. `bound` are the names that the
    /// expression itself defines.
    fn term<'t>(&mut self, term: &Query<'t>, bound: &mut Vec<&'t str>) -> bool {
        match term {
            Term::Id | Term::Num(_) => true,
            Term::Recurse => false,
            Term::Str(format, parts) => self.text(*format, parts, bound),
            Term::Arr(inner) => {
                if let Some(inner) = inner {
                    self.term(inner, bound);
                }
                true
            }
            Term::Obj(members) => members.iter().fold(true, |single, (key, value)| {
                let value = value.as_ref().is_none_or(|value| self.term(value, bound));
                self.term(key, bound) && value && single
            }),
            Term::Neg(inner) => self.term(inner, bound),
            Term::BinOp(left, sign, right) => self.binary(left, sign, right, bound),
            Term::IfThenElse(cases, other) => {
                let mut single = true;
                for (condition, then) in cases {
                    single &= self.term(condition, bound);
                    single &= self.term(then, bound);
                }
                other.as_ref().is_none_or(|other| self.term(other, bound)) && single
            }
            Term::Call(name, arguments) => self.call(name, arguments, bound),
            Term::Var(name) => {
                self.variable(name, Vec::new(), bound);
                true
            }
            Term::Path(start, path) => self.path(start, &path.0, bound),
            Term::Fold(kind, list, pattern, parts) => {
                self.term(list, bound);
                self.fold(pattern, parts, bound) && *kind == "reduce"
            }
            Term::Label(_, inner) => {
                self.term(inner, bound);
                false
            }
            Term::Break(_) => false,
            Term::TryCatch(inner, other) => {
                self.term(inner, bound);
                if let Some(other) = other {
                    self.term(other, bound);
                    self.differ("`catch` reads a message, which may be another one".into());
                }
                false
            }
            Term::Def(definitions, inner) => {
                let count = bound.len();
                definitions.iter().for_each(|definition| self.definition(definition, bound));
                self.term(inner, bound);
                bound.truncate(count);
                false
            }
        }
    }

    /// Reads a text with terms in it.
    fn text<'t>(
        &mut self,
        format: Option<&'t str>,
        parts: &[StrPart<&'t str, Query<'t>>],
        bound: &mut Vec<&'t str>,
    ) -> bool {
        if let Some(format) = format.filter(|format| !["@text", "@json", "@base64", "@uri"].contains(format)) {
            self.differ(format!("`{format}` may write another text"));
        }
        let terms = parts.iter().filter_map(|part| match part {
            StrPart::Term(term) => Some(term),
            _ => None,
        });
        let singles: Vec<bool> = terms.map(|term| self.term(term, bound)).collect();
        singles.iter().all(|single| *single)
    }

    /// Reads the parts of `reduce` or `foreach`, in which the pattern binds its names.
    fn fold<'t>(&mut self, pattern: &Pattern<&'t str>, parts: &[Query<'t>], bound: &mut Vec<&'t str>) -> bool {
        let count = bound.len();
        names(pattern, bound);
        let singles: Vec<bool> = parts.iter().map(|part| self.term(part, bound)).collect();
        bound.truncate(count);
        singles.iter().all(|single| *single)
    }

    fn definition<'t>(&mut self, definition: &Def<&'t str, Query<'t>>, bound: &mut Vec<&'t str>) {
        bound.push(definition.name);
        let count = bound.len();
        bound.extend(&definition.args);
        // An argument with `$` is a function, too.
        bound.extend(definition.args.iter().filter_map(|name| name.strip_prefix('$')));
        self.term(&definition.body, bound);
        bound.truncate(count);
    }

    fn binary<'t>(
        &mut self,
        left: &Query<'t>,
        sign: &BinaryOp<&'t str>,
        right: &Query<'t>,
        bound: &mut Vec<&'t str>,
    ) -> bool {
        let count = bound.len();
        let first = self.term(left, bound);
        if let BinaryOp::Pipe(Some(pattern)) = sign {
            names(pattern, bound);
        }
        let second = self.term(right, bound);
        bound.truncate(count);
        match sign {
            BinaryOp::Comma => return false,
            BinaryOp::Math(Math::Rem) => self.differ("`%` keeps fractions here".into()),
            BinaryOp::Assign | BinaryOp::Update | BinaryOp::UpdateMath(_) | BinaryOp::UpdateAlt => {
                self.differ("assignments to what is missing may fail here".into())
            }
            _ => {}
        }
        first && second
    }

    fn call<'t>(&mut self, name: &'t str, arguments: &[Query<'t>], bound: &mut Vec<&'t str>) -> bool {
        let singles: Vec<bool> = arguments.iter().map(|argument| self.term(argument, bound)).collect();
        if bound.contains(&name) {
            return false;
        }
        if ABSENT.contains(&name) {
            self.absent.get_or_insert_with(|| name.to_owned());
        }
        let several = ["select", "empty", "range", "recurse"];
        if !SAME.contains(&name) && !several.contains(&name) {
            self.differ(format!("`{name}` may do something else here, or may be missing"));
        }
        SAME.contains(&name) && name != "values" && (COLLECT.contains(&name) || singles.iter().all(|single| *single))
    }

    fn path<'t>(&mut self, start: &Query<'t>, parts: &[(Part<Query<'t>>, Opt)], bound: &mut Vec<&'t str>) -> bool {
        let keys = parts.iter().map_while(|(part, _)| match part {
            Part::Index(Term::Str(None, text)) => match text.as_slice() {
                [StrPart::Str(key)] => Some((*key).to_owned()),
                _ => None,
            },
            _ => None,
        });
        let mut single = match start {
            Term::Var(name) => {
                self.variable(name, keys.collect(), bound);
                true
            }
            start => self.term(start, bound),
        };
        for (part, optional) in parts {
            single &= matches!(optional, Opt::Essential);
            single &= match part {
                Part::Index(index) => self.term(index, bound),
                Part::Range(None, None) => false,
                Part::Range(from, to) => {
                    let from = from.as_ref().is_none_or(|from| self.term(from, bound));
                    to.as_ref().is_none_or(|to| self.term(to, bound)) && from
                }
            };
        }
        single
    }

    fn variable(&mut self, name: &str, keys: Vec<String>, bound: &[&str]) {
        if !bound.contains(&name) {
            self.reading.reads.insert((name.trim_start_matches('$').to_owned(), keys));
        }
    }
}

/// Adds the names that a pattern defines. The keys of its objects are names or texts.
fn names<'t>(pattern: &Pattern<&'t str>, bound: &mut Vec<&'t str>) {
    match pattern {
        Pattern::Var(name) => bound.push(name),
        Pattern::Arr(items) => items.iter().for_each(|item| names(item, bound)),
        Pattern::Obj(members) => members.iter().for_each(|(key, member)| {
            if let Term::Var(name) = key {
                bound.push(name);
            }
            names(member, bound);
        }),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn expressions_with_one_result_are_exact() {
        let cases = [
            (".", true),
            (".a.b[0][\"c d\"]", true),
            ("[.items[] | select(.open)] | length", true),
            ("{ n: (.n + 1), $x } ", true),
            ("if .a then 1 else 2 end", true),
            (".a // \"x\"", true),
            ("\"a \\(.b) c\"", true),
            (".items | map(.n * 2) | add", true),
            ("reduce .[] as $n (0; . + $n)", true),
            (". as [$a, {b: $c}] | $a + $c", true),
            (".items[]", false),
            (".a, .b", false),
            (".a?", false),
            ("empty", false),
            (".a % 2", false),
            ("first", false),
            ("[.items[] | test(\"x\")]", false),
            (".a = 1", false),
            ("def f: 1; f", false),
            ("{ a: (1, 2) }", false),
            ("try error(\"x\") catch .", false),
            ("@csv \"\\(.)\"", false),
        ];
        for (text, is_exact) in cases {
            let reading = read(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(reading.differs.is_none(), is_exact, "{text}: {reading:?}");
        }
    }

    #[test]
    fn variables_of_the_workflow_are_found() {
        let reading = read("$context.a + $workflow.input.b + ($x | . as $y | $y) + ([1] | .[0] as $z | $z)").unwrap();
        let found: Vec<_> = reading.reads.iter().map(|(name, keys)| format!("{name} {}", keys.join("."))).collect();
        assert_eq!(found, ["context a", "workflow input.b", "x "]);
        assert_eq!(read("\"https://x.example/\\(.a)\"").unwrap().beginning.as_deref(), Some("https://x.example/"));
        // A name is bound behind its definition only.
        assert_eq!(read("$y + (1 as $y | $y)").unwrap().reads.len(), 1);
    }

    #[test]
    fn hostile_expressions_are_refused() {
        let texts = [
            "",
            ".a +",
            "(",
            ")",
            ".a) | (.b",
            "'a'",
            "\"a",
            "now",
            "env.HOME",
            "input",
            "1 # (",
            "{",
            ".a; .b",
            "import \"a\" as a; .",
            "a b",
        ];
        let long = [
            "(".repeat(30) + "1" + &")".repeat(30),
            "-".repeat(2_000) + "1",
            "try ".repeat(900) + "1",
            ".a|".repeat(900) + ".",
            "\"\\(".repeat(30) + "1" + &")\"".repeat(30),
            "a".repeat(LONGEST + 1),
            "if 1 then ".repeat(300),
            ".[".repeat(25) + "0" + &"]".repeat(25),
        ];
        for text in texts.into_iter().chain(long.iter().map(String::as_str)) {
            assert!(read(text).is_err(), "{text:.40}");
        }
        // The largest ones that are read need no more stack than a thread has.
        for text in ["-".repeat(110) + "1", "try ".repeat(110) + "1", ".a|".repeat(39) + ".", ".|".repeat(59) + "."] {
            assert!(read(&text).is_ok(), "{text:.40}");
        }
    }
}
