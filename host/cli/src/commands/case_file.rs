//! Reads files of test cases from the disk, and reports the case that is wrong.

use std::path::Path;

use flowcell::cases::file::parse;
use serde::de::DeserializeOwned;

use crate::cli_error::CliError;

/// Reads the cases of a file. An error marks the wrong place and names its case; `hint` shows the expected format.
pub(super) fn read<C: DeserializeOwned>(path: &Path, hint: &str) -> Result<Vec<C>, CliError> {
    let shown = path.display().to_string();
    let text = std::fs::read_to_string(path)
        .map_err(|error| CliError::wrong(format!("cannot read {shown}")).because(&error).hint(hint))?;
    parse(&shown, &text).map_err(|error| {
        let problem = CliError::wrong(match error.is_case {
            true => format!("a case in {shown} is invalid"),
            false => format!("{shown} is not a file of test cases"),
        });
        let needs_hint = !error.is_case && !error.has_help;
        let problem = match error.finding {
            Some(finding) => problem.finding(finding),
            None => problem.cause(&error.why),
        };
        if needs_hint { problem.hint(hint) } else { problem }
    })
}
