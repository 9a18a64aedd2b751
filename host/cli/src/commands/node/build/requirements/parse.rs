//! Reads `requirements.txt` and its lock, in a small part of the formats that pip reads. Whatever pip would read in another
//! way is refused: options, addresses, paths and variables. pip gets the texts that are written here, and never the files.

/// Maximum number of nested parentheses of a marker.
const MAX_DEPTH: usize = 16;
/// Maximum number of characters of a refused line in a message.
const MAX_SHOWN: usize = 80;

/// The variables of markers.
const VARIABLES: [&str; 12] = [
    "os_name",
    "sys_platform",
    "platform_machine",
    "platform_python_implementation",
    "platform_release",
    "platform_system",
    "platform_version",
    "python_version",
    "python_full_version",
    "implementation_name",
    "implementation_version",
    "extra",
];
/// The operators of versions and markers. An operator comes before its own beginning.
const OPERATORS: [&str; 8] = ["===", "==", "~=", "!=", "<=", ">=", "<", ">"];

/// A refused line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LineError {
    /// The number of the line, from 1.
    pub(super) line: usize,
    /// The rest of a sentence that begins with the line.
    pub(super) why: String,
}

/// Reads `requirements.txt`. Returns its requirements without comments, one on each line.
pub(super) fn requirements(text: &str) -> Result<String, LineError> {
    let mut all = String::new();
    for (at, line) in text.strip_prefix('\u{feff}').unwrap_or(text).split('\n').enumerate() {
        let asked = without_comment(line).trim_matches([' ', '\t', '\r']);
        if asked.is_empty() {
            continue;
        }
        let refuse = |why: String| LineError { line: at + 1, why };
        if asked.starts_with('-') {
            return Err(refuse(format!("has the option `{}`", shown(asked))));
        }
        let read = requirement(asked)
            .ok_or_else(|| refuse(format!("has `{}`, which is not a name with versions and a marker", shown(asked))))?;
        all.push_str(&read);
        all.push('\n');
    }
    Ok(all)
}

/// Reads the lines of a lock after its first one. Returns them as they are.
pub(super) fn locked(text: &str) -> Result<&str, LineError> {
    let mut lines: Vec<&str> = text.split('\n').collect();
    // The last line ends with a line break.
    lines.pop_if(|last| last.is_empty());
    match lines.iter().position(|line| !is_locked(line)) {
        None => Ok(text),
        Some(at) => Err(LineError {
            line: at + 2,
            why: format!("has `{}`, which is not `NAME==VERSION --hash=sha256:DIGEST`", shown(lines[at])),
        }),
    }
}

/// Returns whether a text is a name of a package.
pub(super) fn is_name(text: &str) -> bool {
    let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    ends(bytes.first()) && ends(bytes.last()) && bytes.iter().all(|byte| is_of_name(*byte))
}

/// Returns whether a text is a version of a package.
pub(super) fn is_version(text: &str) -> bool {
    text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric()) && text.bytes().all(is_of_version)
}

fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"._-".contains(&byte)
}

fn is_of_version(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"._+!*-".contains(&byte)
}

fn is_locked(line: &str) -> bool {
    let Some((package, digest)) = line.split_once(" --hash=sha256:") else { return false };
    let Some((name, version)) = package.split_once("==") else { return false };
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    is_name(name) && is_version(version) && digest.len() == 64 && digest.bytes().all(is_digit)
}

/// A comment begins at the start of a line or after white space.
fn without_comment(line: &str) -> &str {
    let starts = |at: &usize| line[..*at].chars().next_back().is_none_or(|before| before == ' ' || before == '\t');
    line.match_indices('#').map(|(at, _)| at).find(starts).map_or(line, |at| &line[..at])
}

fn shown(line: &str) -> String {
    line.chars().take(MAX_SHOWN).collect()
}

/// Reads `name[extras] versions ; marker`, and writes it again with one space between its parts.
fn requirement(text: &str) -> Option<String> {
    let mut rest = Rest(text);
    let name = rest.take_while(is_of_name);
    if !is_name(name) {
        return None;
    }
    let mut written = name.to_owned();
    if rest.skip("[") {
        let extras = rest.until(']')?;
        let extras: Vec<_> = extras.split(',').map(|extra| extra.trim_matches([' ', '\t'])).collect();
        if !extras.iter().all(|extra| is_name(extra)) {
            return None;
        }
        written.push_str(&format!("[{}]", extras.join(",")));
    }
    let mut separator = " ";
    while let Some(operator) = rest.operator() {
        rest.space();
        let version = rest.take_while(is_of_version);
        if !is_version(version) {
            return None;
        }
        written.push_str(&format!("{separator}{operator} {version}"));
        separator = ", ";
        if !rest.skip(",") {
            break;
        }
        rest.space();
        // A comma is between two versions.
        rest.clone().operator()?;
    }
    if rest.skip(";") {
        written.push_str(" ;");
        rest.marker(&mut written, 0)?;
    }
    rest.space();
    rest.0.is_empty().then_some(written)
}

/// The rest of a line that is read from its start.
#[derive(Clone)]
struct Rest<'a>(&'a str);

impl<'a> Rest<'a> {
    fn space(&mut self) {
        self.0 = self.0.trim_start_matches([' ', '\t']);
    }

    /// Skips white space, and then a text. Returns whether the text is there.
    fn skip(&mut self, text: &str) -> bool {
        self.space();
        let rest = self.0.strip_prefix(text);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    /// Skips white space, and then a word that another letter does not continue.
    fn skip_word(&mut self, word: &str) -> bool {
        self.space();
        let rest = self.0.strip_prefix(word).filter(|rest| !rest.bytes().next().is_some_and(is_of_name));
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    fn take_while(&mut self, is_part: fn(u8) -> bool) -> &'a str {
        let end = self.0.bytes().position(|byte| !is_part(byte)).unwrap_or(self.0.len());
        let (taken, rest) = self.0.split_at(end);
        self.0 = rest;
        taken
    }

    /// Takes the text before a character, and skips the character.
    fn until(&mut self, end: char) -> Option<&'a str> {
        let (taken, rest) = self.0.split_once(end)?;
        self.0 = rest;
        Some(taken)
    }

    fn operator(&mut self) -> Option<&'static str> {
        OPERATORS.into_iter().find(|operator| self.skip(operator))
    }

    /// Reads comparisons that `and` and `or` join, and writes each part after a space.
    fn marker(&mut self, written: &mut String, depth: usize) -> Option<()> {
        loop {
            if self.skip("(") {
                if depth == MAX_DEPTH {
                    return None;
                }
                written.push_str(" (");
                self.marker(written, depth + 1)?;
                if !self.skip(")") {
                    return None;
                }
                written.push_str(" )");
            } else {
                self.value(written)?;
                let comparison = match self.operator() {
                    Some(operator) => operator,
                    None if self.skip_word("in") => "in",
                    None if self.skip_word("not") && self.skip_word("in") => "not in",
                    None => return None,
                };
                written.push(' ');
                written.push_str(comparison);
                self.value(written)?;
            }
            match ["and", "or"].into_iter().find(|word| self.skip_word(word)) {
                Some(word) => written.push_str(&format!(" {word}")),
                None => return Some(()),
            }
        }
    }

    /// Reads a variable of markers, or a text in quotation marks. White space in a text is refused, because pip separates
    /// options by it also there.
    fn value(&mut self, written: &mut String) -> Option<()> {
        for mark in ['"', '\''] {
            if self.skip(mark.encode_utf8(&mut [0; 4])) {
                let text = self.until(mark)?;
                written.push_str(&format!(" {mark}{text}{mark}"));
                return text.bytes().all(is_of_version).then_some(());
            }
        }
        let name = self.take_while(is_of_name);
        written.push_str(&format!(" {name}"));
        VARIABLES.contains(&name).then_some(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn requirements_are_written_again_in_one_form() {
        let text = "\u{feff}# What the nodes import.\r\njinja2==3.1.6\r\n\n  six  # small\nrequests[socks, use_chardet]>=2.32,<3\n\
                    a~=1.0;python_version<'3.14' and (os_name == \"nt\" or extra not in \"x\")\nb===1+local.2\nc # \u{c}-e x";
        let expected = "jinja2 == 3.1.6\nsix\nrequests[socks,use_chardet] >= 2.32, < 3\n\
                        a ~= 1.0 ; python_version < '3.14' and ( os_name == \"nt\" or extra not in \"x\" )\n\
                        b === 1+local.2\nc\n";
        assert_eq!(requirements(text).unwrap(), expected);
        // What was written is read in the same way.
        assert_eq!(requirements(expected).unwrap(), expected);
        assert_eq!(requirements("").unwrap(), "");
    }

    #[test]
    fn lines_that_pip_reads_in_another_way_are_refused() {
        let deep = format!("a ; {}os_name == 'nt'{}", "(".repeat(MAX_DEPTH + 1), ")".repeat(MAX_DEPTH + 1));
        for line in [
            "x @ http://127.0.0.1/${SECRET}/x-1.0-py3-none-any.whl",
            "x @ file:///etc/x.tar.gz",
            "https://example.com/x.whl",
            "git+https://example.com/x",
            "./x",
            "../x-1.0.whl",
            "/etc/x.zip",
            "x==${VERSION}",
            "x==1.0 \u{c} --extra-index-url http://127.0.0.1/",
            "x\u{c}--extra-index-url http://127.0.0.1/",
            "x\u{85}-e y",
            "x\u{2028}-e y",
            "x\u{b}y",
            "x\ry",
            "\u{a0}--index-url http://127.0.0.1/",
            "x==1.0 --hash=sha256:00",
            "x --config-settings a=b",
            "x ; python_version > '3' --hash=sha256:00",
            "x ; python_version > '3 -e y'",
            "x ; python_version > '${A}'",
            "x ; python_version",
            "x ; 3 > python_version",
            "x ;",
            "x ; unknown == 'a'",
            "x==1.0 \\",
            "x==",
            "x==1,",
            "x==-1",
            "x[y",
            "x[-y]",
            "x y",
            "x-",
            "_x",
            "é",
            deep.as_str(),
        ] {
            let error = requirements(&format!("six\n{line}\n")).unwrap_err();
            assert_eq!(error.line, 2, "{line}");
        }
        for option in
            ["--index-url http://127.0.0.1/", "\u{feff}--extra-index-url http://127.0.0.1/", " -e .", "\t-r b"]
        {
            let error = requirements(option).unwrap_err();
            assert!(error.why.starts_with("has the option `-"), "{error:?}");
        }
    }

    #[test]
    fn a_lock_has_versions_and_hashes_only() {
        let digest = "0a".repeat(32);
        let good =
            format!("Jinja2==3.1.6 --hash=sha256:{digest}\npython-dateutil==2.9.0.post0 --hash=sha256:{digest}\n");
        assert_eq!(locked(&good).unwrap(), good);
        assert_eq!(locked("").unwrap(), "");
        for line in [
            "--index-url http://127.0.0.1/".to_owned(),
            "six==1.0".to_owned(),
            "six==1.0 --hash=sha256:00".to_owned(),
            format!("six==1.0 --hash=sha256:{digest} --hash=sha256:{digest}"),
            format!("six>=1.0 --hash=sha256:{digest}"),
            format!("six==1.0\u{c}-e --hash=sha256:{digest}"),
            format!("x @ http://127.0.0.1/x==1 --hash=sha256:{digest}"),
            format!("six==1.0 --hash=sha256:{digest}\r"),
            format!("-e==1.0 --hash=sha256:{digest}"),
            String::new(),
        ] {
            let error = locked(&format!("{good}{line}\n")).unwrap_err();
            assert_eq!(error.line, 4, "{line}");
        }
    }
}
