//! Checks a fetched pack and installs it.

use flowcell_contract::ManifestError;
use flowcell_engine::{Inspection, PackErrorKind, inspect, is_reserved};

use super::{
    Difference, InstallError, Lock, Locked, PackId, PackStore, PackVersions, RequestedCapabilities, Signature, Signer,
    Source, Trust, loading::read_locked, store::FoundPack,
};

/// Maximum number of characters of an installed pack's name.
const MAX_NAME: usize = 64;

/// A fetched pack that is not checked yet.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// The source of the pack.
    pub source: Source,
    /// The bytes of the component.
    pub bytes: Vec<u8>,
    /// The signature that came with the pack.
    pub signature: Option<Signature>,
}

/// A checked pack that may be installed.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The pack's name and version.
    pub id: PackId,
    /// The pack's manifest, imports and digest.
    pub inspection: Inspection,
    /// The signer of the pack.
    pub signer: Option<Signer>,
    /// The highest other version that is installed, with the difference between that version and this one. `None`: no
    /// other version is installed, or this one already is.
    pub beside: Option<(PackId, Difference)>,
    bytes: Vec<u8>,
    locked: Locked,
}

/// Installs packs: stores their bytes and pins them in a lock.
pub struct Installer<'a> {
    /// The lock that pins packs.
    pub lock: &'a mut Lock,
    /// The store of the packs' bytes.
    pub store: &'a PackStore,
    /// The trusted signers.
    pub trust: &'a Trust,
}

impl Arrival {
    /// Inspects the pack without running or compiling it.
    pub fn inspect(&self) -> Result<Inspection, InstallError> {
        let inspection = inspect(&self.bytes).and_then(|inspection| {
            let name = &inspection.manifest.name;
            match is_reserved(name) {
                true => Err(PackErrorKind::Reserved(name.clone())),
                false => check_name(name).map(|()| inspection),
            }
        });
        inspection.map_err(|source| InstallError::Refused { origin: self.source.to_string(), source })
    }
}

/// Refuses a name that a flow or a list of trusted keys cannot contain.
pub(super) fn check_name(name: &str) -> Result<(), PackErrorKind> {
    let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    match plain && (1..=MAX_NAME).contains(&name.len()) {
        true => Ok(()),
        false => {
            let message = format!("`name` must have 1 to {MAX_NAME} letters, digits, `_` and `-`, not {name:?}");
            Err(PackErrorKind::Manifest(ManifestError { message }))
        }
    }
}

impl Installer<'_> {
    /// Checks whether a pack may be installed.
    pub fn examine(&self, arrival: Arrival) -> Result<Candidate, InstallError> {
        let inspection = arrival.inspect()?;
        let Arrival { source, bytes, signature } = arrival;
        let (id, origin) = (PackId::of(&inspection.manifest), source.to_string());
        if let Some(version) = source.version().filter(|version| **version != id.version) {
            return Err(InstallError::Other { wanted: format!("version {version}"), origin, found: id });
        }
        let known = self.lock.get(&id);
        if let Some(known) = known.filter(|known| known.digest != inspection.digest) {
            let (locked, found) = (known.digest.clone(), inspection.digest);
            return Err(InstallError::Changed { id, origin, locked, found });
        }
        let signature = signature.or(known.and_then(|known| known.signature));
        let signer = self.trust.admit(&id, &inspection.digest, signature.as_ref())?;
        let locked = Locked {
            source: source.pinned(self.lock.file()),
            digest: inspection.digest.clone(),
            imports: inspection.imports.clone(),
            nodes: RequestedCapabilities::of(&inspection.manifest),
            signature,
        };
        let beside = self.lock.highest_beside(&id).filter(|_| known.is_none());
        let beside = beside.map(|(other, before)| {
            let mut difference = difference(before, &locked);
            difference.more.extend(changed_repository(&before.source, &source));
            (other.clone(), difference)
        });
        Ok(Candidate { id, inspection, signer, beside, bytes, locked })
    }

    /// Installs a pack. If it requests more than another installed version, the user must approve it.
    pub fn install(&mut self, candidate: Candidate, approved: bool) -> Result<(), InstallError> {
        let Candidate { id, beside, bytes, locked, .. } = candidate;
        if let Some((than, difference)) = beside.filter(|(_, difference)| !difference.more.is_empty() && !approved) {
            return Err(InstallError::AsksMore { id, than, difference });
        }
        self.store.put(&locked.digest, &bytes)?;
        self.lock.insert(id, locked);
        Ok(())
    }

    /// Returns whether the store has the pinned pack, unchanged.
    pub fn has(&self, id: &PackId) -> Result<bool, InstallError> {
        let Some(locked) = self.lock.get(id) else { return Ok(false) };
        Ok(matches!(self.store.get(&locked.digest)?, FoundPack::Pack(_)))
    }

    /// Returns the pack that was installed from a source, if the store has it unchanged.
    pub fn installed_from(&self, source: &Source) -> Result<Option<PackId>, InstallError> {
        let pinned = source.pinned(self.lock.file());
        let found = self.lock.packs().find(|(_, locked)| locked.source == pinned).map(|(id, _)| id.clone());
        Ok(match found {
            Some(id) if self.has(&id)? => Some(id),
            _ => None,
        })
    }

    /// Returns installed packs as they were fetched, with their bytes from the store. Fails if the lock has none of them.
    pub fn installed(&self, packs: &PackVersions) -> Result<Vec<Arrival>, InstallError> {
        let meant = self.lock.packs().filter(|(id, _)| packs.contains(id));
        let arrivals = meant.map(|(id, locked)| {
            let source = Source::of_lock(&locked.source, self.lock.file()).map_err(InstallError::Source)?;
            Ok(Arrival { source, bytes: read_locked(self.store, id, locked)?, signature: locked.signature })
        });
        let arrivals = arrivals.collect::<Result<Vec<_>, InstallError>>()?;
        if arrivals.is_empty() {
            let lock = self.lock.file().display();
            return Err(InstallError::Source(format!(
                "{lock} has no pack `{packs}`; a file is named by its path, such as `./{packs}.wasm`"
            )));
        }
        Ok(arrivals)
    }

    /// Stores a pinned pack that was fetched again. It fails if the source now has another name, version or content.
    pub fn restore(&self, id: &PackId, arrival: Arrival) -> Result<(), InstallError> {
        let candidate = self.examine(arrival)?;
        if candidate.id != *id {
            let origin = candidate.locked.source;
            return Err(InstallError::Other { wanted: id.to_string(), origin, found: candidate.id });
        }
        self.store.put(&candidate.locked.digest, &candidate.bytes)
    }
}

/// Describes a change of the registry or repository since the installed version. Returns `None` if nothing has changed.
/// A user with push access to one repository must not be able to publish versions of a pack from another one.
fn changed_repository(before: &str, source: &Source) -> Option<String> {
    let (Source::Registry(new), Ok(Source::Registry(old))) = (source, Source::parse(before, None)) else { return None };
    let same = new.registry == old.registry && new.repository == old.repository;
    (!same).then(|| format!("from {}/{}, not from {}/{}", new.registry, new.repository, old.registry, old.repository))
}

/// Returns the difference between two versions that a user has to approve: their requests, and a missing or another
/// signature.
fn difference(before: &Locked, after: &Locked) -> Difference {
    let mut difference = before.nodes.difference_to(&after.nodes);
    let key = |locked: &Locked| locked.signature.map(|signature| signature.key);
    if let Some(old) = key(before).filter(|old| key(after) != Some(*old)) {
        let new = key(after).map_or_else(|| "not signed".to_owned(), |new| format!("signed by {new}"));
        difference.more.push(new);
        difference.less.push(format!("signed by {old}"));
    }
    difference
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::{MAX_NAME, Source, changed_repository, check_name};

    #[test]
    fn names_that_a_flow_cannot_contain_are_refused() {
        let long = "a".repeat(MAX_NAME + 1);
        for (name, good) in [
            ("shop", true),
            ("a-b_1", true),
            (&long[1..], true),
            (&long, false),
            ("", false),
            ("a b", false),
            ("ä", false),
            ("a.b", false),
        ] {
            assert_eq!(check_name(name).is_ok(), good, "{name}");
        }
    }

    #[test]
    fn a_version_from_another_repository_needs_approval() {
        for (before, now, told) in [
            ("ghcr.io/acme/shop@0.1.0", "ghcr.io/acme/shop@0.2.0", None),
            (
                "ghcr.io/acme/shop@0.1.0",
                "ghcr.io/other/shop@0.2.0",
                Some("from ghcr.io/other/shop, not from ghcr.io/acme/shop"),
            ),
            (
                "ghcr.io/acme/shop@0.1.0",
                "example.com/acme/shop",
                Some("from example.com/acme/shop, not from ghcr.io/acme/shop"),
            ),
            ("./shop.wasm", "ghcr.io/acme/shop@0.2.0", None),
            ("ghcr.io/acme/shop@0.1.0", "./shop.wasm", None),
        ] {
            assert_eq!(
                changed_repository(before, &Source::parse(now, None).unwrap()).as_deref(),
                told,
                "{before} {now}"
            );
        }
    }
}
