//! Whose signatures count.

use std::{collections::BTreeMap, fmt, path::Path};

use flowcell_contract::Digest;
use flowcell_services::pattern;
use serde::Deserialize;

use super::{InstallError, PackId, PublicKey, Signature, yaml};

/// Whose signatures count. Without a file of this kind everybody's do, and packs need none.
///
/// ```yaml
/// unsigned: refuse                    # or allow; refuse is what stands for nothing
/// keys:
///   ada: { key: "ed25519:…", packs: [acme, "acme-*"] }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Trust(Option<Written>);

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default)]
    unsigned: Unsigned,
    #[serde(default)]
    keys: BTreeMap<String, Known>,
}

/// What becomes of packs that nobody has signed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Unsigned {
    #[default]
    Refuse,
    Allow,
}

/// A key that counts.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Known {
    key: PublicKey,
    /// Patterns of the names of packs that it may sign.
    packs: Vec<String>,
}

/// Who has signed a pack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signer {
    /// What the operator calls the key, if it is known.
    pub name: Option<String>,
    /// The key.
    pub key: PublicKey,
}

impl Trust {
    /// Reads the file. One that is not there is an error: nobody means to trust everybody by a slip.
    pub fn read(file: &Path) -> Result<Trust, InstallError> {
        let missing = || InstallError::Read { path: file.to_owned(), source: std::io::ErrorKind::NotFound.into() };
        yaml::read(file)?.map(|written| Trust(Some(written))).ok_or_else(missing)
    }

    /// Decides about a pack. Answers who has signed it.
    pub fn admit(
        &self,
        id: &PackId,
        digest: &Digest,
        signature: Option<&Signature>,
    ) -> Result<Option<Signer>, InstallError> {
        let refuse = |why: String| InstallError::Untrusted { id: id.clone(), why };
        let Some(signature) = signature else {
            return match &self.0 {
                Some(written) if written.unsigned == Unsigned::Refuse => Err(refuse("nobody has signed it".into())),
                _ => Ok(None),
            };
        };
        let key = signature.key;
        if !signature.holds(id, digest) {
            return Err(refuse(format!(
                "its signature by {key} is not about this pack: name, version or bytes are others"
            )));
        }
        let Some(written) = &self.0 else { return Ok(Some(Signer { name: None, key })) };
        let of_key: Vec<_> = written.keys.iter().filter(|(_, known)| known.key == key).collect();
        let signs = |known: &Known| known.packs.iter().any(|pattern| pattern::matches(pattern, &id.name));
        match (of_key.iter().find(|(_, known)| signs(known)), of_key.first()) {
            (Some((name, _)), _) => Ok(Some(Signer { name: Some(name.to_string()), key })),
            (None, Some((name, _))) => Err(refuse(format!("`{name}` ({key}) may not sign packs of this name"))),
            (None, None) => Err(refuse(format!("nobody knows the key that has signed it, {key}"))),
        }
    }
}

impl fmt::Display for Signer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(formatter, "{name} ({})", self.key),
            None => write!(formatter, "{}", self.key),
        }
    }
}
