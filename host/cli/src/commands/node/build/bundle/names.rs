//! The names of asynchronous functions, which esbuild's helpers lose.
//!
//! esbuild replaces the body of such a function by a generator without a name, and stacks show the generator. The names are
//! set when the function is called, because a name in the code would hide an outer variable from the body.

use std::fmt::Write;

/// The helpers that get a generator. They have the same parameters.
const HELPERS: [&str; 2] = ["__async", "__asyncGenerator"];

/// The function that a helper begins with. It is the last statement of a bundle, so that lines keep their numbers.
const SET_NAME: &str = "function __flowcellName(helper, generator) { const value = helper.of; helper.of = undefined; if \
                        (value !== undefined) Object.defineProperty(generator, \"name\", { value }); }\n";

/// Returns a bundle whose asynchronous functions have names in stacks. The lines keep their numbers. Functions whose name is
/// not on the line of their beginning stay without one.
pub(super) fn with_names(code: &str) -> String {
    let mut named = String::with_capacity(code.len() + code.len() / 16);
    let mut previous = "";
    for line in code.split_inclusive('\n') {
        match HELPERS.iter().find_map(|helper| with_name(line, previous, helper)) {
            Some(line) => named.push_str(&line),
            None => named.push_str(line),
        }
        previous = line;
    }
    named.push_str(SET_NAME);
    named
}

/// Returns the line with a call of a helper, or with its definition, if there is one.
fn with_name(line: &str, previous: &str, helper: &str) -> Option<String> {
    if let Some(rest) = line.strip_prefix(&format!("var {helper} = (__this, __arguments, generator) => {{")) {
        let set = format!("__flowcellName({helper}, generator);");
        return Some(format!("var {helper} = (__this, __arguments, generator) => {{ {set}{rest}"));
    }
    let (before, arguments) = line.split_once(&format!("{helper}("))?;
    let this = ["this", "null"].into_iter().find(|this| arguments.starts_with(&format!("{this}, ")))?;
    let header = if before.trim() == "return" { previous.trim_end().strip_suffix('{')? } else { before };
    let name = name_in(header)?;
    let mut named = String::new();
    write!(named, "{before}{helper}(({helper}.of = \"{name}\", {this})").ok()?;
    named.push_str(&arguments[this.len()..]);
    Some(named)
}

/// Returns the name of the function whose code begins with this text, up to its parameters or its arrow.
fn name_in(header: &str) -> Option<&str> {
    let header = header.trim_end();
    let (header, is_arrow) = header.strip_suffix("=>").map_or((header, false), |header| (header.trim_end(), true));
    let inside = header.strip_suffix(')')?;
    let mut depth = 1;
    let open = inside.rfind(|letter: char| {
        depth += i32::from(letter == ')') - i32::from(letter == '(');
        depth == 0
    })?;
    let head = inside[..open].trim_end();
    let function = head.strip_suffix("function").filter(|rest| rest.is_empty() || rest.ends_with([' ', '(']));
    match function {
        Some(before) => assigned(before.trim_end()),
        None if is_arrow => assigned(head),
        None => last_name(head),
    }
}

/// Returns the name that a function is assigned to: `name =`, or `name:` in an object.
fn assigned(text: &str) -> Option<&str> {
    if let Some(target) = text.strip_suffix('=') {
        return last_name(target.trim_end());
    }
    let key = text.strip_suffix(':')?.trim_end();
    let name = last_name(key)?;
    let before = key[..key.rfind(name)?].trim_end_matches('"').trim_end();
    // Behind `?`, the text in front of a colon is no key.
    (before.is_empty() || before.ends_with(['{', ','])).then_some(name)
}

/// Returns the identifier, or the text in quotes, at the end.
fn last_name(text: &str) -> Option<&str> {
    let is_plain = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '$' | '#');
    let name = match text.strip_suffix('"') {
        Some(inside) => &inside[inside.rfind('"')? + 1..],
        None => {
            &text[text
                .rfind(|letter| !is_plain(letter))
                .map_or(0, |at| at + text[at..].chars().next().map_or(1, char::len_utf8))..]
        }
    };
    let is_shown = |letter| is_plain(letter) || matches!(letter, '.' | '-' | '/' | ' ');
    (!name.is_empty() && name.chars().all(is_shown)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_have_the_names_of_their_code() {
        for (header, name) in [
            ("function report(_0) ", Some("report")),
            ("  get(x) ", Some("get")),
            ("  static make() ", Some("make")),
            ("  #own(a, b = (1)) ", Some("#own")),
            ("var o = { run() ", Some("run")),
            ("}, \"q.r\"() ", Some("q.r")),
            ("var list = function() ", Some("list")),
            ("var list = (_0) => ", Some("list")),
            ("  field = () => ", Some("field")),
            ("}, key: () => ", Some("key")),
            ("var node = pack({ \"bis.x\": (_0) => ", Some("bis.x")),
            ("a.größe = () => ", Some("größe")),
            ("  (function() ", None),
            ("  return () => ", None),
            ("  items.map((item) => ", None),
            ("  x = isGood ? a : () => ", None),
            ("  [key]() ", None),
            (") ", None),
            ("", None),
        ] {
            assert_eq!(name_in(header), name, "{header}");
        }
    }

    #[test]
    fn bundles_keep_their_lines() {
        let code = "var __async = (__this, __arguments, generator) => {\n  return 1;\n};\nfunction report(_0) {\n  return \
                    __async(this, [_0], function* () {\n  });\n}\nuse(() => __async(null, null, function* () {\n}));\n";
        let named = with_names(code);
        assert_eq!(named.lines().count(), code.lines().count() + 1);
        assert!(
            named.starts_with(
                "var __async = (__this, __arguments, generator) => { __flowcellName(__async, generator);\n"
            )
        );
        assert!(named.contains("return __async((__async.of = \"report\", this), [_0], function* () {\n"), "{named}");
        assert!(named.contains("use(() => __async(null, null, function* () {\n"), "{named}");
    }
}
