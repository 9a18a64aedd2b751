//! The pack `csv`: converts between tables as text and lists of objects.

use std::collections::BTreeMap;

use csv::{ErrorKind, Position, ReaderBuilder, StringRecord, WriterBuilder};
use flowcell_sdk::prelude::*;
use serde_json::{Map, Number};

#[derive(Deserialize)]
struct Read {
    text: String,
    #[serde(default)]
    types: BTreeMap<String, Type>,
    #[serde(default = "comma")]
    delimiter: char,
}

/// The type of a column.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Type {
    Text,
    Integer,
    Number,
    Boolean,
}

#[derive(Deserialize)]
struct Write {
    rows: Vec<Map<String, Value>>,
    columns: Option<Vec<String>>,
    #[serde(default = "comma")]
    delimiter: char,
}

fn comma() -> char {
    ','
}

/// Returns an object for each row.
fn read(input: Read) -> Result<Value> {
    let mut reader = ReaderBuilder::new().delimiter(delimiter(input.delimiter)?).from_reader(input.text.as_bytes());
    let columns = reader.headers()?.clone();
    if let Some(column) = input.types.keys().find(|column| !columns.iter().any(|there| there == column.as_str())) {
        return Err(Failure::new("csv_column", format!("unknown column `{column}`")));
    }
    let types: Vec<_> = columns.iter().map(|column| input.types.get(column).copied().unwrap_or(Type::Text)).collect();
    let rows = reader.records().map(|record| row(&columns, &types, &record.map_err(broken)?));
    let rows = rows.collect::<Result<Vec<_>>>()?;
    Ok(json!({ "columns": columns.iter().collect::<Vec<_>>(), "rows": rows }))
}

fn row(columns: &StringRecord, types: &[Type], record: &StringRecord) -> Result<Map<String, Value>> {
    let fields = columns.iter().zip(types).zip(record);
    let member = |((column, kind), field): ((&str, &Type), &str)| {
        let value = kind.value(field).ok_or_else(|| {
            let details = json!({ "line": record.position().map(Position::line), "column": column });
            Failure::new("csv_field", format!("`{field}` is not a {}", kind.name())).details(details)
        })?;
        Ok((column.to_owned(), value))
    };
    fields.map(member).collect()
}

impl Type {
    fn name(self) -> &'static str {
        match self {
            Type::Text => "text",
            Type::Integer => "integer",
            Type::Number => "number",
            Type::Boolean => "boolean",
        }
    }

    /// Parses a field. Returns `None` if it is not a value of this type. An empty field is null, except in a text
    /// column.
    fn value(self, field: &str) -> Option<Value> {
        match self {
            Type::Text => Some(field.into()),
            _ if field.is_empty() => Some(Value::Null),
            Type::Integer => field.parse::<i64>().ok().map(Value::from),
            Type::Number => Number::from_f64(field.parse().ok()?).map(Value::Number),
            Type::Boolean => field.parse::<bool>().ok().map(Value::from),
        }
    }
}

/// Writes objects as a table.
fn write(input: Write) -> Result<Value> {
    let first = || input.rows.first().map(|row| row.keys().cloned().collect());
    let columns: Vec<String> = input.columns.clone().or_else(first).unwrap_or_default();
    let mut writer = WriterBuilder::new().delimiter(delimiter(input.delimiter)?).from_writer(Vec::new());
    if !columns.is_empty() {
        writer.write_record(&columns)?;
    }
    for row in &input.rows {
        writer.write_record(columns.iter().map(|column| row.get(column).map(field).unwrap_or_default()))?;
    }
    let text = writer.into_inner().map_err(|error| Failure::new("csv_write", error))?;
    Ok(json!({ "text": String::from_utf8(text)? }))
}

fn field(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn delimiter(delimiter: char) -> Result<u8> {
    let wrong = || Failure::new("csv_delimiter", format!("{delimiter:?} cannot separate fields"));
    let byte = u8::try_from(delimiter).ok().filter(u8::is_ascii).ok_or_else(wrong)?;
    if matches!(byte, b'"' | b'\r' | b'\n') { Err(wrong()) } else { Ok(byte) }
}

fn broken(error: csv::Error) -> Failure {
    let line = error.position().map(Position::line);
    match error.kind() {
        ErrorKind::UnequalLengths { expected_len, len, .. } => {
            let message = format!("a row has {len} fields, but the first has {expected_len}");
            Failure::new("csv_row", message).details(json!({ "line": line }))
        }
        _ => error.into(),
    }
}

flowcell_sdk::pack! { manifest: "node.yaml", "csv.read" => read, "csv.write" => write }
