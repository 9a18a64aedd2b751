//! Test cases with expected files. `BLESS=1` rewrites the expected files.

use std::{
    fs,
    path::{Path, PathBuf},
};

use flowcell_contract::{Catalog, Digest, Manifest};
use flowcell_flow::{Diagnostic, Source};

/// Creates a catalog from manifests.
pub(crate) fn catalog(manifests: &[PathBuf]) -> Catalog {
    let mut catalog = Catalog::default();
    for (index, manifest) in manifests.iter().enumerate() {
        let manifest = Manifest::parse(&fs::read_to_string(manifest).unwrap()).unwrap();
        catalog.add(manifest, &Digest(format!("{index:02}").into()));
    }
    catalog
}

/// Returns the flows in a folder.
pub(crate) fn cases(folder: &Path) -> Vec<PathBuf> {
    let mut cases: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.retain(|path| path.extension().is_some_and(|extension| extension == "yaml" || extension == "json"));
    cases.sort();
    cases
}

pub(crate) fn source(path: &Path) -> Source {
    let name = path.file_name().unwrap().to_str().unwrap().to_owned();
    Source { name, text: fs::read_to_string(path).unwrap() }
}

/// Compares a text with an expected file. Returns the difference; `None` if they are equal.
pub(crate) fn compare(golden: &Path, given: &str) -> Option<String> {
    let mut expected = fs::read_to_string(golden).unwrap_or_default();
    // Other tests read these files at the same time, so an unchanged file is not written.
    if std::env::var_os("BLESS").is_some() && expected != given {
        fs::write(golden, given).unwrap();
        given.clone_into(&mut expected);
    }
    (expected != given).then(|| format!("{}:\n{given}", golden.display()))
}

pub(crate) fn printed(diagnostics: &[Diagnostic]) -> String {
    diagnostics.iter().map(|diagnostic| format!("{diagnostic}\n\n")).collect()
}
