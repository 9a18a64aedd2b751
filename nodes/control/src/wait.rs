//! The node `control.wait`: waits for some time or for an event.

use flowcell_sdk::prelude::*;

#[derive(Deserialize)]
pub(crate) struct Input {
    ms: Option<u64>,
    until: Option<String>,
}

/// The state of the pause: the time at which the wait began.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Began {
    started_ms: u64,
}

/// Waits for some time, for an event, or for whichever of the two comes first.
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
    let pause = match (input.until, input.ms) {
        (Some(event), Some(ms)) => Pause::event(event).or_after_ms(ms),
        (Some(event), None) => Pause::event(event),
        (None, Some(ms)) => Pause::after_ms(ms),
        (None, None) => return Err(Failure::invalid_input("give either `ms` or `until`")),
    };
    Ok(pause.remember(Began { started_ms: now })?.into())
}
