//! The packs of a host, and the difference after they were read again.

use serde::{Deserialize, Serialize};

use crate::packs::PackId;

/// A pack whose node types every flow of a host may use. Built-in packs are not among them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HostPack {
    /// The name and version.
    pub pack: PackId,
    /// The SHA-256 of the component.
    pub digest: String,
    /// The place that the host has the pack from.
    pub source: PackSource,
}

/// The place that a host has a pack from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PackSource {
    /// A file, or a folder of packs.
    Folder,
    /// The lock of installed packs.
    Lock,
    /// The shared store.
    Store,
}

/// A pack of the shared store that this process does not use.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SkippedPack {
    /// The name and version.
    pub pack: PackId,
    /// The SHA-256 of the component.
    pub digest: String,
    /// The reason, as a sentence.
    pub reason: String,
}

/// The difference between the packs of a host before and after they were read again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackChanges {
    /// The packs whose names and versions are new.
    pub added: Vec<HostPack>,
    /// The packs that have other bytes than before under the same name and version.
    pub replaced: Vec<HostPack>,
    /// The packs whose names and versions are gone.
    pub gone: Vec<HostPack>,
    /// The number of packs that are the same as before.
    pub unchanged: usize,
}

impl PackChanges {
    pub(super) fn between(before: &[HostPack], after: &[HostPack]) -> PackChanges {
        let mut changes = PackChanges::default();
        let find = |all: &[HostPack], pack: &HostPack| all.iter().find(|other| other.pack == pack.pack).cloned();
        for pack in after {
            match find(before, pack) {
                None => changes.added.push(pack.clone()),
                Some(known) if known.digest == pack.digest => changes.unchanged += 1,
                Some(_) => changes.replaced.push(pack.clone()),
            }
        }
        changes.gone = before.iter().filter(|pack| find(after, pack).is_none()).cloned().collect();
        changes
    }

    /// Returns whether all packs are the same as before.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.replaced.is_empty() && self.gone.is_empty()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    fn packs(all: &[(&str, &str)]) -> Vec<HostPack> {
        let pack = |(pack, digest): &(&str, &str)| HostPack {
            pack: pack.parse().unwrap(),
            digest: (*digest).to_owned(),
            source: PackSource::Folder,
        };
        all.iter().map(pack).collect()
    }

    #[test]
    fn packs_are_compared_by_name_version_and_digest() {
        let before = packs(&[("a@1.0.0", "1"), ("b@1.0.0", "2"), ("c@1.0.0", "3")]);
        let after = packs(&[("a@1.0.0", "1"), ("b@1.0.0", "4"), ("c@1.1.0", "3")]);
        let changes = PackChanges::between(&before, &after);
        let names = |packs: &[HostPack]| packs.iter().map(|pack| pack.pack.to_string()).collect::<Vec<_>>();
        assert_eq!((names(&changes.added), names(&changes.gone)), (vec!["c@1.1.0".into()], vec!["c@1.0.0".into()]));
        assert_eq!((&changes.replaced[..], changes.unchanged), (&after[1..2], 1));
        assert!(PackChanges::between(&after, &after).is_empty() && !changes.is_empty());
    }
}
