//! The lines of a bundle and where they come from, in a form that the SDK reads when a node fails.

use std::path::Path;

use serde::Deserialize;
use serde_json::json;

use super::inputs::without_dots;

#[derive(Deserialize)]
struct SourceMap {
    sources: Vec<String>,
    mappings: String,
}

/// The origin of a line: the index of its source, and the line in it, from 0.
type Place = (i64, i64);

/// Returns the statement that a bundle ends with. It has the names of the sources relative to one of the folders `within`,
/// and one entry for each line; `sdk/js/src/lines.js` describes the entries. The map is in `folder`.
pub(super) fn statement(map: &str, folder: &Path, within: &[&Path]) -> Result<String, serde_json::Error> {
    let map: SourceMap = serde_json::from_str(map)?;
    let sources: Vec<String> = map.sources.iter().map(|source| shown(&folder.join(source), within)).collect();
    let lines = packed(&places(&map.mappings));
    let lines = json!({ "sources": sources, "lines": lines });
    Ok(format!("globalThis[Symbol.for(\"flowcell.lines\")] = {lines};\n"))
}

/// Returns a text with the places of the author in place of those of the bundle `name`, such as `name:3:7`. A place that no
/// source has stays as it is. The map is in `folder`; the names of sources are relative to one of the folders `within`.
pub(super) fn placed(
    text: &str,
    name: &str,
    map: &str,
    folder: &Path,
    within: &[&Path],
) -> Result<String, serde_json::Error> {
    let map: SourceMap = serde_json::from_str(map)?;
    let places = places(&map.mappings);
    let source = |index: i64| usize::try_from(index).ok().and_then(|index| map.sources.get(index));
    let mut placed = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(name) {
        let (before, after) = (&rest[..at], &rest[at + name.len()..]);
        let digits = |text: &str| {
            text.strip_prefix(':')
                .map_or(0, |text| text.len() - text.trim_start_matches(|letter: char| letter.is_ascii_digit()).len())
        };
        let line = digits(after);
        let number =
            after.get(1..=line).and_then(|line| line.parse::<usize>().ok()).and_then(|line| line.checked_sub(1));
        let place = number.and_then(|line| *places.get(line)?).and_then(|(index, line)| Some((source(index)?, line)));
        let Some((source, author_line)) = place else {
            placed.push_str(&rest[..at + name.len()]);
            rest = after;
            continue;
        };
        // The path of the bundle goes, too, and so does the column, which is one of the bundle.
        let path = before.rfind(|letter: char| letter.is_whitespace() || letter == '(').map_or(0, |end| end + 1);
        placed.push_str(&before[..path]);
        placed.push_str(&format!("{}:{}", shown(&folder.join(source), within), author_line + 1));
        rest = &after[1 + line..];
        rest = match digits(rest) {
            0 => rest,
            column => &rest[1 + column..],
        };
    }
    placed.push_str(rest);
    Ok(placed)
}

/// Returns a bundle without the paths of the inputs `outside`, which lead out of the project: those of esbuild's comments,
/// and of the keys of its modules. The lines stay as they are otherwise.
pub(super) fn without_paths(code: &str, outside: &[String]) -> String {
    let is_outside = |path: &str| outside.iter().any(|outside| outside == path);
    let name = |path: &str| path.rsplit(['/', '\\']).next().unwrap_or_default().to_owned();
    let line = |line: &str| {
        if let Some(path) = line.trim_start().strip_prefix("// ").filter(|path| is_outside(path)) {
            return format!("// {}", name(path));
        }
        let key = line.trim_start().strip_prefix('"').and_then(|rest| rest.split_once("\"("));
        match key.filter(|(path, _)| is_outside(path)) {
            Some((path, rest)) => format!("    \"{}\"({rest}", name(path)),
            None => line.to_owned(),
        }
    };
    code.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

/// Returns the name of a source. Of a source outside of the folders it is the file name alone, because packs are published,
/// and must not contain paths of the author's machine.
fn shown(path: &Path, within: &[&Path]) -> String {
    let plain = without_dots(path);
    let inside = within.iter().find_map(|folder| plain.strip_prefix(folder).ok());
    inside.or(plain.file_name().map(Path::new)).unwrap_or(&plain).display().to_string()
}

/// Decodes the mappings of a source map. Returns the place of the first segment of each line that has a source.
fn places(mappings: &str) -> Vec<Option<Place>> {
    let (mut source, mut line) = (0, 0);
    let mut places = Vec::new();
    for segments in mappings.split(';') {
        let mut first = None;
        for segment in segments.split(',') {
            // The generated column, the source, its line, its column, and a name; all are steps.
            if let [_, source_step, line_step, ..] = numbers(segment)[..] {
                source += source_step;
                line += line_step;
                first = first.or(Some((source, line)));
            }
        }
        places.push(first);
    }
    places
}

/// Decodes the numbers of a segment: Base64 digits with five bits each, the lowest first, a sixth bit for "more follows",
/// and the sign in the lowest bit of the number.
fn numbers(segment: &str) -> Vec<i64> {
    let (mut numbers, mut number, mut shift) = (Vec::new(), 0_i64, 0_u32);
    for digit in segment.bytes() {
        let digit = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            _ => 63,
        };
        number |= i64::from(digit & 31).checked_shl(shift).unwrap_or(0);
        shift += 5;
        if digit & 32 == 0 {
            numbers.push(if number & 1 == 0 { number >> 1 } else { -(number >> 1) });
            (number, shift) = (0, 0);
        }
    }
    numbers
}

/// Writes places as steps from one to the next.
fn packed(places: &[Option<Place>]) -> String {
    let (mut source, mut line) = (0, 0);
    let mut text = String::new();
    for (index, place) in places.iter().enumerate() {
        if index > 0 {
            text.push(';');
        }
        let Some((to_source, to_line)) = *place else { continue };
        if to_source != source {
            base36(&mut text, to_source - source);
            text.push(',');
        }
        base36(&mut text, to_line - line);
        (source, line) = (to_source, to_line);
    }
    text
}

fn base36(text: &mut String, number: i64) {
    if number < 0 {
        text.push('-');
    }
    let mut digits = Vec::new();
    let mut rest = number.unsigned_abs();
    loop {
        digits.push(char::from_digit(u32::try_from(rest % 36).unwrap_or(0), 36).unwrap_or('0'));
        rest /= 36;
        if rest == 0 {
            break;
        }
    }
    text.extend(digits.into_iter().rev());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_have_the_first_place_of_each_line() {
        // Line 1: source 0, line 0. Line 2: nothing. Line 3: two segments, source 1, lines 16 and 15.
        assert_eq!(places("AAAA;;ACgBA,EADA"), [Some((0, 0)), None, Some((1, 16))]);
        assert_eq!(places("AAAA;EAgkBC"), [Some((0, 0)), Some((0, 576))]);
    }

    #[test]
    fn a_bundle_names_no_folder_outside_of_the_project() {
        let outside = ["../../home/ada/c.cjs", "../x.js", "(disabled):../ada/off.js", "/home/ada/d.js", "../t.txt?raw"];
        let code = r#"// node_modules/a/b.js
// ../../home/ada/c.cjs
var c = __commonJS({
  "../../home/ada/c.cjs"(exports, module) {
  }
});
  "../x.js"() {
// (disabled):../ada/off.js
  "(disabled):../ada/off.js"() {
// /home/ada/d.js
// ../t.txt?raw
  "(disabled):fs"() {
"#;
        let plain = without_paths(code, &outside.map(str::to_owned));
        let expected = r#"// node_modules/a/b.js
// c.cjs
var c = __commonJS({
    "c.cjs"(exports, module) {
  }
});
    "x.js"() {
// off.js
    "off.js"() {
// d.js
// t.txt?raw
  "(disabled):fs"() {
"#;
        assert_eq!(plain, expected);
        // Lines of texts look like comments and keys, too.
        let text = "let text = `\n// https://example.com/a\n// ../ada\n  \"../ada\"()\n`;\n";
        assert_eq!(without_paths(text, &outside.map(str::to_owned)), text);
    }

    #[test]
    fn places_in_messages_are_those_of_the_author() {
        // Line 1 has no source, line 2 is line 577 of the first source.
        let map = r#"{ "sources": ["../home/ada/shop/nodes.js"], "mappings": ";AAgkBA" }"#;
        let placed = |text| placed(text, "b.js", map, Path::new("/out"), &[Path::new("/home/ada/shop")]).unwrap();
        assert_eq!(placed("at f (/out/b.js:2:31)\nat b.js:2\n"), "at f (nodes.js:577)\nat nodes.js:577\n");
        for same in
            ["", "no place", "at /out/b.js:1:3", "b.js", "b.js:", "b.js:x", "b.js:0:1", "b.js:9999999999999999999999"]
        {
            assert_eq!(placed(same), same);
        }
    }

    #[test]
    fn places_are_steps() {
        assert_eq!(packed(&[Some((0, 0)), None, Some((1, 40)), Some((1, 3))]), "0;;1,14;-11");
    }

    #[test]
    fn sources_are_relative_to_the_project() {
        let within = [Path::new("/home/ada/shop"), Path::new("/srv/tree")];
        let shown = |source| shown(&Path::new("/tmp/out").join(source), &within);
        assert_eq!(shown("../../home/ada/shop/nodes.ts"), "nodes.ts");
        assert_eq!(shown("../../srv/tree/sdk/js/index.js"), "sdk/js/index.js");
        assert_eq!(shown("../../home/ada/private/x.js"), "x.js");
        // The map of a package may name anything.
        assert_eq!(shown("../../../../../../etc/passwd"), "passwd");
        assert_eq!(shown("../../home/ada/shop/../private/x.js"), "x.js");
        assert_eq!(shown("../../home/ada/shop2/x.js"), "x.js");
        assert_eq!(shown("file:///home/ada/private/x.js"), "x.js");
    }
}
