//! Parses durations such as `500ms`, `30s` and `1h30m`, and prints them.

use std::time::Duration;

pub(crate) use flowcell::duration::parse;

/// Formats a duration for people: `12 ms`, `1.2 s`, `3 min 20 s`.
pub(crate) fn show(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match duration.as_millis() {
        millis @ 0..1_000 => format!("{millis} ms"),
        1_000..60_000 => format!("{:.1} s", duration.as_secs_f64()),
        60_000..3_600_000 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_formatted_shortly() {
        for (millis, text) in
            [(0, "0 ms"), (999, "999 ms"), (1_250, "1.2 s"), (200_000, "3 min 20 s"), (7_260_000, "2 h 1 min")]
        {
            assert_eq!(show(Duration::from_millis(millis)), text);
        }
    }
}
