//! What a run pins: everything that its flow was checked from, kept by its digest.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    sync::{Arc, PoisonError},
};

use flowcell_contract::{BlobRef, Catalog, Digest, Failure, Tenant, code};
use flowcell_flow::{Files, Source, graph::Graph};
use flowcell_runtime::{Pinned, ports::Pin};
use serde::{Deserialize, Serialize};

use super::{Host, register};
use crate::{catalog, folder::Folder, loaded::LoadedFlow};

const MIME: &str = "application/json";
const MIME_OF_PACKS: &str = "application/wasm";

/// Everything that a flow was checked from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Content {
    /// The flow's file, as messages show it.
    name: String,
    /// What it says.
    text: String,
    /// Files that it names, and what they say.
    files: BTreeMap<String, String>,
    /// Flows that it calls: their files, and what they say.
    flows: BTreeMap<String, (String, String)>,
    /// The packs that its nodes need, and the blobs of those that are no part of this program.
    packs: BTreeMap<String, Option<Arc<str>>>,
}

/// A folder that notes what is read from it.
pub(super) struct Reading<'a> {
    folder: &'a Folder,
    files: RefCell<BTreeMap<String, String>>,
    flows: RefCell<BTreeMap<String, (String, String)>>,
}

impl<'a> Reading<'a> {
    pub(super) fn of(folder: &'a Folder) -> Reading<'a> {
        Reading { folder, files: RefCell::default(), flows: RefCell::default() }
    }

    /// What the flow was checked from.
    pub(super) fn content(self, source: &Source, graph: &Graph) -> Content {
        let packs = graph.nodes.iter().filter_map(|node| node.node_type.pack.as_ref());
        Content {
            name: source.name.clone(),
            text: source.text.clone(),
            files: self.files.into_inner(),
            flows: self.flows.into_inner(),
            packs: packs.map(|digest| (digest.0.to_string(), None)).collect(),
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
}

impl Files for Content {
    fn read(&self, path: &str) -> Result<String, String> {
        self.files.get(path).cloned().ok_or_else(|| "it was not pinned".into())
    }

    fn flow(&self, name: &str) -> Option<Source> {
        self.flows.get(name).map(|(name, text)| Source { name: name.clone(), text: text.clone() })
    }
}

impl Host {
    /// Keeps everything that a flow was checked from, so that a run of it does not depend on files any more.
    pub(super) fn pin(&self, flow: &LoadedFlow) -> Pinned {
        let mut content = Content::clone(&flow.content);
        let packs = self.0.packs.lock().unwrap_or_else(PoisonError::into_inner);
        for (digest, blob) in &mut content.packs {
            if let Some(bytes) = packs.get(&Digest(digest.as_str().into())) {
                *blob = Some(self.0.blobs.put(&Tenant::local(), bytes.clone(), MIME_OF_PACKS).file_id);
            }
        }
        drop(packs);
        let bytes = serde_json::to_vec(&content).unwrap_or_default();
        let blob = self.0.blobs.put(&Tenant::local(), bytes.into(), MIME);
        Pinned { graph: flow.graph.clone(), pin: Pin(blob.file_id) }
    }

    /// Loads a flow from what was pinned.
    pub(super) fn pinned(&self, pin: &Pin) -> Result<Arc<Graph>, Failure> {
        let bytes = self.kept(&pin.0, MIME)?;
        let content: Content = serde_json::from_slice(&bytes).map_err(|error| lost(&error))?;
        let mut catalog = Catalog::default();
        for (digest, blob) in &content.packs {
            let digest = Digest(digest.as_str().into());
            let pack = match (blob, catalog::PACKS.iter().find(|pack| *pack.digest == *digest.0)) {
                (Some(blob), _) => self.0.engine.add_pack(self.kept(blob, MIME_OF_PACKS)?.to_vec(), &digest.0),
                (None, Some(built_in)) => self.0.engine.add_built_in(built_in.bytes, digest, built_in.name),
                (None, None) => {
                    let message = "a pack of the catalog is another in this version of Flowcell than in the one that \
                                   began the run; go on with that version";
                    return Err(Failure::new(code::BAD_PACK, message));
                }
            };
            let pack = pack.map_err(|error| lost(&error.refusal))?;
            register(&mut catalog, pack, &content.name).map_err(|error| lost(&error))?;
        }
        let source = Source { name: content.name.clone(), text: content.text.clone() };
        let checked = flowcell_flow::load(&source, &catalog, &content);
        let first = checked.diagnostics.into_iter().next();
        checked.graph.map(Arc::new).ok_or_else(|| match first {
            Some(finding) => lost(&finding.message),
            None => lost(&"it cannot be checked"),
        })
    }

    fn kept(&self, hash: &Arc<str>, mime: &str) -> Result<Arc<[u8]>, Failure> {
        let blob = BlobRef { file_id: hash.clone(), size: 0, mime: mime.into() };
        match self.0.blobs.get(&Tenant::local(), &blob) {
            Ok(Some(bytes)) => Ok(bytes),
            Ok(None) => Err(lost(&format!("the store does not have {hash}"))),
            Err(error) => Err(lost(&error)),
        }
    }
}

fn lost(why: &dyn std::fmt::Display) -> Failure {
    Failure::new(code::FLOW_NOT_FOUND, format!("what the run has pinned cannot be used: {why}"))
}
