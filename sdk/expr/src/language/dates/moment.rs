//! Dates and times as texts (RFC 3339), and at a place.

use jiff_core::{
    civil::{Date, DateTime},
    tz::Offset,
};
use minijinja::{Error, State, Value};

use super::{
    instant::Instant,
    zones::{Zone, read_offset, write_offset},
};
use crate::language::operands::{invalid, is_null, kind, missing};

/// A date, a local time or an instant, as it is written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    /// The time on the clock; the beginning of the day for a date.
    pub(super) local: DateTime,
    /// The offset of an instant.
    pub(super) offset: Option<Offset>,
    /// True for a date without a time.
    pub(super) is_date: bool,
}

/// An instant in a zone.
pub(super) struct Zoned {
    pub(super) instant: Instant,
    pub(super) zone: Zone,
}

impl Moment {
    /// Reads a text such as `2026-11-26`, `2026-11-26T10:00` or `2026-11-26T10:00:00.5+01:00`, or a number of seconds
    /// since 1970-01-01T00:00:00Z. `name` is the filter that an error names.
    pub(super) fn read(name: &str, value: &Value) -> Result<Moment, Error> {
        if is_null(value) {
            return Err(missing(format!("`{name}` does not work on null")));
        }
        if value.is_number() {
            let seconds = if value.is_integer() { i64::try_from(value.clone()).ok() } else { None };
            let moment = seconds.and_then(Moment::from_second);
            let problem = "needs a number of whole seconds since 1970 up to the year 9999; divide milliseconds by 1000";
            return moment.ok_or_else(|| invalid(format!("`{name}` {problem}: `ms // 1000`")));
        }
        let Some(text) = value.as_str() else {
            return Err(invalid(format!("`{name}` needs a date, not {}", kind(value))));
        };
        parse(text).ok_or_else(|| {
            let hint = "write it like `2026-11-26` or `2026-11-26T10:00:00+01:00`, or read it with `dateparse(format)`";
            invalid(format!("`{name}`: the text is not a date: {hint}"))
        })
    }

    /// Returns the moment of a number of seconds since 1970; `None` outside of the years 0 to 9999.
    pub(super) fn from_second(second: i64) -> Option<Moment> {
        let local = Instant::from_second(second).to_local(Offset::UTC)?;
        Some(Moment { local, offset: Some(Offset::UTC), is_date: false })
    }

    /// Returns the instant in a zone. Without `zone` it is the offset of the text, or UTC.
    pub(super) fn at(&self, zone: Option<Zone>) -> Zoned {
        let own = self.offset.map(Zone::Fixed);
        let instant = own.as_ref().or(zone.as_ref()).unwrap_or(&Zone::UTC).instant(self.local);
        Zoned { instant, zone: zone.or(own).unwrap_or(Zone::UTC) }
    }
}

impl Zoned {
    /// Returns the instant of a local time in the zone.
    pub(super) fn from_local(local: DateTime, zone: Zone) -> Zoned {
        Zoned { instant: zone.instant(local), zone }
    }

    pub(super) fn offset(&self) -> Offset {
        self.zone.offset(self.instant)
    }

    /// Returns the time on the clocks of the zone. `name` is the filter that an error names.
    pub(super) fn local(&self, name: &str) -> Result<DateTime, Error> {
        self.instant.to_local(self.offset()).ok_or_else(|| beyond(name))
    }

    /// Writes the instant as RFC 3339 has it: with whole minutes of the offset, and without zeros behind the seconds.
    pub(super) fn to_text(&self, name: &str) -> Result<String, Error> {
        let offset = self.offset();
        let whole = Offset::from_seconds(offset.seconds() / 60 * 60).unwrap_or(Offset::UTC);
        let local = self.instant.to_local(whole).ok_or_else(|| beyond(name))?;
        let (date, time) = (date_text(name, local.date())?, local.time());
        let fraction = match time.subsec_nanosecond() {
            0 => String::new(),
            nanoseconds => format!(".{nanoseconds:09}").trim_end_matches('0').to_owned(),
        };
        let offset = if whole == Offset::UTC { "Z".to_owned() } else { write_offset(whole, true) };
        Ok(format!("{date}T{:02}:{:02}:{:02}{fraction}{offset}", time.hour(), time.minute(), time.second()))
    }
}

/// Writes a date. Years before 0 cannot be written.
pub(super) fn date_text(name: &str, date: Date) -> Result<String, Error> {
    if date.year() < 0 {
        return Err(beyond(name));
    }
    Ok(format!("{:04}-{:02}-{:02}", date.year(), date.month(), date.day()))
}

/// Reads a zone that an argument names.
pub(super) fn zone(state: &mut State<'_, '_>, name: Option<&str>) -> Result<Option<Zone>, Error> {
    name.map(|name| Zone::read(state, name)).transpose()
}

/// Creates the error about a result that is no date.
pub(super) fn beyond(name: &str) -> Error {
    invalid(format!("`{name}`: the result is not in the years 0 to 9999"))
}

fn parse(text: &str) -> Option<Moment> {
    let mut digits = Digits(text);
    let (year, month, day) = (digits.number(4)?, digits.behind('-', 2)?, digits.behind('-', 2)?);
    let date = Date::new(i16::try_from(year).ok()?, i8::try_from(month).ok()?, i8::try_from(day).ok()?).ok()?;
    let Some(rest) = digits.0.strip_prefix(['T', 't', ' ']) else {
        let local = date.at(0, 0, 0, 0);
        return digits.0.is_empty().then_some(Moment { local, offset: None, is_date: true });
    };
    digits.0 = rest;
    let (hour, minute) = (digits.number(2)?, digits.behind(':', 2)?);
    let second = if digits.0.starts_with(':') { digits.behind(':', 2)? } else { 0 };
    let nanosecond = match digits.0.strip_prefix('.') {
        Some(rest) => {
            let length = rest.find(|sign: char| !sign.is_ascii_digit()).unwrap_or(rest.len());
            digits.0 = &rest[length..];
            nanoseconds(&rest[..length])?
        }
        None => 0,
    };
    let offset = if digits.0.is_empty() { None } else { Some(read_offset(digits.0)?) };
    Some(Moment { local: local_time(date, hour, minute, second, nanosecond)?, offset, is_date: false })
}

/// Returns a local time. A leap second counts as the second before it.
pub(super) fn local_time(date: Date, hour: u32, minute: u32, second: u32, nanosecond: i32) -> Option<DateTime> {
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let part = |number: u32| i8::try_from(number).ok();
    Some(date.at(part(hour)?, part(minute)?, part(second.min(59))?, nanosecond))
}

/// Returns the nanoseconds of one to nine digits behind the point.
pub(super) fn nanoseconds(digits: &str) -> Option<i32> {
    let is_valid = (1..=9).contains(&digits.len()) && digits.bytes().all(|digit| digit.is_ascii_digit());
    let scale = 10_i32.pow(9 - u32::try_from(digits.len()).ok().filter(|_| is_valid)?);
    digits.parse::<i32>().ok().map(|number| number * scale)
}

/// The rest of a text, from which numbers are read.
struct Digits<'t>(&'t str);

impl Digits<'_> {
    fn number(&mut self, length: usize) -> Option<u32> {
        let (digits, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        digits.bytes().all(|digit| digit.is_ascii_digit()).then(|| digits.parse().ok())?
    }

    fn behind(&mut self, sign: char, length: usize) -> Option<u32> {
        self.0 = self.0.strip_prefix(sign)?;
        self.number(length)
    }
}
