//! Instants of all dates that a text can have: those of the years 0 to 9999, in every zone.

use jiff_core::{
    Timestamp,
    civil::{Date, DateTime, Time, date},
    tz::Offset,
};

const NANOSECONDS: i128 = 1_000_000_000;
const DAY: i64 = 86_400;
const EPOCH: Date = date(1970, 1, 1);

/// A point in time. `jiff_core::Timestamp` lacks the last hours of the year 9999.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Instant {
    /// Seconds since 1970-01-01T00:00:00Z, rounded down.
    second: i64,
    /// From 0 to 999,999,999.
    nanosecond: i32,
}

impl Instant {
    pub(super) fn from_second(second: i64) -> Instant {
        Instant { second, nanosecond: 0 }
    }

    /// Returns `None` for a number far beyond the years of dates.
    pub(super) fn from_nanosecond(nanoseconds: i128) -> Option<Instant> {
        let second = i64::try_from(nanoseconds.div_euclid(NANOSECONDS)).ok()?;
        Some(Instant { second, nanosecond: i32::try_from(nanoseconds.rem_euclid(NANOSECONDS)).ok()? })
    }

    /// Returns the instant at which a clock with an offset shows a local time.
    pub(super) fn from_local(local: DateTime, offset: Offset) -> Instant {
        let (day, time) = (i64::from(EPOCH.until(local.date())), local.time());
        let clock = i64::from(time.hour()) * 3_600 + i64::from(time.minute()) * 60 + i64::from(time.second());
        let second = day * DAY + clock - i64::from(offset.seconds());
        Instant { second, nanosecond: time.subsec_nanosecond() }
    }

    /// Returns the time on a clock with an offset; `None` outside of the years 0 to 9999.
    pub(super) fn to_local(self, offset: Offset) -> Option<DateTime> {
        let second = self.second.checked_add(i64::from(offset.seconds()))?;
        let date = EPOCH.checked_add(i32::try_from(second.div_euclid(DAY)).ok()?).ok()?;
        let clock = second.rem_euclid(DAY);
        let part = |number: i64| i8::try_from(number).ok();
        let time = Time::new(part(clock / 3_600)?, part(clock / 60 % 60)?, part(clock % 60)?, self.nanosecond).ok()?;
        (date.year() >= 0).then_some(DateTime::from_parts(date, time))
    }

    pub(super) fn as_second(self) -> i64 {
        self.second
    }

    pub(super) fn as_nanosecond(self) -> i128 {
        i128::from(self.second) * NANOSECONDS + i128::from(self.nanosecond)
    }

    /// Returns the nearest instant for which the rules of zones have an answer. They do not change in the hours behind it.
    pub(super) fn for_rules(self) -> Timestamp {
        let end = if self.second < 0 { Timestamp::MIN } else { Timestamp::MAX };
        Timestamp::new(self.second, self.nanosecond).unwrap_or(end)
    }
}
