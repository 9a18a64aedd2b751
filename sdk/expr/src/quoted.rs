//! Quoted texts in expressions and in JSON.

/// Returns the position of the quote that ends a quoted text; `None` if the text is not closed. `start` is the
/// position after the opening quote.
pub(crate) fn end_of_quoted(bytes: &[u8], start: usize, quote: u8) -> Option<usize> {
    let mut at = start;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 1,
            byte if byte == quote => return Some(at),
            _ => {}
        }
        at += 1;
    }
    None
}
