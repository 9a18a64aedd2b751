//! Reads files of test cases, `{ cases: [ … ] }`, and names the case that is wrong.

use flowcell_contract::{Json, similar, yaml_error, yaml_reason};
use flowcell_flow::{Diagnostic, Location};
use serde::{Deserialize, de::DeserializeOwned};

/// The content of a file of cases.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File<C> {
    cases: Vec<C>,
}

/// A file of cases that cannot be read.
#[derive(Debug)]
pub struct CaseFileError {
    /// True if one case is wrong, and false if the text is not a list of cases at all.
    pub is_case: bool,
    /// The reason. It begins with the number and the name of a wrong case.
    pub why: String,
    /// The place of the mistake with the reason, if the place is known.
    pub finding: Option<Diagnostic>,
    /// True if the finding says what to write instead.
    pub has_help: bool,
}

/// Returns the name of the file with the cases of a flow: `triage.test.yaml`.
pub fn file_name(flow: &str) -> String {
    format!("{flow}.test.yaml")
}

/// Reads the cases in the text of a file. `file` is the name of the file in the error.
pub fn parse<C: DeserializeOwned>(file: &str, text: &str) -> Result<Vec<C>, CaseFileError> {
    serde_yaml::from_str::<File<C>>(text).map(|file| file.cases).map_err(|error| {
        let case = wrong_case::<C>(text);
        let is_case = case.is_some();
        let case = case.map_or_else(String::new, |case| format!("{case}: "));
        let Some(at) = error.location() else {
            let why = format!("{case}{}", yaml_error(&error));
            return CaseFileError { is_case, why, finding: None, has_help: false };
        };
        let (code, message, help, len) = explain(&error);
        let (line, column) = (at.line() as usize, at.column() as usize);
        let location = Location { file: file.to_owned(), line, column, len };
        let why = format!("{case}{message}");
        let finding = Diagnostic::error(code, text, location, &why, help.as_deref());
        CaseFileError { is_case, why, finding: Some(finding), has_help: help.is_some() }
    })
}

/// Returns the code, the message and the help of the finding about an error, and the number of characters to mark.
fn explain(error: &serde_yaml::Error) -> (&'static str, String, Option<String>, usize) {
    // The place is shown beside the line.
    let cause = yaml_reason(error);
    let Some((unknown, known)) = cause.strip_prefix("unknown field `").and_then(|rest| rest.split_once("`, expected "))
    else {
        let code = if cause.starts_with("missing field") { "missing_key" } else { "bad_value" };
        return (code, cause.clone(), None, 1);
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

#[cfg(test)]
mod tests {
    use super::{super::format::Case, *};

    #[test]
    fn keys_without_a_value_are_refused() {
        for (expect, is_right) in [
            ("expect:", false),
            ("expect: { error: }", false),
            ("expect: { outputs: null }", false),
            ("expect: { route: ~ }", false),
            ("expect: { status: }", false),
            ("expect: {}", true),
            ("expect: { outputs: { $equals: null } }", true),
            ("expect: { status: failed, error: timeout, route: [] }", true),
        ] {
            let read = parse::<Case>("x.test.yaml", &format!("cases:\n  - name: a\n    {expect}\n"));
            assert_eq!(read.is_ok(), is_right, "{expect}");
        }
    }
}
