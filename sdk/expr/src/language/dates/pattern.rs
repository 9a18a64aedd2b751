//! Writes and reads dates by a format, with the directives of `strftime`. Names are English.

use jiff_core::civil::{Date, DateTime, Weekday};
use minijinja::Error;

use super::{
    moment::{Moment, Zoned, local_time, nanoseconds},
    zones::{read_offset, write_offset},
};
use crate::language::{
    operands::{invalid, too_long},
    text::push_str,
};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

const HINT: &str = "write for example `%Y-%m-%d %H:%M`; the manual's page `functions` lists all";

/// A part of a format.
enum Part<'f> {
    Text(&'f str),
    /// A directive; true without zeros or spaces in front, as in `%-d`.
    Directive(&'f str, bool),
}

/// Splits a format. Returns an error for `%` at its end, and for a format without `%`, such as the `yyyy-MM-dd` of other
/// languages.
fn parts<'f>(name: &str, format: &'f str) -> Result<Vec<Part<'f>>, Error> {
    if !format.contains('%') {
        return Err(invalid(format!("`{name}`: the format has no directive with `%`; {HINT}")));
    }
    let (mut parts, mut rest) = (Vec::new(), format);
    while let Some((before, behind)) = rest.split_once('%') {
        parts.push(Part::Text(before));
        let (is_short, behind) = behind.strip_prefix('-').map_or((false, behind), |behind| (true, behind));
        let colon = usize::from(behind.starts_with(':'));
        let sign = behind[colon..].chars().next();
        let Some(sign) = sign else {
            return Err(invalid(format!("`{name}`: the format ends with `%`; write `%%` for the sign itself")));
        };
        let (directive, behind) = behind.split_at(colon + sign.len_utf8());
        parts.push(Part::Directive(directive, is_short));
        rest = behind;
    }
    parts.push(Part::Text(rest));
    Ok(parts)
}

fn unknown(name: &str, directive: &str) -> Error {
    invalid(format!("`{name}` does not know `%{}`: {HINT}", directive.escape_debug()))
}

/// Writes an instant by a format.
pub(super) fn write(name: &str, moment: &Zoned, format: &str) -> Result<String, Error> {
    let local = moment.local(name)?;
    let mut text = String::new();
    for part in parts(name, format)? {
        let more = match part {
            Part::Text(plain) => plain.to_owned(),
            Part::Directive(directive, is_short) => {
                let written = directive_text(moment, &local, directive).ok_or_else(|| unknown(name, directive))?;
                match is_short {
                    true => shortened(&written).to_owned(),
                    false => written,
                }
            }
        };
        push_str(&mut text, &more).map_err(too_long)?;
    }
    Ok(text)
}

/// Removes zeros and spaces before a number.
fn shortened(number: &str) -> &str {
    let short = number.trim_start_matches(['0', ' ']);
    if short.is_empty() && !number.is_empty() { &number[number.len() - 1..] } else { short }
}

fn directive_text(moment: &Zoned, local: &DateTime, directive: &str) -> Option<String> {
    let (date, time) = (local.date(), local.time());
    let twelve = |hour: i8| if hour % 12 == 0 { 12 } else { hour % 12 };
    let two = |number: i8| format!("{number:02}");
    Some(match directive {
        "Y" => format!("{:04}", date.year()),
        "y" => format!("{:02}", date.year().rem_euclid(100)),
        "m" => two(date.month()),
        "d" => two(date.day()),
        "e" => format!("{:2}", date.day()),
        "B" => month_name(date).to_owned(),
        "b" | "h" => month_name(date)[..3].to_owned(),
        "A" => day_name(date.weekday()).to_owned(),
        "a" => day_name(date.weekday())[..3].to_owned(),
        "u" => date.weekday().to_monday_one_offset().to_string(),
        "w" => date.weekday().to_sunday_zero_offset().to_string(),
        "j" => format!("{:03}", date.day_of_year()),
        "V" => two(date.to_iso_week_date().week()),
        "G" => format!("{:04}", date.to_iso_week_date().year()),
        "H" => two(time.hour()),
        "k" => format!("{:2}", time.hour()),
        "I" => two(twelve(time.hour())),
        "l" => format!("{:2}", twelve(time.hour())),
        "M" => two(time.minute()),
        "S" => two(time.second()),
        "L" => format!("{:03}", time.millisecond()),
        "f" => format!("{:06}", time.subsec_nanosecond() / 1_000),
        "p" => if time.hour() < 12 { "AM" } else { "PM" }.to_owned(),
        "P" => if time.hour() < 12 { "am" } else { "pm" }.to_owned(),
        "z" => write_offset(moment.offset(), false),
        ":z" => write_offset(moment.offset(), true),
        "Z" => moment.zone.abbreviation(moment.instant),
        "s" => moment.instant.as_second().to_string(),
        "F" => format!("{:04}-{:02}-{:02}", date.year(), date.month(), date.day()),
        "T" => format!("{:02}:{:02}:{:02}", time.hour(), time.minute(), time.second()),
        "R" => format!("{:02}:{:02}", time.hour(), time.minute()),
        "D" => format!("{:02}/{:02}/{:02}", date.month(), date.day(), date.year().rem_euclid(100)),
        "%" => "%".to_owned(),
        _ => return None,
    })
}

fn month_name(date: Date) -> &'static str {
    usize::try_from(date.month() - 1).ok().and_then(|month| MONTHS.get(month)).copied().unwrap_or_default()
}

fn day_name(day: Weekday) -> &'static str {
    usize::try_from(day.to_monday_zero_offset()).ok().and_then(|day| DAYS.get(day)).copied().unwrap_or_default()
}

/// The parts of a date that a format has read so far.
#[derive(Default)]
struct Fields {
    year: Option<u32>,
    month: Option<u32>,
    day: Option<u32>,
    day_of_year: Option<u32>,
    /// The place of the weekday in [`DAYS`].
    weekday: Option<u32>,
    hour: Option<u32>,
    minute: u32,
    second: u32,
    nanosecond: i32,
    is_afternoon: Option<bool>,
    has_time: bool,
    offset: Option<jiff_core::tz::Offset>,
    seconds: Option<i64>,
}

/// Returns an error for a format with a directive that cannot be read.
pub(super) fn check(name: &str, format: &str) -> Result<(), Error> {
    for part in parts(name, format)? {
        if let Part::Directive(directive, _) = part
            && !matches!(directive, "F" | "T" | "R" | "D")
        {
            field(&mut Fields::default(), &mut "", directive).ok_or_else(|| unknown(name, directive))?;
        }
    }
    Ok(())
}

/// Reads a text by a format.
pub(super) fn read(name: &str, text: &str, format: &str) -> Result<Moment, Error> {
    let mut fields = Fields::default();
    let mut rest = text;
    for part in parts(name, format)? {
        let is_read = match part {
            Part::Text(plain) => literal(&mut rest, plain),
            Part::Directive(directive, _) => {
                let expanded = match directive {
                    "F" => "%Y-%m-%d",
                    "T" => "%H:%M:%S",
                    "R" => "%H:%M",
                    "D" => "%m/%d/%y",
                    _ => "",
                };
                match expanded {
                    "" => field(&mut fields, &mut rest, directive).ok_or_else(|| unknown(name, directive))?,
                    more => parts(name, more)?.into_iter().all(|part| match part {
                        Part::Text(plain) => literal(&mut rest, plain),
                        Part::Directive(directive, _) => field(&mut fields, &mut rest, directive) == Some(true),
                    }),
                }
            }
        };
        if !is_read {
            let at = text[..text.len() - rest.len()].chars().count();
            return Err(invalid(format!("`{name}`: the text does not have this format from its character {at} on")));
        }
    }
    if !rest.is_empty() {
        let at = text[..text.len() - rest.len()].chars().count();
        return Err(invalid(format!("`{name}`: the text goes on after the format, from its character {at} on")));
    }
    let moment = fields.moment();
    let moment = moment.ok_or_else(|| invalid(format!("`{name}`: the format gives no date that exists")))?;
    fields.check_weekday(name, moment.local.date()).map(|()| moment)
}

/// Reads the plain text of a format. White space stands for any white space.
fn literal(rest: &mut &str, plain: &str) -> bool {
    let mut plain = plain;
    while let Some(sign) = plain.chars().next() {
        if sign.is_whitespace() {
            plain = plain.trim_start();
            *rest = rest.trim_start();
            continue;
        }
        let Some(behind) = rest.strip_prefix(sign) else { return false };
        (*rest, plain) = (behind, &plain[sign.len_utf8()..]);
    }
    true
}

/// Reads one directive. Returns `None` for an unknown one, and false if the text does not have it.
fn field(fields: &mut Fields, rest: &mut &str, directive: &str) -> Option<bool> {
    let mut number = |digits: usize| {
        let trimmed = rest.trim_start_matches(' ');
        let length = trimmed.bytes().take(digits).take_while(u8::is_ascii_digit).count();
        let (number, behind) = trimmed.split_at(length);
        *rest = behind;
        number.parse::<u32>().ok()
    };
    let is_read = match directive {
        "Y" | "y" | "m" | "d" | "e" | "j" => {
            let read = number(match directive {
                "Y" => 4,
                "j" => 3,
                _ => 2,
            });
            match directive {
                "Y" => fields.year = read,
                // As in POSIX: 69 to 99 are in the 20th century.
                "y" => fields.year = read.map(|year| if year < 69 { 2_000 + year } else { 1_900 + year }),
                "m" => fields.month = read,
                "j" => fields.day_of_year = read,
                _ => fields.day = read,
            }
            read.is_some()
        }
        "H" | "k" | "I" | "l" | "M" | "S" => {
            let read = number(2);
            fields.has_time = true;
            match directive {
                "M" => fields.minute = read.unwrap_or(0),
                "S" => fields.second = read.unwrap_or(0),
                _ => fields.hour = read,
            }
            read.is_some()
        }
        "L" | "f" => {
            let length = rest.bytes().take(9).take_while(u8::is_ascii_digit).count();
            let read = nanoseconds(&rest[..length]);
            *rest = &rest[length..];
            fields.nanosecond = read.unwrap_or(0);
            read.is_some()
        }
        "B" | "b" | "h" => {
            let month = name_at(rest, &MONTHS);
            fields.month = month.map(|month| month + 1);
            month.is_some()
        }
        "A" | "a" => {
            fields.weekday = name_at(rest, &DAYS);
            fields.weekday.is_some()
        }
        "p" | "P" => {
            fields.is_afternoon = rest.get(..2).and_then(|half| match half {
                "AM" | "am" => Some(false),
                "PM" | "pm" => Some(true),
                _ => None,
            });
            *rest = rest.get(2..).unwrap_or_default();
            fields.is_afternoon.is_some()
        }
        "z" | ":z" => {
            let length =
                rest.find(|sign: char| !(sign.is_ascii_digit() || "+-:Zz".contains(sign))).unwrap_or(rest.len());
            fields.offset = read_offset(&rest[..length]);
            *rest = &rest[length..];
            fields.offset.is_some()
        }
        "s" => {
            let length = rest.find(|sign: char| !(sign.is_ascii_digit() || sign == '-')).unwrap_or(rest.len());
            fields.seconds = rest[..length].parse().ok();
            *rest = &rest[length..];
            fields.seconds.is_some()
        }
        "%" => literal(rest, "%"),
        _ => return None,
    };
    Some(is_read)
}

/// Reads a name, in full or its first three letters. Returns its place in the list.
fn name_at(rest: &mut &str, names: &[&str]) -> Option<u32> {
    let begins = |text: &str| rest.get(..text.len()).is_some_and(|start| start.eq_ignore_ascii_case(text));
    let (at, length) = names.iter().enumerate().find_map(|(at, name)| {
        let length = if begins(name) { name.len() } else { 3 };
        (begins(&name[..length])).then_some((at, length))
    })?;
    *rest = &rest[length..];
    u32::try_from(at).ok()
}

impl Fields {
    /// Returns an error if the text names another day of the week than that of its date.
    fn check_weekday(&self, name: &str, date: Date) -> Result<(), Error> {
        let real = day_name(date.weekday());
        // The zone of a number of seconds is not known here.
        let is_known = self.seconds.is_none();
        match self.weekday.and_then(|day| DAYS.get(day as usize)).filter(|named| is_known && **named != real) {
            Some(named) => Err(invalid(format!("`{name}`: the text names a {named}, but its date is a {real}"))),
            None => Ok(()),
        }
    }

    /// Returns the date, or `None` if a part is missing or does not exist.
    fn moment(&self) -> Option<Moment> {
        if let Some(seconds) = self.seconds {
            return Moment::from_second(seconds);
        }
        let year = i16::try_from(self.year?).ok()?;
        let date = match self.day_of_year {
            Some(day) => Date::from_day_of_year(year, i16::try_from(day).ok()?).ok()?,
            None => {
                let part = |number: Option<u32>| i8::try_from(number.unwrap_or(1)).ok();
                Date::new(year, part(self.month)?, part(self.day)?).ok()?
            }
        };
        let hour = match (self.hour.unwrap_or(0), self.is_afternoon) {
            (hour, None) => hour,
            (hour @ 1..=12, Some(is_afternoon)) => hour % 12 + if is_afternoon { 12 } else { 0 },
            _ => return None,
        };
        let local = local_time(date, hour, self.minute, self.second, self.nanosecond)?;
        Some(Moment { local, offset: self.offset, is_date: !self.has_time && self.offset.is_none() })
    }
}
