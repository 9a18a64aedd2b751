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

/// One version of a pack, such as `acme@1.2.0`, or all versions, such as `acme`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackVersions {
    name: String,
    version: Option<Version>,
}

impl PackVersions {
    /// Returns whether a pack is one of them.
    pub fn contains(&self, id: &PackId) -> bool {
        self.name == id.name && self.version.as_ref().is_none_or(|version| *version == id.version)
    }
}

impl FromStr for PackVersions {
    type Err = String;

    fn from_str(text: &str) -> Result<PackVersions, String> {
        let (name, version) = text.split_once('@').map_or((text, None), |(name, version)| (name, Some(version)));
        let version = version.map(Version::parse).transpose();
        let version = version.map_err(|error| format!("the version in `{text}` is invalid: {error}"))?;
        Ok(PackVersions { name: name.to_owned(), version })
    }
}

impl fmt::Display for PackVersions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = self.version.as_ref().map(|version| format!("@{version}")).unwrap_or_default();
        write!(formatter, "{}{version}", self.name)
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
