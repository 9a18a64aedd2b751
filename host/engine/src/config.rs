//! What an operator can choose.

use std::path::PathBuf;

use crate::{Compiler, Limits};

/// How an engine is set up.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Where compiled code is kept; none: nothing is kept.
    pub cache_dir: Option<PathBuf>,
    /// What compiles the packs of strangers; none: this process does, and has no limit to how much memory and time that takes.
    pub compiler: Option<Compiler>,
    /// What one attempt may use.
    pub limits: Limits,
    /// Threads that run guests; none: one for each core.
    pub threads: Option<usize>,
    /// Instances at a time, those that wait for a call included; what is more waits for its turn. None: as many as the
    /// machine can hold, at most 1,000. Each costs 2 µs at the start, so a process that lives shortly wants fewer.
    pub instances: Option<u32>,
    /// Bytes of linear memory that all instances may have at a time, beyond the first 4 MiB of each; none: a quarter of the
    /// machine's. A tenant takes no more of it than it leaves.
    pub memory: Option<u64>,
}
