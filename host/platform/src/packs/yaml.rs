//! YAML documents with the places of their errors.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use flowcell_contract::yaml_reason;
use serde::de::DeserializeOwned;

use super::{InstallError, MAX_FILE};

/// Reads a document. It returns `None` if the file does not exist.
pub(super) fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, InstallError> {
    text(path)?.map(|text| parse(path, &text)).transpose()
}

/// Reads the text of a document. It returns `None` if the file does not exist.
pub(super) fn text(path: &Path) -> Result<Option<String>, InstallError> {
    let cannot = |source| InstallError::Read { path: path.to_owned(), source };
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file.map_err(cannot)?,
    };
    let mut text = String::new();
    file.take(MAX_FILE + 1).read_to_string(&mut text).map_err(cannot)?;
    if text.len() as u64 > MAX_FILE {
        return Err(document_error(
            path,
            format!("it is larger than {MAX_FILE} bytes; remove entries that nothing uses"),
        ));
    }
    Ok(Some(text))
}

pub(super) fn parse<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T, InstallError> {
    serde_yaml::from_str(text).map_err(|error| {
        let place = error.location().map(|at| format!("line {}, column {}: ", at.line(), at.column()));
        document_error(path, place.unwrap_or_default() + &yaml_reason(&error))
    })
}

fn document_error(path: &Path, why: String) -> InstallError {
    InstallError::Document { path: path.to_owned(), why }
}
