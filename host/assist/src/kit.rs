//! Helpers of the tests: the catalog of the program, and the examples.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::{
    fs,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use flowcell_contract::{Catalog, Digest, Manifest};
use flowcell_flow::{CheckContext, Diagnostic, Source};

use crate::{Document, Files, Surroundings};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The node types of the program.
pub(crate) static CATALOG: LazyLock<Catalog> = LazyLock::new(|| {
    let mut catalog = Catalog::default();
    for pack in ["agent", "control", "data", "file", "http", "query", "script", "system"] {
        let text = fs::read_to_string(root().join("nodes").join(pack).join("node.yaml")).unwrap();
        catalog.add(Manifest::parse(&text).unwrap(), &Digest(pack.into()));
    }
    catalog
});

/// The names around the examples.
struct Around;

impl Surroundings for Around {
    fn flows(&self) -> Vec<String> {
        EXAMPLES.iter().map(|source| source.name.trim_end_matches(".yaml").to_owned()).collect()
    }

    fn agents(&self) -> Vec<String> {
        vec!["coder".into(), "translator".into()]
    }

    /// Lists some files, and those of a host that answers with hostile names.
    fn files(&self, folder: &str) -> Files {
        let files =
            ["ask.md", "a b.md", "prompts/say.txt", "scripts/sum.js", "data.csv", "x\u{202e}dm.md", "{{ x }}.md"];
        let paths = files.iter().filter(|path| path.starts_with(folder)).map(|path| (*path).to_owned());
        Files { paths: paths.collect(), is_cut: folder.is_empty() }
    }
}

/// The examples of the graph dialect.
pub(crate) static EXAMPLES: LazyLock<Vec<Source>> = LazyLock::new(|| {
    let found = flows_in("flows/graph");
    assert!(found.len() >= 20, "the examples have moved");
    found
});

/// Returns the flows in a folder of this repository.
pub(crate) fn flows_in(folder: &str) -> Vec<Source> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root().join(folder)).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if name.ends_with(".yaml") && !name.ends_with(".test.yaml") {
            found.push(Source { name, text: fs::read_to_string(path).unwrap() });
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

/// The folder of the examples.
pub(crate) struct Examples;

impl CheckContext for Examples {
    fn read(&self, path: &str) -> Result<String, String> {
        fs::read_to_string(root().join("flows/graph").join(path)).map_err(|error| error.to_string())
    }

    fn flow(&self, name: &str) -> Option<Source> {
        EXAMPLES.iter().find(|source| source.name.strip_suffix(".yaml") == Some(name)).cloned()
    }
}

/// Returns the diagnostics of a text.
pub(crate) fn diagnose(name: &str, text: &str) -> Vec<Diagnostic> {
    crate::diagnose(&Source { name: name.to_owned(), text: text.to_owned() }, &CATALOG, &Examples)
}

/// Returns a text as a document.
pub(crate) fn document(text: &str) -> Document<'_> {
    Document { text, catalog: &CATALOG, surroundings: &Around }
}

/// Splits a text with `§` at the cursor.
pub(crate) fn at_cursor(text: &str) -> (String, usize) {
    let at = text.find('§').unwrap();
    (text.replacen('§', "", 1), at)
}

/// A generator of numbers that gives the same ones in every run.
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    /// Returns a number below a limit.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }

    /// Returns a text of at most `most` parts.
    pub(crate) fn text(&mut self, parts: &[&str], most: usize) -> String {
        (0..self.below(most)).map(|_| parts[self.below(parts.len())]).collect()
    }
}
