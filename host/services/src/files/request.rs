//! Parses and checks the arguments of a call of `files`.

use std::sync::Arc;

use flowcell_contract::{BlobRef, Call, Failure, Json, Value, code as codes};

use super::path::FilePath;

/// The parsed arguments of a call: an operation, and its path.
pub(super) struct Request {
    pub(super) path: FilePath,
    pub(super) verb: Verb,
}

/// The operation that a call requests.
pub(super) enum Verb {
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
        let verb = match (&*call.function, text("as")) {
            ("read", Some("text")) => Verb::ReadText,
            ("read", Some("file")) => Verb::Read,
            ("write", _) => Verb::Write(content(args)?),
            ("list", _) => Verb::List,
            ("stat", _) => Verb::Stat,
            ("remove", _) => Verb::Remove,
            ("read", _) => return Err(wrong("`as` must be `text` or `file`".into())),
            (other, _) => return Err(wrong(format!("`files` has no function `{other}`"))),
        };
        let path = text("path").ok_or_else(|| wrong("`path` must be a text".into()))?;
        let path = match (&verb, path) {
            (Verb::List, "" | ".") => FilePath::top(),
            (_, path) => FilePath::parse(path).map_err(wrong)?,
        };
        Ok(Request { path, verb })
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
