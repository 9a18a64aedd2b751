//! The flows that other flows call, and those that runs have pinned.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use flowcell_contract::{Failure, Json};
use flowcell_flow::graph::Graph;
use flowcell_runtime::{Flows, Pinned, ports::Pin};

use super::{Host, loading::log_kept};
use crate::{content::Content, home::Home, loaded::check_whole};

/// Loads called flows when they are first called.
pub(super) struct Library {
    host: Host,
    home: Arc<Home>,
    /// The content of a pin that was read to find the home.
    known: Option<(Pin, Content)>,
    called: Mutex<HashMap<String, Pinned>>,
    pinned: Mutex<HashMap<Pin, Arc<Graph>>>,
}

impl Library {
    /// The flows that the runs of a home can call.
    pub(super) fn new(host: Host, home: Arc<Home>) -> Library {
        Library { host, home, known: None, called: Mutex::default(), pinned: Mutex::default() }
    }

    /// The same, with the content of a pin.
    pub(super) fn knowing(self, pin: Pin, content: Content) -> Library {
        Library { known: Some((pin, content)), ..self }
    }

    /// Returns where its flows are from.
    pub(super) fn home(&self) -> &Arc<Home> {
        &self.home
    }
}

impl Flows for Library {
    fn resolve(&self, name: &str) -> Result<Pinned, Failure> {
        let mut called = self.called.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(flow) = called.get(name) {
            return Ok(flow.clone());
        }
        let flow = self.host.pin(&self.host.called(&self.home, name)?, &self.home);
        called.insert(name.to_owned(), flow.clone());
        Ok(flow)
    }

    fn check_input(&self, flow: &Graph, input: &Json) -> Result<(), Failure> {
        let checked = self.host.computing(flow, || check_whole(flow, input));
        checked.map_err(|error| Failure::new(error.code(), error.to_string()))
    }

    fn pinned(&self, pin: &Pin) -> Result<Arc<Graph>, Failure> {
        let mut pinned = self.pinned.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(graph) = pinned.get(pin) {
            return Ok(graph.clone());
        }
        let (graph, warnings) = match &self.known {
            Some((known, content)) if known == pin => self.host.check_content(content)?,
            _ => self.host.check_pinned(pin)?,
        };
        log_kept(self.host.tenant(), &warnings);
        pinned.insert(pin.clone(), graph.clone());
        Ok(graph)
    }
}
