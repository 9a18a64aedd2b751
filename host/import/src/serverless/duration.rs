//! Durations.

use serde_json::Value;

/// Longest duration: 365 days in milliseconds.
const LONGEST: u64 = 31_536_000_000;

/// Returns a duration in milliseconds: an object, or a text such as `PT1.5S`; `None` if it is computed, has months or
/// years, or is too long.
pub(super) fn millis(value: &Value) -> Option<u64> {
    match value {
        Value::String(text) => iso(text),
        Value::Object(members) if !members.is_empty() => members.iter().try_fold(0_u64, |sum, (key, count)| {
            let unit = match key.as_str() {
                "days" => 86_400_000,
                "hours" => 3_600_000,
                "minutes" => 60_000,
                "seconds" => 1_000,
                "milliseconds" => 1,
                _ => return None,
            };
            sum.checked_add(count.as_u64()?.checked_mul(unit)?)
        }),
        _ => None,
    }
    .filter(|millis| *millis <= LONGEST)
}

fn iso(text: &str) -> Option<u64> {
    let (date, time) = match text.strip_prefix('P')?.split_once('T') {
        Some((_, "")) => return None,
        Some((date, time)) => (date, time),
        None => (text.strip_prefix('P')?, ""),
    };
    if date.is_empty() && time.is_empty() {
        return None;
    }
    let weeks = parts(date, &[('W', 604_800_000), ('D', 86_400_000)])?;
    weeks.checked_add(parts(time, &[('H', 3_600_000), ('M', 60_000), ('S', 1_000)])?)
}

/// Returns the sum of numbers, each with its unit behind it, in the order of the units.
fn parts(mut text: &str, units: &[(char, u64)]) -> Option<u64> {
    let mut sum = 0_u64;
    for (unit, millis) in units {
        let Some((number, rest)) = text.split_once(*unit) else { continue };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
        let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
        if !is_number(whole) || !is_number(fraction) || fraction.len() > 9 {
            return None;
        }
        let scale = 10_u64.pow(u32::try_from(fraction.len()).ok()?);
        let part = fraction.parse::<u64>().ok()?.checked_mul(*millis)?;
        if part % scale != 0 {
            return None;
        }
        sum = sum.checked_add(whole.parse::<u64>().ok()?.checked_mul(*millis)?)?.checked_add(part / scale)?;
        text = rest;
    }
    text.is_empty().then_some(sum)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn durations_are_milliseconds() {
        let cases = [
            (json!("PT1.5S"), Some(1_500)),
            (json!("P1DT2H3M4S"), Some(93_784_000)),
            (json!("P2W"), Some(1_209_600_000)),
            (json!({ "hours": 2, "minutes": 15, "seconds": 30 }), Some(8_130_000)),
            (json!({ "milliseconds": 0 }), Some(0)),
            (json!({ "days": 365 }), Some(LONGEST)),
            (json!({ "days": 366 }), None),
            (json!("P1M"), None),
            (json!("P1Y"), None),
            (json!("P"), None),
            (json!("PT"), None),
            (json!("P1DT"), None),
            (json!("PT-1S"), None),
            (json!("PT1S1M"), None),
            (json!("PT0.0001S"), None),
            (json!("PT99999999999999999999S"), None),
            (json!("PTS"), None),
            (json!("${ .a }"), None),
            (json!({}), None),
            (json!({ "months": 1 }), None),
            (json!({ "days": -1 }), None),
            (json!(5), None),
        ];
        for (value, expected) in cases {
            assert_eq!(millis(&value), expected, "{value}");
        }
    }
}
