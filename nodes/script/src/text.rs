//! The text of a script, limited in depth by the sandbox's stack.
//!
//! The parser is recursive and reads the text while it descends. So the depth of the stack at each read shows how deep
//! the text is nested, for brackets, blocks and operators alike.

use std::{
    cell::Cell,
    hint::black_box,
    io::{self, Read},
};

use flowcell_sdk::{Failure, Result};
use serde_json::json;

use crate::input::Input;

/// Maximum number of bytes of the stack that parsing may use. The whole stack has 2 MiB.
const MAX_PARSER_STACK_BYTES: usize = 1792 << 10;

/// The offset in bytes at which the text was nested too deeply; `None` if it was not.
#[derive(Default)]
pub(crate) struct Depth(Cell<Option<usize>>);

/// A text that is being read.
pub(crate) struct Text<'a> {
    left: &'a [u8],
    read: usize,
    /// The address of the stack when parsing began.
    base: usize,
    depth: &'a Depth,
}

impl Depth {
    /// Returns a reader of the text for the parser. Call the parser in the same function, because the reader measures
    /// the stack from there.
    pub(crate) fn new_reader<'a>(&'a self, text: &'a str) -> Text<'a> {
        Text { left: text.as_bytes(), read: 0, base: stack_address(), depth: self }
    }

    /// Checks that the parser could read the whole text.
    pub(crate) fn check(&self, input: &Input) -> Result<()> {
        let Some(read) = self.0.get() else { return Ok(()) };
        let before = &input.text[..input.text.floor_char_boundary(read)];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count().max(1);
        let message = format!(
            "the script is nested too deeply: reduce nested brackets, blocks, functions or operators \
             ({}:{line}:{column})",
            input.name
        );
        Err(Failure::new("limit_exceeded", message).details(json!({ "line": line, "column": column })))
    }
}

impl Read for Text<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.base.abs_diff(stack_address()) > MAX_PARSER_STACK_BYTES {
            self.depth.0.set(Some(self.read));
            return Err(io::Error::other("it is nested too deeply"));
        }
        let count = self.left.read(buffer)?;
        self.read += count;
        Ok(count)
    }
}

/// The approximate address of the top of the stack.
#[inline(never)]
fn stack_address() -> usize {
    let here = 0_u8;
    black_box(&raw const here).addr()
}
