//! The trusted signers of packs.

use std::{collections::BTreeMap, fmt, path::Path};

use flowcell_contract::Digest;
use flowcell_services::pattern;
use serde::{Deserialize, Serialize};

use super::{InstallError, PackId, PublicKey, Signature, yaml};

/// The trusted signers, from a file of the operator. Without such a file every signer is trusted, and packs need no
/// signature.
///
/// ```yaml
/// unsigned: refuse                    # or allow; the default is refuse
/// keys:
///   ada: { key: "ed25519:…", packs: [acme, "acme-*"], index: true }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Trust(Option<TrustFile>);

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TrustFile {
    #[serde(default)]
    unsigned: Unsigned,
    #[serde(default)]
    keys: BTreeMap<String, TrustedKey>,
}

/// The handling of unsigned packs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Unsigned {
    #[default]
    Refuse,
    Allow,
}

/// A trusted key.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TrustedKey {
    key: PublicKey,
    /// Patterns of the names of the packs that this key may sign.
    packs: Vec<String>,
    /// True if this key may sign indexes of packs.
    #[serde(default)]
    index: bool,
}

/// The signer of a pack, whose signature was checked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Signer {
    /// The operator's name for the key, from the file of trusted signers. Without such a file every key is accepted, and
    /// has no name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub name: Option<String>,
    /// The signer's public key: `ed25519:BASE64`.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub key: PublicKey,
}

impl Trust {
    /// Reads the file. A missing file is an error, so that a wrong path does not trust every signer.
    pub fn read(file: &Path) -> Result<Trust, InstallError> {
        let missing = || InstallError::Read { path: file.to_owned(), source: std::io::ErrorKind::NotFound.into() };
        yaml::read(file)?.map(|written| Trust(Some(written))).ok_or_else(missing)
    }

    /// Checks the signature of an index of packs, and returns its signer. Returns `None` for an unsigned index if unsigned
    /// packs are allowed.
    pub fn admit_index(&self, digest: &Digest, signature: Option<&Signature>) -> Result<Option<Signer>, InstallError> {
        let refuse = |why: String| InstallError::Index(format!("it is not trusted: {why}"));
        let Some(signature) = signature else {
            return match &self.0 {
                Some(written) if written.unsigned == Unsigned::Refuse => Err(refuse("it is not signed".into())),
                _ => Ok(None),
            };
        };
        let key = signature.key;
        if !signature.is_valid_for_index(digest) {
            return Err(refuse(format!("its signature by {key} is for other bytes")));
        }
        let Some(written) = &self.0 else { return Ok(Some(Signer { name: None, key })) };
        let of_key = written.of_key(key);
        match (of_key.iter().find(|(_, known)| known.index), of_key.first()) {
            (Some((name, _)), _) => Ok(Some(Signer { name: Some(name.to_string()), key })),
            (None, Some((name, _))) => Err(refuse(format!("`{name}` ({key}) has no `index: true` in the trust file"))),
            (None, None) => Err(refuse(format!("the key that signed it is unknown: {key}"))),
        }
    }

    /// Checks the signature of a pack, and returns its signer. Returns `None` for an unsigned pack if such packs are
    /// allowed.
    pub fn admit(
        &self,
        id: &PackId,
        digest: &Digest,
        signature: Option<&Signature>,
    ) -> Result<Option<Signer>, InstallError> {
        let refuse = |why: String| InstallError::Untrusted { id: id.clone(), why };
        let Some(signature) = signature else {
            return match &self.0 {
                Some(written) if written.unsigned == Unsigned::Refuse => Err(refuse("it is not signed".into())),
                _ => Ok(None),
            };
        };
        let key = signature.key;
        if !signature.is_valid_for(id, digest) {
            return Err(refuse(format!(
                "its signature by {key} is for another pack: the name, version or bytes differ"
            )));
        }
        let Some(written) = &self.0 else { return Ok(Some(Signer { name: None, key })) };
        let of_key = written.of_key(key);
        let signs = |known: &TrustedKey| known.packs.iter().any(|pattern| pattern::matches(pattern, &id.name));
        match (of_key.iter().find(|(_, known)| signs(known)), of_key.first()) {
            (Some((name, _)), _) => Ok(Some(Signer { name: Some(name.to_string()), key })),
            (None, Some((name, _))) => Err(refuse(format!("`{name}` ({key}) may not sign packs of this name"))),
            (None, None) => Err(refuse(format!("the key that signed it is unknown: {key}"))),
        }
    }
}

impl TrustFile {
    /// Returns the entries of a key, with the operator's names.
    fn of_key(&self, key: PublicKey) -> Vec<(&String, &TrustedKey)> {
        self.keys.iter().filter(|(_, known)| known.key == key).collect()
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
