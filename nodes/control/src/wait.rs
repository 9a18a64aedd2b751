//! The node `control.wait`: waits for some time, until a moment or for an event.

use flowcell_expr::{Json, instant_milliseconds};
use flowcell_sdk::prelude::*;

const DAY_MS: u64 = 24 * 3_600 * 1_000;
/// The longest wait, as for timeouts.
const MAX_DAYS: u64 = 365;

#[derive(Deserialize)]
pub(crate) struct Input {
    /// A number as JSON has it. The host refuses one above its limit.
    ms: Option<f64>,
    at: Option<Json>,
    until: Option<String>,
}

/// The state of the pause: the time at which the wait began.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Began {
    started_ms: u64,
}

/// Waits for some time or until a moment, for an event, or for whichever comes first.
pub(crate) fn run(task: &Task, input: Input) -> Result<Step> {
    let now = task.info()?.now_ms;
    if let Some(woken) = task.woken_by()? {
        let began: Began = task.state()?.unwrap_or(Began { started_ms: now });
        let waited = Source::value(now.saturating_sub(began.started_ms))?;
        let output = Output::object().with("waitedMs", waited);
        return Ok(match woken.wake.as_str() {
            "event" => output.with("event", Source::woken("/value")).into(),
            _ => output.into(),
        });
    }
    let ms = match (input.ms, input.at) {
        (Some(_), Some(_)) => return Err(Failure::invalid_input("give either `ms` or `at`")),
        (ms, None) => ms.map(|ms| ms as u64),
        (None, Some(at)) => {
            let refuse = |error| Failure::invalid_input(format!("input at `/at`: {error}"));
            let at = u64::try_from(instant_milliseconds(&at).map_err(refuse)?).unwrap_or_default();
            if at <= now {
                return Ok(Output::object().with("waitedMs", Source::value(0)?).into());
            }
            let days = (at - now).div_ceil(DAY_MS);
            if at - now > MAX_DAYS * DAY_MS {
                let message =
                    format!("input at `/at`: the moment is {days} days ahead; a wait has at most {MAX_DAYS} days");
                return Err(Failure::invalid_input(message));
            }
            Some(at - now)
        }
    };
    let pause = match (input.until, ms) {
        (Some(event), Some(ms)) => Pause::event(event).or_after_ms(ms),
        (Some(event), None) => Pause::event(event),
        (None, Some(ms)) => Pause::after_ms(ms),
        (None, None) => return Err(Failure::invalid_input("give `ms`, `at` or `until`")),
    };
    Ok(pause.remember(Began { started_ms: now })?.into())
}
