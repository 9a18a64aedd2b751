//! Filters that search texts with regular expressions.

use std::sync::Arc;

use minijinja::{Error, State, Value, value::Kwargs};
use regex_lite::Captures;

use super::{
    budget::charge,
    filters::compiled,
    operands::{argument, invalid, too_long},
    text::push_str,
    values::to_value,
};
use crate::{
    json::{Json, Object},
    limits,
    pattern::Pattern,
};

/// `x | regexfind(pattern)`: the first match in a text; missing if there is none.
pub(super) fn find(state: &mut State<'_, '_>, value: &str, pattern: &str) -> Result<Value, Error> {
    let mut matches = Matches::new(state, value, pattern, false)?;
    Ok(matches.next(state)?.map_or(Value::UNDEFINED, |found| Value::from(found.whole())))
}

/// `x | regexcaptures(pattern)`: the groups of the first match, missing if there is none. They are a list that begins
/// with the whole match, or an object if the pattern names groups.
pub(super) fn captures(state: &mut State<'_, '_>, value: &str, pattern: &str) -> Result<Value, Error> {
    let mut matches = Matches::new(state, value, pattern, true)?;
    let Some(Found::Groups(found)) = matches.next(state)? else { return Ok(Value::UNDEFINED) };
    let text = |at: usize| found.get(at).map_or(Json::Null, |group| Json::from(group.as_str()));
    let names: Vec<_> = matches.pattern.group_names().collect();
    let named = names.iter().enumerate().filter_map(|(at, name)| Some(((*name)?.into(), text(at))));
    let members: Object = named.collect();
    Ok(to_value(&match members.is_empty() {
        true => Json::array((0..names.len()).map(text)),
        false => Json::Object(members.into()),
    }))
}

/// `x | regexfindall(pattern)`: the texts of all matches.
pub(super) fn find_all(state: &mut State<'_, '_>, value: &str, pattern: &str) -> Result<Value, Error> {
    let mut matches = Matches::new(state, value, pattern, false)?;
    let mut texts = Vec::new();
    while let Some(found) = matches.next(state)? {
        texts.push(Value::from(found.whole()));
    }
    Ok(Value::from(texts))
}

/// `x | regexsplit(pattern, limit)`: splits a text at the matches; at most `limit` times.
pub(super) fn split(
    state: &mut State<'_, '_>,
    value: &str,
    pattern: &str,
    limit: Option<usize>,
    options: Kwargs,
) -> Result<Value, Error> {
    let limit = argument(limit, &options, "limit")?.unwrap_or(usize::MAX);
    options.assert_all_used()?;
    let mut matches = Matches::new(state, value, pattern, false)?;
    let (mut parts, mut at) = (Vec::new(), 0);
    while parts.len() < limit
        && let Some(found) = matches.next(state)?
    {
        parts.push(Value::from(&value[at..found.start()]));
        at = found.end();
    }
    parts.push(Value::from(&value[at..]));
    Ok(Value::from(parts))
}

/// `x | regexreplace(pattern, replacement, count)`: replaces the matches in a text, or the first `count` of them. In
/// the replacement, `$1` or `${name}` is a group, and `$$` a dollar sign.
pub(super) fn replace(
    state: &mut State<'_, '_>,
    value: &str,
    pattern: &str,
    replacement: &str,
    count: Option<usize>,
) -> Result<String, Error> {
    let compiled = compiled(state, pattern)?;
    let parts = replacement_parts(replacement, &compiled)?;
    let has_groups = parts.iter().any(|part| matches!(part, Part::Group(_)));
    let mut matches = Matches::new(state, value, pattern, has_groups)?;
    let (mut text, mut at, mut left) = (String::new(), 0, count.unwrap_or(usize::MAX));
    while left > 0
        && let Some(found) = matches.next(state)?
    {
        left -= 1;
        push_str(&mut text, &value[at..found.start()]).map_err(too_long)?;
        at = found.end();
        for part in &parts {
            let more = match part {
                Part::Text(more) => more,
                Part::Group(number) => found.group(*number),
            };
            push_str(&mut text, more).map_err(too_long)?;
        }
        charge(state, parts.len())?;
    }
    push_str(&mut text, &value[at..]).map_err(too_long)?;
    Ok(text)
}

/// A part of a replacement.
enum Part<'r> {
    Text(&'r str),
    Group(usize),
}

/// Splits a replacement into texts and groups. A group that the pattern does not have is an error.
fn replacement_parts<'r>(replacement: &'r str, pattern: &Pattern) -> Result<Vec<Part<'r>>, Error> {
    let mut parts = Vec::new();
    let mut rest = replacement;
    while let Some((before, after)) = rest.split_once('$') {
        parts.push(Part::Text(before));
        if let Some(after) = after.strip_prefix('$') {
            parts.push(Part::Text("$"));
            rest = after;
            continue;
        }
        let is_name = |sign: char| sign.is_ascii_alphanumeric() || sign == '_';
        let (name, after) = match after.strip_prefix('{').map(|inner| inner.split_once('}')) {
            Some(Some((name, after))) => (name, after),
            Some(None) => ("", after),
            None => after.split_at(after.find(|sign| !is_name(sign)).unwrap_or(after.len())),
        };
        let number = match name.parse::<usize>() {
            Ok(number) => Some(number).filter(|number| *number < pattern.group_names().count()),
            Err(_) => pattern.group_names().position(|known| known == Some(name)),
        };
        let unknown = || {
            let hint = "write `$1` or `${name}` for a group, and `$$` for a dollar sign";
            invalid(format!("`regexreplace`: the pattern has no group `{name}`: {hint}"))
        };
        parts.push(Part::Group(number.ok_or_else(unknown)?));
        rest = after;
    }
    parts.push(Part::Text(rest));
    Ok(parts)
}

/// A match, with its groups if they are needed, because they cost more.
enum Found<'t> {
    Whole(regex_lite::Match<'t>),
    Groups(Captures<'t>),
}

impl<'t> Found<'t> {
    /// Returns the text of a group; empty for a group that took no part in the match.
    fn group(&self, number: usize) -> &'t str {
        match self {
            Found::Whole(found) => found.as_str(),
            Found::Groups(groups) => groups.get(number).map_or("", |group| group.as_str()),
        }
    }

    fn whole(&self) -> &'t str {
        self.group(0)
    }

    fn start(&self) -> usize {
        match self {
            Found::Whole(found) => found.start(),
            Found::Groups(groups) => groups.get(0).map_or(0, |group| group.start()),
        }
    }

    fn end(&self) -> usize {
        self.start() + self.whole().len()
    }
}

/// The matches of a pattern in a text, one after the other.
struct Matches<'t> {
    pattern: Arc<Pattern>,
    text: &'t str,
    /// Where the next search starts, in bytes; beyond the text if there is none.
    at: usize,
    /// Where the last match ended, in bytes.
    last: Option<usize>,
    /// True if the groups of the matches are needed.
    has_groups: bool,
    /// The work of a search per byte of text, in units of [`limits::SEARCH_WORK`].
    work_per_byte: usize,
}

impl<'t> Matches<'t> {
    fn new(state: &mut State<'_, '_>, text: &'t str, pattern: &str, has_groups: bool) -> Result<Matches<'t>, Error> {
        let pattern = compiled(state, pattern)?;
        pattern.check_length(text).map_err(invalid)?;
        let groups = if has_groups { pattern.group_names().count() } else { 1 };
        let work_per_byte = pattern.size().saturating_mul(groups);
        let matches = Matches { pattern, text, at: 0, last: None, has_groups, work_per_byte };
        if matches.pattern.read_again().is_some() {
            // All searches together read the text at most twice.
            matches.charge(state, text.len().saturating_mul(2))?;
        }
        Ok(matches)
    }

    /// Adds the work of searching `bytes` of text to the work of the evaluation.
    fn charge(&self, state: &mut State<'_, '_>, bytes: usize) -> Result<(), Error> {
        charge(
            state,
            limits::ITEM_WORK.saturating_add(bytes.saturating_mul(self.work_per_byte) / limits::SEARCH_PER_WORK),
        )
    }

    fn next(&mut self, state: &mut State<'_, '_>) -> Result<Option<Found<'t>>, Error> {
        while self.at <= self.text.len() {
            let left = self.text.len() - self.at;
            let read = self.pattern.read_again().map_or(left, |characters| characters.min(left));
            self.charge(state, read)?;
            let found = match self.has_groups {
                true => self.pattern.captures_at(self.text, self.at).map(Found::Groups),
                false => self.pattern.find_at(self.text, self.at).map(Found::Whole),
            };
            let Some(found) = found else {
                self.at = self.text.len() + 1;
                return Ok(None);
            };
            let end = found.end();
            let is_again = found.whole().is_empty() && self.last == Some(end);
            // After an empty match at the end of the last one, the search goes on behind the next character.
            self.at = if is_again { end + self.text[end..].chars().next().map_or(1, char::len_utf8) } else { end };
            if !is_again {
                self.last = Some(end);
                return Ok(Some(found));
            }
        }
        Ok(None)
    }
}
