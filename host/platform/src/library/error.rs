//! The errors of a library.

use std::{io, path::PathBuf};

use flowcell_flow::{Diagnostic, Severity};
use flowcell_runtime::ports::StoreError;

/// An error of a library.
#[derive(Debug, thiserror::Error)]
pub enum LibraryError {
    /// The name is invalid for a flow.
    #[error("`{0}` is not a valid flow name: use letters, digits, `_` and `-`, at most 64 characters")]
    BadName(String),
    /// Neither the text nor the caller names the flow.
    #[error("the flow has no name: add `name` to its text")]
    NoName,
    /// The text names another flow.
    #[error("the flow has the name `{said}` in its text, but is stored as `{name}`: use one name")]
    OtherName {
        /// The caller's name.
        name: String,
        /// The name in the text.
        said: String,
    },
    /// The name is taken.
    #[error("the flow `{0}` already exists: choose another name, or add a version to it")]
    Exists(String),
    /// The flow does not exist.
    #[error("the flow `{0}` does not exist")]
    Unknown(String),
    /// The flow has no such version.
    #[error("the flow `{name}` has no version {version}: the newest is {newest}")]
    UnknownVersion {
        /// The name of the flow.
        name: String,
        /// The requested version.
        version: u32,
        /// The newest version.
        newest: u32,
    },
    /// The newest version is not the one that the caller expects.
    #[error("{}", moved(name, *newest))]
    Moved {
        /// The name of the flow.
        name: String,
        /// The newest version. 0: the flow does not exist.
        newest: u32,
    },
    /// The text is too large.
    #[error("the flow's text is larger than {} bytes", super::MAX_FLOW_BYTES)]
    TooLarge,
    /// The library is full.
    #[error(
        "the library is full: its limits are {} flows and {} MiB for all versions, each counted as at least 4 KiB; \
         delete flows",
        super::MAX_FLOWS,
        super::MAX_LIBRARY_BYTES >> 20
    )]
    Full,
    /// A link is not followed, since it leads out of the folder or is among the library's own files.
    #[error("`{0}` is a link out of the folder of flows or to files of the host: replace it by a file")]
    Link(String),
    /// The folder has a flow of this name, which posts do not change.
    #[error(
        "the flow `{name}` is the file `{file}` in the folder of flows, which wins over the shared store: change or \
         remove the file there, or post the flow under another name"
    )]
    Deployed {
        /// The flow's name.
        name: String,
        /// The file in the folder.
        file: String,
    },
    /// The files beside a flow to post are not usable.
    #[error("{0}")]
    Files(String),
    /// A flow in a folder has its files there.
    #[error(
        "the flows of this store are files in its folder: put the files beside the flow there, and post the flow without \
         `files`"
    )]
    NoFiles,
    /// Flows are posted to shared stores only.
    #[error("the store is not shared, so its flows are files: name a shared store, or copy the file to the folder")]
    NotShared,
    /// The shared store does not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The flow has errors.
    #[error("{}", diagnostics_text(.0))]
    Invalid(Vec<Diagnostic>),
    /// The folder cannot be read or written.
    #[error("cannot use the folder of flows {}: {source}", folder.display())]
    Folder {
        /// The path of the folder.
        folder: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
}

/// A push that was not finished.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct PushError {
    /// The reason.
    pub error: LibraryError,
    /// The names of the flows that were not pushed, the refused one first. Empty if the flow in the file has no name, or
    /// cannot run.
    pub not_pushed: Vec<String>,
}

impl From<LibraryError> for PushError {
    fn from(error: LibraryError) -> PushError {
        PushError { error, not_pushed: Vec::new() }
    }
}

fn diagnostics_text(diagnostics: &[Diagnostic]) -> String {
    let errors = diagnostics.iter().filter(|finding| finding.severity == Severity::Error);
    errors.map(ToString::to_string).collect::<Vec<_>>().join("\n\n")
}

/// Says which version a flow has in place of the expected one.
fn moved(name: &str, newest: u32) -> String {
    match newest {
        0 => format!("the flow `{name}` does not exist any more; post it without `ifVersion` to create it again"),
        newest => format!(
            "the flow `{name}` has the version {newest} by now; read it, and post your change with `ifVersion` {newest}"
        ),
    }
}
