//! The flows that other flows call: those beside the flow file, and those that runs have pinned.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use flowcell_contract::{Failure, Json, code};
use flowcell_flow::{Files, agentic::flow_label, graph::Graph};
use flowcell_runtime::{Flows, Pinned, ports::Pin};

use super::Host;
use crate::{folder::Folder, loaded::check_whole};

/// Loads called flows when they are first called.
pub(super) struct Library {
    host: Host,
    folder: Arc<Folder>,
    called: Mutex<HashMap<String, Pinned>>,
    pinned: Mutex<HashMap<Pin, Arc<Graph>>>,
}

impl Library {
    /// The flows in a folder.
    pub(super) fn new(host: Host, folder: Arc<Folder>) -> Library {
        Library { host, folder, called: Mutex::default(), pinned: Mutex::default() }
    }

    fn load(&self, name: &str) -> Result<Pinned, Failure> {
        let source = self.folder.flow(name).ok_or_else(|| {
            Failure::new(code::FLOW_NOT_FOUND, format!("there is no file `{name}.yaml` beside the calling flow"))
        })?;
        let loaded = self.host.load_in(&source, self.folder.clone());
        let flow = loaded.map_err(|error| {
            Failure::new(code::FLOW_NOT_FOUND, format!("the flow `{name}` cannot be used: {error}"))
        })?;
        if flow_label(flow.graph()).is_some_and(|label| label.disabled) {
            return Err(Failure::new(code::FLOW_NOT_FOUND, format!("the flow `{name}` is disabled in its file")));
        }
        Ok(self.host.pin(&flow))
    }
}

impl Flows for Library {
    fn resolve(&self, name: &str) -> Result<Pinned, Failure> {
        let mut called = self.called.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(flow) = called.get(name) {
            return Ok(flow.clone());
        }
        let flow = self.load(name)?;
        called.insert(name.to_owned(), flow.clone());
        Ok(flow)
    }

    fn check_input(&self, flow: &Graph, input: &Json) -> Result<(), Failure> {
        check_whole(flow, input).map_err(|error| Failure::new(code::INVALID_INPUT, error.to_string()))
    }

    fn pinned(&self, pin: &Pin) -> Result<Arc<Graph>, Failure> {
        let mut pinned = self.pinned.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(graph) = pinned.get(pin) {
            return Ok(graph.clone());
        }
        let graph = self.host.pinned(pin)?;
        pinned.insert(pin.clone(), graph.clone());
        Ok(graph)
    }
}
