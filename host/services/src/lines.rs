//! Reads lines of bytes, up to a maximum length.

use std::{io, mem};

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

/// One line, without its line end.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    /// The complete line.
    Whole(Vec<u8>),
    /// The beginning of the line, up to the limit. The remaining bytes of the line are skipped.
    Cut(Vec<u8>),
}

/// Reads lines from a stream.
pub struct Lines<R> {
    reader: BufReader<R>,
    line: Vec<u8>,
    limit: usize,
    skipping: bool,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    /// Creates a reader of lines of at most `limit` bytes.
    pub fn new(reader: R, limit: usize) -> Lines<R> {
        Lines { reader: BufReader::new(reader), line: Vec::new(), limit, skipping: false }
    }

    /// Returns the next line, or `None` at the end. Dropping the future loses no bytes. Bytes after the last line end
    /// are ignored.
    pub async fn next(&mut self) -> io::Result<Option<Line>> {
        loop {
            let bytes = self.reader.fill_buf().await?;
            if bytes.is_empty() {
                return Ok(None);
            }
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let piece = &bytes[..end.unwrap_or(bytes.len())];
            let room = self.limit - self.line.len();
            let cut = !self.skipping && piece.len() > room;
            if !self.skipping {
                self.line.extend_from_slice(&piece[..piece.len().min(room)]);
            }
            let used = piece.len() + usize::from(end.is_some());
            self.reader.consume(used);
            let skipped = self.skipping;
            self.skipping = (self.skipping || cut) && end.is_none();
            if cut {
                return Ok(Some(Line::Cut(mem::take(&mut self.line))));
            }
            if end.is_some() && !skipped {
                return Ok(Some(Line::Whole(mem::take(&mut self.line))));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Line, Lines};

    async fn lines(text: &[u8]) -> Vec<Line> {
        let mut lines = Lines::new(text, 4);
        let mut found = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            found.push(line);
        }
        found
    }

    #[tokio::test]
    async fn lines_are_whole_or_cut() {
        let whole = |text: &str| Line::Whole(text.into());
        let cut = |text: &str| Line::Cut(text.into());
        let table: [(&str, Vec<Line>); 7] = [
            ("", vec![]),
            ("ab\n", vec![whole("ab")]),
            ("ab\n\ncd\n", vec![whole("ab"), whole(""), whole("cd")]),
            ("abcd\n", vec![whole("abcd")]),
            ("abcde\nf\n", vec![cut("abcd"), whole("f")]),
            ("abcdefgh", vec![cut("abcd")]),
            ("ab", vec![]),
        ];
        for (text, expected) in table {
            assert_eq!(lines(text.as_bytes()).await, expected, "{text:?}");
        }
    }

    #[tokio::test]
    async fn pieces_may_end_anywhere() {
        use tokio::io::AsyncWriteExt;

        let text = b"abcdefgh\nij\n";
        for cut in 0..=text.len() {
            let (mut write, read) = tokio::io::duplex(64);
            let mut lines = Lines::new(read, 4);
            let reading =
                async { (lines.next().await.unwrap(), lines.next().await.unwrap(), lines.next().await.unwrap()) };
            let writing = async {
                write.write_all(&text[..cut]).await.unwrap();
                tokio::task::yield_now().await;
                write.write_all(&text[cut..]).await.unwrap();
                drop(write);
            };
            let (found, ()) = tokio::join!(reading, writing);
            assert_eq!(found, (Some(Line::Cut(b"abcd".into())), Some(Line::Whole(b"ij".into())), None), "cut at {cut}");
        }
    }
}
