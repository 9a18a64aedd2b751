//! The functions of queries: those of the interpreter's library that compute a value from values, and own ones for
//! patterns, encodings and numbers, whose libraries would double the size of the pack.

use std::iter;

use base64::{
    Engine as _, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig, general_purpose::STANDARD},
};
use jaq_core::{
    Cv, Exn, RunPtr, ValT as _,
    data::JustLut,
    load::{self, parse::Def},
    native::{self, Filter, Fun, bome, v},
    ops::Math,
    path::Opt,
};
use jaq_json::{Error, Num, Rc, Val, ValR, ValX};
use jaq_std::ValT as _;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, utf8_percent_encode};
use regex_lite::{Match, RegexBuilder};

use crate::{absent, value};

/// The data that a query works on: values, and nothing from outside.
pub(crate) type Data = JustLut<Val>;

/// Maximum size of a compiled pattern in bytes.
const MAX_PATTERN_BYTES: usize = 1 << 20;

/// Functions that the interpreter's library defines with functions that this pack does not have.
const INCOMPLETE: [&str; 5] = ["drem", "gamma", "logb", "nexttoward", "significand"];

/// Functions of the interpreter's library that this pack has in Rust instead. In the library `tostring` and `tojson` write
/// 3.0 for `6 / 2`, `join` writes null, `delpaths` counts places in the shorter list, and `length` of the smallest integer
/// is negative.
const REPLACED: [&str; 5] = ["delpaths", "join", "length", "tojson", "tostring"];

/// The function that writes the values in a text, such as `"\(.a)"`. A query cannot write this name.
pub(crate) const TO_TEXT: &str = "\\(";

/// Reads base64 as jq does: with or without padding, and with bits after the last byte.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// The characters that stay as they are in a URI.
const IN_URI: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Characters with a meaning in HTML, each with its replacement.
const HTML: [(char, &str); 5] = [('<', "&lt;"), ('>', "&gt;"), ('\'', "&#39;"), ('"', "&quot;"), ('&', "&amp;")];

/// Returns the functions that are written in jq.
pub(crate) fn definitions() -> impl Iterator<Item = Def<&'static str>> {
    let more = load::parse(include_str!("more.jq"), |parser| parser.defs()).unwrap_or_default();
    let library = jaq_core::defs().chain(jaq_std::defs()).chain(jaq_json::defs());
    library.filter(|it| is_kept(it.name) && !INCOMPLETE.contains(&it.name)).chain(more)
}

/// Returns the functions that are written in Rust.
pub(crate) fn natives() -> impl Iterator<Item = Fun<Data>> {
    let library = jaq_core::funs().chain(jaq_std::base_funs()).chain(jaq_json::funs());
    let library = library.filter(|(name, ..)| is_kept(name));
    let own: Box<[Filter<RunPtr<Data>>]> = Box::new([
        ("length", v(0), |cv| bome(length(cv.1))),
        (TO_TEXT, v(0), |cv| bome(Ok(value::to_text(cv.1)))),
        ("tostring", v(0), |cv| bome(Ok(value::to_text(cv.1)))),
        ("tojson", v(0), |cv| bome(Ok(value::whole(cv.1).to_string().into()))),
        ("join", v(1), |mut cv| {
            let separator = cv.0.pop_var();
            bome(join(cv.1, &separator))
        }),
        ("delpaths", v(1), |mut cv| {
            let paths = cv.0.pop_var();
            Box::new(iter::once(delete_paths(cv.1, paths)))
        }),
        ("matches", v(2), |cv| bome(search(cv, false, true))),
        ("split_matches", v(2), |cv| bome(search(cv, true, true))),
        ("split_", v(2), |cv| bome(search(cv, true, false))),
        ("escape_html", v(0), |cv| bome(text(&cv.1).map(|text| escape_html(text).into()))),
        ("unescape_html", v(0), |cv| bome(text(&cv.1).map(|text| unescape_html(text).into()))),
        ("encode_uri", v(0), |cv| bome(text(&cv.1).map(|text| utf8_percent_encode(text, IN_URI).to_string().into()))),
        ("decode_uri", v(0), |cv| {
            bome(text(&cv.1).map(|text| Val::utf8_str(percent_decode(text.as_bytes()).collect::<Vec<_>>())))
        }),
        ("encode_base64", v(0), |cv| bome(text(&cv.1).map(|text| STANDARD.encode(text).into()))),
        ("decode_base64", v(0), |cv| {
            bome(text(&cv.1).and_then(|text| LENIENT.decode(text).map(Val::utf8_str).map_err(Error::str)))
        }),
        ("fabs", v(0), |cv| float(&cv.1, f64::abs)),
        ("trunc", v(0), |cv| float(&cv.1, f64::trunc)),
        ("sqrt", v(0), |cv| float(&cv.1, f64::sqrt)),
        ("cbrt", v(0), |cv| float(&cv.1, f64::cbrt)),
        ("exp", v(0), |cv| float(&cv.1, f64::exp)),
        ("exp2", v(0), |cv| float(&cv.1, f64::exp2)),
        ("exp10", v(0), |cv| float(&cv.1, |x| 10_f64.powf(x))),
        ("log", v(0), |cv| float(&cv.1, f64::ln)),
        ("log2", v(0), |cv| float(&cv.1, f64::log2)),
        ("log10", v(0), |cv| float(&cv.1, f64::log10)),
        ("sin", v(0), |cv| float(&cv.1, f64::sin)),
        ("cos", v(0), |cv| float(&cv.1, f64::cos)),
        ("tan", v(0), |cv| float(&cv.1, f64::tan)),
        ("asin", v(0), |cv| float(&cv.1, f64::asin)),
        ("acos", v(0), |cv| float(&cv.1, f64::acos)),
        ("atan", v(0), |cv| float(&cv.1, f64::atan)),
        ("pow", v(2), |mut cv| {
            let (exponent, base) = (cv.0.pop_var(), cv.0.pop_var());
            bome(number(&base).and_then(|base| Ok(base.powf(number(&exponent)?).into())))
        }),
        ("atan2", v(2), |mut cv| {
            let (x, y) = (cv.0.pop_var(), cv.0.pop_var());
            bome(number(&y).and_then(|y| Ok(y.atan2(number(&x)?).into())))
        }),
    ]);
    library.chain(own.into_vec().into_iter().map(|own| native::run::<Data>(own)))
}

/// Returns true if this pack takes the function `name` from the interpreter's library.
fn is_kept(name: &str) -> bool {
    absent::reason(name).is_none() && !REPLACED.contains(&name)
}

/// Joins texts, numbers, booleans and nulls, which are empty texts.
fn join(items: Val, separator: &Val) -> ValR {
    let mut joined = Vec::new();
    for (index, item) in items.values().enumerate() {
        if index > 0 {
            match separator {
                Val::Null => {}
                Val::TStr(bytes) => joined.extend_from_slice(bytes),
                other => return Err(Error::math(Val::utf8_str(joined), Math::Add, other.clone())),
            }
        }
        match item? {
            Val::Null => {}
            Val::TStr(bytes) | Val::BStr(bytes) => joined.extend_from_slice(&bytes),
            item @ (Val::Bool(_) | Val::Num(_)) => joined.extend(value::whole(item).to_string().into_bytes()),
            other => return Err(Error::math(Val::utf8_str(joined), Math::Add, other)),
        }
    }
    Ok(Val::utf8_str(joined))
}

/// Deletes the members at all paths of a list. Paths that do not exist are left alone. The empty path gives null.
fn delete_paths<'a>(from: Val, paths: Val) -> ValX<'a> {
    let list = |value| match value {
        Val::Arr(items) => Ok(items),
        other => Err(Error::typ(other, "array")),
    };
    let paths = list(value::whole(paths))?;
    let mut paths = paths.iter().map(|path| list(path.clone())).collect::<Result<Vec<_>, _>>()?;
    paths.sort();
    match paths.first() {
        Some(first) if first.is_empty() => Ok(Val::Null),
        _ => delete(from, &paths, 0),
    }
}

/// Deletes the members at `paths`. They are sorted, and each has more than `depth` keys, of which `depth` led here.
fn delete<'a>(mut from: Val, paths: &[Rc<Vec<Val>>], depth: usize) -> ValX<'a> {
    if from == Val::Null {
        return Ok(from);
    }
    let mut keys = Vec::new();
    for group in paths.chunk_by(|one, other| one[depth] == other[depth]).rev() {
        let key = &group[0][depth];
        if group[0].len() == depth + 1 {
            keys.push(key);
        } else if from.clone().index(key)? != Val::Null {
            from = from.map_index(key, Opt::Essential, |member| iter::once(delete(member, group, depth + 1)))?;
        }
    }
    delete_keys(from, &keys).map_err(Exn::from)
}

/// Deletes the members with these keys, which are sorted from the last to the first.
fn delete_keys(mut from: Val, keys: &[&Val]) -> ValR {
    match (&mut from, keys) {
        (_, []) => {}
        (Val::Arr(items), keys) => {
            // The same key in a list of places gives the places that it means.
            let places: Val = (0..items.len()).map(Val::from).collect();
            let mut is_deleted = vec![false; items.len()];
            let mut delete = |place: &Val| {
                if let Some(place) = place.as_isize() {
                    is_deleted[place as usize] = true;
                }
            };
            for key in keys {
                if let Val::Arr(_) = key {
                    return Err(Error::index(from.clone(), (*key).clone()));
                }
                match places.clone().index(key)? {
                    Val::Arr(places) => places.iter().for_each(&mut delete),
                    place => delete(&place),
                }
            }
            let mut is_deleted = is_deleted.into_iter();
            Rc::make_mut(items).retain(|_| !is_deleted.next().unwrap_or_default());
        }
        (Val::Obj(members), keys) => {
            Rc::make_mut(members).retain(|member, _| keys.binary_search_by(|key| member.cmp(key)).is_err());
        }
        (_, [key, ..]) => return Err(Error::index(from, (*key).clone())),
    }
    Ok(from)
}

/// Returns the length of a value: of a number its absolute value.
fn length(value: Val) -> ValR {
    let count = match &value {
        Val::Null => 0,
        Val::Num(number) if *number < Num::Int(0) => return -value,
        Val::Num(_) => return Ok(value),
        Val::Arr(items) => items.len(),
        Val::Obj(members) => members.len(),
        Val::TStr(text) => String::from_utf8_lossy(text).chars().count(),
        Val::BStr(bytes) => bytes.len(),
        Val::Bool(_) => return Err(Error::str(format_args!("{value} has no length"))),
    };
    Ok(count.into())
}

fn text(value: &Val) -> Result<&str, Error> {
    let Val::TStr(bytes) = value else { return Err(Error::typ(value.clone(), "string")) };
    str::from_utf8(bytes).map_err(Error::str)
}

fn number(value: &Val) -> Result<f64, Error> {
    value.as_f64().ok_or_else(|| Error::typ(value.clone(), "number"))
}

fn float<'a>(value: &Val, compute: impl Fn(f64) -> f64) -> jaq_core::ValXs<'a, Val> {
    bome(number(value).map(|value| compute(value).into()))
}

fn escape_html(text: &str) -> String {
    HTML.iter().rev().fold(text.to_owned(), |text, (from, to)| text.replace(*from, to))
}

fn unescape_html(text: &str) -> String {
    HTML.iter().fold(text.to_owned(), |text, (to, from)| text.replace(from, to.encode_utf8(&mut [0; 4])))
}

/// Searches the input for a pattern. Returns the texts between matches, or the groups of each match, or both in turn.
fn search(mut cv: Cv<'_, Data>, with_rest: bool, with_matches: bool) -> ValR {
    let (flags, pattern) = (cv.0.pop_var(), cv.0.pop_var());
    let (flags, pattern, searched) = (text(&flags)?, text(&pattern)?, text(&cv.1)?);
    let is_set = |flag: char| flags.contains(flag);
    if let Some(unknown) = flags.chars().find(|flag| !"gimnpslx".contains(*flag)) {
        return Err(Error::str(format_args!("there is no flag `{unknown}` for patterns")));
    }
    let regex = RegexBuilder::new(pattern)
        .case_insensitive(is_set('i'))
        .multi_line(is_set('m') || is_set('p'))
        .dot_matches_new_line(is_set('s') || is_set('p'))
        .swap_greed(is_set('l'))
        .ignore_whitespace(is_set('x'))
        .size_limit(MAX_PATTERN_BYTES)
        .build()
        .map_err(|error| Error::str(format_args!("this is not a pattern: {error}")))?;
    let (mut found, mut rest, mut chars, mut counted) = (Vec::new(), 0, 0, 0);
    for groups in regex.captures_iter(searched) {
        let Some(whole) = groups.get(0) else { continue };
        if is_set('n') && whole.is_empty() {
            continue;
        }
        if with_rest {
            found.push(Val::from(searched[rest..whole.start()].to_owned()));
            rest = whole.end();
        }
        if with_matches {
            chars += searched[counted..whole.start()].chars().count();
            counted = whole.start();
            let groups = groups.iter().zip(regex.capture_names());
            let groups = groups.map(|(group, name)| describe(&whole, chars, group, name));
            found.push(groups.collect());
        }
        if !is_set('g') {
            break;
        }
    }
    if with_rest {
        found.push(Val::from(searched[rest..].to_owned()));
    }
    Ok(found.into_iter().collect())
}

/// Describes a group of a match, which begins at the character `chars`. A group that did not match has the text null.
fn describe(whole: &Match<'_>, chars: usize, group: Option<Match<'_>>, name: Option<&str>) -> Val {
    let (offset, length, string) = group.map_or((Val::from(-1_isize), 0, Val::Null), |group| {
        let before = group.start() - whole.start();
        let offset = chars + whole.as_str()[..before].chars().count();
        (offset.into(), group.as_str().chars().count(), group.as_str().to_owned().into())
    });
    let key = |key: &str| Val::from(key.to_owned());
    let mut members = vec![(key("offset"), offset), (key("length"), length.into()), (key("string"), string)];
    members.extend(name.map(|name| (key("name"), name.to_owned().into())));
    Val::obj(members.into_iter().collect())
}
