//! Everything that a flow was checked from, for runs to pin.

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
    host::home::{Callee, Place},
    world::simulate::{SERVICES, Simulate},
};

/// Everything that a flow was checked from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Content {
    /// The flow's file, as messages show it.
    pub(crate) name: String,
    /// What it says.
    pub(crate) text: String,
    /// How it begins, if it is of the agentic dialect.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) start: Start,
    /// Files that it names, and what they say.
    pub(crate) files: BTreeMap<String, String>,
    /// Flows that it calls: their files, and what they say.
    pub(crate) flows: BTreeMap<String, (String, String)>,
    /// The agents that its steps name: their files, and what they say.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) agents: BTreeMap<String, (String, String)>,
    /// What the flow says of itself, if it is a script.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) outline: Option<Outline>,
    /// The services that it may call at most, if the operator limits that and it is a script.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) services: Option<Vec<String>>,
    /// What is simulated for a run of it, wherever it goes on.
    #[serde(default, skip_serializing_if = "Simulate::is_empty")]
    pub(crate) simulate: Simulate,
    /// The packs that its nodes need, and the blobs that they are kept in, if they are.
    pub(crate) packs: BTreeMap<String, Option<Arc<str>>>,
    /// Those of them that came with the program that began the run.
    #[serde(default)]
    pub(crate) built_in: BTreeSet<String>,
    /// Where the flow lies, for the names that its runs compute. Runs that older versions accepted have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) home: Option<Place>,
    /// The flows that a run of it can call, and that these can call, by the names that callers use.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) called: BTreeMap<String, Callee>,
}

fn is_default(start: &Start) -> bool {
    *start == Start::default()
}

impl Content {
    /// The flow's file.
    pub(crate) fn source(&self) -> Source {
        Source { name: self.name.clone(), text: self.text.clone() }
    }

    /// Bytes of text.
    pub(crate) fn size(&self) -> usize {
        let files = self.files.values().map(String::len);
        let named = self.flows.values().chain(self.agents.values()).map(|(_, text)| text.len());
        self.text.len() + files.chain(named).sum::<usize>()
    }
}

impl CheckContext for Content {
    /// What a run has pinned was accepted before.
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
