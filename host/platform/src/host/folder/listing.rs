//! Lists the files in and below the folder of a flow, for an editor that offers their names.

use std::{
    collections::VecDeque,
    path::{Component, Path},
};

use cap_std::{ambient_authority, fs::Dir};
use flowcell_contract::host_files::{STORE_FILE, is_host_folder, is_store_file};

/// Maximum number of entries of folders that are looked at.
const MAX_ENTRIES: usize = 2_000;
/// Maximum number of folders inside of folders.
const MAX_DEPTH: usize = 8;

/// Files of a folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// The paths, relative to the flow's folder, those of the nearest folders first.
    pub paths: Vec<String>,
    /// True if there are more files than are listed.
    pub is_cut: bool,
}

/// Lists the files in and below `below`, a path relative to `folder`. Leaves out links, hidden files, files of the host,
/// and names that are no text. A folder that cannot be read counts as empty.
pub(super) fn list(folder: &Path, below: &str) -> Listing {
    let here = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let mut names = Vec::new();
    for part in Path::new(below).components() {
        match part {
            Component::Normal(name) => names.extend(name.to_str().filter(|name| is_listed(name)).map(str::to_owned)),
            // A path out of the folder.
            _ => return Listing::default(),
        }
    }
    let start = names.join("/");
    if start != below.trim_end_matches('/') {
        return Listing::default();
    }
    let Ok(root) = Dir::open_ambient_dir(here, ambient_authority()) else { return Listing::default() };
    let (mut found, mut seen) = (Listing::default(), 0);
    let mut next = VecDeque::from([(start, 0)]);
    while let Some((path, depth)) = next.pop_front() {
        let opened = if path.is_empty() { root.try_clone() } else { open_real(&root, &path) };
        let Ok(dir) = opened else { continue };
        let is_store = dir.symlink_metadata(STORE_FILE).is_ok();
        // A flow may be in the same folder as a store, but it reads nothing of other stores.
        if is_store && !path.is_empty() {
            continue;
        }
        let mut entries = Vec::new();
        for entry in dir.entries().into_iter().flatten().flatten() {
            seen += 1;
            if seen > MAX_ENTRIES {
                found.is_cut = true;
                break;
            }
            let Ok(name) = entry.file_name().into_string() else { continue };
            let Ok(kind) = entry.file_type() else { continue };
            if is_listed(&name) && !(is_store && is_store_file(&name)) {
                entries.push((name, kind));
            }
        }
        entries.sort_by(|one, other| one.0.cmp(&other.0));
        for (name, kind) in entries {
            let path = if path.is_empty() { name } else { format!("{path}/{name}") };
            if kind.is_file() {
                found.paths.push(path);
            } else if kind.is_dir() && depth < MAX_DEPTH {
                next.push_back((path, depth + 1));
            } else if kind.is_dir() {
                found.is_cut = true;
            }
        }
        if seen > MAX_ENTRIES {
            break;
        }
    }
    found
}

/// Opens a folder. Fails if one of the folders on the way is a link.
fn open_real(root: &Dir, path: &str) -> std::io::Result<Dir> {
    let mut at = root.try_clone()?;
    for name in path.split('/') {
        if at.symlink_metadata(name)?.is_symlink() {
            return Err(std::io::ErrorKind::NotFound.into());
        }
        at = at.open_dir(name)?;
    }
    Ok(at)
}

fn is_listed(name: &str) -> bool {
    !name.starts_with('.') && !is_host_folder(name)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::fs;

    use super::*;

    fn folder(files: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            let file = folder.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "text").unwrap();
        }
        folder
    }

    #[test]
    fn files_are_listed_from_the_nearest_folder_and_those_of_the_host_are_not() {
        let folder = folder(&[
            "secret.md",
            "flows/b.md",
            "flows/a.yaml",
            "flows/flowcell.db",
            "flows/flowcell.db-wal",
            "flows/prompts/deep/c.md",
            "flows/prompts/a b.md",
            "flows/.hidden/x.md",
            "flows/.env",
            "flows/.tenants/bob/x.md",
            "flows/kept/flowcell.db",
            "flows/kept/x.md",
        ]);
        let here = folder.path().join("flows");
        #[cfg(unix)]
        for (to, name) in [("../secret.md", "link.md"), ("..", "outside"), ("prompts", "asks")] {
            std::os::unix::fs::symlink(to, here.join(name)).unwrap();
        }
        let paths = |below: &str| list(&here, below).paths;
        assert_eq!(paths(""), ["a.yaml", "b.md", "prompts/a b.md", "prompts/deep/c.md"]);
        assert_eq!(paths("prompts/"), ["prompts/a b.md", "prompts/deep/c.md"]);
        assert_eq!(paths("prompts/deep/"), ["prompts/deep/c.md"]);
        let absolute = here.display().to_string();
        for below in [
            "../",
            "prompts/../../",
            "/",
            &absolute,
            "outside/",
            "asks/",
            ".hidden/",
            "kept/",
            "none/",
            "b.md/",
            ".Tenants/",
        ] {
            assert_eq!(paths(below), [""; 0], "{below}");
        }
    }

    #[test]
    fn a_listing_is_cut_and_says_so() {
        let files: Vec<_> = (0..MAX_ENTRIES + 5).map(|number| format!("many/{number:05}.md")).collect();
        let files: Vec<_> = files.iter().map(String::as_str).chain(["a.md", "few/b.md"]).collect();
        let folder = folder(&files);
        let all = list(folder.path(), "");
        assert!(
            all.is_cut && all.paths.len() < MAX_ENTRIES && all.paths.starts_with(&["a.md".into(), "few/b.md".into()])
        );
        // The files of a typed folder are found.
        assert_eq!(list(folder.path(), "few/"), Listing { paths: vec!["few/b.md".into()], is_cut: false });
    }

    #[test]
    fn folders_that_are_too_deep_are_left_out() {
        let deep = format!("{}x.md", "d/".repeat(MAX_DEPTH + 1));
        let folder = folder(&[&deep]);
        assert_eq!(list(folder.path(), ""), Listing { paths: Vec::new(), is_cut: true });
        assert_eq!(list(folder.path(), "d/").paths, [deep]);
    }
}
