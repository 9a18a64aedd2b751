//! The node types and the names around a flow that is being written.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use flowcell_contract::Catalog;
use flowcell_flow::{CheckContext, Source};

use super::{
    Host,
    folder::{FLOW_ENDINGS, Folder, is_flow_name},
    inspector::Inspector,
    loading,
    reading::RecordingContext,
};

pub use super::folder::Listing;

/// The node types and the names that a flow may use, for an editor. They are those of one moment: packs, files and
/// secrets may change. Names are looked up when they are asked for.
pub struct Editing {
    host: Host,
    catalog: Arc<Catalog>,
    context: RecordingContext,
    folder: Arc<Folder>,
}

impl Editing {
    /// Looks around a flow. The paths of packs and files in it are relative to the folder in the source's name.
    pub(crate) fn new(host: &Host, source: &Source) -> Editing {
        Editing::in_folder(host, source, Folder::of(Path::new(&source.name)))
    }

    /// Looks around a flow in this folder.
    pub(crate) fn in_folder(host: &Host, source: &Source, folder: Folder) -> Editing {
        let folder = Arc::new(folder);
        let (catalog, _) = loading::catalog_with(host, &host.catalog(), &flowcell_flow::packs(source), source, &folder);
        let inspector = Inspector::new(host.shared.engine.clone(), catalog.clone(), host.tenant.clone());
        let context = RecordingContext::new(loading::surroundings(host, folder.clone()), inspector);
        Editing { host: host.clone(), catalog, context, folder }
    }

    /// Returns the node types of the host, with those of the packs that the flow names.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// Returns the access to the files and settings that a check of the flow needs.
    pub fn context(&self) -> &dyn CheckContext {
        &self.context
    }

    /// Returns the names of the flows that the flow may name: those in its folder, or for a flow without a folder those
    /// of its library.
    pub fn flows(&self) -> Vec<String> {
        self.folder.flows()
    }

    /// Returns the path of the file of a flow in the folder; `None` if there is none, or if the flow may not read it.
    pub fn path_of(&self, flow: &str) -> Option<PathBuf> {
        let mut names = FLOW_ENDINGS.iter().filter(|_| is_flow_name(flow)).map(|ending| format!("{flow}.{ending}"));
        names.find_map(|name| self.folder.find_file(&name))
    }

    /// Returns the path of a file beside the flow; `None` if there is none, or if the flow may not read it.
    pub fn file(&self, path: &str) -> Option<PathBuf> {
        self.folder.find_file(path)
    }

    /// Returns the files in and below a folder, which is empty for the flow's own one.
    pub fn files(&self, folder: &str) -> Listing {
        self.folder.files(folder)
    }

    /// Returns the path of the file of an agent; `None` if there is none.
    pub fn agent_file(&self, name: &str) -> Option<PathBuf> {
        self.context.agent(name).map(|source| PathBuf::from(source.name))
    }

    /// Returns the names of the agents that have a file.
    pub fn agents(&self) -> Vec<String> {
        self.context.agents().unwrap_or_default()
    }

    /// Returns the names of the secrets of the tenant; none if the store cannot be read.
    pub fn secrets(&self) -> Vec<String> {
        let secrets = self.host.shared.vault.list(&self.host.tenant).unwrap_or_default();
        secrets.into_iter().map(|row| row.name).collect()
    }

    /// Returns the names of the capabilities that can be granted.
    pub fn capabilities(&self) -> Vec<String> {
        self.context.capabilities().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn a_called_flow_is_read_once() {
        let folder = tempfile::tempdir().unwrap();
        let (kid, text) = (folder.path().join("kid.yaml"), "flow: { name: kid }");
        std::fs::write(&kid, text).unwrap();
        let host = Host::builder().without_cache().instances(4).build().unwrap();
        let source = Source { name: folder.path().join("a.yaml").display().to_string(), text: String::new() };
        let editing = host.edit(&source);
        let read = || editing.context().flow("kid").map(|source| source.text);
        assert_eq!(read().as_deref(), Some(text));
        std::fs::write(&kid, "changed").unwrap();
        assert_eq!(read().as_deref(), Some(text), "the names are those of one moment");
        assert_eq!(host.edit(&source).context().flow("kid").unwrap().text, "changed");
    }
}
