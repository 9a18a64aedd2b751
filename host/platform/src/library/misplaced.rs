//! Files that look like flows, in places from which no library reads them.

use std::{
    fs,
    path::{Path, PathBuf},
};

use flowcell_contract::{Tenant, host_files::TENANTS_FOLDER};

use super::{FlowLibrary, files::Ending};

/// Maximum number of files that are reported.
const MAX_REPORTED: usize = 20;

/// A file that looks like a flow, and that no library reads.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Misplaced {
    /// The file.
    pub file: PathBuf,
    /// The folder whose flows the tenant has.
    pub library: PathBuf,
}

/// Returns the files beside the libraries of tenants in a server's folder, sorted, at most 20. The flows of a tenant are in
/// `.tenants/NAME/flows`, and not in `.tenants/NAME`. A folder that cannot be read has none.
pub fn misplaced_flows(folder: &Path) -> Vec<Misplaced> {
    let tenants = folder.join(TENANTS_FOLDER);
    let library = |name: &str| FlowLibrary::of_tenant(folder, &Tenant::from(name)).folder().to_owned();
    let of_none = flows_in(&tenants).into_iter().map(|file| Misplaced { file, library: library("NAME") });
    let folders = entries(&tenants, |kind| kind.is_dir());
    let of_tenants = folders.into_iter().flat_map(|(own, name)| {
        let library = library(&name);
        flows_in(&own).into_iter().map(move |file| Misplaced { file, library: library.clone() })
    });
    let mut all: Vec<_> = of_none.chain(of_tenants).collect();
    all.sort();
    all.truncate(MAX_REPORTED);
    all
}

/// Returns the files of a folder that have the names of flows.
fn flows_in(folder: &Path) -> Vec<PathBuf> {
    let files = entries(folder, |kind| !kind.is_dir()).into_iter();
    files.filter(|(_, name)| Ending::of_file(name).is_some()).map(|(path, _)| path).collect()
}

/// Returns the entries of a folder whose types fit, each with its name.
fn entries(folder: &Path, fits: impl Fn(fs::FileType) -> bool) -> Vec<(PathBuf, String)> {
    let all = fs::read_dir(folder).into_iter().flatten().flatten();
    let fitting = all.filter(|entry| entry.file_type().is_ok_and(&fits));
    fitting.filter_map(|entry| Some((entry.path(), entry.file_name().into_string().ok()?))).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn flows_beside_the_library_of_a_tenant_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        assert!(misplaced_flows(folder).is_empty());
        for file in [
            "own.yaml",
            ".tenants/a/flows/good.yaml",
            ".tenants/a/lost.flow.js",
            ".tenants/a/note.txt",
            ".tenants/b.json",
        ] {
            let file = folder.join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "").unwrap();
        }
        let found = |file: &str, library: &str| Misplaced { file: folder.join(file), library: folder.join(library) };
        let expected =
            [found(".tenants/a/lost.flow.js", ".tenants/a/flows"), found(".tenants/b.json", ".tenants/NAME/flows")];
        assert_eq!(misplaced_flows(folder), expected);
    }
}
