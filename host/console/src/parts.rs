//! States, times, texts and other parts of pages.

use std::borrow::Cow;

use jiff::Timestamp;
use maud::{Markup, PreEscaped, html};
use serde_json::Value;

/// Maximum number of bytes of a value that a page shows. The page names the size of the rest.
pub(crate) const MAX_SHOWN_BYTES: usize = 4 << 10;

/// Returns whether a character is obeyed by terminals or turns the direction of text around. It is shown as an escape.
pub(crate) fn is_deceptive(c: char) -> bool {
    matches!(c, '\0'..='\u{8}' | '\u{b}'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}')
        || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
}

/// Returns a page in which all deceptive characters are escapes, such as `\u{202e}`. The pages themselves have none, so
/// they can only come from the names and texts of tenants.
pub(crate) fn visible(page: &str) -> Cow<'_, str> {
    if !page.contains(is_deceptive) {
        return page.into();
    }
    let mut out = String::with_capacity(page.len() + 64);
    for c in page.chars() {
        match is_deceptive(c) {
            true => out.extend(c.escape_unicode()),
            false => out.push(c),
        }
    }
    out.into()
}

/// The shape of each state, so that it can be told without colours: a path in a square of 16 units.
fn shape(state: &str) -> &'static str {
    match state {
        "succeeded" => "M3 8.5 6.5 12 13 4.5",
        "failed" => "M4 4 12 12M12 4 4 12",
        "running" => "M8 2.5A5.5 5.5 0 1 1 2.5 8M8 5.5V8l2 1.5",
        "parked" | "waiting" | "asking" | "listening" => "M5.5 3.5V12.5M10.5 3.5V12.5",
        "needs_attention" | "blocked" => "M8 2.5 14 13H2ZM8 6.5V9.5M8 11V11.4",
        "cancelled" => "M8 2.5A5.5 5.5 0 1 1 7.9 2.5ZM4.2 4.2 11.8 11.8",
        "retrying" => "M12.5 6A5 5 0 1 0 13 9M12.5 2.5V6H9",
        "skipped" => "M3 8H5.5M7 8H9M10.5 8H13",
        _ => "M8 3A5 5 0 1 1 7.9 3Z",
    }
}

/// Returns the class of the colour of a state.
pub(crate) fn tone(state: &str) -> &'static str {
    match state {
        "succeeded" => "good",
        "failed" => "bad",
        "needs_attention" | "blocked" => "warn",
        "parked" | "waiting" | "asking" | "listening" => "wait",
        "running" | "retrying" => "busy",
        _ => "calm",
    }
}

/// Shows a state by its shape, its word and its colour.
pub(crate) fn state(state: &str) -> Markup {
    html! { span class={ "state " (tone(state)) } { (glyph(state)) (state.replace('_', " ")) } }
}

/// Shows the shape of a state.
pub(crate) fn glyph(state: &str) -> Markup {
    html! { svg .glyph viewBox="0 0 16 16" aria-hidden="true" { path d=(shape(state)) {} } }
}

/// The states of tasks, the most urgent first.
pub(crate) const URGENCY: [&str; 9] =
    ["blocked", "failed", "waiting", "retrying", "running", "ready", "cancelled", "succeeded", "skipped"];

fn rank(state: &str) -> usize {
    URGENCY.iter().position(|known| *known == state).unwrap_or(URGENCY.len())
}

/// Returns the most urgent one of some states.
pub(crate) fn worst<'a>(counts: &[(&'a str, u64)]) -> Option<&'a str> {
    counts.iter().map(|(state, _)| *state).min_by_key(|state| rank(state))
}

/// Writes the number of tasks in each state, the most urgent ones first: `7 failed, 990 succeeded`.
pub(crate) fn tally(counts: &[(&str, u64)]) -> String {
    let mut counts = counts.to_vec();
    counts.sort_by_key(|(state, _)| rank(state));
    let parts: Vec<_> = counts.iter().map(|(state, number)| format!("{number} {state}")).collect();
    parts.join(", ")
}

/// Draws the numbers of tasks by their states as one bar. The text beside it has the same.
pub(crate) fn bar(counts: &[(&str, u64)]) -> Markup {
    let mut counts = counts.to_vec();
    counts.sort_by_key(|(state, _)| rank(state));
    let all = counts.iter().map(|(_, number)| number).sum::<u64>().max(1);
    let mut left = 0;
    let pieces: Vec<_> = counts
        .iter()
        .map(|(state, number)| {
            // A few failures among many tasks can still be seen.
            let width = (number.saturating_mul(1_000) / all).max(12);
            let piece = (*state, left, width);
            left += width;
            piece
        })
        .collect();
    html! {
        svg .bar viewBox={ "0 0 " (left.max(1)) " 10" } preserveAspectRatio="none" aria-hidden="true" {
            @for (state, x, width) in &pieces { rect class=(tone(state)) x=(x) y="0" width=(width) height="10" {} }
        }
    }
}

/// Shows a table, which scrolls sideways on narrow screens. `name` distinguishes the tables in which the keys move.
pub(crate) fn list_table(name: Option<&str>, caption: &str, head: Markup, rows: Markup) -> Markup {
    html! {
        div .wide tabindex="0" role="region" aria-label=(caption) {
            table .rows data-list=[name] {
                caption .hidden { (caption) }
                thead { tr { (head) } }
                tbody { (rows) }
            }
        }
    }
}

/// Shows a time in milliseconds since 1970. The script shows it in the viewer's zone.
pub(crate) fn time(at: &Value) -> Markup {
    let parsed = at.as_i64().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    html! {
        @if let Some(at) = parsed {
            time datetime=(at.strftime("%Y-%m-%dT%H:%M:%S%.3fZ")) { (at.strftime("%Y-%m-%d %H:%M:%S UTC")) }
        } @else { span .faint { "unknown" } }
    }
}

/// Shows the time of the day of an event, with milliseconds.
pub(crate) fn moment(at: &Value) -> Markup {
    let parsed = at.as_i64().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    html! {
        @if let Some(at) = parsed {
            time datetime=(at.strftime("%Y-%m-%dT%H:%M:%S%.3fZ")) data-moment { (at.strftime("%H:%M:%S%.3f UTC")) }
        } @else { span .faint { "unknown" } }
    }
}

/// Writes a duration in milliseconds in at most two units: `340 ms`, `4.2 s`, `3 min 12 s`.
pub(crate) fn duration(ms: u64) -> String {
    let (seconds, minutes, hours) = (ms / 1_000, ms / 60_000, ms / 3_600_000);
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..60_000 => format!("{}.{} s", seconds, ms % 1_000 / 100),
        60_000..3_600_000 => format!("{minutes} min {} s", seconds % 60),
        3_600_000..86_400_000 => format!("{hours} h {} min", minutes % 60),
        _ => format!("{} d {} h", hours / 24, hours % 24),
    }
}

/// Writes a number of bytes: `17 bytes`, `4.0 KiB`, `3.1 MiB`, `34.0 GiB`.
pub(crate) fn size(bytes: u64) -> String {
    let scaled = |unit: u64| format!("{}.{}", bytes / unit, bytes % unit * 10 / unit);
    match bytes {
        0..1_024 => format!("{bytes} bytes"),
        1_024..1_048_576 => format!("{} KiB", scaled(1_024)),
        1_048_576..1_073_741_824 => format!("{} MiB", scaled(1_048_576)),
        _ => format!("{} GiB", scaled(1_073_741_824)),
    }
}

/// Returns the beginning of a text of at most `most` bytes, and the size of the whole text if it is longer.
pub(crate) fn cut(text: &str, most: usize) -> (&str, Option<usize>) {
    if text.len() <= most {
        return (text, None);
    }
    let end = (0..=most).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    (&text[..end], Some(text.len()))
}

/// Shows the beginning of a text, at most `most` bytes, and names the size of the rest. `all_at` is the path of the API
/// that has all of it.
pub(crate) fn block(text: &str, most: usize, all_at: &str) -> Markup {
    let (shown, whole) = cut(text, most);
    html! {
        pre tabindex="0" { (shown) }
        @if let Some(whole) = whole {
            p .cut { "Shown in part: " (size(shown.len() as u64)) " of " (size(whole as u64)) ". All of it: " a href=(all_at) { code { (all_at) } } }
        }
    }
}

/// Shows a JSON value, see [`block`].
pub(crate) fn json(value: &Value, all_at: &str) -> Markup {
    block(&serde_json::to_string_pretty(value).unwrap_or_default(), MAX_SHOWN_BYTES, all_at)
}

/// The place of the option `--tenant` in a command line. No text of a tenant can contain it, because texts are escaped.
/// The frame replaces it.
pub(crate) const TENANT_MARK: &str = "<!--tenant-->";

/// Shows the command line that does the same as the controls before it, for the tenant of the page.
pub(crate) fn command(line: &str) -> Markup {
    // What follows `--` is no option.
    let (options, rest) = line.split_at(line.find(" -- ").unwrap_or(line.len()));
    html! { p .command { span .faint { "The same in a terminal: " } code { "flowcell " (options) (PreEscaped(TENANT_MARK)) (rest) } } }
}

/// Shows a command line that is about the server, or names the tenant itself.
pub(crate) fn server_command(line: &str) -> Markup {
    html! { p .command { span .faint { "The same in a terminal: " } code { "flowcell " (line) } } }
}

/// Quotes the arguments of a command that are no options. If one looks like an option, `--` precedes them.
pub(crate) fn positionals(arguments: &[&str]) -> String {
    let all: Vec<_> = arguments.iter().map(|argument| quoted(argument)).collect();
    let mark = if arguments.iter().any(|argument| argument.starts_with('-')) { "-- " } else { "" };
    format!("{mark}{}", all.join(" "))
}

/// Shows a list that is empty, with the way to the first entry.
pub(crate) fn empty(what: &str, how: Markup) -> Markup {
    html! { div .empty { p .lead { (what) } (how) } }
}

/// Returns a text member of a value, or an empty text.
pub(crate) fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// Returns the items of a list in a value.
pub(crate) fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

/// Shows a text, and the parts of it between two backticks of one line as code.
pub(crate) fn coded(text: &str) -> Markup {
    html! { @for (part, is_code) in spans(text) { @if is_code { code { (part) } } @else { (part) } } }
}

/// Shows a message of the API as a sentence: with a capital letter, and with its code as code.
pub(crate) fn message(text: &str) -> Markup {
    let word = text.split(' ').next().unwrap_or_default();
    let is_word = word.trim_end_matches([',', ':', ';']).chars().all(|c| c.is_lowercase() || c == '-');
    let mut letters = text.chars();
    match letters.next().filter(|_| is_word) {
        Some(first) => coded(&format!("{}{}", first.to_uppercase(), letters.as_str())),
        // A message may begin with a name, which is written as it is.
        None => coded(text),
    }
}

/// Splits a text into parts, each with whether it was between backticks.
fn spans(text: &str) -> Vec<(&str, bool)> {
    let (mut spans, mut plain, mut at) = (Vec::new(), 0, 0);
    while let Some(open) = text[at..].find('`').map(|found| at + found) {
        let inside = &text[open + 1..];
        match inside.find(['`', '\n']) {
            Some(end) if end > 0 && inside[end..].starts_with('`') => {
                spans.push((&text[plain..open], false));
                spans.push((&inside[..end], true));
                at = open + end + 2;
                plain = at;
            }
            _ => at = open + 1,
        }
    }
    spans.push((&text[plain..], false));
    spans
}

/// Returns the first sentence of a description.
pub(crate) fn brief(description: &str) -> &str {
    description.split_inclusive(". ").next().unwrap_or_default().trim_end()
}

/// Writes a number with its noun: `1 run`, `2 runs`.
pub(crate) fn count(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Quotes an argument for a shell, if it needs quotes.
pub(crate) fn quoted(argument: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@=".contains(c);
    match !argument.is_empty() && argument.chars().all(plain) {
        true => argument.to_owned(),
        false => format!("'{}'", argument.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deceptive_characters_are_shown_as_escapes() {
        let table = [
            ("plain <b> \t\n ünï 字", "plain <b> \t\n ünï 字"),
            ("a\u{202e}b", r"a\u{202e}b"),
            ("a\u{1b}[31mb\u{9b}", r"a\u{1b}[31mb\u{9b}"),
            ("\u{feff}\u{200b}\u{2066}\u{0}\r", r"\u{feff}\u{200b}\u{2066}\u{0}\u{d}"),
        ];
        for (page, shown) in table {
            assert_eq!(visible(page), shown);
        }
    }

    #[test]
    fn durations_and_sizes_have_at_most_two_units() {
        let table = [(0, "0 ms"), (999, "999 ms"), (4_250, "4.2 s"), (192_000, "3 min 12 s"), (7_500_000, "2 h 5 min")];
        for (ms, shown) in table {
            assert_eq!(duration(ms), shown);
        }
        assert_eq!(duration(u64::MAX), "213503982334 d 14 h");
        let table = [
            (0, "0 bytes"),
            (1_023, "1023 bytes"),
            (1_536, "1.5 KiB"),
            (3_300_000, "3.1 MiB"),
            (36_507_222_016, "34.0 GiB"),
        ];
        for (bytes, shown) in table {
            assert_eq!(size(bytes), shown);
        }
    }

    #[test]
    fn counts_name_the_most_urgent_state_first() {
        let counts = [("succeeded", 990), ("failed", 7), ("odd", 1)];
        assert_eq!((worst(&counts), tally(&counts)), (Some("failed"), "7 failed, 990 succeeded, 1 odd".to_owned()));
        assert_eq!((worst(&[]), tally(&[])), (None, String::new()));
        let drawn = bar(&counts).into_string();
        assert!(drawn.contains(r#"rect class="bad" x="0" y="0" width="12""#), "{drawn}");
    }

    #[test]
    fn a_cut_text_ends_at_a_character_and_names_the_whole_size() {
        assert_eq!(cut("abc", 3), ("abc", None));
        assert_eq!(cut("aüb", 2), ("a", Some(4)));
        assert_eq!(cut("字", 0), ("", Some(3)));
    }

    #[test]
    fn text_between_backticks_is_code() {
        let table = [
            ("no code <b>", "no code &lt;b&gt;"),
            ("run `a` or `<b>`", "run <code>a</code> or <code>&lt;b&gt;</code>"),
            ("`a`", "<code>a</code>"),
            ("one ` alone", "one ` alone"),
            ("a `\n` b `c`", "a `\n<code> b </code>c`"),
            ("```\nx\n```", "```\nx\n```"),
            ("``a``", "`<code>a</code>`"),
            ("ü`ü`ü", "ü<code>ü</code>ü"),
        ];
        for (text, shown) in table {
            assert_eq!(coded(text).into_string(), shown, "{text}");
        }
    }

    #[test]
    fn a_message_begins_with_a_capital_letter_unless_a_name_begins_it() {
        let table = [
            ("the server refused `crm`", "The server refused <code>crm</code>"),
            ("österreich", "Österreich"),
            ("`crm` is gone", "<code>crm</code> is gone"),
            ("lines.0 must be a number", "lines.0 must be a number"),
            ("maxLiveRuns is 3", "maxLiveRuns is 3"),
            ("", ""),
        ];
        for (text, shown) in table {
            assert_eq!(message(text).into_string(), shown, "{text}");
        }
    }

    #[test]
    fn the_brief_of_a_description_is_its_first_sentence() {
        assert_eq!(brief("Reads mail. Sorts it."), "Reads mail.");
        assert_eq!(brief("v1.2 of it"), "v1.2 of it");
    }

    #[test]
    fn a_command_has_the_place_of_its_tenant_before_values() {
        assert_eq!(positionals(&["r", "g", "yes"]), "r g yes");
        assert_eq!(positionals(&["-d", "g", "-no"]), "-- -d g -no");
        let shown = command("answer -- r g '<!--tenant-->'").into_string();
        assert!(shown.contains("flowcell answer<!--tenant--> -- r g '&lt;!--tenant--&gt;'"), "{shown}");
    }

    #[test]
    fn arguments_are_quoted_for_a_shell() {
        let table = [("order-7", "order-7"), ("", "''"), ("a b", "'a b'"), ("it's", r"'it'\''s'"), ("$(x)", "'$(x)'")];
        for (argument, shown) in table {
            assert_eq!(quoted(argument), shown);
        }
    }
}
