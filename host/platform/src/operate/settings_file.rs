//! The operator's files of settings for a server, in YAML.

use std::{fs::File, io::Read, path::Path};

use flowcell_contract::yaml_reason;
use serde::de::DeserializeOwned;

/// An error of a file of settings.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {why}")]
pub struct SettingsFileError {
    path: String,
    why: String,
    help: &'static str,
}

impl SettingsFileError {
    /// Returns what to do.
    pub fn help(&self) -> &'static str {
        self.help
    }
}

/// A file of settings.
pub trait SettingsFile: Default + DeserializeOwned {
    /// Maximum size of the file.
    const MAX_BYTES: u64;
    /// The sentence that names the page about the file.
    const HELP: &'static str;

    /// Checks the values beyond their types. The error names the place in the file.
    fn check(&self) -> Result<(), String>;

    /// Reads and checks a file.
    fn read(path: &Path) -> Result<Self, SettingsFileError> {
        let wrong = |why: String| SettingsFileError { path: path.display().to_string(), why, help: Self::HELP };
        let mut text = String::new();
        let read = File::open(path).and_then(|file| file.take(Self::MAX_BYTES + 1).read_to_string(&mut text));
        read.map_err(|error| wrong(format!("cannot read the file: {error}")))?;
        if text.len() as u64 > Self::MAX_BYTES {
            return Err(wrong(format!(
                "the file is larger than {} KiB; remove entries that nothing uses",
                Self::MAX_BYTES >> 10
            )));
        }
        Self::parse(&text).map_err(wrong)
    }

    /// Parses and checks a text. The error has the line, or the place in the file. A text without content is the default.
    fn parse(text: &str) -> Result<Self, String> {
        if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
            return Ok(Self::default());
        }
        let file: Self = serde_yaml::from_str(text).map_err(|error| {
            let place = error.location().map(|at| format!("line {}, column {}: ", at.line(), at.column()));
            place.unwrap_or_default() + &yaml_reason(&error)
        })?;
        file.check()?;
        Ok(file)
    }
}
