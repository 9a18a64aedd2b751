//! Time zones: their rules are part of the program, so every machine agrees.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock},
};

use jiff_core::{
    civil::DateTime,
    tz::{AmbiguousOffset, Offset, tzif::TimeZone},
};
use minijinja::{Error, State};

use super::instant::Instant;
use crate::{
    language::{budget::charge, operands::invalid},
    limits,
    path::shorten,
    suggest::similar,
};

/// The index and the rules of all zones; see `build.rs`. Empty if they cannot be read.
static ZONES: LazyLock<Vec<u8>> = LazyLock::new(|| {
    miniz_oxide::inflate::decompress_to_vec(include_bytes!(concat!(env!("OUT_DIR"), "/zones"))).unwrap_or_default()
});

/// A time zone.
#[derive(Clone, Debug)]
pub(super) enum Zone {
    /// A fixed offset from UTC.
    Fixed(Offset),
    /// A zone with rules, such as `Europe/Berlin`.
    Named(Arc<TimeZone>),
}

/// The zones that this evaluation has read.
#[derive(Default)]
struct Known(HashMap<String, Zone>);

impl Zone {
    pub(super) const UTC: Zone = Zone::Fixed(Offset::UTC);

    /// Reads `UTC`, an offset such as `+02:00`, or the name of a zone in the IANA time zone database.
    pub(super) fn read(state: &mut State<'_, '_>, name: &str) -> Result<Zone, Error> {
        if name.eq_ignore_ascii_case("utc") {
            return Ok(Zone::UTC);
        }
        if let Some(offset) = read_offset(name) {
            return Ok(Zone::Fixed(offset));
        }
        if let Some(known) = state.get_or_insert_extension_with(Known::default).0.get(name) {
            return Ok(known.clone());
        }
        charge(state, limits::ZONE_WORK)?;
        let zone = find(name)?;
        state.get_or_insert_extension_with(Known::default).0.insert(name.to_owned(), zone.clone());
        Ok(zone)
    }

    /// Returns the offset at an instant.
    pub(super) fn offset(&self, instant: Instant) -> Offset {
        match self {
            Zone::Fixed(offset) => *offset,
            Zone::Named(zone) => zone.to_offset(instant.for_rules()),
        }
    }

    /// Returns the short name at an instant, such as `CET`.
    pub(super) fn abbreviation(&self, instant: Instant) -> String {
        match self {
            Zone::Fixed(Offset::UTC) => "UTC".to_owned(),
            Zone::Fixed(offset) => write_offset(*offset, true),
            Zone::Named(zone) => zone.to_offset_info(instant.for_rules()).abbreviation().as_str().to_owned(),
        }
    }

    /// Returns the instant of a local time. A local time that occurs twice is the first one. One that the clocks skip
    /// moves forward by the length of the gap.
    pub(super) fn instant(&self, local: DateTime) -> Instant {
        let offset = match self {
            Zone::Fixed(offset) => *offset,
            Zone::Named(zone) => match zone.to_ambiguous_timestamp(local).offset() {
                AmbiguousOffset::Unambiguous { offset } => offset,
                AmbiguousOffset::Gap { before, .. } | AmbiguousOffset::Fold { before, .. } => before,
            },
        };
        Instant::from_local(local, offset)
    }
}

/// Returns an error for a zone that is not known.
pub(super) fn check(name: &str) -> Result<(), Error> {
    if name.eq_ignore_ascii_case("utc") || read_offset(name).is_some() { Ok(()) } else { find(name).map(|_| ()) }
}

/// Reads an offset such as `Z`, `+02:00` or `-0330`.
pub(super) fn read_offset(text: &str) -> Option<Offset> {
    if matches!(text, "Z" | "z") {
        return Some(Offset::UTC);
    }
    let (sign, digits) = match text.as_bytes() {
        [b'+', digits @ ..] => (1, digits),
        [b'-', digits @ ..] => (-1, digits),
        _ => return None,
    };
    let number = |tens: u8, ones: u8| {
        let is_number = tens.is_ascii_digit() && ones.is_ascii_digit();
        is_number.then(|| i32::from(tens - b'0') * 10 + i32::from(ones - b'0'))
    };
    let (hours, minutes) = match *digits {
        [a, b] => (number(a, b)?, 0),
        [a, b, b':', c, d] | [a, b, c, d] => (number(a, b)?, number(c, d)?),
        _ => return None,
    };
    let seconds = sign * (hours * 3_600 + minutes * 60);
    if hours > 23 || minutes > 59 { None } else { Offset::from_seconds(seconds).ok() }
}

/// Writes an offset as `+02:00`, or without colons. The seconds that offsets had before 1972 follow the minutes.
pub(super) fn write_offset(offset: Offset, has_colon: bool) -> String {
    let seconds = offset.seconds().abs();
    let (sign, colon) = (if offset.is_negative() { '-' } else { '+' }, if has_colon { ":" } else { "" });
    let behind = if seconds % 60 == 0 { String::new() } else { format!("{colon}{:02}", seconds % 60) };
    format!("{sign}{:02}{colon}{:02}{behind}", seconds / 3_600, seconds / 60 % 60)
}

fn find(name: &str) -> Result<Zone, Error> {
    let end = ZONES.windows(2).position(|pair| pair == b"\n\n").ok_or_else(|| broken("all"))?;
    let (index, rules) = (&ZONES[..end], &ZONES[end + 2..]);
    let index = std::str::from_utf8(index).map_err(|_| broken("all"))?;
    let mut lines = index.lines().filter_map(|line| line.split_once(' '));
    let Some((_, place)) = lines.find(|(known, _)| known.eq_ignore_ascii_case(name)) else {
        let names = index.lines().filter_map(|line| line.split(' ').next());
        let shown = shorten(name);
        let hint = match similar(name, names.clone()).or_else(|| names.clone().find(|known| is_city(known, name))) {
            Some(known) => format!("did you mean `{known}`?"),
            None => "write a name such as `Europe/Berlin`, or an offset such as `+02:00`".to_owned(),
        };
        return Err(invalid(format!("unknown time zone `{shown}`: {hint}")));
    };
    let range = place.split_once(' ').and_then(|(start, length)| {
        let start = start.parse::<usize>().ok()?;
        Some(start..start + length.parse::<usize>().ok()?)
    });
    let zone = range.and_then(|range| rules.get(range)).and_then(|rules| TimeZone::parse(rules).ok());
    zone.map(|zone| Zone::Named(Arc::new(zone))).ok_or_else(|| broken(name))
}

/// Returns true if `name` is the last part of a zone's name, such as `Berlin` or `New York`.
fn is_city(zone: &str, name: &str) -> bool {
    zone.rsplit('/').next().is_some_and(|city| city.replace('_', " ").eq_ignore_ascii_case(&name.replace('_', " ")))
}

fn broken(name: &str) -> Error {
    invalid(format!("the rules of the time zone `{name}` cannot be read: this is a defect of Flowcell"))
}
