//! Durations such as `P1M`, `PT1H30M` and `1h30m`.

use minijinja::Error;

use crate::language::operands::invalid;

const NANOSECONDS: i128 = 1_000_000_000;

/// A duration: months and days of the calendar, and exact time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Duration {
    pub(super) months: i64,
    pub(super) days: i64,
    pub(super) nanoseconds: i128,
}

impl Duration {
    /// Reads a duration in the form of ISO 8601, such as `P1Y2M3W4DT5H6M7.5S`, or with the units of a flow's timeouts,
    /// such as `1h30m`. A `-` at the beginning makes it negative.
    pub(super) fn read(name: &str, text: &str) -> Result<Duration, Error> {
        let (sign, rest) = match text.strip_prefix('-') {
            Some(rest) => (-1, rest),
            None => (1, text.strip_prefix('+').unwrap_or(text)),
        };
        let read = if rest.starts_with(['P', 'p']) { iso(rest) } else { short(rest) };
        let Some(duration) = read else {
            let hint = "write for example `P1M`, `PT1H30M`, `2d` or `1h30m`; in these, `m` is a minute";
            return Err(invalid(format!("`{name}`: the text is not a duration: {hint}")));
        };
        let (months, days) = (sign * duration.months, sign * duration.days);
        Ok(Duration { months, days, nanoseconds: i128::from(sign) * duration.nanoseconds })
    }

    /// Returns the time in nanoseconds, with days of 24 hours; `None` for a duration with months.
    pub(super) fn exact(&self) -> Option<i128> {
        (self.months == 0).then_some(i128::from(self.days) * 86_400 * NANOSECONDS + self.nanoseconds)
    }

    /// Adds a part: `number` with the digits `fraction` behind its point, which only exact time may have.
    fn add(&mut self, number: &str, fraction: &str, unit: Unit) -> Option<()> {
        // So many digits cannot overflow in the sums below.
        let whole = if number.len() <= 12 { number.parse::<i64>().ok()? } else { return None };
        match unit {
            Unit::Months(factor) if fraction.is_empty() => self.months += whole * factor,
            Unit::Days(factor) if fraction.is_empty() => self.days += whole * factor,
            Unit::Nanoseconds(factor) => {
                self.nanoseconds += i128::from(whole) * factor;
                if !fraction.is_empty() {
                    let digits = if fraction.len() <= 9 { fraction.parse::<i128>().ok()? } else { return None };
                    self.nanoseconds += digits * factor / 10_i128.pow(u32::try_from(fraction.len()).ok()?);
                }
            }
            _ => return None,
        }
        Some(())
    }
}

/// A unit, with its length in months, days or nanoseconds.
#[derive(Clone, Copy)]
enum Unit {
    Months(i64),
    Days(i64),
    Nanoseconds(i128),
}

/// Splits a number off a text: its digits, those behind the point, and the rest.
fn number(text: &str) -> Option<(&str, &str, &str)> {
    let end = text.find(|sign: char| !sign.is_ascii_digit())?;
    let (whole, rest) = text.split_at(end);
    let (fraction, rest) = match rest.strip_prefix(['.', ',']) {
        Some(behind) => behind.split_at(behind.find(|sign: char| !sign.is_ascii_digit())?),
        None => ("", rest),
    };
    (!whole.is_empty()).then_some((whole, fraction, rest))
}

fn iso(text: &str) -> Option<Duration> {
    let upper = text.to_ascii_uppercase();
    let (dates, times) = upper[1..].split_once('T').map_or((&upper[1..], None), |(dates, times)| (dates, Some(times)));
    if dates.is_empty() && times.is_none() || times.is_some_and(str::is_empty) {
        return None;
    }
    let mut duration = Duration::default();
    const HOUR: i128 = 3_600 * NANOSECONDS;
    let date_units = [('Y', Unit::Months(12)), ('M', Unit::Months(1)), ('W', Unit::Days(7)), ('D', Unit::Days(1))];
    let time_units =
        [('H', Unit::Nanoseconds(HOUR)), ('M', Unit::Nanoseconds(HOUR / 60)), ('S', Unit::Nanoseconds(NANOSECONDS))];
    for (part, units) in [(dates, &date_units[..]), (times.unwrap_or_default(), &time_units[..])] {
        let (mut rest, mut units) = (part, units.iter());
        while !rest.is_empty() {
            let (whole, fraction, behind) = number(rest)?;
            let sign = behind.chars().next()?;
            // Each unit occurs once, in this order.
            let (_, unit) = units.find(|(known, _)| *known == sign)?;
            duration.add(whole, fraction, *unit)?;
            rest = &behind[1..];
        }
    }
    Some(duration)
}

fn short(text: &str) -> Option<Duration> {
    let mut duration = Duration::default();
    let mut rest = text;
    while !rest.is_empty() {
        let (whole, fraction, behind) = number(rest)?;
        let end = behind.find(|sign: char| !sign.is_ascii_alphabetic()).unwrap_or(behind.len());
        let unit = match &behind[..end] {
            "ms" => Unit::Nanoseconds(NANOSECONDS / 1_000),
            "s" => Unit::Nanoseconds(NANOSECONDS),
            "m" | "min" => Unit::Nanoseconds(60 * NANOSECONDS),
            "h" => Unit::Nanoseconds(3_600 * NANOSECONDS),
            "d" => Unit::Days(1),
            "w" => Unit::Days(7),
            _ => return None,
        };
        duration.add(whole, fraction, unit)?;
        rest = behind[end..].trim_start_matches(' ');
    }
    (!text.is_empty()).then_some(duration)
}

/// Writes a number of nanoseconds as ISO 8601 has it, such as `PT1H30M`.
pub(super) fn write(nanoseconds: i128) -> String {
    let sign = if nanoseconds < 0 { "-" } else { "" };
    let (seconds, fraction) = (nanoseconds.abs() / NANOSECONDS, nanoseconds.abs() % NANOSECONDS);
    let mut text = format!("{sign}PT");
    for (number, unit) in [(seconds / 3_600, 'H'), (seconds / 60 % 60, 'M')] {
        if number > 0 {
            text.push_str(&format!("{number}{unit}"));
        }
    }
    if fraction > 0 {
        text.push_str(format!("{}.{fraction:09}", seconds % 60).trim_end_matches('0'));
        text.push('S');
    } else if seconds % 60 > 0 || seconds == 0 {
        text.push_str(&format!("{}S", seconds % 60));
    }
    text
}
