//! `flowcell functions`: prints the filters, tests and functions of expressions, and the names of their facts.

use std::{ffi::OsStr, fmt::Write as _};

use clap::{
    Args, Command,
    builder::{PossibleValue, StringValueParser, TypedValueParser},
};
use flowcell::{
    contract::functions::{Function, TOPICS, Topic, functions, functions_named, similar_function},
    shape,
};
use serde_json::json;

use crate::{
    cli_error::{CliError, Exit},
    output::{put, put_json},
};

/// Arguments of `flowcell functions`.
#[derive(Args)]
pub(crate) struct FunctionsArgs {
    /// The function to describe, such as `round`
    #[arg(value_parser = NameParser, hide_possible_values = true)]
    name: Option<String>,
    /// Print the list as JSON
    #[arg(long)]
    json: bool,
}

/// Accepts any name, so that an unknown one gets a suggestion, and offers the known ones to the completion of shells.
#[derive(Clone)]
struct NameParser;

impl TypedValueParser for NameParser {
    type Value = String;

    fn parse_ref(&self, command: &Command, arg: Option<&clap::Arg>, value: &OsStr) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue>>> {
        let mut names: Vec<_> = functions().map(Function::name).chain(FACTS.map(|(name, _)| name)).collect();
        names.sort_unstable();
        names.dedup();
        Some(Box::new(names.into_iter().map(PossibleValue::new)))
    }
}

/// The facts that expressions read by name, as the manual's page `expressions` describes them.
const FACTS: [(&str, &str); 13] = [
    ("flow.input", "The input of the run."),
    ("flow.name", "The name of the flow."),
    ("flow.version", "The version of the flow in the library, or null."),
    ("now", "The present time, as a text in UTC: `now | dateformat('%F')`."),
    ("run.id", "The id of the run."),
    ("run.labels", "The labels at the start of the run."),
    ("run.started", "The time at which the run began."),
    ("task.id", "The address of the task; not in `outputs` and `bodyOutput`."),
    ("task.pass", "The number of the pass of the innermost cycle of edges, or null."),
    ("tenant", "The name of the tenant."),
    ("undo.input", "In a node that undoes another one: the input of that one."),
    ("undo.output", "In a node that undoes another one: the output of that one."),
    ("undo.task", "In a node that undoes another one: the address of its task."),
];

/// The name of a fact, and its summary.
type Fact = (&'static str, &'static str);

pub(super) fn execute(args: &FunctionsArgs) -> Result<Exit, CliError> {
    let (found, facts): (Vec<&Function>, Vec<Fact>) = match &args.name {
        Some(name) => find(name)?,
        None => (functions().collect(), FACTS.to_vec()),
    };
    if args.json {
        let fact = |(name, summary): &Fact| json!({ "name": name, "kind": "fact", "summary": summary });
        let functions = found.iter().map(|function| shape::function(function));
        put_json(&functions.chain(facts.iter().map(fact)).collect::<Vec<_>>())?;
    } else if args.name.is_some() {
        let functions = found.iter().map(|function| describe(function));
        let facts = facts.iter().map(|(name, summary)| format!("{name} (fact)\n\n  {summary}\n"));
        put(&functions.chain(facts).collect::<Vec<_>>().join("\n"))?;
    } else {
        put(&TOPICS.iter().map(list).chain([list_facts()]).collect::<Vec<_>>().join("\n"))?;
    }
    Ok(Exit::Good)
}

/// Returns the functions with a name, and the facts with it or below it, such as `run.id` for `run`.
fn find(name: &str) -> Result<(Vec<&'static Function>, Vec<Fact>), CliError> {
    let found: Vec<_> = functions_named(name).collect();
    let is_meant =
        |fact: &&Fact| fact.0.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    let facts: Vec<Fact> = FACTS.iter().filter(is_meant).copied().collect();
    if !found.is_empty() || !facts.is_empty() {
        return Ok((found, facts));
    }
    let problem = CliError::wrong(format!("unknown function `{name}`"));
    let parts = functions_with(name);
    Err(match similar_function(name) {
        Some(meant) => problem.hint(format!("did you mean `{meant}`?")),
        None if !parts.is_empty() => problem.hint(format!("did you mean {}?", parts.join(" or "))),
        None => problem.hint("`flowcell functions` lists all functions"),
    })
}

/// Returns the functions whose names contain a word of at least [`MIN_PART_CHARACTERS`], in quotes, at most
/// [`MAX_NAMED_FUNCTIONS`].
fn functions_with(word: &str) -> Vec<String> {
    let word = word.replace('_', "").to_ascii_lowercase();
    let has_word = |name: &&str| word.len() >= MIN_PART_CHARACTERS && name.contains(&word);
    let mut names: Vec<_> = functions().map(Function::name).filter(has_word).collect();
    names.sort_unstable();
    names.dedup();
    names.iter().take(MAX_NAMED_FUNCTIONS).map(|name| format!("`{name}`")).collect()
}

/// Minimum number of characters of a word that is searched for in names.
const MIN_PART_CHARACTERS: usize = 3;
/// Maximum number of functions that an error names.
const MAX_NAMED_FUNCTIONS: usize = 8;

/// Returns the number of characters of the longest name.
fn width() -> usize {
    functions().map(|function| function.name().len()).max().unwrap_or(0)
}

fn list_facts() -> String {
    let width = width();
    FACTS.iter().fold("Facts about the run:\n".to_owned(), |text, (name, summary)| {
        format!("{text}  {name:width$}  {summary}\n")
    })
}

fn list(topic: &Topic) -> String {
    let width = width();
    topic.functions.iter().fold(format!("{}:\n", topic.title), |mut text, function| {
        // Writing to a string does not fail.
        let _ = writeln!(text, "  {:width$}  {}", function.name(), function.summary);
        text
    })
}

fn describe(function: &Function) -> String {
    let others = function.names.iter().skip(1).map(|name| format!(", also {name}")).collect::<String>();
    format!(
        "{} ({}{others})\n\n  {}\n\n{}\n\nexample  {}\n  gives  {}\n",
        function.name(),
        function.kind.word(),
        function.signature,
        function.summary,
        function.example,
        function.result
    )
}

#[cfg(test)]
mod tests {
    use super::{FACTS, find, functions_with, list_facts};

    #[test]
    fn facts_are_listed_and_described_as_in_the_manual() {
        let page = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../server/manual/expressions.md"));
        for (name, summary) in FACTS.iter().filter(|(name, _)| !name.starts_with("undo.") && *name != "flow.input") {
            assert!(page.contains(&format!("\n| `{name}` |")), "{name}");
            assert!(list_facts().contains(summary), "{name}");
        }
        let of = |name: &str| find(name).map(|(functions, facts)| (functions.len(), facts.len())).ok();
        assert_eq!(of("now"), Some((0, 1)));
        assert_eq!(of("run"), Some((0, 3)));
        assert_eq!(of("run.id"), Some((0, 1)));
        assert_eq!(of("round"), Some((1, 0)));
        assert_eq!(of("ru"), None);
    }

    #[test]
    fn unknown_names_suggest_the_functions_that_contain_them() {
        assert_eq!(functions_with("url"), ["`urldecode`", "`urlencode`", "`urlparts`"]);
        assert!(functions_with("regex").contains(&"`regexfind`".to_owned()));
        assert!(functions_with("ur").is_empty() && functions_with("zzzz").is_empty());
    }
}
