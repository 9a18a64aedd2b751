//! Indexes: lists of packs that people search, and that name the digest of each pack.
//!
//! An index is one JSON file with its signature, so that a reader sees both or neither change:
//! `{ "version": 1, "signature": "ed25519:…", "index": { "packs": […] } }`. The signature is of the bytes of the member
//! `index`.

use std::{
    collections::BTreeSet,
    fmt,
    path::{Component, Path, PathBuf},
};

use flowcell_contract::{About, Digest, Manifest, text::has_deceptive};
use flowcell_engine::{Inspection, is_reserved};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{
    Arrival, InstallError, PackId, PackKey, PackVersions, Signature, Signer, Source, Trust, install::check_name,
    lock::write_atomically,
};

/// The version of the format.
const FORMAT: u32 = 1;
/// Maximum size in bytes of an index.
pub const MAX_INDEX: usize = 8 << 20;
/// Maximum number of packs in an index, each version counted.
const MAX_PACKS: usize = 10_000;
/// Maximum number of characters of a text in an index.
const MAX_TEXT: usize = 2_048;
/// Maximum number of characters of a refused text in a message.
const MAX_SHOWN: usize = 64;

/// A list of packs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Index {
    packs: Vec<IndexedPack>,
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

/// One version of a pack in an index.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IndexedPack {
    /// The name and version.
    pub pack: PackId,
    /// The digest of the component, `sha256:` and 64 hexadecimal digits.
    pub digest: String,
    /// The size of the component in bytes.
    pub size: u64,
    /// The place of the component: a reference of a registry, an `https` address, or a path below the folder of the index.
    pub source: String,
    /// The purpose of the pack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The SPDX expression of the license.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub license: Option<String>,
    /// The members of the manifest for people.
    #[serde(default, skip_serializing_if = "About::is_empty")]
    pub about: About,
    /// The node types.
    pub types: Vec<IndexedType>,
    /// The signature of the pack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<Signature>,
}

/// A node type in an index.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct IndexedType {
    /// The name of the type.
    #[serde(rename = "type")]
    pub name: String,
    /// The title.
    pub title: String,
    /// The capabilities without which the type does not run.
    pub asks_for: BTreeSet<String>,
    /// The capabilities that the type may use if they are granted.
    pub may_use: BTreeSet<String>,
}

/// An index that was read and checked.
#[derive(Clone, Debug)]
pub struct CheckedIndex {
    index: Index,
    /// The file or the address that the index is from.
    place: Source,
    /// The signer of the index.
    pub signer: Option<Signer>,
}

impl IndexedPack {
    /// Returns the entry of a pack that has been fetched. `source` is its place.
    pub fn new(inspection: &Inspection, source: String, signature: Option<Signature>) -> IndexedPack {
        let Manifest { description, license, .. } = &inspection.manifest;
        let types = inspection.manifest.nodes.iter().map(|node| {
            let names = |optional: bool| {
                let requests = node.capabilities.iter().filter(move |request| request.optional == optional);
                requests.map(|request| request.name.to_string()).collect()
            };
            let (name, title) = (node.name.to_string(), node.title.clone());
            IndexedType { name, title, asks_for: names(false), may_use: names(true) }
        });
        IndexedPack {
            pack: PackId::of(&inspection.manifest),
            digest: inspection.digest.to_string(),
            size: inspection.size as u64,
            source,
            description: description.clone(),
            license: license.clone(),
            about: inspection.manifest.about(),
            types: types.collect(),
            signature,
        }
    }

    /// Returns whether each word occurs in the name, the description, the types, the categories or the keywords. Ignores
    /// the case of letters.
    pub fn matches(&self, words: &[String]) -> bool {
        let types = self.types.iter().flat_map(|node| [&node.name, &node.title]);
        let about = self.about.categories.iter().chain(&self.about.keywords);
        let texts = [&self.pack.name].into_iter().chain(&self.description).chain(about).chain(types);
        let text = texts.map(|text| text.to_lowercase()).collect::<Vec<_>>().join("\n");
        words.iter().all(|word| text.contains(&word.to_lowercase()))
    }

    /// Returns the digest of the component.
    pub fn digest(&self) -> Digest {
        Digest(self.digest.strip_prefix("sha256:").unwrap_or_default().into())
    }

    /// Checks the entry. The error is a sentence.
    fn check(&self) -> Result<(), String> {
        let name = &self.pack.name;
        check_name(name).map_err(|error| error.to_string())?;
        if is_reserved(name) {
            return Err(format!("`{name}` is the name of a built-in pack"));
        }
        let digits = self.digest.strip_prefix("sha256:").unwrap_or_default();
        if digits.len() != 64 || !digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
            return Err("`digest` is not `sha256:` and 64 hexadecimal digits".to_owned());
        }
        let texts = [&self.description, &self.license].into_iter().flatten().chain([&self.source]);
        let of_types = self
            .types
            .iter()
            .flat_map(|node| [&node.name, &node.title].into_iter().chain(&node.asks_for).chain(&node.may_use));
        if let Some(text) = texts.chain(of_types).find(|text| !is_plain(text)) {
            let shown: String = text.chars().take(MAX_SHOWN).collect();
            return Err(format!(
                "the text {shown:?} has control characters, characters that are invisible or change the direction of the \
                 text, or more than {MAX_TEXT} characters"
            ));
        }
        let prefix = format!("{name}.");
        if let Some(node) = self.types.iter().find(|node| !node.name.starts_with(&prefix)) {
            return Err(format!("the type `{}` does not begin with `{prefix}`", node.name));
        }
        self.about.check()?;
        source_of(&self.source, &Source::File("index.json".into())).map(|_| ())
    }
}

fn is_plain(text: &str) -> bool {
    !text.contains(char::is_control) && !has_deceptive(text) && text.chars().count() <= MAX_TEXT
}

impl Index {
    /// Creates an index, sorted by name and version. Fails if an entry is wrong or occurs twice.
    pub fn new(mut packs: Vec<IndexedPack>) -> Result<Index, InstallError> {
        packs.sort_by(|one, other| one.pack.cmp(&other.pack));
        let index = Index { packs };
        index.check().map(|()| index)
    }

    /// Returns the content of the file of this index, signed with the key if there is one.
    pub fn to_text(&self, key: Option<&PackKey>) -> String {
        // Serialising to memory fails only for keys that are not texts, and all keys are texts.
        let text = serde_json::to_string_pretty(self).unwrap_or_default();
        let signature = key.map(|key| key.sign_index(&flowcell_engine::digest(text.as_bytes())));
        let file = RawValue::from_string(text)
            .and_then(|index| serde_json::to_string_pretty(&IndexFile { version: FORMAT, signature, index: &index }));
        file.unwrap_or_default() + "\n"
    }

    /// Writes the index and its signature into a file, completely or not at all.
    pub fn write(&self, file: &Path, key: Option<&PackKey>) -> Result<(), InstallError> {
        write_atomically(file, self.to_text(key).as_bytes())
            .map_err(|source| InstallError::Write { path: file.to_owned(), source })
    }

    fn check(&self) -> Result<(), InstallError> {
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
        if file.version != FORMAT {
            let found = file.version;
            return Err(InstallError::Index(format!("its format is {found}, and this program reads {FORMAT}")));
        }
        let text = file.index.get();
        let signer = trust.admit_index(&flowcell_engine::digest(text.as_bytes()), file.signature.as_ref())?;
        let index: Index = serde_json::from_str(text).map_err(wrong)?;
        index.check()?;
        // What has no folder cannot have packs in it.
        for pack in &index.packs {
            source_of(&pack.source, &place).map_err(|why| InstallError::Index(format!("{}: {why}", pack.pack)))?;
        }
        Ok(CheckedIndex { index, place, signer })
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

impl IndexedPack {
    /// Checks that a fetched pack has the bytes, the name and the version of this entry. Gives it the signature of the entry if it came without one.
    pub fn admit(&self, arrival: Arrival) -> Result<Arrival, InstallError> {
        let found = flowcell_engine::digest(&arrival.bytes);
        if found.to_string() != self.digest {
            let (id, origin) = (self.pack.clone(), arrival.source.to_string());
            return Err(InstallError::Poisoned { id, origin, indexed: self.digest.clone(), found });
        }
        let found = PackId::of(&arrival.inspect()?.manifest);
        if found != self.pack {
            let (wanted, origin) = (self.pack.to_string(), arrival.source.to_string());
            return Err(InstallError::Other { wanted, origin, found });
        }
        Ok(Arrival { signature: arrival.signature.or(self.signature), ..arrival })
    }
}

/// Returns the source of an entry. A path is one below the folder of the index, and never leads out of it.
fn source_of(source: &str, index: &Source) -> Result<Source, String> {
    let wrong = |why: &dyn fmt::Display| format!("`source` is `{source}`: {why}");
    match Source::parse(source, None).map_err(|why| wrong(&why))? {
        Source::Url(url) if url.starts_with("https://") => Ok(Source::Url(url)),
        Source::Url(_) => Err(wrong(&"only addresses that begin with `https://` are allowed")),
        Source::File(path) => {
            let path = below(&path).ok_or_else(|| wrong(&"the path leads out of the folder of the index"))?;
            Ok(match index {
                Source::File(index) => Source::File(index.parent().unwrap_or(Path::new("")).join(path)),
                Source::Registry(_) => {
                    return Err(wrong(&"an index in a registry has no folder; push the pack, and list its reference"));
                }
                Source::Url(index) => {
                    let index = index.split(['?', '#']).next().unwrap_or_default();
                    let (folder, _) = index.rsplit_once('/').unwrap_or((index, ""));
                    Source::Url(format!("{folder}/{}", path.display()))
                }
            })
        }
        registry => Ok(registry),
    }
}

/// Returns a path of plain names, or `None` for a path that has others, such as `..` or a root.
fn below(path: &Path) -> Option<PathBuf> {
    let is_name = |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.+".contains(&byte));
    let mut names = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::Normal(name) => names.push(name.to_str().filter(|name| is_name(name))?),
            _ => return None,
        }
    }
    Some(names).filter(|names| names.components().next().is_some())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    fn entry() -> IndexedPack {
        IndexedPack {
            pack: "acme@1.0.0".parse().unwrap(),
            digest: format!("sha256:{}", "0".repeat(64)),
            size: 1,
            source: "ghcr.io/acme/acme@1.0.0".into(),
            description: Some("Greets people.".into()),
            license: None,
            about: About { keywords: vec!["hello".into()], ..About::default() },
            types: vec![IndexedType {
                name: "acme.greet".into(),
                title: "Greet".into(),
                asks_for: BTreeSet::from(["log".to_owned()]),
                may_use: BTreeSet::new(),
            }],
            signature: None,
        }
    }

    fn read(text: &str) -> Result<CheckedIndex, InstallError> {
        CheckedIndex::read(Source::File("shelf/index.json".into()), text.as_bytes(), &Trust::default())
    }

    #[test]
    fn an_index_is_read_as_it_was_written() {
        let later = IndexedPack { pack: "acme@1.10.0".parse().unwrap(), source: "packs/acme.wasm".into(), ..entry() };
        let early = IndexedPack { pack: "acme@2.0.0-rc.1".parse().unwrap(), ..entry() };
        let index = Index::new(vec![early, later, entry()]).unwrap();
        let checked = read(&index.to_text(None)).unwrap();
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
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        assert!(entry().matches(&words(&["HELLO", "greet"])) && !entry().matches(&words(&["hello", "mail"])));
    }

    #[test]
    fn hostile_entries_are_refused() {
        let wrong = |change: fn(&mut IndexedPack)| {
            let mut pack = entry();
            change(&mut pack);
            let index = Index { packs: vec![pack] };
            read(&index.to_text(None)).unwrap_err().to_string()
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
            ("control characters", |pack| pack.types[0].title = "x".repeat(MAX_TEXT + 1)),
            ("`docs`", |pack| pack.about.docs = Some("javascript:alert(1)".into())),
        ] {
            let error = wrong(change);
            assert!(error.contains(told), "{told}: {error}");
        }
        let twice = Index { packs: vec![entry(), entry()] };
        assert!(read(&twice.to_text(None)).unwrap_err().to_string().contains("occurs twice"));
        let later = r#"{ "version": 2, "index": { "packs": [] } }"#;
        assert!(read(later).unwrap_err().to_string().contains("its format is 2"));
        assert!(read("{").is_err() && read(r#"{ "version": 1, "index": { "packs": [] }, "more": 1 }"#).is_err());
        let many = Index { packs: vec![entry(); MAX_PACKS + 1] };
        assert!(many.check().unwrap_err().to_string().contains("the limit is"));
        assert!(read(&" ".repeat(MAX_INDEX + 1)).unwrap_err().to_string().contains("larger than"));
    }

    #[test]
    fn a_signature_is_of_the_bytes_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let key = PackKey::make(&folder.path().join("key")).unwrap();
        let file = folder.path().join("index.json");
        let index = Index::new(vec![entry()]).unwrap();
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
            let text = Index { packs: vec![pack] }.to_text(None);
            CheckedIndex::read(registry.clone(), text.as_bytes(), &Trust::default())
        };
        assert!(read(entry()).is_ok());
        let error = read(IndexedPack { source: "./acme.wasm".into(), ..entry() }).unwrap_err().to_string();
        assert!(error.contains("has no folder; push the pack"), "{error}");
    }

    #[test]
    fn other_bytes_than_those_of_the_index_are_refused() {
        let arrival =
            |bytes: &[u8]| Arrival { source: Source::File("a.wasm".into()), bytes: bytes.into(), signature: None };
        let pack = IndexedPack { digest: flowcell_engine::digest(b"pack").to_string(), ..entry() };
        let error = pack.admit(arrival(b"pack")).unwrap_err();
        assert!(matches!(error, InstallError::Refused { .. }), "these bytes are no component: {error}");
        let error = pack.admit(arrival(b"poison")).unwrap_err();
        assert!(matches!(error, InstallError::Poisoned { .. }), "{error}");
    }
}
