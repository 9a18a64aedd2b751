//! Finds the other version of its flow in which a run is repeated.

use std::{fmt, path::Path, str::FromStr, sync::Arc};

use flowcell_contract::{RunId, Tenant};
use flowcell_flow::{Source, Start};
use flowcell_runtime::{FlowRunner, OpenError, OtherVersion, Repeat, RetryPlan, RunOptions};
use serde::{Deserialize, Serialize};

use super::{
    Host,
    called::{CallableFlows, library_of_retry, simulating_with},
    error::{Error, LoadError, StartError},
    folder::{Folder, library_of, read_source},
    homes, loading, pin,
};
use crate::{FlowLibrary, LibraryError, host::loaded::LoadedFlow};

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

/// Prepares a retry, without a check of the tenant's quotas.
pub(super) fn retry(
    host: &Host,
    run: &RunId,
    wanted: Option<FlowVersion>,
    repeat: Repeat,
    options: RunOptions,
) -> Result<FlowRunner, StartError> {
    let Some(wanted) = wanted else {
        let library = library_of_retry(host, run, options.run_id.as_ref())?;
        return Ok(FlowRunner::retry(host.world(library), run, repeat, options)?);
    };
    let (library, other) = prepare(host, run, wanted)?;
    Ok(FlowRunner::retry_in(host.world(library), run, other, repeat, options)?)
}

/// Performs [`Host::plan_retry`].
pub(super) fn plan(host: &Host, run: &RunId, wanted: FlowVersion, repeat: &Repeat) -> Result<RetryPlan, StartError> {
    let (library, other) = prepare(host, run, wanted)?;
    Ok(FlowRunner::plan_retry_in(&host.world(library), run, &other, repeat)?)
}

/// Pins the wanted version of a run's flow. A capability that was simulated for the run stays simulated.
fn prepare(host: &Host, run: &RunId, wanted: FlowVersion) -> Result<(CallableFlows, OtherVersion), StartError> {
    let record = host.record(run).map_err(OpenError::Store)?.ok_or_else(|| OpenError::Unknown(run.clone()))?;
    let content = pin::content_of(host, &record.pin).map_err(OpenError::Pin)?;
    if content.start != Start::default() {
        return Err(NoVersion::Session.into());
    }
    let library = host.library.as_ref().map(|all| library_of(all, &host.tenant));
    let folder = content.home.as_ref().map_or_else(Folder::nowhere, |home| home.open(library, host.posted()));
    let flow = find(host, &record.flow, &content.name, folder, wanted)?;
    flow.check_enabled()?;
    let host = simulating_with(host, &content);
    let home = homes::bind(&host, &flow);
    let library = CallableFlows::new(host, home);
    let other = OtherVersion { version: flow.version, flow: library.pin(&flow) };
    Ok((library, other))
}

/// Loads a version of the flow `name`, which a run began with as the file `file` in this folder.
fn find(
    host: &Host,
    name: &Arc<str>,
    file: &str,
    folder: Folder,
    wanted: FlowVersion,
) -> Result<LoadedFlow, NoVersion> {
    let path = folder.path().ok_or(NoVersion::Nowhere)?;
    if folder.is_library() {
        let number = match wanted {
            FlowVersion::Latest => None,
            FlowVersion::Number(number) => Some(number),
        };
        return Ok(FlowLibrary::open(path).with_posted_of(host).load(host, name, number)?);
    }
    // The files of this machine belong to the user who started the process, and to no other tenant.
    if host.tenant != Tenant::local() {
        return Err(NoVersion::Nowhere);
    }
    match (wanted, Path::new(file).file_name()) {
        (FlowVersion::Number(number), _) => Err(NoVersion::NoNumbers(number)),
        (FlowVersion::Latest, Some(base)) => {
            let path = path.join(base);
            let source = read_source(&path).map_err(|source| LoadError::from(Error::Read { path, source }))?;
            let source = Source { name: file.to_owned(), ..source };
            Ok(loading::load_in(host, &source, Arc::new(folder))?)
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
