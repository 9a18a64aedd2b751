//! The node types that are there.

use std::{collections::BTreeMap, sync::Arc};

use crate::{Digest, Manifest, NodeType, TypeRef};

/// Node types by name and version.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    /// Newest first.
    types: BTreeMap<Arc<str>, Vec<Arc<NodeType>>>,
}

/// What looking a type up found.
#[derive(Clone, Debug)]
pub enum Lookup {
    /// The newest version that is admitted.
    Found(Arc<NodeType>),
    /// The type is there, but in other versions only.
    OtherVersions(Vec<semver::Version>),
    /// There is no such type.
    Unknown,
}

impl Catalog {
    /// Adds what a pack offers. Answers the names that another pack offers already in the same version.
    pub fn add(&mut self, manifest: Manifest, pack: &Digest) -> Vec<Arc<str>> {
        let mut taken = Vec::new();
        for mut node in manifest.nodes {
            node.pack = Some(pack.clone());
            let versions = self.types.entry(node.name.clone()).or_default();
            if versions.iter().any(|other| other.version == node.version && other.pack != node.pack) {
                taken.push(node.name);
                continue;
            }
            // Somebody has named the same pack before.
            if versions.iter().any(|other| other.version == node.version) {
                continue;
            }
            versions.push(Arc::new(node));
            versions.sort_by(|a, b| b.version.cmp(&a.version));
        }
        taken
    }

    /// Looks a type up.
    pub fn lookup(&self, wanted: &TypeRef) -> Lookup {
        let Some(versions) = self.types.get(&wanted.name) else { return Lookup::Unknown };
        let admitted = versions.iter().find(|node| node.version.as_ref().is_some_and(|version| wanted.admits(version)));
        match admitted {
            Some(node) => Lookup::Found(node.clone()),
            None => Lookup::OtherVersions(versions.iter().filter_map(|node| node.version.clone()).collect()),
        }
    }

    /// All types, by name, newest version first.
    pub fn types(&self) -> impl Iterator<Item = &Arc<NodeType>> {
        self.types.values().flatten()
    }

    /// The names of all types.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.types.keys().map(|name| &**name)
    }

    /// The names of the types that packs also call so, by their short name.
    pub fn called(&self, short: &str) -> Vec<&Arc<str>> {
        let has = |versions: &[Arc<NodeType>]| versions.iter().any(|node| node.short_name.as_deref() == Some(short));
        self.types.iter().filter(|(_, versions)| has(versions)).map(|(name, _)| name).collect()
    }

    /// All short names.
    pub fn short_names(&self) -> impl Iterator<Item = &str> {
        self.types().filter_map(|node| node.short_name.as_deref())
    }
}
