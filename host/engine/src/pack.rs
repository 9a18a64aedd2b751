//! Packs: component files with a manifest, read and checked without running or compiling anything.

use std::{borrow::Cow, collections::HashMap, sync::Arc};

use flowcell_contract::{BuiltIn, Digest, Manifest, ManifestError, NodeType};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::{Limits, link::Capabilities, schema::Schemas};

mod sections;
mod world;

use sections::Sections;
pub(crate) use sections::validate;

/// Prefixes that only the packs of this program may use.
const RESERVED: [&str; 7] = ["control", "data", "system", "agent", "script", "http", "file"];

/// The longest manifest.
const MANIFEST_BYTES: usize = 1 << 20;

/// A pack that an engine has taken in.
#[derive(Clone, Debug)]
pub struct Pack {
    /// What it offers.
    pub manifest: Manifest,
    /// What it is.
    pub digest: Digest,
}

/// What can be known of a component file without running it.
#[derive(Clone, Debug)]
pub struct Inspection {
    /// What it offers.
    pub manifest: Manifest,
    /// What it is.
    pub digest: Digest,
    /// Bytes.
    pub size: usize,
    /// The interfaces that it imports.
    pub imports: Vec<String>,
    /// What it exports.
    pub exports: Vec<String>,
}

/// Why a file is not a pack that this host takes.
#[derive(Debug, thiserror::Error)]
#[error("{origin}: {refusal}")]
pub struct PackError {
    /// The file, or where else the bytes came from.
    pub origin: String,
    /// What is wrong.
    pub refusal: Refusal,
}

/// What is wrong with a pack.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The file is larger than the limit.
    #[error("the file has {size} bytes; a pack may have {limit}")]
    TooLarge {
        /// Its bytes.
        size: usize,
        /// The limit.
        limit: usize,
    },
    /// The bytes are something else.
    #[error("this is not a WebAssembly component: {0}")]
    NotAComponent(String),
    /// There is no manifest.
    #[error("the component carries no manifest; it belongs into one custom section `{section}`", section = sections::MANIFEST)]
    NoManifest,
    /// There is more than one manifest.
    #[error("the component carries {0} manifests; there must be exactly one")]
    SeveralManifests(usize),
    /// The manifest is wrong.
    #[error("the manifest: {0}")]
    Manifest(#[from] ManifestError),
    /// The manifest uses a prefix that belongs to this program.
    #[error("the prefix `{0}.` is reserved for the packs that come with flowcell; choose another `name` in node.yaml")]
    Reserved(Arc<str>),
    /// A node type asks for what this host does not have.
    #[error("`{node}` asks for the capability `{capability}`; this host has {known}", known = known_capabilities())]
    UnknownCapability {
        /// Who asks.
        node: Arc<str>,
        /// For what.
        capability: Arc<str>,
    },
    /// The component imports what no pack may import.
    #[error("the component imports `{0}`, which this host does not offer")]
    Import(String),
    /// The component does not export what every pack exports.
    #[error("the component does not export `{interface}`", interface = world::NODE)]
    NoNode,
    /// The component has more parts than one may have.
    #[error("the component has {count} {part}; it may have {limit}")]
    TooMany {
        /// What there is too much of.
        part: &'static str,
        /// How many there are.
        count: usize,
        /// How many there may be.
        limit: usize,
    },
}

/// Whose pack it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Author {
    /// It came with this program, which has tested it.
    Flowcell,
    /// Anybody.
    Stranger,
}

/// The content of a pack, as its digest.
pub fn digest(bytes: &[u8]) -> Digest {
    let mut text = String::with_capacity(64);
    for byte in Sha256::digest(bytes) {
        text.push(char::from(b"0123456789abcdef"[usize::from(byte >> 4)]));
        text.push(char::from(b"0123456789abcdef"[usize::from(byte & 15)]));
    }
    Digest(text.into())
}

/// Reads what a component file says of itself. It is validated as a whole, and nothing in it runs.
pub fn inspect(bytes: &[u8]) -> Result<Inspection, Refusal> {
    let facts = Facts::read(bytes, &Limits::default())?;
    validate(bytes)?;
    let Facts { mut manifest, imports, exports, .. } = facts;
    let digest = digest(bytes);
    assign(&mut manifest, &digest);
    Ok(Inspection { manifest, digest, size: bytes.len(), imports, exports })
}

/// Puts a manifest into a component that has none: the toolchains of most languages know of no such section.
pub fn embed(component: Vec<u8>, manifest: &str) -> Result<Vec<u8>, Refusal> {
    match Sections::read(&component)?.manifests.len() {
        0 => Ok(sections::with_manifest(component, manifest)),
        there => Err(Refusal::SeveralManifests(there + 1)),
    }
}

/// Whether a name of packs belongs to this program.
pub fn is_reserved(name: &str) -> bool {
    RESERVED.contains(&name)
}

/// What a walk over a component tells, kept beside its code so that later starts need no walk.
#[derive(Serialize, Deserialize)]
pub(crate) struct Facts {
    pub(crate) manifest: Manifest,
    imports: Vec<String>,
    exports: Vec<String>,
    pub(crate) core_instances: usize,
}

impl Facts {
    /// Reads them from a component, and checks it against the world of packs.
    pub(crate) fn read(bytes: &[u8], limits: &Limits) -> Result<Facts, Refusal> {
        if bytes.len() > limits.component {
            return Err(Refusal::TooLarge { size: bytes.len(), limit: limits.component });
        }
        let sections = Sections::read(bytes)?;
        let Sections { manifests, imports, exports, core_instances } = sections;
        world::check(&imports, &exports)?;
        let limit = limits.core_instances as usize;
        if core_instances > limit {
            return Err(Refusal::TooMany { part: "core instances", count: core_instances, limit });
        }
        let manifest = match manifests.as_slice() {
            [] => return Err(Refusal::NoManifest),
            [range] => read_manifest(&bytes[range.clone()])?,
            several => return Err(Refusal::SeveralManifests(several.len())),
        };
        Ok(Facts { manifest, imports, exports, core_instances })
    }

    /// Reads them as [`Facts::to_json`] wrote them.
    pub(crate) fn from_json(json: &[u8]) -> Option<Facts> {
        let mut facts: Facts = serde_json::from_slice(json).ok()?;
        facts.manifest = facts.manifest.complete().ok()?;
        Some(facts)
    }

    /// Writes them down.
    pub(crate) fn to_json(&self) -> Vec<u8> {
        // Serialising to memory fails only for keys that are no strings, and there are none.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// The manifest as an engine takes it: only this program's own packs may use the reserved prefixes.
    pub(crate) fn admit(&mut self, digest: &Digest, author: Author) -> Result<(), Refusal> {
        let manifest = &mut self.manifest;
        if author == Author::Stranger && is_reserved(&manifest.name) {
            return Err(Refusal::Reserved(manifest.name.clone()));
        }
        assign(manifest, digest);
        Ok(())
    }
}

fn known_capabilities() -> String {
    BuiltIn::ALL.iter().map(|capability| capability.name()).collect::<Vec<_>>().join(", ")
}

fn read_manifest(bytes: &[u8]) -> Result<Manifest, Refusal> {
    if bytes.len() > MANIFEST_BYTES {
        return Err(Refusal::TooMany { part: "bytes of manifest", count: bytes.len(), limit: MANIFEST_BYTES });
    }
    let text =
        str::from_utf8(bytes).map_err(|error| ManifestError { message: format!("it is not UTF-8 text: {error}") })?;
    let manifest = Manifest::parse(text)?;
    for node in &manifest.nodes {
        if let Some(request) = node.capabilities.iter().find(|request| BuiltIn::named(&request.name).is_none()) {
            return Err(Refusal::UnknownCapability { node: node.name.clone(), capability: request.name.clone() });
        }
    }
    Ok(manifest)
}

fn assign(manifest: &mut Manifest, digest: &Digest) {
    for node in &mut manifest.nodes {
        node.pack = Some(digest.clone());
    }
}

/// One node type, ready to be run.
pub(crate) struct Offer {
    pub(crate) node: NodeType,
    pub(crate) capabilities: Capabilities,
    pub(crate) schemas: Schemas,
}

/// The types of a manifest by name.
pub(crate) fn offers(manifest: &Manifest) -> HashMap<Arc<str>, Arc<Offer>> {
    let offer = |node: &NodeType| Offer {
        node: node.clone(),
        capabilities: Capabilities::asked_by(node),
        schemas: Schemas::default(),
    };
    manifest.nodes.iter().map(|node| (node.name.clone(), Arc::new(offer(node)))).collect()
}

/// The bytes of a component: part of this program, or read from somewhere.
pub(crate) type Bytes = Cow<'static, [u8]>;
