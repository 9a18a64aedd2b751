//! A project that makes a pack.

use std::{
    fs,
    path::{Path, PathBuf},
};

use clap::ValueEnum;
use flowcell::Manifest;

use crate::problem::Problem;

/// The file with the manifest.
pub(super) const MANIFEST: &str = "node.yaml";

/// A language that packs are written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Language {
    /// Compiled by cargo.
    Rust,
    /// Run by QuickJS, which the pack brings along.
    Js,
    /// Run by CPython, which the pack brings along.
    Python,
}

impl Language {
    const ALL: [Language; 3] = [Language::Rust, Language::Js, Language::Python];

    /// The file by which a project in this language is known.
    pub(super) fn mark(self) -> &'static str {
        match self {
            Language::Rust => "Cargo.toml",
            Language::Js => "package.json",
            Language::Python => "pyproject.toml",
        }
    }
}

/// A project that makes a pack.
pub(super) struct Project {
    pub(super) folder: PathBuf,
    pub(super) language: Language,
    /// What the pack says of itself.
    pub(super) manifest: Manifest,
    /// The manifest as it is written.
    pub(super) manifest_text: String,
}

impl Project {
    /// The project in a folder.
    pub(super) fn open(folder: &Path) -> Result<Project, Problem> {
        let shown = folder.join(MANIFEST);
        let shown = shown.display();
        let manifest_text = fs::read_to_string(folder.join(MANIFEST)).map_err(|error| {
            Problem::wrong(format!("cannot read {shown}"))
                .because(&error)
                .hint("a project has its manifest there; `flowcell node new NAME --lang rust|js|python` begins one")
        })?;
        let manifest = Manifest::parse(&manifest_text)
            .map_err(|error| Problem::wrong(format!("{shown} is no manifest")).because(&error))?;
        let language = Language::ALL.into_iter().find(|language| folder.join(language.mark()).is_file());
        let language = language.ok_or_else(|| {
            let marks = Language::ALL.map(Language::mark).join(", ");
            Problem::wrong(format!("nothing says how {} is built", folder.display()))
                .hint(format!("a project has one of {marks} beside its {MANIFEST}"))
        })?;
        // Tools run in the folder, and are told whole paths.
        let folder = folder.canonicalize();
        let folder = folder.map_err(|error| Problem::wrong("the project has no path").because(&error))?;
        Ok(Project { folder, language, manifest, manifest_text })
    }
}
