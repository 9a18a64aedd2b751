//! Compares the functions for dates with the library `jiff`, for random instants in many zones.

use flowcell_expr::{Binding, Json};
use jiff::{Span, Timestamp, ToSpan, Unit, Zoned, civil::DateTime, tz::TimeZone};
use proptest::prelude::*;

/// Zones with unusual rules: half hours, days that were skipped, summer times of half an hour, none at all.
const ZONES: [&str; 12] = [
    "UTC",
    "Europe/Berlin",
    "Europe/Dublin",
    "America/New_York",
    "America/St_Johns",
    "Asia/Kathmandu",
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "Africa/Casablanca",
    "America/Sao_Paulo",
    "Asia/Gaza",
    "Antarctica/Troll",
];

fn evaluate(source: &str, text: &str) -> String {
    let roots = Json::object([("x", Json::from(text))]);
    Binding::expression(source).unwrap().render(&roots).unwrap().as_str().unwrap().to_owned()
}

fn number(source: &str, text: &str) -> i64 {
    let roots = Json::object([("x", Json::from(text))]);
    Binding::expression(source).unwrap().render(&roots).unwrap().to_text().parse().unwrap()
}

/// Returns the instant of a text that an expression gave.
fn instant(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// Instants from 1905 to 2100.
fn instants() -> impl Strategy<Value = Timestamp> {
    (-2_050_000_000_i64..4_100_000_000).prop_map(|second| Timestamp::from_second(second).unwrap())
}

fn zones() -> impl Strategy<Value = &'static str> {
    prop::sample::select(&ZONES[..])
}

fn span() -> impl Strategy<Value = (String, Span)> {
    let parts = (0_i64..40, 0_i64..15, 0_i64..70, 0_i64..100, 0_i64..4_000);
    (parts, any::<bool>()).prop_map(|((years, months, days, hours, seconds), is_negative)| {
        let text = format!("P{years}Y{months}M{days}DT{hours}H{seconds}S");
        let span = years.years().months(months).days(days).hours(hours).seconds(seconds);
        if is_negative { (format!("-{text}"), -span) } else { (text, span) }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn dates_are_written_like_those_of_jiff(at in instants(), zone in zones()) {
        const FORMAT: &str = "%FT%T %z %a %A %b %B %j %V %G %I %p %y %u %s %-d";
        let zoned = at.to_zoned(TimeZone::get(zone).unwrap());
        let given = evaluate(&format!("x | dateformat('{FORMAT}', '{zone}')"), &at.to_string());
        prop_assert_eq!(given, zoned.strftime(FORMAT).to_string());
    }

    #[test]
    fn local_times_are_resolved_like_those_of_jiff(at in instants(), zone in zones()) {
        let local: DateTime = at.to_zoned(TimeZone::UTC).datetime();
        let expected = local.to_zoned(TimeZone::get(zone).unwrap()).unwrap().timestamp();
        let given = evaluate(&format!("x | dateparse(zone='{zone}')"), &local.to_string());
        prop_assert_eq!(instant(&given), expected);
        let text = local.strftime("%d/%m/%Y %I:%M:%S %p").to_string();
        let given = evaluate(&format!("x | dateparse('%d/%m/%Y %I:%M:%S %p', '{zone}')"), &text);
        prop_assert_eq!(instant(&given), expected);
    }

    #[test]
    fn durations_are_added_like_those_of_jiff(at in instants(), zone in zones(), (text, span) in span()) {
        let zoned = at.to_zoned(TimeZone::get(zone).unwrap());
        let given = evaluate(&format!("x | dateadd('{text}', '{zone}')"), &at.to_string());
        prop_assert_eq!(instant(&given), zoned.checked_add(span).unwrap().timestamp());
    }

    #[test]
    fn days_and_months_are_counted_like_those_of_jiff(a in instants(), b in instants()) {
        let zoned = |at: Timestamp| -> Zoned { at.to_zoned(TimeZone::UTC) };
        // From the last day of a month to that of a shorter one is a month here, and some days there.
        let is_cut = |a: &Zoned, b: &Zoned| a.day() == a.days_in_month() && a.day() < b.day();
        prop_assume!(!is_cut(&zoned(a), &zoned(b)) && !is_cut(&zoned(b), &zoned(a)));
        let between = |unit| zoned(b).until((unit, &zoned(a))).unwrap();
        let given = |unit: &str| number(&format!("x | datediff('{b}', '{unit}')"), &a.to_string());
        prop_assert_eq!(given("days"), i64::from(between(Unit::Day).get_days()));
        prop_assert_eq!(given("weeks"), i64::from(between(Unit::Week).get_weeks()));
        prop_assert_eq!(given("months"), i64::from(between(Unit::Month).get_months()));
        prop_assert_eq!(given("years"), i64::from(between(Unit::Year).get_years()));
        prop_assert_eq!(given("seconds"), a.as_second() - b.as_second());
    }
}

/// Reads instants in milliseconds since 1970, rounded up. What is no instant is refused, as is a time that leaves its zone open.
#[test]
fn an_instant_needs_a_zone_and_rounds_up() {
    use flowcell_expr::{Json, instant_milliseconds};
    let read = |text: &str| instant_milliseconds(&Json::from(text)).ok();
    assert_eq!(read("1970-01-01T00:00:01.5Z"), Some(1_500));
    assert_eq!(read("1970-01-01T00:00:01.5000001Z"), Some(1_501));
    assert_eq!(read("1970-01-01T01:00:01+01:00"), Some(1_000));
    assert_eq!(read("1969-12-31T23:59:59.9999Z"), Some(0));
    let json = |text: &str| instant_milliseconds(&Json::parse(text).unwrap());
    assert_eq!(json("7"), Ok(7_000));
    for text in ["2026-11-26", "2026-11-26T10:00", "10:00Z", "", "now", "2026-02-30T10:00Z", "2026-11-26T25:00Z"] {
        assert_eq!(read(text), None, "{text}");
    }
    for text in ["null", "true", "1.5", "-1", "18446744073709551615", "[]"] {
        assert!(json(text).is_err(), "{text}");
    }
}
