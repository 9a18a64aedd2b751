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
        check_is_inside(folder, &shown)?;
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

/// Fails if a file is a link that leads out of a folder, because packs are published, and must not contain other files of
/// the author. A missing file passes.
pub(super) fn check_is_inside(folder: &Path, file: &Path) -> Result<(), CliError> {
    let (Ok(folder), Ok(target)) = (folder.canonicalize(), file.canonicalize()) else { return Ok(()) };
    if target.starts_with(&folder) {
        return Ok(());
    }
    Err(CliError::wrong(format!("{} is a link that leads out of {}", file.display(), folder.display()))
        .hint("replace the link by a copy of the file"))
}

#[cfg(all(test, unix))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_that_lead_out_of_a_folder_are_refused() {
        let all = tempfile::tempdir().unwrap();
        let project = all.path().join("shop");
        fs::create_dir_all(project.join("docs")).unwrap();
        fs::write(all.path().join("outside.txt"), "private").unwrap();
        fs::write(project.join("docs/inside.md"), "public").unwrap();
        let linked = |target: &str, name: &str| {
            symlink(target, project.join(name)).unwrap();
            check_is_inside(&project, &project.join(name))
        };
        assert!(linked("docs/inside.md", "README.md").is_ok());
        assert!(linked("nowhere.md", "dangling.md").is_ok());
        assert!(check_is_inside(&project, &project.join("missing.md")).is_ok());
        let refused = linked("../outside.txt", "LICENSE").unwrap_err().plain();
        assert!(refused.contains("LICENSE is a link that leads out of"), "{refused}");
        assert!(linked("..", "folder").is_err());
        assert!(check_is_inside(&project, &project.join("folder/outside.txt")).is_err());
    }
}
