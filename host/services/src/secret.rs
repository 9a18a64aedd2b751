//! Keys of the servers that an operator has: where they are, and how they stay out of everything that is told.

use std::{env, fmt, fs, path::PathBuf, sync::Arc};

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD},
};
use flowcell_contract::Failure;
use hyper::header::HeaderValue;
use zeroize::Zeroizing;

/// Bytes of a file with a key, at most.
const MAX_KEY: usize = 16 * 1024;

/// What stands where a key was.
const HIDDEN: &str = "[key]";

/// Shorter keys are not looked for in texts: they would be found in everything.
const MIN_HIDDEN: usize = 4;

/// Looks a variable of the environment up.
pub type Environment = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// The environment of this process.
pub(crate) fn environment() -> Environment {
    Arc::new(|name| env::var(name).ok())
}

/// Where a key is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeySource {
    /// In a variable of the host's environment.
    Environment(String),
    /// In a file, alone.
    File(PathBuf),
}

/// A key. It has no text form, and is cleared when it is dropped.
#[derive(Clone)]
pub(crate) struct Key(Zeroizing<String>);

impl fmt::Debug for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Key")
    }
}

impl KeySource {
    /// Reads the key. What goes wrong has this code and names the place, never the content.
    pub(crate) async fn read(&self, environment: &Environment, code: &str) -> Result<Key, Failure> {
        let wrong = |why: &str| Failure::new(code, format!("{}: {why}", self.place()));
        let text = Zeroizing::new(match self {
            KeySource::Environment(name) => environment(name).ok_or_else(|| wrong("it is not set"))?,
            KeySource::File(path) => {
                let path = path.clone();
                let read = tokio::task::spawn_blocking(move || fs::read_to_string(path)).await;
                read.ok().and_then(Result::ok).ok_or_else(|| wrong("it cannot be read as a text"))?
            }
        });
        let text = text.trim();
        match text.len() <= MAX_KEY && text.bytes().all(|byte| byte.is_ascii_graphic()) {
            true if text.is_empty() => Err(wrong("it is empty")),
            true => Ok(Key(Zeroizing::new(text.to_owned()))),
            false => Err(wrong("it has something else than one key of printable ASCII characters")),
        }
    }

    fn place(&self) -> String {
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
    /// A key that was kept elsewhere, to be put into a header. The error says what is wrong, and not the key.
    pub(crate) fn of(text: Zeroizing<String>) -> Result<Key, &'static str> {
        match text.len() {
            ..=MAX_KEY if text.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(Key(text)),
            ..=MAX_KEY => Err("it has something else than printable ASCII characters, and cannot stand in a header"),
            _ => Err("it is longer than 16 KiB, and cannot stand in a header"),
        }
    }

    /// A header value with the key in it, marked so that it is not printed. None if it cannot stand in a header.
    pub(crate) fn header(&self, prefix: &str) -> Option<HeaderValue> {
        let mut value = HeaderValue::from_str(&self.text(prefix)).ok()?;
        value.set_sensitive(true);
        Some(value)
    }

    /// The key itself, for whom it is meant.
    pub(crate) fn text(&self, prefix: &str) -> String {
        format!("{prefix}{}", *self.0)
    }

    /// How many characters it has.
    pub(crate) fn length(&self) -> usize {
        self.0.len()
    }

    /// A text of the server's without the key, however it is encoded there.
    pub(crate) fn hide_in(&self, text: &str) -> String {
        self.forms().iter().fold(text.to_owned(), |text, form| text.replace(&**form, HIDDEN))
    }

    /// The same of bytes.
    pub(crate) fn hide_in_bytes(&self, bytes: Vec<u8>) -> Vec<u8> {
        self.forms().iter().fold(bytes, |bytes, form| without(bytes, form.as_bytes()))
    }

    /// How the key may stand in what a server says: as it is, in a URL, in JSON, and in base64, also where something stands
    /// before it.
    fn forms(&self) -> Vec<Zeroizing<String>> {
        let key = self.0.as_bytes();
        if key.len() < MIN_HIDDEN {
            return Vec::new();
        }
        let mut forms = vec![
            self.0.to_string(),
            url::form_urlencoded::byte_serialize(key).collect(),
            self.0.replace('\\', "\\\\").replace('"', "\\\""),
            STANDARD_NO_PAD.encode(key),
            URL_SAFE_NO_PAD.encode(key),
        ];
        for skipped in 1..3 {
            let whole = &key[skipped..key.len() - (key.len() - skipped) % 3];
            if whole.len() > MIN_HIDDEN {
                forms.extend([STANDARD_NO_PAD.encode(whole), URL_SAFE_NO_PAD.encode(whole)]);
            }
        }
        forms.sort();
        forms.dedup();
        // What a longer form is made of is not looked for first.
        forms.sort_by_key(|form| std::cmp::Reverse(form.len()));
        forms.into_iter().map(Zeroizing::new).collect()
    }
}

/// Bytes with something else where these were.
fn without(bytes: Vec<u8>, found: &[u8]) -> Vec<u8> {
    let mut kept = Vec::new();
    let mut rest = bytes.as_slice();
    while let Some(at) = rest.windows(found.len()).position(|window| window == found) {
        kept.extend_from_slice(&rest[..at]);
        kept.extend_from_slice(HIDDEN.as_bytes());
        rest = &rest[at + found.len()..];
    }
    if rest.len() == bytes.len() {
        return bytes;
    }
    kept.extend_from_slice(rest);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_hidden_however_it_is_written() {
        let key = Key(Zeroizing::new("s3cr3t/+\"k=ey".into()));
        let encoded = |text: &str| STANDARD_NO_PAD.encode(text);
        let shown = [
            "s3cr3t/+\"k=ey".to_owned(),
            "s3cr3t%2F%2B%22k%3Dey".into(),
            r#"s3cr3t/+\"k=ey"#.into(),
            encoded("s3cr3t/+\"k=ey"),
            URL_SAFE_NO_PAD.encode("s3cr3t/+\"k=ey"),
        ];
        for form in shown {
            let text = format!("a {form} b {form}");
            assert_eq!(key.hide_in(&text), "a [key] b [key]");
            assert_eq!(key.hide_in_bytes(text.into_bytes()), b"a [key] b [key]");
        }
        for before in ["a:", "Bearer ", "xyz"] {
            let text = encoded(&key.text(before));
            assert!(key.hide_in(&text).contains(HIDDEN), "{text}");
        }
        assert_eq!(key.hide_in_bytes(b"nothing".to_vec()), b"nothing");
    }
}
