//! Reads the test cases of a flow.

use std::path::{Path, PathBuf};

use flowcell::{
    cases::{file::file_name, format::Case},
    script::ENDING,
};

use crate::{cli_error::CliError, commands::case_file};

/// Returns the path of a flow's cases: `triage.test.yaml` for `triage.yaml`.
pub(in crate::commands) fn cases_path(flow: &Path) -> PathBuf {
    let file = flow.file_name().unwrap_or_default().to_string_lossy();
    match file.strip_suffix(ENDING) {
        Some(name) => flow.with_file_name(file_name(name)),
        None => flow.with_extension("test.yaml"),
    }
}

/// Reads the cases of a flow. An empty list is an error.
pub(super) fn read(flow: &Path) -> Result<Vec<Case>, CliError> {
    let path = cases_path(flow);
    let hint =
        "write the cases of `triage.yaml` into `triage.test.yaml`: { cases: [{ name, input, expect: { outputs } }] }";
    let cases: Vec<Case> = case_file::read(&path, hint)?;
    if cases.is_empty() {
        let problem = CliError::wrong(format!("the list `cases` of {} is empty", path.display()));
        return Err(problem.hint("write a case, such as `{ name: it works, input: {}, expect: { outputs: {} } }`"));
    }
    Ok(cases)
}
