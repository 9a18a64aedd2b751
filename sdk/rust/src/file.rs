//! Reads file values, such as `{ "kind": "file", "fileId": … }` in an input or an answer. They hold content that is too
//! large for a text.

use std::io;

use serde_json::Value;

use crate::{
    failure::{Failure, Result},
    wit::flowcell::node::context,
};

/// Bytes that one call to the host fetches.
const PIECE: u32 = 1 << 20;

/// A file value, read in pieces of at most 1 MiB. Needs no grant.
///
/// If the host fails, reading ends with an [`io::Error`], and [`Reader::take_failure`] returns the host's failure.
#[derive(Debug)]
pub struct Reader {
    file: String,
    piece: Vec<u8>,
    /// Bytes of the piece that the caller has read.
    used: usize,
    /// The offset of the next piece.
    offset: u64,
    failure: Option<Failure>,
}

/// Returns true if a value is a file value.
pub fn is_file(value: &Value) -> bool {
    value["kind"] == "file" && value["fileId"].is_string()
}

/// Refuses a file value in a field whose content the node needs. Also finds file values inside lists and objects.
/// `name` is the field of the input.
pub fn refuse_file(name: &str, value: &Value) -> Result<()> {
    match value {
        value if is_file(value) => Err(not_here(name)),
        Value::Array(items) => {
            items.iter().enumerate().try_for_each(|(at, item)| refuse_file(&format!("{name}[{at}]"), item))
        }
        Value::Object(members) => {
            members.iter().try_for_each(|(key, member)| refuse_file(&format!("{name}.{key}"), member))
        }
        _ => Ok(()),
    }
}

/// The failure of a node that needs the content of a file value. `name` is the field of the input.
pub fn not_here(name: &str) -> Failure {
    Failure::invalid_input(format!(
        "`{name}` is a file value, which does not contain the content; read it with `file.content`"
    ))
}

impl Reader {
    /// Creates a reader. The first read looks up the file.
    pub fn new(file: &Value) -> Reader {
        Reader { file: file.to_string(), piece: Vec::new(), used: 0, offset: 0, failure: None }
    }

    /// Takes the host's failure that ended reading.
    pub fn take_failure(&mut self) -> Option<Failure> {
        self.failure.take()
    }

    fn fetch(&mut self) -> Result<Vec<u8>> {
        #[cfg(not(target_family = "wasm"))]
        if let Some(given) = crate::script::file_piece(&self.file, self.offset, PIECE) {
            return given;
        }
        context::read_file(&self.file, self.offset, PIECE).map_err(Failure::of_call)
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
                Ok(piece) => {
                    self.offset += piece.len() as u64;
                    (self.piece, self.used) = (piece, 0);
                }
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
