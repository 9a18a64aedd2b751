//! Reads files of test cases, `{ cases: [ … ] }`, and reports the case that is wrong.

use std::path::Path;

use flowcell::{Diagnostic, Json, Location, contract::yaml_error, similar};
use serde::{Deserialize, de::DeserializeOwned};

use crate::cli_error::CliError;

/// The content of a file of cases.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File<C> {
    cases: Vec<C>,
}

/// Reads the cases of a file. An error marks the wrong place and names its case; `hint` shows the expected format.
pub(super) fn read<C: DeserializeOwned>(path: &Path, hint: &str) -> Result<Vec<C>, CliError> {
    let shown = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|error| CliError::wrong(format!("cannot read {shown}")).because(&error).hint(hint))?;
    serde_yaml::from_str::<File<C>>(&text).map(|file| file.cases).map_err(|error| {
        let case = wrong_case::<C>(&text);
        let (problem, case, fallback) = match case {
            Some(case) => (CliError::wrong(format!("a case in {shown} is invalid")), format!("{case}: "), None),
            None => {
                (CliError::wrong(format!("{shown} is not a file of test cases")), String::new(), Some(hint.to_owned()))
            }
        };
        let Some(at) = error.location() else {
            return fallback.into_iter().fold(problem.cause(&format!("{case}{}", yaml_error(&error))), CliError::hint);
        };
        let (code, message, help, len) = explain(&error);
        let (line, column) = (at.line() as usize, at.column() as usize);
        let location = Location { file: shown.to_string(), line, column, len };
        let finding = Diagnostic::error(code, &text, location, &format!("{case}{message}"), help.as_deref());
        fallback.filter(|_| help.is_none()).into_iter().fold(problem.finding(finding), CliError::hint)
    })
}

/// Returns the code, the message and the help of the finding about an error, and the number of characters to mark.
fn explain(error: &serde_yaml::Error) -> (&'static str, String, Option<String>, usize) {
    let first = yaml_error(error).lines().next().unwrap_or_default().to_owned();
    // The place is shown beside the line.
    let (_, cause) = first.split_once(": ").filter(|(head, _)| *head == "error").unwrap_or(("", &first));
    let cause = match cause.split_once(": ") {
        Some((place, cause)) if place.starts_with("line ") => cause,
        _ => cause,
    };
    let Some((unknown, known)) = cause.strip_prefix("unknown field `").and_then(|rest| rest.split_once("`, expected "))
    else {
        let code = if cause.starts_with("missing field") { "missing_key" } else { "bad_value" };
        return (code, cause.to_owned(), None, 1);
    };
    let known = known.trim_start_matches("one of ").split([',', '`', ' ']).filter(|word| !word.is_empty());
    let help = match similar(unknown, known.clone()) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => format!("known keys: {}", known.collect::<Vec<_>>().join(", ")),
    };
    ("unknown_key", format!("unknown key `{unknown}`"), Some(help), unknown.chars().count())
}

/// Returns the number, counted from 1, and the name of the first case that cannot be read. Returns `None` if the text
/// is not a list of cases at all.
fn wrong_case<C: DeserializeOwned>(text: &str) -> Option<String> {
    let file: File<serde_json::Value> = serde_yaml::from_str(text).ok()?;
    let (at, case) = file.cases.into_iter().enumerate().find(|(_, case)| C::deserialize(case).is_err())?;
    let name = case.get("name").and_then(serde_json::Value::as_str).map(|name| format!(" {}", Json::from(name)));
    Some(format!("case {}{}", at + 1, name.unwrap_or_default()))
}
