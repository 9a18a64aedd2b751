//! Reads and writes file values, such as `{ "kind": "file", "fileId": … }` in an input or an answer. A file value refers to
//! content that is too large for a text.

mod writer;

use std::io;

use serde_json::Value;

use crate::{
    failure::{Failure, Result},
    wit::flowcell::node::context,
};

pub use self::writer::Writer;

/// Maximum size in bytes of a piece. One call to the host returns one piece.
const PIECE: u32 = 1 << 20;

/// Reads the content of a file value in pieces of at most 1 MiB. No grant is needed.
///
/// If the host fails, reading ends with an [`io::Error`], and [`Reader::take_failure`] returns the host's failure.
#[derive(Debug)]
pub struct Reader {
    file: String,
    piece: Vec<u8>,
    /// Number of bytes of `piece` that the caller has read.
    used: usize,
    /// The offset of the next piece.
    offset: u64,
    failure: Option<Failure>,
}

/// Returns true if a value is a file value.
pub fn is_file(value: &Value) -> bool {
    value["kind"] == "file" && value["fileId"].is_string()
}

/// Returns an error, the failure of [`content_needed`], if `value` is a file value or contains one at any depth. Use
/// this function for fields whose content the node needs. `name` is the name of the field in the input.
pub fn refuse_file(name: &str, value: &Value) -> Result<()> {
    match value {
        value if is_file(value) => Err(content_needed(name)),
        Value::Array(items) => {
            items.iter().enumerate().try_for_each(|(at, item)| refuse_file(&format!("{name}[{at}]"), item))
        }
        Value::Object(members) => {
            members.iter().try_for_each(|(key, member)| refuse_file(&format!("{name}.{key}"), member))
        }
        _ => Ok(()),
    }
}

/// Creates the failure `invalid_input` for a node that needs the content but received a file value. `name` is the
/// name of the field in the input.
pub fn content_needed(name: &str) -> Failure {
    Failure::invalid_input(format!(
        "`{name}` is a file value, which does not contain the content; read it with `file.content`"
    ))
}

impl Reader {
    /// Creates a reader. The first read looks up the file.
    pub fn new(file: &Value) -> Reader {
        Reader { file: file.to_string(), piece: Vec::new(), used: 0, offset: 0, failure: None }
    }

    /// Creates a reader that begins at an offset in bytes.
    pub fn at(file: &Value, offset: u64) -> Reader {
        Reader { offset, ..Reader::new(file) }
    }

    /// Returns the rest of the file in pieces of at most 1 MiB. [`io::BufRead`] reads it in lines.
    pub fn chunks(mut self) -> impl Iterator<Item = Result<Vec<u8>>> {
        let mut has_failed = false;
        std::iter::from_fn(move || {
            if has_failed {
                return None;
            }
            let rest = std::mem::take(&mut self.piece).split_off(std::mem::take(&mut self.used));
            let piece = if rest.is_empty() { self.fetch() } else { Ok(rest) };
            has_failed = piece.is_err();
            piece.map(|piece| Some(piece).filter(|piece| !piece.is_empty())).transpose()
        })
    }

    /// Removes and returns the host's failure that ended reading; none if the host has not failed.
    pub fn take_failure(&mut self) -> Option<Failure> {
        self.failure.take()
    }

    /// Returns the next piece, and moves on to the one after it.
    fn fetch(&mut self) -> Result<Vec<u8>> {
        let piece = self.read_piece()?;
        self.offset += piece.len() as u64;
        Ok(piece)
    }

    fn read_piece(&self) -> Result<Vec<u8>> {
        #[cfg(not(target_family = "wasm"))]
        if let Some(given) = crate::script::file_piece(&self.file, self.offset, PIECE) {
            return given;
        }
        context::read_file(&self.file, self.offset, PIECE).map_err(Failure::from_call)
    }
}

impl io::Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut rest = io::BufRead::fill_buf(self)?;
        let count = io::Read::read(&mut rest, buffer)?;
        io::BufRead::consume(self, count);
        Ok(count)
    }
}

impl io::BufRead for Reader {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.used == self.piece.len() {
            match self.fetch() {
                Ok(piece) => (self.piece, self.used) = (piece, 0),
                Err(failure) => {
                    let told = io::Error::other(failure.message.clone());
                    self.failure = Some(failure);
                    return Err(told);
                }
            }
        }
        Ok(&self.piece[self.used..])
    }

    fn consume(&mut self, count: usize) {
        self.used += count;
    }
}
