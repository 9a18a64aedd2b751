//! Values: shared immutable JSON, or blobs that nodes see as file references.

use std::{
    fmt, io,
    sync::{Arc, OnceLock},
};

use flowcell_expr::Json;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The approximate maximum size of a value as JSON text, in bytes. A value may contain the same part many times but
/// stores it once. So without this limit, a few nodes could build a value whose text is too large to write.
pub const VALUE_BYTES: u64 = 64 << 20;

/// The media type of content for which no media type is known.
pub const BINARY: &str = "application/octet-stream";

/// One immutable value. It stores JSON text, a JSON tree, or both, and creates the missing form on first use.
#[derive(Clone)]
pub struct Value(Arc<Forms>);

/// The forms of a value. At least one of them is always set.
struct Forms {
    text: OnceLock<Box<str>>,
    tree: OnceLock<Json>,
}

/// A reference to bytes that are stored beside the journal, by content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BlobRef {
    /// The SHA-256 of the content, in hexadecimal.
    pub file_id: Arc<str>,
    /// The number of bytes.
    pub size: u64,
    /// The media type of the content.
    pub mime: Arc<str>,
}

impl Value {
    /// Parses one JSON text. The value stores the tree but not the text, because outputs live as long as their run and
    /// few are read as text.
    pub fn parse(text: impl AsRef<str>) -> Result<Value, serde_json::Error> {
        Json::parse(text.as_ref()).map(Value::from)
    }

    /// Parses a JSON text that this program wrote, without a limit on the number of JSON values.
    pub fn restore(text: impl AsRef<str>) -> Result<Value, serde_json::Error> {
        Json::restore(text.as_ref()).map(Value::from)
    }

    /// Returns the value `null`.
    pub fn null() -> Value {
        Value::from(Json::Null)
    }

    /// Returns the value as a tree. The first call may parse the text.
    pub fn json(&self) -> &Json {
        self.0.tree.get_or_init(|| {
            let text = self.0.text.get().map(AsRef::as_ref).unwrap_or("null");
            Json::restore(text).unwrap_or_default()
        })
    }

    /// Returns the value as compact JSON text. The first call may serialise the tree.
    pub fn text(&self) -> &str {
        self.0.text.get_or_init(|| self.0.tree.get().unwrap_or(&Json::Null).to_text().into())
    }

    /// Writes the value as compact JSON text. If the value has no text yet, it does not store one.
    pub fn write_to(&self, mut out: impl io::Write) -> io::Result<()> {
        match self.0.text.get() {
            Some(text) => out.write_all(text.as_bytes()),
            None => Ok(serde_json::to_writer(out, self.json())?),
        }
    }

    /// Returns the blob to which this value refers; `None` unless the value is a file reference `{ "kind": "file",
    /// "fileId": … }`.
    pub fn blob(&self) -> Option<BlobRef> {
        let json = self.json();
        if json.get("kind")?.as_str()? != "file" {
            return None;
        }
        Some(BlobRef {
            file_id: json.get("fileId")?.as_str()?.into(),
            size: json.get("size").and_then(Json::as_u64).unwrap_or(0),
            mime: json.get("mime").and_then(Json::as_str).unwrap_or(BINARY).into(),
        })
    }
}

impl From<BlobRef> for Value {
    fn from(blob: BlobRef) -> Value {
        Value::from(Json::object([
            ("kind", Json::from("file")),
            ("fileId", Json::from(blob.file_id)),
            ("size", Json::from(blob.size)),
            ("mime", Json::from(blob.mime)),
        ]))
    }
}

impl From<Json> for Value {
    fn from(tree: Json) -> Value {
        Value(Arc::new(Forms { text: OnceLock::new(), tree: tree.into() }))
    }
}

impl Default for Value {
    fn default() -> Value {
        Value::null()
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Value) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.json() == other.json()
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.text())
    }
}

impl fmt::Display for Value {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.text())
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.json().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
        Json::deserialize(deserializer).map(Value::from)
    }
}
