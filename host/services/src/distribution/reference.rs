//! References to artifacts in registries.

use std::{fmt, str::FromStr};

use semver::Version;

use super::digest::is_sha256;

/// The longest name of a repository, in bytes.
const MAX_REPOSITORY: usize = 255;
/// The longest tag, in bytes.
const MAX_TAG: usize = 128;

/// An artifact in a registry: `ghcr.io/acme/greet@1.2.0`, `ghcr.io/acme/greet:next` or `ghcr.io/acme/greet@sha256:…`.
/// Without a version, tag or digest it means the highest version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// The host, with the port unless it is the default.
    pub registry: String,
    /// The path of the repository in the registry.
    pub repository: String,
    /// The artifact within the repository.
    pub wanted: Wanted,
}

/// A choice among the artifacts of a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The artifact with the highest version.
    Highest,
    /// The artifact with this version.
    Version(Version),
    /// The artifact with this tag.
    Tag(String),
    /// The artifact whose manifest has this SHA-256, in hexadecimal digits.
    Digest(String),
}

impl Reference {
    /// Returns a reference to another artifact of the same repository.
    pub fn with_wanted(&self, wanted: Wanted) -> Reference {
        Reference { wanted, ..self.clone() }
    }
}

impl Wanted {
    /// Reads the part after the `@` of a reference: a version, or a digest with `sha256:`.
    pub fn parse_after_at(text: &str) -> Result<Wanted, String> {
        match text.split_once(':') {
            Some(("sha256", digest)) if is_sha256(digest) => Ok(Wanted::Digest(digest.to_owned())),
            Some(_) => Err(format!("`{text}` is not a digest: write `sha256:` and 64 hexadecimal digits")),
            None => {
                Version::parse(text).map(Wanted::Version).map_err(|why| format!("`{text}` is not a version: {why}"))
            }
        }
    }

    /// Returns the tag or digest for the path of a URL; `None` for [`Wanted::Highest`]. Tags cannot contain `+`, so a
    /// version's `+` is written as `_`.
    pub(super) fn to_path_segment(&self) -> Option<String> {
        match self {
            Wanted::Highest => None,
            Wanted::Version(version) => Some(tag_of(version)),
            Wanted::Tag(tag) => Some(tag.clone()),
            Wanted::Digest(digest) => Some(format!("sha256:{digest}")),
        }
    }
}

/// Returns the tag of a version.
pub(super) fn tag_of(version: &Version) -> String {
    version.to_string().replace('+', "_")
}

/// Returns the version in a tag, or `None` if the tag is not a version.
pub(super) fn version_of(tag: &str) -> Option<Version> {
    Version::parse(&tag.replace('_', "+")).ok()
}

impl FromStr for Reference {
    type Err = String;

    fn from_str(text: &str) -> Result<Reference, String> {
        let (name, at) = text.split_once('@').map_or((text, None), |(name, at)| (name, Some(at)));
        let (registry, path) = name.split_once('/').ok_or_else(|| format!("`{text}` has no registry"))?;
        let (repository, tag) = path.split_once(':').map_or((path, None), |(path, tag)| (path, Some(tag)));
        if !is_host(registry) {
            return Err(format!(
                "`{registry}` is not a registry: write a host such as `ghcr.io`, or with a port `localhost:5000`"
            ));
        }
        if repository.len() > MAX_REPOSITORY || !repository.split('/').all(is_component) {
            return Err(format!(
                "`{repository}` is not a name of a repository: use at most {MAX_REPOSITORY} letters a-z, digits, `.`, \
                 `_`, `-` and `/`"
            ));
        }
        let wanted = match (at, tag) {
            (None, None) => Wanted::Highest,
            (Some(at), None) => Wanted::parse_after_at(at)?,
            (None, Some(tag)) if is_tag(tag) => {
                version_of(tag).map_or_else(|| Wanted::Tag(tag.into()), Wanted::Version)
            }
            (None, Some(tag)) => {
                return Err(format!("`{tag}` is not a tag: use at most {MAX_TAG} letters, digits, `.`, `_` and `-`"));
            }
            (Some(_), Some(_)) => return Err("use either a tag or a version after `@`, not both".into()),
        };
        Ok(Reference { registry: registry.to_owned(), repository: repository.to_owned(), wanted })
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.registry, self.repository)?;
        match &self.wanted {
            Wanted::Highest => Ok(()),
            Wanted::Version(version) => write!(formatter, "@{version}"),
            Wanted::Tag(tag) => write!(formatter, ":{tag}"),
            Wanted::Digest(digest) => write!(formatter, "@sha256:{digest}"),
        }
    }
}

/// Returns true if the text is a registry's host: `localhost`, or a name with a dot or a port.
fn is_host(text: &str) -> bool {
    let letters = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '[' | ']');
    (text == "localhost" || text.contains(['.', ':']))
        && text.starts_with(|c| c != '.' && c != ':')
        && text.chars().all(letters)
}

fn is_component(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.starts_with(plain) && text.ends_with(plain) && text.chars().all(|c| plain(c) || matches!(c, '.' | '_' | '-'))
}

fn is_tag(text: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.len() <= MAX_TAG && text.starts_with(word) && text.chars().all(|c| word(c) || matches!(c, '.' | '-'))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn references_are_read_and_written() {
        let digest = "0f".repeat(32);
        let by_digest = format!("ghcr.io/acme/greet@sha256:{digest}");
        for (text, path) in [
            ("ghcr.io/acme/greet", None),
            ("ghcr.io/acme/greet@1.2.0", Some("1.2.0")),
            ("127.0.0.1:5000/greet@1.2.0-rc.1+7", Some("1.2.0-rc.1_7")),
            ("localhost/a/b-c/d_e:next", Some("next")),
            (&by_digest, Some(&*format!("sha256:{digest}"))),
        ] {
            let reference: Reference = text.parse().unwrap();
            assert_eq!(reference.to_string(), text);
            assert_eq!(reference.wanted.to_path_segment().as_deref(), path, "{text}");
        }
        let tagged: Reference = "ghcr.io/acme/greet:1.2.0_7".parse().unwrap();
        assert_eq!(tagged.to_string(), "ghcr.io/acme/greet@1.2.0+7");
    }

    #[test]
    fn the_error_says_why_a_text_is_not_a_reference() {
        for (text, why) in [
            ("greet", "has no registry"),
            ("acme/greet", "is not a registry"),
            (".com/greet", "is not a registry"),
            ("user@ghcr.io/greet", "has no registry"),
            ("ghcr.io/../x", "is not a name of a repository"),
            ("ghcr.io//x", "is not a name of a repository"),
            ("ghcr.io/Acme", "is not a name of a repository"),
            ("ghcr.io/acme?x=1", "is not a name of a repository"),
            ("ghcr.io/acme@1.2", "is not a version"),
            ("ghcr.io/acme@sha256:0f", "is not a digest"),
            ("ghcr.io/acme:a b", "is not a tag"),
            ("ghcr.io/acme:next@1.2.0", "either a tag"),
        ] {
            let refused = text.parse::<Reference>().unwrap_err();
            assert!(refused.contains(why), "{text}: {refused}");
        }
    }
}
