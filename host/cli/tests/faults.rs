//! Tests the real program and its store under faults: dying processes, a full or failing disk, and a server that closes
//! connections. After each test, a checker that only knows the tables reads the store. A server in the test process,
//! the ledger, records all requests. Ids such as R25 are cases in `tests/README.md`.
//!
//! `cargo test -p flowcell --test cli faults:: -- --nocapture` prints the numbers of killed processes.
//! `FLOWCELL_TEST_SCALE` multiplies the work, and `FLOWCELL_TEST_SEED` changes the random choices.

#![cfg(unix)]

mod cancelled;
mod checker;
mod clocks;
mod crash_loop;
mod dice;
mod every_commit;
mod homes;
mod kill_storm;
mod killed;
mod killed_anywhere;
mod ledger;
mod moved;
mod outcomes;
mod process;
mod restored;
mod sabotaged;
mod soak;
mod stopped;
mod storage;
mod undos;
mod wrong;
