//! The file `flowcell.lock`, which lists the installed packs with their digests, and the indexes that they are from.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use flowcell_contract::Digest;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use super::{InstallError, PackId, PackVersions, PublicKey, RequestedCapabilities, Signature, yaml};

/// The comment at the top of a lock.
const HEAD: &str = "# What `flowcell node install` has installed. Keep it beside the flows that use it.\n";
/// The version of the format.
const VERSION: u32 = 1;

/// The installed packs, by name and version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lock {
    file: PathBuf,
    packs: BTreeMap<PackId, Locked>,
    /// The last index of each place that a pack was installed from.
    indexes: BTreeMap<String, LastIndex>,
    /// The content of the file when it was read. `None`: there was no file.
    found: Option<String>,
}

/// The record of an installed pack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Locked {
    /// The source of the pack, for fetching it again.
    pub source: String,
    /// The digest of the pack's bytes.
    #[serde(serialize_with = "write_digest", deserialize_with = "read_digest")]
    pub digest: Digest,
    /// The interfaces that the pack imports.
    pub imports: Vec<String>,
    /// The capabilities that the pack's node types request.
    pub nodes: RequestedCapabilities,
    /// The signature that was checked at the installation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<Signature>,
}

/// The last index of a place that a pack was installed from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LastIndex {
    /// The serial number. A later index has a higher one.
    pub serial: u64,
    /// The time at which the index was built, as RFC 3339.
    pub date: String,
    /// The digest of the signed bytes.
    #[serde(serialize_with = "write_digest", deserialize_with = "read_digest")]
    pub digest: Digest,
    /// The key that signed the index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signer: Option<PublicKey>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LockFile {
    #[serde(deserialize_with = "read_version")]
    version: u32,
    packs: BTreeMap<PackId, Locked>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    indexes: BTreeMap<String, LastIndex>,
}

impl Lock {
    /// Reads a lock. A missing file pins nothing.
    pub fn read(file: &Path) -> Result<Lock, InstallError> {
        let found = yaml::text(file)?;
        let written: Option<LockFile> = found.as_ref().map(|text| yaml::parse(file, text)).transpose()?;
        let (packs, indexes) = written.map(|written| (written.packs, written.indexes)).unwrap_or_default();
        Ok(Lock { file: file.to_owned(), packs, indexes, found })
    }

    /// Writes the file atomically. Fails if another process has changed it since it was read.
    pub fn write(&mut self) -> Result<(), InstallError> {
        let cannot = |source| InstallError::Write { path: self.file.clone(), source };
        let text = self.to_text().map_err(|why| cannot(io::Error::other(why)))?;
        // Windows opens no folders as files; there, only the comparison counts.
        #[cfg(unix)]
        let _guard = locked_folder(&self.file).map_err(cannot)?;
        if yaml::text(&self.file)? != self.found {
            return Err(InstallError::Overtaken { path: self.file.clone() });
        }
        write_atomically(&self.file, text.as_bytes()).map_err(cannot)?;
        self.found = Some(text);
        Ok(())
    }

    fn to_text(&self) -> Result<String, serde_yaml::ser::Error> {
        let written = LockFile { version: VERSION, packs: self.packs.clone(), indexes: self.indexes.clone() };
        // One line per item makes line diffs of two locks readable.
        let options = serde_yaml::ser_options! { prefer_block_scalars: false, compact_list_indent: false };
        let text = serde_yaml::to_string_with_options(&written, options)?;
        Ok(format!("{HEAD}{}\n", text.trim_end()))
    }

    /// Returns the path of the file.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Returns the packs, sorted by name and version.
    pub fn packs(&self) -> impl Iterator<Item = (&PackId, &Locked)> {
        self.packs.iter()
    }

    /// Returns the record of a pack.
    pub fn get(&self, id: &PackId) -> Option<&Locked> {
        self.packs.get(id)
    }

    /// Returns the highest other installed version of a pack.
    pub fn highest_beside(&self, id: &PackId) -> Option<(&PackId, &Locked)> {
        self.packs.iter().rfind(|(other, _)| other.name == id.name && *other != id)
    }

    /// Pins a pack, and replaces an earlier record of the same version.
    pub fn insert(&mut self, id: PackId, locked: Locked) {
        self.packs.insert(id, locked);
    }

    /// Removes versions of a pack. Returns their ids.
    pub fn remove(&mut self, packs: &PackVersions) -> Vec<PackId> {
        self.packs.extract_if(.., |id, _| packs.contains(id)).map(|(id, _)| id).collect()
    }

    /// Returns the last index of a place that a pack was installed from.
    pub(super) fn last_index(&self, place: &str) -> Option<&LastIndex> {
        self.indexes.get(place)
    }

    /// Replaces the last index of a place, or forgets it.
    pub(super) fn set_last_index(&mut self, place: String, last: Option<LastIndex>) {
        match last {
            Some(last) => _ = self.indexes.insert(place, last),
            None => _ = self.indexes.remove(&place),
        }
    }
}

/// Writes a file atomically. Its permissions follow the user's umask.
pub fn write_atomically(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = folder_of(file);
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let mut beside = builder.prefix(".flowcell-").tempfile_in(folder)?;
    beside.write_all(bytes)?;
    beside.as_file().sync_all()?;
    beside.persist(file)?;
    fs::File::open(folder)?.sync_all()
}

fn folder_of(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Waits until no other process writes a lock in the folder of a file. Returns the guard.
#[cfg(unix)]
fn locked_folder(file: &Path) -> io::Result<fs::File> {
    let folder = fs::File::open(folder_of(file))?;
    folder.lock()?;
    Ok(folder)
}

fn read_version<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    match u32::deserialize(deserializer)? {
        VERSION => Ok(VERSION),
        other => Err(D::Error::custom(format!(
            "the lock file has version {other}, but this program reads version {VERSION}; use the version of Flowcell \
             that wrote it"
        ))),
    }
}

fn write_digest<S: Serializer>(digest: &Digest, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(digest)
}

fn read_digest<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Digest, D::Error> {
    let text = String::deserialize(deserializer)?;
    let digits = text.strip_prefix("sha256:").filter(|digits| digits.len() == 64);
    let digits = digits.filter(|digits| digits.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f')));
    let wrong = || D::Error::custom(format!("`{text}` is not a digest: write `sha256:` and 64 hexadecimal digits"));
    digits.map(|digits| Digest(digits.into())).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    fn locked(digit: &str) -> Locked {
        Locked {
            source: format!("ghcr.io/acme/acme@{digit}.0.0"),
            digest: Digest(digit.repeat(64).into()),
            imports: vec!["wasi:io/streams@0.2.6".into()],
            nodes: RequestedCapabilities::default(),
            signature: None,
        }
    }

    fn id(text: &str) -> PackId {
        text.parse().unwrap()
    }

    #[test]
    fn what_another_command_has_pinned_meanwhile_is_not_lost() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("flowcell.lock");
        let [mut one, mut other] = [0; 2].map(|_| Lock::read(&file).unwrap());
        one.insert(id("acme@1.0.0"), locked("1"));
        one.write().unwrap();
        one.insert(id("acme@1.1.0"), locked("1"));
        one.write().unwrap();
        other.insert(id("acme@2.0.0"), locked("2"));
        assert!(matches!(other.write(), Err(InstallError::Overtaken { .. })));
        assert_eq!(Lock::read(&file).unwrap().packs().count(), 2);
        fs::remove_file(&file).unwrap();
        assert!(matches!(one.write(), Err(InstallError::Overtaken { .. })));
    }

    #[test]
    fn a_lock_is_sorted_by_version_and_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let mut lock = Lock::read(&folder.path().join("flowcell.lock")).unwrap();
        for (name, digit) in [("acme@10.0.0", "1"), ("acme@9.0.0", "9"), ("acme@1.0.0-rc.1", "0"), ("zoo@1.0.0", "2")] {
            lock.insert(id(name), locked(digit));
        }
        lock.write().unwrap();
        assert_eq!(Lock::read(lock.file()).unwrap(), lock);
        let text = fs::read_to_string(lock.file()).unwrap();
        let order: Vec<_> =
            ["acme@1.0.0-rc.1", "acme@9", "acme@10", "zoo@1"].map(|name| text.find(name).unwrap()).into();
        assert!(text.starts_with("# What ") && order.is_sorted(), "{text}");
        assert_eq!(lock.highest_beside(&id("acme@10.0.0")).unwrap().0, &id("acme@9.0.0"));
        assert_eq!(lock.remove(&"acme@9.0.0".parse().unwrap()), [id("acme@9.0.0")]);
        assert_eq!(lock.remove(&"acme".parse().unwrap()).len(), 2);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
        let digest = Digest("5".repeat(64).into());
        let last = LastIndex { serial: 7, date: "2026-01-31T12:00:00Z".into(), digest, signer: None };
        lock.set_last_index("ghcr.io/acme/packs:latest".into(), Some(last));
        lock.write().unwrap();
        assert_eq!(Lock::read(lock.file()).unwrap(), lock);
        let text = fs::read_to_string(lock.file()).unwrap();
        assert!(text.contains("\n  \"ghcr.io/acme/packs:latest\":\n    serial: 7\n"), "{text}");
    }

    #[test]
    fn errors_in_a_lock_are_reported_with_their_place() {
        let pack = |key: &str, digest: &str, more: &str| {
            format!(
                "version: 1\npacks:\n  {key}:\n    source: a.wasm\n    digest: {digest}\n    imports: []\n    nodes: {{}}\n{more}"
            )
        };
        let good = format!("sha256:{}", "0".repeat(64));
        for (text, expected) in [
            ("version: 2\npacks: {}\n".to_owned(), vec!["line 1", "the lock file has version 2"]),
            ("packs: {}\n".to_owned(), vec!["missing field `version`"]),
            ("version: 1\npacks: {}\nmore: 1\n".to_owned(), vec!["line 3", "more"]),
            ("version: [\n".to_owned(), vec!["line"]),
            (pack("acme@1.0.0", "sha256:00", ""), vec!["line 5", "is not a digest"]),
            (pack("acme", &good, ""), vec!["line 3", "is not a pack with its version"]),
            (pack("acme@1.0", &good, ""), vec!["line 3", "is not a pack with its version"]),
            (pack("acme@1.0.0", &good, "    size: 7\n"), vec!["line 8", "size"]),
            (pack("acme@1.0.0", &good, "    signature: me\n"), vec!["line 8", "is not a signature"]),
        ] {
            let told = yaml::parse::<LockFile>(Path::new("flowcell.lock"), &text).err().unwrap().to_string();
            assert!(expected.iter().all(|part| told.contains(part)), "{text}\n{told}");
        }
        assert!(yaml::parse::<LockFile>(Path::new("flowcell.lock"), &pack("acme@1.0.0", &good, "")).is_ok());
    }
}
