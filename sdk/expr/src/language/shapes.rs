//! Filters that shape texts: their length, their line breaks and their characters.

use minijinja::{Error, value::Kwargs};

use super::{
    operands::{argument, invalid, too_long},
    text::{TextTooLong, push_str},
};
use crate::limits;

/// `x | truncate(length, end, words)`: shortens a text to at most `length` characters, `end` included. With
/// `words=true`, a word that would be cut is left out.
pub(super) fn truncate(
    value: &str,
    length: Option<usize>,
    end: Option<&str>,
    words: Option<bool>,
    options: Kwargs,
) -> Result<String, Error> {
    let length = argument(length, &options, "length")?.unwrap_or(255);
    let end = argument(end, &options, "end")?.unwrap_or("...");
    let keeps_words = argument(words, &options, "words")?.unwrap_or(true);
    options.assert_all_used()?;
    if value.char_indices().nth(length).is_none() {
        return Ok(value.to_owned());
    }
    let Some(room) = length.checked_sub(end.chars().count()) else {
        return Err(invalid("`truncate` needs a length that is not below the length of `end`".to_owned()));
    };
    let cut = value.char_indices().nth(room).map_or(value.len(), |(at, _)| at);
    let (kept, gone) = value.split_at(cut);
    let is_whole = gone.starts_with(char::is_whitespace);
    let kept = match kept.rfind(char::is_whitespace) {
        Some(space) if keeps_words && !is_whole => &kept[..space],
        _ => kept,
    };
    let mut text = String::new();
    push_str(&mut text, kept.trim_end()).and_then(|()| push_str(&mut text, end)).map_err(too_long)?;
    Ok(text)
}

/// `x | wordwrap(width)`: breaks each line at spaces, so that it has at most `width` characters. A longer word is split.
pub(super) fn wordwrap(value: &str, width: Option<usize>, options: Kwargs) -> Result<String, Error> {
    let width = argument(width, &options, "width")?.unwrap_or(79);
    options.assert_all_used()?;
    if width == 0 {
        return Err(invalid("`wordwrap` needs a width of at least 1".to_owned()));
    }
    let mut text = String::new();
    let mut push = |part: &str| push_str(&mut text, part).map_err(too_long);
    for (at, line) in value.split('\n').enumerate() {
        push(if at > 0 { "\n" } else { "" })?;
        let mut used = 0;
        for word in line.split([' ', '\t']).filter(|word| !word.is_empty()) {
            let length = word.chars().count();
            if used > 0 {
                let fits = used + 1 + length <= width;
                push(if fits { " " } else { "\n" })?;
                used = if fits { used + 1 } else { 0 };
            }
            let mut rest = word;
            while let Some((cut, _)) = rest.char_indices().nth(width - used) {
                let (part, behind) = rest.split_at(cut);
                push(part)?;
                push("\n")?;
                (rest, used) = (behind, 0);
            }
            push(rest)?;
            used += rest.chars().count();
        }
    }
    Ok(text)
}

/// `x | padstart(width, fill)`: fills a text up to `width` characters at its beginning.
pub(super) fn pad_start(value: &str, width: usize, fill: Option<&str>, options: Kwargs) -> Result<String, Error> {
    pad("padstart", value, width, argument(fill, &options, "fill")?, |gap| (gap, 0))
        .and_then(|text| options.assert_all_used().map(|()| text))
}

/// `x | padend(width, fill)`: fills a text up to `width` characters at its end.
pub(super) fn pad_end(value: &str, width: usize, fill: Option<&str>, options: Kwargs) -> Result<String, Error> {
    pad("padend", value, width, argument(fill, &options, "fill")?, |gap| (0, gap))
        .and_then(|text| options.assert_all_used().map(|()| text))
}

/// `x | center(width, fill)`: fills a text up to `width` characters at both ends. An odd character goes to the end.
pub(super) fn center(value: &str, width: usize, fill: Option<&str>, options: Kwargs) -> Result<String, Error> {
    pad("center", value, width, argument(fill, &options, "fill")?, |gap| (gap / 2, gap - gap / 2))
        .and_then(|text| options.assert_all_used().map(|()| text))
}

/// Fills a text up to `width` characters. `split` divides the number of missing characters between the two ends.
fn pad(
    name: &str,
    value: &str,
    width: usize,
    fill: Option<&str>,
    split: fn(usize) -> (usize, usize),
) -> Result<String, Error> {
    let fill = fill.unwrap_or(" ");
    if fill.chars().count() != 1 {
        return Err(invalid(format!("`{name}` needs one character to fill with")));
    }
    let gap = width.saturating_sub(value.chars().count());
    if gap.saturating_mul(fill.len()).saturating_add(value.len()) > limits::TEXT_BYTES && gap > 0 {
        return Err(too_long(TextTooLong));
    }
    let (before, behind) = split(gap);
    Ok(format!("{}{value}{}", fill.repeat(before), fill.repeat(behind)))
}

/// `x | slugify(separator)`: lower-case letters and digits, with `separator` in place of anything else. Latin letters
/// lose their accents; other letters stay.
pub(super) fn slugify(value: &str, separator: Option<&str>, options: Kwargs) -> Result<String, Error> {
    let separator = argument(separator, &options, "separator")?.unwrap_or("-");
    options.assert_all_used()?;
    let mut text = String::new();
    let mut is_between = false;
    for sign in value.chars().flat_map(char::to_lowercase) {
        let mut buffer = [0; 4];
        let written = match sign {
            // A mark that a decomposed letter carries.
            '\u{300}'..='\u{36f}' => continue,
            '\'' | '’' => continue,
            sign if sign.is_ascii_alphanumeric() => &*sign.encode_utf8(&mut buffer),
            sign => match without_accent(sign) {
                Some(plain) => plain,
                None if sign.is_alphanumeric() => &*sign.encode_utf8(&mut buffer),
                None => {
                    is_between = !text.is_empty();
                    continue;
                }
            },
        };
        let before = if std::mem::take(&mut is_between) { separator } else { "" };
        push_str(&mut text, before).and_then(|()| push_str(&mut text, written)).map_err(too_long)?;
    }
    Ok(text)
}

/// Returns the plain letters of a Latin letter in lower case with an accent.
fn without_accent(letter: char) -> Option<&'static str> {
    Some(match letter {
        'à'..='å' | 'ā' | 'ă' | 'ą' => "a",
        'æ' => "ae",
        'ç' | 'ć' | 'ĉ' | 'ċ' | 'č' => "c",
        'ď' | 'đ' | 'ð' => "d",
        'è'..='ë' | 'ē' | 'ĕ' | 'ė' | 'ę' | 'ě' => "e",
        'ĝ' | 'ğ' | 'ġ' | 'ģ' => "g",
        'ĥ' | 'ħ' => "h",
        'ì'..='ï' | 'ĩ' | 'ī' | 'ĭ' | 'į' | 'ı' => "i",
        'ĳ' => "ij",
        'ĵ' => "j",
        'ķ' | 'ĸ' => "k",
        'ĺ' | 'ļ' | 'ľ' | 'ŀ' | 'ł' => "l",
        'ñ' | 'ń' | 'ņ' | 'ň' | 'ŉ' | 'ŋ' => "n",
        'ò'..='ö' | 'ø' | 'ō' | 'ŏ' | 'ő' => "o",
        'œ' => "oe",
        'ŕ' | 'ŗ' | 'ř' => "r",
        'ś' | 'ŝ' | 'ş' | 'š' | 'ș' | 'ſ' => "s",
        'ß' => "ss",
        'ţ' | 'ť' | 'ŧ' | 'ț' => "t",
        'þ' => "th",
        'ù'..='ü' | 'ũ' | 'ū' | 'ŭ' | 'ů' | 'ű' | 'ų' => "u",
        'ŵ' => "w",
        'ý' | 'ÿ' | 'ŷ' => "y",
        'ź' | 'ż' | 'ž' => "z",
        _ => return None,
    })
}

/// `x | escape`: a text for HTML and XML, between tags and in quoted attributes.
pub(super) fn escape(value: &str) -> Result<String, Error> {
    let mut text = String::new();
    for part in value.split_inclusive(['&', '<', '>', '"', '\'']) {
        let (plain, written) = match part.chars().next_back() {
            Some('&') => (&part[..part.len() - 1], "&amp;"),
            Some('<') => (&part[..part.len() - 1], "&lt;"),
            Some('>') => (&part[..part.len() - 1], "&gt;"),
            Some('"') => (&part[..part.len() - 1], "&quot;"),
            Some('\'') => (&part[..part.len() - 1], "&#39;"),
            _ => (part, ""),
        };
        push_str(&mut text, plain).and_then(|()| push_str(&mut text, written)).map_err(too_long)?;
    }
    Ok(text)
}
