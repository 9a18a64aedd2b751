//! Parses and checks paths below a tenant's folder.

use std::fmt;

use flowcell_contract::{
    BINARY,
    host_files::is_host_folder,
    text::{has_deceptive, judged},
};

/// The longest path, in bytes.
const MAX_PATH: usize = 1024;
/// The most names in a path.
const MAX_NAMES: usize = 32;
/// The longest name, in bytes.
const MAX_NAME: usize = 255;
/// Prefix of the names of the host's own files: its state folder, the folder of other tenants, and files that are being
/// written. The folders of [`flowcell_contract::host_files`] belong to the host, too.
pub(super) const RESERVED_PREFIX: &str = ".flowcell";

/// Media types by file extension.
const MIMES: [(&str, &str); 15] = [
    ("csv", "text/csv"),
    ("gif", "image/gif"),
    ("gz", "application/gzip"),
    ("html", "text/html"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("json", "application/json"),
    ("md", "text/markdown"),
    ("pdf", "application/pdf"),
    ("png", "image/png"),
    ("svg", "image/svg+xml"),
    ("txt", "text/plain"),
    ("webp", "image/webp"),
    ("xml", "application/xml"),
    ("zip", "application/zip"),
];

/// A path below a tenant's folder: the names of folders, and last the name of a file or folder. The path of the
/// tenant's folder itself is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FilePath(Vec<Box<str>>);

impl FilePath {
    /// Reads a path. The error says why the text is not a valid path.
    pub(super) fn parse(text: &str) -> Result<FilePath, String> {
        let names = split_names(text)?;
        Ok(FilePath(names.into_iter().map(Into::into).collect()))
    }

    /// Returns the path of the tenant's folder.
    pub(super) fn top() -> FilePath {
        FilePath(Vec::new())
    }

    /// Returns the names of the path.
    pub(super) fn names(&self) -> &[Box<str>] {
        &self.0
    }

    /// Returns the names of the folders, and the last name. Returns `None` for the tenant's folder.
    pub(super) fn split(&self) -> Option<(&[Box<str>], &str)> {
        self.0.split_last().map(|(name, folders)| (folders, &**name))
    }

    /// Returns the path of the entry `name` in this folder.
    pub(super) fn join(&self, name: &str) -> FilePath {
        FilePath(self.0.iter().cloned().chain([name.into()]).collect())
    }

    /// Returns the pattern that covers everything below this folder.
    pub(super) fn pattern_below(&self) -> String {
        if self.0.is_empty() { "**".into() } else { format!("{self}/**") }
    }

    /// Returns the media type that the file's extension suggests.
    pub(super) fn mime(&self) -> &'static str {
        let end = self.0.last().and_then(|name| name.rsplit_once('.')).map(|(_, end)| end.to_ascii_lowercase());
        let known = MIMES.iter().find(|(own, _)| Some(*own) == end.as_deref());
        known.map_or(BINARY, |(_, mime)| mime)
    }
}

/// Splits a path or a pattern into its names. The error says why the text is not a valid path.
pub(super) fn split_names(text: &str) -> Result<Vec<&str>, String> {
    let wrong = |why: &str| Err(format!("`{}` is not a path: {why}", printable(text)));
    if text.is_empty() || text.len() > MAX_PATH {
        return wrong("it must have 1 to 1024 bytes");
    }
    if text.starts_with('/') {
        return wrong("it must be relative to the tenant's folder, without `/` in front");
    }
    let names: Vec<_> = text.split('/').collect();
    if names.len() > MAX_NAMES {
        return wrong("it may have at most 32 names");
    }
    for name in &names {
        if name.is_empty() || *name == "." || *name == ".." {
            return wrong("it must not contain `.`, `..` or empty names");
        }
        if name.len() > MAX_NAME {
            return wrong("a name may have at most 255 bytes");
        }
        if name.contains(|letter: char| letter.is_control() || letter == '\\') {
            return wrong("a name must not contain control characters or backslashes");
        }
        if has_deceptive(name) {
            return wrong("a name must not contain characters that are invisible or change the order of others");
        }
        if is_reserved(name) {
            return wrong("names that begin with `.flowcell`, `.tenants` and `.versions` are reserved for the host");
        }
    }
    Ok(names)
}

/// Returns true if a name belongs to the host. Ignores case, as some file systems do.
pub(super) fn is_reserved(name: &str) -> bool {
    let begin = name.as_bytes().get(..RESERVED_PREFIX.len());
    is_host_folder(name) || begin.is_some_and(|begin| begin.eq_ignore_ascii_case(RESERVED_PREFIX.as_bytes()))
}

fn printable(text: &str) -> String {
    let seen = judged(text).filter(|(letter, deceptive)| !deceptive && !letter.is_control());
    seen.map(|(letter, _)| letter).take(80).collect()
}

impl fmt::Display for FilePath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0.join("/"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_never_leads_up() {
        for good in ["a", "a/b.txt", "a b/ü", "...", "a..b", ".hidden", "~", "*"] {
            assert_eq!(FilePath::parse(good).map(|path| path.to_string()), Ok(good.to_owned()));
        }
        let long = "a".repeat(256);
        let deep = vec!["a"; 33].join("/");
        let wrong = [
            "",
            "/",
            "/etc/passwd",
            "..",
            "a/../b",
            "../../etc/passwd",
            ".",
            "a//b",
            "a/",
            "a\\b",
            "a\0",
            "a\nb",
            "invoice\u{202e}fdp.exe",
            "a\u{200b}/b",
            ".flowcell",
            "a/.flowcell-tenants",
            ".FlowCell/x",
            "flows/.tenants/bob/flows/plan.json",
            ".Versions/plan/1.json",
            &long,
            &deep,
        ];
        for wrong in wrong {
            assert!(FilePath::parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_extension_decides_the_media_type() {
        let mime = |path: &str| FilePath::parse(path).unwrap_or_else(|_| FilePath::top()).mime();
        assert_eq!((mime("a/b.JSON"), mime("png"), mime("a.json/b")), ("application/json", BINARY, BINARY));
    }
}
