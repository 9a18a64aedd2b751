//! Stores on a Restate cluster, with a database beside it.

use std::sync::Arc;

use flowcell_restate::{Location, OpenRestateError, RestateStore};
use flowcell_runtime::{
    objects::Chosen,
    shared::SharedRuns,
    sql::{Journals, OpenSharedStoreError, Options, SharedStore},
};

use super::{ServerPlace, Stores};
use crate::host::error::Error;

pub(super) fn open(place: ServerPlace, objects: Chosen) -> Result<Stores, Error> {
    let ServerPlace { url, start_patience, epoch_file } = place;
    let usual = Options::default();
    let start_patience = start_patience.unwrap_or(usual.start_patience);
    let store = Arc::new(connect(&url, Options { start_patience, epoch_file, objects, ..usual })?);
    let tables = store.tables().clone();
    Ok(Stores {
        journal: store.clone(),
        state: store.clone(),
        blobs: store.blobs(),
        leases: store.clone(),
        cache: tables.clone(),
        sessions: store.clone(),
        documents: tables,
        inbox: store.clone(),
        sweep: store.clone(),
        erase: store.clone(),
        store: None,
        shared: Some(store),
    })
}

pub(super) fn open_runs(url: &str) -> Result<Box<dyn SharedRuns>, Error> {
    Ok(Box::new(connect(url, Options { objects: Chosen::Remembered, ..Options::default() })?))
}

fn connect(url: &str, options: Options) -> Result<RestateStore, Error> {
    let refused = |error: OpenRestateError| match error {
        OpenRestateError::Tables(error @ OpenSharedStoreError::Unreachable(_)) => Error::Unreachable(error.into()),
        OpenRestateError::Tables(OpenSharedStoreError::Objects(error)) => Error::Blobs(error),
        error => Error::Server(error.into()),
    };
    let location = Location::parse(url).map_err(|error| refused(error.into()))?;
    let tables = SharedStore::open(&location.tables, Options { journals: Journals::Elsewhere, ..options });
    let tables = tables.map_err(|error| refused(error.into()))?;
    RestateStore::open(location, Arc::new(tables)).map_err(refused)
}
