//! The flows and versions that a library returns.

use std::{collections::BTreeMap, path::PathBuf};

use crate::posted::PostedVersion;

/// Where a flow is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum FlowSource {
    /// In the folder of this process.
    Folder,
    /// In the shared store, for all processes.
    Store,
}

impl FlowSource {
    /// Returns the name of the source in lists.
    pub fn name(self) -> &'static str {
        match self {
            FlowSource::Folder => "folder",
            FlowSource::Store => "store",
        }
    }
}

/// A flow in a list.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct FlowEntry {
    /// The flow's name, which is also the name of its file.
    pub name: String,
    /// The number of the flow's newest version.
    pub version: u32,
    /// The description in the flow's text.
    pub description: Option<String>,
    /// Where the flow is stored.
    pub source: FlowSource,
    /// The newest version of the posted flow of the same name, which the folder's flow hides.
    #[serde(rename = "hides", skip_serializing_if = "Option::is_none")]
    pub hidden_version: Option<u32>,
}

/// A version of a posted flow with its content.
#[derive(Clone, Debug, serde::Serialize)]
pub struct PostedFlow<'a> {
    /// The name of the flow.
    pub name: &'a str,
    /// The record of the version.
    #[serde(flatten)]
    pub version: &'a PostedVersion,
    /// The text of the flow.
    pub text: &'a str,
    /// The texts of the files beside the flow, by their relative paths.
    pub files: &'a BTreeMap<String, String>,
}

/// A version of a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredFlow {
    /// The flow's name.
    pub name: String,
    /// The version's number.
    pub version: u32,
    /// The path of the flow's file, as messages show it. For an older version, it is the path that the file had when
    /// that version was the newest.
    pub file: PathBuf,
    /// The text of this version.
    pub text: String,
    /// The record of a posted version. `None` for a flow of the folder.
    pub posted: Option<PostedVersion>,
}

impl StoredFlow {
    /// Returns where the flow is stored.
    pub fn source(&self) -> FlowSource {
        if self.posted.is_some() { FlowSource::Store } else { FlowSource::Folder }
    }
}

/// The files beside a version of a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowFiles {
    /// The version's number.
    pub version: u32,
    /// Where the flow is stored.
    pub source: FlowSource,
    /// The texts of the files, by their paths.
    pub files: BTreeMap<String, String>,
}
