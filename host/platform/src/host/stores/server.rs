//! Stores on a server that several processes share.

use std::sync::Arc;

use flowcell_runtime::{
    rows::copy_and_check::CopyableStore,
    shared::SharedRuns,
    sql::{Options, SharedStore},
};

use super::Stores;
use crate::host::error::Error;

pub(super) fn open(url: &str) -> Result<Stores, Error> {
    let store = Arc::new(connect(url)?);
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
        store: None,
        shared: Some(store),
    })
}

pub(super) fn open_runs(url: &str) -> Result<Box<dyn SharedRuns>, Error> {
    Ok(Box::new(connect(url)?))
}

pub(super) fn open_whole(url: &str) -> Result<Box<dyn CopyableStore>, Error> {
    Ok(Box::new(connect(url)?))
}

fn connect(url: &str) -> Result<SharedStore, Error> {
    SharedStore::open(url, Options::default()).map_err(|error| Error::Server(error.into()))
}
