//! The standard output and standard error of a guest: limited in size, and split into lines.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::io::AsyncWrite;
use wasmtime_wasi::{
    cli::{IsTerminal, StdoutStream},
    p2::{OutputStream, Pollable, StreamError, StreamResult},
};

use crate::{Limits, failure::Stop, text::single_line};

/// The maximum number of bytes from the end of standard error that a trap's message shows.
const MAX_TRAP_TEXT_BYTES: usize = 1024;
/// The maximum length of a line, in bytes. Longer lines are cut.
const MAX_LINE_BYTES: usize = 8 << 10;

/// The standard output and standard error of one attempt.
pub(crate) struct Stdio {
    out: Capture,
    err: Capture,
}

impl Stdio {
    pub(super) fn new(limits: &Limits) -> Stdio {
        Stdio { out: Capture::new(limits), err: Capture::new(limits) }
    }

    pub(super) fn out(&self) -> Capture {
        self.out.clone()
    }

    pub(super) fn err(&self) -> Capture {
        self.err.clone()
    }

    /// Returns the lines that became complete since this method was last called, each with its log level. If `end` is
    /// true, it also returns a last line without a line break.
    pub(super) fn take_lines(&self, end: bool) -> Vec<(&'static str, String)> {
        let mut lines = Vec::new();
        for (level, capture) in [("info", &self.out), ("warn", &self.err)] {
            capture.0.lock().take_lines(end, |line| lines.push((level, line)));
        }
        lines
    }

    /// Returns the end of standard error as one harmless line, or `None` if the guest wrote nothing to it.
    pub(crate) fn last_words(&self) -> Option<String> {
        let buffer = self.err.0.lock();
        let words = single_line(&String::from_utf8_lossy(&buffer.tail));
        (!words.is_empty()).then_some(words)
    }
}

/// One stream. All handles that the guest opens write to the same buffer.
#[derive(Clone)]
pub(super) struct Capture(Arc<Mutex<Buffer>>);

struct Buffer {
    /// The bytes that were not taken as lines yet.
    pending: Vec<u8>,
    /// The last bytes of the stream, taken or not.
    tail: Vec<u8>,
    /// The number of bytes that the buffer still accepts. It drops the rest.
    room: usize,
    /// The number of writes that the guest may still make. Empty ones count, since they cost the host time too.
    writes: u32,
}

impl Capture {
    fn new(limits: &Limits) -> Capture {
        // One more byte than the log accepts, so that the log notices that it is full.
        let room = limits.log_bytes + 1;
        Capture(Arc::new(Mutex::new(Buffer { pending: Vec::new(), tail: Vec::new(), room, writes: limits.calls })))
    }
}

impl Buffer {
    fn write(&mut self, bytes: &[u8]) -> StreamResult<()> {
        self.writes = self.writes.checked_sub(1).ok_or_else(|| {
            StreamError::Trap(Stop::limit_exceeded(
                "the node wrote to its standard output more often than one attempt may",
            ))
        })?;
        let kept = &bytes[..bytes.len().min(self.room)];
        self.room -= kept.len();
        self.pending.extend_from_slice(kept);
        self.tail.extend_from_slice(&bytes[bytes.len().saturating_sub(MAX_TRAP_TEXT_BYTES)..]);
        let surplus = self.tail.len().saturating_sub(MAX_TRAP_TEXT_BYTES);
        self.tail.drain(..surplus);
        Ok(())
    }

    fn take_lines(&mut self, end: bool, mut each: impl FnMut(String)) {
        let mut from = 0;
        while from < self.pending.len() {
            let rest = &self.pending[from..];
            let line = &rest[..rest.len().min(MAX_LINE_BYTES)];
            let (line, next) = match line.iter().position(|byte| *byte == b'\n') {
                Some(at) => (&line[..at], at + 1),
                None if end || line.len() == MAX_LINE_BYTES => (line, line.len()),
                None => break,
            };
            each(String::from_utf8_lossy(line).trim_end_matches('\r').to_owned());
            from += next;
        }
        self.pending.drain(..from);
    }
}

impl IsTerminal for Capture {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Capture {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        // Only a later version of WASI uses this form, and the engine does not link it.
        Box::new(tokio::io::sink())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

impl OutputStream for Capture {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.0.lock().write(&bytes)
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(64 << 10)
    }
}

#[wasmtime_wasi::async_trait]
impl Pollable for Capture {
    async fn ready(&mut self) {}
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    fn lines(stdio: &Stdio, end: bool) -> Vec<String> {
        stdio.take_lines(end).into_iter().map(|(_, line)| line).collect()
    }

    #[test]
    fn lines_are_taken_whole() {
        let stdio = Stdio::new(&Limits::default());
        stdio.out().0.lock().write(b"one\ntw").unwrap();
        assert_eq!(lines(&stdio, false), ["one"]);
        stdio.out().0.lock().write(b"o \x1b[31m\0\r\nlast").unwrap();
        assert_eq!(lines(&stdio, false), ["two \x1b[31m\0"]);
        assert_eq!(lines(&stdio, true), ["last"]);
    }

    #[test]
    fn the_last_words_are_one_short_line() {
        let stdio = Stdio::new(&Limits::default());
        assert_eq!(stdio.last_words(), None);
        let long = "x".repeat(1 << 20) + "\n\x1b panicked:\n\tat the end\n";
        stdio.err().0.lock().write(long.as_bytes()).unwrap();
        let words = stdio.last_words().unwrap();
        assert!(words.ends_with("x panicked: at the end") && words.len() <= MAX_TRAP_TEXT_BYTES, "{words}");
    }

    #[test]
    fn writes_are_counted_even_if_they_are_empty() {
        let stdio = Stdio::new(&Limits { calls: 3, log_bytes: 2, ..Limits::default() });
        let out = stdio.out();
        assert!((0..3).all(|_| out.0.lock().write(b"ab").is_ok()));
        assert!(out.0.lock().write(b"").is_err());
        assert_eq!(out.0.lock().pending.len(), 3);
    }
}
