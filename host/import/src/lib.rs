//! Imports workflows of other engines: text in; a flow, its test cases and a report out. The crate does no I/O.
//!
//! Parts of the flow that may behave in another way than the source have the key `approximated`. A flow with such marks
//! is not valid until a person has removed them.
//!
//! | module | content |
//! |---|---|
//! | document | reads JSON and YAML with limits |
//! | asl | Amazon States Language |
//! | n8n | exports of n8n |
//! | serverless | Serverless Workflow |
//! | jsonata, script | translate expressions of JSONata and JavaScript; `syntax` parses both |
//! | walk, scope, order | the order of states, their joins and cycles, and the way of the data through them |
//! | draft, names | the flow under construction, and the ids of its nodes |
//! | expr | writes expressions |
//! | grants | grants for requests |
//! | cases | the test cases |
//! | cron | cron expressions |
//! | write | writes YAML |
//! | report | a result for each construct |

mod asl;
mod cases;
mod cron;
mod document;
mod draft;
mod expr;
mod grants;
mod jsonata;
mod n8n;
mod names;
mod order;
mod report;
mod scope;
mod script;
mod serverless;
mod syntax;
mod walk;
mod write;

use std::fmt;

use flowcell_flow::limits;
use serde_json::{Map, Value};

pub use flowcell_flow::is_flow_name;
pub use report::{Finding, Verdict};

use self::{draft::Draft, report::Report};

/// Maximum size of an imported file in bytes.
pub const BYTES: usize = limits::DOCUMENT_BYTES;

/// The format of a workflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Amazon States Language.
    Asl,
    /// An export of n8n.
    N8n,
    /// Serverless Workflow 1.0.
    ServerlessWorkflow,
}

impl Format {
    /// All formats.
    pub const ALL: [Format; 3] = [Format::Asl, Format::N8n, Format::ServerlessWorkflow];

    /// Returns the name of the format on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Format::Asl => "asl",
            Format::N8n => "n8n",
            Format::ServerlessWorkflow => "serverless",
        }
    }

    /// Returns the name of the format for people.
    pub fn title(self) -> &'static str {
        match self {
            Format::Asl => "Amazon States Language",
            Format::N8n => "n8n",
            Format::ServerlessWorkflow => "Serverless Workflow",
        }
    }

    fn detect(document: &Value) -> Option<Format> {
        if asl::is_machine(document) {
            Some(Format::Asl)
        } else if n8n::is_workflow(document) {
            Some(Format::N8n)
        } else if serverless::is_workflow(document) {
            Some(Format::ServerlessWorkflow)
        } else {
            None
        }
    }
}

/// A workflow that was imported.
#[derive(Clone, Debug)]
pub struct Imported {
    /// The format of the source.
    pub format: Format,
    /// The name of the flow.
    pub name: String,
    /// The flow, as YAML.
    pub flow: String,
    /// The test cases of the flow, as YAML.
    pub tests: String,
    /// A result for each construct of the source.
    pub findings: Vec<Finding>,
    /// Number of marks in the flow.
    pub marks: usize,
}

/// An error: the file cannot be imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportError {
    /// The cause, with the place.
    pub message: String,
    /// What to do.
    pub help: String,
}

impl ImportError {
    fn new(message: impl Into<String>, help: impl Into<String>) -> ImportError {
        ImportError { message: message.into(), help: help.into() }
    }
}

impl fmt::Display for ImportError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for ImportError {}

/// The result of one format.
struct Import {
    draft: Draft,
    report: Report,
    /// Cases that the source contains.
    cases: Vec<cases::Case>,
}

/// Returns the number of members of all lists and objects under some keys.
fn steps(document: &Value, keys: &[&str]) -> usize {
    match document {
        Value::Array(items) => items.iter().map(|item| steps(item, keys)).sum(),
        Value::Object(members) => members
            .iter()
            .map(|(name, member)| {
                let own = member.as_array().map(Vec::len).or_else(|| member.as_object().map(Map::len));
                steps(member, keys) + own.filter(|_| keys.contains(&name.as_str())).unwrap_or(0)
            })
            .sum(),
        _ => 0,
    }
}

/// Checks the number of steps of a workflow before it is imported.
fn check_steps(document: &Value, format: Format) -> Result<(), ImportError> {
    let keys: &[&str] = match format {
        Format::Asl => &["States"],
        Format::N8n => &["nodes"],
        Format::ServerlessWorkflow => &["do", "try", "branches"],
    };
    let count = steps(document, keys);
    if count > limits::NODES {
        let message = format!("the workflow has {count} steps; the limit is {}", limits::NODES);
        return Err(ImportError::new(message, "split the workflow"));
    }
    Ok(())
}

/// Checks the size of a flow. A format stops to write one that is full.
fn check_draft(draft: &Draft) -> Result<(), ImportError> {
    for (count, most, word) in [
        (draft.nodes.len(), limits::NODES, "nodes"),
        (draft.edges.len(), limits::EDGES, "edges"),
        (draft.copied, limits::DOCUMENT_BYTES, "bytes"),
    ] {
        if count > most {
            let message = format!("the flow would have more than {most} {word}, which is the limit");
            return Err(ImportError::new(message, "split the workflow"));
        }
    }
    Ok(())
}

/// Imports a workflow. `name` is the name of the flow, which is changed if it is not valid. `format` is the format of the
/// text; `None` to detect it.
///
/// # Errors
///
/// The text cannot be read, has an unknown format, or is too large.
pub fn import(text: &str, name: &str, format: Option<Format>) -> Result<Imported, ImportError> {
    let document = document::read(text)?;
    let format = format.or_else(|| Format::detect(&document)).ok_or_else(|| {
        let names = Format::ALL.map(|format| format!("`--from {}`", format.name())).join(" or ");
        ImportError::new("the file has no known format", format!("name the format with {names}"))
    })?;
    let Value::Object(members) = &document else {
        return Err(ImportError::new("the file is not an object", "export the whole workflow"));
    };
    check_steps(&document, format)?;
    let name = if is_flow_name(name) { name.to_owned() } else { names::cleaned(name, "imported") };
    let mut import = match format {
        Format::Asl => asl::import(members),
        Format::N8n => n8n::import(members),
        Format::ServerlessWorkflow => serverless::import(members),
    };
    let draft = &mut import.draft;
    check_draft(draft)?;
    let head = format!("Imported from {}. `flowcell help import` explains the key `approximated`.", format.title());
    draft.comments.insert(0, head);
    let marks = import.report.marks.len() + draft.nodes.iter().map(|node| node.marks.len()).sum::<usize>();
    let flow = write::flow(&name, draft, &import.report.marks);
    if flow.len() > limits::DOCUMENT_BYTES {
        let message = format!("the flow would have {} bytes; the limit is {}", flow.len(), limits::DOCUMENT_BYTES);
        return Err(ImportError::new(message, "split the workflow"));
    }
    Ok(Imported {
        format,
        flow,
        tests: cases::write(draft, &import.cases),
        name,
        findings: import.report.findings,
        marks,
    })
}
