//! The home of a run: its pinned flows, and the folder for computed names.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
};

use flowcell_flow::{CheckContext, Source, graph::Graph};
use flowcell_services::pattern;
use serde::{Deserialize, Serialize};

use crate::{
    host::folder::Folder,
    posted::PostedFlows,
    world::tools::{self, FLOW_TOOL},
};

/// Maximum number of flows that a run pins in addition to its own. Other flows are looked up when the run calls them.
pub(crate) const MAX_PINNED_FLOWS: usize = 256;

/// The location of a flow, as its runs record it. A flow from the network has no folder, or only that of the library
/// whose flows it may call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FlowLocation {
    /// The absolute path of the flow's folder, or of the library beside a flow from the network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    folder: Option<String>,
    /// The absolute path of the project, below which agents are found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    project: Option<String>,
    /// True if the folder is the library of the run's tenant.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    library: bool,
    /// True for a flow from the network: it is not in the folder, and only calls the flows there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    request: bool,
}

impl FlowLocation {
    /// Returns the location of a folder, independent of the current folder of this process.
    pub(crate) fn from_folder(folder: &Folder) -> FlowLocation {
        let absolute = |path: &Path| {
            let here = if path.as_os_str().is_empty() { Path::new(".") } else { path };
            std::path::absolute(here).ok()?.to_str().map(str::to_owned)
        };
        let (folder, request) = folder.beside().map_or((folder, false), |library| (library, true));
        let Some(path) = folder.path() else { return FlowLocation::default() };
        let (path, project) = (absolute(&path), absolute(folder.project()));
        FlowLocation { folder: path, project, library: folder.is_library(), request }
    }

    /// Opens the folder. `library` is the folder of the tenant's library in this process. If the location is a
    /// library whose folder is missing on this machine, `library` is opened instead. A library also has the tenant's
    /// posted flows.
    pub(crate) fn open(&self, library: Option<PathBuf>, posted: Option<PostedFlows>) -> Folder {
        let project = PathBuf::from(self.project.as_deref().unwrap_or_default());
        let folder = match (self.folder.as_ref().map(PathBuf::from), library.filter(|_| self.library)) {
            (Some(folder), Some(library)) if !folder.is_dir() => Folder::of_library(library),
            (Some(folder), _) => Folder::in_project(folder, project, self.library),
            (None, _) => Folder::nowhere(),
        };
        let folder = if self.request { folder.for_request() } else { folder };
        folder.with_posted(posted.filter(|_| self.library))
    }
}

/// A flow that a run may call, as it was when the run was accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Callee {
    /// The hash of the flow's pinned content.
    Pinned(Arc<str>),
    /// The reason why the flow cannot be used.
    Unusable(String),
    /// The name of the flow's file, and its text. Older versions pinned only these.
    Text(String, String),
}

/// The flows that a run can call.
#[derive(Clone)]
pub(crate) struct Home {
    /// The folder of the run's flow. Names of flows that the run computes are looked up in it.
    pub(crate) folder: Arc<Folder>,
    /// The flows that are pinned, by the names that callers use.
    pub(crate) flows: BTreeMap<String, Callee>,
}

impl Home {
    /// Creates a home without pinned flows.
    pub(crate) fn new(folder: Arc<Folder>) -> Home {
        Home { folder, flows: BTreeMap::new() }
    }

    /// Returns whether the run was accepted by a version that pinned texts only.
    pub(crate) fn is_old(&self) -> bool {
        self.flows.values().any(|callee| matches!(callee, Callee::Text(..)))
    }

    /// Returns the sorted names of the flows that an agent may call as tools.
    pub(crate) fn tool_flow_names(&self) -> BTreeSet<String> {
        let mut names: BTreeSet<_> = self.folder.flows().into_iter().collect();
        names.extend(self.flows.keys().cloned());
        names.retain(|name| self.has(name));
        names
    }

    /// Returns whether a flow of this name can be called.
    pub(crate) fn has(&self, name: &str) -> bool {
        match self.flows.get(name) {
            Some(callee) => !matches!(callee, Callee::Unusable(_)),
            None => self.folder.flow(name).is_some(),
        }
    }

    /// Returns the text of a flow whose content is not pinned: the text that an older version pinned, or the flow in
    /// the folder. Also returns the folder in which the flow reads files.
    pub(crate) fn source(&self, name: &str) -> Option<(Source, Arc<Folder>)> {
        let here = || self.folder.clone();
        match self.flows.get(name) {
            Some(Callee::Text(file, text)) => Some((Source { name: file.clone(), text: text.clone() }, here())),
            Some(_) => None,
            None => {
                let (source, folder) = self.folder.find(name)?;
                Some((source, folder.map_or_else(here, Arc::new)))
            }
        }
    }
}

/// Returns whether a flow grants its nodes tools, which may be flows. Looks up none of them.
pub(crate) fn grants_tools(graph: &Graph) -> bool {
    graph.nodes.iter().any(|node| node.grants.0.contains_key(tools::INTERFACE))
}

/// Returns the names of the flows that a flow grants its nodes as tools: those that a grant names, and those in
/// `folder` that match a grant's pattern.
pub(crate) fn granted_flows(graph: &Graph, folder: &Folder) -> BTreeSet<String> {
    let grants = graph.nodes.iter().filter_map(|node| node.grants.0.get(tools::INTERFACE));
    let mut names = BTreeSet::new();
    for pattern in grants.flat_map(|grant| grant.as_array().unwrap_or_default().iter().chain([grant])) {
        match pattern.as_str() {
            Some(pattern) if pattern.contains('*') => {
                let all = folder.flows().into_iter();
                names.extend(all.filter(|name| pattern::matches(pattern, &format!("{FLOW_TOOL}{name}"))));
            }
            Some(name) => names.extend(name.strip_prefix(FLOW_TOOL).map(str::to_owned)),
            None => {}
        }
    }
    names
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn the_location_of_a_flow_from_the_network_is_that_of_its_library_only() {
        let library = tempfile::tempdir().unwrap();
        std::fs::write(library.path().join("known.yaml"), "flow: {}").unwrap();
        let place = FlowLocation::from_folder(&Folder::nowhere_beside(library.path().to_owned()));
        let written = serde_json::to_string(&place).unwrap();
        let read: FlowLocation = serde_json::from_str(&written).unwrap();
        assert_eq!(read, place, "{written}");
        let folder = read.open(None, None);
        assert!(folder.flow("known").is_some() && folder.has_library());
        assert!(folder.path().is_none() && !folder.is_library() && folder.read("known.yaml").is_err());
        // The folder is that of another machine.
        let elsewhere = FlowLocation { folder: Some("/flowcell/elsewhere".to_owned()), ..place };
        assert!(elsewhere.open(Some(library.path().to_owned()), None).flow("known").is_some());
        assert!(elsewhere.open(None, None).flow("known").is_none());
        // Runs that older versions accepted have no library.
        let old: FlowLocation = serde_json::from_str("{}").unwrap();
        assert!(old.open(Some(library.path().to_owned()), None).flow("known").is_none());
        assert_eq!(FlowLocation::from_folder(&Folder::nowhere()), old);
    }
}
