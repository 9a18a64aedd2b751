//! Detects media types by content and by name.

use flowcell_contract::BINARY;
use flowcell_services::images;

/// The file name endings with their media types. The first ending of a type is its usual one.
const KINDS: [(&str, &str); 28] = [
    ("png", "image/png"),
    ("jpg", "image/jpeg"),
    ("jpeg", "image/jpeg"),
    ("gif", "image/gif"),
    ("webp", "image/webp"),
    ("avif", "image/avif"),
    ("svg", "image/svg+xml"),
    ("pdf", "application/pdf"),
    ("json", "application/json"),
    ("jsonl", "application/jsonl"),
    ("yaml", "application/yaml"),
    ("yml", "application/yaml"),
    ("xml", "application/xml"),
    ("txt", "text/plain"),
    ("md", "text/markdown"),
    ("csv", "text/csv"),
    ("html", "text/html"),
    ("css", "text/css"),
    ("js", "text/javascript"),
    ("mp3", "audio/mpeg"),
    ("wav", "audio/wav"),
    ("ogg", "audio/ogg"),
    ("mp4", "video/mp4"),
    ("webm", "video/webm"),
    ("zip", "application/zip"),
    ("gz", "application/gzip"),
    ("tar", "application/x-tar"),
    ("wasm", "application/wasm"),
];

/// Returns the media type that the content of a file shows. If the content shows none, returns the media type of the
/// name's ending, or else `application/octet-stream`.
pub fn media_type(bytes: &[u8], name: &str) -> String {
    let ending = name.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase());
    let by_name = || KINDS.iter().find(|(known, _)| ending.as_deref() == Some(known)).map(|(_, mime)| *mime);
    images::media_type(bytes).or_else(by_name).unwrap_or(BINARY).to_owned()
}

/// Returns the usual ending of the media type that the content of a file shows. If the content shows none, returns the
/// usual ending of the media type `mime`.
pub fn ending(bytes: &[u8], mime: &str) -> &'static str {
    let essence = mime.split(';').next().unwrap_or_default().trim();
    let mime = images::media_type(bytes).unwrap_or(essence);
    KINDS.iter().find(|(_, known)| *known == mime).map_or("bin", |(ending, _)| ending)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_content_decides_the_media_type_before_the_name() {
        let png: &[u8] = b"\x89PNG\r\n\x1a\n";
        for (bytes, name, mime) in [
            (png, "a.jpg", "image/png"),
            (b"{}", "a.JSON", "application/json"),
            (b"{}", "json", BINARY),
            (b"", "a.unheard", BINARY),
            (b"a,b", "rows.csv", "text/csv"),
        ] {
            assert_eq!(media_type(bytes, name), mime, "{name}");
        }
        assert_eq!((ending(png, "text/plain"), ending(b"x", "text/plain; charset=utf-8")), ("png", "txt"));
        assert_eq!((ending(b"x", "image/jpeg"), ending(b"x", "a/b")), ("jpg", "bin"));
    }
}
