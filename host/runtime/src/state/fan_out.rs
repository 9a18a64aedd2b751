//! The state of a fan-out: which passes have begun, their results and their failures.

use flowcell_contract::{Failure, FanOut, Json, code};

/// A fan-out in progress.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Each {
    pub(crate) fan_out: FanOut,
    /// The index of the next item for which a pass begins.
    pub(crate) next: u32,
    /// The number of passes that have ended.
    pub(crate) done: u32,
    /// The number of passes that have failed.
    failed: u32,
    pub(crate) results: Vec<Option<Json>>,
    /// The failure that stopped the fan-out.
    pub(crate) failure: Option<Failure>,
}

impl Each {
    pub(crate) fn new(fan_out: FanOut) -> Each {
        let items = fan_out.items.json().as_array().map_or(0, <[Json]>::len);
        Each { fan_out, next: 0, done: 0, failed: 0, results: vec![None; items], failure: None }
    }

    /// Counts a pass that failed. The fan-out stops if it ends with any failure, or if more passes failed than may.
    pub(crate) fn count_failure(&mut self, failure: &Failure) {
        self.failed += 1;
        if self.failure.is_some() {
            return;
        }
        if self.fan_out.stop_on_failure {
            self.failure = Some(failure.clone());
        } else if let Some(most) = self.fan_out.max_failures.filter(|most| self.failed > *most) {
            let passes = self.results.len();
            let message = format!(
                "{} of {passes} passes failed, and {most} may; the last failure: {}: {}",
                self.failed, failure.code, failure.message
            );
            let details = Json::object([("failed", Json::from(self.failed)), ("last", failure.to_json())]);
            self.failure = Some(Failure { details: Some(details), ..Failure::new(code::TOO_MANY_FAILURES, message) });
        }
    }
}

#[cfg(test)]
mod tests {
    use flowcell_contract::Value;

    use super::*;

    fn fan_out(stop_on_failure: bool, max_failures: Option<u32>) -> Each {
        let items = Value::from(Json::array((0..9_u32).map(Json::from)));
        Each::new(FanOut { items, concurrency: None, stop_on_failure, max_failures })
    }

    /// The failure of the pass itself ends a fan-out that stops at any failure; a limit has a failure of its own, which
    /// names the numbers, and later failures do not change it.
    #[test]
    fn a_fan_out_ends_with_one_failure_more_than_may_be() {
        let failures = ["one", "two", "three"].map(|message| Failure::new("down", message));
        for (stop, most, stops_at) in [
            (true, None, Some(0)),
            (false, None, None),
            (false, Some(0), Some(0)),
            (false, Some(1), Some(1)),
            (false, Some(3), None),
        ] {
            let mut each = fan_out(stop, most);
            let mut ends = None;
            for (index, failure) in failures.iter().enumerate() {
                each.count_failure(failure);
                if each.failure.is_some() && ends.is_none() {
                    ends = Some(index);
                }
            }
            assert_eq!(ends, stops_at, "{stop} {most:?}");
            let message = each.failure.map(|failure| failure.to_string());
            match (stop, most) {
                (true, _) => assert_eq!(message.as_deref(), Some("down: one")),
                (false, Some(1)) => {
                    let wanted = "too_many_failures: 2 of 9 passes failed, and 1 may; the last failure: down: two";
                    assert_eq!(message.as_deref(), Some(wanted));
                }
                _ => {}
            }
        }
    }
}
