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

/// Checks that a text can be the key in a header. The error is part of a sentence without the text.
pub(crate) fn check_header(text: &str) -> Result<(), &'static str> {
    match text.len() {
        ..=MAX_KEY_BYTES if text.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(()),
        ..=MAX_KEY_BYTES => {
            Err("it has a space, a line break or a character that is not ASCII, so it does not fit into a header")
        }
        _ => Err("it is longer than 16 KiB, so it does not fit into a header"),
    }
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
    /// Reads a key for a header. A failure has the given code and names the source, never the content.
    pub(crate) async fn read(&self, environment: &Environment, code: &str) -> Result<Key, Failure> {
        let text = self.read_text(environment, code).await?;
        Key::from_text(text).map_err(|why| Failure::new(code, format!("{}: {why}", self.describe())))
    }

    /// Reads a key of any characters, without the spaces and line breaks around it. A failure is as for
    /// [`read`](Self::read).
    pub(crate) async fn read_text(&self, environment: &Environment, code: &str) -> Result<Zeroizing<String>, Failure> {
        let wrong = |why: &str| Failure::new(code, format!("{}: {why}", self.describe()));
        let text = Zeroizing::new(match self {
            KeySource::Environment(name) => environment(name).ok_or_else(|| wrong("it is not set"))?,
            KeySource::File(path) => {
                let path = path.clone();
                let read = tokio::task::spawn_blocking(move || fs::read_to_string(path)).await;
                read.ok().and_then(Result::ok).ok_or_else(|| wrong("it cannot be read as text"))?
            }
        });
        match text.trim() {
            "" => Err(wrong("it is empty")),
            text if text.len() > MAX_KEY_BYTES => Err(wrong("it is longer than 16 KiB")),
            text => Ok(Zeroizing::new(text.to_owned())),
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
    /// Checks a key for use in a header. The error describes the problem without the key.
    pub(crate) fn from_text(text: Zeroizing<String>) -> Result<Key, &'static str> {
        check_header(&text)?;
        Ok(Key(text))
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

    /// Wraps a password or another secret that a peer may send back. Unlike other keys, it need not fit into a header.
    pub(crate) fn unchecked(text: Zeroizing<String>) -> Key {
        Key(text)
    }

    /// Returns the bytes to search for in answers, or `None` if the key is so short that it would match too often.
    pub(crate) fn searchable(&self) -> Option<&[u8]> {
        Some(self.0.as_bytes()).filter(|key| key.len() >= MIN_SEARCHED_BYTES)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn a_key_of_a_header_has_no_spaces_and_a_text_may_have_any_characters() {
        let long = "x".repeat(MAX_KEY_BYTES + 1);
        let in_header = "so it does not fit into a header";
        for (given, text, header) in [
            ("a-key\n", Ok("a-key"), Ok("a-key")),
            ("  a key  ", Ok("a key"), Err(in_header)),
            ("schl\u{fc}ssel", Ok("schl\u{fc}ssel"), Err(in_header)),
            ("a\nb", Ok("a\nb"), Err(in_header)),
            (" \n", Err("it is empty"), Err("it is empty")),
            (&*long, Err("it is longer than 16 KiB"), Err("it is longer than 16 KiB")),
        ] {
            let own = given.to_owned();
            let environment: Environment = Arc::new(move |_| Some(own.clone()));
            let source = KeySource::Environment("HOOK".into());
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let read = runtime.block_on(source.read_text(&environment, "wrong")).map(|read| read.to_string());
            let key = runtime.block_on(source.read(&environment, "wrong")).map(|key| key.text(""));
            for (read, expected) in [(read, text), (key, header)] {
                match expected {
                    Ok(expected) => assert_eq!(read.unwrap(), expected),
                    Err(why) => {
                        let failure = read.unwrap_err();
                        let says = failure.message.ends_with(why) && failure.message.contains("HOOK");
                        assert!(&*failure.code == "wrong" && says, "{given:?}: {failure:?}");
                    }
                }
            }
        }
    }
}
