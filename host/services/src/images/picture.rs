//! Detects the format of an image by its first bytes.

/// Returns the media type and the file extension of an image, or `None` for an unknown format.
fn detect_format(bytes: &[u8]) -> Option<(&'static str, &'static str)> {
    let at = |from: usize, mark: &[u8]| bytes.get(from..).is_some_and(|rest| rest.starts_with(mark));
    match () {
        () if at(0, b"\x89PNG\r\n\x1a\n") => Some(("image/png", "png")),
        () if at(0, b"\xff\xd8\xff") => Some(("image/jpeg", "jpg")),
        () if at(0, b"GIF8") => Some(("image/gif", "gif")),
        () if at(0, b"RIFF") && at(8, b"WEBP") => Some(("image/webp", "webp")),
        () if at(4, b"ftypavif") => Some(("image/avif", "avif")),
        () => None,
    }
}

/// Returns the media type of an image: PNG, JPEG, GIF, WebP or AVIF. Returns `None` for any other format.
pub fn media_type(bytes: &[u8]) -> Option<&'static str> {
    detect_format(bytes).map(|(mime, _)| mime)
}

/// Returns the file extension for these bytes; `bin` for an unknown format.
pub(super) fn file_extension(bytes: &[u8]) -> &'static str {
    detect_format(bytes).map_or("bin", |(_, ending)| ending)
}

#[cfg(test)]
mod tests {
    use super::media_type;

    #[test]
    fn first_bytes_identify_the_image_format() {
        let cases: [(&[u8], Option<&str>); 7] = [
            (b"\x89PNG\r\n\x1a\n\0", Some("image/png")),
            (b"\xff\xd8\xff\xe0", Some("image/jpeg")),
            (b"GIF89a", Some("image/gif")),
            (b"RIFF\0\0\0\0WEBPVP8", Some("image/webp")),
            (b"\0\0\0\x1cftypavif", Some("image/avif")),
            (b"RIFF\0\0\0\0WAVE", None),
            (b"", None),
        ];
        for (bytes, expected) in cases {
            assert_eq!(media_type(bytes), expected, "{bytes:?}");
        }
    }
}
