//! Reads files of test cases, `{ cases: [ … ] }`, and reports the case that is wrong.

use std::path::Path;

use flowcell::{Json, contract::yaml_error, similar};
use serde::{Deserialize, de::DeserializeOwned};

use crate::cli_error::CliError;

/// The content of a file of cases.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File<C> {
    cases: Vec<C>,
}

/// Reads the cases of a file. An error names the wrong case; `hint` shows the expected format.
pub(super) fn read<C: DeserializeOwned>(path: &Path, hint: &str) -> Result<Vec<C>, CliError> {
    let shown = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|error| CliError::wrong(format!("cannot read {shown}")).because(&error).hint(hint))?;
    serde_yaml::from_str::<File<C>>(&text).map(|file| file.cases).map_err(|error| {
        let cause = yaml_error(&error);
        let (problem, hint) = match wrong_case::<C>(&text) {
            Some(case) => (CliError::wrong(format!("{case} in {shown} is invalid")), None),
            None => (CliError::wrong(format!("{shown} is not a file of test cases")), Some(hint.to_owned())),
        };
        let hint = similar_name(&cause).map(|meant| format!("did you mean `{meant}`?")).or(hint);
        hint.into_iter().fold(problem.cause(&cause), CliError::hint)
    })
}

/// Returns the number, counted from 1, and the name of the first case that cannot be read. Returns `None` if the text
/// is not a list of cases at all.
fn wrong_case<C: DeserializeOwned>(text: &str) -> Option<String> {
    let file: File<serde_json::Value> = serde_yaml::from_str(text).ok()?;
    let (at, case) = file.cases.into_iter().enumerate().find(|(_, case)| C::deserialize(case).is_err())?;
    let name = case.get("name").and_then(serde_json::Value::as_str).map(|name| format!(" {}", Json::from(name)));
    Some(format!("case {}{}", at + 1, name.unwrap_or_default()))
}

/// Reads an error of `serde`, such as "unknown field `a`, expected one of b, c". Returns the expected name that is
/// most similar to the unknown one.
fn similar_name(cause: &str) -> Option<&str> {
    let (_, told) = cause.lines().next()?.split_once("unknown ")?;
    let (unknown, known) = told.split_once("`, expected ")?;
    let known = known.trim_start_matches("one of ").split(|sign: char| !sign.is_alphanumeric() && sign != '_');
    similar(unknown.split_once('`')?.1, known.filter(|word| !word.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::similar_name;

    #[test]
    fn the_nearest_key_is_named() {
        for (cause, expected) in [
            ("cases[0]: unknown field `inptu`, expected one of `name`, `input`\n | inptu", Some("input")),
            ("error: line 1 column 1: unknown field `case`, expected one of cases", Some("cases")),
            ("unknown variant `outptu`, expected `output` or `error`", Some("output")),
            ("unknown field `zzzzzz`, expected `cases`", None),
            ("invalid type: string \"x\", expected a sequence", None),
        ] {
            assert_eq!(similar_name(cause), expected, "{cause}");
        }
    }
}
