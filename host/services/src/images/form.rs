//! Forms with files in them (`multipart/form-data`).

/// A form under construction.
pub(super) struct Form {
    boundary: String,
    bytes: Vec<u8>,
}

impl Form {
    /// Creates an empty form. The boundary that separates its fields must not occur inside a field. Therefore the
    /// boundary derives from `secret`, a text that the author of the fields does not know.
    pub(super) fn new(secret: &str) -> Form {
        let plain: String = secret.chars().filter(char::is_ascii_alphanumeric).take(48).collect();
        Form { boundary: format!("flowcell-{plain}"), bytes: Vec::new() }
    }

    /// Adds a text field. Names consist of letters, digits and `_`.
    pub(super) fn add_text(&mut self, name: &str, text: &str) {
        self.add_part(&format!("name=\"{name}\""), None, text.as_bytes());
    }

    /// Adds a file field.
    pub(super) fn add_file(&mut self, name: &str, file: &str, mime: &str, bytes: &[u8]) {
        self.add_part(&format!("name=\"{name}\"; filename=\"{file}\""), Some(mime), bytes);
    }

    fn add_part(&mut self, about: &str, mime: Option<&str>, bytes: &[u8]) {
        let mime = mime.map_or_else(String::new, |mime| format!("content-type: {mime}\r\n"));
        let head = format!("--{}\r\ncontent-disposition: form-data; {about}\r\n{mime}\r\n", self.boundary);
        self.bytes.extend_from_slice(head.as_bytes());
        self.bytes.extend_from_slice(bytes);
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// Completes the form. Returns its media type, which names the boundary, and its bytes.
    pub(super) fn finish(mut self) -> (String, Vec<u8>) {
        self.bytes.extend_from_slice(format!("--{}--\r\n", self.boundary).as_bytes());
        (format!("multipart/form-data; boundary={}", self.boundary), self.bytes)
    }
}
