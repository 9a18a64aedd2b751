//! Where a pack comes from: a file, a URL or a reference in a registry. Parses what users and locks write for it.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use flowcell_services::distribution::{Reference, Wanted};

/// The source of a pack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A local file.
    File(PathBuf),
    /// An HTTP URL.
    Url(String),
    /// A reference in a registry.
    Registry(Reference),
}

impl Source {
    /// Parses a user's text: a file (`./acme.wasm`), a URL, a reference (`ghcr.io/acme/greet@1.2.0`), or a name
    /// (`greet@1.2.0`) in the default registry (`ghcr.io/acme`).
    pub fn parse(text: &str, registry: Option<&str>) -> Result<Source, String> {
        if text.contains("://") {
            return Ok(Source::Url(text.to_owned()));
        }
        if text.ends_with(".wasm") || text.ends_with(".cwasm") || text.starts_with(['.', '/']) {
            return Ok(Source::File(text.into()));
        }
        let whole = match (text.contains('/'), registry) {
            (true, _) => text.to_owned(),
            (false, Some(registry)) => format!("{}/{text}", registry.trim_end_matches('/')),
            (false, None) => {
                return Err(format!(
                    "`{text}` has no registry: write `ghcr.io/acme/{text}`, set `--registry` or FLOWCELL_REGISTRY to \
                     `ghcr.io/acme`, or begin the name of a file with `./`"
                ));
            }
        };
        whole.parse().map(Source::Registry)
    }

    /// Returns the source as a lock records it. A path below the lock's folder is relative to it. Another path is
    /// absolute, unless the lock is in the current folder.
    pub(super) fn pinned(&self, lock: &Path) -> String {
        match self {
            Source::File(file) => match lock.parent().filter(|folder| !folder.as_os_str().is_empty()) {
                Some(folder) => {
                    file.strip_prefix(folder).map_or_else(|_| to_absolute(file), Path::to_owned).display().to_string()
                }
                None => file.display().to_string(),
            },
            other => other.to_string(),
        }
    }

    /// Parses a source that a lock records. A relative path is joined to the lock's folder.
    pub fn of_lock(text: &str, lock: &Path) -> Result<Source, String> {
        match Source::parse(text, None)? {
            Source::File(file) => Ok(Source::File(lock.parent().map(|folder| folder.join(&file)).unwrap_or(file))),
            other => Ok(other),
        }
    }

    /// Returns the version that a registry reference requests, or `None` if the source requests no version.
    pub(super) fn version(&self) -> Option<&semver::Version> {
        match self {
            Source::Registry(Reference { wanted: Wanted::Version(version), .. }) => Some(version),
            _ => None,
        }
    }
}

fn to_absolute(file: &Path) -> PathBuf {
    std::path::absolute(file).unwrap_or_else(|_| file.to_owned())
}

impl fmt::Display for Source {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::File(file) => write!(formatter, "{}", file.display()),
            Source::Url(url) => write!(formatter, "{url}"),
            Source::Registry(reference) => write!(formatter, "{reference}"),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn the_kind_of_a_source_is_recognized() {
        let read = |text: &str| Source::parse(text, Some("localhost:5000/acme")).unwrap();
        assert_eq!(read("./acme"), Source::File("./acme".into()));
        assert_eq!(read("packs/acme.wasm"), Source::File("packs/acme.wasm".into()));
        assert_eq!(read("https://example.com/a.wasm"), Source::Url("https://example.com/a.wasm".into()));
        for (text, whole) in [
            ("greet", "localhost:5000/acme/greet"),
            ("greet@1.2.0", "localhost:5000/acme/greet@1.2.0"),
            ("greet:next", "localhost:5000/acme/greet:next"),
            ("ghcr.io/other/greet@1.2.0", "ghcr.io/other/greet@1.2.0"),
        ] {
            assert_eq!(read(text).to_string(), whole);
        }
        assert!(Source::parse("greet@1.2.0", None).unwrap_err().contains("FLOWCELL_REGISTRY"));
    }

    #[test]
    fn files_are_pinned_relative_to_the_lock() {
        let source = |file: &str| Source::File(file.into());
        assert_eq!(source("a/b.wasm").pinned(Path::new("flowcell.lock")), "a/b.wasm");
        assert_eq!(source("a/b.wasm").pinned(Path::new("a/flowcell.lock")), "b.wasm");
        assert!(Path::new(&source("b.wasm").pinned(Path::new("a/flowcell.lock"))).is_absolute());
        assert_eq!(Source::of_lock("b.wasm", Path::new("a/flowcell.lock")).unwrap(), source("a/b.wasm"));
    }
}
