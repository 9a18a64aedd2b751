//! The text of a script, which is read no deeper than the sandbox's stack allows.
//!
//! The parser calls itself for whatever is inside of something else, and reads on while it goes down. So the stack that is in
//! use when it reads tells how deep it is, whatever brackets, blocks or operators the text is nested with.

use std::{
    cell::Cell,
    hint::black_box,
    io::{self, Read},
};

use flowcell_sdk::{Failure, Result};
use serde_json::json;

use crate::input::Input;

/// Bytes that reading may take of the stack, which has 2 MiB.
const STACK: usize = 1792 << 10;

/// Where a text was too deep, if it was.
#[derive(Default)]
pub(crate) struct Depth(Cell<Option<usize>>);

/// A text that is being read.
pub(crate) struct Text<'a> {
    left: &'a [u8],
    read: usize,
    /// Where the stack was when this began.
    base: usize,
    depth: &'a Depth,
}

impl Depth {
    /// The text for a parser that is called from here.
    pub(crate) fn watch<'a>(&'a self, text: &'a str) -> Text<'a> {
        Text { left: text.as_bytes(), read: 0, base: stack(), depth: self }
    }

    /// Whether the text of a script could be read to its end.
    pub(crate) fn check(&self, input: &Input) -> Result<()> {
        let Some(read) = self.0.get() else { return Ok(()) };
        let before = &input.text[..input.text.floor_char_boundary(read)];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count().max(1);
        let message = format!(
            "the script is too deep to be read: brackets, blocks, functions or operators are inside each other ({}:{line}:{column})",
            input.name
        );
        Err(Failure::new("limit_exceeded", message).details(json!({ "line": line, "column": column })))
    }
}

impl Read for Text<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.base.abs_diff(stack()) > STACK {
            self.depth.0.set(Some(self.read));
            return Err(io::Error::other("it is too deep"));
        }
        let count = self.left.read(buffer)?;
        self.read += count;
        Ok(count)
    }
}

/// Where the stack is, about.
#[inline(never)]
fn stack() -> usize {
    let here = 0_u8;
    black_box(&raw const here).addr()
}
