//! Indexes: lists of packs that people search, and that name the digest of each pack.
//!
//! An index is one JSON file with its signature, so that a reader sees both or neither change:
//! `{ "version": 2, "signature": "ed25519:…", "index": { "serial": 7, "date": "…", "packs": […] } }`. The signature is of
//! the bytes of the member `index`. The format 1 had neither a serial number nor a date.

use std::{collections::BTreeSet, path::Path};

use flowcell_contract::Digest;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{
    IndexedPack, InstallError, PackKey, PackVersions, Signature, Signer, Source, Trust, indexed::source_of,
    lock::write_atomically,
};
use crate::shape;

/// The version of the format.
const FORMAT: u32 = 2;
/// The version of the format without serial numbers, which is still read.
const UNNUMBERED_FORMAT: u32 = 1;
/// Largest serial number of an index. Every program that reads JSON has it exactly.
pub const MAX_SERIAL: u64 = (1 << 53) - 1;
/// Maximum size in bytes of an index.
pub const MAX_INDEX: usize = 8 << 20;
/// Maximum number of packs in an index, each version counted.
const MAX_PACKS: usize = 10_000;

/// A list of packs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Index {
    /// The number of this index, higher than that of each earlier index of the same place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    serial: Option<u64>,
    /// The time at which the index was built, as RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    date: Option<String>,
    packs: Vec<IndexedPack>,
}

/// The serial number and the date of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Issue<'i> {
    /// The number of the index.
    pub serial: u64,
    /// The time at which the index was built, as RFC 3339.
    pub date: &'i str,
}

/// The content of the file of an index.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct IndexFile<'a> {
    version: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    signature: Option<Signature>,
    /// The text of the [`Index`].
    #[serde(borrow)]
    index: &'a RawValue,
}

/// An index that was read and checked.
#[derive(Clone, Debug)]
pub struct CheckedIndex {
    index: Index,
    /// The file or the address that the index is from.
    pub(super) place: Source,
    /// The digest of the signed bytes.
    pub(super) digest: Digest,
    /// The signer of the index.
    pub signer: Option<Signer>,
}

impl Index {
    /// Creates an index with this serial number, sorted by name and version. `now_ms` is its date in milliseconds since
    /// 1970. Fails if an entry is wrong or occurs twice.
    pub fn new(mut packs: Vec<IndexedPack>, serial: u64, now_ms: u64) -> Result<Index, InstallError> {
        packs.sort_by(|one, other| one.pack.cmp(&other.pack));
        let index = Index { serial: Some(serial), date: Some(shape::time(now_ms)), packs };
        index.check().map(|()| index)
    }

    /// Returns the content of the file of this index, signed with the key if there is one.
    pub fn to_text(&self, key: Option<&PackKey>) -> String {
        // Serialising to memory fails only for keys that are not texts, and all keys are texts.
        let text = serde_json::to_string_pretty(self).unwrap_or_default();
        let signature = key.map(|key| key.sign_index(&flowcell_engine::digest(text.as_bytes())));
        let version = if self.serial.is_some() { FORMAT } else { UNNUMBERED_FORMAT };
        let file = RawValue::from_string(text)
            .and_then(|index| serde_json::to_string_pretty(&IndexFile { version, signature, index: &index }));
        file.unwrap_or_default() + "\n"
    }

    /// Writes the index and its signature into a file, completely or not at all.
    pub fn write(&self, file: &Path, key: Option<&PackKey>) -> Result<(), InstallError> {
        write_atomically(file, self.to_text(key).as_bytes())
            .map_err(|source| InstallError::Write { path: file.to_owned(), source })
    }

    fn check(&self) -> Result<(), InstallError> {
        if let Some(serial) = self.serial.filter(|serial| !(1..=MAX_SERIAL).contains(serial)) {
            let why = format!("its serial number is {serial}; the lowest is 1, the highest is {MAX_SERIAL}");
            return Err(InstallError::Index(why));
        }
        if self.date.as_ref().is_some_and(|date| date.parse::<jiff::Timestamp>().is_err()) {
            let why = "its `date` is not a time such as 2026-01-31T12:00:00Z";
            return Err(InstallError::Index(why.to_owned()));
        }
        if self.packs.len() > MAX_PACKS {
            return Err(InstallError::Index(format!("it has {} packs; the limit is {MAX_PACKS}", self.packs.len())));
        }
        let mut seen = BTreeSet::new();
        for pack in &self.packs {
            pack.check().map_err(|why| InstallError::Index(format!("{}: {why}", pack.pack)))?;
            if !seen.insert(&pack.pack) {
                return Err(InstallError::Index(format!("{} occurs twice", pack.pack)));
            }
        }
        Ok(())
    }
}

impl CheckedIndex {
    /// Reads the bytes of an index that were fetched from a place. Checks its signature and all of its entries.
    pub fn read(place: Source, bytes: &[u8], trust: &Trust) -> Result<CheckedIndex, InstallError> {
        let wrong = |error: serde_json::Error| InstallError::Index(error.to_string());
        if bytes.len() > MAX_INDEX {
            return Err(InstallError::Index(format!("it is larger than {MAX_INDEX} bytes")));
        }
        let file: IndexFile<'_> = serde_json::from_slice(bytes).map_err(wrong)?;
        if ![FORMAT, UNNUMBERED_FORMAT].contains(&file.version) {
            let found = file.version;
            let why = format!("its format is {found}, and this program reads {UNNUMBERED_FORMAT} and {FORMAT}");
            return Err(InstallError::Index(why));
        }
        let text = file.index.get();
        let digest = flowcell_engine::digest(text.as_bytes());
        let signer = trust.admit_index(&digest, file.signature.as_ref())?;
        let index: Index = serde_json::from_str(text).map_err(wrong)?;
        let is_numbered = file.version == FORMAT;
        if [index.serial.is_some(), index.date.is_some()] != [is_numbered; 2] {
            let has = if is_numbered { "needs" } else { "has no" };
            return Err(InstallError::Index(format!("the format {} {has} `serial` and `date`", file.version)));
        }
        index.check()?;
        // What has no folder cannot have packs in it.
        for pack in &index.packs {
            source_of(&pack.source, &place).map_err(|why| InstallError::Index(format!("{}: {why}", pack.pack)))?;
        }
        Ok(CheckedIndex { index, place, digest, signer })
    }

    /// Returns the serial number and the date. `None`: the index has the format 1, which has neither.
    pub fn issue(&self) -> Option<Issue<'_>> {
        Some(Issue { serial: self.index.serial?, date: self.index.date.as_deref()? })
    }

    /// Returns the file or the address that the index is from.
    pub fn place(&self) -> &Source {
        &self.place
    }

    /// Returns the packs, sorted by name and version.
    pub fn packs(&self) -> &[IndexedPack] {
        &self.index.packs
    }

    /// Returns the highest version of a pack that the index has, and its source. A version before a release counts only if the
    /// pack has no release.
    pub fn find(&self, wanted: &PackVersions) -> Result<(&IndexedPack, Source), InstallError> {
        let fitting = self.index.packs.iter().filter(|pack| wanted.contains(&pack.pack));
        let rank = |pack: &&IndexedPack| (pack.pack.version.pre.is_empty(), pack.pack.version.clone());
        let found = fitting.max_by_key(rank);
        let found = found.ok_or_else(|| InstallError::Index(format!("it has no pack `{wanted}`")))?;
        Ok((found, source_of(&found.source, &self.place).map_err(InstallError::Index)?))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;
    use crate::packs::indexed::tests::entry;

    /// 2026-01-31T12:00:00Z in milliseconds since 1970.
    const NOON: u64 = 1_769_860_800_000;

    fn index(packs: Vec<IndexedPack>) -> Index {
        Index { serial: Some(7), date: Some("2026-01-31T12:00:00Z".into()), packs }
    }

    fn read(text: &str) -> Result<CheckedIndex, InstallError> {
        CheckedIndex::read(Source::File("shelf/index.json".into()), text.as_bytes(), &Trust::default())
    }

    #[test]
    fn an_index_is_read_as_it_was_written() {
        let later = IndexedPack { pack: "acme@1.10.0".parse().unwrap(), source: "packs/acme.wasm".into(), ..entry() };
        let early = IndexedPack { pack: "acme@2.0.0-rc.1".parse().unwrap(), ..entry() };
        let index = Index::new(vec![early, later, entry()], 7, NOON).unwrap();
        let checked = read(&index.to_text(None)).unwrap();
        assert_eq!(checked.issue(), Some(Issue { serial: 7, date: "2026-01-31T12:00:00Z" }));
        assert_eq!(checked.packs()[0], entry());
        let (found, source) = checked.find(&"acme".parse().unwrap()).unwrap();
        assert_eq!(
            (found.pack.to_string(), source.to_string()),
            ("acme@1.10.0".into(), "shelf/packs/acme.wasm".into())
        );
        let (_, source) = checked.find(&"acme@1.0.0".parse().unwrap()).unwrap();
        assert_eq!(source.to_string(), "ghcr.io/acme/acme@1.0.0");
        let (early, _) = checked.find(&"acme@2.0.0-rc.1".parse().unwrap()).unwrap();
        assert_eq!(early.pack.to_string(), "acme@2.0.0-rc.1");
        let missing = checked.find(&"acme@2.0.0".parse().unwrap()).unwrap_err();
        assert!(missing.to_string().contains("no pack `acme@2.0.0`"), "{missing}");
    }

    #[test]
    fn hostile_entries_are_refused() {
        let wrong = |change: fn(&mut IndexedPack)| {
            let mut pack = entry();
            change(&mut pack);
            read(&index(vec![pack]).to_text(None)).unwrap_err().to_string()
        };
        for (told, change) in [
            ("built-in", (|pack| pack.pack.name = "http".into()) as fn(&mut IndexedPack)),
            ("`name` must have", |pack| pack.pack.name = "../acme".into()),
            ("does not begin with `acme.`", |pack| pack.types[0].name = "http.request".into()),
            ("64 hexadecimal digits", |pack| pack.digest = "sha256:0".into()),
            ("leads out", |pack| pack.source = "../acme.wasm".into()),
            ("leads out", |pack| pack.source = "/etc/acme.wasm".into()),
            ("leads out", |pack| pack.source = "./a\u{e9}.wasm".into()),
            ("change the direction", |pack| pack.source = "./a\u{202e}.wasm".into()),
            ("only addresses", |pack| pack.source = "http://example.com/acme.wasm".into()),
            ("only addresses", |pack| pack.source = "file:///etc/acme.wasm".into()),
            ("control characters", |pack| pack.description = Some("\u{1b}[2J".into())),
            ("change the direction", |pack| pack.description = Some("\u{202e}.elpoep steerG".into())),
            ("change the direction", |pack| pack.license = Some("M\u{200b}IT".into())),
            ("change the direction", |pack| pack.types[0].name = "acme.gr\u{2066}eet".into()),
            ("change the direction", |pack| _ = pack.types[0].asks_for.insert("n\u{ad}et".into())),
            ("control characters", |pack| pack.types[0].title = "x".repeat(2_049)),
            ("`docs`", |pack| pack.about.docs = Some("javascript:alert(1)".into())),
        ] {
            let error = wrong(change);
            assert!(error.contains(told), "{told}: {error}");
        }
        let twice = index(vec![entry(), entry()]);
        assert!(read(&twice.to_text(None)).unwrap_err().to_string().contains("occurs twice"));
        assert!(read("{").is_err() && read(r#"{ "version": 1, "index": { "packs": [] }, "more": 1 }"#).is_err());
        let many = index(vec![entry(); MAX_PACKS + 1]);
        assert!(many.check().unwrap_err().to_string().contains("the limit is"));
        assert!(read(&" ".repeat(MAX_INDEX + 1)).unwrap_err().to_string().contains("larger than"));
    }

    #[test]
    fn a_signature_is_of_the_bytes_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let key = PackKey::make(&folder.path().join("key")).unwrap();
        let file = folder.path().join("index.json");
        let index = Index::new(vec![entry()], 7, NOON).unwrap();
        index.write(&file, Some(&key)).unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        assert_eq!(read(&text).unwrap().signer.unwrap().key, key.public());
        // Members around the signed bytes may be formatted in another way, but not those bytes.
        assert!(read(&text.replacen("{\n  \"version\"", "{ \"version\"", 1)).is_ok());
        for (old, new) in [("1.0.0", "1.0.1"), ("\"packs\": ", "\"packs\":")] {
            assert!(text.contains(old), "{text}");
            let error = read(&text.replace(old, new)).unwrap_err().to_string();
            assert!(error.contains("is for other bytes"), "{error}");
        }
        index.write(&file, None).unwrap();
        assert_eq!(read(&std::fs::read_to_string(&file).unwrap()).unwrap().signer, None, "no stale signature is left");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2, "the key and the index");
    }

    #[test]
    fn an_index_in_a_registry_names_no_paths() {
        let registry = Source::Registry("ghcr.io/acme/packs".parse().unwrap());
        let read = |pack: IndexedPack| {
            let text = index(vec![pack]).to_text(None);
            CheckedIndex::read(registry.clone(), text.as_bytes(), &Trust::default())
        };
        assert!(read(entry()).is_ok());
        let error = read(IndexedPack { source: "./acme.wasm".into(), ..entry() }).unwrap_err().to_string();
        assert!(error.contains("has no folder; push the pack"), "{error}");
    }

    #[test]
    fn the_number_and_the_date_belong_to_the_format() {
        let date = "\"date\": \"2026-01-31T12:00:00Z\"";
        for (version, members, told) in [
            (3, format!("\"serial\": 7, {date}, "), Some("its format is 3, and this program reads 1 and 2")),
            (2, format!("\"serial\": 7, {date}, "), None),
            (2, String::new(), Some("the format 2 needs `serial` and `date`")),
            (2, "\"serial\": 7, ".to_owned(), Some("the format 2 needs")),
            (2, format!("{date}, "), Some("the format 2 needs")),
            (1, String::new(), None),
            (1, format!("\"serial\": 7, {date}, "), Some("the format 1 has no `serial`")),
            (1, format!("{date}, "), Some("the format 1 has no")),
            (2, format!("\"serial\": 0, {date}, "), Some("the lowest is 1")),
            (2, format!("\"serial\": 9007199254740992, {date}, "), Some("the highest is 9007199254740991")),
            (2, format!("\"serial\": -1, {date}, "), Some("invalid value")),
            (2, format!("\"serial\": 7.5, {date}, "), Some("invalid type")),
            (2, format!("\"serial\": 7, \"serial\": 8, {date}, "), Some("duplicate field")),
            (2, "\"serial\": 7, \"date\": \"\\u001b[2J\", ".to_owned(), Some("its `date` is not a time")),
            (2, "\"serial\": 7, \"date\": \"yesterday\", ".to_owned(), Some("its `date` is not a time")),
        ] {
            let read = read(&format!("{{ \"version\": {version}, \"index\": {{ {members}\"packs\": [] }} }}"));
            let error = read.as_ref().err().map(ToString::to_string);
            match told {
                None => assert_eq!(error, None, "{version} {members}"),
                Some(told) => assert!(error.as_ref().is_some_and(|error| error.contains(told)), "{error:?}: {told}"),
            }
        }
    }

    /// An index as a version of the program without serial numbers wrote it.
    #[test]
    fn an_index_of_the_format_1_is_still_read() {
        let text = Index { serial: None, date: None, packs: vec![entry()] }.to_text(None);
        assert!(text.starts_with("{\n  \"version\": 1,\n") && !text.contains("serial"), "{text}");
        let checked = read(&text).unwrap();
        assert_eq!((checked.issue(), checked.packs()), (None, &[entry()][..]));
    }
}
