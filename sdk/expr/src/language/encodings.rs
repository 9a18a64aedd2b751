//! Encodings of texts, and the parts of URLs.

use base64::{
    Engine,
    alphabet::{STANDARD, URL_SAFE},
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use indexmap::IndexMap;
use minijinja::{Error, Value, value::Kwargs};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use super::{
    operands::{argument, invalid, kind, push_value, too_long},
    text::{TextTooLong, push_str},
    values::to_value,
};
use crate::{json::Json, limits};

/// The characters that stand for themselves in no part of a URL: all except letters, digits, `-`, `_`, `.` and `~`.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Encodes bytes as base64, with padding in the standard alphabet, and without in the one for URLs.
pub(super) fn to_base64(bytes: &[u8], is_for_urls: bool) -> String {
    let alphabet = if is_for_urls { URL_SAFE } else { STANDARD };
    let config = GeneralPurposeConfig::new().with_encode_padding(!is_for_urls);
    GeneralPurpose::new(&alphabet, config).encode(bytes)
}

/// `x | base64encode(urlsafe)`: the bytes of a text in base64.
pub(super) fn base64_encode(value: &str, urlsafe: Option<bool>, options: Kwargs) -> Result<String, Error> {
    let is_for_urls = argument(urlsafe, &options, "urlsafe")?.unwrap_or(false);
    options.assert_all_used()?;
    check_length(value.len().div_ceil(3).saturating_mul(4))?;
    Ok(to_base64(value.as_bytes(), is_for_urls))
}

/// `x | base64decode`: the text that a base64 text encodes, in either alphabet, with or without padding.
pub(super) fn base64_decode(value: &str) -> Result<String, Error> {
    let alphabet = if value.contains(['-', '_']) { URL_SAFE } else { STANDARD };
    let config = GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let decoded = GeneralPurpose::new(&alphabet, config).decode(value.trim());
    let bytes = decoded.map_err(|error| invalid(format!("`base64decode`: the text is not base64: {error}")))?;
    to_text("base64decode", bytes)
}

/// `x | hexencode`: the bytes of a text as hexadecimal digits.
pub(super) fn hex_encode(value: &str) -> Result<String, Error> {
    check_length(value.len().saturating_mul(2))?;
    Ok(hex::encode(value))
}

/// `x | hexdecode`: the text that hexadecimal digits encode.
pub(super) fn hex_decode(value: &str) -> Result<String, Error> {
    let bytes = hex::decode(value).map_err(|error| invalid(format!("`hexdecode`: the text is not hex: {error}")))?;
    to_text("hexdecode", bytes)
}

/// `x | urlencode`: a text for a part of a URL, or an object as a query.
pub(super) fn url_encode(value: &Value) -> Result<String, Error> {
    let mut text = String::new();
    if kind(value) != "an object" {
        if kind(value) == "a list" {
            return Err(invalid("`urlencode` needs a text or an object, not a list".to_owned()));
        }
        push_encoded(&mut text, value)?;
        return Ok(text);
    }
    for (at, key) in value.try_iter()?.enumerate() {
        let member = value.get_item(&key)?;
        if matches!(kind(&member), "a list" | "an object") {
            return Err(invalid(format!("`urlencode`: the member `{key}` is {}, not a text", kind(&member))));
        }
        push_str(&mut text, if at > 0 { "&" } else { "" }).map_err(too_long)?;
        push_encoded(&mut text, &key)?;
        push_str(&mut text, "=").map_err(too_long)?;
        push_encoded(&mut text, &member)?;
    }
    Ok(text)
}

fn push_encoded(text: &mut String, value: &Value) -> Result<(), Error> {
    let mut plain = String::new();
    push_value(&mut plain, value)?;
    utf8_percent_encode(&plain, RESERVED).try_for_each(|part| push_str(text, part)).map_err(too_long)
}

/// `x | urldecode`: the text with its `%41` decoded. `+` stays.
pub(super) fn url_decode(value: &str) -> Result<String, Error> {
    let decoded = percent_decode_str(value).decode_utf8();
    decoded.map(String::from).map_err(|_| not_utf8("urldecode"))
}

/// `x | urlparts`: the parts of a URL (RFC 3986), as they are written. A part that is not there is null. The query is an
/// object of decoded texts; a key that occurs again has the list of its texts.
pub(super) fn url_parts(value: &str) -> Result<Value, Error> {
    let wrong = |problem: &str| invalid(format!("`urlparts`: {problem}"));
    if value.contains(|sign: char| sign.is_whitespace() || sign.is_control()) {
        return Err(wrong("a URL has no spaces: write them as `%20`"));
    }
    let (rest, fragment) = split_once(value, '#');
    let (rest, query) = split_once(rest, '?');
    let is_scheme = |scheme: &str| {
        scheme.starts_with(|sign: char| sign.is_ascii_alphabetic())
            && scheme.chars().all(|sign| sign.is_ascii_alphanumeric() || "+-.".contains(sign))
    };
    let (scheme, rest) = match rest.split_once(':') {
        Some((scheme, rest)) if is_scheme(scheme) => (Some(scheme.to_ascii_lowercase()), rest),
        _ => (None, rest),
    };
    let (authority, path) = match rest.strip_prefix("//") {
        Some(rest) => {
            let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            (Some(authority), path)
        }
        None => (None, rest),
    };
    let (user, address) = match authority.map(|authority| authority.rsplit_once('@').ok_or(authority)) {
        Some(Ok((user, address))) => (Some(user), Some(address)),
        Some(Err(address)) => (None, Some(address)),
        None => (None, None),
    };
    let is_in_brackets = |port: &str| port.contains(']');
    let (host, port) = match address.map(|address| address.rsplit_once(':').ok_or(address)) {
        Some(Ok((host, port))) if !is_in_brackets(port) => (Some(host), Some(port).filter(|port| !port.is_empty())),
        _ => (address, None),
    };
    let is_whole = |host: &str| match host.strip_prefix('[').map(|host| host.strip_suffix(']')) {
        Some(inside) => inside.is_some_and(|inside| !inside.contains(['[', ']'])),
        None => !host.contains(['[', ']']),
    };
    if !host.is_none_or(is_whole) {
        return Err(wrong("an address in brackets is not closed: write it as `[::1]`"));
    }
    let port = port.map(|port| port.parse::<u16>().map_err(|_| wrong("the port is not a number up to 65535")));
    let text = |part: Option<&str>| part.map_or(Json::Null, Json::from);
    let members = [
        ("scheme", text(scheme.as_deref())),
        ("user", text(user)),
        ("host", host.map_or(Json::Null, |host| Json::from(host.to_lowercase()))),
        ("port", port.transpose()?.map_or(Json::Null, |port| Json::from(u32::from(port)))),
        ("path", Json::from(path)),
        ("query", query.map_or(Ok(Json::Null), query_members)?),
        ("fragment", text(fragment)),
    ];
    Ok(to_value(&Json::object(members)))
}

fn split_once(text: &str, sign: char) -> (&str, Option<&str>) {
    text.split_once(sign).map_or((text, None), |(before, behind)| (before, Some(behind)))
}

/// Returns the parameters of a query as an object. In a query, `+` stands for a space.
fn query_members(query: &str) -> Result<Json, Error> {
    let mut values: IndexMap<String, Vec<Json>> = IndexMap::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let decode = |text: &str| {
            let decoded = percent_decode_str(&text.replace('+', " ")).decode_utf8().map(String::from);
            decoded.map_err(|_| not_utf8("urlparts"))
        };
        values.entry(decode(key)?).or_default().push(Json::from(decode(value)?));
    }
    let member = |(key, mut texts): (String, Vec<Json>)| {
        let value = if texts.len() > 1 { Json::array(texts) } else { texts.pop().unwrap_or_default() };
        (key, value)
    };
    Ok(Json::object(values.into_iter().map(member)))
}

fn to_text(name: &str, bytes: Vec<u8>) -> Result<String, Error> {
    String::from_utf8(bytes).map_err(|_| not_utf8(name))
}

fn not_utf8(name: &str) -> Error {
    invalid(format!("`{name}`: the decoded bytes are not a text in UTF-8"))
}

/// Returns an error for a text that would be longer than [`limits::TEXT_BYTES`].
fn check_length(bytes: usize) -> Result<(), Error> {
    if bytes > limits::TEXT_BYTES { Err(too_long(TextTooLong)) } else { Ok(()) }
}
