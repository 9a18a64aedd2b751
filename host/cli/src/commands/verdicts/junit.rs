//! Writes results as JUnit XML, for continuous integration.

use std::fmt::Write as _;

use super::Verdict;

/// Returns the report, with one `testcase` for each case.
pub(super) fn report(verdicts: &[Verdict]) -> String {
    let failed = verdicts.iter().filter(|verdict| !verdict.wrong.is_empty()).count();
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    // Writing to a string does not fail.
    let _ = writeln!(xml, "<testsuite name=\"flowcell\" tests=\"{}\" failures=\"{failed}\">", verdicts.len());
    for Verdict { of, case, took, wrong } in verdicts {
        let (of, case, took) = (escape(of), escape(case), took.as_secs_f64());
        let _ = write!(xml, "  <testcase classname=\"{of}\" name=\"{case}\" time=\"{took:.3}\"");
        if wrong.is_empty() {
            xml.push_str("/>\n");
        } else {
            let _ = writeln!(xml, ">\n    <failure>{}</failure>\n  </testcase>", escape(&wrong.join("\n")));
        }
    }
    xml.push_str("</testsuite>\n");
    xml
}

/// Escapes a text for XML. Control characters other than line breaks and tabs become U+FFFD, since XML 1.0 does not
/// allow them even if they are escaped.
fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '&' => safe.push_str("&amp;"),
            '"' => safe.push_str("&quot;"),
            '\n' | '\t' => safe.push(c),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => safe.push('\u{fffd}'),
            c => safe.push(c),
        }
    }
    safe
}
