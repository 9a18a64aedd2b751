//! Rules of retention: which ended runs of a tenant are removed, and when.
//!
//! The first rule whose flow and status fit a run decides about it. A run that no rule fits stays.

use std::{fmt, str::FromStr};

use flowcell_contract::text::revealed;
use flowcell_flow::{is_flow_name, triggers::End};
use flowcell_runtime::{RunStatus, ports::RunGroup};
use serde::{Deserialize, Serialize};

/// Maximum number of rules of a tenant.
pub const MAX_RULES: usize = 100;
/// The minimum age at which an ended run is removed by itself, in milliseconds. Triggers and clients have seen its end
/// by then.
pub const MIN_AGE_MS: u64 = 10 * 60 * 1_000;

/// One rule. It removes the runs that are too old, and those that are too many; either is enough.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RetentionRule {
    /// The flow of the runs. `None` fits all flows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow: Option<String>,
    /// The status of the runs. `None` fits every final status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<End>,
    /// Removes the runs that ended longer ago than this, such as `30d`, `12h` or `90m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub older_than: Option<String>,
    /// Removes the runs that are not among this many that ended last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_latest: Option<u64>,
}

impl RetentionRule {
    /// Returns the group of runs that the rule fits.
    pub(crate) fn group(&self) -> RunGroup {
        let status = self.status.map(|status| match status {
            End::Succeeded => RunStatus::Succeeded,
            End::Failed => RunStatus::Failed,
            End::Cancelled => RunStatus::Cancelled,
        });
        RunGroup { flow: self.flow.clone(), status }
    }

    /// Returns the age in milliseconds above which runs are removed. The error is a sentence for people.
    pub(crate) fn age_ms(&self) -> Result<Option<u64>, String> {
        self.older_than.as_deref().map(age_ms).transpose()
    }

    /// Returns true if the rule fits every run that another rule fits.
    fn covers(&self, other: &RetentionRule) -> bool {
        let flow = self.flow.is_none() || self.flow == other.flow;
        flow && (self.status.is_none() || self.status == other.status)
    }

    fn check(&self) -> Result<(), String> {
        if self.older_than.is_none() && self.keep_latest.is_none() {
            return Err("needs `olderThan` or `keepLatest`".into());
        }
        if self.flow.as_deref() == Some("") {
            return Err("`flow` is empty; leave it out for all flows".into());
        }
        if let Some(flow) = self.flow.as_deref().filter(|flow| !is_flow_name(flow)) {
            return Err(format!("`{}` is not the name of a flow: use letters, digits, `_` and `-`", revealed(flow)));
        }
        self.age_ms().map(drop)
    }
}

/// Parses an age: a whole number with the unit `m`, `h` or `d`.
fn age_ms(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is not an age; write for example `90m`, `12h` or `30d`");
    let (number, unit) = text.split_at_checked(text.len().saturating_sub(1)).ok_or_else(wrong)?;
    let each = match unit {
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(wrong()),
    };
    let number: u64 = Some(number)
        .filter(|n| n.bytes().all(|byte| byte.is_ascii_digit()))
        .and_then(|n| n.parse().ok())
        .ok_or_else(wrong)?;
    let age = number.checked_mul(each).ok_or_else(wrong)?;
    if age < MIN_AGE_MS {
        return Err(format!("`{text}` is too short; the minimum age is {} minutes", MIN_AGE_MS / 60_000));
    }
    Ok(age)
}

/// Checks the rules of a tenant. The error names the first rule that is wrong, by its index.
pub fn check(rules: &[RetentionRule]) -> Result<(), String> {
    if rules.len() > MAX_RULES {
        return Err(format!("`retention`: {} rules exceed the maximum of {MAX_RULES}", rules.len()));
    }
    for (index, rule) in rules.iter().enumerate() {
        rule.check().map_err(|why| format!("`retention[{index}]`: {why}"))?;
        if let Some(earlier) = rules[..index].iter().position(|earlier| earlier.covers(rule)) {
            return Err(format!(
                "`retention[{index}]` would never be used, because `retention[{earlier}]` fits the same runs and comes \
                 first"
            ));
        }
    }
    Ok(())
}

impl FromStr for RetentionRule {
    type Err = String;

    /// Parses the form of the command line, such as `flow=report,status=failed,olderThan=30d,keepLatest=100`.
    fn from_str(text: &str) -> Result<RetentionRule, String> {
        let mut rule = RetentionRule::default();
        for part in text.split(',') {
            let (key, value) =
                part.split_once('=').ok_or_else(|| format!("`{part}` is not of the form `key=value`"))?;
            let is_new = match key {
                "flow" => rule.flow.replace(value.to_owned()).is_none(),
                "olderThan" => rule.older_than.replace(value.to_owned()).is_none(),
                "status" => {
                    let status = serde_json::from_value(value.into());
                    let status =
                        status.map_err(|_| "`status` must be `succeeded`, `failed` or `cancelled`".to_owned())?;
                    rule.status.replace(status).is_none()
                }
                "keepLatest" => {
                    let count = value.parse().map_err(|_| format!("`keepLatest`: `{value}` is not a whole number"))?;
                    rule.keep_latest.replace(count).is_none()
                }
                _ => return Err(format!("unknown key `{key}`: use `flow`, `status`, `olderThan` and `keepLatest`")),
            };
            if !is_new {
                return Err(format!("`{key}` is given twice"));
            }
        }
        rule.check().map(|()| rule)
    }
}

impl fmt::Display for RetentionRule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let status = self.status.map(|status| status.name().to_owned());
        let parts = [
            ("flow", self.flow.clone()),
            ("status", status),
            ("olderThan", self.older_than.clone()),
            ("keepLatest", self.keep_latest.map(|count| count.to_string())),
        ];
        let parts: Vec<_> = parts.into_iter().filter_map(|(key, value)| Some(format!("{key}={}", value?))).collect();
        formatter.write_str(&parts.join(","))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn a_rule_is_read_as_it_is_written() {
        let text = "flow=report,status=failed,olderThan=30d,keepLatest=100";
        let rule: RetentionRule = text.parse().unwrap();
        assert_eq!((rule.to_string().as_str(), rule.age_ms()), (text, Ok(Some(30 * 86_400_000))));
        let json = r#"{"flow":"report","status":"failed","olderThan":"30d","keepLatest":100}"#;
        assert_eq!(serde_json::from_str::<RetentionRule>(json).unwrap(), rule);
        assert_eq!(serde_json::to_string(&rule).unwrap(), json);
    }

    #[test]
    fn a_rule_that_would_do_nothing_or_too_much_is_refused() {
        for (text, why) in [
            ("flow=a", "needs `olderThan` or `keepLatest`"),
            ("", "not of the form `key=value`"),
            ("flow=,keepLatest=1", "`flow` is empty"),
            ("flow=a b,keepLatest=1", "not the name of a flow"),
            ("olderThan=5m", "the minimum age is 10 minutes"),
            ("olderThan=0d", "the minimum age is 10 minutes"),
            ("olderThan=30", "not an age"),
            ("olderThan=1.5d", "not an age"),
            ("olderThan=-1d", "not an age"),
            ("olderThan=", "not an age"),
            ("olderThan=é", "not an age"),
            ("olderThan=99999999999999999999d", "not an age"),
            ("olderThan=999999999999999999d", "not an age"),
            ("keepLatest=-1", "not a whole number"),
            ("keepLatest=1,keepLatest=2", "given twice"),
            ("status=parked,keepLatest=1", "`status` must be"),
            ("age=1d", "unknown key `age`"),
        ] {
            let told = text.parse::<RetentionRule>().unwrap_err();
            assert!(told.contains(why), "{text}: {told}");
        }
        assert!(serde_json::from_str::<RetentionRule>(r#"{ "olderThen": "1d" }"#).is_err());
        let rules = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<RetentionRule>>();
        assert_eq!(check(&rules(&["flow=a,keepLatest=1", "status=failed,olderThan=1d", "olderThan=2d"])), Ok(()));
        let never = check(&rules(&["status=failed,keepLatest=1", "flow=a,status=failed,keepLatest=9"])).unwrap_err();
        assert!(never.contains("`retention[1]` would never be used, because `retention[0]`"), "{never}");
        assert!(check(&vec![RetentionRule::default(); MAX_RULES + 1]).unwrap_err().contains("exceed the maximum"));
        assert!(check(&[RetentionRule::default()]).unwrap_err().contains("`retention[0]`: needs"));
    }
}
