//! Switches that break guarantees on purpose, only in builds with debug assertions. The tests must detect each of them.
//! `FLOWCELL_TEST_SABOTAGE` selects one.

use std::sync::LazyLock;

/// The switch that is on in this process. A release build has no switches.
static CHOSEN: LazyLock<Option<String>> = LazyLock::new(|| {
    let chosen = std::env::var("FLOWCELL_TEST_SABOTAGE").ok();
    chosen.filter(|_| cfg!(debug_assertions))
});

fn is_on(what: &str) -> bool {
    cfg!(debug_assertions) && CHOSEN.as_deref() == Some(what)
}

/// Returns true if nothing waits for the journal, and nothing forces it.
pub(crate) fn forcing_is_off() -> bool {
    is_on("forcing")
}

/// Returns true if a repeated attempt has no record of its calls.
pub(crate) fn deduplication_is_off() -> bool {
    is_on("deduplication")
}
