//! Packs: component files with a manifest. This module reads and checks them without running or compiling anything.

use std::{borrow::Cow, collections::HashMap, ops::Range, sync::Arc};

use flowcell_contract::{BUILT_IN_PACKS, BuiltIn, Digest, Manifest, ManifestError, NodeType};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::{Limits, granted::own_limits, link::Capabilities, schema::Schemas};

mod libraries;
mod sections;
mod world;

pub(crate) use libraries::{Needs, Split, split};
use sections::Sections;
pub(crate) use sections::validate;

/// The maximum size of a manifest, in bytes.
const MAX_MANIFEST_BYTES: usize = 1 << 20;
/// The maximum size of a README, in bytes.
const MAX_README_BYTES: usize = 256 << 10;
/// Bytes of a mebibyte.
const MIB: usize = 1 << 20;

/// A pack that an engine has loaded.
#[derive(Clone, Debug)]
pub struct Pack {
    /// The manifest, with the node types that the pack offers.
    pub manifest: Manifest,
    /// The SHA-256 of the component file.
    pub digest: Digest,
}

/// The properties of a component file that can be read without running it.
#[derive(Clone, Debug)]
pub struct Inspection {
    /// The manifest, with the node types that the pack offers.
    pub manifest: Manifest,
    /// The README, as Markdown.
    pub readme: Option<String>,
    /// The SHA-256 of the component file.
    pub digest: Digest,
    /// The size of the component file, in bytes.
    pub size: usize,
    /// The names of the interfaces that the component imports.
    pub imports: Vec<String>,
    /// The names of the component's exports.
    pub exports: Vec<String>,
}

/// The error of a file that this host does not accept as a pack.
#[derive(Debug, thiserror::Error)]
#[error("{origin}: {kind}")]
pub struct PackError {
    /// The path of the file, or another source of the bytes.
    pub origin: String,
    /// The reason.
    pub kind: PackErrorKind,
}

/// The reason why a host refuses a pack.
#[derive(Debug, thiserror::Error)]
pub enum PackErrorKind {
    /// The file is larger than the limit.
    #[error(
        "the file has {}; the limit of a pack is {}. A pack in JavaScript or Python contains the memory of the \
         interpreter with all imported packages: import fewer or smaller ones, or divide the node types between two \
         packs",
        mebibytes(.size, true),
        mebibytes(.limit, false)
    )]
    TooLarge {
        /// The size of the file, in bytes.
        size: usize,
        /// The maximum size, in bytes.
        limit: usize,
    },
    /// The bytes are not a WebAssembly component.
    #[error("this is not a WebAssembly component: {0}")]
    NotAComponent(String),
    /// The component has no manifest.
    #[error(
        "the component has no manifest; embed it in one custom section `{section}`",
        section = sections::MANIFEST_SECTION
    )]
    NoManifest,
    /// The component has more than one manifest.
    #[error("the component has {0} manifests; embed exactly one")]
    SeveralManifests(usize),
    /// The README cannot be read.
    #[error("the README: {0}")]
    Readme(String),
    /// The manifest cannot be read, or is inconsistent.
    #[error("the manifest: {0}")]
    Manifest(#[from] ManifestError),
    /// The manifest uses a prefix that is reserved for this program's own packs.
    #[error("the prefix `{0}.` is reserved for the built-in packs; choose another `name` in node.yaml")]
    Reserved(Arc<str>),
    /// A node type asks for a capability that this host does not have.
    #[error("`{node}` asks for the capability `{capability}`; this host has {known}", known = known_capabilities())]
    UnknownCapability {
        /// The node type.
        node: Arc<str>,
        /// The capability that it asks for.
        capability: Arc<str>,
    },
    /// The component imports an interface that this host does not offer.
    #[error("the component imports `{0}`, which this host does not offer")]
    Import(String),
    /// The component does not export the interface that every pack must export.
    #[error("the component does not export `{interface}`", interface = world::NODE_INTERFACE)]
    NoNode,
    /// The component has too many parts of some kind, such as core instances.
    #[error("the component has {count} {part}; the limit is {limit}")]
    TooMany {
        /// The kind of the parts.
        part: &'static str,
        /// The number of parts.
        count: usize,
        /// The maximum number of parts.
        limit: usize,
    },
}

/// The origin of a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Author {
    /// This program itself. It skips the validation of its own packs.
    Flowcell,
    /// Anyone else. The host does not trust such packs.
    External,
}

/// Returns the digest of a pack's bytes: SHA-256 in hexadecimal.
pub fn digest(bytes: &[u8]) -> Digest {
    let mut text = String::with_capacity(64);
    for byte in Sha256::digest(bytes) {
        text.push(char::from(b"0123456789abcdef"[usize::from(byte >> 4)]));
        text.push(char::from(b"0123456789abcdef"[usize::from(byte & 15)]));
    }
    Digest(text.into())
}

/// Reads the properties of a component file and validates it. It runs no code of the file.
pub fn inspect(bytes: &[u8]) -> Result<Inspection, PackErrorKind> {
    let properties = ComponentProperties::read(bytes, &Limits::default())?;
    validate(bytes)?;
    let ComponentProperties { mut manifest, readme, imports, exports, .. } = properties;
    let digest = digest(bytes);
    set_digest(&mut manifest, &digest);
    Ok(Inspection { manifest, readme, digest, size: bytes.len(), imports, exports })
}

/// Adds a manifest to a component that has none, since the toolchains of most languages cannot write such a section.
pub fn embed(component: Vec<u8>, manifest: &str) -> Result<Vec<u8>, PackErrorKind> {
    match Sections::read(&component)?.manifests.len() {
        0 => Ok(sections::with_manifest(component, manifest)),
        there => Err(PackErrorKind::SeveralManifests(there + 1)),
    }
}

/// Adds a README to a component. A component that has one stays as it is.
pub fn embed_readme(component: Vec<u8>, readme: &str) -> Result<Vec<u8>, PackErrorKind> {
    check_readme_size(readme.len())?;
    let is_there = !Sections::read(&component)?.readmes.is_empty();
    Ok(if is_there { component } else { sections::with_readme(component, readme) })
}

/// Returns whether a pack name is reserved for this program's own packs.
pub fn is_reserved(name: &str) -> bool {
    BUILT_IN_PACKS.contains(&name)
}

/// Shows a number of bytes with one digit behind the point, rounded up or down.
fn mebibytes(bytes: &usize, is_up: bool) -> String {
    let (tenths, rest) = (*bytes / MIB * 10 + *bytes % MIB * 10 / MIB, *bytes % MIB * 10 % MIB);
    let tenths = tenths + usize::from(is_up && rest > 0);
    format!("{}.{} MiB", tenths / 10, tenths % 10)
}

/// The properties that a walk over a component finds. The cache keeps them, so that later starts need no walk.
#[derive(Serialize, Deserialize)]
pub(crate) struct ComponentProperties {
    pub(crate) manifest: Manifest,
    /// The README. The cache does not keep it, because only [`inspect`] reads it.
    #[serde(skip)]
    readme: Option<String>,
    imports: Vec<String>,
    exports: Vec<String>,
    pub(crate) core_instances: usize,
}

impl ComponentProperties {
    /// Reads the properties of a component, and checks its imports and exports.
    pub(crate) fn read(bytes: &[u8], limits: &Limits) -> Result<ComponentProperties, PackErrorKind> {
        if bytes.len() > limits.component {
            return Err(PackErrorKind::TooLarge { size: bytes.len(), limit: limits.component });
        }
        let sections = Sections::read(bytes)?;
        let Sections { manifests, readmes, imports, exports, core_instances } = sections;
        world::check(&imports, &exports)?;
        let limit = limits.core_instances as usize;
        if core_instances > limit {
            return Err(PackErrorKind::TooMany { part: "core instances", count: core_instances, limit });
        }
        let manifest = match manifests.as_slice() {
            [] => return Err(PackErrorKind::NoManifest),
            [range] => read_manifest(&bytes[range.clone()])?,
            several => return Err(PackErrorKind::SeveralManifests(several.len())),
        };
        let readme = read_readme(bytes, &readmes)?;
        Ok(ComponentProperties { manifest, readme, imports, exports, core_instances })
    }

    /// Reads properties that [`ComponentProperties::to_json`] wrote. Returns `None` if they cannot be read.
    pub(crate) fn from_json(json: &[u8]) -> Option<ComponentProperties> {
        let mut properties: ComponentProperties = serde_json::from_slice(json).ok()?;
        properties.manifest = properties.manifest.complete().ok()?;
        Some(properties)
    }

    /// Returns the properties as JSON.
    pub(crate) fn to_json(&self) -> Vec<u8> {
        // Serialising to memory fails only for keys that are not strings, and all keys are strings.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Checks the manifest's name and sets the digest. Only this program's own packs may use the reserved prefixes.
    pub(crate) fn admit(&mut self, digest: &Digest, author: Author) -> Result<(), PackErrorKind> {
        let manifest = &mut self.manifest;
        if author == Author::External && is_reserved(&manifest.name) {
            return Err(PackErrorKind::Reserved(manifest.name.clone()));
        }
        set_digest(manifest, digest);
        Ok(())
    }
}

fn known_capabilities() -> String {
    BuiltIn::ALL.iter().map(|capability| capability.name()).collect::<Vec<_>>().join(", ")
}

fn read_manifest(bytes: &[u8]) -> Result<Manifest, PackErrorKind> {
    if bytes.len() > MAX_MANIFEST_BYTES {
        return Err(PackErrorKind::TooMany {
            part: "bytes of manifest",
            count: bytes.len(),
            limit: MAX_MANIFEST_BYTES,
        });
    }
    let text =
        str::from_utf8(bytes).map_err(|error| ManifestError { message: format!("it is not UTF-8 text: {error}") })?;
    let manifest = Manifest::parse(text)?;
    for node in &manifest.nodes {
        if let Some(request) = node.capabilities.iter().find(|request| BuiltIn::named(&request.name).is_none()) {
            return Err(PackErrorKind::UnknownCapability { node: node.name.clone(), capability: request.name.clone() });
        }
    }
    Ok(manifest)
}

/// Returns the README of a component, or `None` if it has none.
pub(crate) fn readme(bytes: &[u8]) -> Option<String> {
    read_readme(bytes, &Sections::read(bytes).ok()?.readmes).ok()?
}

fn read_readme(bytes: &[u8], sections: &[Range<usize>]) -> Result<Option<String>, PackErrorKind> {
    let range = match sections {
        [] => return Ok(None),
        [range] => range.clone(),
        several => return Err(PackErrorKind::Readme(format!("the component has {} of them", several.len()))),
    };
    check_readme_size(range.len())?;
    let text = str::from_utf8(&bytes[range]);
    text.map(|text| Some(text.to_owned()))
        .map_err(|error| PackErrorKind::Readme(format!("it is not UTF-8 text: {error}")))
}

fn check_readme_size(size: usize) -> Result<(), PackErrorKind> {
    match size <= MAX_README_BYTES {
        true => Ok(()),
        false => Err(PackErrorKind::Readme(format!("it has {size} bytes; the limit is {MAX_README_BYTES}"))),
    }
}

fn set_digest(manifest: &mut Manifest, digest: &Digest) {
    for node in &mut manifest.nodes {
        node.pack = Some(digest.clone());
    }
}

/// One node type, ready to run.
pub(crate) struct LoadedNodeType {
    pub(crate) node: NodeType,
    pub(crate) capabilities: Capabilities,
    pub(crate) schemas: Schemas,
    /// The limits of its attempts if they differ from the usual ones.
    pub(crate) limits: Option<Box<Limits>>,
}

/// Returns the node types of a manifest by name. `usual` has the limits of attempts.
pub(crate) fn node_types(manifest: &Manifest, usual: &Limits) -> HashMap<Arc<str>, Arc<LoadedNodeType>> {
    let node_type = |node: &NodeType| LoadedNodeType {
        node: node.clone(),
        capabilities: Capabilities::asked_by(node),
        schemas: Schemas::default(),
        limits: own_limits(node, usual),
    };
    manifest.nodes.iter().map(|node| (node.name.clone(), Arc::new(node_type(node)))).collect()
}

/// The bytes of a component, borrowed from this program or owned.
pub(crate) type Bytes = Cow<'static, [u8]>;
