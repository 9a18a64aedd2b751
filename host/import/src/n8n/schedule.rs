//! The intervals of the Schedule Trigger.

use serde_json::Value;

/// Returns the fields of a schedule as a cron expression; `None` if it is not as simple as one.
pub(super) fn cron(rule: &Value) -> Option<String> {
    let number = |key: &str, default: u64| rule.get(key).map_or(Some(default), Value::as_u64);
    let (minute, hour) = (number("triggerAtMinute", 0)?, number("triggerAtHour", 0)?);
    let every = |count: u64, whole: u64| (count > 0 && whole.is_multiple_of(count)).then_some(count);
    if minute > 59 || hour > 23 {
        return None;
    }
    match rule.get("field").and_then(Value::as_str).unwrap_or("days") {
        "cronExpression" => {
            let expression = rule.get("expression")?.as_str()?;
            crate::cron::plain(expression.strip_prefix('=').unwrap_or(expression))
        }
        "minutes" => Some(format!("*/{} * * * *", every(number("minutesInterval", 5)?, 60)?)),
        "hours" => Some(format!("{minute} */{} * * *", every(number("hoursInterval", 1)?, 24)?)),
        "days" if number("daysInterval", 1)? == 1 => Some(format!("{minute} {hour} * * *")),
        "weeks" if number("weeksInterval", 1)? == 1 => {
            let days = rule.get("triggerAtDay")?.as_array()?;
            let days: Option<Vec<_>> = days.iter().map(|day| day.as_u64().filter(|day| *day < 7)).collect();
            let days: Vec<_> = days?.iter().map(u64::to_string).collect();
            (!days.is_empty()).then(|| format!("{minute} {hour} * * {}", days.join(",")))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_simple_intervals_become_cron() {
        let cases = [
            (json!({}), Some("0 0 * * *")),
            (json!({ "field": "days", "triggerAtHour": 2, "triggerAtMinute": 30 }), Some("30 2 * * *")),
            (json!({ "field": "days", "daysInterval": 2 }), None),
            (json!({ "field": "minutes", "minutesInterval": 15 }), Some("*/15 * * * *")),
            (json!({ "field": "minutes", "minutesInterval": 7 }), None),
            (json!({ "field": "hours", "hoursInterval": 6 }), Some("0 */6 * * *")),
            (json!({ "field": "weeks", "triggerAtDay": [1, 5], "triggerAtHour": 9 }), Some("0 9 * * 1,5")),
            (json!({ "field": "weeks", "triggerAtDay": [7] }), None),
            (json!({ "field": "cronExpression", "expression": "=0 9 * * 1-5" }), Some("0 9 * * 1-5")),
            (json!({ "field": "cronExpression", "expression": "0 0 9 * * *" }), None),
            (json!({ "field": "cronExpression", "expression": "{{ x }} * * * *" }), None),
            (json!({ "field": "months" }), None),
            (json!(7), Some("0 0 * * *")),
        ];
        for (rule, expected) in cases {
            assert_eq!(cron(&rule).as_deref(), expected, "{rule}");
        }
    }
}
