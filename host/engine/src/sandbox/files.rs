//! `flowcell:host/files`: the files of the tenant.

use flowcell_contract::{BINARY, BuiltIn, Calls, Failure, Json, Value, code};

use super::{Sandbox, capability::Answer, denial::Denier};
use crate::{
    bindings::files::{self, Content, Entry, Form, Kind},
    failure,
};

/// The maximum size of a file that a guest receives whole, in bytes. A larger file is a file value.
const MAX_WHOLE_BYTES: u64 = 1 << 20;

impl files::Host for Sandbox {
    async fn read(&mut self, path: String, form: Form) -> Answer<Content> {
        let form_name = if form == Form::Text { "text" } else { "file" };
        let args = Json::object([("path", Json::from(path)), ("as", Json::from(form_name))]);
        let reply = self.call(BuiltIn::Files, "read", args).await?;
        self.update_clock();
        Ok(reply.and_then(|reply| content_of(&*self.calls, &reply, form)).map_err(failure::to_guest))
    }

    async fn write(&mut self, path: String, content: Content) -> Answer<u64> {
        let content = match write_content(&*self.calls, content) {
            Ok(content) => content,
            Err(failure) => return self.refuse(failure),
        };
        let reply = self.call(BuiltIn::Files, "write", Json::object([("path", Json::from(path)), content])).await?;
        self.update_clock();
        let size =
            |reply: Value| reply.json().get("size").and_then(Json::as_u64).ok_or_else(|| unexpected_reply("write"));
        Ok(reply.and_then(size).map_err(failure::to_guest))
    }

    async fn list(&mut self, path: String) -> Answer<Vec<Entry>> {
        let reply = self.call(BuiltIn::Files, "list", Json::object([("path", Json::from(path))])).await?;
        self.update_clock();
        let entries = |reply: Value| {
            let entries =
                reply.json().get("entries").and_then(Json::as_array).ok_or_else(|| unexpected_reply("list"))?;
            entries.iter().map(|listed| entry(listed).ok_or_else(|| unexpected_reply("list"))).collect()
        };
        Ok(reply.and_then(entries).map_err(failure::to_guest))
    }

    async fn stat(&mut self, path: String) -> Answer<Option<Entry>> {
        let reply = self.call(BuiltIn::Files, "stat", Json::object([("path", Json::from(path))])).await?;
        self.update_clock();
        let found = |reply: Value| match reply.json() {
            Json::Null => Ok(None),
            found => entry(found).map(Some).ok_or_else(|| unexpected_reply("stat")),
        };
        Ok(reply.and_then(found).map_err(failure::to_guest))
    }

    async fn remove(&mut self, path: String) -> Answer<bool> {
        let reply = self.call(BuiltIn::Files, "remove", Json::object([("path", Json::from(path))])).await?;
        self.update_clock();
        let was_there = |reply: Value| match reply.json() {
            Json::Bool(was_there) => Ok(*was_there),
            _ => Err(unexpected_reply("remove")),
        };
        Ok(reply.and_then(was_there).map_err(failure::to_guest))
    }
}

impl files::Host for Denier<'_> {
    async fn read(&mut self, _: String, _: Form) -> Answer<Content> {
        self.answer(BuiltIn::Files)
    }

    async fn write(&mut self, _: String, _: Content) -> Answer<u64> {
        self.answer(BuiltIn::Files)
    }

    async fn list(&mut self, _: String) -> Answer<Vec<Entry>> {
        self.answer(BuiltIn::Files)
    }

    async fn stat(&mut self, _: String) -> Answer<Option<Entry>> {
        self.answer(BuiltIn::Files)
    }

    async fn remove(&mut self, _: String) -> Answer<bool> {
        self.answer(BuiltIn::Files)
    }
}

fn content_of(calls: &dyn Calls, reply: &Value, form: Form) -> Result<Content, Failure> {
    let json = reply.json();
    if form == Form::Text {
        let text = json.get("text").and_then(Json::as_str).ok_or_else(|| unexpected_reply("read"))?;
        return Ok(Content::Text(text.to_owned()));
    }
    let file = json.get("file").ok_or_else(|| unexpected_reply("read"))?;
    let blob = Value::from(file.clone()).blob().ok_or_else(|| unexpected_reply("read"))?;
    match form {
        Form::Bytes if blob.size > MAX_WHOLE_BYTES => {
            let message = format!("the file has more than {MAX_WHOLE_BYTES} bytes; read it as a file value");
            Err(Failure::new("file_too_large", message))
        }
        Form::Bytes => Ok(Content::Bytes(calls.bytes(&blob)?.to_vec())),
        _ => Ok(Content::File(file.to_text())),
    }
}

/// Returns the content to write, as a member of the call's arguments.
fn write_content(calls: &dyn Calls, content: Content) -> Result<(&'static str, Json), Failure> {
    match content {
        Content::Text(text) => Ok(("text", Json::from(text))),
        Content::Bytes(bytes) => {
            let file = Value::from(calls.keep(bytes.into(), BINARY)?);
            Ok(("file", file.json().clone()))
        }
        Content::File(file) => {
            let file = Value::parse(&file).ok().filter(|file| file.blob().is_some());
            let message = "the content must be a file `{ \"kind\": \"file\", \"fileId\": … }`";
            let file = file.ok_or_else(|| Failure::new(code::INVALID_INPUT, message))?;
            Ok(("file", file.json().clone()))
        }
    }
}

fn entry(json: &Json) -> Option<Entry> {
    Some(Entry {
        path: json.get("path")?.as_str()?.to_owned(),
        kind: if json.get("kind")?.as_str()? == "folder" { Kind::Folder } else { Kind::File },
        size: json.get("size")?.as_u64()?,
        modified_ms: json.get("modifiedMs")?.as_u64()?,
    })
}

fn unexpected_reply(function: &str) -> Failure {
    Failure::retryable(code::LOST_WORKER, format!("`files.{function}` has an unexpected reply"))
}
