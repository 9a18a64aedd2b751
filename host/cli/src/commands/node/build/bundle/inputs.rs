//! The files that esbuild reads for a bundle. Packs are published, and must not contain other files of the author.

use std::{
    collections::BTreeMap,
    path::{Component, Path, PathBuf},
};

use serde::Deserialize;

use crate::cli_error::CliError;

/// The beginning of the name of a module that a package leaves out in browsers.
const DISABLED: &str = "(disabled):";
/// Names of folders that esbuild takes out of a path, together with the two after them: the second of these is a number of
/// folders to go up.
const VIRTUAL: [&str; 2] = ["__virtual__", "$$virtual"];
/// The characters that begin a suffix of an import, which is no part of the file's name.
const SUFFIXES: [char; 2] = ['?', '#'];

/// The file of esbuild's option `--metafile`.
#[derive(Deserialize)]
struct Metafile {
    /// The inputs by their paths, relative to the folder in which esbuild ran.
    inputs: BTreeMap<String, Input>,
}

#[derive(Deserialize)]
struct Input {
    imports: Vec<Import>,
}

#[derive(Deserialize)]
struct Import {
    path: String,
}

/// Fails if an input of a bundle is outside of the folders `within`, whose paths have no links. esbuild ran in `folder`.
/// Returns the names of the inputs that are not below `folder`.
pub(super) fn check(metafile: &str, folder: &Path, within: &[&Path]) -> Result<Vec<String>, CliError> {
    let metafile: Metafile = serde_json::from_str(metafile)
        .map_err(|error| CliError::internal("cannot read the list of the bundle's inputs").because(&error))?;
    let Some((name, file)) = metafile.inputs.keys().find_map(|name| Some((name, outside(name, folder, within)?)))
    else {
        let leads_out = |name: &&String| {
            let path = Path::new(name.strip_prefix(DISABLED).unwrap_or(name));
            path.is_absolute() || path.starts_with("..")
        };
        return Ok(metafile.inputs.keys().filter(leads_out).cloned().collect());
    };
    let imports = |input: &Input| input.imports.iter().any(|import| import.path == *name);
    let importer = metafile.inputs.iter().find(|(_, input)| imports(input));
    let importer = importer.map(|(importer, _)| format!("; {importer} imports it")).unwrap_or_default();
    Err(CliError::wrong(format!(
        "the pack would contain {}, which is outside of the project{importer}",
        file.display()
    ))
    .hint(
        "copy the file into the project, or name a folder that contains both and may be published with `--root DIR`; a \
             link does not bring a file into the project",
    ))
}

/// Returns the file of an input that is not in one of the folders, or `None` if it is in one.
fn outside(name: &str, folder: &Path, within: &[&Path]) -> Option<PathBuf> {
    let path = name.strip_prefix(DISABLED).unwrap_or(name);
    if Path::new(path).iter().any(|part| VIRTUAL.iter().any(|name| part == *name)) {
        return Some(folder.join(path));
    }
    let ends = path.match_indices(SUFFIXES).map(|(at, _)| at).chain([path.len()]);
    let mut found: Vec<_> = ends.filter_map(|end| folder.join(&path[..end]).canonicalize().ok()).collect();
    if found.is_empty() {
        // A module without a file, or a file in an archive: the nearest folder or file around it counts.
        let plain = without_dots(&folder.join(path.split(SUFFIXES).next().unwrap_or_default()));
        let around = plain.ancestors().find_map(|around| around.canonicalize().ok());
        found.extend([Some(plain), around].into_iter().flatten());
    }
    found.into_iter().find(|file| !within.iter().any(|folder| file.starts_with(folder)))
}

/// Returns a path without `.` and `..`.
pub(super) fn without_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => _ = plain.pop(),
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}

#[cfg(all(test, unix))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::{fs, os::unix::fs::symlink};

    use serde_json::json;

    use super::*;

    #[test]
    fn inputs_outside_of_the_folders_are_refused() {
        let all = tempfile::tempdir().unwrap();
        let top = all.path().canonicalize().unwrap();
        let (project, shared) = (top.join("shop"), top.join("shared"));
        fs::create_dir_all(project.join("lib")).unwrap();
        fs::create_dir_all(&shared).unwrap();
        for file in ["shop/nodes.js", "shop/lib/a.js", "shop/lib/b?c.js", "shared/s.js", "private.txt"] {
            fs::write(top.join(file), "").unwrap();
        }
        symlink("../../private.txt", project.join("lib/link.txt")).unwrap();
        symlink("../shared", project.join("shared")).unwrap();
        symlink("../private.txt", project.join("link.zip")).unwrap();
        let check = |name: &str| {
            let inputs =
                json!({ "inputs": { name: { "imports": [] }, "nodes.js": { "imports": [{ "path": name }] } } });
            check(&inputs.to_string(), &project, &[&project, &shared])
        };
        for inside in [
            "lib/a.js",
            "lib/b?c.js",
            "lib/a.js?raw",
            "lib/../nodes.js#x",
            "shared/s.js",
            "../shared/s.js",
            "(disabled):fs",
            "(disabled):lib/a.js",
            "missing.js",
            "<stdin>",
        ] {
            assert!(check(inside).is_ok(), "{inside}");
        }
        for outside in [
            "../private.txt",
            "../private.txt?raw",
            "../private.txt?/../shop/nodes.js",
            "../private.txt#?/../../shop/nodes.js",
            "lib/link.txt",
            "lib/link.txt?raw",
            "link.zip/inside.js",
            "lib/__virtual__/x/3/private.txt",
            "$$virtual/x/1/nodes.js",
            "(disabled):lib/__virtual__/x/3/private.txt",
            "shared/../private.txt",
            "(disabled):../private.txt",
            "../missing.js",
            "../missing.js?/../shop/nodes.js",
            "../shop2/x.js",
            "/etc/passwd",
        ] {
            let refused = check(outside).unwrap_err().plain();
            assert!(refused.contains("which is outside of the project; nodes.js imports it"), "{outside}: {refused}");
        }
        assert!(super::check("{ no", &project, &[]).is_err());
        let names = ["../shared/s.js", "(disabled):../shared/s.js", "nodes.js", "..a.js"];
        let inputs: serde_json::Map<_, _> =
            names.iter().map(|name| (name.to_string(), json!({ "imports": [] }))).collect();
        let leading_out =
            super::check(&json!({ "inputs": inputs }).to_string(), &project, &[&project, &shared]).unwrap();
        assert_eq!(leading_out, ["(disabled):../shared/s.js", "../shared/s.js"]);
    }
}
