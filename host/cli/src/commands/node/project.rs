//! A project that builds a pack.

use std::{
    fs,
    path::{Path, PathBuf},
};

use flowcell::Manifest;

use crate::cli_error::CliError;

/// The file name of the manifest.
pub(super) const MANIFEST: &str = "node.yaml";

/// The tool that builds a project.
#[derive(Clone, Copy)]
pub(super) enum Builder {
    Cargo,
    QuickJs,
    CPython,
    /// The project's own script, for any other language.
    Script,
}

impl Builder {
    /// The builders in search order. A script is last, since other projects may have a `build.sh` for another purpose.
    const ALL: [Builder; 4] = [Builder::Cargo, Builder::QuickJs, Builder::CPython, Builder::Script];

    /// Returns the name of the build file. A project that has this file is built by this builder.
    pub(super) fn build_file(self) -> &'static str {
        match self {
            Builder::Cargo => "Cargo.toml",
            Builder::QuickJs => "package.json",
            Builder::CPython => "pyproject.toml",
            Builder::Script => "build.sh",
        }
    }
}

/// An opened project.
pub(super) struct Project {
    pub(super) folder: PathBuf,
    pub(super) builder: Builder,
    /// The parsed manifest of the pack.
    pub(super) manifest: Manifest,
    /// The text of the manifest file.
    pub(super) manifest_text: String,
}

impl Project {
    /// Opens the project in a folder. Fails if the manifest or the build file is missing.
    pub(super) fn open(folder: &Path) -> Result<Project, CliError> {
        let shown = folder.join(MANIFEST);
        let shown = shown.display();
        let manifest_text = fs::read_to_string(folder.join(MANIFEST)).map_err(|error| {
            CliError::wrong(format!("cannot read {shown}")).because(&error).hint(
                "a project needs this manifest; create a project with `flowcell node new NAME --lang \
                 rust|js|ts|python|c|go|zig`",
            )
        })?;
        let manifest = Manifest::parse(&manifest_text)
            .map_err(|error| CliError::wrong(format!("{shown} is not a valid manifest")).because(&error))?;
        let builder = Builder::ALL.into_iter().find(|builder| folder.join(builder.build_file()).is_file());
        let builder = builder.ok_or_else(|| {
            let marks = Builder::ALL.map(Builder::build_file).join(", ");
            CliError::wrong(format!("{} has no build file", folder.display()))
                .hint(format!("add one of {marks} next to {MANIFEST}"))
        })?;
        // Tools run in the folder, so their paths have to be absolute.
        let folder = folder.canonicalize();
        let folder =
            folder.map_err(|error| CliError::wrong("the path of the project cannot be resolved").because(&error))?;
        Ok(Project { folder, builder, manifest, manifest_text })
    }
}
