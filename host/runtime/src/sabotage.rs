//! Switches that break guarantees on purpose, only in builds with the feature `sabotage`. The tests must detect each
//! of them. `FLOWCELL_TEST_SABOTAGE` selects one.

#[cfg(feature = "sabotage")]
fn is_on(what: &str) -> bool {
    std::env::var("FLOWCELL_TEST_SABOTAGE").is_ok_and(|chosen| chosen == what)
}

#[cfg(not(feature = "sabotage"))]
fn is_on(_: &str) -> bool {
    false
}

/// Returns true if nothing waits for the journal, and nothing forces it.
pub(crate) fn forcing_is_off() -> bool {
    is_on("forcing")
}

/// Returns true if a repeated attempt has no record of its calls.
pub(crate) fn deduplication_is_off() -> bool {
    is_on("deduplication")
}
