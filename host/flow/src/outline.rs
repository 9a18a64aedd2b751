//! Reads the scripts in flows. Checks them with the script checker of the [`CheckContext`].

use flowcell_contract::Json;
use serde::{Deserialize, Serialize};

use crate::{
    CheckContext, Source,
    diagnostic::Diagnostics,
    fields::for_message,
    yaml::{Span, Tree},
};

/// The data that a script exports about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outline {
    /// Display title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Purpose of the script.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Inputs, in the order of their declaration.
    pub inputs: Vec<Port>,
    /// Outputs, in the order of their declaration.
    pub outputs: Vec<Port>,
}

/// An input or an output of a script.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Port {
    /// Name of the port in the script.
    pub id: String,
    /// Type of the port's value.
    pub kind: PortKind,
    /// Display name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// True if the value may be missing.
    pub optional: bool,
}

/// The type of a port's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PortKind {
    /// An image as a file value.
    Img,
    /// A list of images as file values.
    Imgs,
    /// A string.
    Text,
    /// A file value.
    File,
    /// Any JSON value.
    Json,
}

impl PortKind {
    /// Returns the type's name in scripts and in JSON.
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

/// An error in a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptError {
    /// Description of the error, one sentence.
    pub message: String,
    /// Line and column in the script, counted from 1.
    pub location: Option<(usize, usize)>,
}

/// Checks a script inside a node and returns its text.
pub(crate) fn inline(tree: &Tree, context: &dyn CheckContext, diagnostics: &mut Diagnostics<'_>) -> Json {
    if let Some(text) = tree.text() {
        check_script_text(&Source { name: "source".into(), text: text.to_owned() }, tree.span, context, diagnostics);
    }
    tree.json()
}

/// Reads and checks a script whose path a node gives, and returns it as `{ path, text }`. Returns a value that is not a
/// text unchanged, because it may be a script that is already loaded.
pub(crate) fn from_path(tree: &Tree, context: &dyn CheckContext, diagnostics: &mut Diagnostics<'_>) -> Json {
    let Some(path) = tree.text() else { return tree.json() };
    if path.contains("{{") {
        let help = Some("write a literal path; use `source` for a computed script".into());
        diagnostics.error("literal_needed", tree.span, "the path of a script must be literal", help);
        return Json::Null;
    }
    match context.read(path) {
        Ok(text) => {
            let source = Source { name: path.to_owned(), text };
            check_script_text(&source, tree.span, context, diagnostics);
            read(&source)
        }
        Err(error) => {
            let help = Some("the path is relative to the flow's file".into());
            diagnostics.error(
                "unreadable_file",
                tree.span,
                format!("cannot read `{}`: {error}", for_message(path)),
                help,
            );
            Json::Null
        }
    }
}

/// Returns a script in the form that its node receives: `{ path, text }`.
pub(crate) fn read(source: &Source) -> Json {
    Json::object([("path", Json::from(source.name.as_str())), ("text", Json::from(source.text.as_str()))])
}

/// Reports an error in a script, at the position where the flow refers to the script.
fn check_script_text(source: &Source, span: Span, context: &dyn CheckContext, diagnostics: &mut Diagnostics<'_>) {
    if let Err(error) = context.check_script(source) {
        let place = error.location.map(|(line, column)| format!("see line {line}, column {column} of the script"));
        let is_outside = error.message.starts_with("unexpected `return`");
        let wrap = is_outside.then(|| "write the statements into `export async function run(services) { … }`".into());
        let help: Vec<String> = wrap.into_iter().chain(place).collect();
        let help = (!help.is_empty()).then(|| help.join("; "));
        diagnostics.error("bad_script", span, error.message, help);
    }
}
