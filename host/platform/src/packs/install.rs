//! Deciding about a pack that has come from somewhere.

use flowcell_contract::ManifestError;
use flowcell_engine::{Inspection, Refusal, inspect, is_reserved};

use super::{
    Asks, Difference, InstallError, Lock, Locked, PackId, PackStore, Signature, Signer, Source, Trust, store::Kept,
};

/// Characters of the name of a pack that is installed, at most.
const MAX_NAME: usize = 64;

/// A pack that has come from somewhere, at which nobody has looked yet.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// Where it came from.
    pub source: Source,
    /// What came.
    pub bytes: Vec<u8>,
    /// What came along with it.
    pub signature: Option<Signature>,
}

/// A pack that may be installed.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Its name and version.
    pub id: PackId,
    /// What it says of itself.
    pub inspection: Inspection,
    /// Who has signed it.
    pub signer: Option<Signer>,
    /// The highest version beside it that is installed, and what differs from that.
    pub beside: Option<(PackId, Difference)>,
    bytes: Vec<u8>,
    locked: Locked,
}

/// Installs packs: keeps them in a store, and pins them in a lock.
pub struct Installer<'a> {
    /// What is pinned.
    pub lock: &'a mut Lock,
    /// Where packs are kept.
    pub store: &'a PackStore,
    /// Whose signatures count.
    pub trust: &'a Trust,
}

impl Arrival {
    /// Looks at what came. Nothing of it is run or compiled.
    pub fn inspect(&self) -> Result<Inspection, InstallError> {
        let inspection = inspect(&self.bytes).and_then(|inspection| {
            let name = &inspection.manifest.name;
            match is_reserved(name) {
                true => Err(Refusal::Reserved(name.clone())),
                false => check_name(name).map(|()| inspection),
            }
        });
        inspection.map_err(|source| InstallError::Refused { origin: self.source.to_string(), source })
    }
}

/// Refuses a name that nobody can write in a flow or in a list of trusted keys.
fn check_name(name: &str) -> Result<(), Refusal> {
    let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    match plain && (1..=MAX_NAME).contains(&name.len()) {
        true => Ok(()),
        false => {
            let message = format!("`name` has 1 to {MAX_NAME} letters, digits, `_` and `-`; this one is {name:?}");
            Err(Refusal::Manifest(ManifestError { message }))
        }
    }
}

impl Installer<'_> {
    /// Decides whether a pack may be installed.
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
            nodes: Asks::of(&inspection.manifest),
            signature,
        };
        let beside = self.lock.highest_beside(&id).filter(|_| known.is_none());
        let beside = beside.map(|(other, before)| {
            let mut difference = difference(before, &locked);
            difference.more.extend(moved(&before.source, &source));
            (other.clone(), difference)
        });
        Ok(Candidate { id, inspection, signer, beside, bytes, locked })
    }

    /// Installs a pack. If it asks for more than another version that is installed, somebody has to approve of that.
    pub fn install(&mut self, candidate: Candidate, approved: bool) -> Result<(), InstallError> {
        let Candidate { id, beside, bytes, locked, .. } = candidate;
        if let Some((than, difference)) = beside.filter(|(_, difference)| !difference.more.is_empty() && !approved) {
            return Err(InstallError::AsksMore { id, than, difference });
        }
        self.store.put(&locked.digest, &bytes)?;
        self.lock.insert(id, locked);
        Ok(())
    }

    /// Whether the store has what is pinned, unchanged.
    pub fn has(&self, id: &PackId) -> Result<bool, InstallError> {
        let Some(locked) = self.lock.get(id) else { return Ok(false) };
        Ok(matches!(self.store.get(&locked.digest)?, Kept::Pack(_)))
    }

    /// The pack that was installed from somewhere, if the store has it unchanged.
    pub fn here(&self, source: &Source) -> Result<Option<PackId>, InstallError> {
        let pinned = source.pinned(self.lock.file());
        let found = self.lock.packs().find(|(_, locked)| locked.source == pinned).map(|(id, _)| id.clone());
        Ok(match found {
            Some(id) if self.has(&id)? => Some(id),
            _ => None,
        })
    }

    /// Keeps a pinned pack that has come again.
    pub fn restore(&self, id: &PackId, arrival: Arrival) -> Result<(), InstallError> {
        let candidate = self.examine(arrival)?;
        if candidate.id != *id {
            let origin = candidate.locked.source;
            return Err(InstallError::Other { wanted: id.to_string(), origin, found: candidate.id });
        }
        self.store.put(&candidate.locked.digest, &candidate.bytes)
    }
}

/// Says that a pack comes from another repository than the version before. Whoever may push to one repository does not speak for
/// the packs of others.
fn moved(before: &str, source: &Source) -> Option<String> {
    let (Source::Registry(new), Ok(Source::Registry(old))) = (source, Source::parse(before, None)) else { return None };
    let same = new.registry == old.registry && new.repository == old.repository;
    (!same).then(|| format!("from {}/{}, not from {}/{}", new.registry, new.repository, old.registry, old.repository))
}

/// What differs between two versions. A signature of somebody else, or of nobody any more, is to be approved of, too.
fn difference(before: &Locked, after: &Locked) -> Difference {
    let mut difference = before.nodes.until(&after.nodes);
    let key = |locked: &Locked| locked.signature.map(|signature| signature.key);
    if let Some(old) = key(before).filter(|old| key(after) != Some(*old)) {
        let new = key(after).map_or_else(|| "signed by nobody".to_owned(), |new| format!("signed by {new}"));
        difference.more.push(new);
        difference.less.push(format!("signed by {old}"));
    }
    difference
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::{MAX_NAME, Source, check_name, moved};

    #[test]
    fn a_pack_has_a_name_that_can_be_written() {
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
    fn a_version_from_another_repository_is_to_be_approved_of() {
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
            assert_eq!(moved(before, &Source::parse(now, None).unwrap()).as_deref(), told, "{before} {now}");
        }
    }
}
