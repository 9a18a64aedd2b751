//! Explains YAML syntax errors: recognizes common mistakes and suggests a corrected line.
//!
//! The parser reports the token that it expected, but the author of the text needs the correction. An explanation
//! considers only the text around the position, so it is a guess. If no explanation applies, the parser's message is
//! shown.

use crate::{
    diagnostic::sanitized,
    indentation,
    lines::{MAX_LINE_CHARS, line_at, offset, place, write_help},
    yaml::{Span, SyntaxError},
};

/// Returns an explanation of a parser error, or the error itself if none applies.
pub(crate) fn explain(text: &str, error: SyntaxError) -> SyntaxError {
    if error.help.is_some() {
        return error;
    }
    let Some(at) = offset(text, error.span) else { return error };
    let message = error.message.as_str();
    let slip = if message.starts_with("cannot deserialize null into string") {
        null_key(text, at, error.span)
    } else if message.contains("tab") {
        indentation::find_tab(text, error.span)
    } else if message.contains("expected ','") || message.starts_with("illegal placement of ':'") {
        unseparated(text, at).or_else(|| unquoted_colon(text, at))
    } else if message.starts_with("invalid trailing content") {
        missing_colon(text, at).or_else(|| unseparated(text, at))
    } else if message.starts_with("mapping values are not allowed") {
        indentation::missing_space(text, at)
            .or_else(|| unquoted_colon(text, at))
            .or_else(|| indentation::wrong_indentation(text, at))
    } else if message.contains("did not find expected") {
        indentation::wrong_indentation(text, at)
    } else if message.starts_with("unexpected character") || message.starts_with("alias references unknown") {
        unquoted_sign(text, at)
    } else {
        None
    };
    slip.unwrap_or_else(|| SyntaxError { help: advice(text, at, &error.message), ..error })
}

/// Returns a help text for those errors of the parser whose message is clear enough to be shown; `None` for other
/// errors.
fn advice(text: &str, at: usize, message: &str) -> Option<String> {
    let sign = text[at..].chars().next().unwrap_or(' ');
    if message.starts_with("simple key expected ':'") {
        let (word, rest) = rest_of_line(text, at).split_once(' ')?;
        return Some(write_help(&format!("{word}: {}", rest.trim_start())));
    }
    let advice = match message {
        "unclosed quote" => format!("close it with `{sign}`"),
        _ if message.starts_with("unclosed bracket") => format!("close it with `{}`", closing(sign)),
        _ if message.contains("unknown escape") => {
            "in double quotes `\\` starts an escape: write `\\\\`, or put the text in single quotes".to_owned()
        }
        _ if message.starts_with("invalid trailing content") => {
            "end the line after the quote, or put the whole text in quotes".to_owned()
        }
        _ if message.starts_with("duplicate mapping key") => "write it once".to_owned(),
        _ if message.starts_with("anchors and aliases") => {
            "write the value at each place; `flow.defaults` holds what all nodes share, and `flow.input` values for \
             `{{ }}`"
                .to_owned()
        }
        _ if message.starts_with("unsupported tag") => {
            "YAML reads `!` at the start of a value as a tag: put the text in quotes; in conditions write `not`"
                .to_owned()
        }
        _ => return None,
    };
    Some(advice)
}

/// Explains a key that YAML reads as null.
fn null_key(text: &str, at: usize, span: Span) -> Option<SyntaxError> {
    let (word, rest) = rest_of_line(text, at).split_once(':')?;
    // In `{ null: 1, b: 2 }` the line goes on after the value.
    let help = match enclosing(text, at) {
        Some(_) => format!("write `\"{}\": …`", sanitized(word)),
        None => write_help(&format!("\"{word}\":{rest}")),
    };
    Some(SyntaxError {
        span,
        message: format!("YAML reads the key `{}` as null, but a key must be a text", sanitized(word)),
        help: Some(help),
    })
}

fn closing(bracket: char) -> char {
    if bracket == '[' { ']' } else { '}' }
}

fn rest_of_line(text: &str, at: usize) -> &str {
    text[at..].lines().next().unwrap_or_default().trim_end()
}

/// Returns the byte offset and the sign of the innermost bracket that is open at a byte. Brackets in quoted texts
/// count, too, because they are usually closed in the same text.
fn enclosing(text: &str, at: usize) -> Option<(usize, char)> {
    let mut closed = 0usize;
    for (at, sign) in text[..at].char_indices().rev() {
        match sign {
            '}' | ']' => closed += 1,
            '{' | '[' if closed == 0 => return Some((at, sign)),
            '{' | '[' => closed -= 1,
            _ => {}
        }
    }
    None
}

/// Returns the start of the word or quoted text that ends at a byte.
fn word_start(text: &str, end: usize) -> usize {
    let before = &text[..end];
    match before.chars().next_back() {
        Some(quote @ ('"' | '\'')) => before[..end - 1].rfind(quote).unwrap_or(end - 1),
        _ => before
            .char_indices()
            .rev()
            .find(|(_, sign)| !sign.is_alphanumeric() && !matches!(sign, '_' | '-' | '.' | '$'))
            .map_or(0, |(at, sign)| at + sign.len_utf8()),
    }
}

/// Returns the start of the member at which the parser stopped. If the parser stopped at a `:`, the member starts with
/// the key before the `:`.
fn member_start(text: &str, at: usize) -> usize {
    match text[at..].starts_with(':') {
        true => word_start(text, text[..at].trim_end().len()),
        false => at,
    }
}

/// Explains a missing `,` or closing bracket before a member.
fn unseparated(text: &str, at: usize) -> Option<SyntaxError> {
    let (open, bracket) = enclosing(text, at)?;
    let member = member_start(text, at);
    let before = text[..member].trim_end();
    if before.len() <= open + 1 || before.ends_with([',', ':']) {
        return None;
    }
    let ((open_line, line), (start, _)) = (line_at(text, open), line_at(text, member));
    let indent = |line: &str| line.len() - line.trim_start().len();
    let begins_line = open_line != start && text[start..member].trim().is_empty();
    let whole_document = text[..open].trim().is_empty();
    match begins_line && !whole_document && member - start <= indent(line) {
        true => Some(unclosed(text, open, bracket)),
        false => Some(missing_comma(text, before.len())),
    }
}

fn unclosed(text: &str, open: usize, bracket: char) -> SyntaxError {
    let close = closing(bracket);
    SyntaxError {
        span: place(text, open),
        message: format!("`{bracket}` is not closed"),
        help: Some(format!("close it with `{close}`, or write `,` between its members")),
    }
}

fn missing_comma(text: &str, at: usize) -> SyntaxError {
    insertion(text, at, ",", "a `,` is missing here")
}

/// Explains a missing `:` after a quoted key.
fn missing_colon(text: &str, at: usize) -> Option<SyntaxError> {
    let (_, bracket) = enclosing(text, at)?;
    let end = text[..at].trim_end().len();
    let before = text[..word_start(text, end)].trim_end();
    (bracket == '{' && before.ends_with(['{', ','])).then(|| insertion(text, end, ":", "a `:` is missing here"))
}

/// Returns an error about a missing character, with the corrected line.
fn insertion(text: &str, at: usize, sign: &str, message: &str) -> SyntaxError {
    let (start, line) = line_at(text, at);
    let (before, after) = line.split_at((at - start).min(line.len()));
    let line = format!("{before}{sign}{after}");
    let short = line.trim().chars().count() <= MAX_LINE_CHARS;
    let help = if short { write_help(line.trim()) } else { format!("write `{sign}`") };
    SyntaxError { span: place(text, at), message: message.to_owned(), help: Some(help) }
}

/// Explains an unquoted text that contains `: ` and is the value of a key in the same line.
fn unquoted_colon(text: &str, at: usize) -> Option<SyntaxError> {
    let (start, line) = line_at(text, at);
    if !text[at..].starts_with(':') {
        return None;
    }
    let open = enclosing(text, at).map_or(start, |(open, _)| start.max(open + 1));
    let from = text[open..at].rfind(',').map_or(open, |comma| open + comma + 1);
    let colon = from + text[from..at].find(": ")?;
    let value = text[colon + 1..start + line.len()].trim();
    let value = if open > start { value.split([',', '}', ']']).next().unwrap_or(value).trim() } else { value };
    if value.starts_with(['"', '\'', '{', '[']) {
        return None;
    }
    let begin = colon + 1 + text[colon + 1..].find(value)?;
    let written = quoted(value)?;
    let (key, _) = text[from..begin].split_at(begin - from);
    let help = write_help(&format!("{}{written}", key.trim_start().trim_start_matches("- ")));
    let span = Span { len: value.chars().count(), ..place(text, begin) };
    Some(SyntaxError { span, message: "a text with `: ` in it needs quotes".to_owned(), help: Some(help) })
}

/// Explains an unquoted text that starts with a special character.
fn unquoted_sign(text: &str, at: usize) -> Option<SyntaxError> {
    let line = rest_of_line(text, at);
    let value = match enclosing(text, at) {
        Some(_) => line.split([',', '}', ']']).next().unwrap_or(line),
        None => line.split(" #").next().unwrap_or(line),
    };
    let value = value.trim_end();
    let sign = value.chars().next()?;
    let message = format!("a text without quotes cannot begin with `{}`", sanitized(&sign.to_string()));
    let span = Span { len: value.chars().count(), ..place(text, at) };
    Some(SyntaxError { span, message, help: Some(write_help(&quoted(value)?)) })
}

/// Quotes a text with a quote that it does not contain.
fn quoted(text: &str) -> Option<String> {
    if text.contains(['"', '\\']) {
        return (!text.contains('\'')).then(|| format!("'{text}'"));
    }
    Some(format!("\"{text}\""))
}
