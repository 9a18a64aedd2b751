//! Hands the text of a script to the parser, and stops it before nested code overflows the sandbox's stack.
//!
//! The parser is recursive and reads the text while it descends. So the use of the stack at each read shows how deep
//! the text is nested at this point. This covers brackets, blocks and operators alike.

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

/// The byte offset at which the text was nested too deeply; `None` if the parser has not stopped for this reason.
#[derive(Default)]
pub(crate) struct Depth(Cell<Option<usize>>);

/// A reader that returns a text piece by piece, and fails if the stack has grown too much since the start.
pub(crate) struct Text<'a> {
    left: &'a [u8],
    read: usize,
    /// The memory address of the top of the stack when parsing began.
    base: usize,
    depth: &'a Depth,
}

impl Depth {
    /// Returns a reader of the text for the parser. Call the parser in the function that calls this one, because the
    /// reader measures the growth of the stack from here.
    pub(crate) fn new_reader<'a>(&'a self, text: &'a str) -> Text<'a> {
        Text { left: text.as_bytes(), read: 0, base: stack_address(), depth: self }
    }

    /// Returns the failure `limit_exceeded`, with line and column, if the text was nested too deeply for the parser.
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

/// Returns the approximate memory address of the top of the stack.
#[inline(never)]
fn stack_address() -> usize {
    let here = 0_u8;
    black_box(&raw const here).addr()
}
