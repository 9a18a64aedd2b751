//! The functions of queries: those of the interpreter's library that compute a value from values, and own ones for
//! patterns, encodings and numbers, whose libraries would double the size of the pack.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use jaq_core::{
    Cv, RunPtr,
    data::JustLut,
    load::{self, parse::Def},
    native::{self, Filter, Fun, bome, v},
};
use jaq_json::{Error, Num, Val, ValR};
use jaq_std::ValT as _;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, utf8_percent_encode};
use regex_lite::{Match, RegexBuilder};

use crate::absent;

/// The data that a query works on: values, and nothing from outside.
pub(crate) type Data = JustLut<Val>;

/// Maximum size of a compiled pattern in bytes.
const MAX_PATTERN_BYTES: usize = 1 << 20;

/// Functions that the interpreter's library defines with functions that this pack does not have.
const INCOMPLETE: [&str; 5] = ["drem", "gamma", "logb", "nexttoward", "significand"];

/// The characters that stay as they are in a URI.
const IN_URI: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Characters with a meaning in HTML, each with its replacement.
const HTML: [(char, &str); 5] = [('<', "&lt;"), ('>', "&gt;"), ('\'', "&#39;"), ('"', "&quot;"), ('&', "&amp;")];

/// Returns the functions that are written in jq.
pub(crate) fn definitions() -> impl Iterator<Item = Def<&'static str>> {
    let more = load::parse(include_str!("more.jq"), |parser| parser.defs()).unwrap_or_default();
    let library = jaq_core::defs().chain(jaq_std::defs()).chain(jaq_json::defs());
    library.filter(|it| absent::reason(it.name).is_none() && !INCOMPLETE.contains(&it.name)).chain(more)
}

/// Returns the functions that are written in Rust.
pub(crate) fn natives() -> impl Iterator<Item = Fun<Data>> {
    let library = jaq_core::funs().chain(jaq_std::base_funs()).chain(jaq_json::funs());
    // The library's `length` returns a negative number for the smallest integer.
    let library = library.filter(|(name, ..)| absent::reason(name).is_none() && *name != "length");
    let own: Box<[Filter<RunPtr<Data>>]> = Box::new([
        ("length", v(0), |cv| bome(length(cv.1))),
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
            bome(text(&cv.1).and_then(|text| STANDARD.decode(text).map(Val::utf8_str).map_err(Error::str)))
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
            let groups = groups.filter_map(|(group, name)| Some(describe(&whole, chars, group?, name)));
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

/// Describes a group of a match, which begins at the character `chars`.
fn describe(whole: &Match<'_>, chars: usize, group: Match<'_>, name: Option<&str>) -> Val {
    let before = group.start() - whole.start();
    let offset = chars + whole.as_str()[..before].chars().count();
    let key = |key: &str| Val::from(key.to_owned());
    let mut members = vec![
        (key("offset"), offset.into()),
        (key("length"), group.as_str().chars().count().into()),
        (key("string"), group.as_str().to_owned().into()),
    ];
    members.extend(name.map(|name| (key("name"), name.to_owned().into())));
    Val::obj(members.into_iter().collect())
}
