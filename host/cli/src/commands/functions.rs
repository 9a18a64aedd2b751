//! `flowcell functions`: prints the filters, tests and functions of expressions.

use std::{ffi::OsStr, fmt::Write as _};

use clap::{
    Args, Command,
    builder::{PossibleValue, StringValueParser, TypedValueParser},
};
use flowcell::{
    contract::functions::{Function, TOPICS, Topic, functions, functions_named, similar_function},
    shape,
};

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
        let mut names: Vec<_> = functions().map(Function::name).collect();
        names.sort_unstable();
        names.dedup();
        Some(Box::new(names.into_iter().map(PossibleValue::new)))
    }
}

pub(super) fn execute(args: &FunctionsArgs) -> Result<Exit, CliError> {
    let found: Vec<&Function> = match &args.name {
        Some(name) => find(name)?,
        None => functions().collect(),
    };
    if args.json {
        put_json(&found.iter().map(|function| shape::function(function)).collect::<Vec<_>>())?;
    } else if args.name.is_some() {
        put(&found.iter().map(|function| describe(function)).collect::<Vec<_>>().join("\n"))?;
    } else {
        put(&TOPICS.iter().map(list).collect::<Vec<_>>().join("\n"))?;
    }
    Ok(Exit::Good)
}

fn find(name: &str) -> Result<Vec<&'static Function>, CliError> {
    let found: Vec<_> = functions_named(name).collect();
    if !found.is_empty() {
        return Ok(found);
    }
    let problem = CliError::wrong(format!("unknown function `{name}`"));
    Err(match similar_function(name) {
        Some(meant) => problem.hint(format!("did you mean `{meant}`?")),
        None => problem.hint("`flowcell functions` lists all functions"),
    })
}

fn list(topic: &Topic) -> String {
    let width = functions().map(|function| function.name().len()).max().unwrap_or(0);
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
