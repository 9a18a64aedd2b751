//! Cron expressions in a time zone, as points in time. This module reads no clock. The due times are a function of the
//! schedule, the last handled time, and the current time.
//!
//! An expression has five fields: minute, hour, day of the month, month, day of the week. It has no seconds. If both
//! day fields are given, either may match. The time zones are those of IANA, and the program contains them.
//!
//! **Clock changes.** An expression with one hour and one minute means a time of day. If that time does not exist
//! (spring), it is due at the first moment after the gap. If it exists twice (autumn), it is due at the first of the
//! two. Any other expression follows the wall clock: a skipped hour has no due times, and a repeated hour has them
//! twice.

use croner::{
    Cron,
    parser::{CronParser, Seconds, Year},
};
use flowcell_flow::triggers::Missed;
use jiff::{Timestamp, Zoned, tz::TimeZone};

/// Maximum number of due times that [`Schedule::due`] returns, the latest ones. With `missed: all`, earlier due times
/// that were missed start nothing.
pub const MAX_MISSED_TIMES: usize = 100;
/// With `missed: skip`, a due time counts as missed once it is this many milliseconds ago.
pub const GRACE_MS: u64 = 60_000;
/// The start of a leap year, in seconds since 1970. The check of a cron expression searches from here.
const CHECK_FROM_SECONDS: i64 = 1_704_067_200;

/// A cron expression in a time zone.
#[derive(Clone, Debug)]
pub struct Schedule {
    cron: Cron,
    zone: TimeZone,
}

impl Schedule {
    /// Parses a cron expression and a time zone's name. The error is a sentence for people.
    pub fn new(cron: &str, time_zone: &str) -> Result<Schedule, String> {
        Ok(Schedule { cron: read_cron(cron)?, zone: read_zone(time_zone)? })
    }

    /// Returns those due times after `since` and up to `now` that `missed` lets start runs, in ascending order. Times
    /// are milliseconds since 1970. The list is empty if the clock has gone back.
    pub fn due(&self, since: u64, now: u64, missed: Missed) -> Vec<u64> {
        let (since, most) = match missed {
            Missed::Skip => (since.max(now.saturating_sub(GRACE_MS)), MAX_MISSED_TIMES),
            Missed::Latest => (since, 1),
            Missed::All => (since, MAX_MISSED_TIMES),
        };
        let mut slots: Vec<u64> = self.due_times_before(now).take_while(|slot| *slot > since).take(most).collect();
        slots.reverse();
        slots
    }

    /// Returns the first due time after a time, both in milliseconds since 1970. Returns `None` if there is none.
    pub fn next(&self, after: u64) -> Option<u64> {
        self.cron.find_next_occurrence(&self.to_zoned(after)?, false).ok().as_ref().and_then(to_millis)
    }

    /// Returns the due times up to the time `now`, from the latest to the earliest.
    fn due_times_before(&self, now: u64) -> impl Iterator<Item = u64> {
        let mut from = self.to_zoned(now).map(|now| (now, true));
        std::iter::from_fn(move || {
            let (at, inclusive) = from.take()?;
            let found = self.cron.find_previous_occurrence(&at, inclusive).ok()?;
            let slot = to_millis(&found)?;
            from = Some((found, false));
            Some(slot)
        })
    }

    /// Converts milliseconds since 1970 to a time in the zone, rounded down to a second.
    fn to_zoned(&self, at: u64) -> Option<Zoned> {
        let second = Timestamp::from_second((at / 1_000) as i64).ok()?;
        Some(second.to_zoned(self.zone.clone()))
    }
}

fn to_millis(at: &Zoned) -> Option<u64> {
    u64::try_from(at.timestamp().as_millisecond()).ok()
}

/// Checks a cron expression. The error is a sentence for people.
pub fn check_cron(cron: &str) -> Result<(), String> {
    let cron = read_cron(cron)?;
    let from = Timestamp::from_second(CHECK_FROM_SECONDS).map_err(|error| error.to_string())?.to_zoned(TimeZone::UTC);
    cron.find_next_occurrence(&from, false).map(drop).map_err(|_| "this day does not exist".to_owned())
}

/// Checks the name of a time zone. The error is a sentence for people.
pub fn check_time_zone(name: &str) -> Result<(), String> {
    read_zone(name).map(drop)
}

/// Formats a time for ids: `20260329T010000Z`.
pub fn format_for_id(at: u64) -> String {
    format_at(at, "%Y%m%dT%H%M%SZ")
}

/// Formats a time for texts: `2026-03-29T01:00:00Z`.
pub fn format_for_text(at: u64) -> String {
    format_at(at, "%Y-%m-%dT%H:%M:%SZ")
}

fn format_at(at: u64, format: &str) -> String {
    let at = i64::try_from(at).ok().and_then(|at| Timestamp::from_millisecond(at).ok()).unwrap_or(Timestamp::MAX);
    at.strftime(format).to_string()
}

fn read_cron(cron: &str) -> Result<Cron, String> {
    let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
    parser.parse(cron).map_err(|error| {
        let wrong = wrong_field(cron, |line| parser.parse(line).is_ok());
        wrong.unwrap_or_else(|| error.to_string().trim_end_matches('.').to_owned())
    })
}

/// Describes the first field that is invalid on its own, in a sentence. Returns `None` if there is none.
fn wrong_field(cron: &str, is_right: impl Fn(&str) -> bool) -> Option<String> {
    let fields: Vec<&str> = cron.split_whitespace().collect();
    if cron.trim_start().starts_with('@') {
        return None;
    }
    if fields.len() != FIELDS.len() {
        let names = FIELDS.map(|(name, _)| name).join(", ");
        return Some(format!("it has {} fields, but needs 5: {names}", fields.len()));
    }
    let alone = |at: usize| {
        let mut line = ["*"; FIELDS.len()];
        line[at] = fields[at];
        line.join(" ")
    };
    let at = (0..fields.len()).find(|at| !is_right(&alone(*at)))?;
    let (name, values) = FIELDS[at];
    let written: String = fields[at].chars().take(64).collect();
    Some(format!("the {name} cannot be `{written}`: write {values}, `*`, or lists, ranges and steps"))
}

/// The fields of a cron expression and their values.
const FIELDS: [(&str, &str); 5] = [
    ("minute", "0 to 59"),
    ("hour", "0 to 23"),
    ("day of the month", "1 to 31, `L` for the last"),
    ("month", "1 to 12, or JAN to DEC"),
    ("day of the week", "0 to 7, where 0 and 7 are Sunday, or SUN to SAT"),
];

fn read_zone(name: &str) -> Result<TimeZone, String> {
    TimeZone::get(name).map_err(|_| format!("unknown time zone `{}`", name.chars().take(64).collect::<String>()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    fn at(text: &str) -> u64 {
        text.parse::<Timestamp>().unwrap().as_millisecond() as u64
    }

    fn due(cron: &str, zone: &str, since: &str, now: &str, missed: Missed) -> Vec<String> {
        let schedule = Schedule::new(cron, zone).unwrap();
        schedule.due(at(since), at(now), missed).into_iter().map(format_for_text).collect()
    }

    #[test]
    fn the_wrong_field_is_named() {
        let cases = [
            ("75 * * * *", "the minute cannot be `75`: write 0 to 59"),
            ("0 25 * * *", "the hour cannot be `25`: write 0 to 23"),
            ("0 0 32 * *", "the day of the month cannot be `32`: write 1 to 31"),
            ("0 0 1 13 *", "the month cannot be `13`: write 1 to 12"),
            ("0 0 * * 1-9", "the day of the week cannot be `1-9`: write 0 to 7"),
            ("0 x,3 * FOO *", "the hour cannot be `x,3`"),
            ("0 0 0 * * *", "it has 6 fields, but needs 5: minute, hour,"),
            ("", "it has 0 fields"),
        ];
        for (cron, told) in cases {
            let error = check_cron(cron).unwrap_err();
            assert!(error.starts_with(told), "{cron}: {error}");
        }
        for cron in ["*/5 0-6,22 1,L * MON-FRI", "0 0 * * 7", "0 0 1 JAN *"] {
            assert_eq!(check_cron(cron), Ok(()), "{cron}");
        }
    }

    #[test]
    fn r30_a_time_that_does_not_exist_is_due_after_the_gap() {
        // At 02:00 of that day, clocks in Berlin advance to 03:00, which is 01:00 UTC.
        let of = |cron| due(cron, "Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-29T12:00:00Z", Missed::All);
        assert_eq!(of("30 2 * * *"), ["2026-03-29T01:00:00Z"]);
        assert_eq!(of("30 1 * * *"), ["2026-03-29T00:30:00Z"]);
        let half_hours =
            due("*/30 * * * *", "Europe/Berlin", "2026-03-29T00:00:00Z", "2026-03-29T02:00:00Z", Missed::All);
        assert_eq!(half_hours.len(), 4, "no half hour is left out or told twice: {half_hours:?}");
        assert_eq!(of("15 2,4 * * *"), ["2026-03-29T02:15:00Z"], "what names several hours follows the clock");
    }

    #[test]
    fn r30_a_time_that_comes_twice_is_due_once() {
        // At 03:00 of that day, 01:00 UTC, clocks in Berlin go back to 02:00.
        let of = |cron| due(cron, "Europe/Berlin", "2026-10-24T12:00:00Z", "2026-10-25T12:00:00Z", Missed::All);
        assert_eq!(of("30 2 * * *"), ["2026-10-25T00:30:00Z"]);
        let hours = due("0 * * * *", "Europe/Berlin", "2026-10-24T23:30:00Z", "2026-10-25T02:30:00Z", Missed::All);
        assert_eq!(hours, ["2026-10-25T00:00:00Z", "2026-10-25T01:00:00Z", "2026-10-25T02:00:00Z"]);
        // Other zones change at other hours, and by half an hour.
        let lord_howe =
            due("45 1 * * *", "Australia/Lord_Howe", "2026-04-04T00:00:00Z", "2026-04-05T00:00:00Z", Missed::All);
        assert_eq!(lord_howe, ["2026-04-04T14:45:00Z"]);
    }

    #[test]
    fn r30_the_29th_of_february_is_due_in_leap_years_alone() {
        let days = due("0 0 29 2 *", "UTC", "2023-01-01T00:00:00Z", "2033-01-01T00:00:00Z", Missed::All);
        assert_eq!(days, ["2024-02-29T00:00:00Z", "2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z"]);
        let schedule = Schedule::new("0 0 29 2 *", "UTC").unwrap();
        assert_eq!(schedule.next(at("2096-03-01T00:00:00Z")).map(format_for_text).unwrap(), "2104-02-29T00:00:00Z");
    }

    #[test]
    fn r30_missed_times_are_due_as_the_policy_says() {
        let of = |missed| due("0 * * * *", "UTC", "2026-01-01T00:00:00Z", "2026-01-01T05:00:30Z", missed);
        assert_eq!(of(Missed::Latest), ["2026-01-01T05:00:00Z"]);
        assert_eq!(of(Missed::All).len(), 5);
        assert_eq!(of(Missed::Skip), ["2026-01-01T05:00:00Z"], "half a minute late is in time");
        let late = |missed| due("0 * * * *", "UTC", "2026-01-01T00:00:00Z", "2026-01-01T05:02:00Z", missed).len();
        assert_eq!((late(Missed::Skip), late(Missed::Latest), late(Missed::All)), (0, 1, 5));
        let year = due("* * * * *", "UTC", "2025-01-01T00:00:00Z", "2026-01-01T00:00:00Z", Missed::All);
        assert_eq!(
            (year.len(), year[99].as_str()),
            (MAX_MISSED_TIMES, "2026-01-01T00:00:00Z"),
            "the latest, and no more"
        );
    }

    #[test]
    fn r30_a_clock_that_goes_back_makes_nothing_due() {
        for missed in [Missed::Skip, Missed::Latest, Missed::All] {
            assert!(due("* * * * *", "UTC", "2026-01-01T05:00:00Z", "2026-01-01T04:00:00Z", missed).is_empty());
            assert!(due("* * * * *", "UTC", "2026-01-01T05:00:00Z", "2026-01-01T05:00:59Z", missed).is_empty());
        }
    }

    #[test]
    fn times_found_backwards_equal_times_found_forwards() {
        let days = [("2026-03-28T20:00:00Z", "2026-03-29T20:00:00Z"), ("2026-10-24T20:00:00Z", "2026-10-25T20:00:00Z")];
        for cron in ["30 2 * * *", "0 3 * * *", "0 2 * * *", "*/20 * * * *", "5 1-3 * * *", "0 0 * * SUN", "59 2 * * *"]
        {
            for zone in ["Europe/Berlin", "UTC", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca"] {
                let schedule = Schedule::new(cron, zone).unwrap();
                for (since, now) in days {
                    let (mut ahead, mut from) = (Vec::new(), at(since));
                    while let Some(slot) = schedule.next(from).filter(|slot| *slot <= at(now)) {
                        ahead.push(slot);
                        from = slot;
                    }
                    assert_eq!(schedule.due(at(since), at(now), Missed::All), ahead, "{cron} {zone} {since}");
                }
            }
        }
    }

    #[test]
    fn invalid_schedules_are_refused_with_the_reason() {
        for wrong in ["", "0 2 * *", "0 0 2 * * *", "61 * * * *", "0 2 * * * 2026", "every day"] {
            assert!(check_cron(wrong).is_err(), "{wrong}");
        }
        assert_eq!(check_cron("0 0 30 2 *").unwrap_err(), "this day does not exist");
        assert!(check_cron("0 2 * * MON-FRI").is_ok() && check_cron("@daily").is_ok());
        assert!(check_time_zone("Europe/Berlin").is_ok());
        assert!(check_time_zone("Europe/Atlantis").unwrap_err().contains("Atlantis"));
    }
}
