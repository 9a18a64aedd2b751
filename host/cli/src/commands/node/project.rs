//! A project that makes a pack.

use std::{
    fs,
    path::{Path, PathBuf},
};

use flowcell::Manifest;

use crate::problem::Problem;

/// The file with the manifest.
pub(super) const MANIFEST: &str = "node.yaml";

/// What builds a project.
#[derive(Clone, Copy)]
pub(super) enum Builder {
    Cargo,
    QuickJs,
    CPython,
    /// A script of the project's own, for all other languages.
    Script,
}

impl Builder {
    /// A script comes last: projects of the others may have one for something else.
    const ALL: [Builder; 4] = [Builder::Cargo, Builder::QuickJs, Builder::CPython, Builder::Script];

    /// The file by which a project is known.
    pub(super) fn mark(self) -> &'static str {
        match self {
            Builder::Cargo => "Cargo.toml",
            Builder::QuickJs => "package.json",
            Builder::CPython => "pyproject.toml",
            Builder::Script => "build.sh",
        }
    }
}

/// A project that makes a pack.
pub(super) struct Project {
    pub(super) folder: PathBuf,
    pub(super) builder: Builder,
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
            Problem::wrong(format!("cannot read {shown}")).because(&error).hint(
                "a project has its manifest there; `flowcell node new NAME --lang rust|js|python|c|go` begins one",
            )
        })?;
        let manifest = Manifest::parse(&manifest_text)
            .map_err(|error| Problem::wrong(format!("{shown} is no manifest")).because(&error))?;
        let builder = Builder::ALL.into_iter().find(|builder| folder.join(builder.mark()).is_file());
        let builder = builder.ok_or_else(|| {
            let marks = Builder::ALL.map(Builder::mark).join(", ");
            Problem::wrong(format!("nothing says how {} is built", folder.display()))
                .hint(format!("a project has one of {marks} beside its {MANIFEST}"))
        })?;
        // Tools run in the folder, and are told whole paths.
        let folder = folder.canonicalize();
        let folder = folder.map_err(|error| Problem::wrong("the project has no path").because(&error))?;
        Ok(Project { folder, builder, manifest, manifest_text })
    }
}
