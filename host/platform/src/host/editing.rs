//! The node types and the names around a flow that is being written.

use std::{path::Path, sync::Arc};

use flowcell_contract::Catalog;
use flowcell_flow::{CheckContext, Source};

use super::{Host, folder::Folder, inspector::Inspector, loading, reading::RecordingContext};

/// The node types and the names that a flow may use, for an editor. They are those of one moment: packs, files and secrets may
/// change.
pub struct Editing {
    catalog: Arc<Catalog>,
    context: RecordingContext,
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
        Editing { catalog, context, flows, secrets }
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

    /// Returns the names of the secrets of the tenant; none if the store cannot be read.
    pub fn secrets(&self) -> &[String] {
        &self.secrets
    }

    /// Returns the names of the capabilities that can be granted.
    pub fn capabilities(&self) -> Vec<String> {
        self.context.capabilities().unwrap_or_default()
    }
}
