//! Refuses stores on a server, in a build without the feature `shared-stores`.

use flowcell_runtime::{objects::Chosen, rows::copy_and_check::CopyableStore, shared::SharedRuns};

use super::{ServerPlace, Stores};
use crate::host::error::Error;

/// An error for the URL of any server.
#[derive(Debug, thiserror::Error)]
#[error(
    "this build lacks the feature `shared-stores`; build it with `--features full`, or use a store in a folder with \
     `--state DIR`"
)]
struct FeatureMissing;

pub(super) fn open(_: ServerPlace, _: Chosen) -> Result<Stores, Error> {
    Err(missing())
}

pub(super) fn open_runs(_: &str) -> Result<Box<dyn SharedRuns>, Error> {
    Err(missing())
}

pub(super) fn open_whole(_: &str, _: Chosen) -> Result<Box<dyn CopyableStore>, Error> {
    Err(missing())
}

fn missing() -> Error {
    Error::Server(FeatureMissing.into())
}
