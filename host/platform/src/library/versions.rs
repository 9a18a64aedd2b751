//! Repeats runs in other versions of their flows.

use std::{fmt, path::Path, str::FromStr, sync::Arc};

use flowcell_contract::{RunId, Tenant};
use flowcell_flow::Source;
use flowcell_runtime::{
    FlowRunner, MigrateError, Migration, MigrationPlan, MoveOptions, Repeat, RetryPlan, RunOptions,
};
use serde::{Deserialize, Serialize};

use super::{FlowLibrary, LibraryError};
use crate::host::{
    Host,
    error::{Error, LoadError, StartError},
    folder::read_source,
    loaded::LoadedFlow,
    loading,
    newer::{self, Origin},
};

/// A version of a flow, as a caller requests it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "WrittenVersion", into = "WrittenVersion")]
pub enum FlowVersion {
    /// The newest version.
    Latest,
    /// The version with this number.
    Number(u32),
}

/// The JSON form of a [`FlowVersion`]: a number, or `"latest"`.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum WrittenVersion {
    Number(u32),
    Word(String),
}

impl From<FlowVersion> for WrittenVersion {
    fn from(version: FlowVersion) -> WrittenVersion {
        match version {
            FlowVersion::Latest => WrittenVersion::Word("latest".into()),
            FlowVersion::Number(number) => WrittenVersion::Number(number),
        }
    }
}

impl TryFrom<WrittenVersion> for FlowVersion {
    type Error = String;

    fn try_from(written: WrittenVersion) -> Result<FlowVersion, String> {
        match written {
            WrittenVersion::Number(number) => Ok(FlowVersion::Number(number)),
            WrittenVersion::Word(word) => word.parse(),
        }
    }
}

impl FromStr for FlowVersion {
    type Err = String;

    fn from_str(text: &str) -> Result<FlowVersion, String> {
        match text {
            "latest" => Ok(FlowVersion::Latest),
            number => number.parse().map(FlowVersion::Number).map_err(|_| "write a number or `latest`".into()),
        }
    }
}

impl fmt::Display for FlowVersion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FlowVersion::Latest => formatter.write_str("latest"),
            FlowVersion::Number(number) => number.fmt(formatter),
        }
    }
}

/// The reason for which a run has no other version of its flow.
#[derive(Debug, thiserror::Error)]
pub enum NoVersion {
    /// The flow is in no library, so its versions have no numbers.
    #[error("the flow of the run is in no library, so it has no version {0}: write `latest` for its file as it is now")]
    NoNumbers(u32),
    /// The flow came with a request.
    #[error("the flow of the run came with a request and is in no library: store it there, and start a run of it")]
    Nowhere,
    /// The flow was started with a prefix, whose sessions belong to its version.
    #[error("the run belongs to a session: start the flow again with the same prefix, which uses its present version")]
    Session,
    /// The library does not have the version, or the version has errors.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// The flow's file has errors, or it cannot be read.
    #[error(transparent)]
    File(#[from] LoadError),
}

impl NoVersion {
    /// Returns a stable error code.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            NoVersion::Session => "session_run",
            NoVersion::Library(LibraryError::Store(_)) => "store_unavailable",
            NoVersion::Library(LibraryError::Invalid(_)) | NoVersion::File(LoadError::Invalid(_)) => "invalid_flow",
            _ => "flow_not_found",
        }
    }
}

/// An error while a retry is prepared.
#[derive(Debug, thiserror::Error)]
pub enum RetryError {
    /// The run has no such version of its flow, or that version cannot be used.
    #[error(transparent)]
    Version(#[from] NoVersion),
    /// The run cannot be repeated.
    #[error(transparent)]
    Start(#[from] StartError),
}

/// Prepares a new run that repeats another with the same input: in its original version of the flow
/// ([`Host::retry`]), or in `version` ([`FlowRunner::retry_in`]), whose nodes may have other names.
pub fn retry(
    host: &Host,
    run: &RunId,
    version: Option<FlowVersion>,
    repeat: Repeat,
    options: RunOptions,
) -> Result<FlowRunner, RetryError> {
    let Some(version) = version else { return Ok(host.retry(run, repeat, options)?) };
    let flow = find(host, newer::origin(host, run)?, version)?;
    Ok(newer::retry_in(host, run, &flow, repeat, options)?)
}

/// Returns what a retry in another version of the flow would keep and run, and begins nothing.
pub fn plan_retry(host: &Host, run: &RunId, version: FlowVersion, repeat: &Repeat) -> Result<RetryPlan, RetryError> {
    let flow = find(host, newer::origin(host, run)?, version)?;
    Ok(newer::plan_retry_in(host, run, &flow, repeat)?)
}

/// The reason why a run did not move to another version of its flow.
#[derive(Debug, thiserror::Error)]
pub enum MoveError {
    /// The run or the version cannot be used.
    #[error(transparent)]
    Prepare(#[from] RetryError),
    /// The plan says why the run cannot move.
    #[error("{}", MigrateError::Refused(.0.clone()))]
    Refused(Box<MigrationPlan>),
}

impl From<MigrateError> for MoveError {
    fn from(error: MigrateError) -> MoveError {
        match error {
            MigrateError::Open(error) => MoveError::Prepare(StartError::from(error).into()),
            MigrateError::Refused(plan) => MoveError::Refused(plan),
        }
    }
}

/// Compares a run that has not ended with another version of its flow, to which it may move.
pub fn migration(
    host: &Host,
    run: &RunId,
    version: FlowVersion,
    options: &MoveOptions,
) -> Result<Migration, RetryError> {
    let flow = find(host, newer::origin(host, run)?, version)?;
    Ok(newer::migration(host, run, &flow, options)?)
}

/// Loads a version of a run's flow.
fn find(host: &Host, origin: Origin, wanted: FlowVersion) -> Result<LoadedFlow, NoVersion> {
    let Origin { name, file, folder, has_settings } = origin;
    if has_settings {
        return Err(NoVersion::Session);
    }
    let path = folder.path().ok_or(NoVersion::Nowhere)?;
    if folder.is_library() {
        let number = match wanted {
            FlowVersion::Latest => None,
            FlowVersion::Number(number) => Some(number),
        };
        return Ok(FlowLibrary::open(path).with_posted_of(host).load(host, &name, number)?);
    }
    // The files of this machine belong to the user who started the process, and to no other tenant.
    if *host.tenant() != Tenant::local() {
        return Err(NoVersion::Nowhere);
    }
    match (wanted, Path::new(&file).file_name()) {
        (FlowVersion::Number(number), _) => Err(NoVersion::NoNumbers(number)),
        (FlowVersion::Latest, Some(base)) => {
            let path = path.join(base);
            let source = read_source(&path).map_err(|source| LoadError::from(Error::Read { path, source }))?;
            Ok(loading::load_in(host, &Source { name: file, ..source }, Arc::new(folder))?)
        }
        (FlowVersion::Latest, None) => Err(NoVersion::Nowhere),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn a_version_is_a_number_or_latest() {
        for (text, version) in [("\"latest\"", FlowVersion::Latest), ("7", FlowVersion::Number(7))] {
            assert_eq!(serde_json::from_str::<FlowVersion>(text).unwrap(), version);
            assert_eq!(serde_json::to_string(&version).unwrap(), text);
            assert_eq!(version.to_string().parse(), Ok(version));
        }
        for text in ["\"newest\"", "-1", "1.5", "null", "\"\""] {
            assert!(serde_json::from_str::<FlowVersion>(text).is_err(), "{text}");
        }
    }
}
