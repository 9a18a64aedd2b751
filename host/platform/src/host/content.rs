//! The texts that a flow was checked from, for runs to pin.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use flowcell_flow::{
    CheckContext, CheckMode, Source, Start,
    outline::{Outline, ScriptError},
};
use serde::{Deserialize, Serialize};

use crate::{
    host::home::{Callee, FlowLocation},
    world::simulate::{SERVICES, Simulate},
};

/// The texts and settings that the check of a flow has read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Content {
    /// The path of the flow's file, as messages show it.
    pub(crate) name: String,
    /// The text of the flow's file.
    pub(crate) text: String,
    /// The start settings of an agentic flow.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) start: Start,
    /// The texts of the files that the flow names, by path.
    pub(crate) files: BTreeMap<String, String>,
    /// The file and text of each flow that this flow calls, by name.
    pub(crate) flows: BTreeMap<String, (String, String)>,
    /// The file and text of each agent that the flow's steps name, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) agents: BTreeMap<String, (String, String)>,
    /// The outline of a script, which declares the flow's metadata.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) outline: Option<Outline>,
    /// The only services that a script may call. `None` if the operator sets no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) services: Option<Vec<String>>,
    /// The capabilities and services that are simulated for the flow's runs, in every process that continues them.
    #[serde(default, skip_serializing_if = "Simulate::is_empty")]
    pub(crate) simulate: Simulate,
    /// The digests of the packs that the flow's nodes need, each with the id of the blob that stores it. `None`: the
    /// content is not pinned yet, or the store is in memory and the pack is built in.
    pub(crate) packs: BTreeMap<String, Option<Arc<str>>>,
    /// The digests of the packs that are part of the program that began the run.
    #[serde(default)]
    pub(crate) built_in: BTreeSet<String>,
    /// The location of the flow's folder. If a run computes the name of a flow that it calls, it looks up the name in
    /// this folder. `None` before the content is pinned, and for runs that older versions accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) home: Option<FlowLocation>,
    /// The flows that a run can call, directly or through others, by the names that callers use.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) called: BTreeMap<String, Callee>,
}

fn is_default(start: &Start) -> bool {
    *start == Start::default()
}

impl Content {
    /// Returns the flow's file.
    pub(crate) fn source(&self) -> Source {
        Source { name: self.name.clone(), text: self.text.clone() }
    }

    /// Returns the content without what does not belong to the flow itself: its location, the flows that it calls, the
    /// simulations of its runs, and the places where its packs are stored.
    pub(crate) fn own_part(mut self) -> Content {
        self.packs.values_mut().for_each(|blob| *blob = None);
        Content {
            name: String::new(),
            flows: BTreeMap::new(),
            services: None,
            simulate: Simulate::default(),
            built_in: BTreeSet::new(),
            home: None,
            called: BTreeMap::new(),
            ..self
        }
    }

    /// Returns the size of all texts, in bytes.
    pub(crate) fn size(&self) -> usize {
        let files = self.files.values().map(String::len);
        let named = self.flows.values().chain(self.agents.values()).map(|(_, text)| text.len());
        self.text.len() + files.chain(named).sum::<usize>()
    }
}

impl CheckContext for Content {
    /// Returns the mode for stored flows, since a pinned flow was already accepted.
    fn mode(&self) -> CheckMode {
        CheckMode::Stored
    }

    fn read(&self, path: &str) -> Result<String, String> {
        self.files.get(path).cloned().ok_or_else(|| "it was not pinned".into())
    }

    fn flow(&self, name: &str) -> Option<Source> {
        self.flows.get(name).map(|(name, text)| Source { name: name.clone(), text: text.clone() })
    }

    fn has_flow(&self, _: &str) -> bool {
        true
    }

    fn agent(&self, name: &str) -> Option<Source> {
        self.agents.get(name).map(|(name, text)| Source { name: name.clone(), text: text.clone() })
    }

    fn most_granted(&self, capability: &str) -> Option<Vec<String>> {
        self.services.clone().filter(|_| capability == SERVICES)
    }

    fn outline(&self, _: &Source) -> Result<Outline, ScriptError> {
        self.outline.clone().ok_or_else(|| ScriptError { message: "it was not pinned".into(), location: None })
    }
}
