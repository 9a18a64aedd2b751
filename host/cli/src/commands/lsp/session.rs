//! One connection of an editor: its open files, its requests, and the diagnostics that it gets.

use std::collections::{BTreeMap, BTreeSet};

use flowcell::{Host, Source, rewrite::EdgeForm, script::is_script};
use lsp_server::{ErrorCode, Message, Notification, Request, Response};
use serde_json::{Value, json};

use super::{
    answers,
    request::{OpenFile, RequestError},
    shapes::{Lines, path_of},
};
use crate::cli_error::Exit;

/// Maximum number of files that may be open.
const MAX_OPEN_FILES: usize = 1_000;
/// Maximum size in bytes of all open files together.
const MAX_OPEN_BYTES: usize = 256 * 1024 * 1024;

/// The state of a connection.
pub(super) struct Session {
    host: Host,
    files: BTreeMap<String, OpenFile>,
    /// The files that have changed since their last check.
    unchecked: BTreeSet<String>,
    /// The form of edges that the formatter writes; without it, it changes nothing.
    form: Option<EdgeForm>,
    is_initialized: bool,
    is_shut_down: bool,
    is_over: bool,
}

impl Session {
    pub(super) fn new(host: Host) -> Session {
        let (files, unchecked) = (BTreeMap::new(), BTreeSet::new());
        Session { host, files, unchecked, form: None, is_initialized: false, is_shut_down: false, is_over: false }
    }

    /// Returns true after the message `exit`.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Returns the exit of the command: good only if the editor has said `shutdown` before.
    pub(super) fn exit(&self) -> Exit {
        if self.is_shut_down { Exit::Good } else { Exit::Failed }
    }

    /// Returns true if changed files wait for their check.
    pub(super) fn has_unchecked(&self) -> bool {
        !self.unchecked.is_empty()
    }

    /// Handles a message, and returns the messages that follow from it.
    pub(super) fn handle(&mut self, message: Message) -> Vec<Message> {
        match message {
            Message::Request(request) => self.answer(request),
            Message::Notification(notification) => self.note(notification),
            // The server asks nothing.
            Message::Response(_) => Vec::new(),
        }
    }

    fn answer(&mut self, request: Request) -> Vec<Message> {
        let Request { id, method, params } = request;
        let mut notes = Vec::new();
        let result = match method.as_str() {
            "initialize" => {
                self.is_initialized = true;
                self.form = match params.pointer("/initializationOptions/edges").and_then(Value::as_str) {
                    Some("short") => Some(EdgeForm::Short),
                    Some("long") => Some(EdgeForm::Long),
                    _ => None,
                };
                Ok(answers::capabilities())
            }
            _ if !self.is_initialized => {
                let message = "send `initialize` first".to_owned();
                Err(RequestError { code: ErrorCode::ServerNotInitialized, message })
            }
            "shutdown" => {
                self.is_shut_down = true;
                Ok(Value::Null)
            }
            _ if self.is_shut_down => {
                let message = "the server is shut down".to_owned();
                Err(RequestError { code: ErrorCode::InvalidRequest, message })
            }
            _ => self.answer_about_file(&method, &params, &mut notes),
        };
        let reply = match result {
            Ok(value) => Response::new_ok(id, value),
            Err(error) => Response::new_err(id, error.code as i32, error.message),
        };
        notes.into_iter().map(|note| Message::from(show(note))).chain([reply.into()]).collect()
    }

    fn answer_about_file(&self, method: &str, params: &Value, notes: &mut Vec<String>) -> Result<Value, RequestError> {
        let Some(answer) = answers::find(method) else {
            let message = format!("the server has no method `{method}`");
            return Err(RequestError { code: ErrorCode::MethodNotFound, message });
        };
        let uri = params.pointer("/textDocument/uri").and_then(Value::as_str);
        let uri = uri.ok_or_else(|| RequestError::parameters("`textDocument.uri` is missing"))?;
        let file = self.files.get(uri).ok_or_else(|| RequestError::failed("the file is not open"))?;
        let source = source_of(uri, file);
        // Scripts have diagnostics only, and other files nothing.
        if FileKind::of(&source.name) != FileKind::Flow {
            return Ok(Value::Null);
        }
        let request = answers::About {
            host: &self.host,
            files: &self.files,
            uri,
            source: &source,
            lines: Lines::new(&file.text),
            form: self.form,
            params,
        };
        answer(&request, notes)
    }

    fn note(&mut self, notification: Notification) -> Vec<Message> {
        let Notification { method, params } = notification;
        let uri = params.pointer("/textDocument/uri").and_then(Value::as_str).unwrap_or_default().to_owned();
        match method.as_str() {
            "exit" => self.is_over = true,
            _ if !self.is_initialized => {}
            "textDocument/didOpen" => {
                let text = params.pointer("/textDocument/text").and_then(Value::as_str).unwrap_or_default();
                return self.keep(uri, text.to_owned(), version(&params));
            }
            "textDocument/didChange" => {
                let Some(file) = self.files.get_mut(&uri) else { return Vec::new() };
                let mut text = std::mem::take(&mut file.text);
                for change in params.get("contentChanges").and_then(Value::as_array).into_iter().flatten() {
                    let new = change.get("text").and_then(Value::as_str).unwrap_or_default();
                    match change.get("range") {
                        Some(range) => {
                            if let Some(bytes) = Lines::new(&text).bytes(range) {
                                text.replace_range(bytes, new);
                            }
                        }
                        None => new.clone_into(&mut text),
                    }
                }
                return self.keep(uri, text, version(&params));
            }
            "textDocument/didClose" => {
                self.unchecked.remove(&uri);
                if self.files.remove(&uri).is_some() {
                    return vec![published(&uri, &Value::Null, json!([]))];
                }
            }
            // Another file, such as a called flow or a prompt, may have changed the diagnostics.
            "textDocument/didSave" | "workspace/didChangeWatchedFiles" => {
                self.unchecked = self.files.keys().cloned().collect();
            }
            _ => {}
        }
        Vec::new()
    }

    /// Keeps the text of an open file. Forgets it if there are too many.
    fn keep(&mut self, uri: String, text: String, version: Value) -> Vec<Message> {
        let others = self.files.iter().filter(|(other, _)| **other != uri);
        let bytes = others.map(|(_, file)| file.text.len()).sum::<usize>() + text.len();
        let is_new = !self.files.contains_key(&uri);
        if bytes > MAX_OPEN_BYTES || (is_new && self.files.len() >= MAX_OPEN_FILES) {
            self.files.remove(&uri);
            self.unchecked.remove(&uri);
            let limits = format!("{MAX_OPEN_FILES} files with {} MiB", MAX_OPEN_BYTES >> 20);
            let said = format!("Flowcell serves at most {limits}; close some, and open {uri} again");
            return vec![published(&uri, &Value::Null, json!([])), show(said).into()];
        }
        self.files.insert(uri.clone(), OpenFile { text, version });
        self.unchecked.insert(uri);
        Vec::new()
    }

    /// Checks one changed file, and returns its diagnostics as messages.
    pub(super) fn check_next(&mut self) -> Vec<Message> {
        let Some(uri) = self.unchecked.pop_first() else { return Vec::new() };
        let Some(file) = self.files.get(&uri) else { return Vec::new() };
        let source = source_of(&uri, file);
        let lines = Lines::new(&file.text);
        let found = match FileKind::of(&source.name) {
            FileKind::Other => Vec::new(),
            FileKind::Flow | FileKind::Script => self.host.check_source(&source).diagnostics,
        };
        let found = found.iter().filter(|found| found.location.file == source.name);
        vec![published(&uri, &file.version, found.map(|found| lines.diagnostic(found)).collect())]
    }
}

/// The kind of a file, by its name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FileKind {
    Flow,
    Script,
    /// A file of test cases, an agent, a schema, or another file.
    Other,
}

impl FileKind {
    fn of(name: &str) -> FileKind {
        let ends = |endings: &[&str]| endings.iter().any(|ending| name.ends_with(ending));
        if is_script(name) {
            FileKind::Script
        } else if ends(&[".yaml", ".yml", ".json"]) && !ends(&[".test.yaml", ".test.yml", ".schema.json"]) {
            FileKind::Flow
        } else {
            FileKind::Other
        }
    }
}

fn source_of(uri: &str, file: &OpenFile) -> Source {
    let name = path_of(uri).map_or_else(|| "untitled.yaml".to_owned(), |path| path.display().to_string());
    Source { name, text: file.text.clone() }
}

fn version(params: &Value) -> Value {
    params.pointer("/textDocument/version").cloned().unwrap_or_default()
}

fn published(uri: &str, version: &Value, found: Value) -> Message {
    let mut params = json!({ "uri": uri, "diagnostics": found });
    if version.is_i64() {
        params["version"] = version.clone();
    }
    Notification::new("textDocument/publishDiagnostics".to_owned(), params).into()
}

/// Returns a message that the editor shows.
fn show(text: String) -> Notification {
    Notification::new("window/showMessage".to_owned(), json!({ "type": 3, "message": text }))
}
