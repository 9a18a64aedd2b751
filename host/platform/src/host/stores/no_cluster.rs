//! Refuses stores on a Restate cluster, in a build without the feature `restate`.

use flowcell_runtime::{objects::Chosen, shared::SharedRuns};

use super::{ClusterRefusal, ServerPlace, Stores};
use crate::host::error::Error;

pub(super) fn open(_: ServerPlace, _: Chosen) -> Result<Stores, Error> {
    Err(missing())
}

pub(super) fn open_runs(_: &str) -> Result<Box<dyn SharedRuns>, Error> {
    Err(missing())
}

fn missing() -> Error {
    Error::Server(ClusterRefusal::FeatureMissing.into())
}
