//! The packs of a host, and the difference after they were read again.

use serde::{Deserialize, Serialize};

use crate::packs::{PackId, Signer};

/// A pack whose node types every flow of a host may use. Built-in packs are not among them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HostPack {
    /// The name and version.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub pack: PackId,
    /// The SHA-256 of the component.
    pub digest: String,
    /// The place that the host has the pack from.
    pub source: PackSource,
    /// The signer of a pack of a lock or of the shared store. `None`: the pack is not signed, or it is from a folder, where
    /// signatures are not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub signer: Option<Signer>,
}

/// The place that a host has a pack from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
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
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PackChanges {
    /// The packs that are new, and take the place of no other one.
    pub added: Vec<HostPack>,
    /// The packs that take the place of one with other bytes and the same name and version.
    pub replaced: Vec<HostPack>,
    /// The packs that are gone without a replacement.
    pub gone: Vec<HostPack>,
    /// The number of packs that are the same as before.
    pub unchanged: usize,
}

impl PackChanges {
    pub(super) fn between(before: &[HostPack], after: &[HostPack]) -> PackChanges {
        let mut changes = PackChanges::default();
        let has = |all: &[HostPack], pack: &HostPack| {
            all.iter().any(|other| other.pack == pack.pack && other.digest == pack.digest)
        };
        changes.gone = before.iter().filter(|pack| !has(after, pack)).cloned().collect();
        for pack in after {
            if has(before, pack) {
                changes.unchanged += 1;
            // Two files may have the same name and version, so each pack takes the place of at most one.
            } else if let Some(at) = changes.gone.iter().position(|gone| gone.pack == pack.pack) {
                changes.gone.remove(at);
                changes.replaced.push(pack.clone());
            } else {
                changes.added.push(pack.clone());
            }
        }
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
            signer: None,
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

    #[test]
    fn packs_of_one_name_and_version_are_told_apart_by_their_digests() {
        let both = packs(&[("a@1.0.0", "1"), ("a@1.0.0", "2")]);
        let (one, two, other) = (&both[..1], &both[1..], packs(&[("a@1.0.0", "1"), ("a@1.0.0", "3")]));
        assert!(PackChanges::between(&both, &both).is_empty());
        assert_eq!(PackChanges::between(&both, one).gone, two);
        assert_eq!(PackChanges::between(&both, two).gone, one);
        assert_eq!(PackChanges::between(one, &both).added, two);
        let changes = PackChanges::between(&both, &other);
        assert_eq!((&changes.replaced[..], changes.unchanged), (&other[1..], 1));
        assert!(changes.added.is_empty() && changes.gone.is_empty());
    }
}
