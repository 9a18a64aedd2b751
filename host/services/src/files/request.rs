//! Parses and checks the arguments of a call of `files`.

use std::sync::Arc;

use flowcell_contract::{BlobRef, Call, Failure, Json, Value, code as codes};

use super::path::FilePath;

/// The parsed arguments of a call: an operation, and its path.
pub(super) struct Request {
    pub(super) path: FilePath,
    pub(super) operation: Operation,
}

/// The operation that a call requests.
pub(super) enum Operation {
    ReadText,
    Read,
    Write(Content),
    List,
    Stat,
    Remove,
}

/// The content to write.
pub(super) enum Content {
    Text(Arc<str>),
    File(BlobRef),
}

impl Request {
    /// Parses the arguments of a call. Fails with `invalid_input`.
    pub(super) fn read(call: &Call) -> Result<Request, Failure> {
        let args = call.args.json();
        let text = |name: &str| args.get(name).and_then(Json::as_str);
        let operation = match (&*call.function, text("as")) {
            ("read", Some("text")) => Operation::ReadText,
            ("read", Some("file")) => Operation::Read,
            ("write", _) => Operation::Write(content(args)?),
            ("list", _) => Operation::List,
            ("stat", _) => Operation::Stat,
            ("remove", _) => Operation::Remove,
            ("read", _) => return Err(wrong("`as` must be `text` or `file`".into())),
            (other, _) => return Err(wrong(format!("`files` has no function `{other}`"))),
        };
        let path = text("path").ok_or_else(|| wrong("`path` must be a text".into()))?;
        let path = match (&operation, path) {
            (Operation::List, "" | ".") => FilePath::top(),
            (_, path) => FilePath::parse(path).map_err(wrong)?,
        };
        Ok(Request { path, operation })
    }
}

fn content(args: &Json) -> Result<Content, Failure> {
    let file = || Value::from(args.get("file")?.clone()).blob();
    match args.get("text") {
        Some(Json::String(text)) => Ok(Content::Text(text.clone())),
        _ => file().map(Content::File).ok_or_else(|| wrong("the content must be `text` or `file`".into())),
    }
}

fn wrong(message: String) -> Failure {
    Failure::new(codes::INVALID_INPUT, message)
}
