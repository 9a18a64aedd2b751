//! Ways to break the promise on purpose, in builds with the feature `sabotage` alone: the tests must notice each of them.
//! `FLOWCELL_TEST_SABOTAGE` says which.

#[cfg(feature = "sabotage")]
fn is_on(what: &str) -> bool {
    std::env::var("FLOWCELL_TEST_SABOTAGE").is_ok_and(|chosen| chosen == what)
}

#[cfg(not(feature = "sabotage"))]
fn is_on(_: &str) -> bool {
    false
}

/// Nothing waits for the journal, and nothing forces it.
pub(crate) fn forcing_is_off() -> bool {
    is_on("forcing")
}

/// A repeated attempt has no record of its calls.
pub(crate) fn deduplication_is_off() -> bool {
    is_on("deduplication")
}
