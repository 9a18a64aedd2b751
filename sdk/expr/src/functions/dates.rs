//! Functions for dates and durations.

use super::{Function, filter};

pub(super) const FUNCTIONS: &[Function] = &[
    filter(
        &["dateadd"],
        "x | dateadd(duration, zone=null)",
        "Adds a duration, or subtracts one with `-`: first its years to days by the calendar of the zone, then its hours to seconds.",
        ("'2026-01-31' | dateadd('P1M')", r#""2026-02-28""#),
    ),
    filter(
        &["datediff"],
        "x | datediff(other, unit='seconds', zone=null)",
        "Gives the time from `other` to `x`: `milliseconds`, `seconds`, `minutes` and `hours` exactly, and the `days`, `weeks`, `months` or `years` that are over. `zone` needs its name.",
        ("'2026-11-26' | datediff('2026-01-01', 'days')", "329"),
    ),
    filter(
        &["dateformat"],
        "x | dateformat(format, zone=null)",
        "Writes a date in a format, whose signs `flowcell help functions` lists.",
        ("'2026-11-26T09:30:00Z' | dateformat('%a %d.%m.%Y %H:%M', 'Europe/Berlin')", r#""Thu 26.11.2026 10:30""#),
    ),
    filter(
        &["dateparse"],
        "x | dateparse(format=null, zone=null)",
        "Gives the instant of a text in a format, or of a date. `zone` is the zone of a text that names none, and the one of the result.",
        ("'26.11.2026 10:30' | dateparse('%d.%m.%Y %H:%M', 'Europe/Berlin')", r#""2026-11-26T10:30:00+01:00""#),
    ),
    filter(
        &["datestart"],
        "x | datestart(unit, zone=null)",
        "Gives the beginning of the `year`, `quarter`, `month`, `week` (on Monday), `day`, `hour` or `minute` of a date.",
        ("'2026-11-26' | datestart('week')", r#""2026-11-23""#),
    ),
    filter(
        &["duration"],
        "text | duration(unit='seconds')",
        "Gives a duration as a number of `milliseconds`, `seconds`, `minutes`, `hours` or `days` of 24 hours.",
        ("'1h30m' | duration('minutes')", "90"),
    ),
    filter(
        &["durationformat"],
        "number | durationformat",
        "Writes a number of seconds as a duration (ISO 8601).",
        ("5400 | durationformat", r#""PT1H30M""#),
    ),
];
