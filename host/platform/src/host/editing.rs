//! The node types and the names around a flow that is being written.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use flowcell_contract::Catalog;
use flowcell_flow::{CheckContext, Source};

use super::{
    Host,
    folder::{FLOW_ENDINGS, Folder},
    inspector::Inspector,
    loading,
    reading::RecordingContext,
};

/// The node types and the names that a flow may use, for an editor. They are those of one moment: packs, files and
/// secrets may change.
pub struct Editing {
    catalog: Arc<Catalog>,
    context: RecordingContext,
    folder: PathBuf,
    flows: Vec<String>,
    secrets: Vec<String>,
}

impl Editing {
    /// Looks around a flow. The paths of packs and files in it are relative to the folder in the source's name.
    pub(crate) fn new(host: &Host, source: &Source) -> Editing {
        let folder = Arc::new(Folder::of(Path::new(&source.name)));
        let (catalog, _) = loading::catalog_with(host, &host.catalog(), &flowcell_flow::packs(source), source, &folder);
        let flows = folder.flows();
        let secrets = host.shared.vault.list(&host.tenant).unwrap_or_default();
        let secrets = secrets.into_iter().map(|row| row.name).collect();
        let inspector = Inspector::new(host.shared.engine.clone(), catalog.clone(), host.tenant.clone());
        let context = RecordingContext::new(loading::surroundings(host, folder), inspector);
        let folder = Path::new(&source.name).parent().unwrap_or(Path::new("")).to_owned();
        Editing { catalog, context, folder, flows, secrets }
    }

    /// Returns the node types of the host, with those of the packs that the flow names.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// Returns the access to the files and settings that a check of the flow needs.
    pub fn context(&self) -> &dyn CheckContext {
        &self.context
    }

    /// Returns the names of the flows in the flow's folder.
    pub fn flows(&self) -> &[String] {
        &self.flows
    }

    /// Returns the paths at which the file of a flow in the folder may be, in the order of the lookup.
    pub fn paths_of(&self, flow: &str) -> Vec<PathBuf> {
        let paths = FLOW_ENDINGS.iter().map(|ending| self.folder.join(format!("{flow}.{ending}")));
        paths.collect()
    }

    /// Returns the names of the secrets of the tenant; none if the store cannot be read.
    pub fn secrets(&self) -> &[String] {
        &self.secrets
    }

    /// Returns the names of the capabilities that can be granted.
    pub fn capabilities(&self) -> Vec<String> {
        self.context.capabilities().unwrap_or_default()
    }
}
