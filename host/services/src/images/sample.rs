//! Creates the placeholder image that simulated endpoints return.

use std::io::Write;

use flate2::{Compression, Crc, write::ZlibEncoder};

/// Returns a PNG of one pixel in this colour.
pub fn sample(colour: [u8; 3]) -> Vec<u8> {
    let mut png = b"\x89PNG\r\n\x1a\n".to_vec();
    // One pixel by one, 8 bits for each of three colours, not interlaced.
    write_chunk(&mut png, b"IHDR", &[0, 0, 0, 1, 0, 0, 0, 1, 8, 2, 0, 0, 0]);
    let [red, green, blue] = colour;
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::none());
    // A byte with the filter type precedes the pixels of each line; 0 means none. Writing to memory cannot fail.
    let written = encoder.write_all(&[0, red, green, blue]).and_then(|()| encoder.finish());
    write_chunk(&mut png, b"IDAT", &written.unwrap_or_default());
    write_chunk(&mut png, b"IEND", &[]);
    png
}

fn write_chunk(png: &mut Vec<u8>, kind: &[u8; 4], content: &[u8]) {
    let mut sum = Crc::new();
    sum.update(kind);
    sum.update(content);
    // All content here is at most a few bytes long.
    png.extend((content.len() as u32).to_be_bytes());
    png.extend(kind);
    png.extend(content);
    png.extend(sum.sum().to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::sample;

    #[test]
    fn a_sample_has_the_bytes_of_a_valid_png() {
        let known = "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de";
        let png = sample([1, 2, 3]);
        let hex: String = png.iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(hex.starts_with(known), "{hex}");
        assert!(hex.ends_with("0000000049454e44ae426082"), "{hex}");
        assert_ne!(sample([1, 2, 4]), png);
    }
}
