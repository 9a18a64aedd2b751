//! Dates, times and durations. They are texts in the flow: `2026-11-26`, `2026-11-26T10:00:00+01:00` and `PT1H30M`.
//!
//! Nothing here depends on the machine: neither on its clock and time zone, nor on its language.

mod duration;
mod instant;
mod moment;
mod pattern;
mod zones;

use jiff_core::civil::{Date, DateTime, days_in_month};
use minijinja::{Error, State, Value, value::Kwargs};

use self::{
    duration::Duration,
    instant::Instant,
    moment::{Moment, Zoned, beyond, date_text, zone},
    zones::Zone,
};
use super::operands::{argument, invalid, kind};
use crate::Json;

/// Writes an instant as RFC 3339 has it, in UTC, from milliseconds since 1970. Returns `None` for years after 9999.
pub fn instant_text(milliseconds: u64) -> Option<String> {
    let instant = Instant::from_nanosecond(i128::from(milliseconds) * NANOSECONDS_PER_MILLISECOND)?;
    Zoned { instant, zone: Zone::UTC }.to_text("now").ok()
}

/// Reads an instant: a text as RFC 3339 has it, with an offset, or whole seconds since 1970-01-01T00:00:00Z. Returns
/// milliseconds since then, rounded up, so that nobody who waits for the instant comes too early.
///
/// # Errors
/// The value is no instant: for example, it is a date without a time, or a time without an offset. The error is a sentence.
pub fn instant_milliseconds(value: &Json) -> Result<i64, String> {
    const NAME: &str = "instant";
    let text = || value.as_str().map(Value::from);
    let read = |value: Value| Moment::read(NAME, &value).ok().filter(|moment| moment.offset.is_some());
    let moment = text().or_else(|| value.as_u64().map(Value::from)).and_then(read);
    let moment =
        moment.ok_or("an instant has a date, a time and an offset, such as `2026-11-26T10:00:00+01:00` or `…Z`")?;
    let nanoseconds = moment.at(None).instant.as_nanosecond() + NANOSECONDS_PER_MILLISECOND - 1;
    i64::try_from(nanoseconds.div_euclid(NANOSECONDS_PER_MILLISECOND)).map_err(|error| error.to_string())
}

const NANOSECONDS_PER_SECOND: i128 = 1_000_000_000;
const NANOSECONDS_PER_MILLISECOND: i128 = 1_000_000;

/// `x | dateparse(format, zone)`: reads a text by a format, and gives the instant.
pub(super) fn parse(
    state: &mut State<'_, '_>,
    value: &Value,
    format: Option<&str>,
    zone_name: Option<&str>,
    options: Kwargs,
) -> Result<String, Error> {
    const NAME: &str = "dateparse";
    let format = argument(format, &options, "format")?;
    let zone = zone(state, argument(zone_name, &options, "zone")?)?;
    options.assert_all_used()?;
    let moment = match (format, value.as_str()) {
        (Some(format), Some(text)) => pattern::read(NAME, text, format)?,
        (Some(_), None) => return Err(invalid(format!("`{NAME}` needs a text for a format, not {}", kind(value)))),
        (None, _) => Moment::read(NAME, value)?,
    };
    moment.at(zone).to_text(NAME)
}

/// `x | dateformat(format, zone)`: writes a date by a format.
pub(super) fn format(
    state: &mut State<'_, '_>,
    value: &Value,
    format: &str,
    zone_name: Option<&str>,
    options: Kwargs,
) -> Result<String, Error> {
    const NAME: &str = "dateformat";
    let zone = zone(state, argument(zone_name, &options, "zone")?)?;
    options.assert_all_used()?;
    let moment = Moment::read(NAME, value)?;
    pattern::write(NAME, &moment.at(zone), format)
}

/// `x | dateadd(duration, zone)`: adds a duration: first its months and days by the calendar of the zone, then its time.
pub(super) fn add(
    state: &mut State<'_, '_>,
    value: &Value,
    duration: &str,
    zone_name: Option<&str>,
    options: Kwargs,
) -> Result<String, Error> {
    const NAME: &str = "dateadd";
    let zone = zone(state, argument(zone_name, &options, "zone")?)?;
    options.assert_all_used()?;
    let (moment, duration) = (Moment::read(NAME, value)?, Duration::read(NAME, duration)?);
    if moment.is_date && duration.nanoseconds == 0 {
        return date_text(NAME, moved(moment.local.date(), &duration).ok_or_else(|| beyond(NAME))?);
    }
    let start = moment.at(zone);
    let local = start.local(NAME)?;
    let instant = match (duration.months, duration.days) {
        (0, 0) => start.instant,
        _ => {
            let date = moved(local.date(), &duration).ok_or_else(|| beyond(NAME))?;
            Zoned::from_local(DateTime::from_parts(date, local.time()), start.zone.clone()).instant
        }
    };
    let sum = instant.as_nanosecond().checked_add(duration.nanoseconds);
    let instant = sum.and_then(Instant::from_nanosecond).ok_or_else(|| beyond(NAME))?;
    Zoned { instant, zone: start.zone }.to_text(NAME)
}

/// Adds the months and days of a duration. A day that the month does not have becomes its last one.
fn moved(date: Date, duration: &Duration) -> Option<Date> {
    let months = i64::from(date.year()) * 12 + i64::from(date.month() - 1) + duration.months;
    let year = i16::try_from(months.div_euclid(12)).ok().filter(|year| (0..=9_999).contains(year))?;
    let month = i8::try_from(months.rem_euclid(12) + 1).ok()?;
    let date = Date::new(year, month, date.day().min(days_in_month(year, month))).ok()?;
    date.checked_add(i32::try_from(duration.days).ok()?).ok().filter(|date| date.year() >= 0)
}

/// `x | datediff(other, unit, zone)`: the time from `other` to `x`. Seconds, minutes and hours are exact; days, weeks,
/// months and years are those that are over, by the calendar of the zone.
pub(super) fn difference(
    state: &mut State<'_, '_>,
    value: &Value,
    other: &Value,
    unit: Option<&str>,
    options: Kwargs,
) -> Result<Value, Error> {
    const NAME: &str = "datediff";
    let unit = argument(unit, &options, "unit")?.unwrap_or("seconds");
    let zone = zone(state, argument(None, &options, "zone")?)?;
    options.assert_all_used()?;
    let (value, other) = (Moment::read(NAME, value)?, Moment::read(NAME, other)?);
    let other = other.at(zone.clone());
    let value = value.at(zone);
    if let Some(length) = exact_unit(unit) {
        return Ok(quotient(value.instant.as_nanosecond() - other.instant.as_nanosecond(), length));
    }
    // Both times are on the clocks of one place.
    let local = |instant| Zoned { instant, zone: value.zone.clone() }.local(NAME);
    let (from, to) = (local(other.instant)?, local(value.instant)?);
    let (from, to, sign) = if from <= to { (from, to, 1) } else { (to, from, -1) };
    let days = from.date().until(to.date());
    let days = i64::from(days - i32::from(from.time() > to.time()));
    let months =
        i64::from(to.date().year() - from.date().year()) * 12 + i64::from(to.date().month() - from.date().month());
    let is_early = (to.date().day(), to.time()) < (from.date().day(), from.time());
    let is_last_day = to.date().day() == to.date().days_in_month() && to.time() >= from.time();
    let months = months - i64::from(is_early && !is_last_day);
    let count = match unit {
        "days" => days,
        "weeks" => days / 7,
        "months" => months,
        "years" => months / 12,
        _ => return Err(unknown_unit(NAME)),
    };
    Ok(Value::from(sign * count))
}

/// Returns the length of an exact unit in nanoseconds.
fn exact_unit(unit: &str) -> Option<i128> {
    Some(match unit {
        "milliseconds" => NANOSECONDS_PER_MILLISECOND,
        "seconds" => NANOSECONDS_PER_SECOND,
        "minutes" => 60 * NANOSECONDS_PER_SECOND,
        "hours" => 3_600 * NANOSECONDS_PER_SECOND,
        _ => return None,
    })
}

/// Divides, and gives a whole number if it can.
fn quotient(nanoseconds: i128, length: i128) -> Value {
    match i64::try_from(nanoseconds / length) {
        Ok(whole) if nanoseconds % length == 0 => Value::from(whole),
        _ => Value::from(nanoseconds as f64 / length as f64),
    }
}

/// The units of each function.
const UNITS: [(&str, &[&str]); 3] = [
    ("datediff", &["milliseconds", "seconds", "minutes", "hours", "days", "weeks", "months", "years"]),
    ("datestart", &["year", "quarter", "month", "week", "day", "hour", "minute"]),
    ("duration", &["milliseconds", "seconds", "minutes", "hours", "days"]),
];

fn units(name: &str) -> &'static [&'static str] {
    UNITS.iter().find(|(function, _)| *function == name).map_or(&[], |(_, units)| units)
}

fn unknown_unit(name: &str) -> Error {
    let (last, others) = units(name).split_last().unwrap_or((&"", &[]));
    invalid(format!("`{name}` needs the unit `{}` or `{last}`", others.join("`, `")))
}

/// Returns an error if a function does not know a unit.
pub(super) fn check_unit(name: &str, unit: &str) -> Result<(), Error> {
    if units(name).contains(&unit) { Ok(()) } else { Err(unknown_unit(name)) }
}

/// Returns an error for a text that is no duration.
pub(super) fn check_duration(name: &str, duration: &str) -> Result<(), Error> {
    Duration::read(name, duration).map(|_| ())
}

/// Returns an error for an unknown time zone.
pub(super) fn check_zone(_: &str, zone: &str) -> Result<(), Error> {
    zones::check(zone)
}

/// Returns an error for a format with which `dateformat` cannot write.
pub(super) fn check_written_format(name: &str, format: &str) -> Result<(), Error> {
    pattern::write(name, &Zoned { instant: Instant::from_second(0), zone: Zone::UTC }, format).map(|_| ())
}

/// Returns an error for a format with which `dateparse` cannot read.
pub(super) fn check_read_format(name: &str, format: &str) -> Result<(), Error> {
    pattern::check(name, format)
}

/// `x | datestart(unit, zone)`: the beginning of the year, month, week or the like that a date is in.
pub(super) fn start(
    state: &mut State<'_, '_>,
    value: &Value,
    unit: &str,
    zone_name: Option<&str>,
    options: Kwargs,
) -> Result<String, Error> {
    const NAME: &str = "datestart";
    let zone = zone(state, argument(zone_name, &options, "zone")?)?;
    options.assert_all_used()?;
    let moment = Moment::read(NAME, value)?;
    // A date without a time has the same beginnings in every zone.
    let zoned = moment.at(zone.filter(|_| !moment.is_date));
    let local = zoned.local(NAME)?;
    let (date, time) = (local.date(), local.time());
    let start = match unit {
        "year" => date.first_of_year().at(0, 0, 0, 0),
        "quarter" => {
            Date::new(date.year(), (date.month() - 1) / 3 * 3 + 1, 1).map_err(|_| beyond(NAME))?.at(0, 0, 0, 0)
        }
        "month" => date.first_of_month().at(0, 0, 0, 0),
        "week" => {
            let monday = date.checked_sub(i32::from(date.weekday().to_monday_zero_offset()));
            monday.map_err(|_| beyond(NAME))?.at(0, 0, 0, 0)
        }
        "day" => date.at(0, 0, 0, 0),
        "hour" => date.at(time.hour(), 0, 0, 0),
        "minute" => date.at(time.hour(), time.minute(), 0, 0),
        _ => return Err(unknown_unit(NAME)),
    };
    if moment.is_date {
        return date_text(NAME, start.date());
    }
    // An hour that occurs twice begins in the time that `x` is in.
    let offset = zoned.offset();
    let own = Instant::from_local(start, offset);
    match zoned.zone.offset(own) == offset {
        true => Zoned { instant: own, zone: zoned.zone }.to_text(NAME),
        false => Zoned::from_local(start, zoned.zone).to_text(NAME),
    }
}

/// `x | duration(unit)`: a duration as a number of seconds or another unit.
pub(super) fn duration(value: &str, unit: Option<&str>, options: Kwargs) -> Result<Value, Error> {
    const NAME: &str = "duration";
    let unit = argument(unit, &options, "unit")?.unwrap_or("seconds");
    options.assert_all_used()?;
    let exact = Duration::read(NAME, value)?.exact();
    let exact = exact.ok_or_else(|| invalid(format!("`{NAME}`: months and years have no fixed length")))?;
    let length = match unit {
        "days" => Some(86_400 * NANOSECONDS_PER_SECOND),
        unit => exact_unit(unit),
    };
    let length = length.ok_or_else(|| unknown_unit(NAME))?;
    Ok(quotient(exact, length))
}

/// `x | durationformat`: a number of seconds as a duration (ISO 8601).
pub(super) fn duration_format(value: &Value) -> Result<String, Error> {
    const NAME: &str = "durationformat";
    let nanoseconds = match i64::try_from(value.clone()) {
        Ok(seconds) if value.is_number() => Some(i128::from(seconds) * NANOSECONDS_PER_SECOND),
        _ if value.is_number() => {
            let seconds = f64::try_from(value.clone())?;
            (seconds.abs() < 1e15).then_some((seconds * 1e9).round() as i128)
        }
        _ => return Err(invalid(format!("`{NAME}` needs a number of seconds, not {}", kind(value)))),
    };
    let nanoseconds = nanoseconds.ok_or_else(|| invalid(format!("`{NAME}`: the number is too large")))?;
    Ok(duration::write(nanoseconds))
}
