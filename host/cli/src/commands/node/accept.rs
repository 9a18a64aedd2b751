//! The option that accepts an index that is older than the last one of its place.

use clap::Args;
use flowcell::packs::{CheckedIndex, InstallError, Lock};

use crate::terminal::Terminal;

/// The option `--accept-index`.
#[derive(Args)]
pub(super) struct AcceptArgs {
    /// Accept the index even if it is older than the last one of its place that a pack was installed from, or if its
    /// signer has changed
    #[arg(long, requires = "index")]
    accept_index: bool,
}

impl AcceptArgs {
    /// Compares an index with the last one of its place in a lock. Warns if the index has no serial number, or if it is
    /// accepted on purpose.
    pub(super) fn check(&self, index: &CheckedIndex, lock: &Lock, terminal: Terminal) -> Result<(), InstallError> {
        match index.check_succeeds(lock) {
            Err(error) if self.accept_index => terminal.warn(&format!("{error}; `--accept-index` accepts it")),
            checked => checked?,
        }
        if index.issue().is_none() {
            terminal.warn(
                "the index has no serial number, so an old one is not noticed: ask its publisher to build it again with \
                 `flowcell node index build`",
            );
        }
        Ok(())
    }
}
