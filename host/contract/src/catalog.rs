//! The catalog of available node types.

use std::{collections::BTreeMap, sync::Arc};

use crate::{Digest, Manifest, NodeType, TypeRef};

/// The available node types, by name and version.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    /// All versions of each name, newest first.
    types: BTreeMap<Arc<str>, Vec<Arc<NodeType>>>,
}

/// The result of [`Catalog::lookup`].
#[derive(Clone, Debug)]
pub enum Lookup {
    /// The newest version that the reference admits.
    Found(Arc<NodeType>),
    /// The name exists, but only in these other versions.
    OtherVersions(Vec<semver::Version>),
    /// No type has this name.
    Unknown,
}

impl Catalog {
    /// Adds the types of a pack. Skips a type that another pack already offers with the same name and version, and
    /// returns the names of the skipped types.
    pub fn add(&mut self, manifest: Manifest, pack: &Digest) -> Vec<Arc<str>> {
        let mut taken = Vec::new();
        for mut node in manifest.nodes {
            node.pack = Some(pack.clone());
            let versions = self.types.entry(node.name.clone()).or_default();
            if versions.iter().any(|other| other.version == node.version && other.pack != node.pack) {
                taken.push(node.name);
                continue;
            }
            // The same pack was added before.
            if versions.iter().any(|other| other.version == node.version) {
                continue;
            }
            versions.push(Arc::new(node));
            versions.sort_by(|a, b| b.version.cmp(&a.version));
        }
        taken
    }

    /// Looks up the newest version that a reference admits.
    pub fn lookup(&self, wanted: &TypeRef) -> Lookup {
        let Some(versions) = self.types.get(&wanted.name) else { return Lookup::Unknown };
        let admitted = versions.iter().find(|node| node.version.as_ref().is_some_and(|version| wanted.admits(version)));
        match admitted {
            Some(node) => Lookup::Found(node.clone()),
            None => Lookup::OtherVersions(versions.iter().filter_map(|node| node.version.clone()).collect()),
        }
    }

    /// Returns all types, sorted by name; the versions of one name begin with the newest.
    pub fn types(&self) -> impl Iterator<Item = &Arc<NodeType>> {
        self.types.values().flatten()
    }

    /// Returns the names of all types.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.types.keys().map(|name| &**name)
    }

    /// Returns the full names of the types that have this short name. They may belong to several packs.
    pub fn called(&self, short: &str) -> Vec<&Arc<str>> {
        let has = |versions: &[Arc<NodeType>]| versions.iter().any(|node| node.short_name.as_deref() == Some(short));
        self.types.iter().filter(|(_, versions)| has(versions)).map(|(name, _)| name).collect()
    }

    /// Returns all short names. A name that several types or versions share appears several times.
    pub fn short_names(&self) -> impl Iterator<Item = &str> {
        self.types().filter_map(|node| node.short_name.as_deref())
    }
}
