//! A pack's name and version.

use std::{fmt, str::FromStr};

use flowcell_contract::Manifest;
use semver::Version;
use serde::{Deserialize, Serialize};

/// A pack's name and version, such as `acme@1.2.0`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PackId {
    /// The name, which is the prefix of its node types.
    pub name: String,
    /// The semantic version.
    pub version: Version,
}

impl PackId {
    /// Returns the id in a manifest.
    pub fn of(manifest: &Manifest) -> PackId {
        PackId { name: manifest.name.to_string(), version: manifest.version.clone() }
    }
}

impl FromStr for PackId {
    type Err = String;

    fn from_str(text: &str) -> Result<PackId, String> {
        let wrong =
            |why: &dyn fmt::Display| format!("`{text}` is not a pack with its version, such as `acme@1.2.0`: {why}");
        let (name, version) = text.split_once('@').ok_or_else(|| wrong(&"the `@` is missing"))?;
        let version = Version::parse(version).map_err(|error| wrong(&error))?;
        Ok(PackId { name: name.to_owned(), version })
    }
}

impl fmt::Display for PackId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}@{}", self.name, self.version)
    }
}

impl TryFrom<String> for PackId {
    type Error = String;

    fn try_from(text: String) -> Result<PackId, String> {
        text.parse()
    }
}

impl From<PackId> for String {
    fn from(id: PackId) -> String {
        id.to_string()
    }
}
