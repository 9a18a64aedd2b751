//! Scripts in flows: read, and looked through by somebody who can run their first lines.

use flowcell_contract::Json;
use serde::{Deserialize, Serialize};

use crate::{
    Files, Source,
    diagnostic::Findings,
    fields::shown,
    yaml::{Span, Tree},
};

/// What a script says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outline {
    /// What it calls itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// What it is given, in the order in which it says so.
    pub inputs: Vec<Port>,
    /// What it gives.
    pub outputs: Vec<Port>,
}

/// An input or an output of a script.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Port {
    /// Its name.
    pub id: String,
    /// What goes through.
    pub kind: PortKind,
    /// Its name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Whether it may be missing.
    pub optional: bool,
}

/// What goes through a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PortKind {
    /// An image, a file value.
    Img,
    /// Images.
    Imgs,
    /// A text.
    Text,
    /// A file value.
    File,
    /// Anything.
    Json,
}

impl PortKind {
    /// Its name, as scripts and JSON have it.
    pub fn name(self) -> &'static str {
        match self {
            PortKind::Img => "img",
            PortKind::Imgs => "imgs",
            PortKind::Text => "text",
            PortKind::File => "file",
            PortKind::Json => "json",
        }
    }
}

/// Why a script says nothing of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What is wrong, in a sentence.
    pub message: String,
    /// Line and column in the script, counted from 1.
    pub place: Option<(usize, usize)>,
}

/// A script that is written into a node: its text, looked through.
pub(crate) fn inline(tree: &Tree, files: &dyn Files, findings: &mut Findings<'_>) -> Json {
    if let Some(text) = tree.text() {
        look_through(&Source { name: "source".into(), text: text.to_owned() }, tree.span, files, findings);
    }
    tree.json()
}

/// A script that is named by its path: what is read there, looked through. What has been read already stays as it is.
pub(crate) fn beside(tree: &Tree, files: &dyn Files, findings: &mut Findings<'_>) -> Json {
    let Some(path) = tree.text() else { return tree.json() };
    if path.contains("{{") {
        let help = Some("write the path as it is; a script that is computed is the node's `source`".into());
        findings.error("literal_needed", tree.span, "the path of a script is not computed", help);
        return Json::Null;
    }
    match files.read(path) {
        Ok(text) => {
            let source = Source { name: path.to_owned(), text };
            look_through(&source, tree.span, files, findings);
            read(&source)
        }
        Err(error) => {
            let help = Some("the path is relative to the flow's file".into());
            findings.error("unreadable_file", tree.span, format!("cannot read `{}`: {error}", shown(path)), help);
            Json::Null
        }
    }
}

/// A script as it reaches its node.
pub(crate) fn read(source: &Source) -> Json {
    Json::object([("path", Json::from(source.name.as_str())), ("text", Json::from(source.text.as_str()))])
}

/// Tells what is wrong with a script, at the place where it is named.
fn look_through(source: &Source, span: Span, files: &dyn Files, findings: &mut Findings<'_>) {
    if let Err(fault) = files.check_script(source) {
        let help = fault.place.map(|(line, column)| format!("look at line {line}, column {column} of the script"));
        findings.error("bad_script", span, fault.message, help);
    }
}
