//! Everything that a flow was checked from, for runs to pin.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use flowcell_contract::Json;
use flowcell_flow::{
    Files, Source, Start,
    graph::Graph,
    outline::{Fault, Outline},
};
use serde::{Deserialize, Serialize};

use crate::{
    folder::Folder,
    granted::{self, Granting},
    inspector::Inspector,
    schedule,
    simulate::SERVICES,
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
    files: BTreeMap<String, String>,
    /// Flows that it calls: their files, and what they say.
    flows: BTreeMap<String, (String, String)>,
    /// The agents that its steps name: their files, and what they say.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    agents: BTreeMap<String, (String, String)>,
    /// What the flow says of itself, if it is a script.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    outline: Option<Outline>,
    /// The services that it may call at most, if the operator limits that and it is a script.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    services: Option<Vec<String>>,
    /// The packs that its nodes need, and the blobs that they are kept in, if they are.
    pub(crate) packs: BTreeMap<String, Option<Arc<str>>>,
    /// Those of them that came with the program that began the run.
    #[serde(default)]
    pub(crate) built_in: BTreeSet<String>,
}

fn is_default(start: &Start) -> bool {
    *start == Start::default()
}

/// A folder that notes what is read from it.
pub(crate) struct Reading<'a> {
    folder: &'a Folder,
    files: RefCell<BTreeMap<String, String>>,
    flows: RefCell<BTreeMap<String, (String, String)>>,
    agents: RefCell<BTreeMap<String, (String, String)>>,
    /// The capabilities that can be granted.
    capabilities: Vec<String>,
    granting: Granting,
    inspector: Inspector,
    outline: RefCell<Option<Outline>>,
}

impl<'a> Reading<'a> {
    pub(crate) fn of(
        folder: &'a Folder,
        capabilities: Vec<String>,
        granting: Granting,
        inspector: Inspector,
    ) -> Reading<'a> {
        let (files, flows, agents) = (RefCell::default(), RefCell::default(), RefCell::default());
        Reading { folder, files, flows, agents, capabilities, granting, inspector, outline: RefCell::default() }
    }

    /// What the flow was checked from.
    pub(crate) fn content(self, source: &Source, graph: &Graph, start: &Start) -> Content {
        let packs = graph.nodes.iter().filter_map(|node| node.node_type.pack.as_ref());
        Content {
            name: source.name.clone(),
            text: source.text.clone(),
            start: start.clone(),
            files: self.files.into_inner(),
            flows: self.flows.into_inner(),
            agents: self.agents.into_inner(),
            services: self.granting.policy.most_granted(SERVICES).filter(|_| self.outline.borrow().is_some()),
            outline: self.outline.into_inner(),
            packs: packs.map(|digest| (digest.0.to_string(), None)).collect(),
            built_in: BTreeSet::new(),
        }
    }
}

impl Files for Reading<'_> {
    fn read(&self, path: &str) -> Result<String, String> {
        let text = self.folder.read(path)?;
        self.files.borrow_mut().insert(path.to_owned(), text.clone());
        Ok(text)
    }

    fn flow(&self, name: &str) -> Option<Source> {
        let source = self.folder.flow(name)?;
        self.flows.borrow_mut().insert(name.to_owned(), (source.name.clone(), source.text.clone()));
        Some(source)
    }

    fn agent(&self, name: &str) -> Option<Source> {
        let source = self.folder.agent(name)?;
        self.agents.borrow_mut().insert(name.to_owned(), (source.name.clone(), source.text.clone()));
        Some(source)
    }

    fn agents(&self) -> Option<Vec<String>> {
        self.folder.agents()
    }

    fn capabilities(&self) -> Option<Vec<String>> {
        Some(self.capabilities.clone())
    }

    fn check_grant(&self, capability: &str, item: &Json) -> Result<(), String> {
        granted::check(&self.granting, capability, item)
    }

    fn most_granted(&self, capability: &str) -> Option<Vec<String>> {
        self.granting.policy.most_granted(capability)
    }

    fn outline(&self, script: &Source) -> Result<Outline, Fault> {
        let outline = self.inspector.outline(script)?;
        *self.outline.borrow_mut() = Some(outline.clone());
        Ok(outline)
    }

    fn check_script(&self, script: &Source) -> Result<(), Fault> {
        self.inspector.outline(script).map(drop)
    }

    fn check_cron(&self, cron: &str) -> Result<(), String> {
        schedule::check_cron(cron)
    }

    fn check_time_zone(&self, name: &str) -> Result<(), String> {
        schedule::check_time_zone(name)
    }
}

impl Files for Content {
    fn read(&self, path: &str) -> Result<String, String> {
        self.files.get(path).cloned().ok_or_else(|| "it was not pinned".into())
    }

    fn flow(&self, name: &str) -> Option<Source> {
        self.flows.get(name).map(|(name, text)| Source { name: name.clone(), text: text.clone() })
    }

    fn agent(&self, name: &str) -> Option<Source> {
        self.agents.get(name).map(|(name, text)| Source { name: name.clone(), text: text.clone() })
    }

    fn most_granted(&self, capability: &str) -> Option<Vec<String>> {
        self.services.clone().filter(|_| capability == SERVICES)
    }

    fn outline(&self, _: &Source) -> Result<Outline, Fault> {
        self.outline.clone().ok_or_else(|| Fault { message: "it was not pinned".into(), place: None })
    }
}
