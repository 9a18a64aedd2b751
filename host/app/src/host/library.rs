//! The flows that other flows call: those beside the flow file.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use flowcell_contract::{Failure, code};
use flowcell_flow::{Files, graph::Graph};
use flowcell_runtime::Flows;

use super::Host;
use crate::folder::Folder;

/// Loads called flows when they are first called.
pub(super) struct Library {
    host: Host,
    folder: Arc<Folder>,
    loaded: Mutex<HashMap<String, Arc<Graph>>>,
}

impl Library {
    /// The flows in a folder.
    pub(super) fn new(host: Host, folder: Arc<Folder>) -> Library {
        Library { host, folder, loaded: Mutex::default() }
    }

    fn load(&self, name: &str) -> Result<Arc<Graph>, Failure> {
        let source = self.folder.flow(name).ok_or_else(|| {
            Failure::new(code::FLOW_NOT_FOUND, format!("there is no file `{name}.yaml` beside the calling flow"))
        })?;
        let loaded = self.host.load_in(&source, self.folder.clone());
        let flow = loaded.map_err(|error| {
            Failure::new(code::FLOW_NOT_FOUND, format!("the flow `{name}` cannot be used: {error}"))
        })?;
        Ok(flow.graph)
    }
}

impl Flows for Library {
    fn resolve(&self, name: &str) -> Result<Arc<Graph>, Failure> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(graph) = loaded.get(name) {
            return Ok(graph.clone());
        }
        let graph = self.load(name)?;
        loaded.insert(name.to_owned(), graph.clone());
        Ok(graph)
    }
}
