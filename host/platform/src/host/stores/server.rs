//! Stores on a server that several processes share.

use std::sync::Arc;

use flowcell_runtime::{
    objects::Chosen,
    rows::copy_and_check::CopyableStore,
    shared::SharedRuns,
    sql::{OpenSharedStoreError, Options, SharedStore},
};

use super::{ServerPlace, Stores};
use crate::host::error::Error;

pub(super) fn open(place: ServerPlace, objects: Chosen) -> Result<Stores, Error> {
    let ServerPlace { url, start_patience, epoch_file } = place;
    let usual = Options::default();
    let start_patience = start_patience.unwrap_or(usual.start_patience);
    let store = Arc::new(connect(&url, Options { start_patience, epoch_file, objects, ..usual })?);
    Ok(Stores {
        journal: store.clone(),
        state: store.clone(),
        blobs: store.clone(),
        leases: store.clone(),
        cache: store.clone(),
        sessions: store.clone(),
        documents: store.clone(),
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

pub(super) fn open_whole(url: &str, objects: Chosen) -> Result<Box<dyn CopyableStore>, Error> {
    Ok(Box::new(connect(url, Options { objects, ..Options::default() })?))
}

fn connect(url: &str, options: Options) -> Result<SharedStore, Error> {
    SharedStore::open(url, options).map_err(|error| match error {
        OpenSharedStoreError::Unreachable(_) => Error::Unreachable(error.into()),
        OpenSharedStoreError::Objects(error) => Error::Blobs(error),
        error => Error::Server(error.into()),
    })
}
