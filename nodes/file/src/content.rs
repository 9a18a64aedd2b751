//! `file.content`: the text, the lines or the JSON of a file value.

use std::io::{BufRead, Read};

use flowcell_sdk::{file::Reader, given, prelude::*};

use serde_json::value::RawValue;

use crate::json_part::{self, Window};

/// Maximum size in bytes of a text, or of all lines together. With usual content, the escaped text then fits into an
/// output.
const MAX_TEXT_BYTES: u64 = 3 << 20;
/// Number of lines or list items that are read at most if the input has no `limit`.
const DEFAULT_LIMIT: u64 = 10_000;

#[derive(Deserialize)]
pub(crate) struct Input {
    /// The member `file` as JSON text. It is not parsed to a tree, because it may hold content instead of a file value,
    /// such as an HTTP response, and such content may be as large as an output.
    #[serde(default, deserialize_with = "given")]
    file: Option<Box<RawValue>>,
    #[serde(default, rename = "as")]
    form: Form,
    #[serde(default)]
    at: String,
    from: Option<u64>,
    limit: Option<u64>,
}

#[derive(Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Form {
    #[default]
    Text,
    Json,
    Lines,
}

/// Reads the content of a file value. Also accepts the content itself, because other nodes return small content, such
/// as that of an HTTP response, as a value and not as a file.
pub(crate) fn read(task: &Task, input: Input) -> Result<Step> {
    let file = input.file.as_ref().ok_or_else(|| Failure::invalid_input("input: `file` is missing"))?;
    let paged = input.from.is_some() || input.limit.is_some();
    if input.form != Form::Json && !input.at.is_empty() {
        return Err(Failure::invalid_input("input.at: allowed only with `as: json`; remove `at`"));
    }
    if input.form == Form::Text && paged {
        return Err(Failure::invalid_input(
            "input: `from` and `limit` are allowed only with `as: lines` and `as: json`",
        ));
    }
    let window = paged.then(|| Window { from: input.from.unwrap_or(0), limit: input.limit.unwrap_or(DEFAULT_LIMIT) });
    let text = file.get();
    match text.as_bytes().first() {
        Some(b'"') => contents(&mut serde_json::from_str::<String>(text)?.as_bytes(), &input, window),
        Some(b'{') if is_file(task) => {
            let mut reader = Reader::new(&serde_json::from_str(text)?);
            let found = contents(&mut reader, &input, window);
            found.map_err(|failure| reader.take_failure().unwrap_or(failure))
        }
        _ if input.form == Form::Json => contents(&mut text.as_bytes(), &input, window),
        _ => {
            Err(Failure::invalid_input("input.file: expected a file value or a text; for other values use `as: json`"))
        }
    }
}

/// Returns true if the member `file` of the input is a file value. Does not parse all of it, because it may be large.
fn is_file(task: &Task) -> bool {
    task.input_text("/file/kind").as_deref() == Some("file") && task.input_text("/file/fileId").is_some()
}

fn contents(reader: &mut impl BufRead, input: &Input, window: Option<Window>) -> Result<Step> {
    match input.form {
        Form::Text => text(reader),
        Form::Lines => lines(reader, window.unwrap_or(Window { from: 0, limit: DEFAULT_LIMIT })),
        Form::Json => {
            let found = json_part::read(reader, &input.at, window)?;
            let output = Output::object().with("content", Source::Text(found.text));
            Ok(output.with("more", Source::value(found.more)?).into())
        }
    }
}

fn text(reader: &mut impl Read) -> Result<Step> {
    let mut bytes = Vec::new();
    reader.take(MAX_TEXT_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > MAX_TEXT_BYTES {
        let message =
            format!("the file has more than {MAX_TEXT_BYTES} bytes; read it with `as: lines`, or `as: json` and `at`");
        return Err(Failure::new("file_too_large", message));
    }
    let text = String::from_utf8(bytes).map_err(|_| Failure::new("not_text", "the file is not UTF-8"))?;
    Step::value(json!({ "content": text, "more": false }))
}

/// Reads lines, without their line breaks (`\n` or `\r\n`).
fn lines(reader: &mut impl BufRead, window: Window) -> Result<Step> {
    let mut found = Vec::new();
    let mut number = 0u64;
    let mut bytes = 0u64;
    loop {
        let mut line = Vec::new();
        let read = reader.by_ref().take(MAX_TEXT_BYTES + 1).read_until(b'\n', &mut line).map_err(unreadable)?;
        if read == 0 {
            return Step::value(json!({ "content": found, "more": false }));
        }
        if read as u64 > MAX_TEXT_BYTES {
            let message = format!(
                "line {number} has more than {MAX_TEXT_BYTES} bytes; read JSON with `as: json` and `at`, or split other \
                 files into shorter lines first"
            );
            return Err(Failure::new("file_too_large", message));
        }
        if number >= window.from {
            bytes += read as u64;
            if found.len() as u64 == window.limit || bytes > MAX_TEXT_BYTES {
                return Step::value(json!({ "content": found, "more": true }));
            }
            let end = line.strip_suffix(b"\n").map_or(line.as_slice(), |line| line.strip_suffix(b"\r").unwrap_or(line));
            let line = std::str::from_utf8(end)
                .map_err(|_| Failure::new("not_text", format!("line {number} of the file is not UTF-8")))?;
            found.push(Value::from(line));
        }
        number += 1;
    }
}

fn unreadable(error: std::io::Error) -> Failure {
    Failure::new("file_failed", format!("cannot read the file: {error}"))
}
