//! Draws a profile as a flame graph: each function is a box over the functions that it calls, as wide as its samples.

use std::fmt::Write as _;

use flowcell::Profile;

use super::tree::{Call, calls};
use crate::terminal::inert;

/// The width of the picture, and the height of a row, in pixels.
const WIDTH: f64 = 1200.0;
const ROW: f64 = 18.0;
/// The smallest width of a box in pixels. Thinner ones are left out.
const MIN_WIDTH: f64 = 0.5;
/// The width of a letter in pixels.
const LETTER: f64 = 6.6;
/// The colours of neighbouring boxes.
const COLOURS: [&str; 5] = ["#e8a33d", "#e07b39", "#d9603b", "#e8b84a", "#dd8f5a"];

struct Picture {
    boxes: String,
    rows: usize,
    drawn: usize,
    left_out: usize,
    samples: f64,
}

/// Returns the picture as SVG.
pub(super) fn picture(title: &str, profile: &Profile) -> String {
    let root = calls(profile);
    let samples = root.total.max(1) as f64;
    let mut picture = Picture { boxes: String::new(), rows: 0, drawn: 0, left_out: 0, samples };
    picture.add_calls(&root, 0.0, 0);
    let height = ROW * (picture.rows as f64 + 2.5);
    let heading = match picture.left_out {
        0 => format!("{title}: {} samples", root.total),
        left => format!("{title}: {} samples; {left} narrow boxes are left out", root.total),
    };
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" font-family=\"monospace\" font-size=\"11\">\n\
         <text x=\"4\" y=\"14\" font-size=\"13\">{}</text>\n{}</svg>\n",
        escaped(&heading),
        picture.boxes
    )
}

impl Picture {
    /// Draws the calls of a function side by side, from `left` on, and below them their calls.
    fn add_calls(&mut self, call: &Call<'_>, left: f64, row: usize) {
        let mut left = left;
        for (name, inner) in &call.calls {
            let width = WIDTH * inner.total as f64 / self.samples;
            if width < MIN_WIDTH {
                self.left_out += 1;
            } else {
                self.add_box(name, inner.total, (left, width), row);
                self.add_calls(inner, left, row + 1);
            }
            left += width;
        }
    }

    fn add_box(&mut self, name: &str, samples: u64, (left, width): (f64, f64), row: usize) {
        self.rows = self.rows.max(row + 1);
        let colour = COLOURS[self.drawn % COLOURS.len()];
        self.drawn += 1;
        let top = ROW * (row as f64 + 1.5);
        let percent = 100.0 * samples as f64 / self.samples;
        let letters = ((width - 6.0) / LETTER).max(0.0) as usize;
        let shown: String = if letters < 3 { String::new() } else { name.chars().take(letters).collect() };
        // Writing to a string does not fail.
        let _ = writeln!(
            self.boxes,
            "<g><title>{name} ({samples} samples, {percent:.1} %)</title><rect x=\"{left:.1}\" y=\"{top}\" \
             width=\"{width:.1}\" height=\"{}\" fill=\"{colour}\" stroke=\"#fff\"/><text x=\"{:.1}\" \
             y=\"{}\">{shown}</text></g>",
            ROW - 1.0,
            left + 3.0,
            top + 12.0,
            name = escaped(name),
            shown = escaped(&shown),
        );
    }
}

/// Returns a text for XML, with control characters as people can read them.
fn escaped(text: &str) -> String {
    inert(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_their_place_in_the_picture() {
        let hostile = escaped("</title><script>a && b</script>\u{1b}[2J\"");
        assert!(!hostile.contains('<') && !hostile.contains('"') && !hostile.contains('\u{1b}'), "{hostile}");
        let empty = picture("a<b", &Profile::default());
        assert!(empty.contains("a&lt;b: 0 samples") && empty.trim_end().ends_with("</svg>"), "{empty}");
    }
}
