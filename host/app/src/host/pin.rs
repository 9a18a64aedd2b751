//! What a run pins: everything that its flow was checked from, kept by its digest.

use std::sync::{Arc, PoisonError};

use flowcell_contract::{BlobRef, Catalog, Digest, Failure, Tenant, code};
use flowcell_flow::{Source, graph::Graph};
use flowcell_runtime::{Pinned, ports::Pin};

use super::{Host, register};
use crate::{catalog, content::Content, loaded::LoadedFlow};

const MIME: &str = "application/json";
const MIME_OF_PACKS: &str = "application/wasm";

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
