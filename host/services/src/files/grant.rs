//! The paths that a flow grants to a node, as the flow writes them.

use flowcell_contract::Json;

use super::path::{self, FilePath};
use crate::pattern;

/// The paths that a node may read and write.
///
/// ```yaml
/// grants:
///   files:
///     read: ["data/**", "config.json"]   # all that is below data; one file
///     write: ["out/*.csv"]               # `*` stands for any characters of one name
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileGrants {
    read: Vec<Pattern>,
    write: Vec<Pattern>,
}

/// The pattern of a path. Each name may contain `*`. If the pattern ends with `**`, `below` is true: the pattern then
/// covers everything below the folder with these names, at any depth, but not the folder itself.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pattern {
    names: Vec<String>,
    below: bool,
}

impl FileGrants {
    /// Reads the value of `grants.files` of a node. The error is a sentence that names the wrong part.
    pub fn parse(grant: &Json) -> Result<FileGrants, String> {
        let members = grant.as_object().ok_or_else(|| {
            format!("write `{{ read: [\"data/**\"], write: [\"out/**\"] }}`, not {}", grant.type_name())
        })?;
        let mut grants = FileGrants::default();
        for (kind, patterns) in members {
            match &**kind {
                "read" => grants.read = list(patterns)?,
                "write" => grants.write = list(patterns)?,
                other => return Err(format!("grants of files are `read` and `write`, not `{other}`")),
            }
        }
        Ok(grants)
    }

    /// Returns true if the node may read the path.
    pub(super) fn may_read(&self, path: &FilePath) -> bool {
        self.read.iter().any(|pattern| pattern.covers(path))
    }

    /// Returns true if the node may write and remove the path.
    pub(super) fn may_write(&self, path: &FilePath) -> bool {
        self.write.iter().any(|pattern| pattern.covers(path))
    }

    /// Returns true if the grants permit reading some path below the folder, at any depth. Only then may the node list
    /// the folder.
    pub(super) fn may_list(&self, folder: &FilePath) -> bool {
        self.read.iter().any(|pattern| pattern.leads_through(folder))
    }
}

fn list(patterns: &Json) -> Result<Vec<Pattern>, String> {
    let one = |item: &Json| match item.as_str() {
        Some(text) => Pattern::parse(text),
        None => Err(format!("write a path such as `data/**`, not {}", item.type_name())),
    };
    match patterns {
        Json::Array(items) => items.iter().map(one).collect(),
        other => Ok(vec![one(other)?]),
    }
}

impl Pattern {
    fn parse(text: &str) -> Result<Pattern, String> {
        let mut names: Vec<String> = path::split_names(text)?.into_iter().map(str::to_owned).collect();
        let below = names.last().is_some_and(|name| name == "**");
        if below {
            names.pop();
        }
        match names.iter().any(|name| name.contains("**")) {
            true => {
                Err(format!("`{text}`: `**`, for everything below, must be the last name, without other characters"))
            }
            false => Ok(Pattern { names, below }),
        }
    }

    fn covers(&self, path: &FilePath) -> bool {
        let (own, other) = (self.names.len(), path.names().len());
        (if self.below { other > own } else { other == own }) && self.matches(path)
    }

    fn leads_through(&self, folder: &FilePath) -> bool {
        (self.below || folder.names().len() < self.names.len()) && self.matches(folder)
    }

    /// Compares the names of the pattern and the path in pairs, until one of the two has no more names. Returns true if
    /// all pairs match.
    fn matches(&self, path: &FilePath) -> bool {
        self.names.iter().zip(path.names()).all(|(pattern, name)| pattern::matches(pattern, name))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    fn grants(text: &str) -> Result<FileGrants, String> {
        FileGrants::parse(&Json::parse(text).unwrap())
    }

    #[test]
    fn a_grant_covers_whole_names() {
        let grants = grants(r#"{ "read": ["data/**", "one.txt", "logs/*/a*.log"], "write": "out/*" }"#).unwrap();
        let path = |text: &str| FilePath::parse(text).unwrap();
        for covered in ["data/a", "data/a/b/c", "one.txt", "logs/x/a.log", "logs/x/a1.log"] {
            assert!(grants.may_read(&path(covered)), "{covered}");
        }
        for other in ["data", "database/a", "two.txt", "one.txt/a", "logs/a.log", "logs/x/y/a.log", "out/a", "DATA/a"] {
            assert!(!grants.may_read(&path(other)), "{other}");
        }
        assert!(
            grants.may_write(&path("out/a"))
                && !grants.may_write(&path("out/a/b"))
                && !grants.may_write(&path("data/a"))
        );
        for listed in ["data", "data/a", "logs", "logs/x"] {
            assert!(grants.may_list(&path(listed)), "{listed}");
        }
        for other in ["out", "one.txt", "logs/x/y", "other"] {
            assert!(!grants.may_list(&path(other)), "{other}");
        }
        assert!(grants.may_list(&FilePath::top()) && !FileGrants::default().may_list(&FilePath::top()));
    }

    #[test]
    fn malformed_grants_are_refused() {
        let wrong = [
            ("[]", "not a list"),
            (r#"{ "reed": [] }"#, "`reed`"),
            (r#"{ "read": [1] }"#, "not a number"),
            (r#"{ "read": ["/etc/**"] }"#, "without `/`"),
            (r#"{ "read": ["../**"] }"#, "must not contain"),
            (r#"{ "read": ["a/**/b"] }"#, "must be the last name"),
            (r#"{ "write": ["a**"] }"#, "must be the last name"),
            (r#"{ "write": [".flowcell/**"] }"#, "reserved for the host"),
        ];
        for (text, told) in wrong {
            let error = grants(text).unwrap_err();
            assert!(error.contains(told), "{text}: {error}");
        }
    }

    #[test]
    fn a_policy_refuses_no_path_that_a_grant_under_it_reaches() {
        let names = ["data", "out", "x", "*", "**", "d*"];
        let one = names.iter().map(|name| (*name).to_owned());
        let two = names.iter().flat_map(|a| names.iter().map(move |b| format!("{a}/{b}")));
        let patterns: Vec<String> = one.chain(two).chain(["*/data/*".to_owned(), "data/*/x".to_owned()]).collect();
        let paths =
            ["data", "out", "x", "data/x", "data/out", "out/data/x", "data/data/x", "data/out/x", "dx/x", "x/d/x"];
        for policy in &patterns {
            for text in patterns.iter().filter(|text| pattern::matches(policy, text)) {
                let Ok(granted) = grants(&format!(r#"{{ "read": "{text}" }}"#)) else { continue };
                for path in paths.iter().filter(|path| granted.may_read(&FilePath::parse(path).unwrap())) {
                    assert!(pattern::matches(policy, path), "policy {policy}, grant {text}, path {path}");
                }
            }
        }
    }
}
