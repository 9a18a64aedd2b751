//! Keys (secrets such as API keys) for the operator's servers: where they come from, and their use in headers.

use std::{env, fmt, fs, path::PathBuf, sync::Arc};

use flowcell_contract::Failure;
use hyper::header::HeaderValue;
use zeroize::Zeroizing;

/// Maximum bytes of a file with a key.
const MAX_KEY_BYTES: usize = 16 * 1024;

/// Minimum length in bytes of a key that is searched for in texts. A shorter key would match too often.
const MIN_SEARCHED_BYTES: usize = 4;

/// Looks up an environment variable by its name. Returns `None` if it is not set.
pub type Environment = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Returns the environment of this process.
pub(crate) fn environment() -> Environment {
    Arc::new(|name| env::var(name).ok())
}

/// The source of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeySource {
    /// A variable of the host's environment.
    Environment(String),
    /// A file that contains only the key.
    File(PathBuf),
}

/// A key: a secret. Its `Debug` form does not contain it, and its memory is cleared when the value is dropped.
#[derive(Clone)]
pub(crate) struct Key(Zeroizing<String>);

impl fmt::Debug for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Key")
    }
}

impl KeySource {
    /// Reads the key. A failure has the given code and names the source, never the content.
    pub(crate) async fn read(&self, environment: &Environment, code: &str) -> Result<Key, Failure> {
        let wrong = |why: &str| Failure::new(code, format!("{}: {why}", self.describe()));
        let text = Zeroizing::new(match self {
            KeySource::Environment(name) => environment(name).ok_or_else(|| wrong("it is not set"))?,
            KeySource::File(path) => {
                let path = path.clone();
                let read = tokio::task::spawn_blocking(move || fs::read_to_string(path)).await;
                read.ok().and_then(Result::ok).ok_or_else(|| wrong("it cannot be read as text"))?
            }
        });
        let text = text.trim();
        match text.len() <= MAX_KEY_BYTES && text.bytes().all(|byte| byte.is_ascii_graphic()) {
            true if text.is_empty() => Err(wrong("it is empty")),
            true => Ok(Key(Zeroizing::new(text.to_owned()))),
            false => Err(wrong("it must be one key of printable ASCII characters")),
        }
    }

    fn describe(&self) -> String {
        match self {
            KeySource::Environment(name) => format!("the key is read from the environment variable {name}"),
            KeySource::File(path) => {
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                format!("the key is read from the file {name}")
            }
        }
    }
}

impl Key {
    /// Checks a key from another source for use in a header. The error describes the problem without the key.
    pub(crate) fn from_text(text: Zeroizing<String>) -> Result<Key, &'static str> {
        match text.len() {
            ..=MAX_KEY_BYTES if text.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(Key(text)),
            ..=MAX_KEY_BYTES => Err("it has characters other than printable ASCII, so it does not fit into a header"),
            _ => Err("it is longer than 16 KiB, so it does not fit into a header"),
        }
    }

    /// Returns a header value of `prefix` and the key, marked as sensitive. `None` if the key does not fit into a
    /// header.
    pub(crate) fn header(&self, prefix: &str) -> Option<HeaderValue> {
        let mut value = HeaderValue::from_str(&self.text(prefix)).ok()?;
        value.set_sensitive(true);
        Some(value)
    }

    /// Returns a text of `prefix` and the key itself.
    pub(crate) fn text(&self, prefix: &str) -> String {
        format!("{prefix}{}", *self.0)
    }

    /// Returns the length of the key in bytes.
    pub(crate) fn length(&self) -> usize {
        self.0.len()
    }

    /// Wraps a password or another secret that a peer may send back. Unlike other keys, it need not fit into a header.
    pub(crate) fn unchecked(text: Zeroizing<String>) -> Key {
        Key(text)
    }

    /// Returns the bytes to search for in answers, or `None` if the key is so short that it would match too often.
    pub(crate) fn searchable(&self) -> Option<&[u8]> {
        Some(self.0.as_bytes()).filter(|key| key.len() >= MIN_SEARCHED_BYTES)
    }
}
