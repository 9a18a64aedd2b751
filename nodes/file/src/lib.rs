//! The pack `file`: reads and writes files in the folder that the operator configures.

mod content;
mod json_part;

use flowcell_expr::Json;
use flowcell_sdk::{file::is_file, files, given, prelude::*};

flowcell_sdk::pack! {
    manifest: "node.yaml",
    "file.content" => content::read,
    "file.read" => read,
    "file.write" => write,
    "file.list" => list,
}

#[derive(Deserialize)]
struct Read {
    path: String,
    #[serde(default, rename = "as")]
    form: Form,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Form {
    #[default]
    Text,
    Json,
    File,
}

/// Reads the content of a file.
fn read(_task: &Task, input: Read) -> Result<Step> {
    let content = match input.form {
        Form::Text => files::read_text(&input.path)?.into(),
        Form::Json => {
            let wrong = |error| Failure::new("invalid_json", format!("`{}` is not JSON: {error}", input.path));
            let text = files::read_text(&input.path)?;
            let value = serde_json::from_str(&text).map_err(wrong)?;
            Json::check_numbers(&text).map_err(wrong)?;
            value
        }
        Form::File => files::read_file(&input.path)?,
    };
    Step::value(json!({ "content": content }))
}

#[derive(Deserialize)]
struct Write {
    path: String,
    #[serde(default, deserialize_with = "given")]
    content: Option<Value>,
}

/// Replaces a file with a text, with the content of a file value, or with another value as JSON.
fn write(_task: &Task, input: Write) -> Result<Step> {
    let path = &input.path;
    let size = match input.content {
        None => return Err(Failure::invalid_input("input: `content` is missing")),
        Some(Value::String(text)) => files::write_text(path, &text)?,
        Some(content) if is_file(&content) => files::write_file(path, &content)?,
        Some(content) => files::write_text(path, &format!("{content}\n"))?,
    };
    Step::value(json!({ "path": path, "size": size }))
}

#[derive(Deserialize)]
struct List {
    #[serde(default = "top_folder")]
    path: String,
}

fn top_folder() -> String {
    ".".into()
}

/// Lists a folder.
fn list(_task: &Task, input: List) -> Result<Step> {
    let entries = files::list(&input.path)?;
    Step::value(json!({ "count": entries.len(), "entries": entries }))
}

#[cfg(test)]
mod tests;
