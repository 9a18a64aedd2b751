//! The entries of an index: each describes one version of a pack, and is compared with the pack that is fetched.

use std::{
    collections::BTreeSet,
    fmt,
    path::{Component, Path, PathBuf},
};

use flowcell_contract::{About, Digest, Manifest, text::has_deceptive};
use flowcell_engine::{Inspection, is_reserved};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Arrival, InstallError, PackId, Signature, Source, install::check_name};

/// Maximum number of characters of a text in an index.
const MAX_TEXT: usize = 2_048;
/// Maximum number of characters of a refused text in a message.
const MAX_SHOWN: usize = 64;
/// Maximum number of characters of each of two values that differ, in a message.
const MAX_MISFIT: usize = 200;

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

/// A member that an entry and its pack have with other values, which are short texts.
#[derive(Debug, PartialEq)]
struct Misfit {
    member: String,
    indexed: String,
    found: String,
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
    pub(super) fn check(&self) -> Result<(), String> {
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

    /// Checks that a fetched pack is the one that this entry describes. Gives it the signature of the entry if it came
    /// without one.
    pub fn admit(&self, arrival: Arrival) -> Result<Arrival, InstallError> {
        let found = flowcell_engine::digest(&arrival.bytes);
        if found.to_string() != self.digest {
            let (id, origin) = (self.pack.clone(), arrival.source.to_string());
            return Err(InstallError::Poisoned { id, origin, indexed: self.digest.clone(), found });
        }
        let inspection = arrival.inspect()?;
        let found = PackId::of(&inspection.manifest);
        if found != self.pack {
            let (wanted, origin) = (self.pack.to_string(), arrival.source.to_string());
            return Err(InstallError::Other { wanted, origin, found });
        }
        let signature = arrival.signature.or(self.signature);
        let actual = IndexedPack::new(&inspection, self.source.clone(), signature);
        if let Some(Misfit { member, indexed, found }) = self.misfit(&actual) {
            let (id, origin) = (self.pack.clone(), arrival.source.to_string());
            return Err(InstallError::Misdescribed { id, origin, member, indexed, found });
        }
        Ok(Arrival { signature, ..arrival })
    }

    /// Compares this entry with that of the actual pack, and returns the first member that differs.
    fn misfit(&self, actual: &IndexedPack) -> Option<Misfit> {
        let signer = |pack: &IndexedPack| pack.signature.map(|signature| signature.key.to_string());
        let members = |pack: &IndexedPack| {
            [
                ("size".to_owned(), json!(pack.size)),
                ("signer".to_owned(), json!(signer(pack))),
                ("description".to_owned(), json!(pack.description)),
                ("license".to_owned(), json!(pack.license)),
                ("about".to_owned(), json!(pack.about)),
                ("types".to_owned(), pack.sorted_types().iter().map(|node| json!(node.name)).collect()),
            ]
        };
        let of_types = |pack: &IndexedPack| {
            let of_type = |node: &&IndexedType| {
                let name = &node.name;
                [
                    (format!("title of {name}"), json!(node.title)),
                    (format!("asksFor of {name}"), json!(node.asks_for)),
                    (format!("mayUse of {name}"), json!(node.may_use)),
                ]
            };
            pack.sorted_types().iter().flat_map(of_type).collect::<Vec<_>>()
        };
        // If the names of the types are the same, so is the order of their members.
        let pairs = members(self).into_iter().zip(members(actual));
        let mut pairs = pairs.chain(of_types(self).into_iter().zip(of_types(actual)));
        let ((member, indexed), (_, found)) = pairs.find(|((_, indexed), (_, found))| indexed != found)?;
        Some(Misfit { member, indexed: shown(&indexed), found: shown(&found) })
    }

    fn sorted_types(&self) -> Vec<&IndexedType> {
        let mut types: Vec<_> = self.types.iter().collect();
        types.sort_by(|one, other| one.name.cmp(&other.name));
        types
    }
}

fn is_plain(text: &str) -> bool {
    !text.contains(char::is_control) && !has_deceptive(text) && text.chars().count() <= MAX_TEXT
}

/// Returns a value for a message, cut if it is long. Absent values are `nothing`.
fn shown(value: &Value) -> String {
    let text = if value.is_null() { "nothing".to_owned() } else { value.to_string() };
    match text.char_indices().nth(MAX_MISFIT) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// Returns the source of an entry. A path is one below the folder of the index, and never leads out of it.
pub(super) fn source_of(source: &str, index: &Source) -> Result<Source, String> {
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
pub(super) mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;
    use crate::packs::PackKey;

    /// Returns an entry that is valid.
    pub(in super::super) fn entry() -> IndexedPack {
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

    #[test]
    fn words_are_looked_for_in_all_texts() {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        assert!(entry().matches(&words(&["HELLO", "greet"])) && !entry().matches(&words(&["hello", "mail"])));
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

    #[test]
    fn each_member_that_differs_from_the_pack_is_named_with_both_values() {
        let folder = tempfile::tempdir().unwrap();
        let keys = ["one", "two"].map(|name| PackKey::make(&folder.path().join(name)).unwrap());
        let sign = |pack: &mut IndexedPack, key: &PackKey| {
            pack.signature = Some(key.sign(&pack.pack, &Digest("0".repeat(64).into())));
        };
        let second = |pack: &mut IndexedPack| {
            let node = IndexedType { name: "acme.bye".into(), ..pack.types[0].clone() };
            pack.types.push(node);
        };
        let keyed = keys.each_ref().map(|key| format!("\"{}\"", key.public()));
        type Change<'a> = &'a dyn Fn(&mut IndexedPack);
        let cases: [(Change<'_>, &str, &str, &str); 11] = [
            (&|pack| pack.size = 2, "size", "2", "1"),
            (&|pack| sign(pack, &keys[0]), "signer", &keyed[0], "nothing"),
            (&|pack| pack.description = None, "description", "nothing", "\"Greets people.\""),
            (&|pack| pack.license = Some("MIT".into()), "license", "\"MIT\"", "nothing"),
            (&|pack| pack.about = About::default(), "about", "{}", "{\"keywords\":[\"hello\"]}"),
            (&|pack| pack.types.clear(), "types", "[]", "[\"acme.greet\"]"),
            (&second, "types", "[\"acme.bye\",\"acme.greet\"]", "[\"acme.greet\"]"),
            (&|pack| pack.types[0].name = "acme.x".into(), "types", "[\"acme.x\"]", "[\"acme.greet\"]"),
            (&|pack| pack.types[0].title = "Hi".into(), "title of acme.greet", "\"Hi\"", "\"Greet\""),
            (&|pack| pack.types[0].asks_for.clear(), "asksFor of acme.greet", "[]", "[\"log\"]"),
            (&|pack| _ = pack.types[0].may_use.insert("http".into()), "mayUse of acme.greet", "[\"http\"]", "[]"),
        ];
        for (change, member, indexed, found) in cases {
            let mut forged = entry();
            change(&mut forged);
            let misfit = forged.misfit(&entry()).unwrap();
            assert_eq!((&*misfit.member, &*misfit.indexed, &*misfit.found), (member, indexed, found));
        }
        let [mut one, mut other] = [entry(), entry()];
        sign(&mut one, &keys[0]);
        assert_eq!(one.misfit(&one.clone()), None);
        sign(&mut other, &keys[1]);
        let misfit = one.misfit(&other).unwrap();
        assert_eq!([misfit.indexed, misfit.found], keyed);
        // The order of the types has no meaning, but a type that occurs twice is one more.
        let (mut ordered, mut reversed) = (entry(), entry());
        second(&mut ordered);
        second(&mut reversed);
        reversed.types.reverse();
        assert_eq!(ordered.misfit(&reversed), None);
        reversed.types.push(reversed.types[0].clone());
        assert_eq!(reversed.misfit(&ordered).unwrap().member, "types");
        let long = IndexedPack { description: Some("ä".repeat(MAX_TEXT)), ..entry() };
        assert_eq!(long.misfit(&entry()).unwrap().indexed.chars().count(), MAX_MISFIT + 1);
    }
}
