//! The real program and its store under faults: processes that die without warning, a disk that is full or fails, a world
//! that hangs up. After each test a checker that knows nothing of Flowcell but the tables reads the store, and a ledger
//! outside of the processes tells what the world has seen.
//!
//! `cargo test -p flowcell --test faults -- --nocapture` prints how often the processes died. `FLOWCELL_TEST_SCALE`
//! multiplies that, and `FLOWCELL_TEST_SEED` makes it happen otherwise.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
#![cfg(unix)]

mod cancelled;
mod checker;
mod clocks;
mod crash_loop;
mod dice;
mod every_commit;
#[path = "../guests/mod.rs"]
mod guests;
mod homes;
mod kill_storm;
mod killed;
mod killed_anywhere;
mod ledger;
mod process;
mod restored;
#[cfg(feature = "sabotage")]
mod sabotaged;
mod soak;
mod stopped;
mod storage;
mod wrong;
